/* splice, sendfile, copy_file_range, tee: pipe slots, limits, signals while waiting, files truncated
 * meanwhile. */
#include "conform.h"
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    handled++;
}

/* A file with `length` copies of `byte`. */
static int filled(const char *path, int byte, size_t length)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    char *bytes = malloc(length);
    memset(bytes, byte, length);
    if (fd < 0 || write(fd, bytes, length) != (ssize_t)length)
        say("cannot fill %s", path);
    free(bytes);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static void empty(int pipe_end)
{
    char bytes[4096];
    while (poll(&(struct pollfd){ pipe_end, POLLIN }, 1, 0) > 0 && read(pipe_end, bytes, sizeof bytes) > 0)
        ;
}

GROUP(splice, slots)
{
    int p[2], fd = T(open("f", O_RDWR | O_CREAT, 0644));
    T(pipe(p));
    T(ftruncate(fd, 1 << 20));
    /* A hole from within a page on: one slot per page. */
    loff_t at = 100;
    T(splice(fd, &at, p[1], NULL, 1 << 20, 0));
    say("at %lld", (long long)at);
    T(splice(fd, &at, p[1], NULL, 1 << 20, SPLICE_F_NONBLOCK));
    empty(p[0]);
    /* Every other page exists. */
    for (int page = 0; page < 64; page += 2)
        pwrite(fd, "data", 4, page * 4096);
    at = 4095;
    T(splice(fd, &at, p[1], NULL, 1 << 20, 0));
    say("at %lld", (long long)at);
    empty(p[0]);
    at = 10;
    T(splice(fd, &at, p[1], NULL, 20000, 0));
    T(splice(fd, &at, p[1], NULL, 20000, 0));
    empty(p[0]);
    at = 10;
    T(sendfile(p[1], fd, &at, 1 << 20));
    empty(p[0]);
    T(fcntl(p[1], F_SETFL, O_NONBLOCK));
    T(sendfile(p[1], fd, NULL, 1 << 20));
    T(sendfile(p[1], fd, NULL, 1 << 20));
    T(lseek(fd, 0, SEEK_CUR));
    empty(p[0]);
    at = (1 << 20) - 5000;
    T(splice(fd, &at, p[1], NULL, 1 << 20, 0));
    T(splice(fd, &at, p[1], NULL, 1 << 20, 0));
    /* The wrong ends. */
    T(splice(fd, NULL, p[0], NULL, 10, 0));
    T(splice(p[1], NULL, fd, NULL, 10, 0));
    T(splice(fd, &at, p[1], &at, 10, 0));
    signal(SIGPIPE, SIG_IGN);
    close(p[0]);
    at = 0;
    T(splice(fd, &at, p[1], NULL, 10, 0));
    T(sendfile(p[1], fd, &at, 10));
}

GROUP(splice, fifo)
{
    int fd = filled("f", 'f', 100000), to = T(open("t", O_RDWR | O_CREAT, 0644));
    mkfifo("p", 0600);
    int p = T(open("p", O_RDWR));
    loff_t at = 0;
    T(splice(fd, &at, p, NULL, 1 << 20, 0));
    T(splice(p, NULL, to, NULL, 1 << 20, 0));
    T(splice(p, NULL, to, NULL, 1 << 20, SPLICE_F_NONBLOCK));
    T(sendfile(p, fd, NULL, 1 << 20));
    T(splice(p, NULL, to, NULL, 100, 0));
    T(lseek(to, 0, SEEK_CUR));
    empty(p);
    int r = T(open("p", O_RDONLY)), w = T(open("p", O_WRONLY));
    close(p);
    T(write(w, "last", 4));
    close(w);
    T(splice(r, NULL, to, NULL, 100, 0));
    T(splice(r, NULL, to, NULL, 100, 0));
    attributes_fd(to);
    contents("t");
}

/* Whether a FIFO that may not be waited for has ended, or is empty for now. */
GROUP(splice, fifo_without_writers)
{
    int to = T(open("t", O_RDWR | O_CREAT, 0644));
    mkfifo("p", 0600);
    int r = T(open("p", O_RDONLY | O_NONBLOCK));
    T(splice(r, NULL, to, NULL, 100, 0));
    T(splice(r, NULL, to, NULL, 100, SPLICE_F_NONBLOCK));
    int w = T(open("p", O_WRONLY));
    T(splice(r, NULL, to, NULL, 100, 0));
    T(write(w, "text", 4));
    T(splice(r, NULL, to, NULL, 2, 0));
    close(w);
    T(splice(r, NULL, to, NULL, 100, 0));
    T(splice(r, NULL, to, NULL, 100, 0));
    int again = T(open("p", O_RDONLY | O_NONBLOCK));
    T(splice(again, NULL, to, NULL, 100, 0));
    contents("t");
}

/* Data that a file does not accept stays in the pipe. */
GROUP(splice, limit)
{
    int p[2], fd = T(open("f", O_RDWR | O_CREAT, 0644)), from = filled("g", 'g', 20000);
    struct sigaction action = { .sa_handler = on_signal };
    char left[100];
    sigaction(SIGXFSZ, &action, NULL);
    T(pipe(p));
    T(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 10000, RLIM_INFINITY }));
    T(write(p[1], "0123456789abcdef", 16));
    loff_t at = 9994;
    T(splice(p[0], NULL, fd, &at, 100, 0));
    say("at %lld signals %d", (long long)at, handled);
    T(splice(p[0], NULL, fd, &at, 100, 0));
    say("at %lld signals %d", (long long)at, handled);
    say_bytes("left", left, T(read(p[0], left, sizeof left)));
    T(splice(p[0], NULL, fd, &at, 100, SPLICE_F_NONBLOCK));
    T(lseek(fd, 9000, SEEK_SET));
    T(sendfile(fd, from, NULL, 5000));
    T(sendfile(fd, from, NULL, 5000));
    say("signals %d", handled);
    loff_t in = 0, out = 9999;
    T(copy_file_range(from, &in, fd, &out, 100, 0));
    T(copy_file_range(from, &in, fd, &out, 100, 0));
    say("in %lld out %lld signals %d", (long long)in, (long long)out, handled);
    attributes_fd(fd);
}

/* Runs `call` in a child until it waits, signals it, and lets `release` end the wait if the signal did not.
 * */
static void interrupted(const char *name, int flags, long (*call)(void), void (*release)(void))
{
    struct shared {
        volatile int started, handled;
    } *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child) {
        struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
        sigaction(SIGUSR1, &action, NULL);
        handled = 0;
        shared->started = 1;
        errno = 0;
        long result = call();
        if (result > 0 && strstr(name, "partly"))
            result = 1;
        say("%s: %ld %s, handler ran %d times", name, result, result < 0 ? strerrorname_np(errno) : "", handled);
        _exit(0);
    }
    char path[64], state = 0;
    sprintf(path, "/proc/%d/stat", child);
    for (int tries = 0; tries < 20000 && !(shared->started && state == 'S'); tries++) {
        FILE *stat = fopen(path, "r");
        if (!stat || fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (stat)
            fclose(stat);
        usleep(500);
    }
    kill(child, SIGUSR1);
    if (flags & SA_RESTART) {
        /* Once the handler has run and the call waits again. */
        for (int calm = 0; calm < 20; calm++) {
            FILE *stat = fopen(path, "r");
            if (!stat || fscanf(stat, "%*d (%*[^)]) %c", &state) != 1 || state != 'S')
                calm = 0;
            if (stat)
                fclose(stat);
            if (!state || state == 'Z')
                break;
            usleep(1000);
        }
        release();
    }
    say_wait(child);
}

static int ends[2], more[2], file;

static long splice_in(void)
{
    return splice(ends[0], NULL, file, NULL, 4096, 0);
}

static long splice_out(void)
{
    return splice(file, &(loff_t){ 0 }, ends[1], NULL, 4096, 0);
}

static long send_to_pipe(void)
{
    return sendfile(ends[1], file, &(off_t){ 0 }, 4096);
}

static long tee_pipes(void)
{
    return tee(ends[0], more[1], 4096, 0);
}

static long send_to_socket(void)
{
    return sendfile(more[1], file, &(off_t){ 0 }, 64 << 20);
}

static void feed(void)
{
    write(ends[1], "fed", 3);
}

static void drain(void)
{
    char bytes[8192];
    read(ends[0], bytes, sizeof bytes);
}

static void open_pipes(int full)
{
    char bytes[4096] = { 0 };
    pipe(ends);
    pipe(more);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (full && write(ends[1], bytes, sizeof bytes) > 0)
        ;
    fcntl(ends[1], F_SETFL, 0);
}

GROUP(splice, signals)
{
    file = filled("f", 'f', 100000);
    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        say(flags ? "SA_RESTART" : "no SA_RESTART");
        open_pipes(0);
        interrupted("splice from an empty pipe", flags, splice_in, feed);
        open_pipes(0);
        interrupted("tee from an empty pipe", flags, tee_pipes, feed);
        open_pipes(1);
        interrupted("splice to a full pipe", flags, splice_out, drain);
        open_pipes(1);
        interrupted("sendfile to a full pipe", flags, send_to_pipe, drain);
    }
    T(ftruncate(file, 64 << 20));
    socketpair(AF_UNIX, SOCK_STREAM, 0, more);
    interrupted("sendfile partly sent", 0, send_to_socket, NULL);
}

/* A blocked sendfile of a file that is truncated and whose pages go to another file. */
GROUP(splice, cut)
{
    int fd = filled("f", 'A', 1 << 20), p[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, p);
    pid_t child = fork();
    if (!child) {
        close(p[0]);
        sendfile(p[1], fd, NULL, 1 << 20);
        _exit(0);
    }
    close(p[1]);
    /* Until the pipe is full. */
    int held = -1, before;
    do {
        before = held;
        usleep(50000);
        ioctl(p[0], 0x541b, &held);
    } while (held == 0 || held != before);
    truncate("f", 0);
    int other = filled("g", 'Z', 64 << 20);
    static char bytes[65536];
    long foreign = 0, got;
    while ((got = read(p[0], bytes, sizeof bytes)) > 0)
        for (long i = 0; i < got; i++)
            foreign += bytes[i] != 'A' && bytes[i] != 0;
    say_wait(child);
    say("foreign bytes %ld", foreign);
}

/* copy_file_range of a file that is truncated meanwhile and whose pages go to another file. */
GROUP(splice, copies_of_cut)
{
    volatile int *stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const size_t length = 1 << 18;
    int from = filled("f", 'A', length), to = open("t", O_RDWR | O_CREAT, 0644);
    pid_t child = fork();
    if (!child) {
        int f = open("f", O_RDWR), g = open("g", O_RDWR | O_CREAT, 0644);
        char *a = malloc(length), *z = malloc(length);
        memset(a, 'A', length), memset(z, 'Z', length);
        while (!*stop) {
            pwrite(f, a, length, 0);
            ftruncate(f, 0);
            pwrite(g, z, length, 0);
            ftruncate(g, 0);
            stop[1]++;
        }
        _exit(0);
    }
    char *bytes = malloc(length);
    long foreign = 0;
    for (int round = 0; round < 1000 || stop[1] < 2000; round++) {
        ftruncate(to, 0);
        loff_t in = 0, out = 0;
        if (round % 2) {
            copy_file_range(from, &in, to, &out, length, 0);
        } else {
            lseek(to, 0, SEEK_SET);
            sendfile(to, from, &in, length);
        }
        long got = pread(to, bytes, length, 0);
        for (long i = 0; i < got; i++)
            foreign += bytes[i] != 'A' && bytes[i] != 0;
    }
    *stop = 1;
    say_wait(child);
    say("foreign bytes %ld", foreign);
    ftruncate(to, 0); /* The result of the last copy varies. */
}

/* Size, blocks and the times of one change appear together. */
GROUP(splice, observers)
{
    volatile int *stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const size_t length = 1 << 18;
    int fd = open("f", O_RDWR | O_CREAT, 0644);
    pid_t child = fork();
    if (!child) {
        char *bytes = calloc(1, length);
        while (!*stop) {
            pwrite(fd, bytes, length, 0);
            ftruncate(fd, 0);
            fallocate(fd, 0, 0, length);
            truncate("f", 0);
            stop[1]++;
        }
        _exit(0);
    }
    long sizes = 0, orders = 0;
    for (int round = 0; round < 2000 || stop[1] < 3000; round++) {
        struct stat st;
        if (round & 1 ? fstat(fd, &st) : stat("f", &st))
            say("stat: %s", strerrorname_np(errno));
        sizes += st.st_size ? st.st_size != (long)length || st.st_blocks != (long)length / 512 : st.st_blocks != 0;
        orders += st.st_mtim.tv_sec != st.st_ctim.tv_sec || st.st_mtim.tv_nsec != st.st_ctim.tv_nsec;
    }
    *stop = 1;
    say_wait(child);
    /* tmpfs promises neither (docs/differences.md). Its devices have low minor numbers, a region's has a high
     * one. */
    struct stat st;
    fstat(fd, &st);
    int mixed = minor(st.st_dev) >= 0x80000 && (sizes || orders);
    say("mixed %d", mixed);
    if (mixed)
        say("size and blocks %ld, times %ld", sizes, orders);
}

/* Memory of a mapping that became valid when another process grew the file, passed to calls on files. */
GROUP(splice, grown_mapping)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644)), to = T(open("t", O_RDWR | O_CREAT, 0644));
    T(ftruncate(fd, 4096));
    char *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    T(write(to, map + 65536, 4));
    CHILD {
        int again = open("f", O_RDWR);
        ftruncate(again, 1 << 20);
        pwrite(again, "data", 4, 65536);
    }
    T(write(to, map + 65536, 4));
    T(pread(to, map + 131072, 4, 0));
    T(pwritev(to, &(struct iovec){ map + 196608, 4 }, 1, 4));
    contents("t");
    T(memcmp(map + 131072, "data", 4));
}

static void said(int signal)
{
    (void)signal;
    static const char text[] = "SIGPIPE\n";
    (void)!write(1, text, sizeof text - 1);
}

static void read_time(const char *path)
{
    struct stat st;
    T(stat(path, &st));
    say("read %s", st.st_atim.tv_sec == 10 ? "before" : "now");
    static const struct timespec past[2] = { { 10, 0 }, { 20, 0 } };
    utimensat(AT_FDCWD, path, past, 0);
}

/* The kernel waits for a pipe, and looks whether anybody reads it, before it looks at what to move. */
GROUP(splice, nothing_into_a_pipe)
{
    signal(SIGPIPE, said);
    make_dir("d");
    int file = make_open("f", "text", O_RDWR), dir = open("d", O_RDONLY), p[2];
    loff_t end = 4, start = 0;
    T(pipe(p));
    T(sendfile(p[1], file, NULL, 0));
    T(sendfile(p[1], dir, NULL, 0));
    T(sendfile(p[1], dir, NULL, 5));
    T(sendfile(p[1], file, &end, 5));
    T(splice(dir, NULL, p[1], NULL, 5, 0));
    T(splice(file, &end, p[1], NULL, 5, 0));
    say("full");
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    static char page[1 << 20];
    while (write(p[1], page, sizeof page) > 0)
        ;
    T(sendfile(p[1], file, &start, 0));
    T(sendfile(p[1], dir, NULL, 0));
    T(sendfile(p[1], dir, NULL, 5));
    T(sendfile(p[1], file, &end, 5));
    T(splice(dir, NULL, p[1], NULL, 0, 0));
    T(splice(dir, NULL, p[1], NULL, 5, 0));
    fcntl(p[1], F_SETFL, 0);
    T(splice(dir, NULL, p[1], NULL, 5, SPLICE_F_NONBLOCK));
    T(splice(file, &end, p[1], NULL, 5, SPLICE_F_NONBLOCK));
    say("without readers");
    close(p[0]);
    T(sendfile(p[1], file, &start, 0));
    T(sendfile(p[1], dir, NULL, 0));
    T(sendfile(p[1], dir, NULL, 5));
    T(sendfile(p[1], file, &end, 5));
    T(sendfile(p[1], file, &start, 4));
    T(splice(dir, NULL, p[1], NULL, 0, 0));
    T(splice(dir, NULL, p[1], NULL, 5, 0));
    T(splice(file, &end, p[1], NULL, 5, SPLICE_F_NONBLOCK));
    T(splice(file, &start, p[1], NULL, 4, 0));
}

/* Into a file of another file system: what cannot be sent counts as read. */
GROUP(splice, nothing_into_another_file)
{
    make_dir("d");
    int file = make_open("f", "text", O_RDWR), dir = open("d", O_RDONLY), s[2];
    int outs[] = { open("/dev/null", O_WRONLY), memfd_create("m", 0), open("/dev/null", O_WRONLY | O_APPEND), open("/dev/null", O_RDONLY) };
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    loff_t at;
    read_time("d"), read_time("f");
    for (unsigned i = 0; i < COUNT(outs) + 1; i++) {
        int out = i < COUNT(outs) ? outs[i] : s[0];
        say("%u", i);
        TN("a directory", sendfile(out, dir, NULL, 5));
        read_time("d");
        TN("nothing of it", sendfile(out, dir, NULL, 0));
        read_time("d");
        TN("nothing of a file", sendfile(out, file, NULL, 0));
        read_time("f");
        TN("its end", sendfile(out, file, (at = 4, &at), 5));
        read_time("f");
        TN("it", sendfile(out, file, (at = 0, &at), 5));
        read_time("f");
        TN("from before it", sendfile(out, dir, (at = -1, &at), 0));
        read_time("d");
    }
}

/* A target whose position leaves no room is refused before the source is looked at. */
GROUP(splice, behind_the_largest_offset)
{
    int file = make_open("f", "text", O_RDWR), out = make_open("g", "", O_RDWR), dir = open(".", O_RDONLY), host = open("/dev/zero", O_RDONLY);
    int ins[] = { file, out, dir, host, open("/dev/null", O_RDONLY) };
    static const long ends[] = { INT64_MAX, INT64_MAX - 4 };
    for (unsigned e = 0; e < COUNT(ends); e++)
        for (unsigned i = 0; i < COUNT(ins); i++) {
            say("%u %u", e, i);
            loff_t at = 4;
            T(lseek(out, ends[e], SEEK_SET) == ends[e]);
            TN("more", sendfile(out, ins[i], &at, 100));
            TN("the end", sendfile(out, ins[i], (at = 4, &at), 4));
            TN("nothing", sendfile(out, ins[i], &at, 0));
        }
    T(ftruncate(out, 0));
}
