/* Calls on descriptors. */
#include "odd.h"
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A descriptor of the host's in a place, so that calls meet both kinds. */
static void hosts(unsigned a, unsigned b)
{
    int pair[2] = { -1, -1 };
    switch (roll(6)) {
    case 0:
        DO(pipe2(pair, O_NONBLOCK), "pipe2(pair, O_NONBLOCK)");
        break;
    case 1:
        DO(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), "socketpair(pair)");
        break;
    case 2:
        pair[0] = DO(memfd_create("m", 0), "pair[0] = memfd_create(\"m\", 0)");
        break;
    case 3:
        pair[0] = DO(open("/dev/null", O_RDWR), "pair[0] = open(\"/dev/null\", O_RDWR)");
        break;
    case 4:
        pair[0] = DO(epoll_create1(0), "pair[0] = epoll_create1(0)");
        break;
    default:
        pair[0] = DO(open("/", O_PATH | O_DIRECTORY), "pair[0] = open(\"/\", O_PATH | O_DIRECTORY)");
    }
    put(a, pair[0]);
    if (pair[1] >= 0) {
        if (a == b)
            close(pair[1]);
        else
            put(b, pair[1]);
    }
}

/* Back to where names are ours, if it was left. */
static void stay(void)
{
    char here[5000] = "";
    if (!getcwd(here, sizeof here) || strncmp(here, base, strlen(base)))
        (void)!chdir(base);
}

void descriptors(void)
{
    unsigned a = slot(), b = slot();
    switch (roll(16)) {
    case 0:
        put(a, DO(dup(f[b]), "f[%u] = dup(f[%u])", a, b));
        break;
    case 1:
        DO(close(f[a]), "close(f[%u])", a);
        f[a] = -1;
        break;
    case 2: {
        static const long commands[] = { F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETOWN, F_GETSIG, F_SETSIG, F_GETLEASE, F_GETPIPE_SZ, F_SETPIPE_SZ, F_ADD_SEALS,
            F_GET_SEALS, F_GET_RW_HINT, F_GETOWN_EX, 1028, 99, -1 };
        int command = commands[roll(COUNT(commands))];
        long argument = PICK(0, 1, 2, 64, 65, O_APPEND, O_NONBLOCK | O_DIRECT, -1);
        uint64_t hint = 0;
        if (command == F_GET_RW_HINT || command == F_GETOWN_EX)
            argument = (long)&hint;
        DO(fcntl(f[a], command, argument), "fcntl(f[%u], %d, %ld)", a, command, argument == (long)&hint ? 0 : argument);
        break;
    }
    case 3: {
        int to = PICK(-1, 0x7fffffff, 1 << 20), how = PICK(0, O_CLOEXEC, 1);
        DO(syscall(SYS_dup3, f[b], roll(2) ? f[b] : to, how), "dup3(f[%u], bad, 0x%x)", b, how);
        break;
    }
    case 4: {
        int command = PICK(F_DUPFD, F_DUPFD_CLOEXEC, 1027), least = PICK(0, 5, 40, -1, 0x7fffffff);
        if (command == 1027)
            DO(fcntl(f[a], command, f[b]), "fcntl(f[%u], F_DUPFD_QUERY, f[%u])", a, b);
        else
            put(a, DO(fcntl(f[b], command, least), "f[%u] = fcntl(f[%u], %d, %d)", a, b, command, least));
        break;
    }
    case 5: {
        static const unsigned long requests[] = { FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FIONBIO, FIOASYNC, FIGETBSZ, FIONREAD, FIOCLEX, FIONCLEX, FIOQSIZE, FIBMAP, FS_IOC_FSGETXATTR, 0xc020660b, FICLONE, FIDEDUPERANGE, FS_IOC_GETVERSION, 0x1234 };
        unsigned long request = requests[roll(COUNT(requests))];
        int room[64] = { PICK(0, 0x80, 0x10, 0x40, -1) }, value = room[0];
        /* On the host, these depend on what has been written back, and where. */
        if (is_beside && (request == FS_IOC_SETFLAGS || request == FIBMAP))
            break;
        /* A file that no longer can be changed would stay. */
        if (request == FS_IOC_SETFLAGS)
            value = room[0] &= 0x80;
        int before = value;
        errno = 0;
        long done = request == FICLONE ? ioctl(f[a], request, f[b]) : ioctl(f[a], request, roll(15) ? room : NULL);
        say(done, "ioctl(f[%u], 0x%lx, &(int){ 0x%x }) /* %x */", a, request, before, request == FIOQSIZE || is_beside && request == FS_IOC_GETVERSION ? 0 : room[0]);
        break;
    }
    case 6: {
        char entries[3000], names[60][300];
        unsigned count = 0;
        long n, size = PICK(3000, 3000, 0, 10, 300, 0xffffffff);
        if (roll(12) == 0) {
            DO(syscall(SYS_getdents64, f[a], roll(2) ? NULL : (void *)8, 3000), "getdents64(f[%u], bad, 3000)", a);
            break;
        }
        if (size > 3000)
            size = 3000;
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
    case 9: {
        struct pollfd polled[3] = { { f[a], PICK(POLLIN, POLLOUT, 0x7fff), 0 }, { f[b], POLLIN | POLLPRI, 0 }, { -1, POLLIN, 7 } };
        long got = poll(polled, PICK(0, 1, 2, 3), 0);
        say(got, "poll(f[%u], f[%u]) /* %x %x %x */", a, b, polled[0].revents, polled[1].revents, polled[2].revents);
        break;
    }
    case 10: {
        long which = PICK(SYS_connect, SYS_bind, SYS_getsockname, SYS_setsockopt, SYS_shutdown, SYS_accept, SYS_listen);
        struct stat st;
        /* The data of a socket in a mount is the host's, which is read-only. */
        if (which == SYS_bind && !fstat(f[a], &st) && S_ISSOCK(st.st_mode))
            break;
        struct sockaddr_un address = { AF_UNIX, "s" };
        socklen_t length = sizeof address;
        DO(syscall(which, f[a], &address, which == SYS_connect || which == SYS_bind ? length : (long)&length, 0, 0), "socket call %ld(f[%u])", which, a);
        break;
    }
    case 11:
        hosts(a, b);
        break;
    case 12:
        DO(fchdir(f[a]), "fchdir(f[%u])", a);
        stay();
        break;
    case 14: {
        static struct epoll_event event = { .events = EPOLLIN };
        int operation = PICK(EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, 7);
        void *at = roll(6) ? &event : roll(2) ? NULL : (void *)8;
        DO(syscall(SYS_epoll_ctl, f[a], operation, f[b], at), "epoll_ctl(f[%u], %d, f[%u], %s)", a, operation, b, at == &event ? "&event" : "bad");
        break;
    }
    case 13: {
        char here[300];
        long size = PICK(0, 1, 2, 300);
        errno = 0;
        say(syscall(SYS_getcwd, roll(9) ? here : NULL, size) < 0 ? -1 : 0, "getcwd(here, %ld)", size);
        break;
    }
    default:
        DO(umask(PICK(0, 022, 077, 07777)), "umask()");
    }
}

