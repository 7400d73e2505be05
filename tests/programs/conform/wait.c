/* Waits for children that something ends or interrupts: a signal, a cancellation of the thread. */
#include "signals.h"
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/syscall.h>

static pid_t child;
static volatile pid_t waiter;
static int by_id, cleaned;

static void clean(int *unused)
{
    cleaned++;
}

static void *wait_for_child(void *unused)
{
    /* Run by the unwinder: the program is compiled with -fexceptions. */
    int cleaner __attribute__((cleanup(clean))) = 0;
    int old;
    pthread_setcanceltype(unused ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &old);
    waiter = gettid();
    siginfo_t info;
    if (by_id)
        waitid(P_PID, child, &info, WEXITED);
    else
        waitpid(child, NULL, 0);
    return "not cancelled";
}

GROUP(wait, cancelled)
{
    make("f", "text");
    for (int round = 0; round < 40; round++) {
        by_id = round & 1;
        waiter = cleaned = 0;
        child = fork();
        if (!child)
            for (;;)
                pause();
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, wait_for_child, round & 2 ? &child : NULL);
        AWAIT(waiter && sleeps(waiter));
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED || cleaned != 1)
            say("round %d: cancelled %d, cleaned up %d", round, result == PTHREAD_CANCELED, cleaned);
        if (round < 4)
            contents("f");
        kill(child, SIGKILL);
        if (round < 4)
            say_wait(child);
        else
            waitpid(child, NULL, 0);
    }
    say_blocked("blocked at the end");
}

static volatile int returned;
static int locked, fifo;

/* A call that waits, by number: for a record lock, for a writer of a FIFO, for bytes in it, for a lock of
   flock(2), which is no cancellation point. */
static void *wait_in(void *call)
{
    int cleaner __attribute__((cleanup(clean))) = 0;
    struct flock whole = { .l_type = F_WRLCK };
    char byte;
    waiter = gettid();
    switch (*(int *)call) {
    case 0: returned = fcntl(locked, F_SETLKW, &whole); break;
    case 1: returned = open("q", O_RDONLY); break;
    case 2: returned = read(fifo, &byte, 1); break;
    case 3: returned = flock(locked, LOCK_EX); break;
    }
    pthread_testcancel();
    return "not cancelled";
}

/* Whether the program has no dynamic linker. */
static int is_static(void)
{
    const ElfW(Phdr) *header = (void *)getauxval(AT_PHDR);
    for (unsigned long left = getauxval(AT_PHNUM); left > 0; left--)
        if (header++->p_type == PT_INTERP)
            return 0;
    return 1;
}

/* Static programs are left out of the calls that wait in the gate: their unwinder does not know its frames. */
GROUP(wait, cancelled_in_other_calls)
{
    make("f", "text");
    mkfifo("p", 0600);
    mkfifo("q", 0600);
    for (int round = 0; round < 12; round++) {
        int ready[2], call = is_static() ? 2 + round % 2 : round % 4;
        char byte;
        pthread_t thread;
        void *result;
        pipe(ready);
        child = fork();
        if (!child) {
            struct flock whole = { .l_type = F_WRLCK };
            int fd = open("f", O_RDWR);
            fcntl(fd, F_SETLK, &whole);
            flock(fd, LOCK_EX);
            write(ready[1], "x", 1);
            for (;;)
                pause();
        }
        read(ready[0], &byte, 1);
        locked = open("f", O_RDWR);
        fifo = open("p", O_RDWR);
        waiter = cleaned = 0;
        returned = -5;
        pthread_create(&thread, NULL, wait_in, &call);
        AWAIT(waiter && sleeps(waiter));
        pthread_cancel(thread);
        if (call == 3)
            usleep(20000);
        if (call == 3 && returned != -5)
            say("flock is a cancellation point");
        if (call == 3)
            kill(child, SIGKILL);
        pthread_join(thread, &result);
        if (round < 4 || result != PTHREAD_CANCELED || cleaned != 1 || returned != (call == 3 ? 0 : -5))
            say("call %d: cancelled %d, cleaned up %d, returned %d", call, result == PTHREAD_CANCELED,
                cleaned, returned);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(locked);
        close(fifo);
        close(ready[0]);
        close(ready[1]);
    }
    say_blocked("blocked at the end");
}

static void *sleep_until_written(void *end)
{
    char byte;
    read(*(int *)end, &byte, 1);
    return NULL;
}

/* A signal interrupts the wait for a child. */
static void interrupt(int flags)
{
    share();
    pid_t parent = getpid();
    handle(SIGUSR1, count_one, flags);
    pid_t child = fork();
    if (!child) {
        AWAIT(sleeps(parent));
        kill(parent, SIGUSR1);
        AWAIT(shared->handled);
        AWAIT(shared->ready || sleeps(parent));
        _exit(3);
    }
    int status = 0;
    if (TN("waitpid", waitpid(child, &status, 0) == child ? 0 : -1)) {
        shared->ready = 1;
        TN("again", waitpid(child, &status, 0) == child ? 0 : -1);
    }
    say("handled %d, status %x", shared->handled, status);
}

GROUP(wait, interrupted)
{
    make("f", "text");
    interrupt(0);
    interrupt(SA_RESTART);
    say("beside another thread");
    int ends[2];
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pipe(ends);
    pthread_t thread;
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    pthread_create(&thread, NULL, sleep_until_written, &ends[0]);
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
    interrupt(0);
    interrupt(SA_RESTART);
    write(ends[1], "x", 1);
    pthread_join(thread, NULL);
}

GROUP(wait, results)
{
    make("f", "text");
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (!child)
            _exit(7);
        siginfo_t info = { 0 };
        T(waitid(P_ALL, 0, i & 1 ? &info : NULL, WEXITED | WNOWAIT));
        say("code %d, status %d", info.si_code, info.si_status);
        T(waitid(P_PID, child, i & 2 ? &info : NULL, WEXITED));
        say("code %d, status %d", info.si_code, info.si_status);
        T(waitid(P_PID, child, &info, WEXITED));
        T(waitpid(child, NULL, 0));
    }
    /* With SIGSEGV blocked, as in posix_spawn(3), no handler can help a bad pointer. */
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child)
            _exit(7);
        T((i ? waitid(P_PID, child, NULL, WEXITED) : waitpid(child, NULL, 0)) == (i ? 0 : child));
    }
    pid_t child = fork();
    if (!child)
        for (;;)
            pause();
    T(waitpid(child, (void *)8, WNOHANG));
    sigprocmask(SIG_SETMASK, &before, NULL);
    siginfo_t info = { .si_pid = 1 };
    T(waitpid(child, NULL, WNOHANG));
    T(waitid(P_PID, child, &info, WEXITED | WNOHANG));
    T(info.si_pid);
    T(waitid(P_PID, child, (void *)8, WEXITED | WNOHANG));
    T(waitpid(child, (void *)8, WNOHANG));
    T(waitpid(child, NULL, 1 << 20));
    kill(child, SIGKILL);
    T(waitpid(child, (void *)8, 0));
    T(waitpid(-1, NULL, 0));
}

/* What waits for nothing tells how much of its time is left. */
GROUP(wait, time_left)
{
    int fd = make_open("f", "text", O_RDONLY);
    fd_set set;
    struct timeval time = {1, 0};
    long turns = 0;
    for (; (time.tv_sec || time.tv_usec > 990000) && turns < 10000000; turns++) {
        FD_ZERO(&set);
        FD_SET(fd, &set);
        if (select(fd + 1, &set, NULL, NULL, &time) != 1)
            break;
    }
    say("select: %s, %s", turns > 0 ? "some turns" : "none", time.tv_sec ? "no end" : "an end");
    struct timespec left = {1, 0};
    struct pollfd polled = {fd, POLLIN, 0};
    for (turns = 0; left.tv_sec && turns < 10000000; turns++)
        if (syscall(SYS_ppoll, &polled, 1, &left, NULL, 8) != 1)
            break;
    say("ppoll: %s", left.tv_sec ? "no end" : "an end");
    left = (struct timespec){1, 0};
    for (turns = 0; left.tv_sec && turns < 10000000; turns++) {
        FD_ZERO(&set);
        FD_SET(fd, &set);
        if (syscall(SYS_pselect6, fd + 1, &set, NULL, NULL, &left, NULL) != 1)
            break;
    }
    say("pselect: %s", left.tv_sec ? "no end" : "an end");
    static const struct timespec odd[] = {{0, 0}, {0, 1000000000}, {-1, 0}, {0, -1}, {1, 2000000}, {LONG_MAX, 5}};
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct timespec one = odd[i];
        T(syscall(SYS_ppoll, &polled, 1, &one, NULL, 8));
        for (int by = 0; by < 2; by++) {
            one = odd[i];
            FD_ZERO(&set);
            FD_SET(fd, &set);
            TN(by ? "pselect6" : "select", syscall(by ? SYS_pselect6 : SYS_select, fd + 1, &set, NULL, NULL, &one, NULL));
        }
    }
    T(syscall(SYS_ppoll, &polled, 1, 8, NULL, 8));
    FD_SET(fd, &set);
    T(syscall(SYS_select, fd + 1, &set, NULL, NULL, 8));
}

/* A question about a child waits for nothing, so no signal ends it. */
GROUP(wait, asked_under_a_timer)
{
    share();
    pid_t child = fork();
    if (!child)
        for (;;)
            pause();
    handle(SIGALRM, count_one, 0);
    every(80);
    int wrong = 0;
    for (int i = 0; i < 50000 || shared->handled < 4000; i++)
        if (waitpid(child, NULL, WNOHANG))
            wrong++;
    every(0);
    say("%d wrong", wrong);
    kill(child, SIGKILL);
    T(waitpid(child, NULL, 0) == child);
}
