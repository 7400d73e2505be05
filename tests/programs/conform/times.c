/* Which of the three times of a file and of its directory each call updates; utimensat. */
#include "conform.h"
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <utime.h>

struct marks {
    struct timespec a, m, c;
    int there;
};

static struct marks marks_of(const char *path)
{
    struct stat st;
    if (lstat(path, &st))
        return (struct marks){ .there = 0 };
    return (struct marks){ st.st_atim, st.st_mtim, st.st_ctim, 1 };
}

static int moved(struct timespec before, struct timespec after)
{
    return before.tv_sec != after.tv_sec || before.tv_nsec != after.tv_nsec;
}

static void say_moved(const char *name, struct marks before)
{
    struct marks after = marks_of(name);
    if (!before.there || !after.there)
        say("  %s: %s", name, after.there ? "new" : "none");
    else
        say("  %s:%s%s%s", name, moved(before.a, after.a) ? " atime" : "", moved(before.m, after.m) ? " mtime" : "",
            moved(before.c, after.c) ? " ctime" : "");
}

/* Runs a call and prints the times that it updated of f, g, the directory d and the current one. */
#define MOVES(call)                                                                                              \
    do {                                                                                                         \
        struct marks f_ = marks_of("f"), g_ = marks_of("g"), d_ = marks_of("d"), here_ = marks_of(".");          \
        nap();                                                                                                   \
        T(call);                                                                                                 \
        say_moved("f", f_), say_moved("g", g_), say_moved("d", d_), say_moved(".", here_);                       \
    } while (0)

GROUP(times, data)
{
    make_dir("d");
    int fd = make_open("f", "text", O_RDWR);
    make("g", "other");
    char b[8];
    MOVES(read(fd, b, 2));
    MOVES(read(fd, b, 2));
    MOVES(read(fd, b, 2));
    MOVES(write(fd, "more", 4));
    MOVES(read(fd, b, 2));
    MOVES(lseek(fd, 0, SEEK_SET));
    MOVES(read(fd, b, 2));
    MOVES(read(fd, b, 0));
    MOVES(write(fd, "", 0));
    MOVES(pread(fd, b, 2, 0));
    MOVES(pwrite(fd, "x", 1, 0));
    MOVES(ftruncate(fd, 8));
    MOVES(ftruncate(fd, 3));
    MOVES(truncate("f", 3));
    MOVES(truncate("f", 9));
    MOVES(fallocate(fd, 0, 0, 9));
    MOVES(fallocate(fd, 0, 0, 100));
    MOVES(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10));
    MOVES(open("f", O_RDONLY) > 0);
    MOVES(open("f", O_WRONLY | O_TRUNC) > 0);
    MOVES(open("f", O_WRONLY | O_TRUNC) > 0);
    MOVES(open("f", O_CREAT | O_RDWR, 0600) > 0);
    MOVES(open("new", O_CREAT | O_RDWR, 0600) > 0);
    MOVES(open("g", O_RDONLY | O_NOATIME) > 0);
    MOVES(fsync(fd));
    MOVES(close(fd));
}

GROUP(times, names)
{
    make("f", "text");
    nap();
    make("g", "other");
    make_dir("d");
    MOVES(link("f", "d/f"));
    MOVES(rename("d/f", "d/e"));
    MOVES(rename("f", "g"));
    MOVES(rename("g", "f"));
    MOVES(unlink("d/e"));
    MOVES(symlink("f", "d/l"));
    MOVES(mkdir("d/sub", 0755));
    MOVES(rename("d", "x"));
    MOVES(rename("x", "d"));
    MOVES(rename("d/sub", "sub"));
    MOVES(rename("sub", "d/sub"));
    MOVES(rmdir("d/sub"));
    MOVES(mkfifo("d/p", 0644));
    MOVES(access("f", R_OK));
    MOVES(chdir("d"));
    T(chdir(".."));
    MOVES(readlink("d/l", (char[8]){ 0 }, 8));
    MOVES(open("nosuch", O_RDONLY));
    MOVES(mkdir("d", 0755));
    MOVES(rename("f", "f"));
    make("g", "again");
    MOVES(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 2));
    struct marks l = marks_of("d/l");
    nap();
    T(open("d/l", O_RDONLY));
    say_moved("d/l", l);
    DIR *dir = opendir("d");
    struct marks before = marks_of("d");
    nap();
    while (readdir(dir)) {
    }
    say_moved("d", before);
    before = marks_of("d");
    nap();
    rewinddir(dir);
    while (readdir(dir)) {
    }
    say_moved("d", before);
    closedir(dir);
}

GROUP(times, inode)
{
    make("f", "text");
    make("g", "x");
    make_dir("d");
    MOVES(chmod("f", 0600));
    MOVES(chmod("f", 0600));
    MOVES(chown("f", getuid(), getgid()));
    MOVES(chown("f", -1, -1));
    MOVES(chmod("d", 0700));
    MOVES(utimensat(AT_FDCWD, "f", NULL, 0));
    struct timespec omit[2] = { { 0, UTIME_OMIT }, { 0, UTIME_OMIT } }, now[2] = { { 0, UTIME_OMIT }, { 0, UTIME_NOW } };
    MOVES(utimensat(AT_FDCWD, "f", omit, 0));
    MOVES(utimensat(AT_FDCWD, "f", now, 0));
    MOVES(setxattr("f", "user.a", "1", 1, 0));
    MOVES(getxattr("f", "user.a", NULL, 0));
    MOVES(removexattr("f", "user.a"));
    MOVES(removexattr("f", "user.a"));
    int fd = T(open("f", O_RDWR));
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MOVES(*(volatile char *)map);
    MOVES(munmap(map, 4096));
    MOVES(copy_file_range(fd, &(loff_t){ 0 }, fd, &(loff_t){ 2 }, 2, 0));
}

static void say_times(const char *name)
{
    struct stat st;
    if (lstat(name, &st))
        say("%s: %s", name, strerrorname_np(errno));
    else
        say("  %s: %lld.%09ld %lld.%09ld", name, (long long)st.st_atime, st.st_atim.tv_nsec, (long long)st.st_mtime, st.st_mtim.tv_nsec);
}

GROUP(times, utimensat)
{
    make("f", "x");
    make_dir("d");
    T(symlink("f", "l"));
    int fd = T(open("f", O_RDONLY));
    struct timespec ts[2] = { { 100, 123456789 }, { 200, 999999999 } };
    T(utimensat(AT_FDCWD, "f", ts, 0));
    say_times("f");
    long seconds[] = { 0, -1, 0x7fffffff, 0x80000000L, -0x80000000L, 0xffffffffL, 0x3ffffffffL, 0x7fffffffffffffffL, -0x7fffffffffffffffL };
    for (unsigned i = 0; i < COUNT(seconds); i++) {
        ts[0] = (struct timespec){ seconds[i], 5 }, ts[1] = (struct timespec){ seconds[i], 6 };
        T(utimensat(AT_FDCWD, "f", ts, 0));
        say_times("f");
    }
    ts[0] = (struct timespec){ 1, 0 }, ts[1] = (struct timespec){ 2, 1000000000 };
    T(utimensat(AT_FDCWD, "f", ts, 0));
    ts[1].tv_nsec = -1;
    T(utimensat(AT_FDCWD, "f", ts, 0));
    ts[1].tv_nsec = UTIME_OMIT;
    T(utimensat(AT_FDCWD, "f", ts, 0));
    say("atime only");
    ts[0] = (struct timespec){ 7, 8 }, ts[1] = (struct timespec){ 9, 10 };
    T(utimensat(AT_FDCWD, "l", ts, AT_SYMLINK_NOFOLLOW));
    say_times("l");
    T(utimensat(AT_FDCWD, "l", ts, 0));
    say_times("f");
    T(futimens(fd, ts));
    T(utimensat(fd, NULL, ts, 0));
    T(utimensat(fd, NULL, ts, AT_SYMLINK_NOFOLLOW));
    T(utimensat(fd, "", ts, AT_EMPTY_PATH));
    T(utimensat(fd, "f", ts, 0));
    T(utimensat(99, "f", ts, 0));
    T(futimens(99, ts));
    T(utimensat(AT_FDCWD, NULL, ts, 0));
    T(utimensat(AT_FDCWD, "nosuch", ts, 0));
    T(utimensat(AT_FDCWD, "", ts, 0));
    T(utimensat(AT_FDCWD, "f/", ts, 0));
    T(utimensat(AT_FDCWD, "f", ts, 0x40000000));
    T(utimensat(AT_FDCWD, "d", ts, 0));
    say_times("d");
    struct timeval tv[2] = { { 11, 22 }, { 33, 44 } };
    T(utimes("f", tv));
    say_times("f");
    tv[0].tv_usec = 1000000;
    T(utimes("f", tv));
    T(lutimes("l", (struct timeval[2]){ { 1, 2 }, { 3, 4 } }));
    say_times("l");
    struct utimbuf u = { 55, 66 };
    T(utime("f", &u));
    say_times("f");
    T(utime("f", NULL));
    T(futimesat(AT_FDCWD, "f", (struct timeval[2]){ { 1, 2 }, { 3, 4 } }));
    say_times("f");
    CHILD {
        become_nobody();
        T(utimensat(AT_FDCWD, "f", ts, 0));
        T(utimensat(AT_FDCWD, "f", NULL, 0));
        T(futimens(fd, NULL));
        struct timespec both[2] = { { 0, UTIME_OMIT }, { 0, UTIME_OMIT } };
        T(utimensat(AT_FDCWD, "f", both, 0));
        both[0].tv_nsec = UTIME_NOW;
        T(utimensat(AT_FDCWD, "f", both, 0));
        both[1].tv_nsec = UTIME_NOW;
        T(utimensat(AT_FDCWD, "f", both, 0));
    }
}

GROUP(times, consistency)
{
    make("f", "x");
    struct stat st;
    struct timespec before, after;
    clock_gettime(CLOCK_REALTIME_COARSE, &before);
    make("new", "x");
    clock_gettime(CLOCK_REALTIME, &after);
    stat("new", &st);
    say("not before %d not after %d", st.st_mtim.tv_sec > before.tv_sec || (st.st_mtim.tv_sec == before.tv_sec && st.st_mtim.tv_nsec >= before.tv_nsec),
        st.st_mtim.tv_sec < after.tv_sec || (st.st_mtim.tv_sec == after.tv_sec && st.st_mtim.tv_nsec <= after.tv_nsec));
    T(symlink("x", "l"));
    lstat("l", &st);
    say("same %d", !moved(st.st_atim, st.st_mtim) && !moved(st.st_mtim, st.st_ctim));
    make_dir("d");
    lstat("d", &st);
    say("same %d", !moved(st.st_atim, st.st_mtim) && !moved(st.st_mtim, st.st_ctim));
}

/* Calls that move no byte. */
GROUP(times, of_nothing)
{
    make("f", "text"), make("g", "");
    int f = open("f", O_RDWR), g = open("g", O_RDWR), quiet = open("f", O_RDONLY | O_NOATIME);
    /* Older than what a read sets with relatime. */
    struct timespec past[2] = { { 10, 0 }, { 20, 0 } };
    futimens(f, past), futimens(g, past);
    MOVES(truncate("f", 4));
    MOVES(truncate("g", 0));
    MOVES(truncate("f", 3));
    MOVES(ftruncate(f, 3));
    futimens(f, past);
    MOVES(mmap(NULL, 4096, PROT_READ, MAP_SHARED, quiet, 0) == MAP_FAILED);
    MOVES(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, f, 0) == MAP_FAILED);
    futimens(f, past);
    MOVES(mmap(NULL, 4096, PROT_NONE, MAP_SHARED, f, 0) == MAP_FAILED);
    futimens(f, past);
    MOVES(mmap(NULL, 4096, PROT_READ, MAP_SHARED, f, -4096) == MAP_FAILED);
    MOVES(sendfile(g, f, NULL, 0));
    futimens(f, past);
    lseek(f, 0, SEEK_END);
    MOVES(sendfile(g, f, NULL, 5));
    struct iovec bad = { (void *)8, 5 };
    MOVES(write(f, (void *)8, 5));
    MOVES(pwrite(f, (void *)8, 5, 1));
    MOVES(writev(f, &bad, 1));
    MOVES(read(f, (void *)8, 5));
    MOVES(write(f, (void *)8, 0));
}

/* Reads through O_NOATIME, and what has it beside what has not. */
GROUP(times, quiet)
{
    make("f", "text"), make("g", ""), make_dir("d");
    int f = open("f", O_RDONLY | O_NOATIME), d = open("d", O_RDONLY | O_NOATIME), loud = open("d", O_RDONLY), g = open("g", O_WRONLY), ends[2];
    struct timespec past[2] = { { 10, 0 }, { 20, 0 } };
    char room[1000];
    loff_t at = 0;
    utimensat(AT_FDCWD, "f", past, 0), utimensat(AT_FDCWD, "d", past, 0);
    pipe(ends);
    MOVES(read(f, room, 2));
    MOVES(pread(f, room, 2, 0));
    MOVES(read(f, room, 0));
    MOVES(sendfile(g, f, &at, 2));
    MOVES(sendfile(ends[1], f, &at, 2));
    at = 0;
    MOVES(splice(f, &at, ends[1], NULL, 2, 0));
    at = 0;
    MOVES(copy_file_range(f, &at, g, NULL, 2, 0));
    MOVES(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, f, 0) == MAP_FAILED);
    MOVES(syscall(SYS_getdents64, d, room, sizeof room));
    MOVES(syscall(SYS_getdents64, d, room, sizeof room));
    MOVES(syscall(SYS_getdents64, d, (void *)8, sizeof room));
    MOVES(fcntl(loud, F_SETFL, O_NOATIME));
    MOVES(syscall(SYS_getdents64, loud, room, sizeof room));
    MOVES(fcntl(loud, F_SETFL, 0));
    MOVES(syscall(SYS_getdents64, loud, room, sizeof room));
}

static void execute(const char *path, char **arguments)
{
    CHILD {
        T(execve(path, arguments, NULL));
    }
}

/* What execve(2) reads. */
static void execute_all(void)
{
    char *none[] = { "f", NULL };
    struct timespec past[2] = { { 10, 0 }, { 20, 0 } };
    make("f", "text"), make("g", "#!/bin/true\n"), make_dir("d");
    chmod("f", 0700), chmod("g", 0755);
    utimensat(AT_FDCWD, "f", past, 0), utimensat(AT_FDCWD, "g", past, 0);
    MOVES((execute("d", none), 0));
    MOVES((execute("f", none), 0));
    MOVES((execute("f", none), 0));
    MOVES((execute("g", none), 0));
    utimensat(AT_FDCWD, "f", past, 0);
    chmod("f", 0);
    MOVES((execute("f", none), 0));
    chmod("f", 06711);
    MOVES((execute("f", none), 0));
    utimensat(AT_FDCWD, "f", past, 0);
    make("h", "#!./f\n");
    chmod("h", 0755);
    MOVES((execute("h", none), 0));
    chmod("f", 0644);
    utimensat(AT_FDCWD, "f", past, 0);
    MOVES((execute("f", none), 0));
    MOVES((execute("h", none), 0));
}

GROUP(times, executed)
{
    struct timespec past[2] = { { 10, 0 }, { 20, 0 } };
    execute_all();
    chmod("f", 0700);
    utimensat(AT_FDCWD, "f", past, 0);
    MOVES((execute("f", (char **)8), 0));
}

GROUP(times, executed_on_the_host)
{
    char path[] = "/tmp/conform-times-XXXXXX";
    int here = T(open(".", O_PATH));
    T(mkdtemp(path) != NULL);
    T(chdir(path));
    execute_all();
    T(unlink("f")), T(unlink("g")), T(unlink("h")), T(rmdir("d"));
    T(fchdir(here));
    T(rmdir(path));
}
