/*
 * The call table: nanoseconds per call, one file or directory, one process.
 *
 *     calls DIR BATCH_MS
 *
 * "host_" figures are of descriptors outside DIR: what a call that is not Lightpath's pays.
 */
#include "bench.h"
#include <sys/mman.h>
#include <sys/syscall.h>

enum { MIB = 1 << 20, MAPPED = 65536, ENTRIES = 100 };

/* Where the 4 KiB calls go: four pages in turn, which stay in the first cache, as what is copied is not what is measured. */
#define PAGE_OF_FOUR ((off_t)(turn & 3) * 4096)

static char buffer[MIB];

static void descriptor_calls(int fd)
{
    struct stat st;
    off_t offset = 0;
    EMIT_NS("lseek", {
        offset = (offset + 4096) & (MIB - 1);
        CHECK(lseek(fd, offset, SEEK_SET) == offset);
    });
    EMIT_NS("lseek_end", CHECK(lseek(fd, 0, SEEK_END) == MIB));
    EMIT_NS("fstat", CHECK(fstat(fd, &st) == 0));
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    EMIT_NS("read_1", {
        if (read(fd, buffer, 1) != 1)
            CHECK(lseek(fd, 0, SEEK_SET) == 0);
    });
    EMIT_NS("pread_1", CHECK(pread(fd, buffer, 1, 4000) == 1));
    EMIT_NS("pread_4k", CHECK(pread(fd, buffer, 4096, PAGE_OF_FOUR) == 4096));
    EMIT_NS("pwrite_1", CHECK(pwrite(fd, buffer, 1, 4000) == 1));
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    EMIT_NS("write_256", {
        if (turn % (MIB / 256) == 0)
            CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(write(fd, buffer, 256) == 256);
    });
    EMIT_NS("pwrite_4k", CHECK(pwrite(fd, buffer, 4096, PAGE_OF_FOUR) == 4096));
    EMIT_NS("pread_1m", CHECK(pread(fd, buffer, MIB, 0) == MIB));
    EMIT_NS("pwrite_1m", CHECK(pwrite(fd, buffer, MIB, 0) == MIB));
}

static void path_calls(const char *dir, const char *path)
{
    struct stat st;
    struct statx stx;
    char *missing = in_dir(dir, "a/b/missing");
    EMIT_NS("stat", CHECK(stat(path, &st) == 0));
    EMIT_NS("statx", CHECK(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &stx) == 0));
    EMIT_NS("stat_missing", CHECK(stat(missing, &st) == -1));
    EMIT_NS("access", CHECK(access(path, R_OK) == 0));
    EMIT_NS("open_close", {
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        close(fd);
    });
    CHECK(chdir(dir) == 0);
    EMIT_NS("stat_relative", CHECK(stat("a/b/f", &st) == 0));
    CHECK(chdir("/") == 0);
}

static void name_calls(const char *dir)
{
    char *one = in_dir(dir, "a/b/one"), *two = in_dir(dir, "a/b/two"), *sub = in_dir(dir, "a/b/sub");
    EMIT_NS("create_unlink", {
        int fd = open(one, O_WRONLY | O_CREAT | O_EXCL, 0644);
        CHECK(fd >= 0);
        close(fd);
        CHECK(unlink(one) == 0);
    });
    EMIT_NS("create_4k_unlink", {
        int fd = open(one, O_WRONLY | O_CREAT | O_EXCL, 0644);
        CHECK(fd >= 0);
        CHECK(write(fd, buffer, 4096) == 4096);
        close(fd);
        CHECK(unlink(one) == 0);
    });
    close(make_file(one, 1));
    double pair;
    TIME_NS(pair, {
        CHECK(rename(one, two) == 0);
        CHECK(rename(two, one) == 0);
    });
    emit("rename", "ns", pair / 2);
    EMIT_NS("link_unlink", CHECK(link(one, two) == 0 && unlink(two) == 0));
    CHECK(unlink(one) == 0);
    EMIT_NS("mkdir_rmdir", CHECK(mkdir(sub, 0755) == 0 && rmdir(sub) == 0));
}

static void list_calls(const char *dir)
{
    char *many = in_dir(dir, "many");
    CHECK(mkdir(many, 0755) == 0);
    for (int i = 0; i < ENTRIES; i++)
        close(make_file(in_dir(many, "entry%d", i), 0));
    int fd = open(many, O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0);
    EMIT_NS("getdents_100", {
        long got;
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        while ((got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0)
            ;
        CHECK(got == 0);
    });
    close(fd);
    for (int i = 0; i < ENTRIES; i++)
        CHECK(unlink(in_dir(many, "entry%d", i)) == 0);
    CHECK(rmdir(many) == 0);
}

/* Map 64 KiB shared, touch each page, unmap. */
static void map_calls(int fd)
{
    EMIT_NS("mmap_64k", {
        volatile char *map = mmap(NULL, MAPPED, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(map != MAP_FAILED);
        for (int at = 0; at < MAPPED; at += 4096)
            (void)map[at];
        CHECK(munmap((void *)map, MAPPED) == 0);
    });
}

static void host_calls(void)
{
    struct stat st;
    int zero = open("/dev/zero", O_RDONLY), file = open("/proc/self/exe", O_RDONLY);
    CHECK(zero >= 0 && file >= 0);
    EMIT_NS("host_read_1", CHECK(read(zero, buffer, 1) == 1));
    EMIT_NS("host_lseek", CHECK(lseek(file, 0, SEEK_SET) == 0));
    EMIT_NS("host_fstat", CHECK(fstat(file, &st) == 0));
    EMIT_NS("host_pread_1", CHECK(pread(file, buffer, 1, 0) == 1));
    EMIT_NS("host_stat", CHECK(stat("/usr/bin/env", &st) == 0));
    close(zero);
    close(file);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    batch_ns = (uint64_t)number(argv[2]) * 1000000;
    const char *dir = argv[1];
    char *path = in_dir(dir, "a/b/f");
    CHECK(mkdir(in_dir(dir, "a"), 0755) == 0 && mkdir(in_dir(dir, "a/b"), 0755) == 0);
    int fd = make_file(path, MIB);
    descriptor_calls(fd);
    path_calls(dir, path);
    name_calls(dir);
    list_calls(dir);
    map_calls(fd);
    host_calls();
    close(fd);
    CHECK(unlink(path) == 0);
    CHECK(rmdir(in_dir(dir, "a/b")) == 0 && rmdir(in_dir(dir, "a")) == 0);
    return 0;
}
