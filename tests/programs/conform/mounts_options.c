/* Options of a tmpfs that limit it, and when its access times change. */
#include "mounts.h"
#include <sys/statfs.h>
#include <sys/mman.h>

static int apart(void)
{
    return apart_with("ab");
}

static void usage(const char *path)
{
    struct statfs st;
    if (statfs(path, &st))
        say("  statfs %s: %s", path, strerrorname_np(errno));
    else
        say("  %s: blocks %ld free %ld available %ld files %ld free %ld", path, st.f_blocks, st.f_bfree, st.f_bavail,
            st.f_files, st.f_ffree);
}

static char bytes[1 << 20];

GROUP(mounts, size)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, "size=64k,nr_inodes=100"));
    usage("a");
    int fd = T(open("a/f", O_RDWR | O_CREAT, 0600));
    T(write(fd, bytes, 20000));
    usage("a");
    T(write(fd, bytes, sizeof bytes));
    attributes_fd(fd);
    usage("a");
    T(write(fd, bytes, 1));
    T(pwrite(fd, bytes, 1, 0));
    T(pwrite(fd, bytes, 1, 1 << 20));
    T(mkdir("a/d", 0700));
    T(symlink("short", "a/l"));
    T(symlink(memset(bytes, 'x', 300), "a/long"));
    T(truncate("a/f", 10000));
    usage("a");
    T(symlink(bytes, "a/long"));
    memset(bytes, 0, 300);
    usage("a");
    T(ftruncate(fd, 1 << 30));
    T(posix_fallocate(fd, 0, 1 << 20));
    usage("a");
    T(fallocate(fd, 0, 0, 40000));
    usage("a");
    T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 40000));
    usage("a");
    /* What is gone and still open counts. */
    T(pwrite(fd, bytes, 60000, 0));
    T(unlink("a/f"));
    usage("a");
    int other = T(open("a/g", O_RDWR | O_CREAT, 0600));
    T(write(other, bytes, 10000));
    T(close(fd));
    usage("a");
    T(write(other, bytes, 50000));
    usage("a");
    T(lseek(other, 0, SEEK_SET));
    for (int i = 0; i < 100; i++)
        if (pwrite(other, bytes, 50000, 0) != 50000 || ftruncate(other, 0))
            say("turn %d: %s", i, strerrorname_np(errno));
    usage("a");
    T(close(other));
    T(umount("a"));
}

/* Whatever makes room, the next write finds it, and no more than it. */
GROUP(mounts, room_in_a_full_one)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, "size=64k,nr_inodes=9"));
    T(mount("none", "b", "tmpfs", 0, "size=64k,nr_inodes=9"));
    int fd = T(open("a/f", O_RDWR | O_CREAT, 0600));
    int side = T(open("b/f", O_RDWR | O_CREAT, 0600));
    make("a/g", "g");
    static const char *const ways[] = {"nothing", "truncate", "punch", "unlink", "child", "killed", "exchange", "remount"};
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        T(pwrite(fd, bytes, sizeof bytes, 0));
        for (int i = 0; i < 3; i++)
            T(pwrite(fd, bytes, 1, 1 << 20));
        switch (way) {
        case 1: T(ftruncate(fd, 4096)); break;
        case 2: T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 8192)); break;
        case 3: T(unlink("a/g")); break;
        case 4:
            CHILD {
                T(ftruncate(fd, 4096));
            }
            break;
        case 5:
            CHILD {
                int gone = T(open("a", O_TMPFILE | O_RDWR, 0600));
                T(ftruncate(fd, 40000));
                T(write(gone, bytes, sizeof bytes));
                T(pwrite(fd, bytes, 1, 1 << 20));
                raise(SIGKILL);
            }
            break;
        case 6:
            /* The pages that this frees may be those that the other one takes. */
            T(ftruncate(fd, 40000));
            T(pwrite(side, bytes, 20000, 0));
            break;
        case 7: T(mount("none", "a", NULL, MS_REMOUNT, "size=128k")); break;
        }
        TN(ways[way], pwrite(fd, bytes, sizeof bytes, 0));
        T(pwrite(fd, bytes, 1, 1 << 20));
        usage("a");
        T(ftruncate(side, 0));
    }
    T(close(side));
    T(close(fd));
    T(umount("b"));
    T(umount("a"));
}

GROUP(mounts, size_of_others)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, "size=8k,nr_inodes=10"));
    T(mount("none", "b", "tmpfs", 0, "nr_blocks=4,nr_inodes=3"));
    for (int i = 0; i < 4; i++) {
        char name[8];
        sprintf(name, "b/%d", i);
        TN(name, open(name, O_RDWR | O_CREAT, 0600));
    }
    int fd = T(open("a/f", O_RDWR | O_CREAT, 0600));
    CHILD {
        T(write(fd, bytes, 5000));
        T(write(fd, bytes, 5000));
    }
    T(pwrite(fd, bytes, 9000, 0));
    T(pwrite(3, bytes, sizeof bytes, 0));
    T(pwrite(4, bytes, sizeof bytes, 0));
    usage("a");
    usage("b");
    T(mount("none", "b", NULL, MS_REMOUNT, "nr_blocks=8,nr_inodes=5"));
    T(pwrite(4, bytes, sizeof bytes, 0));
    usage("b");
    T(close(3));
    T(close(4));
    T(close(fd));
    T(umount("a"));
    T(umount("b"));
}

GROUP(mounts, nr_inodes)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, "nr_inodes=5,size=1m"));
    make("a/f", "f");
    T(mkdir("a/d", 0700));
    T(link("a/f", "a/g"));
    usage("a");
    T(symlink("x", "a/l"));
    T(mknod("a/n", S_IFREG | 0600, 0));
    T(link("a/f", "a/h"));
    usage("a");
    T(unlink("a/g"));
    usage("a");
    T(link("a/f", "a/h"));
    T(rename("a/h", "a/i"));
    T(rmdir("a/d"));
    T(mkfifo("a/fifo", 0600));
    T(mkdir("a/d", 0700));
    usage("a");
    T(umount("a"));
}

GROUP(mounts, new_limits)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, "size=64k,nr_inodes=10"));
    make("a/f", "f");
    T(truncate("a/f", 0));
    int fd = T(open("a/f", O_WRONLY));
    T(write(fd, bytes, 50000));
    T(mount("none", "a", NULL, MS_REMOUNT, "size=32k"));
    T(mount("none", "a", NULL, MS_REMOUNT, "nr_inodes=1"));
    usage("a");
    T(mount("none", "a", NULL, MS_REMOUNT, "size=128k,nr_inodes=20"));
    usage("a");
    T(write(fd, bytes, sizeof bytes));
    usage("a");
    T(mount("none", "a", NULL, MS_REMOUNT, "size=0"));
    T(write(fd, bytes, 100000));
    T(mount("none", "a", NULL, MS_REMOUNT, "size=1m"));
    T(mount("none", "a", NULL, MS_REMOUNT, "nr_inodes=0"));
    T(mount("none", "a", NULL, MS_REMOUNT, "nr_inodes=100"));
    T(close(fd));
    T(umount("a"));
}

/* Whether what `call` does changes the access time. */
#define ATIME(path, call)                                                         \
    do {                                                                          \
        struct stat before, after;                                                \
        nap();                                                                    \
        stat(path, &before);                                                      \
        long done = (call);                                                       \
        stat(path, &after);                                                       \
        say("  %s = %ld: %s", #call, done,                                        \
            memcmp(&before.st_atim, &after.st_atim, sizeof before.st_atim) ? "changed" : "same"); \
    } while (0)

static long read_it(const char *path)
{
    char byte[10];
    int fd = open(path, O_RDONLY);
    long done = read(fd, byte, sizeof byte);
    close(fd);
    return done;
}

static long list_it(const char *path)
{
    struct dirent **found;
    return scandir(path, &found, NULL, alphasort);
}

GROUP(mounts, strictatime)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, NULL));
    T(mount("a", "b", NULL, MS_BIND, NULL));
    make("a/f", "text");
    T(mkdir("a/d", 0700));
    nap();
    ATIME("a/f", read_it("a/f"));
    ATIME("a/f", read_it("a/f"));
    ATIME("a/d", list_it("a/d"));
    ATIME("a/d", list_it("a/d"));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_STRICTATIME, NULL));
    ATIME("a/f", read_it("a/f"));
    ATIME("a/f", read_it("b/f"));
    ATIME("a/f", read_it("b/f"));
    ATIME("a/f", read_it("a/f"));
    ATIME("a/d", list_it("b/d"));
    ATIME("a/d", list_it("b/d"));
    int fd = open("b/f", O_RDONLY), quiet = open("b/f", O_RDONLY | O_NOATIME);
    char byte;
    ATIME("a/f", pread(fd, &byte, 1, 0));
    ATIME("a/f", pread(fd, &byte, 1, 0));
    ATIME("a/f", pread(quiet, &byte, 1, 0));
    ATIME("a/f", pread(fd, &byte, 0, 0));
    T(close(fd));
    T(close(quiet));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_STRICTATIME | MS_NODIRATIME, NULL));
    ATIME("a/d", list_it("b/d"));
    ATIME("a/f", read_it("b/f"));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_STRICTATIME | MS_RDONLY, NULL));
    ATIME("a/f", read_it("b/f"));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RELATIME, NULL));
    ATIME("a/f", read_it("b/f"));
    T(umount("b"));
    T(umount("a"));
    T(mount("none", "a", "tmpfs", MS_STRICTATIME, NULL));
    make("a/f", "text");
    ATIME("a/f", read_it("a/f"));
    ATIME("a/f", read_it("a/f"));
    T(umount("a"));
}

/* A file system in which something without a name is in use does not become read-only; a mount of it does. */
GROUP(mounts, read_only_with_what_was_removed)
{
    if (geteuid() != 0 || !apart_with("a"))
        return;
    char at[PATH_MAX];
    if (!realpath("a", at))
        return;
    T(mount("x", "a", "tmpfs", 0, NULL));
    make("a/f", "text");
    int fd = open("a/f", O_PATH);
    T(unlink("a/f"));
    T(mount("x", "a", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    T(mount(NULL, "a", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    T(mount(NULL, "a", NULL, MS_REMOUNT | MS_BIND, NULL));
    T(close(fd));
    T(mount("x", "a", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    T(mount("x", "a", NULL, MS_REMOUNT, NULL));
    make_dir("a/d");
    T(chdir("a/d"));
    T(mount("x", at, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    T(mount("x", at, NULL, MS_REMOUNT, NULL));
    T(rmdir("../d"));
    T(mount("x", at, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    CHILD {
        T(chdir("/"));
        T(mount("x", at, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    }
    T(chdir("/"));
    T(mount("x", at, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    T(umount2(at, 0));
}
