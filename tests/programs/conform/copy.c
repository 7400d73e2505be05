/* Copies of whole files: what is done to one of them afterwards, by any process, does not show in the others. */
#include "map.h"
#include <sys/sendfile.h>
#include <sys/wait.h>

#define BOTH (PROT_READ | PROT_WRITE)
enum { PAGES = 9 };

/* A new file with a letter in each byte of a page, and `rest` bytes behind the last page. */
static int lettered(const char *name, int pages, int rest)
{
    static char page[PAGE];
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i <= pages; i++) {
        memset(page, 'a' + i % 26, PAGE);
        if (write(fd, page, i < pages ? PAGE : rest) != (i < pages ? PAGE : rest))
            say("short");
    }
    return fd;
}

/* Copies all of `from` to a new file. */
static long copied(const char *from, const char *to)
{
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    long done = copy_file_range(in, NULL, out, NULL, 1 << 30, 0);
    close(in), close(out);
    return done;
}

/* Size, blocks and the first byte of each page. */
static void shown(const char *name)
{
    struct stat st;
    char first[64] = "", byte;
    int fd = open(name, O_RDONLY);
    if (fd < 0 || fstat(fd, &st)) {
        say("%s: none", name);
        return;
    }
    for (int i = 0; i < 60 && pread(fd, &byte, 1, i * PAGE) == 1; i++)
        first[i] = byte ? byte : '.';
    say("%s: %lld bytes, %lld blocks, %s", name, (long long)st.st_size, (long long)st.st_blocks, first);
    close(fd);
}

static void all_shown(void)
{
    shown("a"), shown("b"), shown("c");
}

/* Three files with the same content. */
static void three(void)
{
    close(lettered("a", PAGES, 77));
    T(copied("a", "b"));
    T(copied("b", "c"));
    all_shown();
}

/* Another process writes a byte. */
static void written(const char *name, long at)
{
    CHILD {
        int fd = open(name, O_WRONLY);
        _exit(pwrite(fd, "W", 1, at) != 1);
    }
}

GROUP(copy, written)
{
    three();
    written("b", 3 * PAGE);
    all_shown();
    written("a", 4 * PAGE);
    all_shown();
    written("c", 5 * PAGE);
    all_shown();
    int fd = open("b", O_WRONLY | O_APPEND);
    T(write(fd, "end", 3));
    T(copied("b", "d"));
    T(write(fd, "more", 4));
    shown("b"), shown("d");
    contents("d");
}

GROUP(copy, removed)
{
    three();
    T(unlink("a"));
    all_shown();
    written("b", 0);
    all_shown();
    T(unlink("b"));
    T(copied("c", "a"));
    T(rename("a", "c"));
    all_shown();
    int fd = T(open("c", O_RDWR));
    T(unlink("c"));
    T(copied("/proc/self/fd/3", "a"));
    T(pwrite(fd, "W", 1, PAGE));
    shown("a");
    shown("/proc/self/fd/3");
}

GROUP(copy, cut)
{
    three();
    T(truncate("a", 2 * PAGE + 5));
    T(truncate("b", 0));
    all_shown();
    T(truncate("a", 5 * PAGE));
    T(truncate("c", 20 * PAGE));
    all_shown();
    int fd = T(open("c", O_RDWR));
    T(lseek(fd, 0, SEEK_HOLE));
    T(lseek(fd, 0, SEEK_DATA));
    T(copied("c", "d"));
    shown("d");
    T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, 2 * PAGE));
    T(fallocate(fd, 0, 0, 21 * PAGE));
    shown("c"), shown("d");
    T(open("d", O_WRONLY | O_TRUNC));
    all_shown();
}

GROUP(copy, mapped)
{
    three();
    int fd = T(open("b", O_RDWR));
    char *s = TP(mmap(NULL, PAGES * PAGE, BOTH, MAP_SHARED, fd, 0));
    char *p = TP(mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    s[2 * PAGE] = 'S';
    all_shown();
    written("b", 4 * PAGE);
    say("%c %c", s[4 * PAGE], p[4 * PAGE]);
    all_shown();
    /* A copy of what is mapped, and what is written through the mapping afterwards. */
    T(copied("b", "d"));
    s[5 * PAGE] = 'T';
    shown("b"), shown("d");
    T(munmap(s, PAGES * PAGE)), T(munmap(p, PAGES * PAGE));
    T(copied("b", "e"));
    written("b", 6 * PAGE);
    shown("b"), shown("e");
}

GROUP(copy, sent)
{
    int in = lettered("a", PAGES, 0), out = T(open("b", O_RDWR | O_CREAT, 0600));
    off_t at = 0;
    T(sendfile(out, in, &at, 1 << 20));
    say("%ld %ld %ld", (long)at, (long)lseek(in, 0, SEEK_CUR), (long)lseek(out, 0, SEEK_CUR));
    written("a", 0);
    shown("a"), shown("b");
    T(sendfile(out, in, &at, 1 << 20));
    /* Positions move, and a part stays a part. */
    int again = T(open("c", O_RDWR | O_CREAT, 0600));
    lseek(in, 0, SEEK_SET);
    T(copy_file_range(in, NULL, again, NULL, 8 * PAGE, 0));
    say("%ld %ld", (long)lseek(in, 0, SEEK_CUR), (long)lseek(again, 0, SEEK_CUR));
    T(copy_file_range(in, NULL, again, NULL, 1 << 20, 0));
    T(copy_file_range(in, NULL, again, NULL, 1 << 20, 0));
    all_shown();
}

/* A program is copied and both are executed; neither can be written to meanwhile. */
GROUP(copy, programs)
{
    int self = open("/proc/self/exe", O_RDONLY), out = open("p", O_WRONLY | O_CREAT, 0755);
    while (sendfile(out, self, NULL, 1 << 24) > 0)
        ;
    close(out);
    T(copied("p", "q"));
    T(chmod("q", 0755));
    CHILD {
        dup2(open("/dev/null", O_WRONLY), 1);
        execl("./q", "./q", "--list", NULL);
        _exit(9);
    }
    T(copied("q", "r"));
    T(chmod("r", 0755));
    T(truncate("q", 5));
    CHILD {
        dup2(open("/dev/null", O_WRONLY), 1);
        execl("./r", "./r", "--list", NULL);
        _exit(9);
    }
    T(open("p", O_RDWR));
    CHILD {
        execl("./p", "./p", NULL);
        T(errno);
    }
}

/* Times, set-user-ID bits, limits. */
GROUP(copy, attributes)
{
    struct stat before, after;
    close(lettered("a", PAGES, 5));
    close(open("b", O_WRONLY | O_CREAT, 0600));
    T(chmod("b", 04755));
    stat("b", &before);
    nap();
    CHILD {
        become_nobody();
        chmod("b", 0);
    }
    int in = open("a", O_RDONLY), out = open("b", O_WRONLY);
    CHILD {
        become_nobody();
        T(copy_file_range(in, NULL, out, NULL, 1 << 30, 0));
    }
    stat("b", &after);
    say("mode %o, %s, %s", after.st_mode,
        after.st_mtim.tv_sec == before.st_mtim.tv_sec && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec ? "old" : "new",
        after.st_ctim.tv_sec == after.st_mtim.tv_sec && after.st_ctim.tv_nsec == after.st_mtim.tv_nsec ? "same" : "differs");
    all_shown();
}
