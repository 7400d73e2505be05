/* Calls whose place is a process of their own: execveat(2) of what is no program, fork(2) with
 * descriptors. */
#include "odd.h"

struct call {
    int fd, flags;
    struct path path;
};

static void execute(const void *of)
{
    static char *none[] = { NULL };
    const struct call *call = of;
    long done = syscall(SYS_execveat, call->fd, call->path.at, none, none, call->flags);
    say(done, "execveat(%d, %s, none, none, 0x%x)", call->fd == AT_FDCWD ? call->fd : call->fd >= 0, call->path.text, call->flags);
}

static void write_and_leave(const void *of)
{
    const struct call *call = of;
    DO(write(call->fd, "child", 5), "write(fd, \"child\", 5)");
    DO(unlink(call->path.at), "unlink(%s)", call->path.text);
}

void programs(void)
{
    char dir[16];
    struct call call = { .fd = dir_fd(dir) };
    call.path = path(0);
    call.flags = PICK(0, 0, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, 1, 0x10000);
    int status = in_child(roll(3) ? execute : write_and_leave, &call);
    if (status)
        say(status, "a child's end");
}
