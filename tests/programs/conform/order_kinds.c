/* Calls on descriptors of another kind than they expect, with other arguments that are wrong too. */
#include "conform.h"
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>

#define BAD ((void *)8)

static void sockets(int fd)
{
    struct sockaddr_un name = { AF_UNIX, "none" };
    socklen_t lengths[] = { 0, 1, sizeof name, 128, 129, -1 }, length;
    const void *addresses[] = { &name, NULL, BAD };
    for (unsigned a = 0; a < COUNT(addresses); a++)
        for (unsigned n = 0; n < COUNT(lengths); n++) {
            TN("connect", connect(fd, addresses[a], lengths[n]));
            TN("bind", bind(fd, addresses[a], lengths[n]));
            TN("sendto", sendto(fd, "x", 1, MSG_NOSIGNAL, addresses[a], lengths[n]));
            TN("sendto, bad data", sendto(fd, (void *)-1, 1, 0, addresses[a], lengths[n]));
            length = lengths[n];
            TN("getsockname", getsockname(fd, (void *)addresses[a], &length));
            TN("getpeername", getpeername(fd, (void *)addresses[a], &length));
            TN("accept", accept(fd, (void *)addresses[a], &length));
            TN("recvfrom", recvfrom(fd, &name, 1, MSG_DONTWAIT, (void *)addresses[a], &length));
        }
    TN("getsockname", getsockname(fd, (void *)&name, BAD));
    TN("getsockname", getsockname(fd, (void *)&name, NULL));
    TN("accept", accept(fd, (void *)&name, BAD));
    int flags[] = { 0, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC, 1, -1 };
    for (unsigned i = 0; i < COUNT(flags); i++) {
        TN("accept4", syscall(SYS_accept4, fd, NULL, NULL, flags[i]));
        TN("accept4", syscall(SYS_accept4, fd, &name, BAD, flags[i]));
    }
    TN("sendto, much", syscall(SYS_sendto, fd, "x", -1L, 0, NULL, 0));
    TN("sendto, much", syscall(SYS_sendto, fd, "x", 1L << 62, 0, NULL, 0));
    TN("recvfrom, bad", syscall(SYS_recvfrom, fd, (void *)-1, 1, 0, NULL, NULL));
    TN("recvfrom, bad", syscall(SYS_recvfrom, fd, BAD, 1, 0, NULL, NULL));
    unsigned how[] = { 0, MSG_OOB, 0x80000000, -1 };
    struct msghdr good = { 0 }, many = { .msg_iov = BAD, .msg_iovlen = 2000 };
    struct mmsghdr vector = { 0 };
    struct timespec times[] = { { 0, 0 }, { -1, 0 }, { 0, -1 }, { 0, 1000000000 } };
    for (unsigned i = 0; i < COUNT(how); i++) {
        struct msghdr *messages[] = { &good, &many, NULL, BAD };
        for (unsigned n = 0; n < COUNT(messages); n++) {
            TN("sendmsg", syscall(SYS_sendmsg, fd, messages[n], how[i]));
            TN("recvmsg", syscall(SYS_recvmsg, fd, messages[n], how[i]));
        }
        struct mmsghdr *vectors[] = { &vector, NULL, BAD };
        for (unsigned n = 0; n < COUNT(vectors); n++)
            for (unsigned count = 0; count < 2; count++) {
                TN("sendmmsg", syscall(SYS_sendmmsg, fd, vectors[n], count, how[i]));
                TN("recvmmsg", syscall(SYS_recvmmsg, fd, vectors[n], count, how[i], NULL));
                TN("recvmmsg, bad time", syscall(SYS_recvmmsg, fd, vectors[n], count, how[i], BAD));
                for (unsigned k = 0; k < COUNT(times); k++) {
                    struct timespec time = times[k];
                    TN("recvmmsg, time", syscall(SYS_recvmmsg, fd, vectors[n], count, how[i], &time));
                }
            }
    }
    TN("listen", listen(fd, -1));
    TN("shutdown", shutdown(fd, 99));
    TN("setsockopt", syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_KEEPALIVE, BAD, 4));
    TN("setsockopt", syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_KEEPALIVE, BAD, -1));
    TN("setsockopt", syscall(SYS_setsockopt, fd, 99, 99, NULL, 4));
    TN("getsockopt", syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, BAD, BAD));
    TN("getsockopt", syscall(SYS_getsockopt, fd, 99, 99, NULL, NULL));
}

static void others(int fd)
{
    struct itimerspec timers[] = { { { 0, 0 }, { 1, 0 } }, { { 0, 0 }, { 0, -1 } }, { { -1, 0 }, { 1, 0 } }, { { 0, 1000000000 }, { 1, 0 } } };
    struct itimerspec old;
    for (unsigned i = 0; i < COUNT(timers) + 2; i++) {
        void *timer = i < COUNT(timers) ? &timers[i] : i == COUNT(timers) ? NULL : BAD;
        TN("timerfd_settime", syscall(SYS_timerfd_settime, fd, 0, timer, NULL));
        TN("timerfd_settime", syscall(SYS_timerfd_settime, fd, 3, timer, BAD));
        TN("timerfd_settime", syscall(SYS_timerfd_settime, fd, 4, timer, &old));
        TN("timerfd_gettime", syscall(SYS_timerfd_gettime, fd, timer));
    }
    sigset_t set;
    sigemptyset(&set);
    void *sets[] = { &set, NULL, BAD };
    unsigned sizes[] = { 8, 0, 16, -1 }, flags[] = { 0, SOCK_CLOEXEC | SOCK_NONBLOCK, 1 };
    for (unsigned i = 0; i < COUNT(sets); i++)
        for (unsigned n = 0; n < COUNT(sizes); n++) {
            long made;
            TN("signalfd", (made = syscall(SYS_signalfd, fd, sets[i], sizes[n])));
            if (made >= 0 && made != fd)
                close(made);
            for (unsigned k = 0; k < COUNT(flags); k++) {
                TN("signalfd4", (made = syscall(SYS_signalfd4, fd, sets[i], sizes[n], flags[k])));
                if (made >= 0 && made != fd)
                    close(made);
            }
        }
    unsigned masks[] = { IN_CREATE, 0, IN_MASK_ADD | 0x10000000 | IN_CREATE, IN_ONLYDIR, -1, 0x10000 };
    const char *paths[] = { ".", "none", "", NULL, BAD, "/none", "/" };
    for (unsigned i = 0; i < COUNT(masks); i++)
        for (unsigned n = 0; n < COUNT(paths); n++)
            TN("inotify_add_watch", syscall(SYS_inotify_add_watch, fd, paths[n], masks[i]));
    TN("inotify_rm_watch", syscall(SYS_inotify_rm_watch, fd, -1));
    const void *keys[] = { NULL, "key", "", BAD }, *values[] = { NULL, "value", BAD };
    int auxes[] = { 0, 5, -1, AT_FDCWD };
    for (unsigned command = 0; command < 10; command++)
        for (unsigned k = 0; k < COUNT(keys); k++)
            for (unsigned v = 0; v < COUNT(values); v++)
                for (unsigned a = 0; a < COUNT(auxes); a++)
                    TN("fsconfig", syscall(SYS_fsconfig, fd, command, keys[k], values[v], auxes[a]));
    TN("fsconfig", syscall(SYS_fsconfig, fd, -1, NULL, NULL, 0));
    for (unsigned f = 0; f < 3; f++)
        for (unsigned a = 0; a < 3; a++)
            TN("fsmount", syscall(SYS_fsmount, fd, f, a == 2 ? 0x80000000 : a));
    if (syscall(SYS_finit_module, -1, "", 0) < 0 && errno != ENOSYS)
        for (unsigned i = 0; i < 9; i++) {
            TN("finit_module", syscall(SYS_finit_module, fd, "", i));
            TN("finit_module", syscall(SYS_finit_module, fd, BAD, i));
        }
    int types[] = { 0, CLONE_NEWNS, CLONE_NEWPID, CLONE_FILES, -1, 1 };
    for (unsigned i = 0; i < COUNT(types); i++)
        TN("setns", syscall(SYS_setns, fd, types[i]));
    for (unsigned i = 0; i < 3; i++) {
        TN("pidfd_getfd", syscall(SYS_pidfd_getfd, fd, i == 2 ? -1 : fd, i));
        TN("pidfd_send_signal", syscall(SYS_pidfd_send_signal, fd, i == 2 ? 99 : 0, NULL, i));
        TN("pidfd_send_signal", syscall(SYS_pidfd_send_signal, fd, 0, BAD, i == 2 ? 8 : i));
        TN("process_mrelease", syscall(SYS_process_mrelease, fd, i));
        TN("process_madvise", syscall(SYS_process_madvise, fd, BAD, 1, MADV_COLD, i));
        TN("process_madvise", syscall(SYS_process_madvise, fd, NULL, 0, 99, i));
        TN("mq_timedsend", syscall(SYS_mq_timedsend, fd, BAD, 1, i, NULL));
        TN("mq_timedsend", syscall(SYS_mq_timedsend, fd, "x", 1, 40000 * i, BAD));
        TN("mq_timedreceive", syscall(SYS_mq_timedreceive, fd, BAD, 1, NULL, i == 2 ? BAD : NULL));
        TN("mq_notify", syscall(SYS_mq_notify, fd, i == 2 ? BAD : NULL));
        TN("mq_getsetattr", syscall(SYS_mq_getsetattr, fd, i == 1 ? BAD : NULL, NULL));
        TN("landlock_restrict_self", syscall(446, fd, i == 2 ? 8 : 0));
        TN("landlock_add_rule", syscall(445, fd, i, NULL, 0));
        TN("landlock_add_rule", syscall(445, fd, i, BAD, 9));
        TN("quotactl_fd", syscall(443, fd, 0x80000100 + i, 0, NULL));
        TN("quotactl_fd", syscall(443, fd, -1, 0, NULL));
        TN("fanotify_mark", syscall(SYS_fanotify_mark, fd, i, 0, AT_FDCWD, "."));
        TN("fanotify_mark", syscall(SYS_fanotify_mark, fd, 1, 0x20, AT_FDCWD, i ? BAD : NULL));
        TN("waitid", syscall(SYS_waitid, 3, fd, NULL, i == 2 ? 0 : WEXITED, NULL));
        TN("epoll_wait", syscall(SYS_epoll_wait, fd, BAD, i - 1, 0));
        TN("epoll_pwait", syscall(SYS_epoll_pwait, fd, BAD, 1, 0, i ? BAD : NULL, 8 + (i == 2)));
        struct timespec bad = { -1, 0 };
        TN("epoll_pwait2", syscall(SYS_epoll_pwait2, fd, BAD, i, i ? BAD : (void *)&bad, NULL, 8));
        TN("open_by_handle_at", syscall(SYS_open_by_handle_at, fd, i ? BAD : NULL, 0));
        TN("cachestat", syscall(451, fd, BAD, BAD, i));
        TN("perf_event_open", syscall(SYS_perf_event_open, BAD, 0, -1, fd, i));
        TN("getdents", syscall(SYS_getdents, fd, BAD, 100 * i));
        TN("getdents64", syscall(SYS_getdents64, fd, BAD, 100 * i));
    }
}

GROUP(order, sockets_of_another_kind)
{
    int file = make_open("f", "text", O_RDWR), closed = dup(file);
    close(closed);
    int all[] = { file, open(".", O_RDONLY), open("f", O_PATH), closed, 99, -1 };
    for (unsigned i = 0; i < COUNT(all); i++)
        say("descriptor %u", i), sockets(all[i]);
}

GROUP(order, descriptors_of_another_kind)
{
    int file = make_open("f", "text", O_RDWR), closed = dup(file);
    close(closed);
    int all[] = { file, open(".", O_RDONLY), open("f", O_PATH), closed, 99, -1 };
    for (unsigned i = 0; i < COUNT(all); i++)
        say("descriptor %u", i), others(all[i]);
}
