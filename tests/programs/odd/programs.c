/* Calls whose place is a process of their own: execveat(2) of what is no program, fork(2) with
 * descriptors. */
#include "odd.h"
#include <sys/wait.h>

static void call_in_child(void (*call)(int fd, const struct path *p, int flags), int fd, const struct path *p, int flags)
{
    pid_t child = fork();
    if (child < 0)
        return;
    if (child == 0) {
        call(fd, p, flags);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status)
        say(status, "a child's end");
}

static void execute(int fd, const struct path *p, int flags)
{
    static char *none[] = { NULL };
    long done = syscall(SYS_execveat, fd, p->at, none, none, flags);
    say(done, "execveat(%d, %s, none, none, 0x%x)", fd == AT_FDCWD ? fd : fd >= 0, p->text, flags);
}

static void write_and_leave(int fd, const struct path *p, int flags)
{
    (void)flags;
    DO(write(fd, "child", 5), "write(fd, \"child\", 5)");
    DO(unlink(p->at), "unlink(%s)", p->text);
}

void programs(void)
{
    char dir[16];
    int fd = dir_fd(dir);
    struct path p = path(0);
    int flags = PICK(0, 0, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, 1, 0x10000);
    call_in_child(roll(3) ? execute : write_and_leave, fd, &p, flags);
}
