// A process is stopped (^Z) anywhere in calls that change things. Other processes, which use other objects,
// must go on meanwhile.
#include "storm.h"

static count *turns, *go;

static void create_and_unlink(long which)
{
    char name[32];
    for (long i = 0;; i++, ++*turns) {
        snprintf(name, sizeof name, "s%ld.%ld", which, i);
        close(make(name));
        unlink(name);
    }
}

static void move_directories(long which)
{
    mkdir("left", 0700), mkdir("right", 0700), mkdir("left/moving", 0700);
    for (;; ++*turns) {
        rename("left/moving", "right/moving");
        rename("right/moving", "left/moving");
    }
}

static void grow_and_shrink(long which)
{
    static char bytes[1 << 16];
    int file = make("grown");
    for (;; ++*turns) {
        for (int i = 0; i < 40; i++)
            pwrite(file, bytes, sizeof bytes, (long)i << 16);
        ftruncate(file, 0);
    }
}

static void lock_and_unlock(long which)
{
    int file = make("locked");
    for (;; ++*turns) {
        struct flock lock = {F_WRLCK, SEEK_SET, below(100), 1 + below(100), 0};
        fcntl(file, F_SETLKW, &lock);
        lock.l_type = F_UNLCK;
        fcntl(file, F_SETLK, &lock);
    }
}

static void nothing(long unused)
{
}

static void fork_and_wait(long which)
{
    for (;; ++*turns)
        ends_within(start(nothing, 0), NULL, PATIENCE);
}

static void make_long_names(long which)
{
    char name[200];
    memset(name, 'n', sizeof name);
    for (long i = 0;; i++, ++*turns) {
        snprintf(name + 150, 40, "%ld.%ld", which, i);
        symlink("nowhere", name);
        unlink(name);
    }
}

static void (*const changes[])(long) = {create_and_unlink, move_directories, grow_and_shrink,
                                        lock_and_unlock,   fork_and_wait,    make_long_names};
enum { CHANGES = sizeof changes / sizeof *changes };

// The others are created before the process is stopped: a fork that hangs must not be the test's own.
static void await_go(void)
{
    while (!*go)
        nap(100);
}

static void execute(long unused)
{
    await_go();
    execl("/bin/true", "true", NULL);
    _exit(1);
}

static void fork_elsewhere(long unused)
{
    await_go();
    for (int i = 0; i < 20; i++)
        waitpid(start(nothing, 0), NULL, 0);
}

static void make_files_elsewhere(long unused)
{
    char name[32];
    await_go();
    if (chdir("elsewhere"))
        _exit(1);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "e%d", i);
        int file = make(name);
        write(file, name, sizeof name);
        close(file);
        unlink(name);
    }
}

static void move_elsewhere(long unused)
{
    await_go();
    if (chdir("elsewhere") || mkdir("a", 0700) || mkdir("b", 0700) || mkdir("a/c", 0700) || rename("a/c", "b/c") ||
        rmdir("b/c") || rmdir("b") || rmdir("a"))
        _exit(1);
}

static void lock_elsewhere(long unused)
{
    await_go();
    int file = open("elsewhere/lock", O_RDWR | O_CREAT, 0600);
    struct flock lock = {F_WRLCK, SEEK_SET, 0, 0, 0};
    if (fcntl(file, F_SETLKW, &lock))
        _exit(1);
}

static void (*const others[])(long) = {execute, fork_elsewhere, make_files_elsewhere, move_elsewhere, lock_elsewhere};
static const char *const names[] = {"an exec", "forks", "files made and removed elsewhere",
                                    "a directory moved elsewhere", "a lock taken elsewhere"};
enum { OTHERS = sizeof others / sizeof *others };

static void hold_a_file(long unused)
{
    make("open");
    for (;;)
        pause();
}

void stopped(void)
{
    enum { COMPANY = 10 };
    long tries = number("tries", 60);
    pid_t company[COMPANY], child[OTHERS];
    turns = shared(sizeof *turns);
    go = shared(sizeof *go);
    mkdir("elsewhere", 0700);
    for (int i = 0; i < COMPANY; i++)
        company[i] = start(hold_a_file, i);
    for (long try = 0; try < tries && figures->hung < 10; try++) {
        *turns = *go = 0;
        // Every second one is the most common: create a file and remove it.
        int change = try % 2 ? try / 2 % CHANGES : 0;
        pid_t victim = start(changes[change], try);
        while (*turns < 3)
            nap(50);
        for (int i = 0; i < OTHERS; i++)
            child[i] = start(others[i], 0);
        nap(below(5000));
        kill(victim, SIGSTOP);
        settle(victim);
        *go = 1;
        int hung = 0, status;
        for (int i = 0; i < OTHERS; i++) {
            // The first that hangs uses up the patience; the others had as long.
            int done = ends_within(child[i], &status, hung ? 0.1 : PATIENCE / 4);
            hung += !done;
            if (done && status)
                bad("beside a stopped process (change %d) %s failed", change, names[i]);
            else if (!done) {
                figures->hung++;
                fprintf(stderr, "hung: beside a stopped process (change %d): %s\n", change, names[i]);
                show(child[i]);
            }
            if (done)
                child[i] = 0;
        }
        kill(victim, SIGCONT);
        for (int i = 0; i < OTHERS; i++)
            if (child[i] && !ended(child[i], NULL, "who hung beside a stopped process that goes on"))
                finish(child[i]);
        finish(victim);
    }
    for (int i = 0; i < COMPANY; i++)
        finish(company[i]);
    clean_up(".", "/");
    printf(" tries=%ld", tries);
}
