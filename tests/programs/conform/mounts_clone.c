/* open_tree(2) with OPEN_TREE_CLONE: trees of mounts that only a descriptor leads to. */
#include "mounts.h"

enum { CLONE = 1, RECURSIVE = 0x8000, FROM_FD = 4, TO_FD = 0x40, BENEATH = 0x200 };

static int apart(void)
{
    return apart_with("abc");
}

static int tree(int at, const char *path, int flags)
{
    return syscall(SYS_open_tree, at, path, flags);
}

static int put(int from, const char *path, int to, const char *target, int flags)
{
    return syscall(SYS_move_mount, from, path, to, target, flags);
}

static long attr(int fd, const char *path, int flags, long set, long clear)
{
    struct { uint64_t set, clear, propagation, userns; } given = { set, clear, 0, 0 };
    return syscall(SYS_mount_setattr, fd, path, flags, &given, sizeof given);
}

/* What an open file contains; it is closed. */
static void say_content(int fd)
{
    char text[32] = "";
    say("  %ld %s", (long)read(fd, text, sizeof text - 1), text);
    close(fd);
}

static uint64_t id(int at, const char *path)
{
    struct statx x = { 0 };
    return statx(at, path, AT_EMPTY_PATH, 0x4000, &x) ? 0 : *(uint64_t *)((char *)&x + 0x90);
}

static void say_names(int fd)
{
    struct dirent **found;
    int count = T(scandirat(fd, ".", &found, NULL, alphasort));
    for (int i = 0; i < count; i++)
        if (found[i]->d_name[0] != '.')
            say("  %s", found[i]->d_name);
}

/* A file system on `a` with a file and a directory, on which there is another. */
static void two_mounts(void)
{
    T(mount("none", "a", "tmpfs", 0, NULL));
    make("a/f", "a file");
    make_dir("a/sub");
    make("a/sub/hidden", "below");
    T(mount("none", "a/sub", "tmpfs", 0, NULL));
    make("a/sub/inner", "in the other");
}

GROUP(mounts, clone)
{
    if (!apart())
        return;
    two_mounts();
    int one = T(tree(AT_FDCWD, "a", CLONE)), all = T(tree(AT_FDCWD, "a", CLONE | RECURSIVE | O_CLOEXEC));
    say("close on exec: %d %d, flags %x", fcntl(one, F_GETFD), fcntl(all, F_GETFD), fcntl(one, F_GETFL));
    T(read(one, NULL, 0));
    say("ids differ: %d %d", id(one, "") != id(AT_FDCWD, "a"), id(one, "") != id(all, ""));
    struct stat x, y;
    T(fstat(one, &x));
    T(stat("a", &y));
    say("one inode %d, one device %d", x.st_ino == y.st_ino, x.st_dev == y.st_dev);
    say_content(T(openat(one, "f", O_RDONLY)));
    say_content(T(openat(one, "sub/hidden", O_RDONLY)));
    T(faccessat(one, "sub/inner", F_OK, 0));
    say_content(T(openat(all, "sub/inner", O_RDONLY)));
    T(faccessat(all, "sub/hidden", F_OK, 0));
    say_names(one);
    /* Nothing is above it. */
    T(fstatat(all, "..", &x, 0));
    say("above: %d", x.st_ino == y.st_ino);
    T(faccessat(all, "sub/../../../f", F_OK, 0));
    T(close(T(openat(all, "sub/made", O_WRONLY | O_CREAT, 0600))));
    T(access("a/sub/made", F_OK));
    T(unlinkat(all, "sub/made", 0));
    /* The mounts that they are made of can go. */
    T(umount("a/sub"));
    T(umount("a"));
    T(access("a/f", F_OK));
    say_content(T(openat(one, "f", O_RDONLY)));
    say_content(T(openat(all, "sub/inner", O_RDONLY)));
    CHILD {
        say_content(T(openat(all, "sub/inner", O_RDONLY)));
        T(close(all));
    }
    int sub = T(openat(all, "sub", O_PATH)), other = T(dup(all));
    T(close(all));
    say_content(T(openat(other, "sub/inner", O_RDONLY)));
    T(close(other));
    say_content(T(openat(sub, "inner", O_RDONLY)));
    T(close(sub));
    T(fchdir(one));
    char path[PATH_MAX];
    say("cwd %s", getcwd(path, sizeof path) ? path : strerrorname_np(errno));
    T(mount("none", "sub", "tmpfs", 0, NULL));
    T(mount(".", "sub", NULL, MS_MOVE, NULL));
    T(mount(NULL, ".", NULL, MS_SHARED, NULL));
    T(umount2(".", MNT_DETACH));
    T(access("sub/hidden", F_OK));
    T(close(one));
    T(access("sub/hidden", F_OK));
    T(chdir("/"));
}

GROUP(mounts, clone_attached)
{
    if (!apart())
        return;
    two_mounts();
    int all = T(tree(AT_FDCWD, "a", CLONE | RECURSIVE));
    uint64_t own = id(all, ""), below = id(all, "sub");
    T(put(all, "sub", AT_FDCWD, "b", 0));
    T(put(all, "f", AT_FDCWD, "b", 0));
    T(put(all, "", AT_FDCWD, "b", 0));
    T(put(all, "", AT_FDCWD, "b", FROM_FD));
    say("its ids: %d %d", id(AT_FDCWD, "b") == own, id(AT_FDCWD, "b/sub") == below);
    contents("b/f");
    contents("b/sub/inner");
    say_content(T(openat(all, "sub/inner", O_RDONLY)));
    T(umount("b"));
    T(umount("b/sub"));
    T(umount("b"));
    /* It has a place now. */
    T(faccessat(all, "../a/f", F_OK, 0));
    T(put(all, "", AT_FDCWD, "c", FROM_FD));
    contents("c/f");
    T(access("b/f", F_OK));
    T(umount("c"));
    T(close(all));
    T(umount("c"));
    /* Without its descriptor it stays where it was put. */
    all = T(tree(AT_FDCWD, "a", CLONE | RECURSIVE));
    T(put(all, "", AT_FDCWD, "b", FROM_FD));
    T(close(all));
    make_dir("d");
    T(mount("none", "d", "tmpfs", 0, NULL));
    T(umount("d"));
    contents("b/sub/inner");
    T(umount2("b", MNT_DETACH));
    T(access("b/f", F_OK));
    /* Into another mount, twice. */
    make_dir("a/deep");
    int one = T(tree(AT_FDCWD, "a", CLONE)), two = T(tree(AT_FDCWD, "a/sub", CLONE));
    T(put(one, "", AT_FDCWD, "a/deep", FROM_FD));
    contents("a/deep/f");
    T(put(two, "", one, "sub", FROM_FD));
    contents("a/deep/sub/inner");
    int to = T(tree(AT_FDCWD, "a/deep/deep", 0)), three = T(tree(AT_FDCWD, "b", CLONE));
    T(put(three, "", to, "", FROM_FD | TO_FD));
    T(close(one) | close(two) | close(three) | close(to));
    T(umount("a/deep/deep"));
    T(umount("a/deep/sub"));
    T(umount("a/deep"));
    T(umount("a/sub"));
    T(umount("a"));
}

GROUP(mounts, clone_attributes)
{
    if (!apart())
        return;
    two_mounts();
    int all = T(tree(AT_FDCWD, "a", CLONE | RECURSIVE));
    T(attr(all, "", AT_EMPTY_PATH | RECURSIVE, 1, 0));
    T(openat(all, "new", O_WRONLY | O_CREAT, 0600));
    T(openat(all, "sub/new", O_WRONLY | O_CREAT, 0600));
    T(close(T(open("a/new", O_WRONLY | O_CREAT, 0600))));
    T(attr(all, "sub", 0, 0, 1));
    T(attr(all, "f", 0, 0, 1));
    T(put(all, "", AT_FDCWD, "b", FROM_FD));
    T(mkdir("b/dir", 0700));
    T(mkdir("b/sub/dir", 0700));
    T(attr(all, "", AT_EMPTY_PATH, 0, 1));
    T(mkdir("b/dir", 0700));
    T(mkdir("b/sub/dir", 0700));
    T(close(all));
    T(umount("b/sub"));
    T(umount("b"));
    /* A file. */
    int file = T(tree(AT_FDCWD, "a/f", CLONE));
    struct stat st;
    T(fstat(file, &st));
    T(put(file, "", AT_FDCWD, "b", FROM_FD));
    make("b/g", "covered");
    T(put(file, "", AT_FDCWD, "b/g", FROM_FD));
    contents("b/g");
    T(close(file));
    T(umount("b/g"));
    contents("b/g");
    /* A link. */
    T(symlink("a", "link"));
    file = T(tree(AT_FDCWD, "link", CLONE));
    T(faccessat(file, "f", F_OK, 0));
    T(close(file));
    file = T(tree(AT_FDCWD, "link", CLONE | AT_SYMLINK_NOFOLLOW));
    T(fstat(file, &st));
    say("a link %d", S_ISLNK(st.st_mode));
    T(close(file));
    /* By a descriptor. */
    int dir = T(open("a", O_RDONLY | O_DIRECTORY));
    T(tree(dir, "", CLONE));
    file = T(tree(dir, "", CLONE | AT_EMPTY_PATH));
    int again = T(tree(file, "", CLONE | AT_EMPTY_PATH));
    say("others: %d %d", id(file, "") != id(dir, ""), id(file, "") != id(again, ""));
    say_content(T(openat(again, "f", O_RDONLY)));
    T(close(dir) | close(file) | close(again));
    /* What fails. */
    T(tree(AT_FDCWD, "missing", CLONE));
    T(tree(AT_FDCWD, "a/f/x", CLONE));
    T(tree(AT_FDCWD, "a", CLONE | 0x10));
    T(tree(AT_FDCWD, "missing", RECURSIVE));
    T(tree(99, "a", CLONE));
    T(mount(NULL, "a", NULL, MS_UNBINDABLE, NULL));
    T(tree(AT_FDCWD, "a", CLONE));
    T(tree(AT_FDCWD, "a/sub", CLONE) >= 0);
    T(mount(NULL, "a", NULL, MS_PRIVATE, NULL));
    CHILD {
        become_nobody();
        T(tree(AT_FDCWD, "a", CLONE));
        T(tree(AT_FDCWD, "missing", CLONE));
        T(tree(AT_FDCWD, "a", CLONE | 0x10));
        T(close(tree(AT_FDCWD, "a", 0)));
    }
    T(umount2("a", MNT_DETACH));
}

static int put_beneath(int from, const char *target)
{
    return put(from, "", AT_FDCWD, target, FROM_FD | BENEATH);
}

/* Two mounts on `b`, of which the upper one is the older. */
static void beneath_another(void)
{
    T(mount("none", "b", "tmpfs", 0, NULL));
    make("b/g", "upper");
    int all = T(tree(AT_FDCWD, "a", CLONE | RECURSIVE));
    T(put_beneath(all, "b"));
    T(close(all));
}

GROUP(mounts, beneath)
{
    if (!apart())
        return;
    two_mounts();
    beneath_another();
    contents("b/g");
    T(access("b/f", F_OK));
    T(umount("b"));
    contents("b/f");
    contents("b/sub/inner");
    T(umount("b/sub"));
    T(umount("b"));
    T(umount("b"));
    /* Three, of which the middle one comes last. */
    beneath_another();
    int one = T(tree(AT_FDCWD, "a/sub", CLONE));
    T(put_beneath(one, "b"));
    T(close(one));
    contents("b/g");
    T(umount("b"));
    contents("b/inner");
    T(umount("b"));
    contents("b/sub/inner");
    T(umount2("b", MNT_DETACH));
    T(access("b/f", F_OK));
    /* All at once. */
    beneath_another();
    T(umount2("b", MNT_DETACH));
    contents("b/f");
    T(umount2("b", MNT_DETACH));
    T(umount("b"));
    /* What has a place. */
    T(mount("none", "b", "tmpfs", 0, NULL));
    make("b/g", "upper");
    T(mount("none", "c", "tmpfs", 0, NULL));
    make("c/h", "moved");
    T(put(AT_FDCWD, "c", AT_FDCWD, "b", BENEATH));
    T(access("c/h", F_OK));
    T(umount("b"));
    contents("b/h");
    T(umount("b"));
    T(umount2("a", MNT_DETACH));
}

GROUP(mounts, beneath_in_a_shared_mount)
{
    if (!apart())
        return;
    two_mounts();
    make_dir("a/x");
    T(mount(NULL, "a", NULL, MS_SHARED, NULL));
    T(mount("a", "c", NULL, MS_BIND, NULL));
    T(mount("none", "a/x", "tmpfs", 0, NULL));
    make("c/x/g", "upper");
    int one = T(tree(AT_FDCWD, "a/sub", CLONE));
    T(put_beneath(one, "a/x"));
    T(close(one));
    contents("a/x/g");
    contents("c/x/g");
    T(umount("a/x"));
    contents("a/x/inner");
    contents("c/x/inner");
    T(umount("c/x"));
    T(access("a/x/inner", F_OK));
    T(access("c/x/inner", F_OK));
    /* It would go to the mount that it is beneath. */
    T(mount("a/x", "a/x", NULL, MS_BIND, NULL));
    one = T(tree(AT_FDCWD, "a/sub", CLONE));
    T(put_beneath(one, "a/x"));
    T(close(one));
    T(umount("a/x"));
    T(umount2("a", MNT_DETACH));
    T(umount2("c", MNT_DETACH));
}

GROUP(mounts, beneath_refused)
{
    if (!apart())
        return;
    two_mounts();
    T(mount("none", "b", "tmpfs", 0, NULL));
    make("b/g", "upper");
    make_dir("b/d");
    int all = T(tree(AT_FDCWD, "a", CLONE | RECURSIVE)), file = T(tree(AT_FDCWD, "a/f", CLONE));
    T(put_beneath(all, "c"));
    T(put_beneath(all, "b/d"));
    T(put_beneath(all, "b/missing"));
    T(put_beneath(file, "b"));
    T(put(all, "sub", AT_FDCWD, "b", BENEATH));
    T(put(AT_FDCWD, "b", AT_FDCWD, "b", BENEATH));
    T(put(AT_FDCWD, "a/sub", AT_FDCWD, "a", BENEATH));
    T(put(AT_FDCWD, "a", AT_FDCWD, "a/sub", BENEATH));
    T(put(AT_FDCWD, "a/sub", AT_FDCWD, "b", BENEATH | 0x100));
    T(mount("none", "a/sub", "tmpfs", 0, NULL));
    T(put(AT_FDCWD, "a", AT_FDCWD, "b", BENEATH | 0x400));
    CHILD {
        become_nobody();
        T(put_beneath(all, "b"));
    }
    T(close(all) | close(file));
    T(umount2("b", MNT_DETACH));
    T(umount2("a", MNT_DETACH));
}

static int tree_attr(const char *path, int flags, uint64_t set, uint64_t clear, size_t size)
{
    struct { uint64_t set, clear, propagation, userns; } given = { set, clear, 0, 0 };
    return syscall(467, AT_FDCWD, path, flags, size ? &given : NULL, size);
}

GROUP(mounts, open_tree_attr)
{
    if (!apart())
        return;
    two_mounts();
    int one = T(tree_attr("a", CLONE | O_CLOEXEC, 1, 0, 32));
    say("close on exec: %d, flags %x", fcntl(one, F_GETFD), fcntl(one, F_GETFL));
    T(openat(one, "new", O_WRONLY | O_CREAT, 0600));
    T(close(T(open("a/new", O_WRONLY | O_CREAT, 0600))));
    T(put(one, "", AT_FDCWD, "b", FROM_FD));
    T(mkdir("b/dir", 0700));
    T(mkdir("b/sub/dir", 0700));
    T(close(one));
    /* Clears what the copy has. */
    one = T(tree_attr("b", CLONE, 0, 1, 32));
    T(close(T(openat(one, "of_the_copy", O_WRONLY | O_CREAT, 0600))));
    T(close(one));
    T(umount("b"));
    int all = T(tree_attr("a", CLONE | RECURSIVE, 1, 0, 32));
    T(openat(all, "sub/new", O_WRONLY | O_CREAT, 0600));
    T(close(all));
    /* Of the mount itself. */
    one = T(tree_attr("a/sub", 0, 1, 0, 32));
    T(openat(one, "new", O_WRONLY | O_CREAT, 0600));
    T(open("a/sub/new", O_WRONLY | O_CREAT, 0600));
    T(close(one));
    T(close(T(tree_attr("a/sub", 0, 0, 1, 32))));
    T(close(T(open("a/sub/new", O_WRONLY | O_CREAT, 0600))));
    /* What fails leaves nothing open. */
    T(tree_attr("a/f", 0, 1, 0, 32));
    T(tree_attr("a", CLONE, 1ULL << 40, 0, 32));
    T(tree_attr("a", CLONE, 0x10, 0, 32));
    T(tree_attr("a", CLONE, 1, 0, 8));
    T(tree_attr("a", CLONE, 1, 0, 5000));
    T(tree_attr("a", 0x10, 1, 0, 32));
    T(tree_attr("missing", CLONE, 1, 0, 32));
    T(syscall(467, AT_FDCWD, "a", CLONE, NULL, 32));
    T(syscall(467, AT_FDCWD, "a", CLONE, (void *)8, 32));
    T(close(T(tree_attr("a", CLONE, 0, 0, 32))));
    T(close(T(tree_attr("a", CLONE, 0, 0, 0))));
    T(close(T(tree_attr("a/f", 0, 0, 0, 32))));
    CHILD {
        become_nobody();
        T(tree_attr("a", CLONE, 1, 0, 32));
        T(tree_attr("a", 0, 1, 0, 32));
        T(close(T(tree_attr("a", 0, 0, 0, 0))));
    }
    say("the lowest is free: %d", dup(0));
    T(umount2("a", MNT_DETACH));
}

/* A copy belongs to the peer group of what it is a copy of. */
GROUP(mounts, clone_shared)
{
    if (!apart())
        return;
    two_mounts();
    make_dir("a/x");
    T(mount(NULL, "a", NULL, MS_SHARED, NULL));
    int one = T(tree(AT_FDCWD, "a", CLONE));
    T(mount(NULL, "a", NULL, MS_PRIVATE, NULL));
    T(mount(NULL, "a", NULL, MS_SHARED, NULL));
    int two = T(tree(AT_FDCWD, "a", CLONE));
    T(put(two, "", AT_FDCWD, "b", FROM_FD));
    T(mount("none", "a/x", "tmpfs", 0, NULL));
    make("a/x/file", "shared");
    contents("b/x/file");
    T(umount("b/x"));
    T(access("a/x/file", F_OK));
    /* Of a group that has no other member any more. */
    T(put(one, "", AT_FDCWD, "c", FROM_FD));
    T(mount("none", "c/x", "tmpfs", 0, NULL));
    T(umount("a/x"));
    T(umount("c/x"));
    T(close(one) | close(two));
    T(umount("c"));
    T(umount("b"));
    T(umount("a/sub"));
    /* A tree goes into a shared mount, and from there to its peer. */
    T(mount("a", "b", NULL, MS_BIND, NULL));
    T(mount("none", "c", "tmpfs", 0, NULL));
    make_dir("c/sub");
    T(mount("none", "c/sub", "tmpfs", 0, NULL));
    make("c/sub/file", "sent");
    int sent = T(tree(AT_FDCWD, "c", CLONE | RECURSIVE));
    T(put(sent, "", AT_FDCWD, "a/x", FROM_FD));
    T(close(sent));
    contents("a/x/sub/file");
    contents("b/x/sub/file");
    T(umount2("a/x", MNT_DETACH));
    T(access("b/x/sub/file", F_OK));
    T(umount("b"));
    T(umount("a"));
    T(umount2("c", MNT_DETACH));
}
