/* Conformance of system calls: groups of calls whose results are printed, one line each, to be compared
 * between file systems. The program has no expectations of its own; the kernel's tmpfs defines what is right.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A group of calls, run alone in an empty current directory. */
#define GROUP(family, name)                                                            \
    static void family##_##name(void);                                                 \
    __attribute__((constructor)) static void add_##family##_##name(void)               \
    {                                                                                  \
        add_group(#family "." #name, family##_##name);                                 \
    }                                                                                  \
    static void family##_##name(void)
void add_group(const char *name, void (*run)(void));

/* One call: prints its text, its result, and its errno if it is -1. Returns the result. */
#define T(call) say_result(#call, ({ errno = 0; (long)(call); }))
/* The same with a given text, for calls in loops. */
#define TN(text, call) say_result(text, ({ errno = 0; (long)(call); }))
/* The same for calls that return a pointer: prints only whether it is valid. */
#define TP(call) say_pointer(#call, ({ errno = 0; (void *)(call); }))
long say_result(const char *text, long result);
void *say_pointer(const char *text, void *result);

/* One line, written at once. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
/* Bytes, escaped, with runs shortened. */
void say_bytes(const char *text, const void *bytes, long length);

/* Attributes of a path (not followed) or a descriptor. */
void attributes(const char *path);
void attributes_fd(int fd);
/* The contents of a file. */
void contents(const char *path);

/* Creates a file with these contents, or a directory, without printing a line. */
void make(const char *path, const char *text);
void make_dir(const char *path);
/* An open file with these contents, position 0. */
int make_open(const char *path, const char *text, int flags);
/* openat2(2), asked again where it answers EAGAIN because a mount or a name has changed anywhere on the machine
   during a walk with `..` (openat2(2), RESOLVE_BENEATH and RESOLVE_IN_ROOT). */
long open_how(int dir, const char *path, struct open_how how);

/* Runs the body in a forked child and prints how it ended. */
#define CHILD for (pid_t child_ = fork(); child_ >= 0; child_ ? (say_wait(child_), child_ = -1) : (_exit(0), 0)) if (!child_)
void say_wait(pid_t child);
/* Drops privileges (if root) for the rest of this process. */
void become_nobody(void);

/* Capabilities, as a mask of those below 32; the others are given up. */
int set_capabilities(uint32_t effective, uint32_t permitted);
uint32_t permitted_capabilities(void);

/* Waits until the clock for file times has advanced. */
void nap(void);

/* The state of a process or a thread as in proc_pid_stat(5), and whether it sleeps. */
char task_state(pid_t thread);
int sleeps(pid_t thread);

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
