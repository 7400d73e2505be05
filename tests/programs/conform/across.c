/* link and rename with one path in the file system and one in another: errors that precede EXDEV. */
#include "conform.h"

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
