/* Rows of docs/differences.md, each shown by a case. A case runs alone, in an empty directory, and prints
 * what tests/tests/differ.rs expects of the kernel's file system and of Lightpath. */
#ifndef DIFFER_H
#define DIFFER_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A case: `directory` is the working directory's path, `host` that of a directory of the host. The exit
 * status is 0 unless what the case needs fails. */
#define CASE(name)                                                            \
    static int name(const char *directory, const char *host);                 \
    __attribute__((constructor)) static void add_##name(void)                 \
    {                                                                         \
        add_case(#name, name);                                                \
    }                                                                         \
    static int name(const char *directory, const char *host)
void add_case(const char *name, int (*run)(const char *, const char *));

/* One result: 0, or the name of errno if it is negative. */
void say(const char *text, long result);
/* One line. */
__attribute__((format(printf, 1, 2))) void tell(const char *format, ...);

/* Creates an empty file. */
void make(const char *name, mode_t mode);
/* Runs the body in a child; the exit status of the case tells whether it has ended well. */
#define IN_CHILD                                                                                          \
    for (pid_t child_ = fork(); child_ >= 0; child_ ? (ended(child_), child_ = -1) : (_exit(0), 0))       \
        if (!child_)
void ended(pid_t child);
/* Whether two looks at a file show one modification time. */
int is_same_time(const struct stat *one, const struct stat *other);
/* Writes a text to a file that is there. */
int put(const char *name, const char *text);

#endif
