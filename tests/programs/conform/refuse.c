/* Descriptors and paths of regular files in calls that expect something else, and NULL for the working
 * directory. */
#include <linux/fs.h>
#include <linux/kcmp.h>
#include <pthread.h>
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
#include <sys/xattr.h>

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
    own = open("/dev/null", O_PATH);
    T(ioctl(own, FICLONE, fd));
    T(ioctl(own, FICLONERANGE, &range));
    T(ioctl(99, FICLONE, fd));
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

/* Descriptors and the address of a socket in the directory, through recvmmsg. */
GROUP(refuse, recvmmsg)
{
    int from = socket(AF_UNIX, SOCK_DGRAM, 0), to = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un sender = { .sun_family = AF_UNIX, .sun_path = "sender" };
    struct sockaddr_un receiver = { .sun_family = AF_UNIX, .sun_path = "receiver" };
    T(bind(from, (struct sockaddr *)&sender, sizeof sender));
    T(bind(to, (struct sockaddr *)&receiver, sizeof receiver));
    int file = make_open("file", "sent along", O_RDONLY);
    for (int i = 0; i < 3; i++) {
        char text[] = "m0", control[CMSG_SPACE(sizeof(int))] = "";
        text[1] += i;
        struct iovec vector = { text, 2 };
        struct msghdr message = { .msg_name = &receiver, .msg_namelen = sizeof receiver, .msg_iov = &vector, .msg_iovlen = 1 };
        if (i != 1) {
            message.msg_control = control;
            message.msg_controllen = sizeof control;
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(header), &file, sizeof file);
        }
        T(sendmsg(from, &message, 0));
    }
    static char text[5][8], control[5][CMSG_SPACE(sizeof(int))];
    static struct sockaddr_un names[5];
    struct iovec vectors[5];
    struct mmsghdr messages[5];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 5; i++) {
        vectors[i] = (struct iovec){ text[i], sizeof text[i] };
        messages[i].msg_hdr = (struct msghdr){ .msg_name = &names[i], .msg_namelen = sizeof names[i], .msg_iov = &vectors[i],
            .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i] };
    }
    struct timespec bad = { -1, 0 }, worse = { 0, 1000000000 }, none = { 0, 0 };
    T(recvmmsg(to, messages, 5, 0, &bad));
    T(recvmmsg(to, messages, 5, 0, &worse));
    T(recvmmsg(to, messages, 1, 0, &none));
    T(recvmmsg(to, messages + 1, 4, MSG_WAITFORONE, NULL));
    T(recvmmsg(to, messages + 3, 2, MSG_DONTWAIT, NULL));
    T(recvmmsg(to, messages, 0, 0, NULL));
    for (int i = 0; i < 3; i++) {
        struct msghdr *message = &messages[i].msg_hdr;
        say("%u bytes, '%.2s' from '%s' %u", messages[i].msg_len, text[i], names[i].sun_path, (unsigned)message->msg_namelen);
        struct cmsghdr *header = CMSG_FIRSTHDR(message);
        int got = -1;
        if (header && header->cmsg_type == SCM_RIGHTS)
            memcpy(&got, CMSG_DATA(header), sizeof got);
        char content[16] = "";
        say("descriptor: %ld '%s'", (long)pread(got, content, 15, 0), content);
    }
}

GROUP(refuse, kcmp_of_processes)
{
    int a = make_open("a", "a", O_RDONLY), b = open("a", O_RDONLY), c = dup(a), host = open("/dev/null", O_RDONLY), ends[2], back[2];
    if (pipe(ends) || pipe(back))
        return;
    pid_t own = getpid(), child = fork();
    if (!child) {
        /* What the child has under b's number is a's file. */
        dup2(a, b);
        close(ends[1]);
        if (write(back[1], "x", 1) != 1)
            _exit(1);
        char byte;
        _exit(read(ends[0], &byte, 1) < 0);
    }
    char byte;
    if (read(back[0], &byte, 1) != 1)
        return;
    say("%d", syscall(SYS_kcmp, own, child, KCMP_FILE, a, a) == 0);
    say("%d", syscall(SYS_kcmp, own, child, KCMP_FILE, a, c) == 0);
    say("%d", syscall(SYS_kcmp, own, child, KCMP_FILE, a, b) == 0);
    say("%d", syscall(SYS_kcmp, own, child, KCMP_FILE, b, b) == 0);
    say("%d", syscall(SYS_kcmp, child, child, KCMP_FILE, c, b) == 0);
    say("%d", syscall(SYS_kcmp, own, child, KCMP_FILE, a, host) > 0);
    say("%d", syscall(SYS_kcmp, own, child, KCMP_FILE, host, host) == 0);
    long one = syscall(SYS_kcmp, own, child, KCMP_FILE, a, 0), other = syscall(SYS_kcmp, child, own, KCMP_FILE, 0, a);
    say("%d", one + other == 3);
    T(syscall(SYS_kcmp, own, child, KCMP_FILE, a, 99));
    T(syscall(SYS_kcmp, own, own, KCMP_FILE, 99, a));
    T(syscall(SYS_kcmp, own, 0x3fffffff, KCMP_FILE, a, a));
    T(syscall(SYS_kcmp, own, own, 99, a, a));
    close(ends[1]);
    say_wait(child);
}

GROUP(refuse, uuid_of_the_file_system)
{
    struct {
        unsigned char length, bytes[16];
    } uuid, again;
    int fd = make_open("f", "x", O_RDONLY), dir = open(".", O_RDONLY), path = open("f", O_PATH);
    T(ioctl(fd, _IOR(0x15, 0, uuid), &uuid));
    T(ioctl(dir, _IOR(0x15, 0, uuid), &again));
    say("%d %d version %x", uuid.length, !memcmp(&uuid, &again, sizeof uuid), uuid.bytes[6] >> 4);
    T(ioctl(fd, _IOR(0x15, 0, uuid), NULL));
    T(ioctl(path, _IOR(0x15, 0, uuid), &uuid));
}

static void *compares(void *fds)
{
    int *fd = fds;
    pid_t own = getpid(), thread = gettid();
    say("%d", syscall(SYS_kcmp, thread, thread, KCMP_FILE, fd[0], fd[1]) > 0);
    say("%d", syscall(SYS_kcmp, thread, own, KCMP_FILE, fd[0], fd[1]) > 0);
    say("%d", syscall(SYS_kcmp, own, thread, KCMP_FILE, fd[0], fd[2]) == 0);
    T(syscall(SYS_kcmp, thread, thread, KCMP_FILE, fd[0], 99));
    return NULL;
}

GROUP(refuse, kcmp_of_threads)
{
    int a = make_open("a", "a", O_RDONLY), fds[3] = { a, open("a", O_RDONLY), dup(a) };
    pthread_t thread;
    pthread_create(&thread, NULL, compares, fds);
    pthread_join(thread, NULL);
}
