/*
 * How calls grow with the directory, the depth and the number of directories.
 *
 *     growth DIR files N...        N empty files in one directory: making each, stat of each in a random
 *                                  order, reading the directory, the same with a stat of each entry,
 *                                  removing each; from 100,000 on, the memory that the machine has less for
 *                                  each
 *     growth DIR depth N...        a file below N directories: its stat, and getcwd(3) there
 *     growth DIR directories N...  N directories of one file: stat of each, in a random order
 */
#include "bench.h"
#include <dirent.h>

enum { FEWEST_WEIGHED = 100000 };

/* A permutation of 0..n-1 by a linear congruence over the next power of two: the same everywhere, and not
 * held in memory. */
struct order {
    uint32_t at, mask, count;
};

static struct order in_random_order(uint32_t count)
{
    uint32_t mask = 1;
    while (mask < count - 1)
        mask = mask << 1 | 1;
    return (struct order){ 12345 & mask, mask, count };
}

static uint32_t next(struct order *order)
{
    do
        order->at = (order->at * 1664525u + 1013904223u) & order->mask;
    while (order->at >= order->count);
    return order->at;
}

/* Bytes that the machine could give to programs. */
static double available(void)
{
    char line[128];
    unsigned long kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    CHECK(file);
    while (fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %lu", &kilobytes) != 1)
        ;
    fclose(file);
    CHECK(kilobytes);
    return (double)kilobytes * 1024;
}

static void emit_each(const char *metric, int count, uint64_t start)
{
    emit_at(metric, count, "ns", (double)(now_ns() - start) / count);
}

static int count_entries(int dir, int stats)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY), count = 0;
    CHECK(copy >= 0);
    DIR *stream = fdopendir(copy);
    CHECK(stream);
    struct stat found;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        if (stats)
            CHECK(fstatat(dir, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0);
    }
    closedir(stream);
    return count;
}

static void files(const char *top, int count)
{
    char name[16];
    struct stat found;
    char *path = in_dir(top, "growth-%d", count);
    CHECK(mkdir(path, 0755) == 0);
    int dir = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0);
    double before = available();
    uint64_t start = now_ns();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%d", i);
        CHECK(mknodat(dir, name, S_IFREG | 0644, 0) == 0);
    }
    emit_each("files_make", count, start);
    double taken = before - available();
    /* The cache of a disk's file system counts as available. */
    if (count >= FEWEST_WEIGHED && taken > 0)
        emit_at("files_memory", count, "B", taken / count);
    struct order order = in_random_order((uint32_t)count);
    start = now_ns();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%u", next(&order));
        CHECK(fstatat(dir, name, &found, 0) == 0);
    }
    emit_each("files_stat", count, start);
    start = now_ns();
    CHECK(count_entries(dir, 0) == count);
    emit_each("files_list", count, start);
    start = now_ns();
    CHECK(count_entries(dir, 1) == count);
    emit_each("files_list_stat", count, start);
    start = now_ns();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "f%d", i);
        CHECK(unlinkat(dir, name, 0) == 0);
    }
    emit_each("files_remove", count, start);
    close(dir);
    CHECK(rmdir(path) == 0);
}

static void depth(const char *top, int count)
{
    char *path = in_dir(top, "deep-%d", count), cwd[PATH_MAX];
    struct stat found;
    double per_call;
    CHECK(mkdir(path, 0755) == 0 && chdir(path) == 0);
    for (int i = 0; i < count; i++)
        CHECK(mkdir("d", 0755) == 0 && chdir("d") == 0);
    CHECK(mknod("f", S_IFREG | 0644, 0) == 0);
    TIME_NS(per_call, CHECK(getcwd(cwd, sizeof cwd)));
    emit_at("depth_getcwd", count, "ns", per_call);
    char *file = in_dir(cwd, "f");
    TIME_NS(per_call, CHECK(stat(file, &found) == 0));
    emit_at("depth_stat", count, "ns", per_call);
    CHECK(unlink("f") == 0);
    for (int i = 0; i < count; i++)
        CHECK(chdir("..") == 0 && rmdir("d") == 0);
    CHECK(chdir("/") == 0 && rmdir(path) == 0);
}

static void directories(const char *top, int count)
{
    char *path = in_dir(top, "wide-%d", count), name[32];
    struct stat found;
    CHECK(mkdir(path, 0755) == 0);
    int dir = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "d%d", i);
        CHECK(mkdirat(dir, name, 0755) == 0);
        snprintf(name, sizeof name, "d%d/f", i);
        CHECK(mknodat(dir, name, S_IFREG | 0644, 0) == 0);
    }
    struct order order = in_random_order((uint32_t)count);
    uint64_t start = now_ns();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "d%u/f", next(&order));
        CHECK(fstatat(dir, name, &found, 0) == 0);
    }
    emit_each("directories_stat", count, start);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "d%d/f", i);
        CHECK(unlinkat(dir, name, 0) == 0);
        name[strlen(name) - 2] = 0;
        CHECK(unlinkat(dir, name, AT_REMOVEDIR) == 0);
    }
    close(dir);
    CHECK(rmdir(path) == 0);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    void (*measure)(const char *, int) = !strcmp(argv[2], "files") ? files
        : !strcmp(argv[2], "depth")                                ? depth
                                                                   : directories;
    for (int i = 3; i < argc; i++)
        measure(argv[1], (int)number(argv[i]));
    return 0;
}
