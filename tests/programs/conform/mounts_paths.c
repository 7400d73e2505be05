/* Paths and descriptors of the calls on mounts: what is removed, missing, empty or bad. */
#include "mounts.h"
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/uio.h>

enum { FROM_FD = 4, CLONE = 1 };

static int apart(void)
{
    return apart_with("ab");
}

static int tree(int at, const char *path, int flags)
{
    return syscall(SYS_open_tree, at, path, flags);
}

/* 0 for a descriptor, which is closed; else the error. */
static int closed(int fd)
{
    return fd < 0 ? fd : close(fd);
}

/* The part of its file system that each mount below here shows. */
static void say_roots(void)
{
    char line[4096], root[1024], point[1024];
    FILE *table = fopen("/proc/self/mountinfo", "r");
    while (fgets(line, sizeof line, table))
        if (sscanf(line, "%*s %*s %*s %1023s %1023s", root, point) == 2 && strstr(strrchr(point, '/'), "/bound"))
            say("  %s shows %s", strrchr(point, '/'), root);
    fclose(table);
}

GROUP(mounts, removed_roots)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, NULL));
    T(mkdir("a/d", 0755) | mkdir("a/d/e", 0755) | mkdir("a/d/e/f", 0755));
    T(mkdir("a/bound1", 0755) | mkdir("a/bound2", 0755) | mkdir("a/bound3", 0755));
    T(mount("a/d", "a/bound1", NULL, MS_BIND, NULL));
    T(mount("a/d/e", "a/bound2", NULL, MS_BIND, NULL));
    T(mount("a/d/e/f", "a/bound3", NULL, MS_BIND, NULL));
    say_roots();
    T(rename("a/d/e", "a/d/new name"));
    say_roots();
    T(rmdir("a/d/new name/f"));
    say_roots();
    T(rmdir("a/d/new name"));
    T(rmdir("a/d"));
    say_roots();
    T(umount("a/bound1") | umount("a/bound2") | umount("a/bound3"));
    /* What a line does not show as it is. */
    T(mkdir("a/s \t\n\\#e", 0755) | mkdir("a/bound \t\n\\#e", 0755));
    T(mount("a/s \t\n\\#e", "a/bound \t\n\\#e", NULL, MS_BIND, NULL));
    say_roots();
    T(umount("a/bound \t\n\\#e"));
    T(umount("a"));
}

GROUP(mounts, open_tree_paths)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, NULL));
    make("a/f", "text");
    T(symlink("f", "a/l"));
    T(mkdir("a/d", 0755));
    static const int flags[] = {0, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_NOFOLLOW | O_CLOEXEC, CLONE, CLONE | AT_SYMLINK_NOFOLLOW};
    static const char *const paths[] = {"a", "a/d", "a/f", "a/l"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        for (size_t j = 0; j < sizeof paths / sizeof *paths; j++) {
            int fd = tree(AT_FDCWD, paths[j], flags[i]);
            struct stat found;
            say("%s %x: status flags %x, close on exec %d, type %o", paths[j], flags[i], fcntl(fd, F_GETFL), fcntl(fd, F_GETFD),
                fstat(fd, &found) ? 0 : found.st_mode & S_IFMT);
            close(fd);
        }
    int o = T(open("a", O_PATH));
    for (int clone = 0; clone < 2; clone++) {
        TN("NULL", closed(tree(o, NULL, AT_EMPTY_PATH | clone)));
        TN("empty", closed(tree(o, "", AT_EMPTY_PATH | clone)));
        TN("bad", closed(tree(o, (void *)1, AT_EMPTY_PATH | clone)));
        TN("empty, not allowed", closed(tree(o, "", clone)));
        TN("no descriptor", closed(tree(99, "", AT_EMPTY_PATH | clone)));
        TN("no descriptor, NULL", closed(tree(99, NULL, AT_EMPTY_PATH | clone)));
        TN("NULL here", closed(tree(AT_FDCWD, NULL, AT_EMPTY_PATH | clone)));
    }
    T(chdir("a"));
    TN("here", closed(tree(AT_FDCWD, "", AT_EMPTY_PATH)));
    TN("a copy of here", closed(tree(AT_FDCWD, "", AT_EMPTY_PATH | CLONE)));
    T(syscall(SYS_fspick, o, NULL, 8));
    T(syscall(SYS_fspick, AT_FDCWD, NULL, 0));
    T(chdir(".."));
    T(close(o));
    T(umount("a"));
}

GROUP(mounts, setattr_paths)
{
    if (!apart())
        return;
    struct { unsigned long set, clear, propagation, user; } nothing = {0}, some = {1};
    T(mount("none", "a", "tmpfs", 0, NULL));
    int o = T(open("a", O_PATH));
#define SET(at, path, flags, value) TN(#at " " #path " " #flags " " #value, syscall(SYS_mount_setattr, at, path, flags, value, 32))
    SET(o, "", AT_EMPTY_PATH, NULL);
    SET(o, NULL, AT_EMPTY_PATH, NULL);
    SET(o, NULL, AT_EMPTY_PATH, &nothing);
    SET(o, NULL, AT_EMPTY_PATH, &some);
    SET(o, NULL, 0, &some);
    SET(o, "", 0, &some);
    SET(o, (void *)1, AT_EMPTY_PATH, &some);
    SET(99, "", AT_EMPTY_PATH, &some);
    SET(99, NULL, AT_EMPTY_PATH, &some);
    SET(AT_FDCWD, "missing", 0, (void *)1);
    SET(AT_FDCWD, "missing", 0, &nothing);
    SET(AT_FDCWD, "missing", 0, &some);
    SET(o, "", AT_EMPTY_PATH, &some);
    T(mkdir("a/x", 0755));
    T(close(o));
    T(umount("a"));
}

GROUP(mounts, pivot_root_paths)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, NULL));
    T(mkdir("a/d", 0755) | mkdir("a/d/in", 0755));
    make("a/f", "text");
#define PIVOT(from, to) TN(#from " " #to, syscall(SYS_pivot_root, from, to))
    PIVOT(NULL, NULL);
    PIVOT((void *)1, "a");
    PIVOT("a", (void *)1);
    PIVOT("a/none", "a");
    PIVOT("a", "a/none");
    PIVOT("a/f", "a");
    PIVOT("a", "a/f");
    PIVOT("a/f/x", "a");
    PIVOT("a/d", "a/d/in");
    PIVOT("a/none", (void *)1);
    PIVOT("", "a");
    PIVOT("a", "");
    PIVOT("a/d", "a");
    PIVOT("/proc", "a");
    PIVOT("a/d", "/proc");
    CHILD {
        become_nobody();
        PIVOT("a", "a/d");
        PIVOT("a/none", "a");
        PIVOT(NULL, NULL);
    }
    T(chdir("a"));
    PIVOT(NULL, NULL);
    PIVOT("", ".");
    PIVOT("d", ".");
    T(chdir(".."));
    T(umount("a"));
}

GROUP(watch, fanotify_descriptors)
{
    make_dir("a");
    make("f", "text");
    int o = T(open("a", O_PATH)), r = T(open("f", O_RDONLY)), pipes[2];
    T(pipe(pipes));
#define MARK(fd, flags, mask, at, path) \
    TN(#fd " " #flags " " #mask " " #path, syscall(SYS_fanotify_mark, fd, flags, mask, at, path))
    MARK(-1, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "a");
    MARK(99, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "a");
    MARK(99, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "missing");
    MARK(99, FAN_MARK_ADD, FAN_OPEN, o, NULL);
    MARK(99, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, (void *)1);
    MARK(99, FAN_MARK_ADD, 0, AT_FDCWD, "a");
    MARK(99, 0, 0, AT_FDCWD, "a");
    MARK(99, FAN_MARK_ADD | FAN_MARK_REMOVE, FAN_OPEN, AT_FDCWD, "a");
    MARK(99, 1 << 26, FAN_OPEN, AT_FDCWD, "a");
    MARK(99, FAN_MARK_ADD, 1ull << 40, AT_FDCWD, "a");
    MARK(99, FAN_MARK_FLUSH, 0, AT_FDCWD, "a");
    MARK(o, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "a");
    MARK(r, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "a");
    MARK(r, 0, 0, AT_FDCWD, "a");
    MARK(pipes[0], FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "a");
    MARK(pipes[0], FAN_MARK_FLUSH, 0, AT_FDCWD, "a");
}

/* What a read of nothing reports. */
#define REPORTS(call)                                                                                       \
    do {                                                                                                    \
        T(call);                                                                                            \
        struct inotify_event event[16];                                                                     \
        ssize_t got = read(events, event, sizeof event);                                                    \
        say("  %s %x", got < 0 ? "no event" : "event", got < 0 ? 0 : event[0].mask);                         \
    } while (0)

GROUP(watch, reads_of_nothing)
{
    char bytes[8];
    struct iovec some = {bytes, sizeof bytes}, none = {bytes, 0};
    make("f", "text");
    make_dir("d");
    int events = T(inotify_init1(IN_NONBLOCK));
    T(inotify_add_watch(events, "f", IN_ACCESS | IN_MODIFY));
    int fd = T(open("f", O_RDWR));
    REPORTS(readv(fd, &some, 0));
    REPORTS(readv(fd, &none, 1));
    REPORTS(readv(fd, &some, 1));
    REPORTS(readv(fd, &some, 1));
    REPORTS(preadv(fd, &some, 0, 0));
    REPORTS(preadv(fd, &none, 1, 0));
    REPORTS(preadv(fd, &some, 1, 100));
    REPORTS(preadv2(fd, &none, 1, 0, RWF_HIPRI));
    REPORTS(preadv2(fd, &some, 1, 100, RWF_HIPRI));
    REPORTS(preadv2(fd, &some, 1, -1, RWF_HIPRI));
    REPORTS(preadv(fd, &some, 0, -1));
    REPORTS(read(fd, bytes, 0));
    REPORTS(read(fd, bytes, 1));
    REPORTS(pread(fd, bytes, 0, 0));
    REPORTS(pread(fd, bytes, 1, 100));
    REPORTS(writev(fd, &some, 0));
    REPORTS(writev(fd, &none, 1));
    REPORTS(pwritev(fd, &none, 1, 0));
    REPORTS(write(fd, bytes, 0));
    int only = T(open("f", O_WRONLY));
    REPORTS(readv(only, &none, 1));
    T(inotify_add_watch(events, "d", IN_ACCESS));
    int dir = T(open("d", O_RDONLY | O_DIRECTORY));
    REPORTS(readv(dir, &none, 1));
    REPORTS(readv(dir, &some, 1));
    REPORTS(preadv(dir, &none, 1, 0));
}

GROUP(mounts, failed_contexts)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, "size=1m"));
    int file = T(open("a/f", O_RDONLY | O_CREAT, 0600)), path = T(open("a", O_PATH));
#define CONFIG(fd, command, key, value) TN(#fd " " #command " " #key " " #value, syscall(SYS_fsconfig, fd, command, key, value, 0))
    int fs = T(syscall(SYS_fspick, AT_FDCWD, "a", 0));
    CONFIG(fs, 0, "noswap", NULL);
    CONFIG(fs, 9, NULL, NULL);
    CONFIG(fs, 7, NULL, NULL);
    CONFIG(fs, 7, NULL, NULL);
    CONFIG(fs, 1, "size", "2m");
    CONFIG(fs, 1, "size", NULL);
    CONFIG(fs, 6, NULL, NULL);
    CONFIG(fs, 9, NULL, NULL);
    T(close(fs));
    int again = T(open("a/f", O_RDONLY));
    CONFIG(again, 6, NULL, NULL);
    CONFIG(path, 6, NULL, NULL);
    T(syscall(SYS_fsmount, path, 0, 0));
    T(syscall(SYS_fsmount, file, 0, 0));
    T(syscall(SYS_fsmount, file, 2, 0));
    T(syscall(SYS_fsmount, file, 0, 0x100));
    CHILD {
        become_nobody();
        T(syscall(SYS_fsmount, file, 0, 0));
        T(syscall(SYS_fsmount, 99, 0, 0));
    }
    T(close(file) | close(path) | close(again));
    T(umount("a"));
}
