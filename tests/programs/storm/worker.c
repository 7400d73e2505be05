// A worker of the mixed storm: takes turns in its role until the storm ends, and handles signals between any
// two instructions.
#include "mixed.h"
#include <spawn.h>

extern char **environ;

enum role { ALL, BLOCKS_ONLY, NAMES_ONLY, LOCKS_ONLY, FORKING, EXECUTING, ROLES };

static void make_a_file(int signal)
{
    int error = errno;
    char name[32], byte = 'h', back = 0;
    snprintf(name, sizeof name, "handler.%d", place);
    int file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || pwrite(file, &byte, 1, 5000) != 1 || pread(file, &back, 1, 5000) != 1 || back != byte)
        bad("worker %d: a signal handler cannot use a file: %s", place, strerror(errno));
    close(file);
    unlink(name);
    if (signal != SIGUSR1)
        storm->worker[place].handled++;
    errno = error;
}

static void let_signals_come(void)
{
    struct sigaction action = {.sa_handler = make_a_file, .sa_flags = SA_RESTART};
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGRTMIN + 1);
    action.sa_mask = both;
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGRTMIN + 1, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &both, NULL);
}

void hold_signals_back(void)
{
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &both, NULL);
}

static void execute_again(void)
{
    char text[16], own_epoch[16];
    pthread_t thread;
    // A thread that exec ends inside a handler loses the signal, also on Linux.
    hold_signals_back();
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, work_until_exec, &storm->figures.bad);
    nap(below(3000));
    snprintf(text, sizeof text, "%d", place);
    snprintf(own_epoch, sizeof own_epoch, "%d", epoch);
    storm->execs++;
    execl(self, "storm", "again", "worker", text, own_epoch, NULL);
    bad("worker %d: execl: %s", place, strerror(errno));
    _exit(1);
}

static int fixed;

static void read_inherited(long unused)
{
    char bytes[6] = {0};
    if (pread(fixed, bytes, 5, 0) != 5 || strcmp(bytes, "hello"))
        bad("worker %d: a child reads \"%s\" from what it inherited: %s", place, bytes, strerror(errno));
}

void forks_turn(void)
{
    char name[32];
    int status;
    snprintf(name, sizeof name, "inherited.%d", place);
    fixed = make(name);
    pwrite(fixed, "hello", 5, 0);
    unlink(name);
    pid_t child = start(read_inherited, 0);
    storm->forks++;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child > 0 && status)
        bad("worker %d: a child ended with status %x", place, status);
    char *arguments[] = {"true", NULL};
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ))
        bad("worker %d: posix_spawn: %s", place, strerror(errno));
    else
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    if (status)
        bad("worker %d: a spawned program ended with status %x", place, status);
    close(fixed);
    storm->checks++;
}

// The place's own file, which grows, shrinks and is mapped: beyond its end it must be zero.
void own_file_turn(void)
{
    static char bytes[20000], back[20000], zeros[20000];
    char name[32];
    snprintf(name, sizeof name, "own.%d", place);
    int file = make(name);
    ftruncate(file, 0);
    uint32_t size = 1 + below(sizeof bytes - 1), cut = below(size), fill = 1 + below(255);
    memset(bytes, fill, size);
    char *mapped = MAP_FAILED;
    if (pwrite(file, bytes, size, 0) != (ssize_t)size || ftruncate(file, cut) || ftruncate(file, sizeof back))
        bad("worker %d: its own file cannot be written: %s", place, strerror(errno));
    else if (pread(file, back, sizeof back, 0) != sizeof back || memcmp(back, bytes, cut) ||
             memcmp(back + cut, zeros, sizeof back - cut))
        bad("worker %d: its own file is not what it wrote", place);
    else if ((mapped = mmap(NULL, sizeof back, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) != MAP_FAILED) {
        mapped[cut] = fill;
        char byte = 0;
        if (pread(file, &byte, 1, cut) != 1 || byte != (char)fill)
            bad("worker %d: what was stored through a mapping is not read", place);
        munmap(mapped, sizeof back);
    }
    close(file);
    unlink(name);
    storm->checks++;
}

static void turn(enum role role)
{
    enum role now = role == ALL ? 1 + below(ROLES - 2) : role;
    switch (now) {
    case BLOCKS_ONLY:
        blocks_turn();
        own_file_turn();
        break;
    case NAMES_ONLY:
        names_turn();
        break;
    case LOCKS_ONLY:
        locks_turn();
        break;
    case FORKING:
        forks_turn();
        break;
    default:
        blocks_turn();
        names_turn();
        locks_turn();
    }
}

void worker_run(long at)
{
    place = at;
    let_signals_come();
    blocks_begin();
    names_begin();
    enum role role = place % ROLES;
    if (role == EXECUTING && !storm->executing)
        role = ALL;
    for (long turns = 0; !storm->stop; turns++) {
        turn(role);
        storm->worker[place].turns++;
        if (role == EXECUTING && turns == 5)
            execute_again();
    }
    names_end();
    // Signals still queued are handled before the end.
    hold_signals_back();
    let_signals_come();
}

int worker_again(char **arguments)
{
    storm = after_exec(sizeof *storm);
    figures = &storm->figures;
    strcpy(dir, storm->dir);
    seed(getpid());
    epoch = atoi(arguments[1]);
    worker_run(atoi(arguments[0]));
    return 0;
}
