// Free space, free inodes and system calls: what a storm measures besides results.
#include "storm.h"
#include <sys/ptrace.h>
#include <sys/user.h>

struct room room(void)
{
    // A directory that had names may keep space for names.
    close(make("stir"));
    unlink("stir");
    struct statfs status;
    if (statfs(dir, &status)) {
        bad("statfs: %s", strerror(errno));
        return (struct room){0};
    }
    return (struct room){status.f_bfree, status.f_ffree};
}

void same_room(struct room before)
{
    // On a file system that others use too there is nothing to compare.
    if (number("shared", 0))
        return;
    struct room after = room();
    if (after.blocks == before.blocks && after.files == before.files)
        return;
    bad("after the last waitpid %ld blocks and %ld inodes are missing", before.blocks - after.blocks,
        before.files - after.files);
    for (int i = 0; i < 300; i++) {
        close(make("stir"));
        unlink("stir");
    }
    after = room();
    if (after.blocks != before.blocks || after.files != before.files)
        bad("and after 300 more files still %ld blocks and %ld inodes", before.blocks - after.blocks,
            before.files - after.files);
}

// A call that nothing else makes marks the begin and the end of counting.
#define MARK 0x53746f72

void count_from_here(void)
{
    syscall(SYS_getpriority, MARK, 1);
}

void count_to_here(void)
{
    syscall(SYS_getpriority, MARK, 2);
}

static void (*traced_work)(long);

static void be_traced(long argument)
{
    if (ptrace(PTRACE_TRACEME, 0, 0, 0))
        _exit(97);
    raise(SIGSTOP);
    traced_work(argument);
}

struct calls traced(void (*work)(long), long argument)
{
    struct calls calls = {0};
    traced_work = work;
    pid_t child = start(be_traced, argument);
    int status, counting = 0, entering = 1;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
        bad("ptrace(2) is not allowed here: system calls cannot be counted");
        return calls;
    }
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    long pass = 0;
    while (!ptrace(PTRACE_SYSCALL, child, 0, pass) && waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        pass = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
        if (pass)
            continue;
        if (entering) {
            struct user_regs_struct registers;
            ptrace(PTRACE_GETREGS, child, 0, &registers);
            if (registers.orig_rax == SYS_getpriority && registers.rdi == MARK)
                counting = registers.rsi == 1;
            else if (counting)
                calls.all++, calls.futex += registers.orig_rax == SYS_futex;
        }
        entering = !entering;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        bad("the traced process ended with status %x", status);
    return calls;
}
