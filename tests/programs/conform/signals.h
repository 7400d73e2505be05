/* Helpers for the groups of signals. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include "conform.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

/* State shared by the processes of a group. */
static volatile struct shared {
    volatile int ready, stop, wrong, handled, second, pages;
} *shared;

static void share(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* Increments atomically, in a handler that another may interrupt. */
#define BUMP(field) __sync_fetch_and_add(&shared->field, 1)

/* Waits until `done` holds, for at most a minute, so that a lost event does not hang the suite. */
#define AWAIT(done)                                                 \
    ({                                                              \
        int left_ = 600000;                                         \
        while (!(done) && left_-- > 0)                              \
            usleep(100);                                            \
        left_ > 0;                                                  \
    })

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction a = { .sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO };
    sigaction(signal, &a, NULL);
}

static void every(int microseconds)
{
    struct itimerval v = { { 0, microseconds }, { 0, microseconds } };
    setitimer(ITIMER_REAL, &v, NULL);
}

/* The blocked signals, except those of the C library. */
static void say_blocked(const char *text)
{
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    char line[300];
    int used = 0;
    line[0] = 0;
    for (int s = 1; s <= SIGRTMAX; s++)
        if (sigismember(&set, s) == 1)
            used += sprintf(line + used, " %d", s);
    say("%s:%s", text, used ? line : " none");
}

static void count_both(int signal, siginfo_t *info, void *context)
{
    if (signal == SIGUSR1)
        shared->handled++;
    else
        shared->second++;
}

/* Writes and looks up a file repeatedly: most of the time is spent in calls. */
static void write_until_stopped(const char *path, long bytes)
{
    static char b[1 << 16];
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    shared->ready = 1;
    while (!shared->stop) {
        pwrite(fd, b, bytes, 0);
        access(path, F_OK);
    }
    close(fd);
    unlink(path);
}

static void count_one(int signal, siginfo_t *info, void *context)
{
    BUMP(handled);
}

#endif
