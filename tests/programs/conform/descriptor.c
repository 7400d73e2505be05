/* dup, fcntl, close_range, close-on-exec, inheritance, SCM_RIGHTS. */
#include "conform.h"
#include <sys/file.h>
#include <sys/mman.h>
#include <linux/close_range.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <signal.h>

GROUP(descriptor, dup)
{
    int fd = make_open("f", "0123456789", O_RDWR);
    T(dup(fd));
    T(dup2(fd, 10));
    T(dup2(fd, fd));
    T(dup2(99, 99));
    T(dup2(99, 5));
    T(dup2(fd, -1));
    T(dup2(fd, 100000000));
    T(dup3(fd, 11, O_CLOEXEC));
    T(dup3(fd, fd, 0));
    T(dup3(fd, 12, 0x1));
    T(dup3(fd, 12, O_CLOEXEC | O_NONBLOCK));
    T(fcntl(11, F_GETFD));
    T(fcntl(10, F_GETFD));
    T(fcntl(fd, F_DUPFD, 20));
    T(fcntl(fd, F_DUPFD, 20));
    T(fcntl(fd, F_DUPFD_CLOEXEC, 20));
    T(fcntl(22, F_GETFD));
    T(fcntl(fd, F_DUPFD, -1));
    T(fcntl(fd, F_DUPFD, 100000000));
    T(lseek(10, 5, SEEK_SET));
    T(lseek(20, 0, SEEK_CUR));
    int other = make_open("g", "other", O_RDONLY);
    T(dup2(other, 10));
    T(lseek(10, 0, SEEK_CUR));
    T(lseek(20, 0, SEEK_CUR));
    T(close(fd));
    T(lseek(20, 0, SEEK_CUR));
    int null = T(open("/dev/null", O_RDWR));
    T(dup2(null, 20));
    T(write(20, "x", 1));
    T(dup2(other, null));
    T(lseek(null, 1, SEEK_CUR));
    T(dup(99));
    T(dup(-1));
    T(dup2(other, 900));
    T(close(900));
    T(syscall(SYS_dup2, other, 7));
    T(syscall(SYS_dup3, other, 7, O_CLOEXEC));
}

GROUP(descriptor, lowest_beside_a_fifo)
{
    make("f", "text");
    T(open("f", O_RDONLY));
    T(mkfifo("fifo", 0600));
    int fifo = T(open("fifo", O_RDWR)), last = T(open("f", O_RDONLY));
    T(close(last));
    T(close(fifo));
    T(open("f", O_RDONLY));
    T(open("f", O_RDONLY));
    T(open("f", O_RDONLY));
}

GROUP(descriptor, fcntl)
{
    int fd = make_open("f", "text", O_RDWR), d = T(open(".", O_RDONLY));
    T(fcntl(fd, F_GETFD));
    T(fcntl(fd, F_SETFD, FD_CLOEXEC));
    T(fcntl(fd, F_GETFD));
    T(fcntl(fd, F_SETFD, 0xff00));
    T(fcntl(fd, F_GETFD));
    T(fcntl(fd, F_GETFL));
    T(fcntl(fd, F_SETFL, O_APPEND));
    T(fcntl(fd, F_GETFL));
    T(fcntl(fd, F_SETFL, O_NONBLOCK | O_WRONLY | O_CREAT | O_TRUNC));
    T(fcntl(fd, F_GETFL));
    T(fcntl(fd, F_SETFL, O_NOATIME));
    T(fcntl(fd, F_GETFL));
    T(fcntl(fd, F_SETFL, O_DIRECT));
    T(fcntl(fd, F_GETFL));
    T(fcntl(fd, F_SETFL, O_ASYNC));
    T(fcntl(fd, F_GETFL));
    T(fcntl(fd, F_SETFL, -1));
    T(fcntl(fd, F_GETFL));
    T(fcntl(d, F_SETFL, O_DIRECT | O_APPEND));
    T(fcntl(d, F_SETFL, O_DIRECT | O_NOATIME));
    T(fcntl(d, F_SETFL, O_APPEND));
    T(fcntl(d, F_GETFL));
    T(fcntl(fd, F_GETOWN));
    T(fcntl(fd, F_GETSIG));
    T(fcntl(fd, F_GETPIPE_SZ));
    T(fcntl(fd, F_SETPIPE_SZ, 4096));
    T(fcntl(fd, F_GETLEASE));
    T(fcntl(fd, F_SETLEASE, F_RDLCK));
    T(fcntl(fd, F_SETLEASE, F_UNLCK));
    T(fcntl(fd, F_GET_SEALS));
    T(fcntl(fd, F_ADD_SEALS, 1));
    T(fcntl(d, F_NOTIFY, 0));
    T(fcntl(fd, 9999));
    T(fcntl(99, F_GETFD));
    T(fcntl(99, F_GETFL));
    T(fcntl(99, F_SETFD, 0));
    uint64_t hint = 77;
    T(fcntl(fd, F_GET_RW_HINT, &hint));
    int e = T(dup(fd));
    T(fcntl(e, F_SETFL, O_APPEND));
    T(fcntl(fd, F_GETFL));
    T(ioctl(fd, 0x5421, &(int){ 1 }));
    T(fcntl(fd, F_GETFL));
    T(ioctl(fd, 0x5451));
    T(fcntl(fd, F_GETFD));
    T(ioctl(fd, 0x5450));
    T(fcntl(fd, F_GETFD));
}

GROUP(descriptor, close_range)
{
    for (int i = 0; i < 10; i++)
        make_open("f", "x", i % 2 ? O_RDONLY : O_RDWR);
    T(close_range(5, 7, 0));
    T(fcntl(4, F_GETFD));
    T(fcntl(5, F_GETFD));
    T(fcntl(7, F_GETFD));
    T(fcntl(8, F_GETFD));
    T(close_range(8, 9, CLOSE_RANGE_CLOEXEC));
    T(fcntl(8, F_GETFD));
    T(fcntl(10, F_GETFD));
    T(close_range(9, 8, 0));
    T(close_range(9, 9, 0x80));
    T(close_range(500, 600, 0));
    T(open("f", O_RDONLY));
    T(open("f", O_RDONLY));
    T(close_range(10, 400, CLOSE_RANGE_UNSHARE));
    T(fcntl(12, F_GETFD));
    T(close_range(3, ~0U, 0));
    T(open("f", O_RDONLY));
    T(open("/dev/null", O_RDONLY));
    T(access("f", F_OK));
    CHILD {
        T(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC));
        execl("/bin/sh", "sh", "-c", "cat f; echo x <&3; echo $?", NULL);
    }
    closefrom(3);
    T(open("f", O_RDONLY));
    for (int i = 3; i < 1200; i++)
        close(i);
    T(open("f", O_RDONLY));
}

GROUP(descriptor, over_exec)
{
    int keep = make_open("keep", "kept\n", O_RDONLY);
    int gone = make_open("gone", "gone\n", O_RDONLY | O_CLOEXEC);
    int later = make_open("later", "later\n", O_RDONLY);
    T(fcntl(later, F_SETFD, FD_CLOEXEC));
    int cleared = make_open("cleared", "cleared\n", O_RDONLY | O_CLOEXEC);
    T(fcntl(cleared, F_SETFD, 0));
    int dup = T(fcntl(gone, F_DUPFD, 30));
    T(lseek(keep, 1, SEEK_SET));
    say("%d %d %d %d %d", keep, gone, later, cleared, dup);
    CHILD {
        execl("/bin/sh", "sh", "-c", "cat <&3; cat <&4; cat <&5; cat <&6; cat <&30", NULL);
    }
    CHILD {
        char *argv[] = { "sh", "-c", "cat <&3; cat <&6; ls /proc/self/fd | head -3", NULL }, *envp[] = { NULL };
        T(lseek(keep, 0, SEEK_SET));
        T(lseek(cleared, 0, SEEK_SET));
        execve("/bin/sh", argv, envp);
    }
    T(lseek(keep, 0, SEEK_CUR));
    T(open("next", O_CREAT | O_RDWR, 0600));
    CHILD {
        execl("/nosuch", "x", NULL);
        T(fcntl(gone, F_GETFD));
        T(lseek(gone, 0, SEEK_CUR));
    }
    CHILD {
        dup2(keep, 0);
        dup2(cleared, 7);
        execl("/bin/bash", "bash", "-c", "cat; exec 3<&- 6<&-; exec 3<gone; cat <&3; exec bash -c 'cat <&7; cat <&3; echo end'", NULL);
    }
}

static int send_fd(int socket, int *fds, int count)
{
    char byte = 'x', control[CMSG_SPACE(8 * sizeof(int))];
    struct iovec v = { &byte, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(count * sizeof(int)) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    return sendmsg(socket, &m, 0);
}

static int receive_fd(int socket, int *fds, int flags)
{
    char byte, control[CMSG_SPACE(8 * sizeof(int))];
    struct iovec v = { &byte, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    if (recvmsg(socket, &m, flags) < 0)
        return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (!c)
        return 0;
    int count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(c), count * sizeof(int));
    return count;
}

/* Who asks whether "script", which `reads` has open, is open for writing: a lease, and an exec. */
static void ask_for_writers(int reads)
{
    T(fcntl(reads, F_SETLEASE, F_RDLCK));
    T(fcntl(reads, F_SETLEASE, F_UNLCK));
    pid_t child = vfork();
    if (child == 0) {
        execl("./script", "script", NULL);
        _exit(errno == ETXTBSY ? 26 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    say("exec: %x", status);
}

static int make_script(void)
{
    close(make_open("script", "#!/bin/true\n", O_RDWR));
    T(chmod("script", 0700));
    return T(open("script", O_RDONLY));
}

/* A file in a message is open. */
GROUP(descriptor, open_in_a_message)
{
    int s[2], back[8] = { -1 };
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    int reads = make_script(), writes = T(open("script", O_RDWR));
    T(send_fd(s[0], &writes, 1));
    T(close(writes));
    ask_for_writers(reads);
    T(receive_fd(s[1], back, 0));
    ask_for_writers(reads);
    close(back[0]);
    ask_for_writers(reads);
}

/* So is what is mapped through it, after it is closed. */
GROUP(descriptor, open_in_a_mapping)
{
    static const int sharings[] = { MAP_SHARED, MAP_PRIVATE };
    int reads = make_script();
    for (int sharing = 0; sharing < 2; sharing++) {
        int writes = T(open("script", O_RDWR));
        void *mapped = mmap(NULL, 4096, PROT_READ, sharings[sharing], writes, 0);
        T(close(writes));
        ask_for_writers(reads);
        T(munmap(mapped, 4096));
        ask_for_writers(reads);
    }
}

GROUP(descriptor, passed_and_used)
{
    int s[2], fds[8] = { 0 };
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    int fd = make_open("f", "0123456789", O_RDWR), null = T(open("/dev/null", O_RDWR));
    T(lseek(fd, 4, SEEK_SET));
    int pair[2] = { fd, null };
    T(send_fd(s[0], pair, 2));
    T(send_fd(s[0], &fd, 1));
    CHILD {
        T(close(fd));
        T(receive_fd(s[1], fds, 0));
        say("got %d %d", fds[0], fds[1]);
        char b[4] = { 0 };
        T(read(fds[0], b, 3));
        say("%s", b);
        T(write(fds[0], "W", 1));
        T(write(fds[1], "W", 1));
        attributes_fd(fds[0]);
        T(receive_fd(s[1], fds, MSG_CMSG_CLOEXEC));
        T(fcntl(fds[0], F_GETFD));
        T(fcntl(fds[0], F_GETFL));
        int back = make_open("from_child", "child's", O_RDONLY);
        T(send_fd(s[1], &back, 1));
    }
    T(receive_fd(s[0], fds, 0));
    char b[10] = { 0 };
    T(read(fds[0], b, 9));
    say("%s", b);
    T(lseek(fd, 0, SEEK_CUR));
    T(unlink("f"));
    T(send_fd(s[0], &fd, 1));
    T(close(fd));
    T(receive_fd(s[1], fds, 0));
    T(pread(fds[0], b, 9, 0));
    say("%s", b);
}

GROUP(descriptor, shared_by_vfork_and_threads)
{
    int fd = make_open("f", "0123456789", O_RDWR);
    pid_t child = vfork();
    if (!child) {
        dup2(fd, 20);
        lseek(20, 3, SEEK_SET);
        _exit(0);
    }
    say_wait(child);
    T(lseek(fd, 0, SEEK_CUR));
    T(fcntl(20, F_GETFD));
    child = vfork();
    if (!child) {
        close(fd);
        _exit(0);
    }
    say_wait(child);
    T(lseek(fd, 0, SEEK_CUR));
}

static void say_owner(const char *name, int fd, pid_t self)
{
    struct f_owner_ex owner = { 7, 7 };
    long got = fcntl(fd, F_GETOWN), extended = fcntl(fd, F_GETOWN_EX, &owner);
    const char *whose = got == self ? "own" : got == -self ? "group" : got ? "other" : "none";
    say("%s: %s, %ld type %d %s, signal %d", name, whose, extended, owner.type, owner.pid == self ? "own" : owner.pid ? "other" : "none", fcntl(fd, F_GETSIG));
}

GROUP(descriptor, owners_and_signals)
{
    int fd = make_open("f", "text", O_RDWR), twin = dup(fd), other = open("f", O_RDONLY), dir = open(".", O_RDONLY), path = open("f", O_PATH);
    setpgid(0, 0);
    pid_t self = getpid();
    say_owner("at first", fd, self);
    T(fcntl(fd, F_SETSIG, SIGRTMIN));
    say_owner("signal", fd, self);
    T(fcntl(fd, F_SETOWN, self));
    say_owner("owner", fd, self);
    say_owner("the same description", twin, self);
    say_owner("another", other, self);
    T(fcntl(fd, F_SETSIG, 0));
    T(fcntl(fd, F_SETSIG, 64));
    T(fcntl(fd, F_SETSIG, 65));
    T(fcntl(fd, F_SETSIG, -1));
    say_owner("signals", fd, self);
    TN("group", fcntl(fd, F_SETOWN, -self));
    struct f_owner_ex group;
    say("%d", fcntl(fd, F_GETOWN_EX, &group) == 0 && group.type == F_OWNER_PGRP && group.pid == self);
    T(fcntl(fd, F_SETOWN, 0x3ffffff));
    T(fcntl(fd, F_SETOWN, -0x3ffffff));
    T(fcntl(fd, F_SETOWN, INT_MIN));
    for (int type = -1; type < 4; type++) {
        struct f_owner_ex owner = { type, self };
        TN("extended", fcntl(fd, F_SETOWN_EX, &owner));
        say_owner("extended", fd, self);
    }
    struct f_owner_ex nobody = { F_OWNER_PID, 0x3ffffff }, negative = { F_OWNER_PID, -1 }, none = { F_OWNER_TID, 0 };
    T(fcntl(fd, F_SETOWN_EX, &nobody));
    T(fcntl(fd, F_SETOWN_EX, &negative));
    T(fcntl(fd, F_SETOWN_EX, NULL));
    T(fcntl(fd, F_GETOWN_EX, NULL));
    T(fcntl(fd, F_SETOWN_EX, &none));
    say_owner("none", fd, self);
    T(fcntl(other, F_SETOWN, 0));
    say_owner("nobody", other, self);
    CHILD {
        struct f_owner_ex owner = { F_OWNER_PID, getpid() };
        T(fcntl(fd, F_SETOWN_EX, &owner));
        T(fcntl(dir, F_SETSIG, 12));
        say("%d", fcntl(fd, F_GETOWN) == getpid());
    }
    say_owner("by a child that is gone", fd, self);
    say_owner("directory", dir, self);
    T(fcntl(path, F_SETOWN, self));
    T(fcntl(path, F_GETSIG));
    T(flock(fd, LOCK_EX));
    T(fcntl(fd, F_SETSIG, 5));
    struct flock whole = { .l_type = F_WRLCK };
    T(fcntl(fd, F_OFD_SETLK, &whole));
    T(flock(other, LOCK_SH | LOCK_NB));
    T(flock(fd, LOCK_UN));
    T(flock(other, LOCK_SH | LOCK_NB));
    say_owner("with locks", fd, self);
}

/* A file in a message with much other control data. */
GROUP(descriptor, passed_beside_other_control_data)
{
    static struct { char room[60000] __attribute__((aligned(8))); } control;
    static const int others[] = { 4060, 5000, 40000 };
    int s[2], fds[8] = { 0 }, fd = make_open("f", "0123456789", O_RDWR);
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    for (unsigned i = 0; i < COUNT(others); i++) {
        char byte = 'x', b[4] = "";
        struct iovec v = { &byte, 1 };
        struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
                            .msg_controllen = CMSG_SPACE(sizeof fd) + CMSG_SPACE(others[i]) };
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){ CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS };
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
        *(struct cmsghdr *)(control.room + CMSG_SPACE(sizeof fd)) = (struct cmsghdr){ CMSG_LEN(others[i]), 99, 1 };
        TN("sendmsg", sendmsg(s[0], &m, 0));
        TN("recvmsg", receive_fd(s[1], fds, 0));
        TN("read", pread(fds[0], b, 3, i));
        say("%s", b);
        close(fds[0]);
    }
}

/* Arguments of fcntl(2) that the kernel takes as ints. */
GROUP(descriptor, wide_arguments)
{
    int fd = make_open("f", "text", O_RDWR);
    T(syscall(SYS_fcntl, fd, F_SETSIG, 1L << 32 | SIGUSR1));
    T(fcntl(fd, F_GETSIG));
    T(syscall(SYS_fcntl, fd, F_SETSIG, 65));
    T(syscall(SYS_fcntl, fd, F_SETSIG, -1L));
    T(syscall(SYS_fcntl, fd, F_ADD_SEALS, 1L << 32 | 1));
    T(syscall(SYS_fcntl, fd, F_ADD_SEALS, 0x40));
    struct iovec v = { (char[4]){ 0 }, 4 };
    T(syscall(SYS_readv, fd, &v, 1L << 32));
    T(syscall(SYS_readv, fd, &v, 1L << 32 | 1));
    T(syscall(SYS_pwritev, fd, &v, 1L << 32 | 1, 0, 0));
    T(syscall(SYS_pwritev2, fd, &v, 1L << 32, 0, 0, 0));
}
