// Who holds a lock on a file is killed: the lock is gone when waitpid(2) has returned, for good.
#include "storm.h"

enum { FILES = 4, KINDS = 3 };

static const char *const kinds[KINDS] = {"flock", "fcntl", "OFD"};
static count *held;

static int lock_file(int file, int kind, int wait)
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

static void unlock_file(int file, int kind)
{
    struct flock lock = {F_UNLCK, SEEK_SET, 0, 0, 0};
    kind == 0 ? flock(file, LOCK_UN) : fcntl(file, kind == 1 ? F_SETLK : F_OFD_SETLK, &lock);
}

static int lock_name(long which)
{
    char name[32];
    snprintf(name, sizeof name, "held.%ld.%ld", which % FILES, which / FILES % KINDS);
    return make(name);
}

// Takes and gives back the lock, through the file's own descriptor or a copy, until it is killed.
static void hold(long which)
{
    int kind = which / FILES % KINDS;
    for (;;) {
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
    _exit(lock_file(lock_name(which), which / FILES % KINDS, 1) != 0);
}

static void check(long which)
{
    int file = lock_name(which), kind = which / FILES % KINDS;
    if (lock_file(file, kind, 0) == 0) {
        unlock_file(file, kind);
    } else {
        bad("%s on held.%ld.%d after its only holder was killed and waited for: %s", kinds[kind], which % FILES, kind,
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
        long which = below(FILES * KINDS);
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
        check(which);
    }
    printf(" kills=%ld locks=%ld", kills, (long)*held);
}

// In a run of its own, after the others are over: no lock is left on any file, and nothing else.
void relock(void)
{
    for (long which = 0; which < FILES * KINDS; which++)
        check(which);
    DIR *stream = opendir(".");
    for (struct dirent *entry; (entry = readdir(stream));)
        if (entry->d_name[0] != '.' && unlink(entry->d_name))
            bad("%s was left: %s", entry->d_name, strerror(errno));
    closedir(stream);
}
