/* What rt_sigaction(2) keeps and reports. */
#include "signals.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CLEARS 0x100000000ull /* CLONE_CLEAR_SIGHAND */

struct kept {
    void *handler;
    unsigned long flags;
    void *restorer;
    unsigned long mask;
};

static void first(int signal) { (void)signal; }

static void second(int signal) { (void)signal; }

static const char *name_of(void *handler)
{
    return handler == SIG_DFL ? "default" : handler == SIG_IGN ? "ignored" : handler == first ? "first" : handler == second ? "second" : "other";
}

/* Sets an action, unless it is null, and says what there was. The restorer is the C library's or nothing. */
static void say_action(int signal, const struct kept *new)
{
    struct kept old = { 0 };
    errno = 0;
    long done = syscall(SYS_rt_sigaction, signal, new, &old, 8);
    say("%d: %ld %d %s %lx %lx", signal, done, errno, name_of(old.handler), old.flags, old.mask);
}

static const int signals[] = { SIGUSR1, SIGSEGV, SIGBUS, 64 };

GROUP(signal, actions_as_the_kernel_keeps_them)
{
    /* Flags that the kernel does not know are not there afterwards, nor signals that cannot be blocked. */
    for (unsigned i = 0; i < COUNT(signals); i++) {
        struct sigaction library = { .sa_handler = first };
        struct kept action;
        sigaction(signals[i], &library, NULL);
        syscall(SYS_rt_sigaction, signals[i], NULL, &action, 8);
        action.flags |= SA_RESTART | SA_NODEFER | 0x400 | 0x800 | 0x10000;
        action.mask = ~0ul;
        say_action(signals[i], &action);
        say_action(signals[i], &action);
        action.handler = second;
        say_action(signals[i], &action);
        action.flags |= SA_RESETHAND;
        say_action(signals[i], &action);
        say_action(signals[i], NULL);
        raise(signals[i]);
        say_action(signals[i], &action);
        say_action(signals[i], &action);
        action.handler = SIG_IGN;
        say_action(signals[i], &action);
        action.handler = SIG_DFL;
        say_action(signals[i], &action);
        say_action(signals[i], NULL);
    }
    say_action(SIGKILL, NULL);
    say_action(0, NULL);
    say_action(65, NULL);
}

static void in_child(void)
{
    for (unsigned i = 0; i < COUNT(signals); i++)
        say_action(signals[i], NULL);
    say_action(SIGUSR2, NULL);
    struct sigaction library = { .sa_handler = first, .sa_flags = SA_RESTART };
    sigaction(SIGUSR2, &library, NULL);
    say_action(SIGUSR2, NULL);
    T(open((char *)8, O_RDONLY));
    T(write(3, (char *)8, 5));
    raise(SIGUSR2);
    raise(SIGUSR1);
    say("not reached");
    _exit(1);
}

/* The child handles nothing, ignores what its parent ignores, and may pass bad pointers. */
GROUP(signal, actions_of_a_child_without_handlers)
{
    struct sigaction handled = { .sa_handler = first, .sa_flags = SA_RESTART };
    for (unsigned i = 0; i < COUNT(signals); i++)
        sigaction(signals[i], &handled, NULL);
    signal(SIGUSR2, SIG_IGN);
    T(open("f", O_CREAT | O_RDWR, 0600));
    static const unsigned long long kinds[] = { CLEARS, CLEARS | CLONE_VM | CLONE_VFORK, 0, CLONE_VM | CLONE_VFORK };
    for (unsigned i = 0; i < COUNT(kinds); i++) {
        uint64_t arguments[11] = { [0] = kinds[i], [4] = SIGCHLD };
        /* In line, because a child that shares memory must not return from a function of its parent's. */
        long child = SYS_clone3;
        __asm__ volatile("syscall" : "+a"(child) : "D"(arguments), "S"(sizeof arguments) : "rcx", "r11", "memory");
        if (!child)
            in_child();
        say_wait(child);
        say_action(SIGUSR1, NULL);
        say_action(SIGSEGV, NULL);
    }
}

static volatile int round_of, done, handled;

static void counts(int signal)
{
    (void)signal;
    handled++;
}

/* Ignores the signal once in each round. */
static void *ignores(void *rounds)
{
    struct sigaction ignored = { .sa_handler = SIG_IGN };
    for (long round = 1; round <= (long)rounds; round++) {
        while (round_of < round)
            sched_yield();
        sigaction(SIGUSR1, &ignored, NULL);
        done = round;
    }
    return NULL;
}

/* Whoever was last, a handler that is set afterwards is called. */
GROUP(signal, actions_that_two_threads_change)
{
    enum { ROUNDS = 60000 };
    struct sigaction action = { .sa_handler = counts };
    pthread_t other;
    pthread_create(&other, NULL, ignores, (void *)(long)ROUNDS);
    int lost = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        sigaction(SIGUSR1, &action, NULL);
        round_of = round;
        for (volatile int n = round % 97; n > 0; n--)
            ;
        sigaction(SIGUSR1, &action, NULL);
        while (done < round)
            sched_yield();
        sigaction(SIGUSR1, &action, NULL);
        int before = handled;
        raise(SIGUSR1);
        lost += handled == before;
    }
    pthread_join(other, NULL);
    say("lost %d", lost);
}
