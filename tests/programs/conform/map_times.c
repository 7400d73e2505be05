/* Times of a file to which the program writes through a mapping. */
#include "map.h"
#include <spawn.h>
#include <sys/syscall.h>

#define BOTH (PROT_READ | PROT_WRITE)
#define NAME "times"

static const struct timespec old[2] = { { 1000, 5 }, { 2000, 7 } };

/* A file of that many pages, with times of long ago, for reading and writing. */
static int aged(int pages)
{
    static char page[PAGE];
    int fd = open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < pages; i++)
        if (write(fd, page, PAGE) != PAGE)
            say("short");
    futimens(fd, old);
    return fd;
}

static void *map(int protection, int flags, int fd, int pages)
{
    return mmap(NULL, pages * PAGE, protection, flags, fd, 0);
}

/* Whether the modification time is still that of `aged`. */
static void times(const char *text)
{
    struct stat st;
    struct statx stx;
    say("%s: %d", text, stat(NAME, &st));
    int same = st.st_mtim.tv_sec == old[1].tv_sec && st.st_mtim.tv_nsec == old[1].tv_nsec;
    int changed = st.st_ctim.tv_sec == st.st_mtim.tv_sec && st.st_ctim.tv_nsec == st.st_mtim.tv_nsec;
    say("%s, change time %s", same ? "old" : "new", changed ? "the same" : "another");
    statx(AT_FDCWD, NAME, 0, STATX_BASIC_STATS, &stx);
    say("statx agrees: %d", stx.stx_mtime.tv_sec == st.st_mtim.tv_sec);
}

GROUP(map, times_of_written_pages)
{
    int fd = aged(4);
    char *at = map(BOTH, MAP_SHARED, fd, 4);
    times("mapped");
    at[0] = 1;
    times("written");
    futimens(fd, old);
    at[PAGE] = 1;
    struct stat st;
    fstat(fd, &st);
    say("fstat: %d", st.st_mtim.tv_sec == 2000);
    at[2 * PAGE] = 1;
    futimens(fd, old);
    munmap(at, 4 * PAGE);
    times("set after a write and unmapped");
    close(fd);
    unlink(NAME);
}

GROUP(map, times_of_read_pages)
{
    int fd = aged(4);
    volatile char *at = map(BOTH, MAP_SHARED, fd, 4);
    char byte = at[0] + at[3 * PAGE];
    times("read");
    munmap((void *)at, 4 * PAGE);
    times("read and unmapped");
    at = map(BOTH, MAP_PRIVATE, fd, 4);
    at[0] = byte + 1;
    times("private");
    munmap((void *)at, 4 * PAGE);
    times("private, unmapped");
    at = map(PROT_READ, MAP_SHARED, fd, 4);
    byte = at[PAGE];
    times("shared, for reading");
    munmap((void *)at, 4 * PAGE);
    times("and unmapped");
    close(fd);
    unlink(NAME);
}

GROUP(map, times_after_unmapping)
{
    int fd = aged(4);
    char *at = map(BOTH, MAP_SHARED, fd, 4);
    close(fd);
    at[3 * PAGE] = 1;
    munmap(at, 4 * PAGE);
    times("unmapped");

    fd = aged(4);
    at = map(BOTH, MAP_SHARED, fd, 4);
    at[PAGE] = 1;
    mmap(at, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    times("replaced");
    munmap(at, 4 * PAGE);

    close(fd);
    fd = aged(4);
    at = map(BOTH, MAP_SHARED, fd, 4);
    at[PAGE] = 1;
    TN("sync", msync(at, 4 * PAGE, MS_SYNC));
    times("synced");
    munmap(at, 4 * PAGE);
    close(fd);
    unlink(NAME);
}

GROUP(map, times_of_pages_the_kernel_writes)
{
    int fd = aged(4), pipes[2];
    char *at = map(BOTH, MAP_SHARED, fd, 4);
    pipe(pipes);
    write(pipes[1], "ab", 2);
    TN("read", read(pipes[0], at + PAGE - 1, 2));
    times("read from a pipe");
    futimens(fd, old);
    TN("time", clock_gettime(CLOCK_REALTIME, (void *)(at + 2 * PAGE)));
    times("the clock's");
    close(pipes[0]), close(pipes[1]), close(fd);
    munmap(at, 4 * PAGE);
    unlink(NAME);
}

GROUP(map, times_of_childrens_writes)
{
    int fd = aged(4);
    char *at = map(BOTH, MAP_SHARED, fd, 4);
    pid_t child = fork();
    if (!child) {
        at[0] = 1;
        _exit(0);
    }
    say_wait(child);
    times("written by a child that has ended");
    futimens(fd, old);
    child = fork();
    if (!child) {
        at[PAGE] = 1;
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    say_wait(child);
    times("by one that has executed");
    futimens(fd, old);
    child = fork();
    if (!child)
        _exit(at[2 * PAGE] != 0);
    say_wait(child);
    times("read by a child");
    at[3 * PAGE] = 1;
    child = fork();
    if (!child)
        _exit(0);
    say_wait(child);
    times("written before a fork");
    munmap(at, 4 * PAGE);
    close(fd);
    unlink(NAME);
}

GROUP(map, times_of_changed_mappings)
{
    int fd = aged(8);
    char *at = map(PROT_READ, MAP_SHARED, fd, 2);
    TN("writable", mprotect(at, 2 * PAGE, BOTH));
    times("writable");
    at[0] = 1;
    times("written");
    futimens(fd, old);
    at[PAGE] = 1;
    TN("read-only", mprotect(at, 2 * PAGE, PROT_READ));
    times("written, then read-only");
    futimens(fd, old);
    at = mremap(at, 2 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
    TN("writable", mprotect(at, 8 * PAGE, BOTH));
    times("longer");
    at[7 * PAGE] = 1;
    times("written behind");
    futimens(fd, old);
    at[5 * PAGE] = 1;
    at = mremap(at, 8 * PAGE, 4 * PAGE, 0);
    times("written and shorter");
    munmap(at, 4 * PAGE);
    close(fd);
    unlink(NAME);
}

GROUP(map, times_of_written_holes)
{
    int fd = open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ftruncate(fd, 4 << 20);
    futimens(fd, old);
    char *at = mmap(NULL, 4 << 20, BOTH, MAP_SHARED, fd, 0);
    times("mapped");
    at[2 << 20] = 1;
    times("written");
    munmap(at, 4 << 20);
    ftruncate(fd, PAGE);
    futimens(fd, old);
    at = map(BOTH, MAP_SHARED, fd, 2);
    TN("grow", ftruncate(fd, 2 * PAGE));
    futimens(fd, old);
    at[PAGE] = 1;
    times("written where it has grown");
    munmap(at, 2 * PAGE);
    close(fd);
    unlink(NAME);
}

/* A fault in a hole tells whether it is a write; the pages around it get memory by it. */
GROUP(map, times_of_holes_once_more)
{
    long bytes = 24 << 20, mib = 1 << 20;
    int fd = open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ftruncate(fd, bytes);
    futimens(fd, old);
    char *at = mmap(NULL, bytes, BOTH, MAP_SHARED, fd, 0);
    volatile char byte = at[2 * mib];
    times("read");
    at[4 * mib] = 1;
    times("written");
    futimens(fd, old);
    times("and set");
    at[4 * mib + PAGE] = 1;
    times("written beside it");
    futimens(fd, old);
    at[6 * mib] = byte;
    at[6 * mib + PAGE] = byte;
    futimens(fd, old);
    munmap(at, bytes);
    times("zeros written, set and unmapped");

    ftruncate(fd, 0);
    ftruncate(fd, 4 * mib);
    at = mmap(NULL, 4 * mib, BOTH, MAP_SHARED, fd, 0);
    at[2 * mib] = 1;
    futimens(fd, old);
    pid_t child = fork();
    if (!child)
        _exit(0);
    say_wait(child);
    times("written before a fork");
    munmap(at, 4 * mib);
    times("unmapped");

    ftruncate(fd, 0);
    ftruncate(fd, 8 * PAGE);
    at = map(BOTH, MAP_SHARED, fd, 8);
    futimens(fd, old);
    byte = at[PAGE];
    times("a short hole read");
    munmap(at, 8 * PAGE);
    at = map(BOTH, MAP_SHARED, fd, 8);
    at[PAGE] = byte;
    munmap(at, 8 * PAGE);
    times("zeros written into a short hole");
    close(fd);
    unlink(NAME);
}

/* Pages of mappings of this size are not protected. */
GROUP(map, times_of_large_mappings)
{
    int pages = (17 << 20) / PAGE;
    int fd = aged(pages);
    char *at = map(BOTH, MAP_SHARED, fd, pages);
    times("mapped");
    munmap(at, pages * PAGE);
    times("unmapped");
    at = map(BOTH, MAP_SHARED, fd, pages);
    at[9 * PAGE] = 1;
    times("written");
    futimens(fd, old);
    times("and set");
    at[5000L % pages * PAGE] = 1;
    times("written elsewhere");
    at[64 * PAGE] = 1;
    futimens(fd, old);
    munmap(at, pages * PAGE);
    times("written, set and unmapped");
    at = map(BOTH, MAP_SHARED, fd, pages);
    at[PAGE] = 1;
    TN("sync", msync(at, pages * PAGE, MS_SYNC));
    TN("unmap one page", munmap(at + 100 * PAGE, PAGE));
    times("synced");
    say("content: %d", at[PAGE]);
    munmap(at, pages * PAGE);
    close(fd);
    unlink(NAME);
}

GROUP(map, times_are_set_once)
{
    int fd = aged(4);
    char *at = map(BOTH, MAP_SHARED, fd, 4);
    at[0] = 1;
    TN("sync", msync(at, 4 * PAGE, MS_SYNC));
    futimens(fd, old);
    TN("sync again", msync(at, 4 * PAGE, MS_SYNC));
    times("synced without a write");
    pid_t child;
    char *arguments[] = { "true", NULL };
    TN("spawn", posix_spawn(&child, "/bin/true", NULL, NULL, arguments, arguments + 1));
    say_wait(child);
    TN("no such program", execl("/nowhere/to/be/found", "x", NULL));
    times("after a spawn and an exec that failed");
    munmap(at, 4 * PAGE);
    times("unmapped");
    close(fd);
    unlink(NAME);
}

/* The program closes all that it does not know, and takes the numbers. */
GROUP(map, times_without_descriptors)
{
    int fd = aged(4);
    char *at = map(BOTH, MAP_SHARED, fd, 4);
    at[0] = 1;
    times("written");
    futimens(fd, old);
    close(fd);
    TN("close", syscall(SYS_close_range, 3u, ~0u, 0));
    at[PAGE] = 1;
    times("written after all is closed");
    int files[64], count = 0;
    while (count < 64 && (files[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    utimensat(AT_FDCWD, NAME, old, 0);
    at[2 * PAGE] = 1;
    times("with numbers taken");
    while (count)
        close(files[--count]);
    munmap(at, 4 * PAGE);
    unlink(NAME);
}
