/* getdents64, telldir, seekdir; directories that change while they are read. The order depends on the file
 * system, but each name must be seen once.
 */
#include "conform.h"

struct linux_dirent64 {
    uint64_t d_ino;
    int64_t d_off;
    unsigned short d_reclen;
    unsigned char d_type;
    char d_name[];
};

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* All names of the current directory, sorted, with their types. */
static void say_names(void)
{
    static char names[300][64];
    int count = 0;
    DIR *dir = opendir(".");
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        lstat(e->d_name, &st);
        snprintf(names[count++], 64, "%s type %d inode %s", e->d_name, e->d_type, st.st_ino == e->d_ino ? "same" : "differs");
    }
    closedir(dir);
    qsort(names, count, 64, by_text);
    for (int i = 0; i < count; i++)
        say("  %s", names[i]);
}

GROUP(directory, types)
{
    make("file", "");
    make_dir("dir");
    T(symlink("file", "link"));
    T(mkfifo("fifo", 0600));
    T(mknod("socket", S_IFSOCK | 0600, 0));
    T(link("file", "hard"));
    say_names();
    T(chdir("dir"));
    say_names();
}

GROUP(directory, getdents_sizes)
{
    char name[300];
    for (int i = 0; i < 50; i++) {
        sprintf(name, "name-%02d-%.*s", i, i * 4, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        make(name, "");
    }
    int fd = T(open(".", O_RDONLY));
    char b[4096];
    T(syscall(SYS_getdents64, fd, b, 0));
    T(syscall(SYS_getdents64, fd, b, 1));
    T(syscall(SYS_getdents64, fd, b, 23));
    long n = T(syscall(SYS_getdents64, fd, b, 24));
    say("first %s reclen %d type %d", ((struct linux_dirent64 *)b)->d_name, ((struct linux_dirent64 *)b)->d_reclen, ((struct linux_dirent64 *)b)->d_type);
    int sizes[] = { 300, 500, 1000, 4096 };
    for (unsigned s = 0; s < COUNT(sizes); s++) {
        lseek(fd, 0, SEEK_SET);
        int count = 0, total = 0, wrong = 0;
        while ((n = syscall(SYS_getdents64, fd, b, sizes[s])) > 0)
            for (long at = 0; at < n;) {
                struct linux_dirent64 *e = (void *)(b + at);
                int expected = (19 + strlen(e->d_name) + 1 + 7) & ~7;
                wrong += e->d_reclen != expected || e->d_ino == 0;
                count++, total += e->d_reclen;
                at += e->d_reclen;
            }
        say("buffer %d: %d names, %d bytes, %d wrong, ends %ld", sizes[s], count, total, wrong, n);
    }
    T(syscall(SYS_getdents64, fd, b, 4096));
    T(lseek(fd, 0, SEEK_SET));
    T(syscall(SYS_getdents, fd, b, 4096) > 0);
    T(syscall(SYS_getdents64, 99, b, 4096));
    make("file", "");
    int f = T(open("file", O_RDONLY));
    T(syscall(SYS_getdents64, f, b, 4096));
    T(lseek(fd, -1, SEEK_SET));
    T(lseek(fd, 0, SEEK_CUR) >= 0);
}

/* The cookie of the record that ends a listing is that of the end. */
GROUP(directory, last_cookie)
{
    struct record {
        uint64_t number;
        int64_t next;
        uint16_t length;
        uint8_t type;
        char name[];
    };
    static char room[4096];
    make("a", "");
    make("b", "");
    unsigned sizes[] = { sizeof room, 24, 48, 80 };
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        int dir = open(".", O_RDONLY);
        long got;
        while ((got = syscall(SYS_getdents64, dir, room, sizes[i])) > 0)
            for (long at = 0; at < got; at += ((struct record *)(room + at))->length) {
                struct record *record = (struct record *)(room + at);
                say("%s %s", record->name, record->next == INT32_MAX ? "last" : "not the last");
            }
        say("%ld at %ld", got, (long)lseek(dir, 0, SEEK_CUR));
    }
}

/* Each number between those of the first and the last entry leads to one. */
GROUP(directory, seek_anywhere)
{
    char name[16];
    for (int i = 0; i < 20; i++) {
        sprintf(name, "n%d", i);
        make(name, "");
    }
    unlink("n7");
    unlink("n11");
    make("newest", "");
    int dir = open(".", O_RDONLY);
    for (int at = 0; at < 30; at++) {
        T(lseek(dir, at, SEEK_SET));
        struct {
            long inode, next;
            char rest[3], name[13];
        } record;
        int got = syscall(SYS_getdents64, dir, &record, sizeof record);
        say("%s, then at %ld", got > 0 ? record.name : "none", at < 2 ? 0 : (long)lseek(dir, 0, SEEK_CUR));
    }
}

GROUP(directory, tell_and_seek)
{
    char name[16];
    for (int i = 0; i < 100; i++) {
        sprintf(name, "n%d", i);
        make(name, "");
    }
    DIR *dir = opendir(".");
    long places[200];
    char names[200][16];
    int count = 0;
    struct dirent *e;
    while (places[count] = telldir(dir), (e = readdir(dir)))
        snprintf(names[count++], 16, "%s", e->d_name);
    say("%d", count);
    int wrong = 0;
    for (int i = count - 1; i >= 0; i -= 7) {
        seekdir(dir, places[i]);
        e = readdir(dir);
        wrong += !e || strcmp(e->d_name, names[i]);
    }
    say("wrong after seekdir %d", wrong);
    seekdir(dir, places[count]);
    say("end %d", readdir(dir) == NULL);
    seekdir(dir, places[50]);
    for (int i = 0; i < 50; i++)
        if (names[i][0] == 'n')
            unlink(names[i]);
    int left = 0, first_ok = 0;
    while ((e = readdir(dir))) {
        if (!left++)
            first_ok = !strcmp(e->d_name, names[50]);
    }
    say("after removing what was read: %d left, first as before %d", left, first_ok);
    rewinddir(dir);
    left = 0;
    while (readdir(dir))
        left++;
    say("%d", left);
    make("added", "");
    rewinddir(dir);
    int seen = 0;
    while ((e = readdir(dir)))
        seen += !strcmp(e->d_name, "added");
    say("added seen %d", seen);
    rewinddir(dir);
    while ((e = readdir(dir)))
        if (e->d_name[0] != '.')
            unlink(e->d_name);
    closedir(dir);
}

GROUP(directory, changing)
{
    char name[16], other[16];
    for (int i = 0; i < 1000; i++) {
        sprintf(name, "n%d", i);
        make(name, "");
    }
    DIR *dir = opendir(".");
    int seen[1000] = { 0 }, twice = 0, missed = 0, round = 0;
    for (struct dirent *e; (e = readdir(dir)); round++) {
        if (e->d_name[0] == 'n')
            seen[atoi(e->d_name + 1)]++;
        /* Odd names are removed, in a different order; others are added. Even ones must each be seen once. */
        sprintf(name, "n%d", (round * 2 + 501) % 1000 | 1);
        unlink(name);
        sprintf(other, "x%d", round);
        make(other, "");
        if (round > 5000)
            break;
    }
    for (int i = 0; i < 1000; i += 2)
        missed += !seen[i], twice += seen[i] > 1;
    say("missed %d twice %d endless %d", missed, twice, round > 5000);
    closedir(dir);
    dir = opendir(".");
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && unlink(e->d_name))
            say("unlink: %s", strerrorname_np(errno));
    closedir(dir);
    say_names();
}

GROUP(directory, removed_while_open)
{
    make_dir("d");
    make("d/f", "");
    DIR *dir = opendir("d");
    int fd = dirfd(dir);
    T(unlink("d/f"));
    T(rmdir("d"));
    int count = 0;
    while (readdir(dir))
        count++;
    say("%d names", count);
    T(openat(fd, "x", O_CREAT | O_RDWR, 0600));
    T(openat(fd, "..", O_RDONLY) > 0);
    T(fchdir(fd));
    char b[300];
    TP(getcwd(b, sizeof b));
    T(access(".", F_OK));
    T(access("..", F_OK));
    T(open(".", O_RDONLY) > 0);
    T(mkdir("sub", 0755));
    attributes_fd(fd);
    DIR *again = opendir(".");
    count = 0;
    while (again && readdir(again))
        count++;
    say("%d names", count);
    T(chdir(".."));
}

GROUP(directory, two_readers)
{
    char name[16];
    for (int i = 0; i < 20; i++) {
        sprintf(name, "n%d", i);
        make(name, "");
    }
    int fd = T(open(".", O_RDONLY)), d = T(dup(fd)), other = T(open(".", O_RDONLY));
    char b[200];
    int total = 0;
    for (int turn = 0;; turn++) {
        long n = syscall(SYS_getdents64, turn % 2 ? fd : d, b, sizeof b);
        if (n <= 0)
            break;
        for (long at = 0; at < n; at += ((struct linux_dirent64 *)(b + at))->d_reclen)
            total++;
    }
    say("through two descriptors of one open file %d", total);
    T(syscall(SYS_getdents64, other, b, sizeof b) > 0);
    CHILD {
        T(lseek(fd, 0, SEEK_SET));
    }
    T(syscall(SYS_getdents64, d, b, sizeof b) > 0);
}
