/* link and rename with one path in the file system and one in another: errors that precede EXDEV. */
#include "mounts.h"

static void both(const char *name, const char *old, const char *new)
{
    say("%s", name);
    TN("link", link(old, new));
    TN("linkat, followed", linkat(AT_FDCWD, old, AT_FDCWD, new, AT_SYMLINK_FOLLOW));
    TN("rename", rename(old, new));
    TN("renameat2, not replacing", syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 1));
    TN("renameat2, exchanging", syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 2));
    TN("renameat2, with an unknown flag", syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 1 << 20));
}

GROUP(across, errors_before_exdev)
{
    char far[100], path[200], other[200];
    sprintf(far, "/tmp/conform-%d", getpid());
    T(mkdir(far, 0755) == 0);
    make("f", "here");
    make_dir("d");
    T(symlink("f", "l"));
    T(symlink("none", "dangling"));
    sprintf(path, "%s/file", far);
    make(path, "there");
    static const char *const far_names[] = { "file", "none", "none/none", "file/none", "none/", "file/", ".", "..", "" };
    for (unsigned i = 0; i < sizeof far_names / sizeof *far_names; i++) {
        sprintf(path, "%s/%s", far, far_names[i]);
        char said[250];
        sprintf(said, "to %s of the other", far_names[i]);
        both(said, "f", path);
        sprintf(said, "from %s of the other", far_names[i]);
        both(said, path, "g");
    }
    sprintf(path, "%s/free", far);
    static const char *const near_names[] = { "none", "none/none", "f/none", "f/", "d", "d/", "l", "dangling", ".", "..", "d/..", "" };
    for (unsigned i = 0; i < sizeof near_names / sizeof *near_names; i++) {
        char said[250];
        sprintf(said, "from %s here", near_names[i]);
        both(said, near_names[i], path);
        sprintf(other, "%s/file", far);
        sprintf(said, "to %s here", near_names[i]);
        both(said, other, near_names[i]);
    }
    say("descriptors");
    sprintf(other, "%s/file", far);
    TN("link from a closed descriptor", linkat(99, "x", AT_FDCWD, path, 0));
    TN("link to a closed descriptor", linkat(AT_FDCWD, other, 99, "x", 0));
    TN("rename from a closed descriptor", renameat(99, "x", AT_FDCWD, path));
    TN("rename to a closed descriptor", renameat(AT_FDCWD, other, 99, "x"));
    int fd = open("f", O_RDONLY);
    TN("link from a file as a directory", linkat(fd, "x", AT_FDCWD, path, 0));
    TN("link to a file as a directory", linkat(AT_FDCWD, other, fd, "x", 0));
    TN("rename to a file as a directory", renameat(AT_FDCWD, other, fd, "x"));
    TN("a bad pointer", link("f", (const char *)1));
    TN("a bad pointer", rename((const char *)1, other));
    sprintf(path, "%s/file", far);
    T(unlink(path));
    T(rmdir(far));
}

/* Symbolic links that lead through the kernel's magic links: back in, to a device, and to nothing. */
GROUP(across, links_through_proc)
{
    close(0);
    T(open("/dev/null", O_RDWR));
    make_dir("d");
    make_dir("d/e");
    make("f", "here");
    T(symlink("/proc/self/fd/0", "null"));
    T(symlink("/proc/self/fd/0/a", "below"));
    T(symlink("/proc/self/cwd", "cwd"));
    T(symlink("/proc/self/cwd/d", "dir"));
    T(symlink("/proc/self/cwd/f", "file"));
    T(symlink("/proc/self/fd/99", "closed"));
    T(symlink("/proc/self/cwd/none", "none"));
    static char longer[300];
    memset(longer, 'n', 256);
    const char *sides[] = { "null", "null/x", "null/.", "below", "below/x", "cwd", "cwd/f", "cwd/none", "dir", "dir/x", "dir/e", "dir/e/.", "file", "file/x",
        "closed", "closed/x", "none", "none/x", "f", "d/y", "d/none/y", "", longer, NULL, "/proc/self/cwd/f", "/proc/self/cwd/file" };
    for (unsigned a = 0; a < COUNT(sides); a++)
        for (unsigned b = 0; b < COUNT(sides); b++) {
            say("%.20s to %.20s", sides[a] ? sides[a] : "NULL", sides[b] ? sides[b] : "NULL");
            /* Each is undone, so that the next finds the same. */
            if (!TN("link", linkat(AT_FDCWD, sides[a], AT_FDCWD, sides[b], 0)))
                T(unlink(sides[b]));
            if (!TN("link, followed", linkat(AT_FDCWD, sides[a], AT_FDCWD, sides[b], AT_SYMLINK_FOLLOW)))
                T(unlink(sides[b]));
            if (!TN("rename", syscall(SYS_renameat2, AT_FDCWD, sides[a], AT_FDCWD, sides[b], 1)))
                TN("back", rename(sides[b], sides[a]));
            if (!TN("exchange", syscall(SYS_renameat2, AT_FDCWD, sides[a], AT_FDCWD, sides[b], 2)))
                TN("back", syscall(SYS_renameat2, AT_FDCWD, sides[a], AT_FDCWD, sides[b], 2));
            TN("wrong flags", syscall(SYS_renameat2, AT_FDCWD, sides[a], AT_FDCWD, sides[b], 3));
            TN("from a closed directory", linkat(99, sides[a], AT_FDCWD, sides[b], AT_SYMLINK_FOLLOW));
            TN("to a closed directory", linkat(AT_FDCWD, sides[a], 99, sides[b], AT_SYMLINK_FOLLOW));
            TN("from a closed directory", renameat(99, sides[a], AT_FDCWD, sides[b]));
            TN("to a closed directory", renameat(AT_FDCWD, sides[a], 99, sides[b]));
        }
}

/* The first path is wrong: the links of the second are not followed. */
GROUP(across, what_is_not_followed)
{
    make_dir("d");
    T(symlink("d", "l"));
    static const struct timespec past[2] = { { 10, 0 }, { 20, 0 } };
    struct stat st;
    const char *wrong[] = { "/none/x", "/proc/version/x" };
    T(utimensat(AT_FDCWD, "l", past, AT_SYMLINK_NOFOLLOW));
    T(renameat(99, "x", AT_FDCWD, "l/x"));
    T(linkat(99, "x", AT_FDCWD, "l/x", 0));
    for (unsigned i = 0; i < COUNT(wrong); i++) {
        T(rename(wrong[i], "l/x"));
        T(link(wrong[i], "l/x"));
    }
    T(lstat("l", &st));
    say("%ld", (long)st.st_atim.tv_sec);
    T(rename("/proc/version", "l/x"));
    T(lstat("l", &st));
    say("followed %d", st.st_atim.tv_sec != 10);
}

/* A mount that is read-only says so before another file system does, and before the directory's mode. */
GROUP(across, read_only)
{
    char far[100], path[200];
    sprintf(far, "/tmp/conform-%d", getpid());
    make("f", "here");
    make_dir("d");
    if (!in_own_namespace())
        return;
    T(mkdir(far, 0755));
    sprintf(path, "%s/file", far);
    make(path, "there");
    T(mount(far, far, NULL, MS_BIND, NULL));
    T(mount(NULL, far, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
    T(mount("d", "d", NULL, MS_BIND, NULL));
    T(mount(NULL, "d", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
    int in = open(far, O_PATH | O_DIRECTORY), out = open("d", O_PATH | O_DIRECTORY);
    for (int user = 0; user < 2; user++)
        CHILD {
            if (user)
                become_nobody();
            T(linkat(AT_FDCWD, "f", in, "x", 0));
            T(linkat(AT_FDCWD, "f", in, "file", 0));
            T(linkat(AT_FDCWD, "f", in, "none/x", 0));
            T(linkat(AT_FDCWD, "f", in, "x/", 0));
            T(linkat(AT_FDCWD, "none", in, "x", 0));
            T(linkat(AT_FDCWD, "/proc/version", out, "x", 0));
            T(linkat(AT_FDCWD, "/proc/version", AT_FDCWD, "d/x", 0));
            T(linkat(AT_FDCWD, "f", out, "x", 0));
            T(renameat(AT_FDCWD, "f", in, "x"));
            T(renameat(in, "file", AT_FDCWD, "d/x"));
        }
    T(umount2("d", MNT_DETACH));
    T(umount2(far, MNT_DETACH));
    T(unlink(path));
    T(rmdir(far));
}

/* Names of directories that cannot be renamed, across file systems and not: the file systems come first. */
GROUP(across, dots_and_the_root)
{
    make_dir("d");
    const char *names[] = { ".", "..", "/", "//", "d/.", "d/..", "/proc/.", "/proc/..", "/proc", "/dev/." };
    for (unsigned i = 0; i < COUNT(names); i++)
        for (unsigned j = 0; j < COUNT(names); j++) {
            errno = 0;
            long done = rename(names[i], names[j]);
            say("%s %s %ld %s", names[i], names[j], done, done ? strerrorname_np(errno) : "");
        }
}
