/* Memory of mapped files: advice, locks, flags of mmap, what is in memory, large holes that are mapped. */
#include "conform.h"
#include <elf.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#define PAGE 4096L
#define MANY (64L << 20)

/* A file of `size` bytes without a page. */
static int sparse(const char *name, long size)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, size))
        say("cannot make %s: %s", name, strerrorname_np(errno));
    return fd;
}

static char *map_all(int fd, long size, int sharing)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, sharing, fd, 0);
}

/* Whether a file takes less than a sixteenth of its size. */
static void is_sparse(int fd)
{
    struct stat st;
    fstat(fd, &st);
    say("sparse %d, empty %d", st.st_blocks * 512 < st.st_size / 16, st.st_blocks == 0);
}

GROUP(memory, removed)
{
    int rw = make_open("f", "of the file", O_RDWR), ro = T(open("f", O_RDONLY));
    char *shared = TP(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0));
    char *reads = TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, ro, 0));
    char *private = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, rw, 0));
    T(madvise(reads, PAGE, MADV_REMOVE));
    contents("f");
    T(madvise(private, PAGE, MADV_REMOVE));
    contents("f");
    T(madvise(shared + 1, PAGE, MADV_REMOVE));
    T(madvise(shared, 0, MADV_REMOVE));
    T(madvise(shared + PAGE, PAGE, MADV_REMOVE));
    contents("f");
    T(madvise(shared, 2 * PAGE, MADV_REMOVE));
    contents("f");
    say("%d %d %d", shared[0], reads[0], private[0]);
    memcpy(shared, "again", 5);
    contents("f");
    T(munmap(shared + PAGE, PAGE));
    T(madvise(shared, 2 * PAGE, MADV_REMOVE));
    contents("f");
    T(ftruncate(rw, 3 * PAGE));
    char *three = TP(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0));
    memset(three, 'x', 3 * PAGE);
    T(munmap(three + PAGE, PAGE));
    T(madvise(three, 3 * PAGE, MADV_REMOVE));
    contents("f");
}

GROUP(memory, removed_while_locked)
{
    int fd = make_open("f", "text", O_RDWR), ro = T(open("f", O_RDONLY));
    char *shared = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    char *private = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    char *reads = TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, ro, 0));
    memcpy(private, "own ", 4);
    char *all[] = { shared, private, reads };
    for (int i = 0; i < 3; i++) {
        T(mlock(all[i], PAGE));
        T(madvise(all[i], PAGE, MADV_REMOVE));
        contents("f");
        T(munlock(all[i], PAGE));
        T(madvise(all[i], PAGE, MADV_REMOVE));
        contents("f");
        T(pwrite(fd, "text", 4, 0));
    }
    say("%.4s", private);
}

GROUP(memory, locked)
{
    int fd = make_open("f", "text", O_RDWR);
    /* Where nothing else is mapped behind it. */
    char *m = TP(mmap((char *)0x100000000000, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    T(mlock(m, PAGE));
    T(mlock2(m, PAGE, MLOCK_ONFAULT));
    T(mlock2(m, PAGE, 2));
    T(munlock(m, PAGE));
    T(mlockall(0));
    T(mlockall(8));
    T(mlockall(MCL_ONFAULT));
    T(mlockall(MCL_CURRENT));
    m[0] = 'T';
    char *n = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    T(munlockall());
    T(mlockall(MCL_CURRENT | MCL_FUTURE));
    char *own = TP(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    unsigned char in[4] = { 0 };
    T(mincore(own, 4 * PAGE, in));
    say_bytes("in memory", in, 4);
    CHILD say("%c%c", m[0], n[0]);
    T(munlockall());
    T(munlock(m + 1, PAGE));
    T(mlock(m, 2 * PAGE));
    T(msync(m, PAGE, MS_INVALIDATE));
    become_nobody();
    struct rlimit none = { 0, 0 };
    T(setrlimit(RLIMIT_MEMLOCK, &none));
    T(mlockall(MCL_CURRENT));
    T(mlock(m, PAGE));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_LOCKED, fd, 0));
}

GROUP(memory, flags)
{
    static const struct { const char *name; long flag; } flags[] = {
        { "LOCKED", MAP_LOCKED }, { "POPULATE", MAP_POPULATE }, { "NONBLOCK", MAP_NONBLOCK }, { "NORESERVE", MAP_NORESERVE },
        { "STACK", MAP_STACK }, { "GROWSDOWN", MAP_GROWSDOWN }, { "DENYWRITE", MAP_DENYWRITE }, { "EXECUTABLE", MAP_EXECUTABLE },
        { "HUGETLB", MAP_HUGETLB }, { "SYNC", 0x80000 }, { "unknown", 0x2000000 }, { "32BIT", MAP_32BIT },
        { "FIXED_NOREPLACE", 0x100000 }, { "wide", 1L << 40 },
    };
    int fd = make_open("f", "text", O_RDWR), ro = T(open("f", O_RDONLY));
    for (unsigned i = 0; i < COUNT(flags); i++)
        for (int kind = MAP_SHARED; kind <= MAP_SHARED_VALIDATE; kind++) {
            char text[64], *at = (char *)0x100000000000 + 16 * PAGE * i;
            snprintf(text, sizeof text, "%s, kind %d", flags[i].name, kind);
            char *m;
            TN(text, (m = (char *)syscall(SYS_mmap, at, PAGE, PROT_READ | PROT_WRITE, kind | flags[i].flag, fd, 0L)) == MAP_FAILED ? -1 : m[0]);
            if (m != MAP_FAILED)
                munmap(m, PAGE);
        }
    TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_GROWSDOWN, ro, 0));
    TP(mmap(NULL, PAGE, PROT_READ, 0x8, fd, 0));
}

GROUP(memory, in_the_cache)
{
    struct { uint64_t offset, length; } range = { 0, 0 }, second = { PAGE, 1 }, over = { PAGE - 1, 2 }, far = { 1L << 40, 5 };
    struct { uint64_t cache, dirty, writeback, evicted, recently; } found;
    int fd = make_open("f", "text", O_RDWR), dir = T(open(".", O_RDONLY)), path = T(open("f", O_PATH));
#define CACHESTAT(fd, range, flags)                                                                        \
    if (T(syscall(451, fd, range, &found, flags)) == 0)                                                    \
        say("  %llu %llu %llu", (long long)found.cache, (long long)found.dirty, (long long)found.writeback)
    CACHESTAT(fd, &range, 0);
    T(pwrite(fd, "more", 4, 5 * PAGE - 1));
    CACHESTAT(fd, &range, 0);
    CACHESTAT(fd, &second, 0);
    CACHESTAT(fd, &over, 0);
    CACHESTAT(fd, &far, 0);
    CACHESTAT(fd, &range, 1);
    CACHESTAT(fd, NULL, 0);
    CACHESTAT(dir, &range, 0);
    CACHESTAT(path, &range, 0);
    CACHESTAT(99, &range, 0);
    T(syscall(451, fd, &range, NULL, 0));
}

GROUP(memory, pages_in_another_order)
{
    char b[2] = { 0 };
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    for (char page = 'a'; page < 'e'; page++)
        T(pwrite(fd, &page, 1, (page - 'a') * PAGE));
    T(ftruncate(fd, 4 * PAGE));
    char *m = TP(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    T(syscall(SYS_remap_file_pages, m, PAGE, 0, 3, 0));
    say("%c%c%c%c", m[0], m[PAGE], m[2 * PAGE], m[3 * PAGE]);
    T(syscall(SYS_remap_file_pages, m + PAGE, 2 * PAGE, 0, 0, 0));
    say("%c%c%c%c", m[0], m[PAGE], m[2 * PAGE], m[3 * PAGE]);
    m[1] = 'X';
    T(pread(fd, b, 1, 3 * PAGE + 1));
    say_bytes("read", b, 1);
    T(syscall(SYS_remap_file_pages, m, 5 * PAGE, 0, 0, 0));
    T(syscall(SYS_remap_file_pages, m, PAGE, 0, -1L, 0));
    T(syscall(SYS_remap_file_pages, m, PAGE, 1, 0, 0));
    T(munmap(m, 4 * PAGE));
    T(syscall(SYS_remap_file_pages, m, PAGE, 0, 0, 0));
}

GROUP(memory, large_hole)
{
    char b[8] = { 0 };
    int fd = sparse("f", MANY);
    char *s = TP(map_all(fd, MANY, MAP_SHARED)), *p = TP(map_all(fd, MANY, MAP_PRIVATE));
    char *none = TP(mmap(NULL, MANY, PROT_NONE, MAP_SHARED, fd, 0));
    is_sparse(fd);
    say("%d", s[MANY / 2]);
    s[MANY / 4] = 'S';
    say("%c %d", p[MANY / 4], p[MANY / 4 + 1]);
    p[MANY / 3] = 'P';
    say("%d", s[MANY / 3]);
    T(pwrite(fd, "w", 1, MANY - PAGE));
    say("%c%c", s[MANY - PAGE], p[MANY - PAGE]);
    T(pread(fd, b, 1, MANY / 4));
    say_bytes("read", b, 1);
    is_sparse(fd);
    CHILD {
        s[MANY / 5] = 'C', p[MANY / 6] = 'D';
        say("%c", p[MANY / 3]);
    }
    say("%c%d", s[MANY / 5], p[MANY / 6]);
    T(mprotect(none, MANY, PROT_READ));
    say("%c%d", none[MANY / 5], none[MANY / 7]);
    T(munmap(s + MANY / 2, MANY / 4));
    s[MANY - 1] = 'E';
    T(munmap(p, MANY));
    char *moved = TP(mremap(s, MANY / 2, MANY, MREMAP_MAYMOVE));
    say("%c%c%d", moved[MANY / 4], moved[MANY - 1], moved[MANY / 2 + 1]);
    moved[MANY / 2 + 2] = 'M';
    T(pread(fd, b, 1, MANY / 2 + 2));
    say_bytes("read", b, 1);
    T(ftruncate(fd, MANY / 2));
    T(ftruncate(fd, MANY));
    say("%d%c", moved[MANY - 1], moved[MANY / 4]);
    is_sparse(fd);
}

GROUP(memory, large_hole_in_calls)
{
    static char zeros[PAGE];
    int fd = sparse("f", MANY), pair[2], other = make_open("text", "of another file", O_RDWR), null = T(open("/dev/zero", O_RDWR));
    char *m = TP(map_all(fd, MANY, MAP_SHARED));
    T(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    T(write(pair[0], "datagram", 8));
    T(read(pair[1], m + MANY / 2 - 4, 100));
    say_bytes("received", m + MANY / 2 - 4, 8);
    T(write(pair[0], "second", 6));
    struct iovec pieces[2] = { { m + MANY / 3, 3 }, { m + 3 * PAGE - 1, 10 } };
    T(readv(pair[1], pieces, 2));
    T(write(pair[0], "third", 5));
    struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };
    T(recvmsg(pair[1], &message, 0));
    say("%.3s%.2s", m + MANY / 3, m + 3 * PAGE - 1);
    T(write(pair[0], "fourth", 6));
    T(recv(pair[1], m + MANY / 5, 10, 0));
    T(send(pair[0], m + MANY / 5, 60000, 0));
    T(recv(pair[1], m + MANY / 7, 60000, 0));
    say("%.6s", m + MANY / 7);
    T(pread(other, m + 5 * PAGE - 2, 15, 0));
    say("%.15s", m + 5 * PAGE - 2);
    T(read(null, m + 9 * PAGE, 3 << 20));
    T(write(null, m + MANY / 2 + PAGE, MANY / 4));
    T(pwrite(other, m + MANY / 2 + PAGE / 2, 300 * PAGE, 0));
    T(pread(other, m + MANY - 400 * PAGE, 300 * PAGE, 0));
    T(write(fd, m + MANY / 9, 5 * PAGE));
    T(read(fd, m + MANY / 10, 5 * PAGE));
    T(stat("f", (struct stat *)(m + MANY - 20 * PAGE)));
    T(((struct stat *)(m + MANY - 20 * PAGE))->st_size == MANY);
    int ends[2], *in_hole = (int *)(m + MANY / 8);
    T(pipe(in_hole));
    memcpy(ends, in_hole, sizeof ends);
    T(write(ends[1], m + MANY / 16, 10));
    T(read(ends[0], m + MANY / 17, 10));
    T(memcmp(zeros, m + MANY / 17, 10));
    T(access(m + MANY / 19, F_OK));
    // What stat(2) and pipe(2) have left in it differs from run to run.
    T(unlink("f"));
}

static void *blocks_everything(void *at)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    *(char *)at = 'b';
    return NULL;
}

static void on_signal(int signal)
{
    (void)signal;
}

static char *hole_of_handler;
static void fills_hole(int signal)
{
    *hole_of_handler = signal;
}

/* Threads that have blocked all signals, and handlers during which all are blocked, use holes as well. */
GROUP(memory, large_hole_with_signals_blocked)
{
    int fd = sparse("f", MANY);
    char *m = TP(map_all(fd, MANY, MAP_SHARED));
    pthread_t thread;
    pthread_create(&thread, NULL, blocks_everything, m + MANY / 2);
    pthread_join(thread, NULL);
    say("%c", m[MANY / 2]);
    sigset_t all, old, bus;
    sigfillset(&all), sigemptyset(&bus), sigaddset(&bus, SIGBUS);
    T(sigprocmask(SIG_BLOCK, &all, &old));
    T(sigismember(&old, SIGBUS));
    m[MANY / 3] = 'c';
    char *n = TP(map_all(fd, MANY, MAP_PRIVATE));
    n[MANY / 5] = 'd';
    say("%c%c", m[MANY / 3], n[MANY / 5]);
    T(sigprocmask(SIG_SETMASK, &old, NULL));
    hole_of_handler = m + MANY / 7;
    struct sigaction act = { .sa_handler = fills_hole, .sa_mask = all };
    T(sigaction(SIGUSR1, &act, NULL));
    T(raise(SIGUSR1));
    say("%d", *hole_of_handler == SIGUSR1);
    signal(SIGBUS, on_signal);
    m[MANY / 9] = 'e';
    say("%c", m[MANY / 9]);
}

static sigjmp_buf leave;
static void leaves(int signal)
{
    siglongjmp(leave, signal);
}

/* Faults that are the program's own arrive at its handlers. */
GROUP(memory, faults_beside_a_large_hole)
{
    int fd = sparse("f", MANY);
    struct sigaction act = { .sa_handler = leaves };
    T(sigaction(SIGSEGV, &act, NULL));
    T(sigaction(SIGBUS, &act, NULL));
    char *volatile reads = TP(mmap(NULL, MANY, PROT_READ, MAP_SHARED, fd, 0));
    char *volatile none = TP(mmap(NULL, MANY, PROT_NONE, MAP_SHARED, fd, 0));
    char *volatile more = TP(mmap(NULL, 2 * MANY, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    int signal;
    if (!(signal = sigsetjmp(leave, 1)))
        reads[MANY / 2] = 'x';
    say("write to a mapping that is read: %d", signal);
    if (!(signal = sigsetjmp(leave, 1)))
        say("%d", none[MANY / 2]);
    say("read of one without access: %d", signal);
    if (!(signal = sigsetjmp(leave, 1)))
        more[MANY + 5] = 'x';
    say("beyond the end: %d", signal);
    more[5] = 'y';
    T(ftruncate(fd, PAGE));
    if (!(signal = sigsetjmp(leave, 1)))
        more[MANY / 2] = 'z';
    say("cut: %d", signal);
    T(ftruncate(fd, 2 * MANY));
    more[MANY + 5] = 'x';
    say("%d%c%c", reads[MANY / 2], reads[5], more[MANY + 5]);
}

GROUP(memory, large_hole_advised)
{
    unsigned char in[4];
    int fd = sparse("f", MANY);
    char *m = TP(map_all(fd, MANY, MAP_SHARED));
    T(mincore(m, 4 * PAGE, in));
    T(madvise(m, MANY, MADV_DONTNEED));
    T(madvise(m, MANY, MADV_REMOVE));
    T(msync(m, MANY, MS_SYNC));
    is_sparse(fd);
    T(madvise(m, 8 * PAGE, 23 /* MADV_POPULATE_WRITE */));
    T(madvise(m + MANY / 2, 8 * PAGE, 22 /* MADV_POPULATE_READ */));
    T(mlock(m + MANY / 4, 8 * PAGE));
    T(mincore(m, 4 * PAGE, in));
    say_bytes("in memory", in, 4);
    is_sparse(fd);
    char *all = TP(mmap(NULL, MANY / 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0));
    is_sparse(fd);
    say("%d", all[MANY / 5]);
}

/* What mlockall(2) does and leaves alone where it is refused, and what ends with it. */
GROUP(memory, locking_all_memory)
{
    int fd = sparse("f", MANY);
    char *m = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, make_open("g", "text", O_RDWR), 0));
    T(mlockall(MCL_FUTURE | 64));
    T(munmap(map_all(fd, MANY, MAP_SHARED), MANY));
    say("refused:"), is_sparse(fd);
    T(mlockall(MCL_FUTURE));
    CHILD
    {
        T(munmap(map_all(fd, MANY, MAP_SHARED), MANY));
        say("in a child:"), is_sparse(fd);
    }
    T(munlockall());
    T(munmap(map_all(fd, MANY, MAP_SHARED), MANY));
    say("unlocked:"), is_sparse(fd);
    become_nobody();
    struct rlimit few = { 16 * PAGE, 16 * PAGE };
    T(setrlimit(RLIMIT_MEMLOCK, &few));
    char *holes = TP(map_all(fd, MANY, MAP_SHARED));
    T(mlock(m, PAGE));
    T(mlockall(MCL_CURRENT));
    T(madvise(m, PAGE, MADV_COLD));
    T(madvise(holes, PAGE, MADV_COLD));
    say("beyond the limit:"), is_sparse(fd);
}

/* A sealed mapping keeps its holes, which get pages as they are touched. */
GROUP(memory, sealed_holes)
{
    int fd = sparse("f", MANY);
    char *m = TP(map_all(fd, MANY, MAP_SHARED));
    T(syscall(462, m, MANY, 0)); /* mseal */
    CHILD
    {
        m[MANY / 2] = 'x';
        say("%d %c", m[MANY / 3], m[MANY / 2]);
        T(munmap(m, PAGE));
    }
    T(pread(fd, m + PAGE, 1, MANY / 2));
    say("%c", m[PAGE]);
}

/* More bytes than a page from and to a hole, in calls that name them. */
GROUP(memory, large_hole_and_attributes)
{
    int fd = sparse("f", MANY);
    char *m = TP(map_all(fd, MANY, MAP_SHARED));
    T(fsetxattr(fd, "user.a", m + MANY / 2, 3 * PAGE, 0));
    T(setxattr("f", "user.b", m + MANY / 3, 9000, 0));
    T(fgetxattr(fd, "user.a", m + MANY / 4, 3 * PAGE));
    T(unlink("f"));
}

/* One page of a library's code: what lies behind it is the program's. */
GROUP(memory, beside_a_page_of_a_library)
{
    const long pages = 600;
    int fd = open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY);
    Elf64_Ehdr header;
    pread(fd, &header, sizeof header, 0);
    for (int i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        pread(fd, &segment, sizeof segment, header.e_phoff + i * sizeof segment);
        if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X))
            continue;
        char *room = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(room, 7, pages * PAGE);
        TP(mmap(room, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, segment.p_offset & -PAGE));
        long changed = 0;
        for (long at = PAGE; at < pages * PAGE; at++)
            changed += room[at] != 7;
        say("%ld bytes changed", changed);
        if (!changed)
            memset(room + PAGE, 8, (pages - 1) * PAGE);
        T(munmap(room, pages * PAGE));
    }
    close(fd);
}
