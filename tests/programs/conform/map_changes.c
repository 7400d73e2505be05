/* Changes of mappings of files: guards, protections that a failed call has changed in part, mremap that leaves
 * the old mapping, and pages that are copied when the mapping is made. */
#include "map.h"
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#define BOTH (PROT_READ | PROT_WRITE)

/* A file of that many pages, each full of its number. */
static int pages(int count)
{
    char page[PAGE];
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < count; i++)
        if (write(fd, memset(page, 'a' + i, PAGE), PAGE) != PAGE)
            say("short");
    return fd;
}

GROUP(map, guards)
{
    int fd = pages(8);
    for (int shared = 0; shared < 2; shared++) {
        char *m = mmap(NULL, 8 * PAGE, BOTH, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        touch("before", m + PAGE, 1);
        T(madvise(m, 3 * PAGE, MADV_GUARD_INSTALL));
        touch("guard", m, 0);
        touch("guard that was written to", m + PAGE, 1);
        touch("behind", m + 3 * PAGE, 1);
        T(madvise(m + 2 * PAGE, 3 * PAGE, MADV_GUARD_INSTALL));
        touch("guard", m + 3 * PAGE, 0);
        T(madvise(m, 2 * PAGE, MADV_GUARD_REMOVE));
        touch("no more", m + PAGE, 0);
        touch("still", m + 2 * PAGE, 0);
        CHILD touch("of the parent", m + 2 * PAGE, 0);
        T(madvise(m, 5 * PAGE, MADV_GUARD_REMOVE));
        touch("removed", m + 3 * PAGE, 0);
        T(munmap(m, 8 * PAGE));
    }
}

GROUP(map, guard_in_a_hole)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0600));
    T(ftruncate(fd, 4096 * PAGE));
    char *m = TP(mmap(NULL, 4096 * PAGE, BOTH, MAP_SHARED, fd, 0));
    T(madvise(m + 1000 * PAGE, PAGE, MADV_GUARD_INSTALL));
    touch("before", m + 999 * PAGE, 1);
    touch("guard", m + 1000 * PAGE, 0);
    touch("behind", m + 1001 * PAGE, 0);
}

/* What a write beside a guard, and one where the guard was, do to the time. */
GROUP(map, guards_and_times)
{
    static const struct timespec old[2] = { { 1000, 5 }, { 2000, 7 } };
    int fd = pages(4);
    struct stat st;
    char *m = TP(mmap(NULL, 4 * PAGE, BOTH, MAP_SHARED, fd, 0));
    T(futimens(fd, old));
    T(madvise(m, 2 * PAGE, MADV_GUARD_INSTALL));
    T(fstat(fd, &st));
    say("%d", st.st_mtim.tv_sec == 2000);
    m[2 * PAGE] = 'W';
    T(msync(m, 4 * PAGE, MS_SYNC));
    T(fstat(fd, &st));
    say("%d", st.st_mtim.tv_sec == 2000);
    T(futimens(fd, old));
    T(madvise(m, 2 * PAGE, MADV_GUARD_REMOVE));
    m[PAGE] = 'W';
    T(msync(m, 4 * PAGE, MS_SYNC));
    T(fstat(fd, &st));
    say("%d", st.st_mtim.tv_sec == 2000);
}

GROUP(map, protection_before_a_gap)
{
    int fd = pages(1);
    char *m = TP(mmap(NULL, 8 * PAGE, BOTH, MAP_SHARED, fd, 0));
    T(munmap(m + 4 * PAGE, PAGE));
    T(mprotect(m, 6 * PAGE, PROT_READ));
    touch("before the gap", m, 1);
    T(ftruncate(fd, 8 * PAGE));
    touch("grown before the gap", m + 2 * PAGE, 1);
    touch("read", m + 2 * PAGE, 0);
    touch("behind the gap", m + 5 * PAGE, 1);
    T(mprotect(m + 4 * PAGE, 4 * PAGE, PROT_READ));
    touch("behind a gap", m + 6 * PAGE, 1);
    CHILD
    {
        T(ftruncate(fd, 0));
        T(ftruncate(fd, 8 * PAGE));
        touch("before, in a child", m + 2 * PAGE, 1);
        touch("behind, in a child", m + 6 * PAGE, 1);
    }
}

GROUP(map, mremap_that_leaves_the_old)
{
    int fd = pages(6);
    for (int shared = 0; shared < 2; shared++) {
        int leaves = MREMAP_MAYMOVE | MREMAP_DONTUNMAP;
        char *m = mmap(NULL, 4 * PAGE, BOTH, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        char *to = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        m[PAGE] = 'X';
        TP(mremap(m, 2 * PAGE, 2 * PAGE, MREMAP_DONTUNMAP));
        TP(mremap(m, 2 * PAGE, 3 * PAGE, leaves));
        TP(mremap(m, 2 * PAGE, PAGE, leaves));
        TP(mremap(m, 0, 0, leaves));
        TP(mremap(m, 0, PAGE, leaves));
        TP(mremap(m, 2 * PAGE, 2 * PAGE, leaves, m + PAGE));
        TP(mremap(m, 2 * PAGE, 2 * PAGE, leaves, to + 1));
        TP(mremap(m, 8 * PAGE, 8 * PAGE, leaves, NULL));
        char *n = TP(mremap(m, 3 * PAGE, 3 * PAGE, leaves, NULL));
        say("%d: %c %c", n == m, n[PAGE], m[PAGE]);
        m[0] = 'Y', n[2 * PAGE] = 'Z';
        say("%c %c", n[0], m[2 * PAGE]);
        char *fixed = TP(mremap(m, 4 * PAGE, 4 * PAGE, leaves | MREMAP_FIXED, to));
        say("%d: %c %c", fixed == to, fixed[0], fixed[3 * PAGE]);
        touch("old", m, 0);
        touch("the last", m + 3 * PAGE, 1);
        T(munmap(m, 4 * PAGE));
        touch("gone", m, 0);
        touch("new", n + PAGE, 0);
        T(munmap(n, 3 * PAGE));
        T(munmap(to, 4 * PAGE));
    }
}

GROUP(map, mremap_of_length_0)
{
    int fd = pages(10);
    for (int shared = 0; shared < 2; shared++)
        for (int flags = 0; flags <= MREMAP_MAYMOVE; flags++)
            for (int count = 1; count <= 20; count += 19) {
                char *m = mmap(NULL, 10 * PAGE, BOTH, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
                say("shared %d, flags %d, pages %d", shared, flags, count);
                char *n = TP(mremap(m, 0, count * PAGE, flags));
                if (n != MAP_FAILED)
                    say("%d %c", n == m, n[0]);
            }
}

GROUP(map, populated_copies)
{
    int fd = pages(4);
    for (int protection = PROT_READ; protection <= BOTH; protection += PROT_WRITE) {
        char *m = TP(mmap(NULL, 8 * PAGE, protection, MAP_PRIVATE | MAP_POPULATE, fd, 0));
        char *n = TP(mmap(NULL, PAGE, protection, MAP_PRIVATE | MAP_POPULATE | MAP_NONBLOCK, fd, PAGE));
        T(pwrite(fd, "N", 1, PAGE));
        T(pwrite(fd, "N", 1, 3 * PAGE));
        say("%c %c %c", m[PAGE], m[3 * PAGE], n[0]);
        touch("beyond the end", m + 5 * PAGE, 0);
        T(pwrite(fd, "b", 1, PAGE));
        T(pwrite(fd, "d", 1, 3 * PAGE));
    }
}

/* process_madvise(2) on oneself: guards, what a file loses, and advice that fails half-way. */
GROUP(map, advised_by_a_pidfd)
{
    int fd = pages(8), self = syscall(SYS_pidfd_open, getpid(), 0);
    char *m = TP(mmap(NULL, 8 * PAGE, BOTH, MAP_SHARED, fd, 0));
    char *p = TP(mmap(NULL, 8 * PAGE, BOTH, MAP_PRIVATE, fd, 0));
    struct iovec two[2] = { { m, 2 * PAGE }, { m + 4 * PAGE, PAGE } };
    touch("before", m + 4 * PAGE, 1);
    T(syscall(SYS_process_madvise, self, two, 2, MADV_GUARD_INSTALL, 0));
    touch("guard", m, 0);
    touch("between", m + 2 * PAGE, 1);
    touch("guard", m + 4 * PAGE, 0);
    T(syscall(SYS_process_madvise, self, two + 1, 1, MADV_GUARD_REMOVE, 0));
    touch("no more", m + 4 * PAGE, 0);
    struct iovec cut[3] = { { m + 5 * PAGE, PAGE }, { p, PAGE }, { m + 6 * PAGE, PAGE } };
    T(syscall(SYS_process_madvise, self, cut, 3, MADV_REMOVE, 0));
    T(syscall(SYS_process_madvise, self, cut + 1, 1, MADV_REMOVE, 0));
    touch("removed", m + 5 * PAGE, 0);
    touch("not removed", m + 6 * PAGE, 0);
    struct stat st;
    T(fstat(fd, &st));
    say("%ld", (long)st.st_blocks);
    T(lseek(fd, 0, SEEK_HOLE));
    T(syscall(SYS_process_madvise, self, two, 2, MADV_COLD, 0));
    T(syscall(SYS_process_madvise, self, two, 0, MADV_GUARD_INSTALL, 0));
    T(syscall(SYS_process_madvise, self, NULL, 1, MADV_GUARD_INSTALL, 0));
    T(syscall(SYS_process_madvise, self, two, 1025, MADV_GUARD_INSTALL, 0));
    T(syscall(SYS_process_madvise, self, two, 2, MADV_GUARD_INSTALL, 1));
    T(syscall(SYS_process_madvise, self, two, 2, 1000, 0));
    T(syscall(SYS_process_madvise, fd, two, 2, MADV_GUARD_INSTALL, 0));
    struct iovec odd[3] = { { m + 6 * PAGE, PAGE }, { m + 6 * PAGE + 1, PAGE }, { m, -1 } };
    T(syscall(SYS_process_madvise, self, odd, 2, MADV_GUARD_INSTALL, 0));
    T(syscall(SYS_process_madvise, self, odd + 1, 1, MADV_GUARD_INSTALL, 0));
    T(syscall(SYS_process_madvise, self, odd + 1, 2, MADV_GUARD_INSTALL, 0));
    CHILD T(syscall(SYS_process_madvise, self, two, 2, MADV_GUARD_INSTALL, 0));
}

/* Guards behind a file's end stay where it grows, and those that it loses. */
GROUP(map, guards_and_the_end)
{
    int fd = pages(2);
    char *m = TP(mmap(NULL, 12 * PAGE, BOTH, MAP_SHARED, fd, 0));
    char *p = TP(mmap(NULL, 12 * PAGE, BOTH, MAP_PRIVATE, fd, 0));
    for (int i = 0; i < 2; i++) {
        char *at = i ? p : m;
        T(madvise(at + PAGE, 2 * PAGE, MADV_GUARD_INSTALL));
        T(madvise(at + 5 * PAGE, PAGE, MADV_GUARD_INSTALL));
    }
    T(ftruncate(fd, 8 * PAGE));
    for (int page = 0; page < 9; page++)
        touch("grown", m + page * PAGE, 0), touch("grown", p + page * PAGE, 0);
    T(ftruncate(fd, PAGE));
    for (int page = 0; page < 9; page++)
        touch("cut", m + page * PAGE, 0), touch("cut", p + page * PAGE, 0);
    T(pwrite(fd, "w", 1, 9 * PAGE));
    for (int page = 0; page < 11; page++)
        touch("written", m + page * PAGE, 0), touch("written", p + page * PAGE, 0);
    T(madvise(m, 12 * PAGE, MADV_GUARD_REMOVE));
    touch("no guard", m + 2 * PAGE, 1);
}

/* What is locked stays so where the file grows: the kernel refuses to make it cold. */
GROUP(map, locked_and_the_end)
{
    int fd = pages(2);
    char *m = TP(mmap(NULL, 8 * PAGE, BOTH, MAP_SHARED | MAP_LOCKED, fd, 0));
    char *part = TP(mmap(NULL, 8 * PAGE, BOTH, MAP_SHARED, fd, 0));
    T(mlock(part, PAGE));
    T(syscall(SYS_mlock2, part + 3 * PAGE, 2 * PAGE, 1));
    for (int step = 0; step < 3; step++) {
        for (int page = 0; page < 8; page++) {
            TN("locked", madvise(m + page * PAGE, PAGE, MADV_COLD));
            TN("in part", madvise(part + page * PAGE, PAGE, MADV_COLD));
        }
        T(ftruncate(fd, (step == 1 ? 1 : 6) * PAGE));
    }
}

/* mremap(2) over several mappings: moved since Linux 6.17 if they keep their size, else refused. */
GROUP(map, mremap_of_several)
{
    int fd = pages(8);
    for (int way = 0; way < 4; way++) {
        char *room = TP(mmap(NULL, 32 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        char *m = room + PAGE, *to = room + 16 * PAGE;
        T(mmap(m, 3 * PAGE, BOTH, MAP_SHARED | MAP_FIXED, fd, 0) == m);
        if (way != 1)
            T(mmap(m + 3 * PAGE, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 3 * PAGE);
        else
            T(munmap(m + 3 * PAGE, PAGE));
        T(mmap(m + 4 * PAGE, 2 * PAGE, BOTH, MAP_PRIVATE | MAP_FIXED, fd, 4 * PAGE) == m + 4 * PAGE);
        T(mprotect(m + PAGE, PAGE, PROT_READ));
        m[4 * PAGE] = 'P';
        switch (way) {
        case 0:
        case 1:
            T(mremap(m, 6 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
            for (int page = 0; page < 6; page++)
                touch("moved", to + page * PAGE, 0), touch("left", m + page * PAGE, 0);
            touch("read-only", to + PAGE, 1);
            touch("shared", to, 1);
            contents("f");
            break;
        case 2:
            T(mremap(m, 6 * PAGE, 7 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
            T(mremap(m, 6 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
            T(mremap(m, 6 * PAGE, 7 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
            T(mremap(m, 6 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to);
            T(mremap(m, 6 * PAGE, 6 * PAGE, 0) == m);
            break;
        case 3:
            T(mremap(m, 6 * PAGE, 4 * PAGE, 0) == m);
            touch("kept", m + 3 * PAGE, 0);
            touch("cut", m + 4 * PAGE, 0);
            T(mremap(room, 5 * PAGE, 2 * PAGE, 0) == room);
            touch("cut", m + PAGE, 0);
        }
        T(munmap(room, 32 * PAGE));
    }
}

/* remap_file_pages(2) over pieces of a mapping. */
GROUP(map, remapped_pages_of_pieces)
{
    int fd = pages(8);
    char *m = TP(mmap(NULL, 8 * PAGE, BOTH, MAP_SHARED, fd, 0));
    T(remap_file_pages(m + PAGE, PAGE, 0, 5, 0));
    T(remap_file_pages(m, 3 * PAGE, 0, 4, 0));
    touch("first", m, 0), touch("second", m + PAGE, 0), touch("third", m + 2 * PAGE, 0);
    T(mprotect(m + 4 * PAGE, PAGE, PROT_READ));
    T(remap_file_pages(m + 3 * PAGE, 3 * PAGE, 0, 0, 0));
    T(munmap(m + 6 * PAGE, PAGE));
    T(remap_file_pages(m + 5 * PAGE, 2 * PAGE, 0, 0, 0));
    T(remap_file_pages(m + 5 * PAGE, PAGE, 0, 100, 0));
    touch("behind the end", m + 5 * PAGE, 0);
    for (int page = 0; page < 6; page++)
        touch("all", m + page * PAGE, 0);
}

/* What a child of fork(2) does not get is its own to map. */
GROUP(map, left_out_of_a_child)
{
    int fd = pages(2);
    char *at = (char *)0x100000000000, *m = TP(mmap(at, 8 * PAGE, BOTH, MAP_SHARED, fd, 0));
    T(madvise(m + PAGE, 5 * PAGE, MADV_DONTFORK));
    T(madvise(m + 4 * PAGE, PAGE, MADV_DOFORK));
    T(ftruncate(fd, 3 * PAGE));
    m[2 * PAGE] = 'm';
    CHILD
    {
        touch("inherited", m, 0);
        touch("left out", m + PAGE, 0);
        touch("left out after growth", m + 2 * PAGE, 0);
        char *own = mmap(m + PAGE, 3 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        say("%d", own == m + PAGE);
        memset(own, 'o', 3 * PAGE);
        T(ftruncate(fd, 8 * PAGE));
        T(pwrite(fd, "grown", 5, 6 * PAGE));
        touch("grown", m + 6 * PAGE, 0);
        touch("inherited after all", m + 4 * PAGE, 1);
        say("%c %c %c", own[0], own[PAGE], own[2 * PAGE]);
        T(munmap(own, 3 * PAGE));
        touch("unmapped", m + PAGE, 0);
    }
    touch("here", m + PAGE, 1);
    T(madvise(m, 9 * PAGE, MADV_DOFORK));
    CHILD touch("inherited", m + PAGE, 0);
}

/* mprotect(2) changes what comes before what it must not change. */
GROUP(map, protection_before_a_refusal)
{
    int fd = pages(2), ro = T(open("f", O_RDONLY));
    char *at = (char *)0x100000000000, *m = TP(mmap(at, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0));
    TP(mmap(at + 2 * PAGE, 2 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, ro, 0));
    T(mprotect(m, 4 * PAGE, BOTH));
    touch("before", m + PAGE, 1);
    touch("refused", m + 2 * PAGE, 1);
    T(mprotect(m + 2 * PAGE, PAGE, BOTH));
    T(mprotect(m + PAGE, 2 * PAGE, PROT_READ));
    T(munmap(m, PAGE));
    T(mprotect(m, 4 * PAGE, BOTH));
    touch("behind a gap", m + PAGE, 1);
    T(syscall(SYS_mprotect, m + PAGE, PAGE, 1L << 32 | PROT_READ | PROT_WRITE));
    TP((void *)syscall(SYS_mremap, m + PAGE, PAGE, PAGE, 1L << 40 | MREMAP_MAYMOVE, 0));
}
