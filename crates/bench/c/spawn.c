/*
 * posix_spawn(/bin/true) and wait, microseconds each: what starting a program costs.
 *
 *     spawn DIR ROUNDS
 *
 * DIR is not used: the figure is what a run adds to every exec.
 */
#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    enum { GROUPS = 9 };
    long rounds = number(argv[2]);
    double group[GROUPS];
    char *const arguments[] = { "true", NULL };
    for (int g = 0; g < GROUPS; g++) {
        uint64_t start = now_ns();
        for (long i = 0; i < rounds; i++) {
            pid_t child;
            errno = posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ);
            CHECK(errno == 0);
            reap(1);
        }
        group[g] = (double)(now_ns() - start) / 1000 / (double)rounds;
    }
    emit("posix_spawn", "us", least(group, GROUPS));
    return 0;
}
