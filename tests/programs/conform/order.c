/* Which error comes first when several arguments are wrong. */
#include "conform.h"
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#define BAD ((void *)8)

/* Names that lead nowhere in several ways, one side and both. */
GROUP(order, two_paths)
{
    make_dir("d");
    make("f", "text");
    int file = open("f", O_RDONLY), dir = open("d", O_RDONLY);
    static const struct {
        const char *text, *at;
        int fd;
    } sides[] = {
        { "none", "none", AT_FDCWD }, { "f/x", "f/x", AT_FDCWD }, { "d/none/x", "d/none/x", AT_FDCWD }, { "empty", "", AT_FDCWD },
        { "NULL", NULL, AT_FDCWD }, { "bad", BAD, AT_FDCWD }, { "closed", "x", 99 }, { "closed, absolute", "/proc/none", 99 },
        { "of a file", "x", -2 }, { "of a directory", "x", -3 }, { "host", "/proc/version", AT_FDCWD }, { "host, missing", "/none/x", AT_FDCWD },
    };
    for (unsigned a = 0; a < COUNT(sides); a++)
        for (unsigned b = 0; b < COUNT(sides); b++) {
            int from = sides[a].fd == -2 ? file : sides[a].fd == -3 ? dir : sides[a].fd;
            int to = sides[b].fd == -2 ? file : sides[b].fd == -3 ? dir : sides[b].fd;
            /* Nothing of the host's is to be touched. */
            if (!strncmp(sides[a].text, "host", 4) && !strncmp(sides[b].text, "host", 4))
                continue;
            say("%s to %s", sides[a].text, sides[b].text);
            TN("rename", syscall(SYS_renameat2, from, sides[a].at, to, sides[b].at, 0));
            TN("rename with bad flags", syscall(SYS_renameat2, from, sides[a].at, to, sides[b].at, 8));
            TN("link", linkat(from, sides[a].at, to, sides[b].at, 0));
        }
}

GROUP(order, times)
{
    make("f", "text");
    struct timespec bad[2] = { { 1, -1 }, { 1, 1 } }, omitted[2] = { { 1, UTIME_OMIT }, { 1, UTIME_OMIT } };
    const char *paths[] = { "f", "none", "f/x", "" };
    for (unsigned i = 0; i < COUNT(paths); i++) {
        T(utimensat(AT_FDCWD, paths[i], bad, 0));
        T(utimensat(AT_FDCWD, paths[i], omitted, 0));
        T(utimensat(AT_FDCWD, paths[i], omitted, 0x800000));
        T(utimensat(AT_FDCWD, paths[i], bad, 0x800000));
    }
    int fd = open("f", O_RDWR);
    T(syscall(SYS_utimensat, fd, NULL, bad, 0));
    T(syscall(SYS_utimensat, fd, NULL, omitted, 7));
}

GROUP(order, values)
{
    make("f", "text");
    const char *paths[] = { "f", "none", "f/x" };
    for (unsigned i = 0; i < COUNT(paths); i++) {
        T(setxattr(paths[i], "user.a", BAD, 5, 0));
        T(setxattr(paths[i], "user.a", NULL, 5, 0));
        T(setxattr(paths[i], "user.a", NULL, 0, XATTR_REPLACE));
        T(setxattr(paths[i], "trusted.a", BAD, 5, 0));
        T(setxattr(paths[i], "nothing.a", BAD, 5, 0));
        T(setxattr(paths[i], "user.a", BAD, 5, 9));
        T(setxattr(paths[i], "", BAD, 5, 0));
        T(setxattr(paths[i], "user.a", BAD, 65537, 0));
    }
    T(setxattr(NULL, "user.a", "x", 1, 9));
    T(getxattr(NULL, "", NULL, 0));
    T(truncate(NULL, -1));
    T(syscall(SYS_openat, AT_FDCWD, NULL, O_CREAT | O_DIRECTORY, 0644));
    struct open_how how = { .flags = O_PATH | O_RDWR };
    T(syscall(SYS_openat2, AT_FDCWD, NULL, &how, sizeof how));
}

GROUP(order, of_descriptors)
{
    make_dir("d");
    int file = make_open("f", "text", O_RDWR), path = open("f", O_PATH), dir = open("d", O_RDONLY), reader = open("f", O_RDONLY);
    T(open("d", O_RDONLY | O_DIRECT));
    T(open("d", O_PATH | O_DIRECT) >= 0);
    int all[] = { file, path, dir, reader, 99 };
    char room[16];
    struct iovec vector = { room, sizeof room };
    for (unsigned i = 0; i < COUNT(all); i++) {
        int fd = all[i];
        say("descriptor %u", i);
        TN("mmap", (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, -4096) == -1 ? -1 : 0);
        TN("mmap", (long)mmap(NULL, 0, PROT_READ, 0, fd, 0) == -1 ? -1 : 0);
        TN("mmap", (long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 1) == -1 ? -1 : 0);
        TN("preadv2", syscall(SYS_preadv2, fd, &vector, 1, 0, 0, 8));
        TN("preadv2", syscall(SYS_preadv2, fd, &vector, 1, 0, 0, 0x800));
        TN("readahead", syscall(SYS_readahead, fd, 0, INT64_MIN));
        TN("sync_file_range", syscall(SYS_sync_file_range, fd, -1, 0, 0));
        TN("sync_file_range", syscall(SYS_sync_file_range, fd, 0, 0, 8));
        TN("seals", fcntl(fd, F_ADD_SEALS, 0x400));
        TN("seals", fcntl(fd, F_ADD_SEALS, 1));
        TN("fallocate", fallocate(fd, 0x80, 0, 10));
        TN("fallocate", fallocate(fd, 0x400, 0, 10));
        TN("fallocate", fallocate(fd, 0x80, -1, 10));
    }
}

/* NULL is no empty path to these. */
GROUP(order, null_and_empty_paths)
{
    int fd = make_open("f", "text", O_RDWR), all[] = { fd, AT_FDCWD, 99 };
    for (unsigned i = 0; i < COUNT(all); i++) {
        TN("fchownat", fchownat(all[i], NULL, -1, -1, AT_EMPTY_PATH));
        TN("fchmodat2", syscall(452, all[i], NULL, 0644, AT_EMPTY_PATH));
        TN("fchownat, empty", fchownat(all[i], "", -1, -1, AT_EMPTY_PATH));
        TN("fchmodat2, empty", syscall(452, all[i], "", 0755, AT_EMPTY_PATH));
    }
}
