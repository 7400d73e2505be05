/* Makes files with the name of a mount in every way that is not its path: through symbolic links of the host,
 * relative to host directories, with `..`. The program's argument is a host directory in which the mount is
 * `m`. Each call is made by a process that has not met the mount and by one that has.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_CALL = 254, NOT_THERE = 255 };

static int top;
static char in_full[512];

static long open_how(const char *path, unsigned long flags, unsigned long resolve)
{
    struct open_how how = { .flags = flags, .mode = flags & O_CREAT ? 0600 : 0, .resolve = resolve };
    return syscall(SYS_openat2, top, path, &how, sizeof how);
}

static long bound(const char *path)
{
    struct sockaddr_un at = { AF_UNIX, "" };
    strcpy(at.sun_path, path);
    return bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof at);
}

static long made_by(int call, const char *path)
{
    switch (call) {
    case 0: return open(path, O_CREAT | O_WRONLY, 0600);
    case 1: return open(path, O_CREAT | O_RDWR | O_TRUNC | O_APPEND | O_CLOEXEC, 0107644);
    case 2: return open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    case 3: return open(path, O_CREAT | O_NOFOLLOW | O_WRONLY, 0600);
    case 4: return open(path, O_CREAT | O_RDONLY, 0600);
    case 5: return openat(top, path, O_CREAT | O_WRONLY | O_NONBLOCK, 0600);
    case 6: return creat(path, 0600);
    case 7: return open_how(path, O_CREAT | O_WRONLY, 0);
    case 8: return open_how(path, O_CREAT | O_WRONLY, RESOLVE_NO_MAGICLINKS);
    case 9: return mkdir(path, 0700);
    case 10: return mkdirat(top, path, 0700);
    case 11: return mknod(path, S_IFIFO | 0600, 0);
    case 12: return mknodat(top, path, S_IFREG | 0600, 0);
    case 13: return symlink("f", path);
    case 14: return symlinkat("f", top, path);
    case 15: return link("f", path);
    case 16: return linkat(top, "f", top, path, 0);
    case 17: return rename("f", path);
    case 18: return renameat2(top, "f", top, path, RENAME_NOREPLACE);
    case 19: return bound(path);
    case 20: return rename("d", path);
    case 21: return rename(path, "x");
    case 22: return renameat2(top, path, top, "f", RENAME_EXCHANGE);
    case 23: return renameat2(top, "f", top, path, RENAME_EXCHANGE);
    case 24: return rename("nosuch", path);
    case 25: return renameat2(top, path, top, "f/", RENAME_EXCHANGE);
    case 26: return renameat2(top, path, top, "by_path/", RENAME_EXCHANGE);
    case 27: return renameat2(top, "f/", top, path, RENAME_EXCHANGE);
    case 28: return rename(path, "f/");
    case 29: return rename("f/", path);
    default: return -2;
    }
}

/* From a directory that is the root directory of the walk. */
static long made_below(int call, const char *path)
{
    return call ? -2 : open_how(path, O_CREAT | O_WRONLY, RESOLVE_IN_ROOT);
}

/* A rename moves a link or replaces it. */
static void make_links(void)
{
    static const char *const links[][2] = {
        { "m", "to" }, { "here/to", "twice" }, { ".", "here" }, { "d", "sub" }, { "/m", "rooted" }, { in_full, "by_path" },
    };
    for (unsigned i = 0; i < sizeof links / sizeof *links; i++) {
        remove(links[i][1]);
        if (symlink(links[i][0], links[i][1]))
            _exit(3);
    }
    remove("x");
    remove("f");
    mkdir("d", 0700);
    if (close(creat("f", 0600)))
        _exit(3);
}

static int made(long (*make)(int, const char *), int call, const char *path, int joined)
{
    int status;
    make_links();
    fflush(stdout);
    if (!fork()) {
        if (joined && access("m/.", F_OK))
            _exit(NOT_THERE);
        errno = 0;
        long result = make(call, path);
        _exit(result == -2 ? NO_CALL : result < 0 ? errno : 0);
    }
    wait(&status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : NOT_THERE;
}

static void attempt(long (*make)(int, const char *), const char *path, const char *shown)
{
    int done;
    for (int call = 0, joined = 0; (done = made(make, call, path, joined)) != NO_CALL; call += joined, joined = !joined)
        printf("%s: call %d %s: %d %s\n", shown, call, joined ? "joined" : "apart", done, strerror(done));
}

int main(int argc, char **argv)
{
    static const char *const names[] = {
        "to", "by_path", "twice", "here/m", "sub/../m", "here/./m", "../%/m", "here/to", "here//by_path", "sub/../to",
    };
    char path[1024], text[512];
    if (argc != 2 || chdir(argv[1]))
        return 2;
    snprintf(in_full, sizeof in_full, "%s/m", argv[1]);
    top = open(".", O_PATH | O_DIRECTORY);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i][0] == '.')
            snprintf(text, sizeof text, "../%s/m", strrchr(argv[1], '/') + 1);
        else
            strcpy(text, names[i]);
        attempt(made_by, text, names[i]);
        snprintf(path, sizeof path, "%s/%s", argv[1], text);
        attempt(made_by, path, names[i]);
    }
    attempt(made_below, "rooted", "rooted");
    attempt(made_below, "/rooted", "/rooted");
    return 0;
}
