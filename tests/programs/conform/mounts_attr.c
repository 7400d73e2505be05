/* mount_setattr(2), move_mount(2), open_tree(2); the listing of the directory that a mount is in. */
#include "mounts.h"
#include <sys/mman.h>
#include <sys/statvfs.h>

static int apart(void)
{
    if (!apart_with("ab"))
        return 0;
    make_dir("a/sub");
    make("a/f", "a file");
    return 1;
}

static int bind(const char *from, const char *to)
{
    return mount(from, to, NULL, MS_BIND, NULL);
}

static long attr(int fd, const char *path, int flags, long set, long clear, long type)
{
    struct { uint64_t set, clear, propagation, userns; } given = { set, clear, type, 0 };
    return syscall(SYS_mount_setattr, fd, path, flags, &given, sizeof given);
}

static void say_flags(const char *path)
{
    struct statvfs st;
    if (statvfs(path, &st))
        say("  statvfs %s: %s", path, strerrorname_np(errno));
    else
        say("  %s: flags %lx", path,
            st.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME | ST_RELATIME));
}

enum { RDONLY = 1, NOSUID = 2, NODEV = 4, NOEXEC = 8, ATIME = 0x70, NOATIME = 0x10, STRICT = 0x20, NODIRATIME = 0x80 };
enum { RECURSIVE = 0x8000 };

GROUP(mounts, setattr)
{
    if (!apart())
        return;
    T(mount("none", "a", "tmpfs", 0, NULL));
    make_dir("a/sub");
    make("a/f", "text");
    T(mount("none", "a/sub", "tmpfs", 0, NULL));
    T(attr(AT_FDCWD, "a", 0, RDONLY | NOSUID, 0, 0));
    say_flags("a");
    say_flags("a/sub");
    T(open("a/f", O_RDWR));
    T(attr(AT_FDCWD, "a", RECURSIVE, NODEV | NOEXEC, RDONLY, 0));
    say_flags("a");
    say_flags("a/sub");
    T(attr(AT_FDCWD, "a", 0, NOATIME, 0, 0));
    T(attr(AT_FDCWD, "a", 0, NOATIME, NOATIME, 0));
    T(attr(AT_FDCWD, "a", 0, NOATIME | STRICT, ATIME, 0));
    T(attr(AT_FDCWD, "a", 0, NOATIME, ATIME, 0));
    say_flags("a");
    T(attr(AT_FDCWD, "a", 0, STRICT | NODIRATIME, ATIME, 0));
    say_flags("a");
    T(attr(AT_FDCWD, "a", 0, 0, ATIME | NOSUID, 0));
    say_flags("a");
    int fd = T(open("a/sub/w", O_WRONLY | O_CREAT, 0600));
    T(attr(AT_FDCWD, "a", RECURSIVE, RDONLY, 0, 0));
    say_flags("a");
    T(mkdir("a/made", 0700));
    T(close(fd));
    T(attr(AT_FDCWD, "a", RECURSIVE, RDONLY, 0, 0));
    T(mkdir("a/made2", 0700));
    T(mkdir("a/sub/made", 0700));
    T(attr(AT_FDCWD, "a", 0, 0, RDONLY, MS_SHARED));
    T(bind("a", "b"));
    T(mount("none", "a/made", "tmpfs", 0, NULL));
    T(umount("b/made"));
    T(attr(AT_FDCWD, "b", 0, 0, 0, MS_PRIVATE));
    T(umount("b"));
    fd = T(open("a", O_PATH));
    T(attr(fd, "", 0, NOSUID, 0, 0));
    T(attr(fd, "", AT_EMPTY_PATH, NOSUID, 0, 0));
    T(attr(fd, "sub", 0, NOSUID, 0, 0));
    say_flags("a");
    say_flags("a/sub");
    T(close(fd));
    T(attr(AT_FDCWD, "missing", 0, RDONLY, 0, 0));
    T(attr(AT_FDCWD, "missing", 0, 0, 0, 0));
    T(attr(AT_FDCWD, "a/f", 0, RDONLY, 0, 0));
    T(attr(AT_FDCWD, "a", 0x1, RDONLY, 0, 0));
    T(attr(AT_FDCWD, "a", 0, 0x1000, 0, 0));
    T(attr(AT_FDCWD, "a", 0, 0, 0, MS_SHARED | MS_SLAVE));
    T(attr(AT_FDCWD, "a", 0, 0, 0, MS_NODEV));
    T(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, &fd, 8));
    T(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, &fd, 5000));
    T(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, NULL, 32));
    uint64_t longer[5] = { 0, 0, 0, 0, 1 };
    T(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, longer, sizeof longer));
    longer[4] = 0;
    T(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, longer, sizeof longer));
    CHILD {
        become_nobody();
        T(attr(AT_FDCWD, "a", 0, RDONLY, 0, 0));
    }
    T(umount2("a", MNT_DETACH));
}

enum { F_SYMLINKS = 1, F_EMPTY = 4, T_SYMLINKS = 0x10, T_EMPTY = 0x40, SET_GROUP = 0x100 };

GROUP(mounts, move_mount)
{
    if (!apart())
        return;
    make_dir("c");
    T(symlink("a", "to_a"));
    T(mount("none", "a", "tmpfs", 0, NULL));
    make("a/f", "moves");
    make_dir("a/sub");
    T(syscall(SYS_move_mount, AT_FDCWD, "a", AT_FDCWD, "b", 0));
    contents("b/f");
    contents("a/f");
    T(syscall(SYS_move_mount, AT_FDCWD, "b", AT_FDCWD, "to_a", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "b", AT_FDCWD, "to_a", T_SYMLINKS));
    contents("a/f");
    T(syscall(SYS_move_mount, AT_FDCWD, "to_a", AT_FDCWD, "b", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "to_a", AT_FDCWD, "b", F_SYMLINKS));
    int from = T(syscall(SYS_open_tree, AT_FDCWD, "b", 0));
    int to = T(syscall(SYS_open_tree, AT_FDCWD, "c", O_CLOEXEC));
    say("close on exec: %d %d", fcntl(from, F_GETFD), fcntl(to, F_GETFD));
    T(read(from, &to, 1));
    T(syscall(SYS_move_mount, from, "", to, "", 0));
    T(syscall(SYS_move_mount, from, "", to, "", F_EMPTY | T_EMPTY));
    contents("c/f");
    T(faccessat(from, "f", F_OK, 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "c", AT_FDCWD, "c/sub", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "c/sub", AT_FDCWD, "b", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "c/f", AT_FDCWD, "b", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "missing", AT_FDCWD, "b", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "c", AT_FDCWD, "missing", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "c", AT_FDCWD, "b", 0x1000));
    T(close(from));
    T(close(to));
    T(syscall(SYS_open_tree, AT_FDCWD, "missing", 0));
    T(syscall(SYS_open_tree, AT_FDCWD, "c", 0x10));
    T(syscall(SYS_open_tree, AT_FDCWD, "c", RECURSIVE));
    /* Joins a peer group. */
    T(mount(NULL, "c", NULL, MS_SHARED, NULL));
    T(bind("c", "b"));
    T(mount(NULL, "b", NULL, MS_PRIVATE, NULL));
    T(syscall(SYS_move_mount, AT_FDCWD, "b", AT_FDCWD, "c", SET_GROUP));
    T(syscall(SYS_move_mount, AT_FDCWD, "c", AT_FDCWD, "b", SET_GROUP));
    T(syscall(SYS_move_mount, AT_FDCWD, "c", AT_FDCWD, "b", SET_GROUP));
    T(mount("none", "c/sub", "tmpfs", 0, NULL));
    T(umount("b/sub"));
    T(umount("c/sub"));
    T(umount("b"));
    T(umount("c"));
}

/* The directory that the file system of the test is mounted in. */
GROUP(mounts, parent_directory)
{
    DIR *dir = opendir("../..");
    struct dirent *entry;
    struct stat st;
    long after = -1;
    int found = 0, others = 0;
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, "m")) {
            others++;
            continue;
        }
        found++;
        after = telldir(dir);
        T(fstatat(dirfd(dir), "m", &st, 0));
        say("  a directory: %d, its number: %d", entry->d_type == DT_DIR, entry->d_ino == st.st_ino);
    }
    say("found %d times among more than one: %d", found, others > 1);
    /* Behind it there is nothing twice. */
    seekdir(dir, after);
    while ((entry = readdir(dir)))
        if (!strcmp(entry->d_name, "m"))
            say("again");
    rewinddir(dir);
    found = 0;
    while ((entry = readdir(dir)))
        found += !strcmp(entry->d_name, "m");
    say("found %d times", found);
    T(closedir(dir));
    struct dirent **names;
    T(chdir("../.."));
    int count = scandir(".", &names, NULL, alphasort);
    for (int i = found = 0; i < count; i++)
        found += !strcmp(names[i]->d_name, "m");
    say("found %d times", found);
}

/* The 64-bit id of a mount, by statx(2) and by name_to_handle_at(2). */
static uint64_t id(const char *path)
{
    union {
        struct file_handle head;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } handle = { .head.handle_bytes = MAX_HANDLE_SZ };
    uint64_t by_handle = 0;
    struct statx x, both, narrow;
    T(statx(AT_FDCWD, path, 0, 0x4000, &x));
    T(statx(AT_FDCWD, path, 0, 0x4000 | STATX_MNT_ID, &both));
    T(statx(AT_FDCWD, path, 0, STATX_MNT_ID, &narrow));
    uint64_t *wide = (uint64_t *)((char *)&x + 0x90), *again = (uint64_t *)((char *)&both + 0x90);
    say("  %s: mask %x %x %x, %s", path, x.stx_mask, both.stx_mask, narrow.stx_mask,
        *wide == *again && *wide > 1u << 31 ? "one id" : "ids differ");
    say("  narrow: %s", *(uint64_t *)((char *)&narrow + 0x90) < 1u << 31 ? "an int" : "wide");
    T(syscall(SYS_name_to_handle_at, AT_FDCWD, path, &handle, &by_handle, 1));
    say("  by handle: %s", by_handle == *wide ? "same" : "differs");
    return *wide;
}

GROUP(mounts, wide_ids)
{
    if (!apart())
        return;
    T(bind("a", "b"));
    uint64_t below = id("a"), first = id("b");
    say("%d", first > below);
    say("%d", id("b/f") == first);
    int fd = T(open("b/f", O_RDONLY));
    struct statx x;
    T(statx(fd, "", AT_EMPTY_PATH, 0x4000, &x));
    say("%d", *(uint64_t *)((char *)&x + 0x90) == first);
    T(statx(AT_FDCWD, "b", 0x40000000, 0x4000, &x));
    T(statx(AT_FDCWD, "b", AT_STATX_SYNC_TYPE, 0x4000, &x));
    T(statx(AT_FDCWD, "b", 0, 0x80004000, &x));
    T(statx(AT_FDCWD, "none", 0, 0x4000, &x));
    T(close(fd));
    T(umount("b"));
    T(bind("a", "b"));
    say("used again: %d", id("b") == first);
    T(umount("b"));
}

/* Who has a file open in a mount is found, whenever it was opened: one that looks finds the mount busy. */
GROUP(mounts, opened_as_it_goes)
{
    if (!apart())
        return;
    pid_t child = fork();
    if (child == 0) {
        for (unsigned turn = 0;;) {
            mount("a", "b", NULL, MS_BIND, NULL);
            usleep(turn++ % 8 * 50);
            while (umount("b") && errno == EBUSY)
                ;
        }
    }
    int opened = 0, gone = 0;
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    do {
        int fd = open("b/f", O_RDONLY);
        if (fd >= 0) {
            opened = 1;
            gone += umount("b") == 0 || errno != EBUSY;
            close(fd);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < until.tv_sec + (opened ? 2 : 20));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    say("opened %d, in what was unmounted %d", opened, gone);
    umount("b");
}

/* Who has a file open for writing can write: a remount that succeeds has nobody there. */
GROUP(mounts, written_as_it_shuts)
{
    if (!apart())
        return;
    T(bind("a", "b"));
    pid_t child = fork();
    if (child == 0) {
        for (;;) {
            mount(NULL, "b", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL);
            mount(NULL, "b", NULL, MS_BIND | MS_REMOUNT, NULL);
        }
    }
    int opened = 0, refused = 0, shut = 0;
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    do {
        int fd = open(opened % 2 ? "b/f" : "b/new", O_WRONLY | O_CREAT, 0600);
        if (fd >= 0) {
            opened++;
            refused += pwrite(fd, "x", 1, 0) != 1;
            close(fd);
            usleep(opened % 8 * 20);
        } else {
            shut |= errno == EROFS;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < until.tv_sec + (opened > 1 && shut ? 2 : 20));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    say("opened %d, found shut %d, could not write %d", opened > 0, shut, refused);
    umount("b");
    unlink("a/new");
}

/* Who has mapped a file that it had opened for writing keeps its mount writable. */
GROUP(mounts, mapped_as_it_shuts)
{
    if (!apart())
        return;
    T(bind("a", "b"));
    for (int writable = 0; writable < 2; writable++) {
        int fd = T(open("b/f", writable ? O_RDWR : O_RDONLY));
        char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        T(close(fd));
        T(mount(NULL, "b", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
        T(mount(NULL, "b", NULL, MS_BIND | MS_REMOUNT, NULL));
        T(munmap(mapped, 4096));
        T(mount(NULL, "b", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
        T(mount(NULL, "b", NULL, MS_BIND | MS_REMOUNT, NULL));
    }
    T(umount("b"));
}

/* A user namespace that ids cannot be mapped by. */
GROUP(mounts, no_map)
{
    if (geteuid() != 0 || !apart_with("a"))
        return;
    T(mount("x", "a", "tmpfs", 0, NULL));
    int none = open("/dev/null", O_RDONLY), space = open("/proc/self/ns/mnt", O_RDONLY);
    int first = open("/proc/self/ns/user", O_RDONLY), own = open("a/f", O_CREAT | O_RDWR, 0600);
    const struct {
        const char *name;
        uint64_t fd;
    } fds[] = {
        {"no descriptor", -1}, {"a large one", 1UL << 32},     {"a closed one", 1000}, {"a device", none},
        {"a file", own},       {"a mount namespace", space}, {"the first", first},
    };
    for (unsigned i = 0; i < COUNT(fds); i++) {
        uint64_t given[4] = {0x100000, 0, 0, fds[i].fd};
        TN(fds[i].name, syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, given, sizeof given));
        given[0] |= 1UL << 40;
        TN("unknown flag", syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, given, sizeof given));
        uint64_t cleared[4] = {0, 0x100000, 0, fds[i].fd};
        TN("cleared", syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, cleared, sizeof cleared));
    }
    close(own);
    T(umount2("a", 0));
}

/* Types of propagation that no 32 bits hold. */
GROUP(mounts, wide_propagation)
{
    if (geteuid() != 0 || !apart_with("a"))
        return;
    T(mount("x", "a", "tmpfs", 0, NULL));
    const uint64_t types[] = { MS_SHARED, MS_SHARED | 1UL << 40, 1UL << 40, MS_SHARED | MS_PRIVATE, MS_PRIVATE, 0 };
    for (unsigned i = 0; i < COUNT(types); i++) {
        uint64_t given[4] = { 0, 0, types[i], 0 };
        T(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, given, sizeof given));
    }
    T(umount2("a", 0));
}
