/* What the files of this folder share: see main.c. */
#ifndef ODD_H
#define ODD_H
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PICK(...) ((const long[]){ __VA_ARGS__ })[roll(sizeof((long[]){ __VA_ARGS__ }) / sizeof(long))]

/* The directory in which a sequence works, and the number of the call that is being made. */
extern char base[4096];
extern unsigned step;
/* Set in the second process of a sequence that has two. */
extern int is_peer;
/* Set in a sequence that works in the host directory in which a mount appears, as `m`. */
extern int is_beside;

/* draw.c: arguments, chosen by the state that the seed and the step's number give. */
void begin_step(uint64_t seed, unsigned number);
unsigned roll(unsigned n);
/* A path, and how it is written in C; two can be held at a time. */
struct path {
    const char *at;
    char text[200];
};
struct path path(unsigned which);
/* Whether no path through a symbolic link to it leads out of the sequence's directory, above which only the
 * kernel's file system is read-only. */
int may_be_target(const struct path *p);
/* Whether it names the link of a descriptor in /proc itself. */
int is_link_of_descriptor(const struct path *p);
long amount(void);
long small(void);
long where(void);
/* A buffer, or a bad address. */
void *memory(char *text);
extern char buffer[70000];
unsigned sum(long n);
void fill(void);

/* Descriptors by place: what failed leaves -1, which later calls use too. */
extern int f[8];
unsigned slot(void);
void put(unsigned at, long fd);
/* A directory's descriptor, mostly the working directory. */
int dir_fd(char *text);

/* say.c: a call in C and its result. */
__attribute__((format(printf, 2, 3))) long say(long result, const char *format, ...);
#define DO(call, ...)                      \
    ({                                     \
        errno = 0;                         \
        say((long)(call), __VA_ARGS__);    \
    })
void say_stat(const struct stat *st);
unsigned long links_of(unsigned mode, unsigned long links);

/* Runs `work` in a child; its status. */
int in_child(void (*work)(const void *), const void *of);

/* fence.c */
int fence(const char *above);
int become(unsigned who);

/* peer.c: the steps of the second process are made there, one at a time, while the first waits. */
int start_peer(void (*make)(unsigned number));
void let_peer(unsigned number);
void end_peer(void);

/* Kinds of calls, each in the file of its name. */
void opens(void);
void names(void);
void attributes(void);
void xattrs(void);
void data(void);
void transfers(void);
void maps(void);
void locks(void);
void descriptors(void);
void programs(void);
void older(void);
void lists(void);

int is_special(int dir, const char *name);
#endif
