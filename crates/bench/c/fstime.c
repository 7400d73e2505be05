/*
 * UnixBench's file test: write, read and copy in blocks of BLOCK bytes, BLOCKS of them to a file,
 * then back to offset 0 and again until the alarm. KB/s, a KB being 1,024 bytes.
 *
 *     fstime DIR BLOCK BLOCKS MILLISECONDS METRIC...     METRIC: write, read or copy
 */
#include "bench.h"
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t ended;

static void on_alarm(int signal)
{
    (void)signal;
    ended = 1;
}

static void start_alarm(long milliseconds)
{
    struct itimerval timer = { .it_value = { milliseconds / 1000, milliseconds % 1000 * 1000 } };
    ended = 0;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static char buffer[1 << 20];

static uint64_t write_test(int fd, size_t block, long blocks)
{
    uint64_t bytes = 0;
    while (!ended) {
        for (long i = 0; i < blocks && !ended; i++) {
            CHECK(write(fd, buffer, block) == (ssize_t)block);
            bytes += block;
        }
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
    }
    return bytes;
}

static uint64_t read_test(int fd, size_t block)
{
    uint64_t bytes = 0;
    while (!ended) {
        ssize_t got = read(fd, buffer, block);
        CHECK(got >= 0);
        if (got == 0)
            CHECK(lseek(fd, 0, SEEK_SET) == 0);
        bytes += (uint64_t)got;
    }
    return bytes;
}

static uint64_t copy_test(int from, int to, size_t block)
{
    uint64_t bytes = 0;
    while (!ended) {
        ssize_t got = read(from, buffer, block);
        CHECK(got >= 0);
        if (got == 0) {
            CHECK(lseek(from, 0, SEEK_SET) == 0);
            CHECK(lseek(to, 0, SEEK_SET) == 0);
            continue;
        }
        CHECK(write(to, buffer, (size_t)got) == got);
        bytes += (uint64_t)got;
    }
    return bytes;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    size_t block = (size_t)number(argv[2]);
    long blocks = number(argv[3]), milliseconds = number(argv[4]);
    if (block == 0 || block > sizeof buffer)
        return 2;
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    char *one = in_dir(argv[1], "fstime1"), *two = in_dir(argv[1], "fstime2");
    int from = make_file(one, (uint64_t)block * (uint64_t)blocks);
    int to = make_file(two, (uint64_t)block * (uint64_t)blocks);
    for (int i = 5; i < argc; i++) {
        CHECK(lseek(from, 0, SEEK_SET) == 0 && lseek(to, 0, SEEK_SET) == 0);
        uint64_t start = now_ns(), bytes;
        start_alarm(milliseconds);
        if (strcmp(argv[i], "write") == 0)
            bytes = write_test(from, block, blocks);
        else if (strcmp(argv[i], "read") == 0)
            bytes = read_test(from, block);
        else if (strcmp(argv[i], "copy") == 0)
            bytes = copy_test(from, to, block);
        else
            return 2;
        char metric[64];
        snprintf(metric, sizeof metric, "%s_%zu_%ld", argv[i], block, blocks);
        emit(metric, "KB/s", (double)bytes / 1024 / seconds_since(start));
    }
    CHECK(unlink(one) == 0 && unlink(two) == 0);
    return 0;
}
