/* What /proc and inotify(7) tell of a process. */
#include "differ.h"
#include <poll.h>
#include <sys/inotify.h>
#include <sys/sysmacros.h>

/* What one line of /proc/self/io counts. */
static long counted(const char *name)
{
    char text[1024] = "";
    int fd = open("/proc/self/io", O_RDONLY);
    read(fd, text, sizeof text - 1);
    close(fd);
    const char *line = strstr(text, name);
    return line ? atol(line + strlen(name)) : -1;
}

/* A hundred reads of a file and as many of the host's. */
CASE(counts_of_reads)
{
    const char *paths[] = { "f", "/proc/self/exe" };
    make("f", 0644);
    for (int i = 0; i < 2; i++) {
        char byte;
        int fd = open(paths[i], O_RDONLY);
        long before = counted("syscr: ");
        for (int n = 0; n < 100; n++)
            pread(fd, &byte, 1, 0);
        tell("%s %s", i ? "the host's" : "a file's", counted("syscr: ") - before >= 100 ? "counted" : "not counted");
    }
    return 0;
}

/* Copies a static program, busybox, to a directory of the host. */
static int make_static(const char *host, char name[4200])
{
    char line[4300];
    snprintf(name, 4200, "%s/busybox", host);
    snprintf(line, sizeof line, "cp \"$(command -v busybox)\" %s", name);
    return system(line);
}

/* A program that is executed by a descriptor with an empty path. */
CASE(named_by_descriptor)
{
    char *arguments[] = { "cat", "/proc/self/comm", NULL }, name[4200];
    if (make_static(host, name) || dup2(open(name, O_RDONLY), 77) != 77)
        return 1;
    IN_CHILD {
        syscall(SYS_execveat, 77, "", arguments, environ, AT_EMPTY_PATH);
        _exit(1);
    }
    return unlink(name);
}

/* A static program: whose mappings it has, and whether its file may be written to while it runs. */
CASE(static_programs)
{
    char name[4200], line[4300];
    int ends[2], status;
    if (make_static(host, name) || pipe2(ends, O_CLOEXEC))
        return 1;
    snprintf(line, sizeof line, "%s cat /proc/self/maps | grep -q lightpath && echo the gate || echo alone", name);
    system(line);
    pid_t child = fork();
    if (!child) {
        execl(name, name, "sleep", "60", NULL);
        _exit(1);
    }
    close(ends[1]);
    read(ends[0], line, 1);
    say("open", open(name, O_WRONLY));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return unlink(name);
}

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
