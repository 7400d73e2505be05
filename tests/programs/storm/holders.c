// The holder of a file lock is killed: the lock must be gone, for good, when waitpid(2) has returned.
#include "storm.h"

static const char *const kinds[LOCK_KINDS] = {"flock", "fcntl", "OFD"};
static count *held, *killed;

int lock_file(int file, int kind, int wait)
{
    struct flock lock = {F_WRLCK, SEEK_SET, 0, 0, 0};
    switch (kind) {
    case 0:
        return flock(file, LOCK_EX | (wait ? 0 : LOCK_NB));
    case 1:
        return fcntl(file, wait ? F_SETLKW : F_SETLK, &lock);
    default:
        return fcntl(file, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
    }
}

void unlock_file(int file, int kind)
{
    struct flock lock = {F_UNLCK, SEEK_SET, 0, 0, 0};
    kind == 0 ? flock(file, LOCK_UN) : fcntl(file, kind == 1 ? F_SETLK : F_OFD_SETLK, &lock);
}

int lock_name(long which)
{
    char name[300];
    snprintf(name, sizeof name, "%s/held.%ld.%ld", dir, which % LOCK_FILES, which / LOCK_FILES % LOCK_KINDS);
    return make(name);
}

static void nothing(long unused)
{
}

// Makes others look for open files that nobody names: files removed while open, and descriptors shared by
// fork.
static void stir(void)
{
    char name[300];
    snprintf(name, sizeof name, "%s/stir.%d", dir, getpid());
    int file = make(name);
    unlink(name);
    pid_t child = below(2) ? start(nothing, 0) : 0;
    close(file);
    if (child > 0)
        waitpid(child, NULL, 0);
}

// Takes and releases the lock, through the file's own descriptor or a copy, until it is killed.
static void hold(long which)
{
    int kind = which / LOCK_FILES % LOCK_KINDS;
    for (;;) {
        int file = lock_name(which), copy = below(2) ? dup(file) : -1;
        if (lock_file(file, kind, 1) == 0)
            ++*held;
        switch (below(6)) {
        case 0:
            nap(100);
            break;
        case 1:
            stir();
        }
        if (below(2))
            unlock_file(file, kind);
        close(file);
        if (copy >= 0)
            close(copy);
    }
}

static void stir_on(long unused)
{
    for (;;) {
        struct statfs status;
        stir();
        statfs(dir, &status);
    }
}

static void take(long which)
{
    _exit(lock_file(lock_name(which), which / LOCK_FILES % LOCK_KINDS, 1) != 0);
}

static void check(long which)
{
    int file = lock_name(which), kind = which / LOCK_FILES % LOCK_KINDS;
    if (lock_file(file, kind, 0) == 0) {
        unlock_file(file, kind);
    } else {
        bad("%s on held.%ld.%d after its only holder was killed and waited for: %s", kinds[kind], which % LOCK_FILES, kind,
            strerror(errno));
        pid_t taker = start(take, which);
        if (!ended(taker, NULL, "who waits for the lock of a dead process"))
            finish(taker);
    }
    close(file);
}

// Kills holders and all their children, which die with them, and checks that the lock is free.
static void kill_and_check(long kills)
{
    enum { TOGETHER = 4 };
    pid_t holder[TOGETHER];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (long done = 0; done < kills && !figures->hung; done += TOGETHER) {
        long which = below(LOCK_FILES * LOCK_KINDS), before = *held;
        for (int i = 0; i < TOGETHER; i++)
            holder[i] = start(hold, which);
        while (*held == before)
            sched_yield();
        nap(below(300));
        for (int i = 0; i < TOGETHER; i++)
            kill(holder[i], SIGKILL);
        while (waitpid(-1, NULL, 0) > 0)
            ;
        check(which);
        *killed += TOGETHER;
    }
}

void holders(void)
{
    held = shared(sizeof *held);
    killed = shared(sizeof *killed);
    // Others look for the dead at the same time, and are not killed.
    pid_t stirrer = start(stir_on, 0), killer = start(kill_and_check, number("kills", 4000));
    int done;
    for (long before = -1; !(done = ends_within(killer, NULL, 2 * PATIENCE)) && before != *killed;)
        before = *killed;
    if (!done) {
        figures->hung++;
        fprintf(stderr, "hung: who kills holders\n");
        show(killer);
        finish(killer);
    }
    finish(stirrer);
    printf(" kills=%ld locks=%ld", (long)*killed, (long)*held);
}

// In a run of its own, after the others are over: no lock is left on any file, nor anything else.
void relock(void)
{
    for (long which = 0; which < LOCK_FILES * LOCK_KINDS; which++)
        check(which);
    clean_up(".", "/");
}
