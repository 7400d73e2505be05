/*
 * The lseek workload (2009): a 128 MB file written as 32,768 blocks of 4,096 bytes and synced; N
 * processes each open it for themselves and make M lseek(SEEK_SET) to random offsets within it.
 * The figure is the time from the first fork to the last exit.
 *
 *     lseek DIR M N...
 */
#include "bench.h"

enum { BLOCKS = 32768, BLOCK = 4096 };

/* xorshift64: the same cheap sequence everywhere, so that the figure is the call's. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void seek_about(const char *path, long seeks, int seed)
{
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    uint64_t state = 0x9e3779b97f4a7c15u + (uint64_t)seed;
    for (long i = 0; i < seeks; i++) {
        off_t offset = (off_t)(next_random(&state) % ((uint64_t)BLOCKS * BLOCK));
        CHECK(lseek(fd, offset, SEEK_SET) == offset);
    }
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    char *path = in_dir(argv[1], "seekfile");
    long seeks = number(argv[2]);
    int fd = make_file(path, (uint64_t)BLOCKS * BLOCK);
    CHECK(fsync(fd) == 0);
    close(fd);
    for (int i = 3; i < argc; i++) {
        int processes = (int)number(argv[i]);
        uint64_t start = now_ns();
        for (int p = 0; p < processes; p++) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                seek_about(path, seeks, p);
                _exit(0);
            }
        }
        reap(processes);
        emit_at("lseek_procs", processes, "s", seconds_since(start));
    }
    CHECK(unlink(path) == 0);
    return 0;
}
