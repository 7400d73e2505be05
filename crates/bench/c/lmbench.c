/*
 * lmbench's table of processor and process figures, microseconds: null call, null I/O, stat, fstat,
 * open/close, select on 100 TCP descriptors, signal install and handle, fork, exec, sh.
 *
 *     lmbench DIR BATCH_MS PROCESSES     PROCESSES: in each of five groups, the best of which counts
 */
#include "bench.h"
#include <netinet/in.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static void on_signal(int signal)
{
    (void)signal;
}

static void null_figures(void)
{
    char byte = 0;
    EMIT_US("null_call", CHECK(syscall(SYS_getppid) >= 0));
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    CHECK(zero >= 0 && null >= 0);
    double pair;
    TIME_NS(pair, {
        CHECK(read(zero, &byte, 1) == 1);
        CHECK(write(null, &byte, 1) == 1);
    });
    emit("null_io", "us", pair / 2000);
    close(zero);
    close(null);
}

static void file_figures(const char *dir)
{
    char *path = in_dir(dir, "lmbenchfile");
    struct stat st;
    int file = make_file(path, 4096);
    EMIT_US("stat", CHECK(stat(path, &st) == 0));
    EMIT_US("fstat", CHECK(fstat(file, &st) == 0));
    EMIT_US("open_close", {
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        close(fd);
    });
    close(file);
    CHECK(unlink(path) == 0);
}

/* lmbench's lat_select: connected sockets, none of them ready to read, a zero timeout. */
static void select_figure(void)
{
    enum { SOCKETS = 100 };
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(client >= 0 && connect(client, (struct sockaddr *)&address, length) == 0);
    fd_set wanted;
    FD_ZERO(&wanted);
    int top = client, copies[SOCKETS];
    for (int i = 0; i < SOCKETS; i++) {
        copies[i] = dup(client);
        CHECK(copies[i] >= 0);
        FD_SET(copies[i], &wanted);
        top = copies[i] > top ? copies[i] : top;
    }
    EMIT_US("select_tcp", {
        fd_set ready = wanted;
        struct timeval none = { 0, 0 };
        CHECK(select(top + 1, &ready, NULL, NULL, &none) == 0);
    });
    for (int i = 0; i < SOCKETS; i++)
        close(copies[i]);
    close(client);
    close(listener);
}

static void signal_figures(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    EMIT_US("signal_install", CHECK(sigaction(SIGUSR1, &action, NULL) == 0));
    EMIT_US("signal_handle", CHECK(raise(SIGUSR1) == 0));
}

static void fork_and(void (*child_part)(void), const char *metric, long rounds)
{
    enum { GROUPS = 5 };
    double group[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        uint64_t start = now_ns();
        for (long i = 0; i < rounds; i++) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                child_part();
                _exit(1);
            }
            reap(1);
        }
        group[g] = (double)(now_ns() - start) / 1000 / (double)rounds;
    }
    emit(metric, "us", least(group, GROUPS));
}

static void just_exit(void)
{
    _exit(0);
}

static void exec_true(void)
{
    execl("/bin/true", "true", (char *)NULL);
}

static void exec_shell(void)
{
    execl("/bin/sh", "sh", "-c", "/bin/true; :", (char *)NULL);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    batch_ns = (uint64_t)number(argv[2]) * 1000000;
    long rounds = number(argv[3]);
    null_figures();
    file_figures(argv[1]);
    select_figure();
    signal_figures();
    fork_and(just_exit, "fork", rounds);
    fork_and(exec_true, "exec", rounds);
    fork_and(exec_shell, "sh", rounds);
    return 0;
}
