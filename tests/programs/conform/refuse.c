/* Descriptors and paths of regular files in calls that expect something else, and NULL for the working
 * directory. */
#include <linux/fs.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "conform.h"

static struct itimerspec timer;

static void each(int fd)
{
    char room[256] = "";
    socklen_t length = sizeof room;
    sigset_t set;
    sigemptyset(&set);
    struct msghdr message = { 0 };
    struct mmsghdr messages = { 0 };
    T(listen(fd, 1));
    T(shutdown(fd, 2));
    T(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, room, 4));
    T(getsockopt(fd, SOL_SOCKET, SO_TYPE, room, &length));
    T(bind(fd, (void *)room, 16));
    T(connect(fd, (void *)room, 16));
    T(accept(fd, NULL, NULL));
    T(accept4(fd, NULL, NULL, 0));
    T(getsockname(fd, (void *)room, &length));
    T(getpeername(fd, (void *)room, &length));
    T(send(fd, room, 1, 0));
    T(recv(fd, room, 1, 0));
    T(sendmsg(fd, &message, 0));
    T(recvmsg(fd, &message, 0));
    T(sendmmsg(fd, &messages, 1, 0));
    T(timerfd_settime(fd, 0, &timer, NULL));
    T(timerfd_gettime(fd, &timer));
    T(inotify_rm_watch(fd, 1));
    T(inotify_add_watch(fd, "/", IN_CREATE));
    T(signalfd(fd, &set, 0));
    T(syscall(308, fd, 0)); /* setns */
    T(epoll_ctl(fd, EPOLL_CTL_ADD, 0, NULL));
    T(syscall(242, fd, room, 1, 0, NULL)); /* mq_timedsend */
    T(syscall(245, fd, NULL, NULL));       /* mq_getsetattr */
    T(syscall(424, fd, 0, NULL, 0));       /* pidfd_send_signal */
    T(syscall(438, fd, 0, 0));             /* pidfd_getfd */
    T(syscall(440, fd, NULL, 0, MADV_COLD, 0)); /* process_madvise */
    T(syscall(448, fd, 0));                /* process_mrelease */
    T(waitid(3 /* P_PIDFD */, fd, NULL, WEXITED));
}

GROUP(refuse, descriptors)
{
    int fd = make_open("f", "text", O_RDWR);
    each(fd);
    each(open("f", O_PATH));
}

GROUP(refuse, kcmp)
{
    int a = make_open("a", "text", O_RDWR), b = make_open("b", "text", O_RDWR), c = dup(a);
    pid_t own = getpid();
    say("%ld %ld", syscall(SYS_kcmp, own, own, KCMP_FILE, a, c), syscall(SYS_kcmp, own, own, KCMP_FILE, a, a));
    say("%d %d", syscall(SYS_kcmp, own, own, KCMP_FILE, a, b) > 0, syscall(SYS_kcmp, own, own, KCMP_FILE, b, 0) > 0);
    T(syscall(SYS_kcmp, own, own, KCMP_FILE, a, 99));
}

GROUP(refuse, clone_onto_host)
{
    int fd = make_open("f", "text", O_RDWR);
    struct file_clone_range range = { .src_fd = fd };
    int own = memfd_create("m", 0);
    T(ioctl(own, FICLONE, fd));
    T(ioctl(own, FICLONERANGE, &range));
}

/* NULL and an empty path with AT_EMPTY_PATH are the working directory. */
GROUP(refuse, null_path)
{
    struct stat st, own;
    struct statx sx;
    char room[64];
    stat(".", &own);
    T(syscall(SYS_newfstatat, AT_FDCWD, NULL, &st, AT_EMPTY_PATH));
    say("%d", st.st_ino == own.st_ino && st.st_dev == own.st_dev);
    T(syscall(SYS_newfstatat, AT_FDCWD, "", &st, AT_EMPTY_PATH));
    say("%d", st.st_ino == own.st_ino && st.st_dev == own.st_dev);
    T(syscall(SYS_statx, AT_FDCWD, NULL, AT_EMPTY_PATH, STATX_INO, &sx));
    say("%d", sx.stx_ino == own.st_ino);
    T(syscall(SYS_newfstatat, AT_FDCWD, NULL, &st, 0));
    T(syscall(SYS_statx, AT_FDCWD, NULL, 0, STATX_INO, &sx));
    int dir = open(".", O_PATH);
    T(syscall(SYS_newfstatat, dir, NULL, &st, AT_EMPTY_PATH));
    T(syscall(SYS_newfstatat, dir, NULL, &st, 0));
    struct { uint64_t value; uint32_t size, flags; } args = { (uintptr_t)"here", 4, 0 };
    T(syscall(463, AT_FDCWD, NULL, AT_EMPTY_PATH, "user.null", &args, sizeof args));
    T(syscall(463, AT_FDCWD, "", AT_EMPTY_PATH, "user.empty", &args, sizeof args));
    args.value = (uintptr_t)room, args.size = sizeof room;
    T(syscall(464, AT_FDCWD, NULL, AT_EMPTY_PATH, "user.null", &args, sizeof args));
    T(getxattr(".", "user.null", room, sizeof room));
    T(getxattr(".", "user.empty", room, sizeof room));
    T(syscall(465, AT_FDCWD, NULL, AT_EMPTY_PATH, room, sizeof room));
    T(syscall(466, AT_FDCWD, NULL, AT_EMPTY_PATH, "user.null"));
    T(syscall(466, AT_FDCWD, "", AT_EMPTY_PATH, "user.empty"));
    T(syscall(464, AT_FDCWD, NULL, 0, "user.null", &args, sizeof args));
    T(listxattr(".", room, sizeof room));
    T(syscall(SYS_fchownat, AT_FDCWD, "", getuid(), getgid(), AT_EMPTY_PATH));
    T(utimensat(AT_FDCWD, NULL, NULL, 0));
}

/* A message to a socket in the directory, and a descriptor in one, through sendmmsg. */
GROUP(refuse, sendmmsg)
{
    struct sockaddr_un to = { AF_UNIX, "socket" };
    int from = socket(AF_UNIX, SOCK_DGRAM, 0), at = socket(AF_UNIX, SOCK_DGRAM, 0);
    T(bind(at, (void *)&to, sizeof to));
    int fd = make_open("f", "carried", O_RDONLY);
    struct iovec word = { "one", 3 }, other = { "other", 5 };
    union { char room[CMSG_SPACE(4)]; struct cmsghdr head; } control = { .head = { CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS } };
    memcpy(CMSG_DATA(&control.head), &fd, 4);
    struct mmsghdr both[2] = {
        { .msg_hdr = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &word, .msg_iovlen = 1 } },
        { .msg_hdr = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &other, .msg_iovlen = 1,
                       .msg_control = control.room, .msg_controllen = sizeof control } },
    };
    T(sendmmsg(from, both, 2, 0));
    say("%u %u", both[0].msg_len, both[1].msg_len);
    char text[8] = "";
    struct iovec into = { text, sizeof text };
    struct msghdr got = { .msg_iov = &into, .msg_iovlen = 1 };
    T(recvmsg(at, &got, 0));
    memset(&control, 0, sizeof control);
    got.msg_control = control.room, got.msg_controllen = sizeof control;
    T(recvmsg(at, &got, 0));
    memcpy(&fd, CMSG_DATA(&control.head), 4);
    char carried[16] = "";
    T(read(fd, carried, sizeof carried));
    say("%s", carried);
    to.sun_path[0] = 'n';
    T(sendmmsg(from, both, 2, 0));
}
