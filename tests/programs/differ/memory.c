/* Mappings, and memory that calls are given. */
#include "differ.h"
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/uio.h>

static char *map(int fd, long length, int how)
{
    char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, how, fd, 0);
    if (at == MAP_FAILED)
        tell("mmap %s", strerrorname_np(errno));
    return at;
}

static int make_open(long length)
{
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    if (ftruncate(fd, length))
        tell("ftruncate %s", strerrorname_np(errno));
    return fd;
}

/* Writes from memory to a pipe, which the kernel does. */
static void pass(const char *text, const char *from)
{
    int ends[2];
    pipe(ends);
    say(text, write(ends[1], from, 1));
    close(ends[0]);
    close(ends[1]);
}

/* A shared mapping of four pages as /proc/self/smaps shows it: its file, and whether all flags are those of
 * any file's. */
CASE(shown_mapping)
{
    char line[512], start[32];
    int fd = make_open(4 * 4096), within = 0;
    snprintf(start, sizeof start, "%lx-", (unsigned long)map(fd, 4 * 4096, MAP_SHARED));
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (!strncmp(line, start, strlen(start))) {
            within = 1;
            tell("file %s", strstr(line, "/f\n") ? "f" : strstr(line, "lightpath") ? "the region" : "another");
        }
        if (within && !strncmp(line, "VmFlags:", 8)) {
            tell("userfaultfd %s", strstr(line, " um") || strstr(line, " uw") ? "yes" : "no");
            break;
        }
    }
    return fclose(maps);
}

/* Whether the process has mappings of the gate's, and whether they are dumped. */
CASE(own_mappings)
{
    char line[512];
    int within = 0, found = 0, dumped = 0;
    close(make_open(0));
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            within = strstr(line, "memfd:lightpath") != NULL;
        found |= within;
        dumped |= within && !strncmp(line, "VmFlags:", 8) && !strstr(line, " dd");
    }
    fclose(maps);
    tell("%s%s", found ? "region" : "no region", dumped ? ", dumped" : "");
    FILE *environment = fopen("/proc/self/environ", "r");
    static char text[1 << 16];
    size_t length = fread(text, 1, sizeof text, environment);
    tell("%s", memmem(text, length, "LIGHTPATH_GATE=", 15) ? "the gate's variable" : "no variable");
    return fclose(environment);
}

/* Space that a small hole and a large one take. */
CASE(space_of_holes)
{
    struct stat st;
    int fd = make_open(64 << 10);
    char *at = map(fd, 64 << 10, MAP_SHARED);
    fstat(fd, &st);
    tell("mapped %ld", (long)st.st_blocks);
    munmap(at, 64 << 10);
    if (ftruncate(fd, 0) || ftruncate(fd, 4 << 20))
        return 1;
    at = map(fd, 4 << 20, MAP_SHARED);
    at[2 << 20] = 1;
    fstat(fd, &st);
    tell("touched %ld", (long)st.st_blocks);
    return 0;
}

/* A large hole that process_vm_readv(2) reads. */
CASE(hole_in_a_call)
{
    char byte, *at = map(make_open(4 << 20), 4 << 20, MAP_SHARED);
    struct iovec to = { &byte, 1 }, from = { at + (2 << 20), 1 };
    say("process_vm_readv", process_vm_readv(getpid(), &to, 1, &from, 1, 0));
    return 0;
}

/* SIGBUS, blocked while the process maps a large hole. */
CASE(blocked_while_mapped)
{
    sigset_t set, now;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    map(make_open(4 << 20), 4 << 20, MAP_SHARED);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigprocmask(SIG_BLOCK, NULL, &now);
    tell("%s", sigismember(&now, SIGBUS) ? "blocked" : "not blocked");
    return 0;
}

/* Memory beyond the end of a file that another process has made longer, and memory that one has cut off and
 * made part of the file again, before the program touches either. */
CASE(grown_by_another)
{
    int fd = make_open(4096);
    char *at = map(fd, 2 * 4096, MAP_SHARED);
    at[0] = 1;
    IN_CHILD {
        _exit(pwrite(fd, "x", 1, 2 * 4096 - 1) != 1);
    }
    pass("grown", at + 4096);
    IN_CHILD {
        _exit(munmap(at, 2 * 4096) || ftruncate(fd, 0) || pwrite(fd, "x", 1, 3 * 4096) != 1);
    }
    pass("cut and grown", at);
    return 0;
}

static sigjmp_buf out;

static void jump(int signal)
{
    siglongjmp(out, signal);
}

/* A page of its own that the process has in a mapping, beyond the end that another process has set. */
CASE(copied_page_cut)
{
    int fd = make_open(2 * 4096);
    char *at = map(fd, 2 * 4096, MAP_PRIVATE);
    at[4096] = 'c';
    signal(SIGBUS, jump);
    IN_CHILD {
        _exit(ftruncate(fd, 0));
    }
    if (sigsetjmp(out, 1) == 0)
        tell("%s", ((volatile char *)at)[4096] == 'c' ? "the copy" : "another page");
    else
        tell("SIGBUS");
    return 0;
}

/* A process's write through a mapping, before it looks at the file: the file's time, as another process sees
 * it. */
CASE(times_seen_by_others)
{
    struct stat before, after;
    int ready[2], done[2], fd = make_open(4096);
    char byte;
    fstat(fd, &before);
    if (pipe(ready) || pipe(done))
        return 1;
    usleep(50000);
    IN_CHILD {
        char *at = map(fd, 4096, MAP_SHARED);
        if (fork() == 0) {
            at = map(fd, 4096, MAP_SHARED);
            at[0] = 1;
            if (write(ready[1], "", 1) == 1)
                read(done[0], &byte, 1);
            _exit(0);
        }
    }
    if (read(ready[0], &byte, 1) != 1 || fstat(fd, &after))
        return 1;
    int is_same = is_same_time(&before, &after);
    tell("%s", is_same ? "the old time" : "the new time");
    return write(done[1], "", 1) != 1;
}

/* userfaultfd(2) for a mapping of a file. */
CASE(registered_mapping)
{
    struct uffdio_api api = { .api = UFFD_API };
    char *at = map(make_open(4 * 4096), 4 * 4096, MAP_SHARED);
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_register range = { { (uintptr_t)at, 4 * 4096 }, UFFDIO_REGISTER_MODE_MISSING };
    say("api", ioctl(fd, UFFDIO_API, &api));
    say("register", ioctl(fd, UFFDIO_REGISTER, &range));
    return 0;
}

/* Space that fallocate(2) has taken, once it was touched. */
CASE(touched_space)
{
    int fd = make_open(0);
    if (fallocate(fd, 0, 0, 2 * 4096))
        return 1;
    char *at = map(fd, 2 * 4096, MAP_SHARED);
    tell("byte %d", ((volatile char *)at)[0]);
    say("data", lseek(fd, 0, SEEK_DATA));
    return 0;
}

/* Writes from a bad address: beyond the end of a file. */
CASE(bad_write)
{
    struct stat st;
    int fd = make_open(0);
    say("pwrite", pwrite(fd, (void *)8, 1, 5000));
    fstat(fd, &st);
    tell("size %ld, blocks %ld", (long)st.st_size, (long)st.st_blocks);
    return 0;
}

/* A bad address while the program blocks the signal by which the gate learns of it. */
CASE(blocked_fault)
{
    int fd = make_open(0), status;
    pid_t child = fork();
    if (!child) {
        sigset_t set;
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, NULL);
        say("write", write(fd, (void *)8, 1));
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        tell("signal %d", WTERMSIG(status));
    return 0;
}

/* Data in the last page that a file can have. */
CASE(last_page)
{
    int fd = make_open(0);
    say("pwrite", pwrite(fd, "x", 1, INT64_MAX - 1));
    say("data", lseek(fd, INT64_MAX - 4095, SEEK_DATA) < 0 ? -1 : 0);
    return 0;
}

/* Whether a write through a mapping has changed the times, for a process of a user that is not dumpable. */
CASE(times_of_the_undumpable)
{
    struct stat before, after;
    int fd = make_open(4096);
    if (setresuid(65534, 65534, 65534) || prctl(PR_SET_DUMPABLE, 0))
        return 1;
    char *at = map(fd, 4096, MAP_SHARED);
    fstat(fd, &before);
    usleep(50000);
    at[0] = 1;
    if (munmap(at, 4096) || fstat(fd, &after))
        return 1;
    int is_same = is_same_time(&before, &after);
    tell("%s", is_same ? "the old time" : "the new time");
    return 0;
}
