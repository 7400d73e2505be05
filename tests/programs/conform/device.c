/* /dev/zero and /dev/null beside files: reads and writes, and all ways to create and close
 * their descriptors. */
#include "conform.h"
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

extern char **environ;

/* The result of a read of up to 8 bytes; the buffer was full of 'x'. */
static void look(const char *text, int fd)
{
    char b[8];
    memset(b, 'x', sizeof b);
    TN(text, read(fd, b, sizeof b));
    say_bytes("  bytes", b, sizeof b);
}

/* What a shell reads or writes through descriptor `fd`. */
static void look_by_exec(int fd)
{
    char line[100];
    sprintf(line, "head -c 3 <&%d 2>/dev/null | od -An -c; exec %d<f; head -c 3 <&%d | od -An -c", fd, fd, fd);
    CHILD {
        execl("/bin/bash", "bash", "-c", line, NULL);
    }
}

GROUP(device, read)
{
    static const size_t sizes[] = { 0, 1, 7, 8, 9, 15, 16, 17, 100, 511, 4095, 4096, 4097, 16384, 65535, 65536, 1 << 20 };
    int zero = T(open("/dev/zero", O_RDONLY)), null = T(open("/dev/null", O_RDONLY));
    char *b = malloc((1 << 20) + 2);
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        memset(b, 'x', (1 << 20) + 2);
        say("%zu bytes", sizes[i]);
        TN("read", read(zero, b + 1, sizes[i]));
        say_bytes("  bytes", b, sizes[i] + 2);
        memset(b, 'x', (1 << 20) + 2);
        TN("pread", pread(zero, b + 1, sizes[i], 12345));
        say_bytes("  bytes", b, sizes[i] + 2);
        TN("null", read(null, b + 1, sizes[i]));
        TN("null at", pread(null, b + 1, sizes[i], 1));
    }
    T(pread(zero, b, 4, -1));
    T(pread(null, b, 4, -1));
    T(pread(zero, b, 4, LONG_MAX));
    T(pread(null, b, 4, LONG_MAX));
    T(pread(zero, b, 4, LONG_MAX - 4));
    T(pread(zero, b, 4, LONG_MAX - 3));
    struct iovec v[2] = { { b, 3 }, { b + 8, 4 } };
    memset(b, 'x', 16);
    T(readv(zero, v, 2));
    say_bytes("vector", b, 16);
    T(preadv(zero, v, 2, 9));
    T(preadv2(zero, v, 2, -1, 0));
    T(preadv2(zero, v, 2, 0, 0x4000));
    T(readv(null, v, 2));
    T(write(zero, b, 1));
    T(write(null, b, 1));
    T(pwrite(zero, b, 1, 0));
}

GROUP(device, write)
{
    int zero = T(open("/dev/zero", O_WRONLY)), null = T(open("/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    char *b = malloc(1 << 20);
    for (int i = 0; i < 2; i++) {
        int fd = i ? null : zero;
        T(write(fd, b, 0));
        T(write(fd, b, 1));
        T(write(fd, b, 1 << 20));
        T(write(fd, b, 0x7ffff000));
        T(write(fd, b, 0x7ffff001));
        T(write(fd, b, 0x100000000));
        T(write(fd, NULL, 10));
        T(write(fd, (void *)1, 10));
        T(write(fd, (void *)-1, 10));
        T(write(fd, (void *)-1, 0));
        T(write(fd, (void *)0x7fffffffe000, 0x1000));
        T(write(fd, (void *)0x7fffffffe000, 0x1001));
        T(write(fd, (void *)0x7fffffffe000, 0x2000));
        T(write(fd, (void *)0x800000000000, 1));
        T(write(fd, b, -1));
        T(write(fd, b, LONG_MAX));
        T(pwrite(fd, b, 10, 100));
        T(pwrite(fd, b, 10, -1));
        T(pwrite(fd, b, 10, LONG_MAX));
        struct iovec v[2] = { { b, 3 }, { b + 8, 4 } };
        T(writev(fd, v, 2));
        T(lseek(fd, 0, SEEK_CUR));
        T(read(fd, b, 1));
        T(pread(fd, b, 1, 0));
        T(read(fd, b, 0));
    }
    T(open("/dev/null", O_WRONLY | O_CREAT | O_EXCL, 0600));
    T(open("/dev/zero", O_RDONLY | O_DIRECTORY));
    T(open("/dev/zero/", O_RDONLY));
}

GROUP(device, bad_pointers)
{
    int zero = T(open("/dev/zero", O_RDONLY)), null = T(open("/dev/null", O_RDONLY));
    char *map = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(map, 'x', 8 * 4096);
    mprotect(map + 2 * 4096, 4096, PROT_NONE);
    mprotect(map + 5 * 4096, 4096, PROT_READ);
    for (int i = 0; i < 2; i++) {
        int fd = i ? null : zero;
        T(read(fd, NULL, 1));
        T(read(fd, NULL, 0));
        T(read(fd, (void *)1, 10));
        T(read(fd, (void *)-1, 10));
        T(read(fd, (void *)-1, 0));
        T(read(fd, (void *)0x800000000000, 1));
        T(read(fd, (void *)0x4000000000000000, 1));
        T(read(fd, map + 2 * 4096, 1));
        T(read(fd, map + 4096, 2 * 4096));
        T(read(fd, map + 2 * 4096 - 3, 6));
        T(read(fd, map + 5 * 4096, 1));
        T(read(fd, map + 4 * 4096 + 10, 4096));
        T(pread(fd, NULL, 1, 0));
        T(pread(fd, map + 2 * 4096 - 100, 300, 7));
        T(read(fd, map, -1));
        T(read(fd, map, LONG_MAX));
    }
    say_bytes("first pages", map, 2 * 4096);
    mprotect(map, 8 * 4096, PROT_READ | PROT_WRITE);
    say_bytes("all pages", map, 8 * 4096);
}

GROUP(device, how_it_was_opened)
{
    static const int flags[] = { O_RDONLY, O_WRONLY, O_RDWR, O_ACCMODE, O_PATH, O_PATH | O_NOFOLLOW, O_RDONLY | O_NONBLOCK,
        O_RDWR | O_APPEND, O_RDWR | O_DIRECT, O_RDWR | O_SYNC, O_RDONLY | O_NOATIME, O_RDWR | O_TMPFILE };
    static const char *const paths[] = { "/dev/zero", "/dev/null", "/dev//zero", "/dev/./null", "/../dev/zero" };
    char b[4];
    for (unsigned p = 0; p < COUNT(paths); p++)
        for (unsigned i = 0; i < COUNT(flags); i++) {
            say("%s %o", paths[p], flags[i]);
            int fd = TN("open", open(paths[p], flags[i]));
            if (fd < 0)
                continue;
            TN("read", read(fd, b, 4));
            TN("write", write(fd, b, 4));
            TN("pread", pread(fd, b, 4, 4));
            TN("pwrite", pwrite(fd, b, 4, 4));
            TN("flags", fcntl(fd, F_GETFL));
            TN("append", fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
            TN("write", write(fd, b, 4));
            TN("read", read(fd, b, 4));
            TN("close", close(fd));
        }
    int fd = T(openat(AT_FDCWD, "/dev/zero", O_RDONLY));
    look("openat", fd);
    fd = T(syscall(SYS_open, "/dev/zero", O_RDONLY));
    look("syscall", fd);
    fd = T(creat("/dev/null", 0600));
    T(write(fd, b, 3));
    T(read(fd, b, 3));
    struct { uint64_t flags, mode, resolve; } how = { O_RDONLY, 0, 0 };
    fd = T(syscall(SYS_openat2, AT_FDCWD, "/dev/zero", &how, sizeof how));
    look("openat2", fd);
    FILE *f = fopen("/dev/zero", "r");
    say("getc %d %d", getc(f), getc(f));
}

GROUP(device, other_calls)
{
    int zero = T(open("/dev/zero", O_RDWR)), null = T(open("/dev/null", O_RDWR));
    int file = make_open("f", "0123456789", O_RDWR);
    for (int i = 0; i < 2; i++) {
        int fd = i ? null : zero, n = 0;
        struct stat st;
        T(fstat(fd, &st));
        say("mode %o rdev %lx", st.st_mode, (long)st.st_rdev);
        T(lseek(fd, 100, SEEK_SET));
        T(lseek(fd, 0, SEEK_CUR));
        T(lseek(fd, 0, SEEK_END));
        T(ftruncate(fd, 0));
        T(fsync(fd));
        T(fchdir(fd));
        T(ioctl(fd, FIONREAD, &n));
        T(isatty(fd));
        T(posix_fallocate(fd, 0, 10));
        struct pollfd p = { fd, POLLIN | POLLOUT };
        T(poll(&p, 1, 0));
        say("events %x", p.revents);
        TP(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
        T(sendfile(file, fd, NULL, 100));
        T(copy_file_range(fd, NULL, file, NULL, 5, 0));
        T(copy_file_range(file, NULL, fd, NULL, 5, 0));
        T(lseek(file, 3, SEEK_SET));
        T(sendfile(fd, file, NULL, 5));
        int pair[2];
        T(pipe(pair));
        T(splice(fd, NULL, pair[1], NULL, 100, 0));
        T(splice(pair[0], NULL, fd, NULL, 100, SPLICE_F_NONBLOCK));
        close(pair[0]);
        close(pair[1]);
    }
    contents("f");
    static const char *const others[] = { "/dev/full", "/dev/urandom", "/dev/tty", "/dev/ptmx" };
    for (unsigned i = 0; i < COUNT(others); i++) {
        int fd = TN(others[i], open(others[i], O_RDONLY | O_NOCTTY));
        if (fd >= 0)
            T(sendfile(file, fd, NULL, 10));
    }
    T(ftruncate(file, 0));
}

GROUP(device, dup_and_close)
{
    int file = make_open("f", "of the mount", O_RDONLY);
    int host = T(open("/proc/sys/kernel/ostype", O_RDONLY));
    int zero = T(open("/dev/zero", O_RDONLY));
    look("zero", zero);
    T(dup(zero));
    look("dup", 6);
    T(dup2(zero, 10));
    look("dup2", 10);
    T(dup3(zero, 11, O_CLOEXEC));
    look("dup3", 11);
    T(fcntl(zero, F_DUPFD, 20));
    look("F_DUPFD", 20);
    T(fcntl(10, F_DUPFD_CLOEXEC, 20));
    look("F_DUPFD_CLOEXEC", 21);
    T(dup2(zero, zero));
    T(dup2(zero, -1));
    T(dup2(zero, 100000000));
    T(dup2(-1, zero));
    look("still there", zero);
    T(dup2(99, zero));
    look("still there", zero);
    T(close(zero));
    look("closed", zero);
    T(close(zero));
    T(open("f", O_RDONLY));
    look("file on the number", zero);
    T(close(zero));
    T(open("/dev/zero", O_RDONLY));
    look("again", zero);
    T(dup2(file, zero));
    look("file over it", zero);
    T(dup2(10, zero));
    look("and back", zero);
    T(dup2(host, zero));
    look("host's over it", zero);
    T(dup2(10, file));
    look("over the file", file);
    T(close(file));
    T(open("/proc/sys/kernel/ostype", O_RDONLY));
    look("host's on the number", file);
    T(dup2(20, host));
    T(close_range(20, 20, 0));
    look("range", 20);
    T(dup2(6, 20));
    look("there again", 20);
    T(close_range(6, 100, CLOSE_RANGE_CLOEXEC));
    look("marked", 20);
    T(close_range(5, 100, 0));
    T(open("f", O_RDONLY));
    look("lowest", 5);
    T(pipe((int[2]){ 0, 0 }));
    T(fcntl(4, F_DUPFD, 6));
    T(close(4));
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){ 0, 0 }));
    T(recv(4, (char[4]){ 0 }, 4, MSG_DONTWAIT));
}

GROUP(device, inheritance)
{
    make("f", "text");
    int zero = T(open("/dev/zero", O_RDONLY)), marked = T(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    CHILD {
        look("child", zero);
        T(close(zero));
        T(open("f", O_RDONLY));
        look("child's file", zero);
    }
    look("parent", zero);
    look_by_exec(zero);
    look_by_exec(marked);
    T(fcntl(marked, F_SETFD, 0));
    look_by_exec(marked);
    T(fcntl(zero, F_SETFD, FD_CLOEXEC));
    look_by_exec(zero);
    look("marked", zero);
    T(dup2(marked, 20));
    T(ioctl(20, FIOCLEX));
    look_by_exec(20);
    T(dup3(marked, 21, O_CLOEXEC));
    look_by_exec(21);
    T(dup2(21, 22));
    look_by_exec(22);
    T(dup2(marked, 23));
    T(close_range(23, 23, CLOSE_RANGE_CLOEXEC));
    look_by_exec(23);
    posix_spawn_file_actions_t a;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addopen(&a, 0, "/dev/zero", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&a, 30, "/dev/zero", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&a, 30, "f", O_RDONLY, 0);
    posix_spawn_file_actions_addclose(&a, zero);
    char *argv[] = { "bash", "-c", "head -c 4 | od -An -c; head -c 4 <&30 | od -An -c; head -c 4 <&3", NULL };
    pid_t child;
    // The child's lines come before or after one of the parent's if that does not wait for it.
    int spawned = posix_spawnp(&child, "bash", &a, NULL, argv, environ);
    say_wait(child);
    T(spawned);
    look("after the spawn", zero);
    child = vfork();
    if (child == 0) {
        close(zero);
        open("f", O_RDONLY);
        execlp("sh", "sh", "-c", "head -c 4 <&3 | od -An -c", NULL);
        _exit(1);
    }
    say_wait(child);
    look("after the vfork", zero);
}

GROUP(device, sent)
{
    make("f", "text");
    int pair[2], zero = T(open("/dev/zero", O_RDWR)), null = T(open("/dev/null", O_WRONLY));
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    char control[CMSG_SPACE(2 * sizeof(int))] = { 0 }, byte = 'b';
    struct iovec v = { &byte, 1 };
    struct msghdr message = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){ CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(header), (int[]){ zero, null }, 2 * sizeof(int));
    T(sendmsg(pair[0], &message, 0));
    T(close(zero));
    T(close(null));
    T(open("f", O_RDONLY));
    T(recvmsg(pair[1], &message, 0));
    int *got = (int *)CMSG_DATA(CMSG_FIRSTHDR(&message));
    say("numbers %d %d", got[0], got[1]);
    look("file on its number", zero);
    look("zero", got[0]);
    T(write(got[1], "x", 1));
    T(read(got[1], &byte, 1));
    T(dup2(got[0], 20));
    look("received and duplicated", 20);
}

GROUP(device, opened_anew)
{
    int zero = T(open("/dev/zero", O_RDONLY)), null = T(open("/dev/null", O_RDONLY));
    char path[40], b[4];
    static const char *const forms[] = { "/proc/self/fd/%d", "/dev/fd/%d" };
    for (unsigned i = 0; i < COUNT(forms); i++) {
        sprintf(path, forms[i], zero);
        int fd = TN("zero anew", open(path, O_WRONLY));
        T(read(fd, b, 4));
        T(write(fd, b, 4));
        T(close(fd));
        sprintf(path, forms[i], null);
        fd = TN("null anew", open(path, O_RDWR));
        T(read(fd, b, 4));
        T(write(fd, b, 4));
        T(close(fd));
    }
    T(close(0));
    T(open("/dev/zero", O_RDONLY));
    int fd = T(open("/dev/stdin", O_RDWR));
    T(write(fd, b, 4));
    look("stdin", fd);
    say("getchar %d", getchar());
    sprintf(path, "/proc/self/fd/%d", zero);
    char target[40] = { 0 };
    T(readlink(path, target, sizeof target));
    say("%s", target);
    symlink("/dev/zero", "link");
    fd = T(open("link", O_RDONLY));
    look("link", fd);
    T(open("link", O_RDONLY | O_NOFOLLOW));
    mkfifo("fifo", 0600);
    T(close(fd));
    T(open("fifo", O_RDWR | O_NONBLOCK));
    T(read(fd, b, 4));
}

static int shared_child(void *fd)
{
    close(*(int *)fd);
    open("/proc/sys/kernel/ostype", O_RDONLY);
    return 0;
}

GROUP(device, shared_table)
{
    static char stack[1 << 16] __attribute__((aligned(16)));
    int zero = T(open("/dev/zero", O_RDONLY)), other = T(open("/dev/zero", O_RDONLY));
    pid_t child = clone(shared_child, stack + sizeof stack, CLONE_FILES | SIGCHLD, &zero);
    say_wait(child);
    look("the child's file", zero);
    look("the other", other);
    T(close(zero));
    T(open("/dev/zero", O_RDONLY));
    look("again", zero);
}

static int number;

static void *replaces(void *unused)
{
    look("in the thread", number);
    close(number);
    open("/proc/sys/kernel/ostype", O_RDONLY);
    return unused;
}

static void *opens(void *unused)
{
    number = open("/dev/zero", O_RDWR);
    return unused;
}

GROUP(device, threads)
{
    pthread_t thread;
    number = T(open("/dev/zero", O_RDONLY));
    pthread_create(&thread, NULL, replaces, NULL);
    pthread_join(thread, NULL);
    look("the thread's file", number);
    pthread_create(&thread, NULL, opens, NULL);
    pthread_join(thread, NULL);
    look("the thread's device", number);
    T(dup2(number, 10));
    T(dup2(number, 11));
    look("its duplicate", 10);
    CHILD {
        look("in the child", 10);
        T(write(number, "x", 1));
    }
    T(close(number));
    T(open("/proc/sys/kernel/ostype", O_RDONLY));
    look("on its number", number);
}

static volatile int over;

static void handler(int signal)
{
    over = signal;
}

GROUP(device, signals)
{
    int zero = T(open("/dev/zero", O_RDONLY)), null = T(open("/dev/null", O_WRONLY));
    char b[64];
    signal(SIGALRM, handler);
    alarm(1);
    while (!over)
        if (read(zero, b, sizeof b) != sizeof b || write(null, b, sizeof b) != sizeof b)
            say("short");
    say("signal %d", over);
}

GROUP(device, another_root)
{
    char root[] = "/tmp/lp-conform-XXXXXX", path[100];
    if (geteuid() != 0 || mkdtemp(root) == NULL)
        return;
    sprintf(path, "%s/dev", root);
    mkdir(path, 0755);
    sprintf(path, "%s/dev/zero", root);
    make(path, "no device");
    CHILD {
        T(chroot(root));
        int fd = T(open("/dev/zero", O_RDONLY));
        look("file of that name", fd);
    }
    unlink(path);
    sprintf(path, "%s/dev", root);
    rmdir(path);
    rmdir(root);
}
