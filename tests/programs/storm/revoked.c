// A lock's owner is stopped inside, its waiter killed, and a third lane let in: nothing that the owner does
// may be undone.
#include "storm.h"

static struct {
    count ready, stop, made, done;
} *state;
static long megabytes;

static void write_long(long unused)
{
    size_t size = megabytes << 20;
    char *bytes = malloc(size);
    memset(bytes, 'A', size);
    int file = open("revoked", O_RDWR);
    // Alone with the file for a while, so that it may become the owner's.
    for (int i = 0; i < 2000; i++)
        pwrite(file, "A", 1, 0);
    state->ready = 1;
    for (size_t at = 0; at < size;) {
        ssize_t wrote = pwrite(file, bytes + at, size - at, at);
        if (wrote <= 0)
            _exit(1);
        at += wrote;
    }
    state->done = 1;
}

static void write_one(long at)
{
    int file = open("revoked", O_RDWR);
    pwrite(file, "A", 1, at);
}

// Writes to the file, and takes the available pages for another one.
static void write_here_and_there(long unused)
{
    static char bytes[1 << 20];
    write_one(123);
    memset(bytes, 'Z', sizeof bytes);
    int other = make("taker");
    for (int i = 0; i < megabytes / 2; i++)
        write(other, bytes, sizeof bytes);
}

static long wrong_bytes(const char *name, char right, off_t size)
{
    static char bytes[1 << 16];
    long wrong = 0;
    int file = open(name, O_RDONLY);
    for (off_t at = 0; at < size; at += sizeof bytes) {
        ssize_t got = pread(file, bytes, sizeof bytes, at);
        for (ssize_t i = 0; i < got; i++)
            wrong += bytes[i] != right;
        if (got < (ssize_t)sizeof bytes && at + got < size)
            wrong += sizeof bytes - (got > 0 ? got : 0);
    }
    close(file);
    return wrong;
}

// The waiter's part: 1 if it did wait, and was killed for it.
static int waits_and_dies(void (*work)(long), long argument)
{
    pid_t waiter = start(work, argument);
    if (ends_within(waiter, NULL, 0.03))
        return 0;
    finish(waiter);
    return 1;
}

static void check_files(long round)
{
    struct stat status;
    off_t size = (off_t)megabytes << 20;
    stat("revoked", &status);
    long wrong = wrong_bytes("revoked", 'A', size);
    if (status.st_size != size || wrong)
        lost("round %ld: of a write of %ld bytes that succeeded %ld are wrong, the size is %ld", round, (long)size,
             wrong, (long)status.st_size);
    if (status.st_blocks * 512 != size)
        bad("round %ld: %ld blocks for %ld bytes", round, (long)status.st_blocks, (long)size);
    stat("taker", &status);
    if ((wrong = wrong_bytes("taker", 'Z', status.st_size)))
        bad("round %ld: %ld bytes of another file", round, wrong);
}

void revoked_files(void)
{
    long rounds = number("rounds", 20), waited = 0;
    megabytes = number("megabytes", 64);
    state = shared(sizeof *state);
    for (long round = 0; round < rounds && figures->hung < 3; round++) {
        state->ready = state->done = 0;
        close(make("revoked"));
        pid_t owner = start(write_long, 0);
        while (!state->ready)
            nap(50);
        nap(below(20000));
        kill(owner, SIGSTOP);
        settle(owner);
        int inside = !state->done && waits_and_dies(write_one, 0);
        waited += inside;
        pid_t third = start(write_here_and_there, 0);
        int over = ends_within(third, NULL, 0.05 * inside);
        kill(owner, SIGCONT);
        if (!over && !ended(third, NULL, "who writes after a waiter was killed"))
            finish(third);
        if (ended(owner, NULL, "the owner that was stopped"))
            check_files(round);
        else
            finish(owner);
        unlink("revoked");
        unlink("taker");
    }
    printf(" rounds=%ld waited=%ld", rounds, waited);
}

static void create(const char *prefix, int from, int to)
{
    for (int i = from; i < to; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%d", prefix, i);
        close(make(name));
    }
}

static void create_for_ever(long unused)
{
    for (int i = 0; !state->stop && i < 20000; i++) {
        create("owner", i, i + 1);
        state->made = i + 1;
        state->ready = i > 50;
    }
}

static void create_one(long unused)
{
    create("waiter", 0, 1);
}

static void create_some(long some)
{
    create("third", 0, some);
}

static void check_names(const char *prefix, int count)
{
    long listed = 0;
    DIR *stream = opendir(".");
    for (struct dirent *entry; (entry = readdir(stream));)
        listed += !strncmp(entry->d_name, prefix, strlen(prefix));
    closedir(stream);
    long found = 0;
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%d", prefix, i);
        found += !access(name, F_OK);
    }
    if (listed != count || found != count)
        lost("of %d files that %s made readdir lists %ld and lookup finds %ld", count, prefix, listed, found);
}

void revoked_directories(void)
{
    enum { SOME = 40 };
    long rounds = number("rounds", 60), waited = 0;
    state = shared(sizeof *state);
    for (long round = 0; round < rounds && figures->hung < 3; round++) {
        mkdir("revoked", 0700);
        chdir("revoked");
        state->ready = state->stop = 0;
        pid_t owner = start(create_for_ever, 0);
        while (!state->ready)
            nap(50);
        nap(below(2000));
        kill(owner, SIGSTOP);
        settle(owner);
        int inside = waits_and_dies(create_one, 0);
        waited += inside;
        pid_t third = start(create_some, SOME);
        int over = ends_within(third, NULL, 0.05 * inside);
        state->stop = 1;
        kill(owner, SIGCONT);
        int all = over || ended(third, NULL, "who makes files after a waiter was killed");
        all &= ended(owner, NULL, "the owner that was stopped");
        if (!all) {
            finish(third);
            finish(owner);
        } else {
            check_names("third", SOME);
            check_names("owner", state->made);
        }
        clean_up(".", "/");
        chdir("..");
        if (rmdir("revoked"))
            bad("round %ld: rmdir of an emptied directory: %s", round, strerror(errno));
    }
    printf(" rounds=%ld waited=%ld", rounds, waited);
}

static void read_a_byte_at_a_time(long reads)
{
    char byte;
    struct stat status;
    int file = open("revoked", O_RDONLY);
    count_from_here();
    for (long i = 0; i < reads; i++) {
        pread(file, &byte, 1, 0);
        fstat(file, &status);
    }
    count_to_here();
}

// A writer killed inside its write is repaired once, not worked around by every later read.
void bereaved(void)
{
    long rounds = number("rounds", 5), reads = number("reads", 200), most = 0;
    megabytes = number("megabytes", 256);
    state = shared(sizeof *state);
    for (long round = 0; round < rounds && figures->hung < 3; round++) {
        state->ready = state->done = 0;
        close(make("revoked"));
        pid_t owner = start(write_long, 0);
        while (!state->ready)
            nap(50);
        nap(5000 + below(20000));
        finish(owner);
        long calls = traced(read_a_byte_at_a_time, reads).all;
        most = calls > most ? calls : most;
        // Two calls per turn are the program's own. The repair makes some more, once.
        if (calls > 2 * reads + 100)
            bad("round %ld: %ld reads and fstats after the writer's death make %ld system calls", round, 2 * reads,
                calls);
        unlink("revoked");
    }
    printf(" rounds=%ld most_calls=%ld", rounds, most);
}
