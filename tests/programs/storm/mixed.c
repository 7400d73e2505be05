// The supervisor of the mixed storm: kills, stops and signals workers, replaces them, and keeps the counts.
#include "mixed.h"

struct storm *storm;
int place, epoch;

static long kills, stops, signals;
static double continue_at[WORKERS];
static long turns_seen[WORKERS];
static double seen_at[WORKERS];

static void put_worker(int at)
{
    struct worker *worker = &storm->worker[at];
    worker->sent = worker->handled = 0;
    // The worker's own copy: the shared one is incremented before the worker is killed.
    epoch = worker->epoch;
    worker->pid = start(worker_run, at);
    storm->forks++;
    turns_seen[at] = -1;
    continue_at[at] = 0;
}

static void kill_worker(int at)
{
    struct worker *worker = &storm->worker[at];
    worker->epoch++;
    kill(worker->pid, SIGKILL);
    int status = 0;
    if (!ended(worker->pid, &status, "a killed worker"))
        storm->stop = 1;
    else if (WIFEXITED(status) || WTERMSIG(status) != SIGKILL)
        bad("worker %d ended with status %x", at, status);
    kills++;
    put_worker(at);
}

static void signal_worker(int at)
{
    struct worker *worker = &storm->worker[at];
    // Queued signals are counted: two ordinary ones merge into one.
    if (below(2) == 0) {
        kill(worker->pid, SIGUSR1);
    } else {
        worker->sent++;
        if (sigqueue(worker->pid, SIGRTMIN + 1, (union sigval){0}))
            worker->sent--;
    }
    signals++;
}

static void stop_worker(int at)
{
    if (continue_at[at])
        return;
    kill(storm->worker[at].pid, SIGSTOP);
    continue_at[at] = now() + below(30000) * 1e-6;
    stops++;
}

static void continue_workers(int all)
{
    for (int at = 0; at < storm->workers; at++)
        if (continue_at[at] && (all || now() > continue_at[at])) {
            kill(storm->worker[at].pid, SIGCONT);
            continue_at[at] = 0;
        }
}

// A worker without a turn for PATIENCE seconds hangs: it is reported and replaced.
static void look_for_hung(void)
{
    for (int at = 0; at < storm->workers; at++) {
        struct worker *worker = &storm->worker[at];
        if (worker->turns != turns_seen[at]) {
            turns_seen[at] = worker->turns;
            seen_at[at] = now();
        } else if (now() > seen_at[at] + PATIENCE) {
            figures->hung++;
            fprintf(stderr, "hung: worker %d\n", at);
            show(worker->pid);
            if (figures->hung > 3)
                storm->stop = 1;
            kill_worker(at);
        }
    }
}

// A worker that ended by itself found an error.
static void look_for_ended(void)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int at = 0; at < storm->workers; at++)
            if (storm->worker[at].pid == pid) {
                bad("worker %d ended with status %x", at, status);
                storm->worker[at].epoch++;
                put_worker(at);
            }
}

static void rage(double seconds, long most_kills)
{
    // Percentages of what happens to workers.
    int killing = number("killing", 12), stopping = number("stopping", 15), signalling = number("signalling", 1);
    double began = now();
    long second = 0;
    while (!storm->stop && now() < began + seconds && kills < most_kills) {
        int at = below(storm->workers), what = below(100);
        if (what < killing)
            kill_worker(at);
        else if (what < killing + stopping)
            stop_worker(at);
        else if (signalling)
            signal_worker(at);
        continue_workers(0);
        look_for_ended();
        if (now() >= began + second + 1) {
            look_for_hung();
            if (second < SECONDS)
                storm->each_second[second] = storm->checks;
            second++;
        }
        nap(500 + below(1500));
    }
}

static void let_end(void)
{
    storm->stop = 1;
    continue_workers(1);
    for (int at = 0; at < storm->workers; at++) {
        struct worker *worker = &storm->worker[at];
        int status;
        if (!ended(worker->pid, &status, "a worker that is to end"))
            finish(worker->pid);
        else if (status)
            bad("worker %d ended with status %x", at, status);
        else if (worker->handled != worker->sent)
            lost("worker %d: of %ld queued signals %ld were handled", at, (long)worker->sent, (long)worker->handled);
    }
    for (double end = now() + PATIENCE; waitpid(-1, NULL, WNOHANG) >= 0 || errno == EINTR; nap(1000))
        if (now() > end) {
            figures->hung++;
            fprintf(stderr, "hung: children of killed workers\n");
            return;
        }
}

// Checks a second in the first and the last tenth of the storm.
static void print_throughput(void)
{
    long seconds = 0;
    while (seconds < SECONDS && storm->each_second[seconds])
        seconds++;
    long tenth = seconds / 10 ? seconds / 10 : 1;
    if (seconds < 2)
        return;
    long first = storm->each_second[tenth - 1] / tenth;
    long last = (storm->each_second[seconds - 1] - storm->each_second[seconds - 1 - tenth]) / tenth;
    printf(" checks/s=%ld..%ld", first, last);
}

void mixed(void)
{
    storm = kept_over_exec(sizeof *storm);
    figures = &storm->figures;
    snprintf(storm->dir, sizeof storm->dir, "%s", dir);
    storm->workers = number("workers", 24);
    storm->executing = number("executing", 1);
    for (long lock = 0; lock < LOCK_FILES * LOCK_KINDS; lock++) {
        uint64_t zero = 0;
        int file = lock_name(lock);
        pwrite(file, &zero, sizeof zero, 0);
        close(file);
    }
    struct room before = room();
    mkdir("work", 0700);
    chdir("work");
    hold_signals_back();
    for (int at = 0; at < storm->workers; at++)
        put_worker(at);
    rage(number("seconds", 60), number("kills", 1L << 40));
    let_end();
    blocks_end();
    clean_up(".", "/");
    chdir("..");
    if (rmdir("work"))
        bad("rmdir of an emptied directory: %s", strerror(errno));
    same_room(before);
    printf(" workers=%ld seed=%ld forks=%ld kills=%ld stops=%ld execs=%ld signals=%ld checks=%ld torn=%ld",
           storm->workers, number("seed", 1), (long)storm->forks, kills, stops, (long)storm->execs, signals,
           (long)storm->checks, (long)storm->torn);
    print_throughput();
}
