/* What inotify(7) tells of a mount. */
#include "differ.h"
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>

/* The events of a watch that have come, as the first bits of their masks. */
static void events(const char *text, int watch)
{
    char room[4096] __attribute__((aligned(8))), line[400] = "";
    static const char *const names[] = { "ACCESS", "MODIFY", "ATTRIB", "CLOSE_WRITE", "CLOSE_NOWRITE", "OPEN",
                                         "MOVED_FROM", "MOVED_TO", "CREATE", "DELETE" };
    long got = read(watch, room, sizeof room);
    for (long at = 0; at < got;) {
        struct inotify_event *event = (void *)(room + at);
        for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
            if (event->mask & 1u << i)
                snprintf(line + strlen(line), sizeof line - strlen(line), " %s", names[i]);
        at += sizeof *event + event->len;
    }
    tell("%s%s", text, *line ? line : " nothing");
}

/* A watch on a directory for everything but changes of attributes and accesses of the directory itself. */
static int watch(const char *name)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (inotify_add_watch(fd, name, IN_ALL_EVENTS & ~(IN_ATTRIB | IN_DELETE_SELF)) < 0)
        say("watch", -1);
    return fd;
}

/* What a program that is executed does to a watch, and a file without a name. */
CASE(watched_programs)
{
    if (system("cp /usr/bin/true p"))
        return 1;
    int fd = watch(".");
    IN_CHILD {
        execl("p", "p", NULL);
        _exit(1);
    }
    events("executed", fd);
    close(open(".", O_TMPFILE | O_RDWR, 0600));
    events("temporary", fd);
    return 0;
}

/* What a FIFO's opening and its data do to a watch. */
CASE(watched_fifo)
{
    char byte;
    int fd = watch(".");
    mkfifo("p", 0600);
    int fifo = open("p", O_RDWR);
    if (write(fifo, "x", 1) != 1 || read(fifo, &byte, 1) != 1)
        return 1;
    close(fifo);
    events("a FIFO", fd);
    return 0;
}

/* Reads and writes of a device that the gate knows. */
CASE(watched_device)
{
    /* One that nobody else uses. */
    if (mount("none", "/dev", "tmpfs", 0, NULL) || mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3)))
        return 1;
    int fd = open("/dev/null", O_RDWR), seen = watch("/dev/null");
    write(fd, "x", 1);
    events("null", seen);
    return umount2("/dev", MNT_DETACH);
}

/* Reads by another user than the one who has made the watch. */
CASE(watched_readers)
{
    chmod(".", 0755);
    make("f", 0644);
    if (put("f", "text"))
        return 1;
    int fd = watch(".");
    IN_CHILD {
        char byte;
        if (setresuid(65534, 65534, 65534) || read(open("f", O_RDONLY), &byte, 1) != 1)
            _exit(1);
    }
    events("read", fd);
    return 0;
}

/* Changes by a process with a root directory in which the watched files cannot be found. */
CASE(watched_from_elsewhere)
{
    int here = open(".", O_RDONLY), fd = watch(".");
    IN_CHILD {
        if (chroot("/usr") || mkdirat(here, "d", 0755))
            _exit(1);
    }
    events("made", fd);
    return 0;
}

/* A descriptor that is sent to another process and closed here. */
CASE(watched_and_sent)
{
    int ends[2], file, fd;
    char room[CMSG_SPACE(sizeof file)] = "", byte = 0;
    struct iovec one = { &byte, 1 };
    struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    make("f", 0644);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
        return 1;
    fd = watch(".");
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        _exit(recvmsg(ends[1], &message, 0) != 1 || write(ends[1], "", 1) != 1 || read(ends[1], &byte, 1) != 1);
    }
    file = open("f", O_RDONLY);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file) };
    memcpy(CMSG_DATA(head), &file, sizeof file);
    if (sendmsg(ends[0], &message, 0) != 1 || read(ends[0], &byte, 1) != 1 || close(file))
        return 1;
    events("closed by the sender", fd);
    if (write(ends[0], "", 1) != 1)
        return 1;
    ended(child);
    events("by both", fd);
    return 0;
}

/* The number that a duplicate gets while a watched file is open. */
CASE(numbers_of_the_watched)
{
    watch(".");
    make("f", 0644);
    open("f", O_RDONLY);
    tell("%d", fcntl(0, F_DUPFD, 128));
    return 0;
}
