/* fuzz SEED STEPS [on]: a random sequence of file calls, the same for the same seed, each printed with its results.
 * Two file systems that agree print the same lines; the first line that differs names the call.
 *
 * With "on" the sequence goes on in the directory that another left. What differs over a host tree is left out then: sizes
 * of directories, and children that may not read what their parent may.
 *
 * Every third seed runs without privileges. There are few names and small sizes, so that calls interact. FIFOs are
 * opened with O_PATH only: anything else could wait for ever.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static uint64_t state;
static unsigned step;
static char base[4096];
static int goes_on;

static unsigned roll(unsigned n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state * 0x2545f4914f6cdd1dULL >> 33) % n;
}

__attribute__((format(printf, 2, 3))) static void say(long result, const char *format, ...)
{
    int error = errno;
    char line[12000];
    int used = snprintf(line, sizeof line, "%u ", step);
    va_list list;
    va_start(list, format);
    used += vsnprintf(line + used, sizeof line - used - 64, format, list);
    va_end(list);
    if (used > (int)sizeof line - 64)
        used = sizeof line - 64;
    used += result == -1 ? sprintf(line + used, " = %s\n", strerrorname_np(error)) : sprintf(line + used, " = %ld\n", result);
    if (write(STDOUT_FILENO, line, used) != used)
        abort();
}
#define DO(call, ...)                                        \
    ({                                                       \
        errno = 0;                                           \
        long result_ = (call);                               \
        say(result_, __VA_ARGS__);                           \
        result_;                                             \
    })

/* Two paths, for calls that take two. */
static char paths[2][200];
static const char *path(int which)
{
    static const char *names[] = { "a", "b", "c", "d", "e", "f" };
    char *p = paths[which];
    *p = 0;
    int parts = 1 + (roll(3) == 0) + (roll(5) == 0) + (roll(9) == 0);
    int up = roll(12) == 0 ? (int)roll(parts) : -1;
    for (int i = 0; i < parts; i++) {
        strcat(p, i == up ? ".." : roll(40) == 0 ? "." : names[roll(6)]);
        if (i + 1 < parts)
            strcat(p, roll(50) ? "/" : "//");
    }
    if (roll(30) == 0)
        strcat(p, "/");
    if (roll(200) == 0)
        *p = 0;
    if (roll(100) == 0)
        snprintf(p, 200, "%.150s", base + (strlen(base) > 150 ? strlen(base) - 150 : 0));
    return p;
}

/* Descriptors that this sequence holds; one in twenty is invalid. */
static int fds[12];
static unsigned fd_count;
static int some_fd(void)
{
    if (!fd_count || roll(20) == 0)
        return 90 + roll(3);
    return fds[roll(fd_count)];
}
static void hold(int fd)
{
    if (fd < 0)
        return;
    for (unsigned i = 0; i < fd_count; i++)
        if (fds[i] == fd)
            return;
    if (fd_count == 12) {
        unsigned i = roll(12);
        DO(close(fds[i]), "close %d", fds[i]);
        fds[i] = fd;
    } else
        fds[fd_count++] = fd;
}
static void release(int fd)
{
    for (unsigned i = 0; i < fd_count; i++)
        if (fds[i] == fd)
            fds[i] = fds[--fd_count];
}

static unsigned char buffer[40000];
static unsigned size_of_io(void)
{
    static const unsigned usual[] = { 0, 1, 2, 7, 64, 100, 255, 256, 1000, 4095, 4096, 4097, 8192, 20000, 39999 };
    return usual[roll(sizeof usual / sizeof *usual)];
}
static long offset(void)
{
    static const long usual[] = { 0, 1, 5, 100, 4095, 4096, 4097, 8000, 16384, 65536, 100000, 300000, -1, -4096 };
    return usual[roll(sizeof usual / sizeof *usual)];
}
static void fill(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        buffer[i] = "abcdefghijklmnopqrstuvwxyz"[(i + step) % 26];
}
static unsigned long hash(const unsigned char *bytes, long n)
{
    unsigned long h = 14695981039346656037UL;
    for (long i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 1099511628211UL;
    return n > 0 ? h & 0xffffff : 0;
}

static void say_stat(long result, const char *what, const struct stat *st)
{
    if (result)
        say(-1, "%s", what);
    else
        say(0, "%s: mode %o links %lu owner %u:%u size %ld", what, st->st_mode, (unsigned long)st->st_nlink, st->st_uid, st->st_gid,
            goes_on && S_ISDIR(st->st_mode) ? 0 : (long)st->st_size);
}

static void do_open(void)
{
    static const int modes[] = { O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR };
    static const int extras[] = { O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_CREAT | O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC, O_PATH, O_TMPFILE, O_NONBLOCK, O_NOATIME, O_SYNC };
    int flags = modes[roll(5)];
    for (unsigned n = roll(4); n; n--)
        flags |= extras[roll(sizeof extras / sizeof *extras)];
    unsigned mode = roll(3) ? 0644 : roll(01000);
    path(0);
    struct stat st;
    if (!stat(paths[0], &st) && S_ISFIFO(st.st_mode))
        flags = O_PATH;
    hold(DO(open(paths[0], flags, mode), "open %s %o %o", paths[0], flags, mode));
}

static void do_dirents(void)
{
    int fd = some_fd();
    char names[64][40];
    int count = 0;
    if (DO(lseek(fd, 0, SEEK_SET), "rewind %d", fd) != 0)
        return;
    char entries[4096];
    long n;
    while ((n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        for (long at = 0; at < n;) {
            unsigned short length = *(unsigned short *)(entries + at + 16);
            if (count < 64)
                snprintf(names[count++], 40, "%s:%d", entries + at + 19, entries[at + 18]);
            at += length;
        }
    say(n, "getdents %d", fd);
    qsort(names, count, 40, (int (*)(const void *, const void *))strcmp);
    char all[3000] = "";
    for (int i = 0; i < count; i++)
        strcat(strcat(all, " "), names[i]);
    if (n == 0)
        say(count, "names%s", all);
}

static void do_map(void)
{
    int fd = some_fd(), shared = roll(2), writable = roll(2);
    long at = roll(4) * 4096L, length = 4096 * (1 + roll(3));
    errno = 0;
    unsigned char *m = mmap(NULL, length, PROT_READ | (writable ? PROT_WRITE : 0), shared ? MAP_SHARED : MAP_PRIVATE, fd, at);
    if (m == MAP_FAILED) {
        say(-1, "mmap %d shared %d writable %d at %ld", fd, shared, writable, at);
        return;
    }
    struct stat st = { 0 };
    fstat(fd, &st);
    long reach = st.st_size - at;
    reach = reach < 0 ? 0 : reach > length ? length : reach;
    if (writable && reach > 10)
        memcpy(m + roll(reach - 5), "MAPPED", 6);
    unsigned long seen = hash(m, reach);
    DO(munmap(m, length), "mmap %d shared %d writable %d at %ld saw %ld bytes %lx", fd, shared, writable, at, reach, seen);
}

static void one(void);
static void do_fork(void)
{
    unsigned calls = 1 + roll(6), unprivileged = roll(3) == 0 && geteuid() == 0 && !goes_on;
    pid_t child = fork();
    if (child < 0) {
        say(-1, "fork");
        return;
    }
    if (!child) {
        if (unprivileged && (setgid(65534) || setuid(65534)))
            _exit(9);
        for (; calls; calls--, step++)
            one();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    say(status, "child");
}

static void on_descriptor(unsigned which)
{
    int fd = some_fd();
    unsigned n = size_of_io();
    long at = offset();
    struct stat st;
    struct flock lock = { .l_whence = SEEK_SET };
    switch (which) {
    case 0: {
        long got = read(fd, buffer, n);
        say(got, "read %d %u %lx", fd, n, hash(buffer, got));
        break;
    }
    case 1: {
        long got = pread(fd, buffer, n, at);
        say(got, "pread %d %u %ld %lx", fd, n, at, hash(buffer, got));
        break;
    }
    case 2:
        fill(n), DO(write(fd, buffer, n), "write %d %u", fd, n);
        break;
    case 3:
        fill(n), DO(pwrite(fd, buffer, n, at), "pwrite %d %u %ld", fd, n, at);
        break;
    case 4: {
        int whence = roll(6);
        /* Only tmpfs treats space from fallocate as a hole; the conformance suite checks the rest. */
        if (whence == SEEK_DATA || whence == SEEK_HOLE)
            whence = SEEK_END;
        /* Directory positions depend on the file system. */
        if (!fstat(fd, &st) && S_ISDIR(st.st_mode))
            at = whence = 0;
        DO(lseek(fd, at, whence), "lseek %d %ld %d", fd, at, whence);
        break;
    }
    case 5:
        DO(ftruncate(fd, at), "ftruncate %d %ld", fd, at);
        break;
    case 6: {
        static const int modes[] = { 0, 1, 3, 2, 8, 16 };
        int mode = modes[roll(6)];
        DO(fallocate(fd, mode, at, n), "fallocate %d %d %ld %u", fd, mode, at, n);
        break;
    }
    case 7:
        errno = 0, say_stat(fstat(fd, &st), "fstat", &st);
        break;
    case 8:
        DO(fchmod(fd, n & 07777), "fchmod %d %o", fd, n & 07777);
        break;
    case 9:
        hold(DO(dup(fd), "dup %d", fd));
        break;
    case 10: {
        int to = 3 + roll(14);
        hold(DO(dup2(fd, to), "dup2 %d %d", fd, to));
        break;
    }
    case 11:
        DO(close(fd), "close %d", fd), release(fd);
        break;
    case 12: {
        int other = some_fd();
        DO(copy_file_range(fd, NULL, other, NULL, n, 0), "copy_file_range %d %d %u", fd, other, n);
        break;
    }
    case 13: {
        int other = some_fd();
        struct stat to;
        /* In a copy from a file to itself, it is up to the kernel which new bytes are read. */
        if (!fstat(fd, &to) && !fstat(other, &st) && to.st_ino == st.st_ino)
            break;
        DO(sendfile(fd, other, NULL, n), "sendfile %d %d %u", fd, other, n);
        break;
    }
    case 14: {
        int how = (int[]){ LOCK_SH, LOCK_EX, LOCK_UN }[roll(3)];
        DO(flock(fd, how | LOCK_NB), "flock %d %d", fd, how);
        break;
    }
    case 15:
        lock.l_type = roll(3), lock.l_start = roll(20), lock.l_len = roll(10);
        DO(fcntl(fd, roll(2) ? F_SETLK : F_OFD_SETLK, &lock), "setlk %d %d %ld %ld", fd, lock.l_type, (long)lock.l_start, (long)lock.l_len);
        break;
    case 16: {
        struct iovec v[3] = { { buffer, n }, { buffer + 10, 5 }, { buffer + 100, n / 2 } };
        fill(n > 200 ? n : 200);
        DO(writev(fd, v, 3), "writev %d %u", fd, n);
        break;
    }
    case 17: {
        struct iovec v[2] = { { buffer, n / 2 }, { buffer + n / 2, n - n / 2 } };
        long got = preadv(fd, v, 2, at);
        say(got, "preadv %d %u %ld %lx", fd, n, at, hash(buffer, got));
        break;
    }
    case 18:
        DO(fcntl(fd, F_GETFL), "getfl %d", fd), DO(fcntl(fd, F_GETFD), "getfd %d", fd);
        break;
    case 19: {
        int flags = (int[]){ 0, O_APPEND, O_NONBLOCK }[roll(3)];
        DO(fcntl(fd, F_SETFL, flags), "setfl %d %o", fd, flags);
        break;
    }
    case 20: {
        /* A copy of the whole file, of up to 512 KiB. */
        int other = some_fd();
        loff_t from = 0, to = 0;
        if (!fstat(fd, &st) && st.st_size > 1 << 19)
            break;
        DO(ftruncate(other, 0), "ftruncate %d", other);
        DO(copy_file_range(fd, &from, other, &to, 1 << 30, 0), "copy %d %d", fd, other);
        break;
    }
    case 21: {
        if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 4096 || st.st_blocks * 512 < st.st_size)
            break;
        errno = 0;
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        say(page == MAP_FAILED ? -1 : 0, "mmap %d", fd);
        if (page != MAP_FAILED) {
            page[100] = 'm';
            munmap(page, 4096);
        }
        break;
    }
    default:
        DO(fsync(fd), "fsync %d", fd);
    }
}

static void on_path(unsigned which)
{
    struct stat st;
    char text[300];
    const char *p = path(0), *q = path(1);
    unsigned mode = roll(3) ? 0755 : roll(010000);
    switch (which) {
    case 0:
        errno = 0, say_stat(stat(p, &st), p, &st);
        break;
    case 1:
        errno = 0, say_stat(lstat(p, &st), p, &st);
        break;
    case 2: {
        int how = roll(8);
        DO(access(p, how), "access %s %d", p, how);
        break;
    }
    case 3:
    case 4:
        DO(mkdir(p, mode), "mkdir %s %o", p, mode);
        break;
    case 5:
        DO(rmdir(p), "rmdir %s", p);
        break;
    case 6:
    case 7:
        DO(unlink(p), "unlink %s", p);
        break;
    case 8:
        /* fs.protected_hardlinks, if set, forbids links to files of other users. */
        if (geteuid() && !lstat(p, &st) && st.st_uid != geteuid())
            break;
        DO(link(p, q), "link %s %s", p, q);
        break;
    case 9:
        DO(symlink(p, q), "symlink %s %s", p, q);
        break;
    case 10: {
        long n = readlink(p, text, sizeof text - 1);
        text[n < 0 ? 0 : n] = 0;
        say(n, "readlink %s %s", p, text);
        break;
    }
    case 11:
    case 12:
        DO(rename(p, q), "rename %s %s", p, q);
        break;
    case 13: {
        int flags = roll(4);
        DO(syscall(SYS_renameat2, AT_FDCWD, p, AT_FDCWD, q, flags), "renameat2 %s %s %d", p, q, flags);
        break;
    }
    case 14:
        DO(chmod(p, mode), "chmod %s %o", p, mode);
        break;
    case 15: {
        long at = offset();
        DO(truncate(p, at), "truncate %s %ld", p, at);
        break;
    }
    case 16: {
        struct timespec ts[2] = { { roll(1000), roll(1000) }, { roll(1000), roll(2) ? UTIME_OMIT : 5 } };
        int nofollow = roll(2) ? AT_SYMLINK_NOFOLLOW : 0;
        DO(utimensat(AT_FDCWD, p, ts, nofollow), "utimensat %s %d", p, nofollow);
        if (!lstat(p, &st))
            say(0, "atime %ld", (long)st.st_atime < 100000 ? (long)st.st_atime : 1);
        break;
    }
    case 17: {
        unsigned owner = roll(3) ? geteuid() : roll(5), group = roll(3) ? getegid() : roll(5);
        DO(lchown(p, owner, group), "lchown %s %u %u", p, owner, group);
        break;
    }
    case 18: {
        const char *name = (const char *[]){ "user.a", "user.b", "trusted.c" }[roll(3)];
        int flags = roll(3);
        DO(setxattr(p, name, "value", roll(6), flags), "setxattr %s %s %d", p, name, flags);
        break;
    }
    case 19: {
        const char *name = (const char *[]){ "user.a", "user.b", "trusted.c" }[roll(3)];
        DO(getxattr(p, name, text, sizeof text), "getxattr %s %s", p, name);
        if (roll(3) == 0)
            DO(removexattr(p, name), "removexattr %s %s", p, name);
        break;
    }
    case 20: {
        DO(chdir(p), "chdir %s", p);
        char here[4096] = "";
        errno = 0;
        char *good = getcwd(here, sizeof here);
        if (!good || strncmp(here, base, strlen(base)))
            say(good ? 1 : -1, "outside"), DO(chdir(base), "chdir back");
        else
            say(0, "cwd %s", here + strlen(base));
        break;
    }
    case 21:
        DO(mkfifo(p, mode), "mkfifo %s %o", p, mode);
        break;
    case 22:
        DO(umask(roll(2) ? 022 : roll(01000)), "umask");
        break;
    default:
        if (geteuid() && !stat(p, &st) && st.st_uid != geteuid())
            break;
        DO(linkat(AT_FDCWD, p, AT_FDCWD, q, AT_SYMLINK_FOLLOW), "linkat follow %s %s", p, q);
    }
}

static void one(void)
{
    unsigned kind = roll(100);
    if (kind < 14)
        do_open();
    else if (kind < 18)
        do_dirents();
    else if (kind < 21)
        do_map();
    else if (kind < 23)
        do_fork();
    else if (kind < 60)
        on_descriptor(roll(24));
    else
        on_path(roll(24));
}

int main(int argc, char **argv)
{
    goes_on = argc == 4 && !strcmp(argv[3], "on");
    if (argc != 3 + goes_on || !getcwd(base, sizeof base))
        return 2;
    unsigned seed = atoi(argv[1]), steps = atoi(argv[2]);
    state = 0x9e3779b97f4a7c15ULL * (seed + 1);
    close_range(3, 200, 0);
    /* Deep enough that links to ".." and names below them do not lead out of the file system. */
    for (int depth = 0; depth < 5; depth++) {
        strcat(base, "/w");
        if (!goes_on && (mkdir(base, 0777) || chmod(base, 0777)))
            return 3;
    }
    if (chdir(base))
        return 3;
    if (seed % 3 == 2 && geteuid() == 0 && (setgid(65534) || setuid(65534)))
        return 4;
    for (step = 0; step < steps; step++)
        one();
    return 0;
}
