// Who holds a lock on a file is killed: the lock is gone when waitpid(2) has returned, for good.
#include "storm.h"

static const char *const kinds[LOCK_KINDS] = {"flock", "fcntl", "OFD"};
static count *held;

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

// What makes others look for open files that nobody names: files removed while open, and descriptors shared by fork.
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

// Takes and gives back the lock, through the file's own descriptor or a copy, until it is killed.
static void hold(long which)
{
    int kind = which / LOCK_FILES % LOCK_KINDS;
    for (;;) {
        if (below(4) == 0)
            stir();
        int file = lock_name(which), copy = below(2) ? dup(file) : -1;
        if (lock_file(file, kind, 1) == 0)
            ++*held;
        if (below(3) == 0)
            nap(100);
        if (below(2))
            unlock_file(file, kind);
        close(file);
        if (copy >= 0)
            close(copy);
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

void holders(void)
{
    long kills = number("kills", 4000), together = number("together", 4);
    pid_t holder[64];
    held = shared(sizeof *held);
    for (long done = 0; done < kills;) {
        long which = below(LOCK_FILES * LOCK_KINDS);
        for (int i = 0; i < together; i++)
            holder[i] = start(hold, which);
        long before = *held;
        while (*held == before)
            sched_yield();
        nap(below(300));
        for (int i = 0; i < together; i++, done++)
            kill(holder[i], SIGKILL);
        for (int i = 0; i < together; i++)
            finish(holder[i]);
        // Their children share the open files, and die with them.
        while (waitpid(-1, NULL, 0) > 0)
            ;
        check(which);
    }
    printf(" kills=%ld locks=%ld", kills, (long)*held);
}

// In a run of its own, after the others are over: no lock is left on any file, and nothing else.
void relock(void)
{
    for (long which = 0; which < LOCK_FILES * LOCK_KINDS; which++)
        check(which);
    clean_up(".", "/");
}
