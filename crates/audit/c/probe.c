/*
 * The audited program: makes one call over and over, between two breakpoints of its own.
 *
 *     probe [-t] DIR REPETITIONS CALL [CALL]
 *
 * It sets its files up, makes the call WARM_UP times, prints "ready PID" and waits until somebody
 * traces it; then come the breakpoints: one before each of the REPETITIONS calls and one after.
 * With a second CALL a second process does the same at the same time, in the same directory; the
 * two are made to commute: calls that only look share "shared", calls that change something have
 * files of their own in that directory. With -t each process has another thread, which sleeps: so
 * its descriptor table is shared.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FILE_SIZE = 1 << 20, WARM_UP = 200 };

#define NEED(condition)                                                                        \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "probe: line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

static char buffer[FILE_SIZE];
static char shared[PATH_MAX], missing[PATH_MAX], own[PATH_MAX], renamed[PATH_MAX], fresh[PATH_MAX];
static int shared_fd, own_fd, directory_fd;
static struct stat st;
static struct statx stx;
static int threads;

static int file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    NEED(fd >= 0);
    NEED(write(fd, buffer, sizeof buffer) == sizeof buffer);
    NEED(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static long do_lseek(void) { return lseek(shared_fd, 4096, SEEK_SET); }
static long do_lseek_end(void) { return lseek(shared_fd, 0, SEEK_END); }
static long do_fstat(void) { return fstat(shared_fd, &st); }
static long do_stat(void) { return stat(shared, &st); }
static long do_lstat(void) { return lstat(shared, &st); }
static long do_statx(void) { return statx(AT_FDCWD, shared, 0, STATX_BASIC_STATS, &stx); }
static long do_stat_missing(void) { return stat(missing, &st) == -1 ? 0 : -1; }
static long do_access(void) { return access(shared, R_OK); }
static long do_faccessat(void) { return faccessat(AT_FDCWD, shared, R_OK, 0); }
static long do_read_1(void) { return read(shared_fd, buffer, 1); }
static long do_pread_1(void) { return pread(shared_fd, buffer, 1, 8000); }
static long do_pread_4k(void) { return pread(shared_fd, buffer, 4096, 8192); }
static long do_write_256(void) { return write(own_fd, buffer, 256); }
static long do_pwrite_1(void) { return pwrite(own_fd, buffer, 1, 8000); }

static struct iovec two[2] = { { buffer, 16 }, { buffer + 64, 16 } };
static long do_readv(void) { return readv(shared_fd, two, 2); }
static long do_preadv(void) { return preadv(shared_fd, two, 2, 4096); }
static long do_writev(void) { return writev(own_fd, two, 2); }
static long do_pwritev(void) { return pwritev(own_fd, two, 2, 4096); }

static long do_open_close(void)
{
    int fd = open(shared, O_RDONLY);
    return fd < 0 ? -1 : close(fd);
}

static long do_create_unlink(void)
{
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL, 0644);
    return fd < 0 || close(fd) < 0 ? -1 : unlink(fresh);
}

static long do_unlink_open(void)
{
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL, 0644);
    return fd < 0 || unlink(fresh) < 0 ? -1 : close(fd);
}

static long do_rename(void)
{
    return rename(own, renamed) < 0 ? -1 : rename(renamed, own);
}

static long do_rename_over(void)
{
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL, 0644);
    return fd < 0 || close(fd) < 0 ? -1 : rename(fresh, renamed);
}

static long do_getdents(void)
{
    return lseek(directory_fd, 0, SEEK_SET) < 0 ? -1 : syscall(SYS_getdents64, directory_fd, buffer, 4096);
}

/* Calls on the host, which the kernel answers. */
static const char host[] = "/usr/bin/env", host_crooked[] = "/usr/lib/../bin/env", host_missing[] = "/usr/bin/no-such-file";
static int host_fd;
static long do_host_lseek(void) { return lseek(host_fd, 0, SEEK_SET); }
static long do_host_fstat(void) { return fstat(host_fd, &st); }
static long do_host_stat(void) { return stat(host, &st); }
static long do_host_lstat(void) { return lstat(host, &st); }
static long do_host_statx(void) { return statx(AT_FDCWD, host, 0, STATX_BASIC_STATS, &stx); }
static long do_host_stat_missing(void) { return stat(host_missing, &st) == -1 ? 0 : -1; }
static long do_host_access(void) { return access(host, R_OK); }
static long do_host_access_missing(void) { return access(host_missing, R_OK) == -1 ? 0 : -1; }
static long do_host_access_crooked(void) { return access(host_crooked, R_OK); }
static long do_host_readlink(void) { return readlink("/proc/self/exe", buffer, sizeof buffer); }
static long do_host_open_missing(void) { return open(host_missing, O_RDONLY) == -1 ? 0 : -1; }

static long do_host_open_close(void)
{
    int fd = open(host, O_RDONLY);
    return fd < 0 ? -1 : close(fd);
}

static void handle(int signal) { (void)signal; }

static long do_sigaction(void)
{
    struct sigaction action = { .sa_handler = handle };
    return sigaction(SIGUSR2, &action, NULL);
}

static const struct call {
    const char *name;
    long (*make)(void);
} calls[] = {
    { "lseek", do_lseek },         { "lseek_end", do_lseek_end },
    { "fstat", do_fstat },         { "stat", do_stat },
    { "lstat", do_lstat },         { "statx", do_statx },
    { "stat_missing", do_stat_missing },
    { "access", do_access },       { "faccessat", do_faccessat },
    { "read_1", do_read_1 },       { "pread_1", do_pread_1 },
    { "pread_4k", do_pread_4k },   { "readv", do_readv },
    { "preadv", do_preadv },       { "write_256", do_write_256 },
    { "pwrite_1", do_pwrite_1 },   { "writev", do_writev },
    { "pwritev", do_pwritev },     { "open_close", do_open_close },
    { "create_unlink", do_create_unlink },
    { "unlink_open", do_unlink_open },
    { "rename", do_rename },       { "rename_over", do_rename_over },
    { "getdents", do_getdents },
    { "host_lseek", do_host_lseek },
    { "host_fstat", do_host_fstat },
    { "host_stat", do_host_stat }, { "host_lstat", do_host_lstat },
    { "host_statx", do_host_statx },
    { "host_stat_missing", do_host_stat_missing },
    { "host_access", do_host_access },
    { "host_access_missing", do_host_access_missing },
    { "host_access_crooked", do_host_access_crooked },
    { "host_readlink", do_host_readlink },
    { "host_open_close", do_host_open_close },
    { "host_open_missing", do_host_open_missing },
    { "sigaction", do_sigaction },
};

static const struct call *find(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    fprintf(stderr, "probe: no call %s\n", name);
    exit(2);
}

/* The tracer attaches without a word; the kernel says when it has. */
static void wait_for_tracer(void)
{
    for (;;) {
        FILE *status = fopen("/proc/self/status", "r");
        NEED(status != NULL);
        char line[256];
        int tracer = 0;
        while (fgets(line, sizeof line, status))
            if (sscanf(line, "TracerPid: %d", &tracer) == 1)
                break;
        fclose(status);
        if (tracer)
            return;
        usleep(1000);
    }
}

static void *sleep_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void open_files(const char *dir, int who)
{
    snprintf(own, sizeof own, "%s/a/b/own%d", dir, who);
    snprintf(renamed, sizeof renamed, "%s/a/b/renamed%d", dir, who);
    snprintf(fresh, sizeof fresh, "%s/a/b/fresh%d", dir, who);
    own_fd = file(own);
    NEED((shared_fd = open(shared, O_RDONLY)) >= 0);
    NEED((directory_fd = open(dir, O_RDONLY | O_DIRECTORY)) >= 0);
    NEED((host_fd = open(host, O_RDONLY)) >= 0);
    pthread_t thread;
    if (threads)
        NEED(pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0);
}

static void perform(const struct call *call, int repetitions)
{
    for (int i = 0; i < WARM_UP; i++)
        NEED(call->make() >= 0);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    wait_for_tracer();
    for (int i = 0; i < repetitions; i++) {
        /* What shares the libc wrapper's slow start is kept out: one call untraced, then the traced one. */
        NEED(call->make() >= 0);
        __asm__ volatile("int3" ::: "memory");
        long result = call->make();
        __asm__ volatile("int3" ::: "memory");
        NEED(result >= 0);
    }
}

int main(int argc, char **argv)
{
    threads = argc > 1 && strcmp(argv[1], "-t") == 0;
    argc -= threads;
    argv += threads;
    if (argc != 4 && argc != 5)
        return 2;
    const char *dir = argv[1];
    int repetitions = atoi(argv[2]);
    const struct call *first = find(argv[3]), *second = argc == 5 ? find(argv[4]) : NULL;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/a", dir);
    NEED(mkdir(path, 0755) == 0);
    snprintf(path, sizeof path, "%s/a/b", dir);
    NEED(mkdir(path, 0755) == 0);
    snprintf(shared, sizeof shared, "%s/a/b/f", dir);
    snprintf(missing, sizeof missing, "%s/a/b/missing", dir);
    close(file(shared));
    if (second && fork() == 0) {
        open_files(dir, 1);
        perform(second, repetitions);
        _exit(0);
    }
    open_files(dir, 0);
    perform(first, repetitions);
    int status = 0;
    if (second)
        NEED(wait(&status) > 0);
    return status != 0;
}
