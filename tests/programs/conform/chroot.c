/* chroot: where paths start, and where they end. */
#include "conform.h"
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

/* The directory that the group runs in. */
static char home[PATH_MAX];

/* Says a path, with the group's directory left out. */
static void say_path(const char *text, const char *path)
{
    const char *found = strstr(path, home);
    if (found)
        say("%s: %.*s[]%s", text, (int)(found - path), path, found + strlen(home));
    else
        say("%s: %s", text, path);
}

static void say_cwd(void)
{
    char path[PATH_MAX];
    errno = 0;
    if (syscall(SYS_getcwd, path, sizeof path) < 0)
        say("getcwd: %s", strerrorname_np(errno));
    else
        say_path("getcwd", path);
}

static void say_link(int dir, const char *path)
{
    char text[PATH_MAX];
    errno = 0;
    long got = readlinkat(dir, path, text, sizeof text - 1);
    text[got < 0 ? 0 : got] = 0;
    if (got < 0)
        say("readlink %s: %s", path, strerrorname_np(errno));
    else
        say_path(path, text);
}

/* A tree with links, and a process that may change its root. */
static int prepare(void)
{
    getcwd(home, sizeof home);
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0)
        return 0;
    make("out", "outside");
    make_dir("r");
    make_dir("r/a");
    make_dir("r/a/b");
    make("r/a/f", "inside");
    make("r/out", "namesake");
    symlink("/a/f", "r/absolute");
    symlink("a/f", "r/relative");
    symlink("/../../a/../out", "r/crooked");
    symlink("../../../out", "r/a/b/up");
    symlink("/etc/passwd", "r/host");
    symlink("/nowhere", "r/dangling");
    symlink("/a", "r/dir");
    symlink("/", "r/top");
    return 1;
}

static void same(const char *a, const char *b)
{
    struct stat x, y;
    errno = 0;
    if (stat(a, &x) != 0 || stat(b, &y) != 0)
        say("%s, %s: %s", a, b, strerrorname_np(errno));
    else
        say("%s, %s: %s", a, b, x.st_ino == y.st_ino && x.st_dev == y.st_dev ? "same" : "differ");
}

GROUP(chroot, errors)
{
    char name[300];
    if (!prepare())
        return;
    memset(name, 'n', sizeof name);
    name[299] = 0;
    make_dir("closed");
    chmod("closed", 0644);
    symlink("loop", "loop");
    for (int user = 0; user < 2; user++) {
        CHILD {
            if (user)
                become_nobody();
            T(chroot("none"));
            T(chroot("out"));
            T(chroot("out/x"));
            T(chroot(""));
            T(chroot(NULL));
            T(chroot((char *)1));
            T(chroot("loop"));
            T(chroot("r/dangling"));
            TN("long name", chroot(name));
            if (user)
                T(chroot("closed"));
            T(chroot("r/top/none"));
            say("%s", "allowed?");
            T(chroot("r"));
        }
    }
}

GROUP(chroot, paths)
{
    if (!prepare())
        return;
    CHILD {
        T(chdir("r"));
        T(chroot("."));
        say_cwd();
        contents("/a/f");
        contents("//a/./f");
        contents("/../a/f");
        contents("/a/../../../a/f");
        contents("/absolute");
        contents("absolute");
        contents("/relative");
        contents("/crooked");
        contents("/a/b/up");
        contents("/dir/f");
        contents("/dir/../out");
        T(access("/host", F_OK));
        T(access("/etc/passwd", F_OK));
        T(access(home, F_OK));
        T(access("/proc/self/exe", F_OK));
        T(access("/dev/null", F_OK));
        T(open("/dev/zero", O_RDONLY));
        same("/", "/..");
        same("/", ".");
        same("/", "/top");
        same("/", "/top/top/..");
        same("/a", "/dir");
        same("..", "/");
        T(chdir("/a/b"));
        say_cwd();
        same("../..", "/");
        same("../../../..", "/");
        T(chdir("../../.."));
        say_cwd();
        T(chdir("/"));
        say_cwd();
        T(mkdir("/new", 0755));
        T(open("/new/f", O_CREAT | O_WRONLY, 0644));
        T(rename("/new/f", "/new/g"));
        T(link("/new/g", "/new/h"));
        T(rename("/new/h", "a/h"));
        T(symlink("/new/g", "/new/s"));
        T(truncate("/new/s", 5));
        T(unlink("/a/h"));
        T(open("/dangling", O_CREAT | O_WRONLY, 0644));
        T(access("/nowhere", F_OK));
        T(rmdir("/"));
        T(mkdir("/", 0755));
        T(rename("/a", "/"));
        T(unlink("/"));
        T(rmdir("/.."));
        T(rmdir("/."));
        T(chroot("/a"));
        same("/", "/..");
        contents("/f");
        T(access("/a", F_OK));
        say_cwd();
        contents("out");
    }
    attributes("r/new/g");
    attributes("r/nowhere");
}

GROUP(chroot, outside)
{
    if (!prepare())
        return;
    int here = open(".", O_RDONLY | O_DIRECTORY), path = open(".", O_PATH | O_DIRECTORY), top = open("/", O_PATH);
    CHILD {
        T(chroot("r"));
        say_cwd();
        contents("out");
        contents("/out");
        contents("r/out");
        contents("r/absolute");
        contents("r/../out");
        T(chdir("r"));
        say_cwd();
        same("..", "/");
        T(fchdir(here));
        say_cwd();
        contents("out");
        T(faccessat(here, "out", F_OK, 0));
        T(faccessat(path, "r/a/f", F_OK, 0));
        T(faccessat(here, "r/../out", F_OK, 0));
        T(faccessat(here, "/out", F_OK, 0));
        T(faccessat(here, home, F_OK, 0));
        T(chdir("/a"));
        T(fchdir(path));
        T(chdir(".."));
        T(faccessat(top, "etc/passwd", F_OK, 0));
        char inner[PATH_MAX];
        snprintf(inner, sizeof inner, "%s/out", home + 1);
        TN("from the top", faccessat(top, inner, F_OK, 0));
        T(fchdir(top));
        say_cwd();
        TN("from there", access(inner, F_OK));
        T(access("etc/passwd", F_OK));
        T(chroot("."));
        say_cwd();
        T(access("/etc/passwd", F_OK));
        TN("by its name", access(home, F_OK));
        T(fchdir(here));
        say_cwd();
        contents("out");
    }
    CHILD {
        /* The way out that is known from everywhere. */
        T(chroot("r"));
        T(chdir("/"));
        T(chroot("a"));
        for (int i = 0; i < 64; i++)
            if (chdir("..") != 0)
                say("chdir: %s", strerrorname_np(errno));
        T(chroot("."));
        T(access("/etc/passwd", F_OK));
        say_cwd();
    }
    CHILD {
        T(chdir("r/a/b"));
        T(chroot(".."));
        say_cwd();
        same("..", "/");
        same("../..", "/");
        T(rename("../../a", "../../moved"));
        contents("/f");
        same("/", "/..");
        say_cwd();
        CHILD {
            T(fchdir(here));
            contents("r/moved/f");
        }
    }
    CHILD {
        make_dir("gone");
        T(chroot("gone"));
        T(rmdir("gone"));
        T(access("/", F_OK));
        T(access("/x", F_OK));
        T(mkdir("/x", 0755));
        T(access("/..", F_OK));
        say_cwd();
        T(chdir("/"));
        say_cwd();
    }
}

static void *in_thread(void *unused)
{
    (void)unused;
    T(chroot("r"));
    contents("/a/f");
    return NULL;
}

static void *looks(void *unused)
{
    (void)unused;
    contents("/a/f");
    return NULL;
}

static void run(void *(*work)(void *))
{
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
}

/* The contents of a file whose name must not be shown. */
static void contents_as(const char *name, const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY);
    long got = read(fd, text, sizeof text - 1);
    say("%s: %ld '%s'", name, got, text);
    close(fd);
}

GROUP(chroot, inherited)
{
    if (!prepare())
        return;
    char inner[PATH_MAX + 8];
    snprintf(inner, sizeof inner, "%s/out", home);
    CHILD {
        contents_as("outside", inner);
        T(chroot("r"));
        CHILD {
            contents("/a/f");
            T(chroot("/a"));
            contents("/f");
        }
        contents("/a/f");
        TN("by its name", access(inner, F_OK));
        pid_t child = vfork();
        if (child == 0)
            _exit(access("/a/f", F_OK) == 0 && access("/etc/passwd", F_OK) != 0 ? 7 : 8);
        say_wait(child);
        child = vfork();
        if (child == 0)
            _exit(chroot("/a") == 0 && access("/f", F_OK) == 0 ? 9 : 10);
        say_wait(child);
        contents("/a/f");
        run(looks);
    }
    CHILD {
        run(in_thread);
        contents("/a/f");
        TN("by its name", access(inner, F_OK));
        run(looks);
    }
    contents_as("outside", inner);
}

GROUP(chroot, exec)
{
    if (!prepare())
        return;
    make("r/script", "#!/bin/sh\n");
    make("r/empty", "");
    make("r/none", "#!/nowhere/sh\n");
    chmod("r/script", 0755);
    chmod("r/none", 0755);
    CHILD {
        char *const arguments[] = { "x", NULL };
        T(chroot("r"));
        T(execv("/bin/sh", arguments));
        T(execv("/bin/true", arguments));
        T(execv("/script", arguments));
        T(execv("/none", arguments));
        T(execv("/empty", arguments));
        T(execv("/a", arguments));
        T(execv("script", arguments));
    }
}

static void open_limited(const char *text, int dir, const char *path, uint64_t resolve)
{
    errno = 0;
    int fd = open_how(dir, path, (struct open_how){ .flags = O_RDONLY, .resolve = resolve });
    char got[16] = "";
    if (fd < 0) {
        say("%s %s: %s", text, path, strerrorname_np(errno));
        return;
    }
    struct stat st;
    fstat(fd, &st);
    if (S_ISREG(st.st_mode) && pread(fd, got, sizeof got - 1, 0) < 0)
        strcpy(got, "unreadable");
    say("%s %s: %o '%s'", text, path, st.st_mode & S_IFMT, got);
    close(fd);
}

GROUP(chroot, resolve)
{
    static const struct {
        const char *name;
        uint64_t flags;
    } limits[] = {
        { "free", 0 },
        { "xdev", RESOLVE_NO_XDEV },
        { "symlinks", RESOLVE_NO_SYMLINKS },
        { "beneath", RESOLVE_BENEATH },
        { "root", RESOLVE_IN_ROOT },
    };
    static const char *const paths[] = { "/a/f", "a/f", "/absolute", "absolute", "/crooked", "/..", "..",
                                         "../out", "/out", "out", "b/up", "/a/b/up", "/top", "/dir/f" };
    if (!prepare())
        return;
    int here = open(".", O_PATH | O_DIRECTORY), r = open("r", O_PATH | O_DIRECTORY), a = open("r/a", O_PATH | O_DIRECTORY);
    CHILD {
        T(chroot("r"));
        for (unsigned i = 0; i < COUNT(limits); i++) {
            say("%s", limits[i].name);
            for (unsigned j = 0; j < COUNT(paths); j++) {
                open_limited("here", here, paths[j], limits[i].flags);
                open_limited("r", r, paths[j], limits[i].flags);
                open_limited("a", a, paths[j], limits[i].flags);
            }
        }
    }
}

GROUP(chroot, proc)
{
    if (!prepare())
        return;
    char name[64];
    int proc, fds, f = open("r/a/f", O_RDONLY), out = open("out", O_RDONLY);
    CHILD {
        proc = open("/proc/self", O_PATH | O_DIRECTORY);
        fds = open("/proc/self/fd", O_PATH | O_DIRECTORY);
        T(chroot("r"));
        T(chdir("/a/b"));
        say_link(proc, "cwd");
        say_link(proc, "root");
        sprintf(name, "%d", f);
        say_link(fds, name);
        sprintf(name, "%d", out);
        say_link(fds, name);
        T(faccessat(proc, "root/a/f", F_OK, 0));
        T(faccessat(proc, "root/out", F_OK, 0));
        T(faccessat(proc, "cwd/../f", F_OK, 0));
        T(faccessat(proc, "root/..", F_OK, 0));
    }
    int ready[2];
    pipe(ready);
    pid_t child = fork();
    if (child == 0) {
        char byte = chroot("r") == 0 && chdir("/a") == 0 ? 'y' : 'n';
        write(ready[1], &byte, 1);
        pause();
        _exit(0);
    }
    char byte = 0;
    read(ready[0], &byte, 1);
    say("ready: %c", byte);
    sprintf(name, "/proc/%d/root", child);
    char text[PATH_MAX] = "";
    T(readlink(name, text, sizeof text - 1) > 0);
    say_path("root", text);
    strcat(name, "/a/f");
    TN("through it", access(name, F_OK));
    sprintf(name, "/proc/%d/cwd", child);
    memset(text, 0, sizeof text);
    T(readlink(name, text, sizeof text - 1) > 0);
    say_path("cwd", text);
    kill(child, 9);
    say_wait(child);
}

GROUP(chroot, namespaces)
{
    if (geteuid() != 0 || !prepare())
        return;
    int mounts = open("/proc/self/ns/mnt", O_RDONLY), user = open("/proc/self/ns/user", O_RDONLY);
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    struct clone_args arguments = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
    CHILD {
        T(chroot("r"));
        T(chdir("/a"));
        T(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
        T(syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
        T(syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, 0, 0, 0, 0));
        T(syscall(SYS_clone3, &arguments, sizeof arguments));
        T(unshare(CLONE_NEWUSER));
        T(setns(user, CLONE_NEWUSER));
        T(setns(user, CLONE_NEWNS));
        contents("/a/f");
        T(setns(mounts, CLONE_NEWNS));
        say_cwd();
        contents("/a/f");
        contents("f");
        T(access("/etc/passwd", F_OK));
        TN("by its name", access(home, F_OK));
        T(unshare(CLONE_NEWUSER));
    }
    CHILD {
        T(chdir("r/a"));
        contents("f");
        T(setns(mounts, 0));
        say_cwd();
        contents("f");
    }
    CHILD {
        T(chroot("r"));
        T(setns(self, CLONE_NEWNS));
        say_cwd();
        T(access("/etc/passwd", F_OK));
    }
}
