/* Calls on a removed directory, by `.` and by descriptors, and on those from which it was removed, by `..`. */
#include "conform.h"
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

/* Changes and looks at a removed directory, or one of those above. */
static void use(const char *text, const char *path)
{
    struct stat st = { 0 };
    struct statfs fs;
    char bytes[16];
    say("%s", text);
    T(chmod(path, 0700));
    T(chown(path, 1, 1));
    T(utimensat(AT_FDCWD, path, NULL, 0));
    T(setxattr(path, "user.a", "b", 1, 0));
    T(getxattr(path, "user.a", bytes, sizeof bytes));
    T(listxattr(path, bytes, sizeof bytes));
    T(access(path, R_OK | W_OK | X_OK));
    T(statfs(path, &fs));
    T(stat(path, &st));
    say("mode %o links %lu owner %u", st.st_mode, (unsigned long)st.st_nlink, st.st_uid);
    T(open(path, O_RDONLY) > 0);
    T(open(path, O_PATH) > 0);
    T(open(path, O_TMPFILE | O_RDWR, 0600));
    T(truncate(path, 5));
    T(readlink(path, bytes, sizeof bytes));
    T(rmdir(path));
    T(rename(path, "new"));
    T(rename("none", path));
    T(removexattr(path, "user.a"));
}

GROUP(removed, itself)
{
    make_dir("d");
    chdir("d");
    int above = open("..", O_RDONLY), fd = open(".", O_RDONLY);
    T(unlinkat(above, "d", AT_REMOVEDIR));
    use("the working directory", ".");
    use("with a slash", "./");
    use("twice", "./.");
    T(fchmodat(fd, ".", 0711, 0));
    T(fchownat(fd, ".", 2, 2, 0));
    T(faccessat(fd, ".", R_OK, 0));
    T(fchdir(fd));
    T(chdir("."));
    T(chdir("/"));
    T(fchmodat(fd, ".", 0755, 0));
    T(fchmodat(fd, "./.", 0755, 0));
    T(fchmodat(fd, "..", 0755, 0));
    T(fchdir(fd));
    /* The second path is looked at when the first leads somewhere. */
    T(renameat(AT_FDCWD, "e", -1, "l"));
    T(renameat(-1, "e", AT_FDCWD, "l"));
    T(linkat(AT_FDCWD, ".", -1, "l", 0));
    T(renameat(AT_FDCWD, "e", above, "l"));
    T(linkat(AT_FDCWD, ".", above, "l", 0));
    T(mkdir("x", 0777));
    T(symlink("x", "y"));
}

/* Enough that whatever is not in use any more is found and used again. */
static void make_and_remove(int dir)
{
    char name[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "y%d", i);
        close(openat(dir, name, O_CREAT | O_RDWR, 0600));
        unlinkat(dir, name, 0);
    }
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "x%d", i);
        mkdirat(dir, name, 0755);
    }
}

/* Removes what make_and_remove has left. */
static void remove_made(int dir)
{
    char name[16];
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "x%d", i);
        unlinkat(dir, name, AT_REMOVEDIR);
    }
}

GROUP(removed, above)
{
    make_dir("d"), make_dir("d/e"), make_dir("d/e/f"), make_dir("d/e/f/g");
    int top = open(".", O_RDONLY);
    int fd = open("d/e/f/g", O_PATH);
    chdir("d/e/f");
    T(unlinkat(top, "d/e/f/g", AT_REMOVEDIR));
    T(unlinkat(top, "d/e/f", AT_REMOVEDIR));
    T(unlinkat(top, "d/e", AT_REMOVEDIR));
    T(unlinkat(top, "d", AT_REMOVEDIR));
    make_and_remove(top);
    use("above", "..");
    use("above that", "../..");
    T(access("../../../x1", F_OK));
    T(faccessat(fd, "../../../../x1", F_OK, 0));
    T(fchmodat(fd, "..", 0700, 0));
    T(fchmodat(fd, "../..", 0700, 0));
    T(chdir(".."));
    make_and_remove(top);
    use("there", ".");
    use("above there", "..");
    T(chdir(".."));
    close(fd);
    make_and_remove(top);
    T(access("../x1", F_OK));
    T(chdir(".."));
    T(access("x1", F_OK));
    remove_made(top);
}

/* Only a descriptor, or only another process, is still there. */
GROUP(removed, from_elsewhere)
{
    make_dir("d"), make_dir("d/e"), make_dir("d/e/f");
    int top = open(".", O_RDONLY), fd = open("d/e/f", O_RDONLY), ends[2];
    char byte;
    pipe(ends);
    pid_t child = fork();
    if (!child) {
        chdir("d/e/f");
        close(fd), close(ends[1]);
        read(ends[0], &byte, 1);
        _exit((access("..", F_OK) != 0) + 2 * (access("../..", F_OK) != 0) + 4 * (access("../../..", F_OK) != 0));
    }
    close(ends[0]);
    T(unlinkat(top, "d/e/f", AT_REMOVEDIR));
    T(unlinkat(top, "d/e", AT_REMOVEDIR));
    T(unlinkat(top, "d", AT_REMOVEDIR));
    make_and_remove(top);
    T(faccessat(fd, "../..", F_OK, 0));
    int above = T(openat(fd, "..", O_RDONLY)) > 0;
    close(fd);
    make_and_remove(top);
    close(ends[1]);
    say_wait(child);
    say("%d", above);
}

/* A removed directory is asked for no name, however long it is. */
GROUP(removed, long_names)
{
    char name[260];
    memset(name, 'n', 256);
    name[256] = 0;
    make_dir("d");
    chdir("d");
    int above = open("..", O_RDONLY);
    T(access(name, F_OK));
    T(mkdir(name, 0700));
    T(unlinkat(above, "d", AT_REMOVEDIR));
    use("the name", name);
    T(mkdir(name, 0700));
    T(open(name, O_CREAT | O_RDWR, 0600));
    T(symlink("x", name));
    T(unlink(name));
    T(chdir(name));
    memcpy(name + 256, "/b", 3);
    use("below it", name);
    T(mkdir(name, 0700));
}

/* What the link says, below the directory `top`. */
static void say_link(const char *link, const char *top)
{
    char text[PATH_MAX] = "";
    ssize_t length = readlink(link, text, sizeof text - 1);
    size_t skip = strlen(top);
    say("%s: %d %s", link, length > 0, strncmp(text, top, skip) ? text : text + skip);
}

GROUP(removed, links_to_it)
{
    char top[PATH_MAX], own[64];
    getcwd(top, sizeof top);
    snprintf(own, sizeof own, "/proc/%d/cwd", getpid());
    make_dir("d"), make_dir("d/e");
    int fd = open("d/e", O_RDONLY), above = open("d", O_RDONLY);
    dup2(fd, 30), dup2(above, 31);
    chdir("d/e");
    say_link("/proc/self/cwd", top);
    T(unlinkat(31, "e", AT_REMOVEDIR));
    say_link("/proc/self/cwd", top);
    say_link("/proc/self/fd/30", top);
    T(mkdirat(31, "e", 0755));
    struct stat here, link;
    T(stat(".", &here)), T(stat("/proc/self/cwd", &link));
    say("%d", here.st_ino == link.st_ino);
    T(stat(own, &link));
    say("%d", here.st_ino == link.st_ino);
    T(unlinkat(31, "e", AT_REMOVEDIR));
    T(fchdir(31));
    T(unlinkat(open("..", O_PATH), "d", AT_REMOVEDIR));
    say_link("/proc/self/cwd", top);
    say_link("/proc/self/fd/31", top);
}

/* The name of something removed is not that of something made since. */
GROUP(removed, names_used_again)
{
    char top[PATH_MAX], text[PATH_MAX] = "";
    getcwd(top, sizeof top);
    int dir = open(".", O_RDONLY);
    make_dir("d");
    make("f", "text");
    int fd = open("f", O_RDONLY);
    dup2(fd, 30);
    chdir("d");
    T(unlinkat(dir, "f", 0));
    T(unlinkat(dir, "d", AT_REMOVEDIR));
    make_and_remove(dir);
    for (const char **link = (const char *[]){ "/proc/self/cwd", "/proc/self/fd/30", NULL }; *link; link++) {
        ssize_t length = readlink(*link, text, sizeof text - 1);
        text[length > 0 ? length : 0] = 0;
        say("%s: another's %d, deleted %d", *link, strstr(text, "/x") != NULL, strstr(text, " (deleted)") != NULL);
    }
    fchdir(dir);
    remove_made(dir);
}

/* A removed directory stays while somebody is in it, by whatever reference. */
GROUP(removed, in_use_by_one_reference_after_another)
{
    make_dir("d");
    int pipes[2];
    T(pipe(pipes));
    pid_t child = fork();
    if (!child) {
        T(chdir("d"));
        T(rmdir("../d"));
        write(pipes[1], "r", 1);
        /* A large table takes long to look through. */
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max < 15001 ? limit.rlim_max : 15001;
        setrlimit(RLIMIT_NOFILE, &limit);
        dup2(pipes[1], limit.rlim_cur - 1);
        int lost = 0;
        for (int i = 0; i < 20000 && !lost; i++) {
            int fd = open(".", O_RDONLY);
            lost = fd < 0 || chdir("/") || fchdir(fd) || close(fd);
        }
        say("lost %d", lost);
        _exit(0);
    }
    char byte;
    read(pipes[0], &byte, 1);
    while (waitpid(child, NULL, WNOHANG) == 0)
        for (int i = 0; i < 100; i++) {
            make("f", "text");
            unlink("f");
        }
}
