/* fsopen(2), fsconfig(2), fsmount(2), fspick(2): file systems made and changed step by step. */
#include "mounts.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>

enum { FLAG, STRING, BINARY, PATH, PATH_EMPTY, FD, CREATE, RECONFIGURE };
enum { FROM_FD = 4, CLOEXEC = 1, NOFOLLOW = 2, EMPTY = 8 };

static int apart(void)
{
    return apart_with("ab");
}

static int context(const char *type, int flags)
{
    return syscall(SYS_fsopen, type, flags);
}

static int config(int fd, int command, const char *key, const char *value)
{
    return syscall(SYS_fsconfig, fd, command, key, value, 0);
}

static int finish(int fd, int flags, int attributes)
{
    return syscall(SYS_fsmount, fd, flags, attributes);
}

static int put(int from, const char *target)
{
    return syscall(SYS_move_mount, from, "", AT_FDCWD, target, FROM_FD);
}

static void say_fs(const char *path)
{
    struct statfs st;
    struct statvfs flags;
    struct stat root;
    if (statfs(path, &st) || statvfs(path, &flags) || stat(path, &root)) {
        say("  statfs %s: %s", path, strerrorname_np(errno));
        return;
    }
    say("  %s: type %lx, %ld blocks, %ld files, flags %lx", path, (long)st.f_type, (long)st.f_blocks < 1000 ? (long)st.f_blocks : -1,
        (long)st.f_files < 1000 ? (long)st.f_files : -1,
        flags.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME | ST_RELATIME));
    say("  mode %o, owner %d %d", root.st_mode, (int)root.st_uid, (int)root.st_gid);
}

/* Type, source and options in /proc. */
static void say_table(const char *name)
{
    char line[1024], point[512], source[128], options[256];
    FILE *table = fopen("/proc/self/mountinfo", "r");
    while (fgets(line, sizeof line, table))
        if (sscanf(line, "%*s %*s %*s %*s %511s %*[^-]- tmpfs %127s %255s", point, source, options) == 3 &&
            !strcmp(strrchr(point, '/') + 1, name))
            say("  %s: %s %s", name, source, options);
    fclose(table);
}

GROUP(mounts, fsmount)
{
    if (!apart())
        return;
    char text[64];
    int fs = T(context("tmpfs", CLOEXEC));
    say("close on exec: %d", fcntl(fs, F_GETFD));
    T(read(fs, text, sizeof text));
    T(config(fs, STRING, "source", "the source"));
    T(config(fs, STRING, "size", "64k"));
    T(config(fs, STRING, "nr_inodes", "100"));
    T(config(fs, STRING, "mode", "0750"));
    T(config(fs, STRING, "uid", "7"));
    T(config(fs, STRING, "gid", "8"));
    T(config(fs, STRING, "none_such", "8"));
    T(finish(fs, CLOEXEC, 0));
    T(config(fs, CREATE, NULL, NULL));
    int mount_fd = T(finish(fs, CLOEXEC, 2 | 8));
    say("close on exec: %d, flags %x", fcntl(mount_fd, F_GETFD), fcntl(mount_fd, F_GETFL));
    struct stat st;
    T(fstat(mount_fd, &st));
    say("mode %o, owner %d", st.st_mode, (int)st.st_uid);
    T(put(mount_fd, "a"));
    say_fs("a");
    say_table("a");
    /* The descriptor is that of the mount. */
    T(close(T(openat(mount_fd, "file", O_WRONLY | O_CREAT, 0600))));
    T(access("a/file", F_OK));
    make("a/other", "in it");
    T(faccessat(mount_fd, "other", F_OK, 0));
    T(umount("a"));
    T(close(mount_fd));
    T(umount("a"));
    T(finish(fs, 0, 0));
    T(close(fs));
    /* With defaults. */
    fs = T(context("tmpfs", 0));
    T(config(fs, CREATE, NULL, NULL));
    mount_fd = T(finish(fs, 0, 0x20));
    T(close(fs));
    T(put(mount_fd, "a"));
    T(close(mount_fd));
    say_fs("a");
    say_table("a");
    T(mkdir("a/dir", 0755));
    /* Read-only, in it. */
    fs = T(context("tmpfs", 0));
    T(config(fs, FLAG, "ro", NULL));
    T(config(fs, STRING, "source", "inner"));
    T(config(fs, CREATE, NULL, NULL));
    mount_fd = T(finish(fs, 0, 1));
    T(put(mount_fd, "a/dir"));
    T(close(fs) | close(mount_fd));
    say_fs("a/dir");
    say_table("dir");
    T(mkdir("a/dir/x", 0755));
    T(umount("a/dir"));
    /* Only its mount, or only the file system. */
    for (int whole = 0; whole < 2; whole++) {
        fs = T(context("tmpfs", 0));
        T(config(fs, FLAG, "ro", NULL));
        if (!whole)
            T(config(fs, FLAG, "rw", NULL));
        T(config(fs, CREATE, NULL, NULL));
        mount_fd = T(finish(fs, 0, !whole));
        T(put(mount_fd, "a/dir"));
        T(close(fs) | close(mount_fd));
        say_table("dir");
        T(mkdir("a/dir/x", 0755));
        T(mount("a/dir", "b", NULL, MS_BIND, NULL));
        T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND, NULL));
        T(mkdir("b/x", 0755));
        T(umount("b"));
        T(umount("a/dir"));
    }
    /* It goes only once, and only to a directory. */
    fs = T(context("tmpfs", 0));
    T(config(fs, CREATE, NULL, NULL));
    mount_fd = T(finish(fs, 0, 0));
    make("a/file", "");
    T(put(mount_fd, "a/file"));
    T(put(mount_fd, "a/missing"));
    CHILD {
        become_nobody();
        T(put(mount_fd, "b"));
    }
    T(put(mount_fd, "a/dir"));
    T(put(mount_fd, "b"));
    T(close(fs) | close(mount_fd));
    T(access("a/dir", F_OK));
    T(umount("b"));
    T(umount("a"));
    T(context("none_such", 0));
    T(context("tmpfs", 2));
    CHILD {
        become_nobody();
        T(context("tmpfs", 0));
    }
}

static int pick(int at, const char *path, int flags)
{
    return syscall(SYS_fspick, at, path, flags);
}

GROUP(mounts, fspick)
{
    if (!apart())
        return;
    char text[64];
    T(mount("name", "a", "tmpfs", MS_NOSUID, "size=64k"));
    T(mount("a", "b", NULL, MS_BIND, NULL));
    T(mkdir("a/dir", 0755));
    int fs = T(pick(AT_FDCWD, "a", CLOEXEC));
    say("close on exec: %d", fcntl(fs, F_GETFD));
    T(read(fs, text, sizeof text));
    T(config(fs, STRING, "size", "128k"));
    T(config(fs, STRING, "none_such", "128k"));
    T(config(fs, CREATE, NULL, NULL));
    T(finish(fs, 0, 0));
    say_fs("a");
    T(config(fs, RECONFIGURE, NULL, NULL));
    say_fs("a");
    /* Read-only: the file system, in all its mounts. */
    T(config(fs, FLAG, "ro", NULL));
    int file = T(open("a/file", O_WRONLY | O_CREAT, 0600));
    T(config(fs, RECONFIGURE, NULL, NULL));
    T(close(file));
    T(close(fs));
    fs = T(pick(AT_FDCWD, "b", 0));
    T(config(fs, FLAG, "ro", NULL));
    T(config(fs, RECONFIGURE, NULL, NULL));
    T(mkdir("a/x", 0755));
    T(mkdir("b/x", 0755));
    say_fs("a");
    say_table("a");
    T(close(fs));
    fs = T(pick(AT_FDCWD, "a", 0));
    T(config(fs, STRING, "size", "256k"));
    T(config(fs, RECONFIGURE, NULL, NULL));
    T(mkdir("a/x", 0755));
    T(close(fs));
    fs = T(pick(AT_FDCWD, "a", 0));
    T(config(fs, FLAG, "rw", NULL));
    T(config(fs, RECONFIGURE, NULL, NULL));
    T(mkdir("a/x", 0755));
    say_fs("b");
    T(close(fs));
    int dir = T(open("a", O_PATH));
    fs = T(pick(dir, "", EMPTY));
    T(config(fs, STRING, "nr_inodes", "50"));
    T(config(fs, RECONFIGURE, NULL, NULL));
    T(close(fs) | close(dir));
    say_fs("a");
    /* By a duplicate. */
    fs = T(pick(AT_FDCWD, "a", 0));
    int other = T(dup(fs));
    T(config(fs, STRING, "nr_inodes", "60"));
    T(config(other, STRING, "size", "512k"));
    T(config(other, RECONFIGURE, NULL, NULL));
    say_fs("a");
    T(config(fs, STRING, "nr_inodes", "70"));
    T(config(fs, RECONFIGURE, NULL, NULL));
    T(close(fs) | close(other));
    say_fs("a");
    T(pick(AT_FDCWD, "a/dir", 0));
    T(pick(AT_FDCWD, "a/file", 0));
    T(pick(AT_FDCWD, "a/none", 0));
    T(pick(AT_FDCWD, "a", 16));
    T(pick(AT_FDCWD, "", 0));
    CHILD {
        become_nobody();
        T(pick(AT_FDCWD, "a", 0));
        T(pick(AT_FDCWD, "a/none", 16));
    }
    T(umount("b"));
    T(umount("a"));
}
