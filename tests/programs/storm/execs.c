// A program executes itself repeatedly while its threads are inside calls; others go on beside it.
#include "storm.h"

static struct chain_state {
    count execs, beats, stop, wrong;
} *state;

void *work_until_exec(void *wrong)
{
    char name[64], other[80], bytes[16], back[16];
    snprintf(name, sizeof name, "exec.%d.%ld", getpid(), (long)syscall(SYS_gettid));
    snprintf(other, sizeof other, "%s.renamed", name);
    seed(syscall(SYS_gettid));
    for (;;) {
        int file = open(name, O_RDWR | O_CREAT, 0600);
        snprintf(bytes, sizeof bytes, "%015u", below(1u << 30));
        if (file >= 0 && (pwrite(file, bytes, 16, 4090) != 16 || pread(file, back, 16, 4090) != 16 || memcmp(bytes, back, 16)))
            ++*(count *)wrong;
        close(file);
        rename(name, other);
        unlink(other);
        close(open(".", O_RDONLY | O_DIRECTORY));
    }
    return NULL;
}

// One image: starts threads, then the next image. A signal mask and descriptors are passed on.
int image(char **arguments)
{
    long left = atol(arguments[0]), threads = atol(arguments[1]);
    state = after_exec(sizeof *state);
    state->execs++;
    if (left == 0)
        return 0;
    seed(left * 77 + getpid());
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work_until_exec, &state->wrong))
            return 8;
    }
    nap(300 + below(4000));
    char next[32];
    snprintf(next, sizeof next, "%ld", left - 1);
    execl(self, "storm", "again", "image", next, arguments[1], NULL);
    return 7;
}

static void chain(long length)
{
    char left[16], threads[16];
    snprintf(left, sizeof left, "%ld", length);
    snprintf(threads, sizeof threads, "%ld", number("threads", 4));
    execl(self, "storm", "again", "image", left, threads, NULL);
    _exit(6);
}

static void stand_by(long unused)
{
    while (!state->stop) {
        close(make("bystander"));
        unlink("bystander");
        state->beats++;
        nap(1000);
    }
}

void execs(void)
{
    enum { CHAINS = 4 };
    long total = number("execs", 200);
    state = kept_over_exec(sizeof *state);
    pid_t bystander = start(stand_by, 0), chains[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        chains[i] = start(chain, total / CHAINS - 1);
    long beats = 0;
    for (int i = 0; i < CHAINS; i++) {
        int status = 0, done;
        // A chain is not late while any other makes progress; after the first hang the others' time is up.
        for (long before = -1;
             !(done = ends_within(chains[i], &status, figures->hung ? 1 : PATIENCE)) && before != state->execs;)
            before = state->execs;
        if (!done) {
            figures->hung++;
            fprintf(stderr, "hung: a chain of execs after %ld\n", (long)state->execs);
            show(chains[i]);
            finish(chains[i]);
        } else if (status)
            bad("a chain of execs ended with status %x", status);
    }
    beats = state->beats;
    for (double end = now() + PATIENCE / 4; state->beats == beats; nap(1000))
        if (now() > end) {
            figures->hung++;
            fprintf(stderr, "hung: a process that makes files beside execs\n");
            show(bystander);
            break;
        }
    state->stop = 1;
    if (!ends_within(bystander, NULL, 1))
        finish(bystander);
    figures->bad += state->wrong;
    if (!figures->hung)
        clean_up(".", "/");
    printf(" execs=%ld", (long)state->execs);
}
