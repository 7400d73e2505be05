// Storms: processes that kill, stop, signal and exec each other while they use a file system, and check what they see.
//
// `storm MODE DIR [NAME=NUMBER]...` prints one line of figures. Status 0: everything was as Linux promises. What it
// finds wrong goes to standard error and into the figures:
//   bad   something was not what a call had promised;
//   lost  something done was undone: an update, a signal, a name;
//   hung  somebody who waits for nobody stopped made no progress for PATIENCE seconds.
#ifndef STORM_H
#define STORM_H
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 20

typedef atomic_long count;

// State that every process of a storm shares.
struct figures {
    count bad, lost, hung, said;
};
extern struct figures *figures;

// The storm's directory: the mode's own, created and removed by main.
extern char dir[];
// The program's path, for processes that execute it again.
extern char *self;

// A parameter of the command line.
long number(const char *name, long otherwise);
// Memory that children share.
void *shared(size_t size);
// The same across exec, and the memory from before the exec. One at a time.
void *kept_over_exec(size_t size);
void *after_exec(size_t size);
// Random numbers of the calling process, from `seed`.
void seed(uint64_t value);
uint32_t below(uint32_t limit);
void nap(long microseconds);
double now(void);

// A child that runs `work(argument)`, dies with its parent and never returns.
pid_t start(void (*work)(long), long argument);
// Waits for a child for at most PATIENCE seconds. 0: it hangs, which is counted and reported; it stays alive.
int ended(pid_t child, int *status, const char *who);
// The same for `seconds`, without counting.
int ends_within(pid_t child, int *status, double seconds);
void finish(pid_t child);
// Waits until a thread sleeps or stops, as the kernel reports it; at most a second, since it may have ended.
void settle(pid_t thread);

// Counts an error, and reports the first few.
void bad(const char *format, ...) __attribute__((format(printf, 1, 2)));
void lost(const char *format, ...) __attribute__((format(printf, 1, 2)));
// What the kernel reports about a process that does not go on.
void show(pid_t pid);

// Counts the system calls of `work`, by ptrace(2): all, and those of futex(2).
struct calls {
    long all, futex;
};
struct calls traced(void (*work)(long), long argument);
// Brackets the counted part, in the work of `traced`.
void count_from_here(void);
void count_to_here(void);

// Free space and inodes of the file system.
struct room {
    long blocks, files;
};
struct room room(void);
// Reports an error unless free space and inodes are as before.
void same_room(struct room before);

// Truncates a file to this size, or ends the process.
int make(const char *name);
// Removes everything in a directory except names that begin with `kept`; reports what cannot be removed.
void clean_up(const char *directory, const char *kept);

// One mode per line: name, and its parameters' effect.
void forks(void), newborn(void), execs(void), revoked_files(void), revoked_directories(void), stopped(void);
void waiters(void), halves(void), halves_threads(void), halves_apart(void), bereaved(void), leaks(void);
void holders(void), relock(void), families(void), mixed(void), mounts(void);
// What the program does when it is executed again: `storm again image|worker ARGUMENTS`.
int image(char **arguments), worker_again(char **arguments);
// What threads of such a program do until it executes itself. `wrong` counts errors.
void *work_until_exec(void *wrong);

// The files on which locks are taken, by number, and the locks.
enum { LOCK_FILES = 4, LOCK_KINDS = 3 };
int lock_name(long which);
int lock_file(int file, int kind, int wait);
void unlock_file(int file, int kind);
#endif
