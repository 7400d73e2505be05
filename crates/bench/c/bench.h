/*
 * What every workload program shares: a clock, checked calls, child processes, and the
 * output that the runner reads. One line per figure, tab-separated:
 *
 *     METRIC \t X \t UNIT \t VALUE
 *
 * X is "-" or the number of processes or threads. The programs know nothing of Lightpath:
 * the same binary runs on a kernel file system and under `lightpath run`.
 */
#ifndef BENCH_H
#define BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* The program cannot go on: one line on stderr, exit 1. The runner reports it as a failed sample. */
static inline void die(const char *format, ...)
{
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ": %s\n", strerror(error));
    exit(1);
}

/* A call whose failure would make the figure meaningless. Costs one predictable branch. */
#define CHECK(condition)                                                   \
    do {                                                                   \
        if (__builtin_expect(!(condition), 0))                             \
            die("%s:%d: %s", __FILE__, __LINE__, #condition);              \
    } while (0)

static inline uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline double seconds_since(uint64_t start_ns)
{
    return (double)(now_ns() - start_ns) / 1e9;
}

static inline void emit(const char *metric, const char *unit, double value)
{
    printf("%s\t-\t%s\t%.9g\n", metric, unit, value);
    fflush(stdout);
}

static inline void emit_at(const char *metric, int x, const char *unit, double value)
{
    printf("%s\t%d\t%s\t%.9g\n", metric, x, unit, value);
    fflush(stdout);
}

static inline int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* How long one timed batch of calls lasts at least; set from the command line. */
__attribute__((unused)) static uint64_t batch_ns = 3000000;
enum { BATCHES = 7 };

static inline double least(const double *values, int count)
{
    double least = values[0];
    for (int i = 1; i < count; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

/*
 * The time of the body in nanoseconds: the count is doubled until a batch lasts batch_ns, then the
 * least of BATCHES batches is taken, the one that the machine interrupted least. (The runner takes the
 * median of such samples.) `turn` counts the batch's rounds.
 */
#define TIME_NS(result, ...)                                               \
    do {                                                                   \
        uint64_t rounds = 16, took;                                        \
        for (;;) {                                                         \
            uint64_t start = now_ns();                                     \
            for (uint64_t turn = 0; turn < rounds; turn++) { __VA_ARGS__; }\
            took = now_ns() - start;                                       \
            if (took >= batch_ns)                                          \
                break;                                                     \
            rounds *= took < batch_ns / 8 ? 8 : 2;                         \
        }                                                                  \
        double batch[BATCHES];                                             \
        for (int b = 0; b < BATCHES; b++) {                                \
            uint64_t start = now_ns();                                     \
            for (uint64_t turn = 0; turn < rounds; turn++) { __VA_ARGS__; }\
            batch[b] = (double)(now_ns() - start) / (double)rounds;        \
        }                                                                  \
        (result) = least(batch, BATCHES);                                 \
    } while (0)

#define EMIT_NS(metric, ...)                                               \
    do {                                                                   \
        double per_call;                                                   \
        TIME_NS(per_call, __VA_ARGS__);                                    \
        emit(metric, "ns", per_call);                                      \
    } while (0)

#define EMIT_US(metric, ...)                                               \
    do {                                                                   \
        double per_call;                                                   \
        TIME_NS(per_call, __VA_ARGS__);                                    \
        emit(metric, "us", per_call / 1000);                               \
    } while (0)

/* "DIR/NAME" in a fresh string; these programs are short-lived and do not free it. */
__attribute__((format(printf, 2, 3)))
static inline char *in_dir(const char *dir, const char *format, ...)
{
    char name[PATH_MAX], *path;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
    return path;
}

/* A file of SIZE bytes, written 4096 at a time, open for reading and writing. */
static inline int make_file(const char *path, uint64_t size)
{
    char block[4096];
    memset(block, 'x', sizeof block);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        die("%s", path);
    for (uint64_t done = 0; done < size; done += sizeof block) {
        size_t piece = size - done < sizeof block ? size - done : sizeof block;
        CHECK(write(fd, block, piece) == (ssize_t)piece);
    }
    return fd;
}

/* What one child cost: wall seconds, and the CPU seconds of it and of its own children. */
struct cost {
    double wall, user, system;
};

static inline double timeval_seconds(struct timeval tv)
{
    return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

/*
 * Runs ARGV (found on PATH) with standard input from INPUT, output to /dev/null, in directory CWD
 * (NULL: here), and gives its cost. A failing command ends the program.
 */
static inline struct cost run_in(const char *cwd, const char *input, char *const argv[])
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, input ? input : "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (cwd)
        posix_spawn_file_actions_addchdir_np(&actions, cwd);
    struct rusage usage;
    int status;
    pid_t child;
    uint64_t start = now_ns();
    errno = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    if (errno)
        die("%s", argv[0]);
    CHECK(wait4(child, &status, 0, &usage) == child);
    struct cost cost = { seconds_since(start), timeval_seconds(usage.ru_utime),
                         timeval_seconds(usage.ru_stime) };
    posix_spawn_file_actions_destroy(&actions);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "%s failed: wait status %#x\n", argv[0], status);
        exit(1);
    }
    return cost;
}

#define RUN(...) run_in(NULL, NULL, (char *const[]){ __VA_ARGS__, NULL })
#define RUN_IN(cwd, ...) run_in(cwd, NULL, (char *const[]){ __VA_ARGS__, NULL })

/* Waits for COUNT children and insists that each exits 0. */
static inline void reap(int count)
{
    for (int i = 0; i < count; i++) {
        int status;
        CHECK(wait(&status) > 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            fprintf(stderr, "a child failed: wait status %#x\n", status);
            exit(1);
        }
    }
}

static inline long number(const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < 0) {
        fprintf(stderr, "not a number: %s\n", text);
        exit(2);
    }
    return value;
}

#endif
