/* The calls that came before those with a directory, by their numbers, and others that take one descriptor or
 * two: dup2(2), close_range(2), select(2), epoll_ctl(2), vmsplice(2). */
#include "odd.h"
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <utime.h>

/* Those with one path. */
static void one_path(void)
{
    struct path p = path(0);
    struct stat st;
    unsigned mode = roll(2) ? 0755 : roll(010000);
    switch (roll(12)) {
    case 0: {
        int flags = PICK(O_RDONLY, O_RDWR, O_WRONLY | O_CREAT, O_RDWR | O_CREAT | O_EXCL, O_PATH, O_RDONLY | O_DIRECTORY, O_NOFOLLOW, O_RDWR | O_TRUNC);
        unsigned at = slot();
        if (is_special(AT_FDCWD, p.at))
            flags = O_PATH;
        put(at, DO(syscall(SYS_open, p.at, flags, mode), "f[%u] = syscall(SYS_open, %s, 0x%x, 0%o)", at, p.text, flags, mode));
        break;
    }
    case 1:
        if (!DO(syscall(SYS_stat, p.at, roll(9) ? &st : NULL), "syscall(SYS_stat, %s, &st)", p.text))
            say_stat(&st);
        break;
    case 2:
        if (!DO(syscall(SYS_lstat, p.at, &st), "syscall(SYS_lstat, %s, &st)", p.text))
            say_stat(&st);
        break;
    case 3:
        DO(syscall(SYS_mkdir, p.at, mode), "syscall(SYS_mkdir, %s, 0%o)", p.text, mode);
        break;
    case 4:
        DO(syscall(SYS_rmdir, p.at), "syscall(SYS_rmdir, %s)", p.text);
        break;
    case 5:
        DO(syscall(SYS_unlink, p.at), "syscall(SYS_unlink, %s)", p.text);
        break;
    case 6:
        DO(syscall(SYS_chmod, p.at, mode), "syscall(SYS_chmod, %s, 0%o)", p.text, mode);
        break;
    case 7: {
        int owner = PICK(-1, 0, 1000, 2000), group = PICK(-1, 0, 2000, 3000);
        DO(syscall(roll(2) ? SYS_chown : SYS_lchown, p.at, owner, group), "chown or lchown(%s, %d, %d)", p.text, owner, group);
        break;
    }
    case 8: {
        struct utimbuf times = { 10 + roll(3), 20 + roll(3) };
        DO(syscall(SYS_utime, p.at, roll(5) ? &times : roll(2) ? NULL : (void *)8), "syscall(SYS_utime, %s, { %ld, %ld })", p.text, (long)times.actime,
            (long)times.modtime);
        break;
    }
    case 9: {
        char dir[16];
        int fd = dir_fd(dir);
        struct timeval times[2] = { { roll(50), PICK(0, 5, 999999, 1000000, -1) }, { roll(50), PICK(0, 5, 999999) } };
        if (roll(2))
            DO(syscall(SYS_futimesat, fd, p.at, times), "syscall(SYS_futimesat, %s, %s, { %ld })", dir, p.text, (long)times[0].tv_usec);
        else
            DO(syscall(SYS_utimes, p.at, times), "syscall(SYS_utimes, %s, { %ld })", p.text, (long)times[0].tv_usec);
        break;
    }
    case 10:
        DO(syscall(SYS_mknod, p.at, (unsigned)PICK(0, S_IFREG, S_IFIFO, S_IFSOCK, S_IFDIR) | mode, 0), "syscall(SYS_mknod, %s, 0%o)", p.text, mode);
        break;
    default: {
        long got = syscall(SYS_readlink, p.at, buffer, PICK(0, 1, 3, -1));
        say(got, "syscall(SYS_readlink, %s)", p.text);
    }
    }
}

static void two_paths(void)
{
    struct path p = path(0), q = path(1);
    switch (roll(3)) {
    case 0:
        DO(syscall(SYS_rename, p.at, q.at), "syscall(SYS_rename, %s, %s)", p.text, q.text);
        break;
    case 1:
        DO(syscall(SYS_link, p.at, q.at), "syscall(SYS_link, %s, %s)", p.text, q.text);
        break;
    default:
        if (may_be_target(&q))
            DO(syscall(SYS_symlink, q.at, p.at), "syscall(SYS_symlink, %s, %s)", q.text, p.text);
    }
}

/* Whether poll(2) gives the same answer is asked elsewhere: a set says only what is ready. */
static void selected(unsigned a, unsigned b)
{
    fd_set sets[3];
    struct timeval at_once = { 0, 0 };
    for (unsigned i = 0; i < 3; i++) {
        FD_ZERO(&sets[i]);
        if (f[a] >= 0 && f[a] < 64)
            FD_SET(f[a], &sets[i]);
        if (f[b] >= 0 && f[b] < 64 && roll(2))
            FD_SET(f[b], &sets[i]);
    }
    int count = PICK(64, 64, 0, -1);
    errno = 0;
    long got = select(count, &sets[0], roll(4) ? &sets[1] : NULL, &sets[2], &at_once);
    say(got, "select(%d, f[%u] f[%u]) /* %lx %lx */", count, a, b, got < 0 ? 0 : sets[0].fds_bits[0] & ~7, got < 0 ? 0 : sets[2].fds_bits[0] & ~7);
}

void older(void)
{
    unsigned a = slot(), b = slot();
    switch (roll(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        one_path();
        break;
    case 4:
    case 5:
        two_paths();
        break;
    case 6: {
        int to = f[a] > 2 ? f[a] : -1;
        DO(syscall(SYS_dup2, f[b], to), "syscall(SYS_dup2, f[%u], f[%u])", b, a);
        break;
    }
    case 7: {
        unsigned how = PICK(0, 0, CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, 1);
        if (f[a] > 2) {
            DO(close_range(f[a], f[a], how), "close_range(f[%u], f[%u], %u)", a, a, how);
            /* As close(2) leaves it: conformance tests tell what a number that was closed gives. */
            if (DO(fcntl(f[a], F_GETFD), "fcntl(f[%u], F_GETFD)", a) < 0)
                f[a] = -1;
        } else
            DO(close_range(7, 6, how), "close_range(7, 6, %u)", how);
        break;
    }
    case 8:
        selected(a, b);
        break;
    case 9: {
        struct epoll_event event = { .events = EPOLLIN };
        int epoll = epoll_create1(0), operation = PICK(EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, 9);
        DO(epoll_ctl(roll(3) ? epoll : f[a], operation, f[a], roll(9) ? &event : NULL), "epoll_ctl(epoll or itself, %d, f[%u])", operation, a);
        close(epoll);
        break;
    }
    case 10: {
        struct iovec v = { buffer, small() % 4096 };
        DO(vmsplice(f[a], &v, PICK(0, 1), PICK(0, 2, 8, 16) | 2), "vmsplice(f[%u], { %ld })", a, (long)v.iov_len);
        break;
    }
    default: {
        struct flock lock = { .l_type = PICK(F_RDLCK, F_WRLCK, F_UNLCK), .l_start = small(), .l_len = small() };
        /* Held by nobody else, or a deadlock: never waited for. */
        struct flock held = lock;
        held.l_type = F_WRLCK;
        if (!fcntl(f[a], F_GETLK, &held) && held.l_type == F_UNLCK)
            DO(fcntl(f[a], F_SETLKW, &lock), "fcntl(f[%u], F_SETLKW, lock(%d, %ld, %ld))", a, lock.l_type, (long)lock.l_start, (long)lock.l_len);
    }
    }
}
