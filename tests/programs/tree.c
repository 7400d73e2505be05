/* Lists a tree, sorted, one line for each name: path, type, mode, owner, group, links, size, and
 *  - the target of a symbolic link, a hash of a regular file's contents (samples of it in a very large file);
 *  - "= PATH" instead of attributes for a further name of an inode already listed;
 *  - the modification time where it is more than two days old, that is, was set on purpose.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Above SAMPLED bytes, only one buffer in STEP is read, and the last. */
#define SAMPLED (64L << 20)
#define STEP (8L << 20)
/* Most buffers of a file. */
#define PIECES 4096

struct seen {
    ino_t ino;
    char *path;
};
static struct seen *seen;
static size_t seen_count, seen_room;
static int failures;

static void fail(const char *what, const char *path)
{
    printf("%s %s: %s\n", what, path, strerrorname_np(errno));
    failures++;
}

static const char *earlier_name(const struct stat *st, const char *path)
{
    if (st->st_nlink < 2 || S_ISDIR(st->st_mode))
        return NULL;
    for (size_t i = 0; i < seen_count; i++)
        if (seen[i].ino == st->st_ino)
            return seen[i].path;
    if (seen_count == seen_room) {
        seen_room = seen_room ? 2 * seen_room : 64;
        seen = realloc(seen, seen_room * sizeof *seen);
    }
    seen[seen_count++] = (struct seen){ st->st_ino, strdup(path) };
    return NULL;
}

static void contents(const char *path, off_t size)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW);
    if (fd < 0) {
        fail(" open", path);
        return;
    }
    unsigned long hash = 14695981039346656037UL;
    static unsigned char buffer[65536];
    off_t step = size <= SAMPLED ? 0 : size / PIECES > STEP ? size / PIECES : STEP;
    off_t at = 0;
    ssize_t n;
    while ((n = pread(fd, buffer, sizeof buffer, at)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            hash = (hash ^ buffer[i]) * 1099511628211UL;
        if (!step)
            at += n;
        else if (at < size - 2 * step)
            at += step;
        else if (at < size - (off_t)sizeof buffer)
            at = size - (off_t)sizeof buffer;
        else
            break;
    }
    if (n < 0)
        fail(" read", path);
    close(fd);
    printf(" %016lx", hash);
}

static const char *type_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "dir";
    case S_IFLNK: return "link";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "socket";
    case S_IFCHR: return "char";
    case S_IFBLK: return "block";
    default: return "?";
    }
}

static void list(const char *path);

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_directory(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) {
        fail("opendir", path);
        return;
    }
    char **names = NULL;
    size_t count = 0;
    struct dirent *entry;
    while ((errno = 0, entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        names = realloc(names, (count + 1) * sizeof *names);
        if (asprintf(&names[count++], "%s/%s", path, entry->d_name) < 0)
            abort();
    }
    if (errno)
        fail("readdir", path);
    closedir(dir);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        list(names[i]);
        free(names[i]);
    }
    free(names);
}

static void list(const char *path)
{
    struct stat st;
    if (lstat(path, &st)) {
        fail("lstat", path);
        return;
    }
    const char *first = earlier_name(&st, path);
    if (first) {
        printf("%s = %s\n", path, first);
        return;
    }
    printf("%s %s %04o %u:%u links %lu", path, type_name(st.st_mode), st.st_mode & 07777, st.st_uid, st.st_gid,
           (unsigned long)st.st_nlink);
    if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
        printf(" size %lld", (long long)st.st_size);
    // Stamps that a session gives, not those of its own time or of so many days before it.
    if (st.st_mtime < time(NULL) - 30 * 86400)
        printf(" mtime %lld.%09ld", (long long)st.st_mtime, st.st_mtim.tv_nsec);
    if (S_ISLNK(st.st_mode)) {
        char target[4097];
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0)
            fail(" readlink", path);
        else
            printf(" -> %.*s", (int)n, target);
    }
    if (S_ISREG(st.st_mode))
        contents(path, st.st_size);
    putchar('\n');
    if (S_ISDIR(st.st_mode))
        list_directory(path);
}

int main(int argc, char **argv)
{
    list(argc > 1 ? argv[1] : ".");
    return failures ? 1 : 0;
}
