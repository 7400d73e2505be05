// A program executes itself while its threads are inside calls, again and again; others go on beside it.
#include "storm.h"

// Where the figures of an exec chain are, over exec.
#define FIGURES_FD 200

static struct chain_state {
    count execs, beats, stop, wrong;
} *state;

static void *work(void *number)
{
    char name[64], other[80], bytes[16], back[16];
    snprintf(name, sizeof name, "exec.%d.%ld", getpid(), (long)number);
    snprintf(other, sizeof other, "%s.renamed", name);
    for (;;) {
        int file = open(name, O_RDWR | O_CREAT, 0600);
        snprintf(bytes, sizeof bytes, "%015u", below(1u << 30));
        if (file >= 0 && (pwrite(file, bytes, 16, 4090) != 16 || pread(file, back, 16, 4090) != 16 || memcmp(bytes, back, 16)))
            state->wrong++;
        close(file);
        rename(name, other);
        unlink(other);
        close(open(".", O_RDONLY | O_DIRECTORY));
    }
    return NULL;
}

// One image: threads set to work, and then the next image. A signal mask and descriptors go along.
static int image(char **arguments)
{
    long left = atol(arguments[0]), threads = atol(arguments[1]);
    state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, FIGURES_FD, 0);
    if (state == MAP_FAILED)
        return 9;
    state->execs++;
    if (left == 0)
        return 0;
    seed(left * 77 + getpid());
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)i))
            return 8;
    }
    nap(300 + below(4000));
    char next[32];
    snprintf(next, sizeof next, "%ld", left - 1);
    execl(self, "storm", "again", "image", next, arguments[1], NULL);
    return 7;
}

int again(char **arguments)
{
    return arguments[0] && !strcmp(arguments[0], "image") ? image(arguments + 1) : 2;
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

static void remove_what_execs_left(void)
{
    DIR *stream = opendir(".");
    for (struct dirent *entry; (entry = readdir(stream));)
        if (!strncmp(entry->d_name, "exec.", 5))
            unlink(entry->d_name);
    closedir(stream);
}

void execs(void)
{
    enum { CHAINS = 4 };
    long total = number("execs", 200);
    int memory = memfd_create("execs", 0);
    if (ftruncate(memory, 4096) || dup2(memory, FIGURES_FD) < 0)
        bad("no shared memory");
    state = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, FIGURES_FD, 0);
    close(memory);
    pid_t bystander = start(stand_by, 0), chains[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        chains[i] = start(chain, total / CHAINS - 1);
    long beats = 0;
    for (int i = 0; i < CHAINS; i++) {
        int status = 0, done;
        for (long before = -1; !(done = ends_within(chains[i], &status, PATIENCE)) && before != state->execs;)
            before = state->execs;
        if (!done) {
            figures->hung++;
            show(chains[i]);
            finish(chains[i]);
        } else if (status)
            bad("a chain of execs ended with status %x", status);
    }
    beats = state->beats;
    for (double end = now() + PATIENCE; state->beats == beats; nap(1000))
        if (now() > end) {
            figures->hung++;
            show(bystander);
            break;
        }
    state->stop = 1;
    if (!ended(bystander, NULL, "who makes files beside execs"))
        finish(bystander);
    figures->bad += state->wrong;
    if (!figures->hung)
        remove_what_execs_left();
    printf(" execs=%ld", (long)state->execs);
}
