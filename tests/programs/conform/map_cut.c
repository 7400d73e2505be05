/* Mappings of a file that another process truncates: what lies behind the new end raises SIGBUS, whatever the
 * mapping's process is doing meanwhile. */
#include "map.h"
#include <poll.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#define BOTH (PROT_READ | PROT_WRITE)

/* A new file with a letter in each byte: 'a' in the first page, and so on. */
static int lettered(const char *name, int pages)
{
    static char page[PAGE];
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < pages; i++) {
        memset(page, 'a' + i % 26, PAGE);
        if (write(fd, page, PAGE) != PAGE)
            say("short");
    }
    return fd;
}

/* Another process sets the size. */
static void cut(const char *name, long size)
{
    pid_t child = fork();
    if (!child)
        _exit(truncate(name, size) != 0);
    say_wait(child);
}

static void *map(int protection, int flags, int fd, int pages)
{
    return mmap(NULL, pages * PAGE, protection, flags, fd, 0);
}

/* Whether the kernel reads a byte there on the program's behalf. */
static void kernel_reads(const char *text, const char *at)
{
    int pipes[2];
    char byte = '-';
    pipe(pipes);
    TN(text, write(pipes[1], at, 1));
    close(pipes[1]);
    read(pipes[0], &byte, 1);
    say("%02x", (unsigned char)byte);
    close(pipes[0]);
}

/* Whether the kernel writes a byte there on the program's behalf. */
static void kernel_writes(const char *text, char *at)
{
    int pipes[2];
    pipe(pipes);
    write(pipes[1], "K", 1);
    TN(text, read(pipes[0], at, 1));
    close(pipes[0]), close(pipes[1]);
}

GROUP(map, cut_by_another)
{
    int fd = lettered("f", 6), ro = T(open("f", O_RDONLY));
    char *s = TP(map(BOTH, MAP_SHARED, fd, 6)), *p = TP(map(BOTH, MAP_PRIVATE, fd, 6)), *r = TP(map(PROT_READ, MAP_SHARED, ro, 6));
    for (int i = 0; i < 6; i++)
        say("%c%c%c", s[i * PAGE], p[i * PAGE], r[i * PAGE]);
    p[0] = 'P';
    cut("f", PAGE + 10);
    touch("kept", s, 0);
    touch("private page that is written", p, 0);
    touch("last byte", s + PAGE + 9, 0);
    touch("rest of the page", s + PAGE + 10, 0);
    touch("shared", s + 2 * PAGE, 0);
    touch("shared, written", s + 5 * PAGE + 5, 1);
    touch("private", p + 2 * PAGE, 0);
    touch("private, written", p + 5 * PAGE, 1);
    touch("read-only", r + 3 * PAGE, 0);
    kernel_reads("kernel reads", s + 4 * PAGE);
    kernel_writes("kernel writes", s + 4 * PAGE);
    T(pread(fd, s + 4 * PAGE, 1, 0));
    T(pwrite(fd, s + 4 * PAGE, 1, 0));
    T(write(fd, "x", 1));
    struct stat st;
    T(fstat(fd, &st));
    say("size %ld", (long)st.st_size);
    cut("f", 0);
    touch("empty", s, 0);
    touch("empty, read-only", r, 0);
}

GROUP(map, cut_and_grown_by_another)
{
    int fd = lettered("f", 6);
    char *s = TP(map(BOTH, MAP_SHARED, fd, 6)), *p = TP(map(BOTH, MAP_PRIVATE, fd, 6));
    touch("before", s + 3 * PAGE, 0);
    touch("before, private", p + 3 * PAGE, 0);
    CHILD {
        T(truncate("f", 0));
        T(truncate("f", 5 * PAGE));
    }
    kernel_reads("kernel reads", s + 2 * PAGE);
    kernel_writes("kernel writes", s + 2 * PAGE + 1);
    touch("what the kernel wrote", s + 2 * PAGE + 1, 0);
    touch("grown again", s + 3 * PAGE, 0);
    touch("grown again, private", p + 3 * PAGE, 0);
    touch("still behind", s + 5 * PAGE, 0);
    touch("grown again, written", s + 4 * PAGE, 1);
    char b[2] = "";
    T(pread(fd, b, 1, 4 * PAGE));
    say("%s", b);
    for (int i = 0; i < 3; i++) {
        cut("f", PAGE);
        touch("cut", s + 4 * PAGE, 0);
        touch("cut, private", p + 4 * PAGE, 0);
        cut("f", 6 * PAGE);
        touch("grown", s + 4 * PAGE, 0);
        touch("grown, private", p + 4 * PAGE, 0);
    }
    CHILD {
        int own = T(open("f", O_RDWR | O_TRUNC));
        T(pwrite(own, "new", 3, 4 * PAGE));
    }
    touch("hole before the new content", s + 2 * PAGE, 0);
    touch("new content", s + 4 * PAGE, 0);
    touch("new end", s + 5 * PAGE, 0);
    CHILD {
        T(truncate("f", 0));
        T(posix_fallocate(open("f", O_RDWR), 0, 3 * PAGE));
    }
    kernel_reads("kernel reads space", s + PAGE);
    touch("space", s + 2 * PAGE, 0);
    touch("behind space", s + 3 * PAGE, 0);
}

/* Pages that nobody has touched are there for the kernel, too, and go with a truncation. */
GROUP(map, cut_before_the_first_touch)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0600));
    T(ftruncate(fd, 20 * PAGE));
    char *s = TP(map(BOTH, MAP_SHARED, fd, 20)), *p = TP(map(BOTH, MAP_PRIVATE, fd, 20));
    kernel_reads("kernel reads", s + 2 * PAGE);
    kernel_writes("kernel writes", s + 3 * PAGE);
    kernel_reads("kernel reads, private", p + 4 * PAGE);
    kernel_writes("kernel writes, private", p + 5 * PAGE);
    T(pread(fd, s + 6 * PAGE, 1, 0));
    touch("before", s + 10 * PAGE, 1);
    cut("f", 8 * PAGE);
    touch("touched", s + 10 * PAGE, 0);
    touch("not touched", s + 12 * PAGE, 0);
    touch("not touched, private", p + 12 * PAGE, 0);
    touch("kept", s + 3 * PAGE, 0);
    T(fallocate(fd, 0, 0, 40 * PAGE));
    char *a = TP(map(BOTH, MAP_SHARED, fd, 40));
    kernel_reads("kernel reads space", a + 30 * PAGE);
    kernel_writes("kernel writes space", a + 31 * PAGE);
    cut("f", 10 * PAGE);
    touch("space", a + 30 * PAGE, 0);
    touch("space, not touched", a + 32 * PAGE, 0);
    touch("older mapping", s + 11 * PAGE, 0);
    touch("kept space", a + 9 * PAGE, 0);
    T(ftruncate(fd, 2048 * PAGE));
    char *big = TP(map(BOTH, MAP_SHARED, fd, 2048));
    touch("large hole", big + 1000 * PAGE, 0);
    kernel_writes("kernel writes beside it", big + 1001 * PAGE);
    cut("f", 1000 * PAGE);
    touch("cut", big + 1000 * PAGE, 0);
    touch("cut, kernel's", big + 1001 * PAGE, 0);
    touch("cut, still a hole", big + 2000 * PAGE, 0);
    touch("kept hole", big + 999 * PAGE, 0);
}

static void *reads_after(void *at)
{
    touch("in a thread", at, 0);
    return NULL;
}

static char *volatile sleeper_at;
static volatile int sleeper_ready;
static void *sleeps_beside(void *result)
{
    struct timespec left = { 0, 300000000 };
    int pipes[2];
    pipe(pipes);
    struct pollfd polled = { .fd = pipes[0], .events = POLLIN };
    sleeper_ready = 1;
    long bad = nanosleep(&left, &left) != 0;
    bad += poll(&polled, 1, 50) != 0;
    *(long *)result = bad;
    return NULL;
}

/* No call of the process is interrupted. */
GROUP(map, cut_beside_threads)
{
    int fd = lettered("f", 4);
    char *s = TP(map(BOTH, MAP_SHARED, fd, 4));
    pthread_t sleeper, reader;
    long bad = -1;
    pthread_create(&sleeper, NULL, sleeps_beside, &bad);
    while (!sleeper_ready)
        usleep(1000);
    for (int i = 0; i < 20; i++) {
        cut("f", i % 2 ? 4 * PAGE : PAGE);
        pthread_create(&reader, NULL, reads_after, s + 2 * PAGE);
        pthread_join(reader, NULL);
    }
    pthread_join(sleeper, NULL);
    say("interrupted: %ld", bad);
}

/* A child has its parent's mappings, and a process made by vfork(2) uses them. */
GROUP(map, cut_after_a_fork)
{
    int fd = lettered("f", 8), go[2];
    char *s = TP(map(BOTH, MAP_SHARED, fd, 8)), *p = TP(map(PROT_READ, MAP_PRIVATE, fd, 8)), c;
    T(pipe(go));
    pid_t child = fork();
    if (!child) {
        read(go[0], &c, 1);
        touch("child", s + 6 * PAGE, 0);
        touch("child, private", p + 6 * PAGE, 0);
        pid_t grandchild = fork();
        if (!grandchild) {
            touch("grandchild", s + 5 * PAGE, 0);
            char *own = mmap(NULL, 8 * PAGE, BOTH, MAP_SHARED, fd, 0);
            cut("f", PAGE);
            touch("grandchild", own + 3 * PAGE, 0);
            touch("grandchild, inherited", s + 3 * PAGE, 0);
            _exit(0);
        }
        say_wait(grandchild);
        touch("child", s + 2 * PAGE, 0);
        _exit(0);
    }
    cut("f", 4 * PAGE);
    write(go[1], "x", 1);
    say_wait(child);
    touch("parent", s + 2 * PAGE, 0);
    touch("parent, private", p + 2 * PAGE, 0);
    touch("parent, kept", s, 0);
    pid_t forked = vfork();
    if (!forked)
        _exit(truncate("f", 0) != 0);
    say_wait(forked);
    touch("after a child of vfork", s, 0);
    T(ftruncate(fd, 8 * PAGE));
    forked = vfork();
    if (!forked) {
        sleeper_at = mmap(NULL, 8 * PAGE, BOTH, MAP_SHARED, fd, 0);
        _exit(0);
    }
    say_wait(forked);
    touch("mapped by a child of vfork", sleeper_at + 7 * PAGE, 0);
    cut("f", PAGE);
    touch("older mapping", s + 7 * PAGE, 0);
}

GROUP(map, cut_after_changes_of_the_mapping)
{
    int fd = lettered("f", 8);
    char *s = TP(map(BOTH, MAP_SHARED, fd, 2)), *p = TP(map(BOTH, MAP_PRIVATE, fd, 8)), *q = TP(map(PROT_NONE, MAP_SHARED, fd, 8));
    s = TP(mremap(s, 2 * PAGE, 8 * PAGE, MREMAP_MAYMOVE));
    char *room = TP(mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    p[PAGE] = 'P';
    p = TP(mremap(p, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room));
    T(mprotect(q, 8 * PAGE, PROT_READ));
    T(munmap(s + 4 * PAGE, PAGE));
    char *x = TP(mmap(room + 8 * PAGE, 8 * PAGE, BOTH, MAP_SHARED | MAP_FIXED, fd, 0));
    T(madvise(x, 8 * PAGE, MADV_DONTNEED));
    T(mlock(x, 2 * PAGE));
    T(msync(x, 8 * PAGE, MS_SYNC));
    cut("f", 2 * PAGE);
    touch("grown by mremap", s + 6 * PAGE, 0);
    touch("beside what is unmapped", s + 3 * PAGE, 0);
    touch("moved", p + 6 * PAGE, 0);
    touch("moved, written and kept", p + PAGE, 0);
    touch("protected", q + 6 * PAGE, 0);
    touch("fixed", x + 6 * PAGE, 0);
    touch("fixed, kept", x + PAGE, 0);
}

/* The signal does what it does for any fault. */
GROUP(map, cut_and_blocked_signals)
{
    int fd = lettered("f", 4);
    char *s = TP(map(BOTH, MAP_SHARED, fd, 4));
    cut("f", PAGE);
    CHILD {
        sigset_t bus;
        sigemptyset(&bus), sigaddset(&bus, SIGBUS);
        sigprocmask(SIG_BLOCK, &bus, NULL);
        signal(SIGBUS, SIG_IGN);
        *(volatile char *)(s + PAGE);
    }
    CHILD {
        *(volatile char *)(s + 2 * PAGE) = 1;
    }
    touch("parent", s + 3 * PAGE, 0);
}

GROUP(map, cut_while_stopped)
{
    int fd = lettered("f", 4), status;
    char *s = TP(map(BOTH, MAP_SHARED, fd, 4));
    pid_t child = fork();
    if (!child) {
        raise(SIGSTOP);
        touch("after SIGCONT", s + 2 * PAGE, 0);
        touch("after SIGCONT, kept", s + PAGE, 0);
        _exit(0);
    }
    T(waitpid(child, &status, WUNTRACED) == child);
    say("stopped %d", WIFSTOPPED(status));
    cut("f", 2 * PAGE);
    kill(child, SIGCONT);
    say_wait(child);
}

/* A program that closes all that it does not know, and finds it closed. */
GROUP(map, cut_after_all_is_closed)
{
    int fd = lettered("f", 4);
    char *s = TP(map(BOTH, MAP_SHARED, fd, 4));
    T(close_range(fd + 1, ~0U, 0));
    for (int i = fd + 1; i < 1024; i++)
        close(i);
    T(dup(fd));
    cut("f", PAGE);
    touch("cut", s + 2 * PAGE, 0);
    long bad = 0;
    for (int i = fd + 2; i < 1024; i++)
        bad += fcntl(i, F_GETFD) != -1 || errno != EBADF;
    say("open: %ld", bad);
    char *t = TP(map(BOTH, MAP_SHARED, fd, 1));
    touch("kept", t, 0);
}

/* Truncations beside touches of another process: each byte is the file's, or SIGBUS. */
GROUP(map, cut_beside_touches)
{
    int fd = lettered("f", 8);
    char *s = TP(map(BOTH, MAP_SHARED, fd, 8));
    struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    sigaction(SIGBUS, &act, NULL);
    pid_t child = fork();
    if (!child) {
        static char page[PAGE];
        memset(page, 'x', PAGE);
        int own = open("f", O_RDWR);
        for (int i = 0; i < 2000; i++) {
            ftruncate(own, i % 7 * PAGE);
            if (i % 3)
                ftruncate(own, 8 * PAGE);
            else
                pwrite(own, page, PAGE, i % 8 * PAGE);
        }
        _exit(0);
    }
    volatile long signals = 0, bad = 0, rounds = 0;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        rounds++;
        for (volatile int i = 0; i < 8; i++)
            if (sigsetjmp(fault_exit, 1))
                signals++;
            else {
                char c = *(volatile char *)(s + i * PAGE);
                bad += c != 0 && c != 'x' && c != 'a' + i;
            }
    }
    say("%d, bad %ld", status, bad);
    signal(SIGBUS, SIG_DFL);
    T(ftruncate(fd, 2 * PAGE));
    cut("f", PAGE);
    touch("cut", s + PAGE, 0);
    touch("kept", s, 1);
}

/* What the process itself has written beyond the end is there for the kernel's calls, too. */
GROUP(map, written_and_given_to_the_kernel)
{
    static char text[2 * PAGE];
    int pair[2];
    pipe(pair);
    make("other", "other");
    int other = open("other", O_RDONLY);
    for (int kind = 0; kind < 2; kind++)
        for (int how = 0; how < 5; how++) {
            int fd = open("grown", O_RDWR | O_CREAT | O_TRUNC, 0600);
            ftruncate(fd, PAGE);
            char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, kind ? MAP_PRIVATE : MAP_SHARED, fd, 0);
            off_t from = 0, to = PAGE;
            struct iovec piece = {"hello", 5};
            say("%d %d", kind, how);
            switch (how) {
            case 0: T(pwrite(fd, "hello", 5, PAGE)); break;
            case 1: T(lseek(fd, PAGE, SEEK_SET)); T(write(fd, "hello", 5)); break;
            case 2: T(pwritev(fd, &piece, 1, PAGE)); break;
            case 3: T(lseek(fd, PAGE, SEEK_SET)); T(sendfile(fd, other, &from, 5)); break;
            case 4: T(copy_file_range(other, &from, fd, &to, 5, 0)); break;
            }
            T(write(pair[1], at + PAGE, 5));
            T(read(pair[0], text, 5));
            T(write(pair[1], "HELLO", 5));
            T(read(pair[0], at + PAGE, 5));
            say("%.5s %.5s", text, at + PAGE);
            munmap(at, 2 * PAGE);
            close(fd);
        }
    close(other);
}

/* Another process writes three more pages to a file of one. */
static void grown_by_another(int fd)
{
    pid_t child = fork();
    if (!child) {
        static char page[PAGE];
        memset(page, 'z', PAGE);
        for (int i = 1; i < 4; i++)
            pwrite(fd, page, PAGE, i * PAGE);
        _exit(0);
    }
    say_wait(child);
}

/* MADV_REMOVE reaches what another process has added to the file since it was mapped. */
GROUP(map, removed_after_growth)
{
    int fd = lettered("grows", 1);
    char *m = map(BOTH, MAP_SHARED, fd, 4);
    grown_by_another(fd);
    T(madvise(m, 4 * PAGE, MADV_REMOVE));
    for (int i = 0; i < 4; i++) {
        char byte = '-';
        pread(fd, &byte, 1, i * PAGE);
        say("%02x", (unsigned char)byte);
    }
}

/* What another process has added moves with a mapping. */
GROUP(map, moved_after_growth)
{
    for (int shared = 0; shared < 2; shared++) {
        int fd = lettered("grows", 1);
        char *m = map(BOTH, shared ? MAP_SHARED : MAP_PRIVATE, fd, 4);
        char *to = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        grown_by_another(fd);
        T(mremap(m, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        CHILD say("%c %c", to[0], to[2 * PAGE]);
    }
}
