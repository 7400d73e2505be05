// Processes that come and go: a live process keeps what it has, however many others are found dead meanwhile.
#include "storm.h"

static struct {
    count forks, stop;
} *state;
static int inherited;

static void ask_for_room(long unused)
{
    struct statfs status;
    while (!state->stop)
        statfs(dir, &status);
}

static void child(long reads)
{
    char bytes[8];
    for (int i = 0; i < reads; i++, nap(20))
        if (pread(inherited, bytes, 5, 0) != 5) {
            bad("an inherited descriptor: %s", strerror(errno));
            _exit(1);
        }
}

// A fork that the gate could not complete ends the child before it runs; a child that lost its slot dies of a
// signal.
static void fork_on(long forks)
{
    for (long i = 0; i < forks && !state->stop; i++) {
        int status;
        pid_t pid = start(child, 3);
        if (!ended(pid, &status, "a child that reads"))
            finish(pid);
        else if (pid > 0 && status && !(WIFEXITED(status) && WEXITSTATUS(status) == 1))
            bad("a child ended with status %x", status);
        state->forks++;
    }
}

static void prepare(void)
{
    state = shared(sizeof *state);
    inherited = make("inherited");
    if (write(inherited, "hello", 5) != 5)
        bad("write: %s", strerror(errno));
}

static void cleanup(void)
{
    close(inherited);
    unlink("inherited");
}

// No process is killed: forks and exits beside others that query free space, which makes them look for the
// dead.
void forks(void)
{
    enum { PARENTS = 4, MOST = 16 };
    long total = number("forks", 3000), readers = number("readers", 2);
    pid_t reader[MOST], parent[PARENTS];
    prepare();
    for (int i = 0; i < readers && i < MOST; i++)
        reader[i] = start(ask_for_room, i);
    for (int i = 0; i < PARENTS; i++)
        parent[i] = start(fork_on, total / PARENTS);
    for (int i = 0; i < PARENTS; i++) {
        // A parent that makes progress is not late, however long it takes.
        for (long before = -1; !ends_within(parent[i], NULL, PATIENCE + 5);) {
            if (before == state->forks) {
                figures->hung++;
                show(parent[i]);
                finish(parent[i]);
                break;
            }
            before = state->forks;
        }
    }
    state->stop = 1;
    for (int i = 0; i < readers && i < MOST; i++)
        if (!ended(reader[i], NULL, "a loop of statfs"))
            finish(reader[i]);
    cleanup();
    printf(" forks=%ld", (long)state->forks);
}

static void sleep_on(long unused)
{
    for (;;)
        pause();
}

// Children killed before their first instruction take no slot from later ones.
void newborn(void)
{
    long kills = number("kills", 4500);
    prepare();
    for (long i = 0; i < kills; i++) {
        pid_t pid = start(sleep_on, 0);
        if (pid > 0)
            finish(pid);
        else if (i > 0 && errno == EAGAIN)
            break;
    }
    for (int i = 0; i < 20; i++)
        fork_on(1);
    cleanup();
    printf(" kills=%ld", kills);
}

static void fork_for_ever(long unused)
{
    fork_on(1L << 40);
}

static void stop_all(pid_t *family, int families, int signal)
{
    for (int i = 0; i < families; i++, nap(700))
        kill(-family[i], signal);
}

// Families stopped (^Z) anywhere in their forks, for `seconds`, while others look for the dead.
void families(void)
{
    enum { FAMILIES = 40 };
    long seconds = number("seconds", 2);
    pid_t family[FAMILIES];
    prepare();
    for (int i = 0; i < FAMILIES; i++) {
        family[i] = start(fork_for_ever, i);
        setpgid(family[i], family[i]);
    }
    while (state->forks < FAMILIES && !figures->bad)
        nap(1000);
    stop_all(family, FAMILIES, SIGSTOP);
    for (double end = now() + seconds; now() < end; nap(100000)) {
        struct statfs status;
        statfs(dir, &status);
    }
    long before = state->forks;
    stop_all(family, FAMILIES, SIGCONT);
    for (double end = now() + PATIENCE; state->forks < before + 10 * FAMILIES;  nap(1000))
        if (now() > end) {
            figures->hung++;
            show(family[0]);
            break;
        }
    state->stop = 1;
    for (int i = 0; i < FAMILIES; i++)
        if (!ended(family[i], NULL, "a family that was stopped"))
            finish(family[i]);
    cleanup();
    printf(" families=%d forks=%ld", FAMILIES, (long)state->forks);
}
