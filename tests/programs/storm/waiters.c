// A waiter for a lock is killed, exits or calls exec: the lock must be as cheap as before once it is gone.
#include "storm.h"

static struct {
    count writing, stop;
} *state;

static void write_on(long megabytes)
{
    size_t size = megabytes << 20;
    char *bytes = malloc(size);
    memset(bytes, 'A', size);
    int file = make("awaited");
    while (!state->stop) {
        state->writing = 1;
        pwrite(file, bytes, size, 0);
    }
}

static void *truncate_once(void *unused)
{
    truncate("awaited", 7);
    return NULL;
}

static void wait_for_it(long unused)
{
    truncate_once(NULL);
    for (;;)
        pause();
}

// A thread waits; the process exits, or executes another program.
static void leave_a_waiter(long executes)
{
    pthread_t thread;
    pthread_create(&thread, NULL, truncate_once, NULL);
    nap(20000);
    if (executes)
        execl("/bin/true", "true", NULL);
    _exit(0);
}

static void truncate_often(long times)
{
    int file = make("awaited");
    ftruncate(file, 50);
    count_from_here();
    for (long i = 0; i < times; i++)
        ftruncate(file, 100 + i % 2);
    count_to_here();
}

void waiters(void)
{
    enum { TIMES = 1000, MOST = 64 };
    long rounds = number("rounds", 6), waiters = number("waiters", 4);
    state = shared(sizeof *state);
    for (long round = 0; round < rounds; round++) {
        pid_t waiter[MOST];
        state->writing = state->stop = 0;
        pid_t writer = start(write_on, 128);
        while (!state->writing)
            nap(50);
        nap(2000);
        for (int i = 0; i < waiters; i++)
            waiter[i] = start(round % 3 ? leave_a_waiter : wait_for_it, round % 3 == 2);
        for (int i = 0; i < waiters; i++) {
            if (round % 3 == 0) {
                settle(waiter[i]);
                finish(waiter[i]);
            } else if (!ended(waiter[i], NULL, "who leaves a thread behind that waits")) {
                finish(waiter[i]);
            }
        }
        state->stop = 1;
        if (!ended(writer, NULL, "the writer"))
            finish(writer);
        struct calls calls = traced(truncate_often, TIMES);
        // The last of the woken waiters may leave one futex call.
        if (calls.futex > 1)
            bad("round %ld: %d calls of ftruncate make %ld futex calls once %ld waiters are gone", round, TIMES,
                calls.futex, waiters);
        // A new file for each round, so that what the last round left is not hidden.
        unlink("awaited");
    }
    printf(" rounds=%ld waiters=%ld", rounds, rounds * waiters);
}
