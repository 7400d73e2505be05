/* Limits of descriptors and of file sizes, and targets that take nothing. */
#include "conform.h"
#include <linux/sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/timerfd.h>
#include <signal.h>

static void limit(int which, rlim_t soft)
{
    struct rlimit now;
    getrlimit(which, &now);
    now.rlim_cur = soft;
    if (setrlimit(which, &now))
        say("setrlimit: %s", strerrorname_np(errno));
}

GROUP(limits, numbers)
{
    int fd = make_open("f", "text", O_RDWR), at = T(dup2(fd, 40)), host = T(open("/dev/null", O_RDWR));
    T(dup2(host, 41));
    limit(RLIMIT_NOFILE, 20);
    T(dup2(fd, 40));
    T(dup2(host, 40));
    T(dup2(fd, 41));
    T(dup2(host, 41));
    T(dup3(fd, 40, O_CLOEXEC));
    T(dup2(fd, 19));
    T(dup2(40, 40));
    T(dup3(40, 40, 0));
    T(dup2(40, 18));
    T(fcntl(fd, F_DUPFD, 30));
    T(fcntl(fd, F_DUPFD, 20));
    T(close(at));
    limit(RLIMIT_NOFILE, 0);
    T(open("f", O_RDONLY));
    T(open("missing", O_RDONLY));
    T(open("new", O_RDWR | O_CREAT, 0600));
    T(openat(AT_FDCWD, ".", O_RDONLY | O_DIRECTORY));
    T(open(".", O_RDWR | O_TMPFILE, 0600));
    T(open("/dev/null", O_RDONLY));
    T(dup(fd));
    T(dup2(fd, 5));
    T(fcntl(fd, F_DUPFD, 0));
    T(memfd_create("m", 0));
    T(read(fd, &(char[4]){ 0 }, 4));
    limit(RLIMIT_NOFILE, 20);
    T(access("new", F_OK));
}

/* KiB of data that the process has. */
static long data_now(void)
{
    char line[200];
    long data = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmData: %ld", &data);
    fclose(status);
    return data;
}

/* A shared mapping of a file takes no data. */
GROUP(limits, data)
{
    int fd = make_open("f", "text", O_RDWR);
    T(ftruncate(fd, 40 << 12));
    limit(RLIMIT_DATA, (data_now() + 600) << 10);
    char *at = mmap(NULL, 40 << 12, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    say("%.4s", at == MAP_FAILED ? "none" : at);
    for (int i = 1; i < 40 && at != MAP_FAILED; i += 2)
        if (mprotect(at + (i << 12), 1 << 12, PROT_READ))
            say("%d: %s", i, strerrorname_np(errno));
    T(munmap(at, 40 << 12));
}

static void await(int pipe)
{
    char byte;
    if (read(pipe, &byte, 1) != 1)
        say("short");
}

static void let_go(int pipe)
{
    if (write(pipe, "g", 1) != 1)
        say("short");
}

/* Another process sets the limit of file sizes. */
GROUP(limits, set_from_outside)
{
    int fd = make_open("f", "", O_RDWR), ready[2], go[2];
    T(pipe(ready)), T(pipe(go));
    pid_t child = fork();
    if (!child) {
        long done[5], failed[5];
        signal(SIGXFSZ, SIG_IGN);
        let_go(ready[1]), await(go[0]);
        errno = 0, done[0] = write(fd, "0123456789", 10), failed[0] = errno;
        errno = 0, done[1] = write(fd, "0123456789", 10), failed[1] = errno;
        errno = 0, done[2] = ftruncate(fd, 9), failed[2] = errno;
        errno = 0, done[3] = ftruncate(fd, 7), failed[3] = errno;
        let_go(ready[1]), await(go[0]);
        errno = 0, done[4] = pwrite(fd, "0123456789", 10, 0), failed[4] = errno;
        /* What this prints may go to a file. */
        let_go(ready[1]), await(go[0]);
        for (int i = 0; i < 5; i++)
            say("%ld %s", done[i], failed[i] ? strerrorname_np(failed[i]) : "");
        _exit(0);
    }
    struct rlimit old, limits[] = { { 8, RLIM_INFINITY }, { 100, RLIM_INFINITY }, { RLIM_INFINITY, RLIM_INFINITY } };
    for (int i = 0; i < 3; i++) {
        await(ready[0]);
        T(prlimit(child, RLIMIT_FSIZE, limits + i, &old));
        say("%ld", (long)old.rlim_cur);
        let_go(go[1]);
    }
    say_wait(child);
}

#define MB (1L << 20)

static void say_limits(const struct rlimit *limits)
{
    say("%ld %ld", limits->rlim_cur == RLIM_INFINITY ? -1 : (long)(limits->rlim_cur / MB),
        limits->rlim_max == RLIM_INFINITY ? -1 : (long)(limits->rlim_max / MB));
}

static void say_mapped(long bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    say("%ld: %s", bytes / MB, at == MAP_FAILED ? strerrorname_np(errno) : "mapped");
}

/* What is the program's own, its children's and its threads'. */
GROUP(limits, of_address_space)
{
    make("f", "text");
    pid_t child = fork();
    if (!child) {
        struct rlimit found, limits = { 400 * MB, 600 * MB }, odd = { 2 * MB, MB };
        T(getrlimit(RLIMIT_AS, &found)), say_limits(&found);
        T(setrlimit(RLIMIT_AS, &odd));
        T(syscall(SYS_setrlimit, RLIMIT_AS, (void *)1));
        T(syscall(SYS_getrlimit, RLIMIT_AS, (void *)1));
        T(syscall(SYS_prlimit64, 0, RLIMIT_AS, (void *)1, NULL));
        T(setrlimit(RLIMIT_AS, &limits));
        T(syscall(SYS_getrlimit, RLIMIT_AS, &found)), say_limits(&found);
        limits.rlim_cur = 500 * MB;
        T(prlimit(getpid(), RLIMIT_AS, &limits, &found)), say_limits(&found);
        T(prlimit(0, RLIMIT_AS, NULL, &found)), say_limits(&found);
        say_mapped(MB), say_mapped(300 * MB), say_mapped(300 * MB);
        fflush(stdout);
        T(system("ulimit -v; ulimit -Hv; cat f; sh -c 'echo more >>f'; cat f"));
        T(open("f", O_RDONLY));
        _exit(0);
    }
    say_wait(child);
    contents("f");
}

GROUP(limits, to_an_eventfd)
{
    int fd = make_open("f", "12345678", O_RDWR), event = T(eventfd(0, EFD_NONBLOCK));
    T(sendfile(event, fd, NULL, 8));
    T(lseek(fd, 0, SEEK_CUR));
    T(read(event, &(long){ 0 }, 8));
    off_t at = 0;
    T(sendfile(event, fd, &at, 8));
    T(at);
    at = 8;
    T(sendfile(event, fd, &at, 8));
    T(at);
    int timer = T(timerfd_create(CLOCK_MONOTONIC, 0)), polls = T(epoll_create1(0));
    T(sendfile(timer, fd, NULL, 8));
    T(sendfile(polls, fd, NULL, 8));
    T(lseek(fd, 3, SEEK_END));
    T(sendfile(polls, fd, NULL, 8));
    T(lseek(fd, 0, SEEK_CUR));
    T(sendfile(polls, T(open(".", O_RDONLY)), &at, 8));
    T(copy_file_range(fd, NULL, event, NULL, 8, 0));
}

/* A limit below numbers that are in use: those that become free are not given out again. */
GROUP(limits, numbers_above_the_limit)
{
    int fd = make_open("f", "text", O_RDWR);
    while (dup(fd) < 13)
        ;
    for (int at = 0; at < 2; at++) {
        T(close(8 + at));
        limit(RLIMIT_NOFILE, 6);
        T(open("f", O_RDONLY));
        T(close(12 + at));
        T(open("f", O_RDONLY));
        T(dup(3));
        T(close(4));
        T(open("f", O_RDONLY));
        limit(RLIMIT_NOFILE, 20);
        T(open("f", O_RDONLY));
    }
}

/* A number that has become free is there for a pidfd. */
GROUP(limits, a_pidfd)
{
    int fd = make_open("f", "text", O_RDWR), pidfd = -1;
    while (dup(fd) < 11)
        ;
    T(close(8));
    limit(RLIMIT_NOFILE, 12);
    for (int i = 0; i < 2; i++) {
        struct clone_args how = { .flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD };
        pid_t child = syscall(SYS_clone3, &how, sizeof how);
        if (child == 0)
            _exit(0);
        say("%d %d", child > 0, pidfd);
        if (child > 0)
            say_wait(child);
        T(close(8));
        T(open("f", O_RDONLY));
        T(close(8));
    }
}
