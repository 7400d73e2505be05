/* io_setup(2), io_submit(2), io_getevents(2), io_destroy(2). */
#include "conform.h"
#include <linux/aio_abi.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/uio.h>

static aio_context_t context;
static char room[20000];

static struct iocb with(int operation, int fd, void *memory, size_t bytes, long long offset)
{
    return (struct iocb){ .aio_data = 7, .aio_lio_opcode = operation, .aio_fildes = fd, .aio_buf = (uintptr_t)memory,
                          .aio_nbytes = bytes, .aio_offset = offset };
}
static int submit(struct iocb *block)
{
    return syscall(SYS_io_submit, context, 1, &block);
}
/* Submits, waits, and says what came of it. */
static void run(const char *what, struct iocb block)
{
    struct iocb before = block;
    struct io_event event = { 0 };
    int done = submit(&block);
    if (done != 1) {
        say("%s: %d %s", what, done, done < 0 ? strerrorname_np(errno) : "");
        return;
    }
    struct timespec wait = { 5, 0 };
    int count = syscall(SYS_io_getevents, context, 1, 1, &event, &wait);
    say("%s: %d events, result %lld, data %llu, %s, %s", what, count, (long long)event.res,
        (unsigned long long)event.data, event.obj == (uintptr_t)&block ? "its block" : "another block",
        memcmp(&before, &block, sizeof block) ? "changed" : "as it was");
}
static void begin(void)
{
    context = 0;
    T(syscall(SYS_io_setup, 8, &context));
}
static void stay_on_this_processor(void)
{
    cpu_set_t this;
    CPU_ZERO(&this);
    CPU_SET(sched_getcpu(), &this);
    T(sched_setaffinity(0, sizeof this, &this));
}
static void end(void)
{
    T(syscall(SYS_io_destroy, context));
}

GROUP(aio, data)
{
    begin();
    int fd = make_open("f", "0123456789", O_RDWR);
    run("read", with(IOCB_CMD_PREAD, fd, room, 4, 3));
    say("%.4s", room);
    run("read to the end", with(IOCB_CMD_PREAD, fd, room, 100, 8));
    run("read at the end", with(IOCB_CMD_PREAD, fd, room, 100, 10));
    run("read behind the end", with(IOCB_CMD_PREAD, fd, room, 100, 10000));
    run("write", with(IOCB_CMD_PWRITE, fd, "abc", 3, 9));
    memset(room, 'r', sizeof room);
    run("write far", with(IOCB_CMD_PWRITE, fd, room, sizeof room, 5000));
    run("nothing", with(IOCB_CMD_PWRITE, fd, room, 0, 50000));
    struct iovec pieces[] = { { room, 2 }, { room + 100, 5 } };
    run("readv", with(IOCB_CMD_PREADV, fd, pieces, 2, 8));
    say("%.2s %.5s", room, room + 100);
    run("writev", with(IOCB_CMD_PWRITEV, fd, pieces, 2, 0));
    run("fsync", with(IOCB_CMD_FSYNC, fd, NULL, 0, 0));
    run("fdatasync", with(IOCB_CMD_FDSYNC, fd, NULL, 0, 0));
    struct stat st;
    T(fstat(fd, &st));
    say("%ld, at %ld", (long)st.st_size, (long)lseek(fd, 0, SEEK_CUR));
    T(pread(fd, room, 16, 0));
    say("%.12s", room);
    int appends = T(open("f", O_WRONLY | O_APPEND));
    run("append", with(IOCB_CMD_PWRITE, appends, "end", 3, 0));
    T(fstat(fd, &st));
    say("%ld", (long)st.st_size);
    end();
}

/* What a file has grown by can be given to the kernel where it is mapped. */
GROUP(aio, grown_where_mapped)
{
    begin();
    int fd = make_open("f", "text", O_RDWR), p[2];
    T(pipe(p));
    char *m = mmap(NULL, 3 * 4096, PROT_READ, MAP_SHARED, fd, 0);
    T(write(p[1], m + 4096, 4));
    run("write", with(IOCB_CMD_PWRITE, fd, "more", 4, 4096));
    T(write(p[1], m + 4096, 4));
    struct iovec piece = { "last", 4 };
    run("writev", with(IOCB_CMD_PWRITEV, fd, &piece, 1, 8192));
    T(write(p[1], m + 8192, 4));
    T(read(p[0], room, 16));
    say("%.8s", room);
    end();
}

GROUP(aio, errors)
{
    begin();
    int fd = make_open("f", "0123456789", O_RDWR), reads = T(open("f", O_RDONLY)), writes = T(open("f", O_WRONLY));
    int path = T(open("f", O_PATH)), dir = T(open(".", O_RDONLY));
    run("read of a writer", with(IOCB_CMD_PREAD, writes, room, 4, 0));
    run("write to a reader", with(IOCB_CMD_PWRITE, reads, room, 4, 0));
    run("a path", with(IOCB_CMD_PREAD, path, room, 4, 0));
    run("a directory", with(IOCB_CMD_PREAD, dir, room, 4, 0));
    run("fsync of a directory", with(IOCB_CMD_FSYNC, dir, NULL, 0, 0));
    run("no file", with(IOCB_CMD_PREAD, 99, room, 4, 0));
    run("bad memory", with(IOCB_CMD_PREAD, fd, (void *)64, 4, 0));
    run("bad memory to write", with(IOCB_CMD_PWRITE, fd, (void *)64, 4, 0));
    run("before the beginning", with(IOCB_CMD_PREAD, fd, room, 4, -1));
    run("beyond all", with(IOCB_CMD_PREAD, fd, room, 4, 0x7fffffffffffffff));
    run("too much", with(IOCB_CMD_PREAD, fd, room, -1, 0));
    run("fsync of a range", with(IOCB_CMD_FSYNC, fd, NULL, 4, 0));
    run("poll", with(IOCB_CMD_POLL, fd, (void *)POLLIN, 0, 0));
    run("poll of a directory", with(IOCB_CMD_POLL, dir, (void *)POLLIN, 0, 0));
    run("no operation", with(IOCB_CMD_NOOP, fd, room, 4, 0));
    run("unknown operation", with(77, fd, room, 4, 0));
    struct iocb block = with(IOCB_CMD_PREAD, fd, room, 4, 0);
    block.aio_reserved2 = 1;
    run("reserved", block);
    block = with(IOCB_CMD_PREAD, fd, room, 4, 0);
    block.aio_rw_flags = 1 << 20;
    run("unknown flag", block);
    run("after all", with(IOCB_CMD_PREAD, fd, room, 4, 0));
    struct iocb *blocks[] = { &block };
    T(syscall(SYS_io_submit, context + 4096 * 1000, 1, blocks));
    T(syscall(SYS_io_submit, context, -1L, blocks));
    T(syscall(SYS_io_submit, context, 0L, blocks));
    T(syscall(SYS_io_submit, context, 1L, NULL));
    blocks[0] = NULL;
    T(syscall(SYS_io_submit, context, 1L, blocks));
    close(reads);
    run("closed", with(IOCB_CMD_PREAD, reads, room, 4, 0));
    end();
}

GROUP(aio, several)
{
    begin();
    int fd = make_open("f", "0123456789", O_RDWR), null = T(open("/dev/zero", O_RDWR)), tells = T(eventfd(0, 0));
    struct iocb first = with(IOCB_CMD_PREAD, fd, room, 4, 0), second = with(IOCB_CMD_PREAD, null, room + 8, 8, 0);
    struct iocb third = with(IOCB_CMD_PWRITE, fd, "xyz", 3, 0), bad = with(IOCB_CMD_PREAD, 99, room, 4, 0);
    third.aio_flags = IOCB_FLAG_RESFD, third.aio_resfd = tells;
    struct iocb *blocks[] = { &first, &second, &third, &bad, &first };
    struct io_event events[8];
    T(syscall(SYS_io_submit, context, 5L, blocks));
    int count = T(syscall(SYS_io_getevents, context, 3L, 8L, events, NULL));
    for (int i = 0; i < count; i++)
        say("%lld", (long long)events[i].res);
    uint64_t told = 0;
    T(read(tells, &told, 8));
    say("told %d, read %.4s", (int)told, room);
    third.aio_resfd = fd;
    blocks[0] = &third;
    T(syscall(SYS_io_submit, context, 1L, blocks));
    struct timespec soon = { 0, 1000 };
    T(syscall(SYS_io_getevents, context, 1L, 1L, events, &soon));
    end();
}

static volatile int signalled;
static void count_signal(int number)
{
    (void)number;
    signalled++;
}

GROUP(aio, limits)
{
    begin();
    signal(SIGXFSZ, SIG_IGN);
    int fd = make_open("f", "0123456789", O_RDWR);
    struct rlimit limit = { 100, RLIM_INFINITY };
    struct iocb block = with(IOCB_CMD_PWRITE, fd, room, 200, 90);
    struct io_event event;
    /* The limit is for the output as well. */
    int limited = setrlimit(RLIMIT_FSIZE, &limit), done = submit(&block);
    limit.rlim_cur = RLIM_INFINITY;
    T(setrlimit(RLIMIT_FSIZE, &limit));
    T(syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL));
    say("%d %d, result %lld", limited, done, (long long)event.res);
    /* Beyond it, the signal counts as well. */
    signal(SIGXFSZ, count_signal);
    limit.rlim_cur = 100;
    block = with(IOCB_CMD_PWRITE, fd, room, 20, 100);
    limited = setrlimit(RLIMIT_FSIZE, &limit), done = submit(&block);
    struct iovec piece = { room, 5 };
    struct iocb vector = with(IOCB_CMD_PWRITEV, fd, &piece, 1, 1LL << 40);
    int second = submit(&vector), signals = signalled;
    limit.rlim_cur = RLIM_INFINITY;
    T(setrlimit(RLIMIT_FSIZE, &limit));
    say("%d %d %d, %d signals", limited, done, second, signals);
    struct io_event events[2] = { 0 };
    T(syscall(SYS_io_getevents, context, 2L, 2L, events, NULL));
    say("%lld %lld", (long long)events[0].res, (long long)events[1].res);
    pid_t child = fork();
    if (child == 0) {
        block = with(IOCB_CMD_PREAD, fd, room, 4, 0);
        done = submit(&block);
        say("in a child: %d %s", done, strerrorname_np(errno));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    end();
}

/* A context without room for another event: nothing is done. The kernel deals room out to processors, and a
 * thread does not get what is left for another one. */
GROUP(aio, full)
{
    stay_on_this_processor();
    begin();
    int fd = make_open("f", "", O_RDWR | O_APPEND), count = 0;
    struct iocb block = with(IOCB_CMD_PWRITE, fd, "x", 1, 0);
    while (count < 1000000 && submit(&block) == 1)
        count++;
    say("%d %s", count > 8, strerrorname_np(errno));
    struct stat st;
    T(fstat(fd, &st));
    say("%d", st.st_size == count);
    T(submit(&block));
    struct iocb bad = with(IOCB_CMD_PREAD, 99, room, 1, 0), odd = with(77, fd, room, 1, 0);
    T(submit(&bad));
    T(submit(&odd));
    odd.aio_reserved2 = 1;
    T(submit(&odd));
    close(fd);
    T(submit(&block));
    struct io_event events[4];
    T(syscall(SYS_io_getevents, context, 4L, 4L, events, NULL));
    end();
}

/* Memory of operations in holes of mapped files. */
GROUP(aio, from_and_to_holes)
{
    begin();
    int holes = make_open("holes", "", O_RDWR), fd = make_open("f", "0123456789", O_RDWR), p[2];
    T(pipe(p));
    T(ftruncate(holes, 64 << 20));
    char *m = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, holes, 0);
    run("read", with(IOCB_CMD_PREAD, fd, m + (8 << 20), 10, 0));
    say("%.10s", m + (8 << 20));
    run("write", with(IOCB_CMD_PWRITE, fd, m + (20 << 20), 300000, 4));
    struct iovec pieces[2] = { { m + (30 << 20), 5 }, { m + (40 << 20) - 2, 5 } };
    run("readv", with(IOCB_CMD_PREADV, fd, pieces, 2, 0));
    say("%.4s", m + (30 << 20));
    run("to the kernel", with(IOCB_CMD_PWRITE, p[1], m + (50 << 20), 10, 0));
    end();
}

GROUP(aio, of_a_path)
{
    begin();
    make("f", "text");
    int fd = T(open("f", O_PATH));
    run("read", with(IOCB_CMD_PREAD, fd, room, 4, 0));
    run("fsync", with(IOCB_CMD_FSYNC, fd, NULL, 0, 0));
    run("unknown", with(77, fd, room, 4, 0));
    end();
}
