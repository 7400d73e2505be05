/* odd SEED STEPS [KEPT]: calls with odd arguments, each chosen by the seed and its own number, so that any of them
 * can be left out. Prints each call in C with its result behind it; two file systems that agree print the same.
 *
 * KEPT lists the steps to make, separated by commas: how tests/tests/odd.rs shrinks a sequence that differs. The
 * host is read-only meanwhile, in a mount namespace of the program's own, which takes root. A third of the seeds
 * goes on as a user with groups, a third as root without capabilities.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PICK(...) ((const long[]){ __VA_ARGS__ })[roll(sizeof((long[]){ __VA_ARGS__ }) / sizeof(long))]

static uint64_t state;
static unsigned step;
static char base[4096];

static unsigned roll(unsigned n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state * 0x2545f4914f6cdd1dULL >> 33) % n;
}

/* A call in C and its result. */
__attribute__((format(printf, 2, 3))) static long say(long result, const char *format, ...)
{
    int error = errno;
    char line[6000];
    int used = snprintf(line, sizeof line, "/* %u */ ", step);
    va_list list;
    va_start(list, format);
    used += vsnprintf(line + used, sizeof line - 100, format, list);
    va_end(list);
    if (used > (int)sizeof line - 60)
        used = sizeof line - 60;
    used += result == -1 ? sprintf(line + used, "; // %s\n", strerrorname_np(error)) : sprintf(line + used, "; // %ld\n", result);
    if (write(STDOUT_FILENO, line, used) != used)
        abort();
    errno = error;
    return result;
}
#define DO(call, ...)                      \
    ({                                     \
        errno = 0;                         \
        say((long)(call), __VA_ARGS__);    \
    })

/* Descriptors by place: what failed leaves -1, which later calls use too. */
static int f[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };
static unsigned slot(void)
{
    return roll(8);
}
static void put(unsigned at, long fd)
{
    if (f[at] > 2 && f[at] != fd)
        close(f[at]);
    f[at] = fd;
}

/* A path, and how it is written in C. */
struct path {
    const char *at;
    char text[200];
};
static char rooms[2][5000];

static struct path path(unsigned which)
{
    static const char *names[] = { "a", "b", "c", "d", "e", "l", "m" };
    struct path p = { rooms[which], "" };
    char *room = rooms[which];
    *room = 0;
    switch (roll(60)) {
    case 0:
        snprintf(p.text, sizeof p.text, "\"\"");
        return p;
    case 1:
        p.at = NULL;
        snprintf(p.text, sizeof p.text, "NULL");
        return p;
    case 2:
        p.at = (char *)8;
        snprintf(p.text, sizeof p.text, "(char *)8");
        return p;
    case 3: {
        unsigned length = PICK(254, 255);
        memset(room, 'n', length);
        room[length] = 0;
        snprintf(p.text, sizeof p.text, "name(%u)", length);
        return p;
    }
    case 4: {
        unsigned length = PICK(4094, 4095, 4096, 4097);
        for (unsigned i = 0; i < length; i++)
            room[i] = i % 2 ? '/' : '.';
        room[length] = 0;
        snprintf(p.text, sizeof p.text, "dots(%u)", length);
        return p;
    }
    case 5: {
        unsigned at = slot();
        sprintf(room, "/proc/self/fd/%d%s", which || f[at] < 0 ? 0 : f[at], PICK(0, 0, 1) ? "/a" : "");
        break;
    }
    case 6:
        sprintf(room, "/proc/self/cwd/%s", names[roll(COUNT(names))]);
        break;
    case 7:
        sprintf(room, "%s/%s", base, names[roll(COUNT(names))]);
        snprintf(p.text, sizeof p.text, "BASE \"/%s\"", room + strlen(base) + 1);
        return p;
    default: {
        unsigned parts = 1 + roll(2) + (roll(4) == 0);
        for (unsigned i = 0; i < parts; i++) {
            /* `..` only behind a name, so that few paths lead out. */
            const char *part = roll(14) ? names[roll(COUNT(names))] : roll(2) && i + 1 == parts ? "." : i ? ".." : "a";
            strcat(strcat(room, i ? roll(20) ? "/" : "//" : ""), part);
        }
        if (roll(14) == 0)
            strcat(room, roll(3) ? "/" : "/.");
    }
    }
    snprintf(p.text, sizeof p.text, "\"%s\"", room);
    return p;
}

/* A directory's descriptor, mostly the working directory. */
static int dir_fd(char *text)
{
    unsigned at = slot();
    if (roll(3)) {
        strcpy(text, "AT_FDCWD");
        return AT_FDCWD;
    }
    sprintf(text, "f[%u]", at);
    return f[at];
}

static char buffer[70000];
static long amount(void)
{
    return PICK(0, 1, 2, 7, 100, 255, 4095, 4096, 4097, 12288, 65536, -1, INT64_MAX, INT64_MIN, 1L << 31);
}
static long small(void)
{
    return PICK(0, 1, 2, 7, 100, 4095, 4096, 4097, 8192, 12288);
}
static long where(void)
{
    return PICK(0, 0, 1, 10, 4095, 4096, 5000, 100000, -1, -2, INT64_MAX, INT64_MIN, 1L << 40);
}
static void *memory(char *text)
{
    switch (roll(20)) {
    case 0:
        strcpy(text, "NULL");
        return NULL;
    case 1:
        strcpy(text, "(void *)8");
        return (void *)8;
    default:
        strcpy(text, "buffer");
        return buffer;
    }
}
static unsigned sum(long n)
{
    unsigned h = 1;
    for (long i = 0; i < n && i < (long)sizeof buffer; i++)
        h = h * 31 + (unsigned char)buffer[i];
    return n > 0 ? h & 0xffff : 0;
}
static void fill(void)
{
    for (unsigned i = 0; i < sizeof buffer; i++)
        buffer[i] = 'a' + (i + step) % 26;
}

static void say_stat(const struct stat *st)
{
    say(0, "/* mode %o links %lu owner %u:%u size %ld blocks %ld */", st->st_mode, (unsigned long)st->st_nlink, st->st_uid, st->st_gid,
        (long)st->st_size, (long)st->st_blocks);
}

static int is_special(int dir, const char *name)
{
    struct stat st;
    return !fstatat(dir, name, &st, 0) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static void opens(void)
{
    static const long extras[] = { O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC, O_PATH, O_TMPFILE,
        O_NONBLOCK, O_NOATIME, O_SYNC, O_DSYNC, O_DIRECT, O_ASYNC, O_NOCTTY, 020000000, 040000000 };
    long flags = roll(4);
    for (unsigned n = roll(4); n; n--)
        flags |= extras[roll(COUNT(extras))];
    unsigned mode = roll(2) ? 0644 : roll(010000), at = slot();
    char dir[16];
    int fd = dir_fd(dir);
    struct path p = path(0);
    if (is_special(fd, p.at))
        flags |= O_PATH;
    if (roll(3)) {
        put(at, DO(openat(fd, p.at, flags, mode), "f[%u] = openat(%s, %s, 0x%lx, 0%o)", at, dir, p.text, flags, mode));
        return;
    }
    struct open_how how = { .flags = flags, .mode = flags & (O_CREAT | 020000000) || roll(9) == 0 ? mode : 0 };
    for (unsigned n = roll(3); n; n--)
        how.resolve |= 1UL << PICK(0, 1, 2, 3, 4, 6);
    if (how.flags & O_ASYNC)
        how.flags &= ~(uint64_t)O_ASYNC;
    long size = roll(12) ? (long)sizeof how : PICK(0, 8, 23, 25, 4097);
    put(at, DO(syscall(SYS_openat2, fd, p.at, &how, size), "f[%u] = openat2(%s, %s, (struct open_how){ 0x%llx, 0%llo, 0x%llx }, %ld)", at, dir,
                p.text, (long long)how.flags, (long long)how.mode, (long long)how.resolve, size));
}

static void makes(void)
{
    char dir[16], other[16];
    int fd = dir_fd(dir), to = dir_fd(other);
    struct path p = path(0), q = path(1);
    unsigned mode = roll(2) ? 0755 : roll(010000);
    switch (roll(8)) {
    case 0:
    case 1:
        DO(mkdirat(fd, p.at, mode), "mkdirat(%s, %s, 0%o)", dir, p.text, mode);
        break;
    case 2: {
        unsigned kind = PICK(0, S_IFREG, S_IFIFO, S_IFSOCK, S_IFDIR, S_IFLNK, 0170000, S_IFCHR);
        DO(mknodat(fd, p.at, kind | mode, 0), "mknodat(%s, %s, 0%o, 0)", dir, p.text, kind | mode);
        break;
    }
    case 3:
        DO(symlinkat(q.at, fd, p.at), "symlinkat(%s, %s, %s)", q.text, dir, p.text);
        break;
    case 4: {
        int flags = PICK(0, 0, AT_REMOVEDIR, AT_REMOVEDIR, 1, AT_SYMLINK_NOFOLLOW);
        DO(unlinkat(fd, p.at, flags), "unlinkat(%s, %s, 0x%x)", dir, p.text, flags);
        break;
    }
    case 5: {
        int flags = PICK(0, 0, 0, AT_SYMLINK_FOLLOW, 1);
        DO(linkat(fd, p.at, to, q.at, flags), "linkat(%s, %s, %s, %s, 0x%x)", dir, p.text, other, q.text, flags);
        break;
    }
    default: {
        unsigned flags = PICK(0, 0, 0, 1, 2, 4, 3, 5, 6, 8);
        DO(syscall(SYS_renameat2, fd, p.at, to, q.at, flags), "renameat2(%s, %s, %s, %s, %u)", dir, p.text, other, q.text, flags);
    }
    }
}

static void attributes(void)
{
    char dir[16], at[24];
    int fd = dir_fd(dir);
    struct path p = path(0);
    struct stat st;
    int flags = PICK(0, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, 0x200, 0x800000);
    switch (roll(11)) {
    case 0:
        if (!DO(fstatat(fd, p.at, &st, flags), "fstatat(%s, %s, &st, 0x%x)", dir, p.text, flags))
            say_stat(&st);
        break;
    case 1: {
        struct statx sx = { 0 };
        unsigned mask = PICK(0, STATX_BASIC_STATS, STATX_ALL, STATX_SIZE, 0x80000000);
        if (!DO(statx(fd, p.at, flags, mask, &sx), "statx(%s, %s, 0x%x, 0x%x, &sx)", dir, p.text, flags, mask))
            say(0, "/* mask %x mode %o links %u size %llu attributes %llx of %llx */", sx.stx_mask & ~0xfff01000u, sx.stx_mode, sx.stx_nlink,
                (long long)sx.stx_size, (long long)sx.stx_attributes & 0x870, (long long)sx.stx_attributes_mask & 0x70);
        break;
    }
    case 2: {
        unsigned mode = roll(010000);
        if (roll(2))
            DO(syscall(452, fd, p.at, mode, flags), "fchmodat2(%s, %s, 0%o, 0x%x)", dir, p.text, mode, flags);
        else
            DO(fchmod(fd, mode), "fchmod(%s, 0%o)", dir, mode);
        break;
    }
    case 3: {
        int owner = PICK(-1, 0, 1000, 2000, 65534), group = PICK(-1, 0, 1000, 2000, 3000);
        DO(fchownat(fd, p.at, owner, group, flags), "fchownat(%s, %s, %d, %d, 0x%x)", dir, p.text, owner, group, flags);
        break;
    }
    case 4: {
        struct timespec ts[2] = { { roll(100), PICK(0, 5, UTIME_OMIT, UTIME_NOW, 1000000000, -1) }, { roll(100), PICK(0, 7, UTIME_OMIT, 999999999) } };
        DO(utimensat(fd, p.at, ts, flags), "utimensat(%s, %s, (struct timespec[]){ { %ld, %ld }, { %ld, %ld } }, 0x%x)", dir, p.text,
            (long)ts[0].tv_sec, ts[0].tv_nsec, (long)ts[1].tv_sec, ts[1].tv_nsec, flags);
        break;
    }
    case 5: {
        int mode = PICK(0, 1, 2, 4, 7, 8, -1);
        int eaccess = PICK(0, AT_EACCESS);
        DO(syscall(SYS_faccessat2, fd, p.at, mode, flags | eaccess), "faccessat2(%s, %s, %d, 0x%x)", dir, p.text, mode, flags | eaccess);
        break;
    }
    case 6: {
        long length = where();
        if (length > 1 << 20 && length < INT64_MAX - 5000)
            length = 1 << 20;
        DO(truncate(p.at, length), "truncate(%s, %ld)", p.text, length);
        break;
    }
    case 7: {
        long size = PICK(0, 1, 3, 100, -1, INT32_MAX);
        memset(buffer, 0, 200);
        long got = readlinkat(fd, p.at, memory(at), size < 0 || size > 100 ? size : size);
        if (strstr(buffer, base))
            break;
        say(got, "readlinkat(%s, %s, %s, %ld) /* %.*s */", dir, p.text, at, size, (int)(got > 0 ? got : 0), buffer);
        break;
    }
    case 8: {
        struct statfs sf;
        DO(statfs(p.at, &sf), "statfs(%s, &sf)", p.text);
        break;
    }
    case 9: {
        union {
            struct file_handle head;
            char room[200];
        } h = { .head.handle_bytes = PICK(0, 8, 12, 128, 200) };
        int id;
        DO(syscall(SYS_name_to_handle_at, fd, p.at, &h, &id, flags & ~AT_SYMLINK_NOFOLLOW), "name_to_handle_at(%s, %s, h(%u), &id, 0x%x)", dir,
            p.text, h.head.handle_bytes, flags & ~AT_SYMLINK_NOFOLLOW);
        break;
    }
    default:
        if (!strcmp(p.text, "NULL") || chdir(p.at) == 0) {
            char here[5000] = "";
            if (!getcwd(here, sizeof here) || strncmp(here, base, strlen(base)))
                (void)!chdir(base);
        }
        say(0, "chdir(%s)", p.text);
    }
}

static void named_values(void)
{
    static const char *names[] = { "user.a", "user.b", "trusted.a", "security.a", "system.posix_acl_access", "user.", "a", "", "nothing.a" };
    const char *name = names[roll(COUNT(names))];
    struct path p = path(0);
    char at[24];
    void *value = memory(at);
    long size = PICK(0, 1, 5, 100, 4096, 65536, 65537);
    int flags = PICK(0, 0, XATTR_CREATE, XATTR_REPLACE, 3, 4);
    fill();
    switch (roll(5)) {
    case 0:
    case 1:
        DO(setxattr(p.at, name, value, size, flags), "setxattr(%s, \"%s\", %s, %ld, %d)", p.text, name, at, size, flags);
        break;
    case 2: {
        long got = getxattr(p.at, name, value, size);
        say(got, "getxattr(%s, \"%s\", %s, %ld) /* %x */", p.text, name, at, size, value == buffer ? sum(size ? got : 0) : 0);
        break;
    }
    case 3:
        DO(lremovexattr(p.at, name), "lremovexattr(%s, \"%s\")", p.text, name);
        break;
    default:
        DO(llistxattr(p.at, value, size), "llistxattr(%s, %s, %ld)", p.text, at, size);
    }
}

static void data(void)
{
    unsigned a = slot(), b = slot();
    char at[24];
    void *to = memory(at);
    long n = roll(3) ? small() : amount(), offset = roll(2) ? small() : where();
    struct stat st, other;
    if ((n < 0 || n > (long)sizeof buffer) && to == buffer)
        n = sizeof buffer;
    int whole = to == buffer;
    switch (roll(14)) {
    case 0: {
        long got = whole ? read(f[a], to, n) : read(f[a], to, n);
        say(got, "read(f[%u], %s, %ld) /* %x */", a, at, n, whole ? sum(got) : 0);
        break;
    }
    case 1: {
        long got = pread(f[a], to, n, offset);
        say(got, "pread(f[%u], %s, %ld, %ld) /* %x */", a, at, n, offset, whole ? sum(got) : 0);
        break;
    }
    /* What a write from bad memory leaves behind is not the same: docs/differences.md. */
    case 2:
        fill();
        if (whole)
            DO(write(f[a], to, n), "write(f[%u], %s, %ld)", a, at, n);
        break;
    case 3:
        if (!whole)
            break;
        fill();
        if (offset > 1 << 20)
            offset = 1 << 20;
        DO(pwrite(f[a], to, n, offset), "pwrite(f[%u], %s, %ld, %ld)", a, at, n, offset);
        break;
    case 4: {
                int how = PICK(0, 0, 1, 2, 4);
        struct iovec v[3] = { { buffer, small() }, { to, small() }, { buffer + 100, small() } };
        int count = PICK(0, 1, 3, 3);
        fill();
        if (offset > 1 << 20)
            offset = -1;
        if (whole && roll(2))
            DO(pwritev2(f[a], v, count, offset, how), "pwritev2(f[%u], v(%ld, %s, %ld, %ld), %d, %ld, %d)", a, (long)v[0].iov_len, at, (long)v[1].iov_len,
                (long)v[2].iov_len, count, offset, how);
        else
            DO(preadv2(f[a], v, count, offset, 0), "preadv2(f[%u], v(%ld, %s, %ld, %ld), %d, %ld, %d)", a, (long)v[0].iov_len, at, (long)v[1].iov_len,
                (long)v[2].iov_len, count, offset, 0);
        break;
    }
    case 5: {
        int whence = PICK(0, 1, 2, 0, 5, -1);
        if (!fstat(f[a], &st) && S_ISDIR(st.st_mode))
            offset = whence = 0;
        DO(lseek(f[a], offset, whence), "lseek(f[%u], %ld, %d)", a, offset, whence);
        break;
    }
    case 6:
        if (offset > 1 << 20 && offset < INT64_MAX - 5000)
            offset = 1 << 20;
        DO(ftruncate(f[a], offset), "ftruncate(f[%u], %ld)", a, offset);
        break;
    case 7: {
        int mode = PICK(0, 1, 2, 3, 8, 16, 17, 32, 64, 128);
        if (offset > 1 << 20 && offset < INT64_MAX - 5000)
            offset = 1 << 20;
        DO(fallocate(f[a], mode, offset, n), "fallocate(f[%u], %d, %ld, %ld)", a, mode, offset, n);
        break;
    }
    case 8: {
        off_t in = small(), out = small();
        int flags = PICK(0, 0, 0, 1);
        /* What a file gets from itself is up to the kernel. */
        if (!fstat(f[a], &st) && !fstat(f[b], &other) && st.st_ino == other.st_ino)
            break;
        int has = roll(2);
        DO(copy_file_range(f[a], has ? &in : NULL, f[b], has ? &out : NULL, n, flags), "copy_file_range(f[%u], %s%ld, f[%u], %ld, %ld, %d)", a,
            has ? "" : "NULL ", (long)in, b, (long)out, n, flags);
        break;
    }
    case 9:
        DO(posix_fadvise(f[a], offset, n, PICK(0, 1, 2, 3, 4, 5, 6)), "posix_fadvise(f[%u], %ld, %ld)", a, offset, n);
        break;
    case 10:
        DO(sync_file_range(f[a], offset, n, PICK(0, 1, 2, 4, 8)), "sync_file_range(f[%u], %ld, %ld)", a, offset, n);
        break;
    case 11:
        DO(readahead(f[a], offset, n), "readahead(f[%u], %ld, %ld)", a, offset, n);
        break;
    case 12: {
        if (!fstat(f[a], &st))
            say_stat(&st);
        break;
    }
    default: {
        int protection = PICK(0, 1, 2, 3), flags = PICK(MAP_SHARED, MAP_PRIVATE, MAP_SHARED_VALIDATE, 0, MAP_SHARED_VALIDATE | 0x80000);
        errno = 0;
        long length = PICK(0, 1, 4096, 8192, -1);
        long from = PICK(0, 4096, 1, -4096);
        char *map = mmap(NULL, length, protection, flags, f[a], from);
        say(map == MAP_FAILED ? -1 : 0, "mmap(NULL, %ld, %d, 0x%x, f[%u], %ld)", length, protection, flags, a, from);
        if (map != MAP_FAILED)
            munmap(map, length);
    }
    }
}

static void descriptors(void)
{
    unsigned a = slot(), b = slot();
    switch (roll(10)) {
    case 0:
        put(a, DO(dup(f[b]), "f[%u] = dup(f[%u])", a, b));
        break;
    case 1:
        DO(close(f[a]), "close(f[%u])", a);
        f[a] = -1;
        break;
    case 2: {
        static const long commands[] = { F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETOWN, F_GETSIG, F_SETSIG, F_GETLEASE, F_GETPIPE_SZ, F_SETPIPE_SZ, F_ADD_SEALS,
            F_GET_SEALS, F_GET_RW_HINT, 99, -1 };
        int command = commands[roll(COUNT(commands))];
        long argument = PICK(0, 1, 2, 64, 65, O_APPEND, O_NONBLOCK | O_DIRECT, -1);
        uint64_t hint = 0;
        if (command == F_GET_RW_HINT)
            argument = (long)&hint;
        DO(fcntl(f[a], command, argument), "fcntl(f[%u], %d, %ld)", a, command, command == F_GET_RW_HINT ? 0 : argument);
        break;
    }
    case 3: {
        int how = PICK(LOCK_SH, LOCK_EX, LOCK_UN, 0, 3, 16) | LOCK_NB;
        DO(flock(f[a], how), "flock(f[%u], %d)", a, how);
        break;
    }
    case 4: {
        struct flock lock = { .l_type = PICK(0, 1, 2, 3), .l_whence = PICK(0, 0, 1, 2, 3), .l_start = roll(2) ? small() : where(), .l_len = roll(2) ? small() : where() };
        int command = PICK(F_SETLK, F_OFD_SETLK, F_GETLK, F_OFD_GETLK);
        short type = lock.l_type;
        long start = lock.l_start, length = lock.l_len;
        errno = 0;
        long done = fcntl(f[a], command, &lock);
        say(done, "fcntl(f[%u], %d, lock(%d, %d, %ld, %ld)) /* %d %ld %ld */", a, command, type, lock.l_whence, start, length, lock.l_type, (long)lock.l_start,
            (long)lock.l_len);
        break;
    }
    case 5: {
        static const unsigned long requests[] = { FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FIONBIO, FIOASYNC, FIGETBSZ, FIONREAD, FS_IOC_GETVERSION, 0x1234 };
        unsigned long request = requests[roll(COUNT(requests))];
        int value = PICK(0, 0x80, 0x10, 0x40, -1);
        /* A file that no longer can be changed would stay. */
        if (request == FS_IOC_SETFLAGS)
            value &= 0x80;
        int before = value;
        errno = 0;
        long done = ioctl(f[a], request, &value);
        say(done, "ioctl(f[%u], 0x%lx, &(int){ 0x%x }) /* %x */", a, request, before, value);
        break;
    }
    case 6: {
        char entries[3000], names[60][300];
        unsigned count = 0;
        long n, size = PICK(3000, 3000, 0, 10, 300);
        if (lseek(f[a], 0, SEEK_SET))
            break;
        errno = 0;
        long first = n = syscall(SYS_getdents64, f[a], entries, size);
        for (; n > 0; n = syscall(SYS_getdents64, f[a], entries, sizeof entries))
            for (long at = 0; at < n; at += *(unsigned short *)(entries + at + 16))
                if (count < COUNT(names))
                    snprintf(names[count++], sizeof names[0], "%.20s:%d", entries + at + 19, entries[at + 18]);
        say(first < 0 ? -1 : count, "getdents64(f[%u], entries, %ld)", a, size);
        break;
    }
    case 7:
        DO(fsync(f[a]), "fsync(f[%u])", a);
        break;
    case 8: {
        int flags = PICK(O_RDONLY, O_RDWR, O_PATH, O_RDWR | O_TRUNC, O_WRONLY | O_APPEND, O_DIRECTORY);
        char own[64];
        sprintf(own, "/proc/self/fd/%d", f[b]);
        if (is_special(AT_FDCWD, own))
            flags = O_PATH;
        put(a, DO(open(own, flags), "f[%u] = open(self(f[%u]), 0x%x)", a, b, flags));
        break;
    }
    default:
        DO(umask(PICK(0, 022, 077, 07777)), "umask()");
    }
}

static void one(void)
{
    unsigned kind = roll(100);
    if (kind < 22)
        opens();
    else if (kind < 42)
        makes();
    else if (kind < 60)
        attributes();
    else if (kind < 66)
        named_values();
    else if (kind < 88)
        data();
    else
        descriptors();
}

/* Everything but the directory that holds ours becomes read-only, for this process and its children. */
static int fence(void)
{
    char above[sizeof base];
    strcpy(above, base);
    *strrchr(above, '/') = 0;
    struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY }, writable = { .attr_clr = MOUNT_ATTR_RDONLY };
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount(above, above, NULL, MS_BIND, NULL))
        return -1;
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof read_only))
        return -1;
    /* A mount that the kernel does not know stays as it is. */
    syscall(SYS_mount_setattr, AT_FDCWD, above, 0, &writable, sizeof writable);
    return chdir(base) || chdir(".");
}

static int become(unsigned who)
{
    if (who == 1) {
        gid_t groups[] = { 2000, 3000 };
        return setgroups(2, groups) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000);
    }
    if (who == 2) {
        struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct none[2] = { 0 };
        return syscall(SYS_capset, &header, none);
    }
    return 0;
}

/* What every sequence starts from: without it, few names and descriptors would be there. */
static void begin(void)
{
    DO(mkdir("a", 0755), "mkdir(\"a\", 0755)");
    DO(mkdir("a/d", 0777), "mkdir(\"a/d\", 0777)");
    put(0, DO(open("b", O_CREAT | O_RDWR, 0644), "f[0] = open(\"b\", O_CREAT | O_RDWR, 0644)"));
    put(1, DO(open("a", O_RDONLY), "f[1] = open(\"a\", O_RDONLY)"));
    put(2, DO(open("a/c", O_CREAT | O_RDWR, 0600), "f[2] = open(\"a/c\", O_CREAT | O_RDWR, 0600)"));
    put(3, DO(open("a", O_TMPFILE | O_RDWR, 0600), "f[3] = open(\"a\", O_TMPFILE | O_RDWR, 0600)"));
    DO(symlink("b", "l"), "symlink(\"b\", \"l\")");
    DO(symlink("a/d", "m"), "symlink(\"a/d\", \"m\")");
    fill();
    DO(write(f[0], buffer, 5000), "write(f[0], buffer, 5000)");
}

int main(int argc, char **argv)
{
    if (argc < 3 || !getcwd(base, sizeof base))
        return 2;
    if (geteuid() != 0)
        return 0;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    unsigned steps = atoi(argv[2]);
    close_range(3, 200, 0);
    strcat(base, "/w");
    if (mkdir(base, 0777) || chmod(base, 0777) || fence() || become(seed % 3))
        return 3;
    begin();
    const char *kept = argc > 3 ? argv[3] : NULL;
    for (step = 0; step < steps; step++) {
        if (kept) {
            if (!*kept)
                break;
            char *end;
            step = strtoul(kept, &end, 10);
            kept = *end ? end + 1 : end;
        }
        state = (seed + 1) * 0x9e3779b97f4a7c15ULL ^ (step + 1) * 0xd1b54a32d192ed03ULL;
        roll(2), roll(2);
        one();
    }
    return 0;
}
