/* A process that limits itself by a filter of seccomp(2) that does not allow all of the gate's calls. */
#include "differ.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* Allows every call except membarrier(2), which no case makes. */
static int limit(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 4, code };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

static void say_mapping(const char *text, void *at)
{
    say(text, at == MAP_FAILED ? -1 : 0);
}

/* Descriptors and mappings. */
CASE(limited_files)
{
    int lowest = open("f", O_CREAT | O_RDWR, 0644);
    if (ftruncate(lowest, 4096) || close(lowest) || limit())
        return 1;
    int fd = open("f", O_RDWR);
    tell("open: %s number", fd == lowest ? "the lowest" : "another");
    say_mapping("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    say_mapping("mmap of code", mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
    return 0;
}

/* A filter with a verdict on a call that the gate answers. */
CASE(limited_and_asked)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdirat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 4, code };
    char path[4200];
    snprintf(path, sizeof path, "%s/d", host);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
        return 1;
    say("mkdirat", mkdirat(AT_FDCWD, "d", 0700));
    say("on the host", mkdirat(AT_FDCWD, path, 0700));
    return 0;
}

/* Restrictions and other credentials. */
CASE(limited_rights)
{
    struct rlimit size = { 1 << 20, 1 << 20 };
    struct { uint64_t files; } handled = { 1 << 2 };
    int rules = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (limit())
        return 1;
    say("landlock", syscall(SYS_landlock_restrict_self, rules, 0));
    say("setrlimit", setrlimit(RLIMIT_FSIZE, &size));
    say("setuid", setuid(1000));
    return 0;
}

/* Children, and another program. */
CASE(limited_processes)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/f", directory);
    make("f", 0644);
    if (chdir("/") || limit())
        return 1;
    IN_CHILD {
        say("child", open(name, O_RDONLY));
    }
    pid_t child = vfork();
    if (child == 0)
        _exit(0);
    say("vfork", child);
    int fd = open(name, O_RDONLY);
    child = fork();
    if (child == 0)
        _exit(0);
    say("fork", child);
    close(fd);
    execl("/usr/bin/echo", "echo", "executed", NULL);
    say("exec", -1);
    return 0;
}

static sigjmp_buf out;

static void jump(int number)
{
    siglongjmp(out, number);
}

/* The times of a file after a write through a mapping. */
CASE(limited_times)
{
    struct stat before, after;
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    if (ftruncate(fd, 4096))
        return 1;
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    fstat(fd, &before);
    usleep(50000);
    if (at == MAP_FAILED || limit())
        return 1;
    at[0] = 1;
    msync(at, 4096, MS_SYNC);
    fstat(fd, &after);
    int is_same = is_same_time(&before, &after);
    tell("%s", is_same ? "the old time" : "the new time");
    return 0;
}

/* A mapping of a file that another process cuts, made under a filter that allows every call. */
CASE(mapped_under_a_filter)
{
    struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog program = { 1, code };
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    if (ftruncate(fd, 8192) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
        return 1;
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return 1;
    at[4096] = 1;
    IN_CHILD {
        _exit(ftruncate(fd, 0));
    }
    signal(SIGBUS, jump);
    if (sigsetjmp(out, 1) == 0)
        tell("%d", ((volatile char *)at)[4096]);
    else
        tell("SIGBUS");
    return 0;
}

/* Opening a file for which another process has a lease. Only a process without a limit can remove what a
 * lease leaves on the host. */
CASE(limited_opener)
{
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    close(fd);
    signal(SIGIO, SIG_IGN);
    fd = open("f", O_RDWR);
    if (fcntl(fd, F_SETLEASE, F_WRLCK))
        return 1;
    int child = fork();
    if (child == 0) {
        if (limit())
            _exit(1);
        say("open", open("f", O_RDONLY | O_NONBLOCK));
        _exit(0);
    }
    ended(child);
    return 0;
}

/* A watch on a directory in which the process changes something. */
CASE(limited_and_watched)
{
    char room[4096];
    int fd = inotify_init1(IN_NONBLOCK);
    if (inotify_add_watch(fd, ".", IN_CREATE) < 0)
        return 1;
    int child = fork();
    if (child == 0)
        _exit(limit() || mkdir("d", 0755));
    ended(child);
    say("event", read(fd, room, sizeof room));
    return 0;
}
