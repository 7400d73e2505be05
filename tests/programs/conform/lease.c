/* fcntl(2): F_SETLEASE, F_GETLEASE and F_NOTIFY. */
#include "conform.h"
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>

#define SIGNAL (SIGRTMIN + 3)

static volatile int arrived, where, band;
static void broken(int signal, siginfo_t *info, void *context)
{
    arrived = signal;
    where = info->si_fd;
    band = info->si_band;
}
static void listen_to(int signal)
{
    struct sigaction a = { .sa_sigaction = broken, .sa_flags = SA_SIGINFO | SA_RESTART };
    sigaction(signal, &a, NULL);
    arrived = 0;
}
static void wait_for_signal(void)
{
    for (int i = 0; i < 500 && !arrived; i++)
        usleep(10000);
}

GROUP(lease, arguments)
{
    int fd = make_open("f", "x", O_RDONLY), d = T(open(".", O_RDONLY)), path = T(open("f", O_PATH)), p[2];
    pipe(p);
    T(fcntl(fd, F_GETLEASE));
    T(fcntl(fd, F_SETLEASE, F_UNLCK));
    T(fcntl(fd, F_SETLEASE, 7));
    T(fcntl(fd, F_SETLEASE, -1));
    T(fcntl(d, F_SETLEASE, F_RDLCK));
    T(fcntl(d, F_SETLEASE, F_UNLCK));
    T(fcntl(d, F_GETLEASE));
    T(fcntl(path, F_SETLEASE, F_RDLCK));
    T(fcntl(path, F_GETLEASE));
    T(fcntl(p[0], F_SETLEASE, F_RDLCK));
    T(fcntl(99, F_SETLEASE, F_RDLCK));
    T(fcntl(fd, F_GETOWN));
    T(fcntl(fd, F_SETLEASE, F_RDLCK));
    say("owner is this process: %d", fcntl(fd, F_GETOWN) == getpid());
    T(fcntl(fd, F_GETLEASE));
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
    T(fcntl(fd, F_GETLEASE));
    T(fcntl(fd, F_SETLEASE, F_RDLCK));
    T(fcntl(fd, F_GETLEASE));
    T(fcntl(fd, F_SETLEASE, F_UNLCK));
    T(fcntl(fd, F_GETLEASE));
    T(fcntl(fd, F_SETLEASE, F_UNLCK));
    CHILD
    {
        become_nobody();
        T(fcntl(fd, F_SETLEASE, F_RDLCK));
        T(fcntl(fd, F_SETLEASE, F_UNLCK));
        T(fcntl(fd, F_SETLEASE, 7));
        T(fcntl(d, F_SETLEASE, F_RDLCK));
    }
}

GROUP(lease, opened_by_others)
{
    int fd = make_open("f", "x", O_RDONLY), other = T(open("f", O_RDONLY));
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
    T(fcntl(fd, F_SETLEASE, F_RDLCK));
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
    T(fcntl(other, F_SETLEASE, F_RDLCK));
    T(fcntl(other, F_GETLEASE));
    T(close(fd));
    T(fcntl(other, F_GETLEASE));
    T(fcntl(other, F_SETLEASE, F_WRLCK));
    T(fcntl(other, F_SETLEASE, F_UNLCK));
    int writer = T(open("f", O_RDWR));
    T(fcntl(other, F_SETLEASE, F_RDLCK));
    T(fcntl(writer, F_SETLEASE, F_RDLCK));
    T(fcntl(writer, F_SETLEASE, F_WRLCK));
    T(close(other));
    T(fcntl(writer, F_SETLEASE, F_RDLCK));
    T(fcntl(writer, F_SETLEASE, F_WRLCK));
    T(fcntl(writer, F_GETLEASE));
    int copy = T(dup(writer));
    T(close(writer));
    T(fcntl(copy, F_GETLEASE));
    T(fcntl(copy, F_SETLEASE, F_UNLCK));
    T(fcntl(copy, F_SETLEASE, F_WRLCK));
    int path = T(open("f", O_PATH));
    T(fcntl(copy, F_SETLEASE, F_UNLCK));
    T(fcntl(copy, F_SETLEASE, F_WRLCK));
}

GROUP(lease, opened_by_other_processes)
{
    int fd = make_open("f", "x", O_RDONLY), ready[2], go[2];
    char c;
    pipe(ready), pipe(go);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int own = open("f", O_WRONLY);
        write(ready[1], "x", 1);
        read(go[0], &c, 1);
        close(own);
        own = open("f", O_RDONLY);
        write(ready[1], "x", 1);
        read(go[0], &c, 1);
        _exit(0);
    }
    read(ready[0], &c, 1);
    T(fcntl(fd, F_SETLEASE, F_RDLCK));
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
    write(go[1], "x", 1), read(ready[0], &c, 1);
    T(fcntl(fd, F_SETLEASE, F_RDLCK));
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
    write(go[1], "x", 1);
    waitpid(child, NULL, 0);
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
}

/* Another process opens or truncates the file; the holder is told and gives way. */
static void give_way(const char *text, int lease, int flags, int to, int with)
{
    make("f", "hello");
    int fd = open("f", O_RDONLY);
    if (with)
        fcntl(fd, F_SETSIG, with);
    listen_to(with ? with : SIGIO);
    say("%s: lease %ld", text, (long)fcntl(fd, F_SETLEASE, lease));
    int p[2];
    pipe(p);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fd);
        char line[80];
        errno = 0;
        int got = flags == -1 ? truncate("f", 2) : flags == -2 ? open("f", O_WRONLY | O_NONBLOCK) : open("f", flags);
        struct stat st;
        stat("f", &st);
        int n = sprintf(line, "  other: %s %d size %ld", got < 0 ? strerrorname_np(errno) : "went on", arrived, (long)st.st_size);
        write(p[1], line, n);
        _exit(0);
    }
    close(p[1]);
    struct pollfd ready = { p[0], POLLIN, 0 };
    int calm = 0;
    while (calm < 20 && poll(&ready, 1, 10) <= 0)
        calm = sleeps(child) ? calm + 1 : 0;
    int waits = calm == 20;
    char line[81] = "";
    if (waits) {
        wait_for_signal();
        say("  it waits, signal %d, descriptor %d, now %ld", arrived ? arrived == (with ? with : SIGIO) : -1, with ? where == fd : -1,
            (long)fcntl(fd, F_GETLEASE));
        say("  gives way: %ld", (long)fcntl(fd, F_SETLEASE, to));
    } else if (flags == -2) {
        wait_for_signal();
        say("  told: %d, now %ld", arrived == (with ? with : SIGIO), (long)fcntl(fd, F_GETLEASE));
        fcntl(fd, F_SETLEASE, to);
    }
    read(p[0], line, 80);
    say("%s", line);
    say("  left: %ld", (long)fcntl(fd, F_GETLEASE));
    waitpid(child, NULL, 0);
    close(fd), close(p[0]);
    unlink("f");
}

GROUP(lease, broken)
{
    give_way("write lease, reader", F_WRLCK, O_RDONLY, F_RDLCK, 0);
    give_way("write lease, reader, all", F_WRLCK, O_RDONLY, F_UNLCK, 0);
    give_way("write lease, writer", F_WRLCK, O_WRONLY, F_UNLCK, SIGNAL);
    give_way("read lease, reader", F_RDLCK, O_RDONLY, F_UNLCK, 0);
    give_way("read lease, writer", F_RDLCK, O_RDWR, F_UNLCK, SIGNAL);
    give_way("read lease, cut at open", F_RDLCK, O_WRONLY | O_TRUNC, F_UNLCK, SIGNAL);
    give_way("read lease, reader that may create", F_RDLCK, O_RDONLY | O_CREAT, F_UNLCK, SIGNAL);
    give_way("read lease, truncate", F_RDLCK, -1, F_UNLCK, SIGNAL);
    give_way("write lease, truncate", F_WRLCK, -1, F_UNLCK, 0);
    give_way("write lease, does not wait", F_WRLCK, -2, F_UNLCK, SIGNAL);
    give_way("write lease, O_PATH", F_WRLCK, O_PATH, F_UNLCK, 0);
}

static void nothing(int signal)
{
}

GROUP(lease, interrupted_opener)
{
    int fd = make_open("f", "x", O_RDONLY);
    T(fcntl(fd, F_SETSIG, SIGNAL));
    listen_to(SIGNAL);
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
    CHILD
    {
        struct sigaction a = { .sa_handler = nothing };
        sigaction(SIGALRM, &a, NULL);
        /* Again and again: the first one may come before the call. */
        setitimer(ITIMER_REAL, &(struct itimerval){ { 1, 0 }, { 1, 0 } }, NULL);
        T(open("f", O_RDONLY));
    }
    wait_for_signal();
    T(fcntl(fd, F_GETLEASE));
    T(fcntl(fd, F_SETLEASE, F_UNLCK));
}

GROUP(lease, of_the_dead)
{
    make("f", "x");
    int p[2];
    char c;
    pipe(p);
    pid_t child = fork();
    if (child == 0) {
        int fd = open("f", O_RDONLY);
        c = fcntl(fd, F_SETLEASE, F_WRLCK) ? 'n' : 'y';
        signal(SIGIO, SIG_IGN);
        write(p[1], &c, 1);
        for (;;)
            pause();
    }
    T(read(p[0], &c, 1));
    say("%c", c);
    T(open("f", O_RDONLY | O_NONBLOCK));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    int fd = T(open("f", O_RDONLY | O_NONBLOCK));
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
}

GROUP(lease, inherited)
{
    int fd = make_open("f", "x", O_RDONLY);
    T(fcntl(fd, F_SETLEASE, F_WRLCK));
    CHILD
    {
        T(fcntl(fd, F_GETLEASE));
        T(fcntl(fd, F_SETLEASE, F_RDLCK));
    }
    T(fcntl(fd, F_GETLEASE));
    CHILD T(fcntl(fd, F_SETLEASE, F_UNLCK));
    T(fcntl(fd, F_GETLEASE));
    /* It outlives the descriptor here as long as another process has the file. */
    T(fcntl(fd, F_SETLEASE, F_RDLCK));
    int p[2];
    char c;
    pipe(p);
    pid_t child = fork();
    if (child == 0) {
        close(p[1]);
        read(p[0], &c, 1);
        _exit(fcntl(fd, F_GETLEASE));
    }
    T(close(fd));
    signal(SIGIO, SIG_IGN);
    T(open("f", O_WRONLY | O_NONBLOCK));
    close(p[1]), close(p[0]);
    say_wait(child);
    T(open("f", O_WRONLY | O_NONBLOCK));
}

GROUP(notify, arguments)
{
    int fd = make_open("f", "x", O_RDONLY), d = T(open(".", O_RDONLY)), path = T(open(".", O_PATH));
    T(fcntl(fd, F_NOTIFY, DN_MODIFY));
    T(fcntl(fd, F_NOTIFY, 0));
    T(fcntl(path, F_NOTIFY, DN_MODIFY));
    T(fcntl(d, F_NOTIFY, 0));
    T(fcntl(d, F_NOTIFY, DN_MODIFY));
    T(fcntl(d, F_NOTIFY, DN_MULTISHOT));
    T(fcntl(d, F_NOTIFY, DN_CREATE | DN_MULTISHOT));
    T(fcntl(d, F_NOTIFY, 0));
    T(fcntl(99, F_NOTIFY, DN_MODIFY));
}

static void tell(const char *what)
{
    for (int i = 0; i < 20 && !arrived; i++)
        usleep(1000);
    say("%s: %d", what, arrived != 0);
    arrived = 0;
}

GROUP(notify, events)
{
    make_dir("d");
    make("d/f", "x");
    int d = T(open("d", O_RDONLY));
    T(fcntl(d, F_SETSIG, SIGNAL));
    listen_to(SIGNAL);
    T(fcntl(d, F_NOTIFY, DN_CREATE | DN_DELETE | DN_RENAME | DN_MODIFY | DN_ATTRIB | DN_MULTISHOT));
    make("d/g", ""), tell("create");
    say("descriptor %d", where == d);
    rename("d/g", "d/h"), tell("rename");
    chmod("d/h", 0600), tell("attrib");
    unlink("d/h"), tell("delete");
    int fd = open("d/f", O_RDWR);
    tell("open");
    write(fd, "y", 1), tell("write");
    char c;
    read(fd, &c, 1), tell("read");
    close(fd), tell("close");
    CHILD make("d/i", "");
    tell("create by another process");
    T(fcntl(d, F_NOTIFY, 0));
    unlink("d/i"), tell("none");
    T(fcntl(d, F_NOTIFY, DN_CREATE));
    make("d/j", ""), tell("once");
    unlink("d/j"), make("d/j", ""), tell("not twice");
    T(fcntl(d, F_SETSIG, 0));
    listen_to(SIGIO);
    T(fcntl(d, F_NOTIFY, DN_CREATE | DN_MULTISHOT));
    make("d/k", ""), tell("by SIGIO");
    T(close(d));
    make("d/l", ""), tell("after the close");
}
