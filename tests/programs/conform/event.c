/* poll, select, epoll, sendfile, copy_file_range, splice, tee, ioctl on files and what they do with pipes. */
#include "conform.h"
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <termios.h>

GROUP(event, poll)
{
    int fd = make_open("f", "x", O_RDWR), ro = T(open("f", O_RDONLY)), d = T(open(".", O_RDONLY)), path = T(open("f", O_PATH));
    int p[2];
    T(pipe(p));
    struct pollfd set[6] = { { fd, POLLIN | POLLOUT | POLLPRI, 0 }, { ro, POLLIN | POLLOUT, 0 }, { d, POLLIN, 0 }, { path, POLLIN, 0 }, { p[0], POLLIN, 0 }, { 99, POLLIN, 0 } };
    T(poll(set, 6, 0));
    for (int i = 0; i < 6; i++)
        say("  %d: %x", set[i].fd, set[i].revents);
    T(write(p[1], "x", 1));
    T(poll(set + 4, 1, 1000));
    say("  %x", set[4].revents);
    T(poll(set, 1, -1));
    T(dup2(fd, 0));
    struct pollfd ignored[4] = { { fd, POLLIN, 0 }, { -1, POLLIN, 7 }, { ~fd, POLLIN, 7 }, { INT_MIN, POLLIN, 7 } };
    T(poll(ignored, 4, 0));
    for (int i = 0; i < 4; i++)
        say("  %d: %x", ignored[i].fd, ignored[i].revents);
    static struct pollfd many[1000];
    for (int i = 0; i < 1000; i++)
        many[i] = (struct pollfd){ i % 3 ? -i : fd, POLLIN, 7 };
    T(poll(many, 1000, 0));
    for (int i = 0; i < 1000; i++)
        if (many[i].fd != (i % 3 ? -i : fd) || many[i].revents != (i % 3 ? 0 : POLLIN))
            say("  entry %d: %d %x", i, many[i].fd, many[i].revents);
    struct pollfd none = { fd, 0, 0 }, negative = { -1, POLLIN, 0 };
    T(poll(&none, 1, 0));
    T(poll(&negative, 1, 0));
    T(ppoll(set, 2, &(struct timespec){ 0, 0 }, NULL));
    struct pollfd pipe_only = { p[0], POLLIN, 0 };
    char c;
    T(read(p[0], &c, 1));
    struct pollfd mixed[2] = { { p[0], POLLIN, 0 }, { fd, POLLIN, 0 } };
    T(poll(mixed, 2, 5000));
    say("  %x %x", mixed[0].revents, mixed[1].revents);
    T(poll(&pipe_only, 1, 10));
}

GROUP(event, select)
{
    int fd = make_open("f", "x", O_RDWR), p[2];
    T(pipe(p));
    fd_set r, w, e;
    FD_ZERO(&r); FD_ZERO(&w); FD_ZERO(&e);
    FD_SET(fd, &r), FD_SET(p[0], &r), FD_SET(fd, &w), FD_SET(p[1], &w), FD_SET(fd, &e);
    T(select(10, &r, &w, &e, NULL));
    say("%d %d %d %d %d", FD_ISSET(fd, &r) != 0, FD_ISSET(p[0], &r) != 0, FD_ISSET(fd, &w) != 0, FD_ISSET(p[1], &w) != 0, FD_ISSET(fd, &e) != 0);
    /* A closed descriptor below 64: numbers beyond the descriptor table are ignored, and its minimum size is
     * 64. */
    FD_ZERO(&r); FD_SET(40, &r);
    T(select(50, &r, NULL, NULL, &(struct timeval){ 0, 0 }));
    FD_ZERO(&r); FD_SET(p[0], &r);
    T(select(10, &r, NULL, NULL, &(struct timeval){ 0, 1000 }));
    FD_ZERO(&r); FD_SET(fd, &r);
    T(pselect(10, &r, NULL, NULL, &(struct timespec){ 1, 0 }, NULL));
    T(select(-1, NULL, NULL, NULL, &(struct timeval){ 0, 0 }));
}

/* A count beyond the kernel's table of descriptors: what is behind it in memory is left alone. */
GROUP(event, select_beyond_the_table)
{
    static unsigned long wide[1 << 12];
    static const int counts[] = { 3000, 20000, 1 << 20, INT_MAX };
    int fd = make_open("f", "x", O_RDWR), p[2];
    T(pipe(p));
    char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fd_set *set = (fd_set *)(memory + 4096 - sizeof *set);
    for (int readable = 0; readable < 2; readable++) {
        T(mprotect(memory + 4096, 4096, readable ? PROT_READ : PROT_NONE));
        for (unsigned i = 0; i < COUNT(counts); i++) {
            FD_ZERO(set);
            FD_SET(fd, set), FD_SET(p[0], set);
            TN("select", select(counts[i], set, NULL, NULL, NULL));
            say("%d %d", FD_ISSET(fd, set) != 0, FD_ISSET(p[0], set) != 0);
        }
    }
    T(munmap(memory + 4096, 4096));
    T(select(64, (fd_set *)(memory + 4096), NULL, NULL, NULL));
    struct rlimit more = { 1 << 16, 1 << 16 };
    T(setrlimit(RLIMIT_NOFILE, &more));
    T(dup2(p[1], 40000));
    wide[40000 / 64] = 1UL << 40000 % 64;
    wide[0] = 1UL << fd;
    T(select(40001, NULL, (fd_set *)wide, NULL, NULL));
    say("%d %d", wide[40000 / 64] == 1UL << 40000 % 64, wide[0] == 1UL << fd);
}

/* A number that was open and is closed: EBADF after the other checks, in each set. */
GROUP(event, select_closed)
{
    int low = make_open("a", "x", O_RDWR), fd = make_open("f", "x", O_RDWR), p[2];
    T(pipe(p));
    struct timeval none = { 0, 0 }, wrong = { -1, 0 };
    fd_set gone, more, ready;
    FD_ZERO(&gone); FD_ZERO(&more); FD_ZERO(&ready);
    FD_SET(fd, &gone), FD_SET(fd, &more), FD_SET(low, &more), FD_SET(p[1], &ready);
    T(close(fd));
    T(select(10, &gone, NULL, NULL, &wrong));
    T(select(10, &gone, (void *)8, NULL, &none));
    T(select(fd, &gone, NULL, NULL, &none));
    T(select(10, &gone, NULL, NULL, &none));
    for (int set = 0; set < 3; set++) {
        fd = make_open("f", "x", O_RDWR);
        T(close(fd));
        fd_set *sets[3] = { NULL, &ready, NULL };
        sets[set] = &more;
        T(select(10, sets[0], sets[1], sets[2], &none));
        T(pselect(10, sets[0], sets[1], sets[2], &(struct timespec){ 0, 0 }, NULL));
        say("%d %d", FD_ISSET(fd, &more) != 0, FD_ISSET(p[1], &ready) != 0);
    }
    T(make_open("f", "x", O_RDWR));
    T(close(low));
    T(select(10, &more, NULL, NULL, &none));
    T(open("f", O_RDONLY));
}

GROUP(event, epoll)
{
    int fd = make_open("f", "x", O_RDWR), d = T(open(".", O_RDONLY)), path = T(open("f", O_PATH)), e = T(epoll_create1(0)), p[2];
    T(pipe(p));
    struct epoll_event event = { .events = EPOLLIN };
    T(epoll_ctl(e, EPOLL_CTL_ADD, fd, &event));
    T(epoll_ctl(e, EPOLL_CTL_ADD, d, &event));
    T(epoll_ctl(e, EPOLL_CTL_ADD, path, &event));
    T(epoll_ctl(e, EPOLL_CTL_ADD, 99, &event));
    T(epoll_ctl(e, EPOLL_CTL_MOD, fd, &event));
    T(epoll_ctl(e, EPOLL_CTL_DEL, fd, &event));
    T(epoll_ctl(fd, EPOLL_CTL_ADD, p[0], &event));
    T(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &event));
    T(epoll_wait(e, &event, 1, 0));
    T(epoll_wait(fd, &event, 1, 0));
    T(mkfifo("p", 0600));
    int f = T(open("p", O_RDWR));
    T(epoll_ctl(e, EPOLL_CTL_ADD, f, &event));
    T(write(f, "x", 1));
    T(epoll_wait(e, &event, 1, 100));
}

GROUP(event, sendfile)
{
    int in = make_open("in", "0123456789abcdefghij", O_RDWR), out = T(open("out", O_RDWR | O_CREAT, 0644)), ro = T(open("in", O_RDONLY)), wo = T(open("in", O_WRONLY)), app = T(open("out", O_WRONLY | O_APPEND));
    int p[2], s[2];
    char b[64] = { 0 };
    T(pipe(p));
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    off_t at = 5;
    T(sendfile(out, in, NULL, 4));
    T(lseek(in, 0, SEEK_CUR));
    T(sendfile(out, in, &at, 4));
    say("%ld", (long)at);
    T(lseek(in, 0, SEEK_CUR));
    contents("out");
    T(sendfile(p[1], in, &at, 100));
    T(read(p[0], b, 64));
    say("%s", b);
    T(sendfile(s[0], ro, NULL, 5));
    memset(b, 0, 64);
    T(read(s[1], b, 64));
    say("%s", b);
    T(sendfile(out, p[0], NULL, 1));
    T(sendfile(out, p[0], &at, 1));
    T(sendfile(ro, p[0], &at, 1));
    T(sendfile(out, s[0], &at, 1));
    T(sendfile(out, wo, NULL, 1));
    T(sendfile(ro, in, NULL, 1));
    T(sendfile(app, in, NULL, 1));
    T(sendfile(99, in, NULL, 1));
    T(sendfile(out, 99, NULL, 1));
    T(sendfile(out, in, NULL, 0));
    at = -1;
    T(sendfile(out, in, &at, 1));
    at = 100;
    T(sendfile(out, in, &at, 1));
    T(sendfile(in, in, NULL, 5));
    int d = T(open(".", O_RDONLY));
    T(sendfile(out, d, NULL, 1));
    T(sendfile(d, in, NULL, 1));
    int host = open("/etc/passwd", O_RDONLY);
    T(sendfile(out, host, NULL, 10));
    int null = open("/dev/null", O_WRONLY);
    at = 0;
    T(sendfile(null, in, &at, 10));
    contents("in");
    contents("out");
}

/* What a descriptor from before allows once the file may not be changed, or only be appended to. */
GROUP(event, fixed_while_open)
{
    static const int flags[] = { FS_IMMUTABLE_FL, FS_APPEND_FL, FS_IMMUTABLE_FL | FS_APPEND_FL };
    for (unsigned i = 0; i < COUNT(flags); i++) {
        make("from", "0123456789"), make("f", "abcdefgh");
        int from = open("from", O_RDONLY), fd = open("f", O_RDWR), append = open("f", O_RDWR | O_APPEND), none = 0;
        loff_t zero = 0, at = 0;
        char value[8];
        struct timespec times[2] = { { 1, 1 }, { 2, 2 } }, now[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } };
        say("flags %x", flags[i]);
        if (T(ioctl(fd, FS_IOC_SETFLAGS, &flags[i])) != 0)
            return;
        T(write(fd, "x", 1));
        T(write(append, "y", 1));
        T(pwrite(fd, "z", 1, 3));
        T(ftruncate(fd, 4));
        T(ftruncate(append, 4));
        T(truncate("f", 4));
        T(fallocate(fd, 0, 0, 100));
        T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100));
        T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2));
        T(copy_file_range(from, &zero, fd, &at, 3, 0));
        T(copy_file_range(from, &zero, fd, &at, 0, 0));
        T(copy_file_range(from, &zero, fd, &at, 3, 1));
        T(copy_file_range(from, &zero, append, NULL, 3, 0));
        T(copy_file_range(fd, &zero, from, &at, 3, 0));
        T(sendfile(fd, from, &zero, 3));
        T(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
        T(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
        T(fchmod(fd, 0600));
        T(fchown(fd, -1, -1));
        T(fchown(fd, getuid(), getgid()));
        T(futimens(fd, times));
        T(futimens(fd, now));
        T(fsetxattr(fd, "user.a", "b", 1, 0));
        T(fsetxattr(fd, "trusted.a", "b", 1, 0));
        T(fremovexattr(fd, "user.none"));
        T(fgetxattr(fd, "trusted.a", value, sizeof value));
        T(open("f", O_RDONLY));
        T(open("f", O_WRONLY));
        T(open("f", O_WRONLY | O_APPEND));
        T(open("f", O_RDONLY | O_TRUNC));
        T(access("f", W_OK));
        T(link("f", "g"));
        T(rename("f", "g"));
        T(unlink("f"));
        contents("f");
        T(ioctl(fd, FS_IOC_SETFLAGS, &none));
        T(unlink("f"));
    }
}

GROUP(event, copy_file_range)
{
    int in = make_open("in", "0123456789abcdefghij", O_RDWR), out = T(open("out", O_RDWR | O_CREAT, 0644)), app = T(open("out", O_WRONLY | O_APPEND)), ro = T(open("in", O_RDONLY)), d = T(open(".", O_RDONLY));
    loff_t a = 2, b = 10;
    T(copy_file_range(in, NULL, out, NULL, 5, 0));
    T(copy_file_range(in, &a, out, &b, 5, 0));
    say("%ld %ld", (long)a, (long)b);
    T(copy_file_range(in, NULL, out, NULL, 100, 0));
    T(copy_file_range(in, NULL, out, NULL, 100, 0));
    T(copy_file_range(in, NULL, out, NULL, 0, 0));
    contents("out");
    a = 0, b = 3;
    T(copy_file_range(in, &a, in, &b, 5, 0));
    a = 0, b = 12;
    T(copy_file_range(in, &a, in, &b, 5, 0));
    T(copy_file_range(in, NULL, app, NULL, 5, 0));
    T(copy_file_range(in, NULL, ro, NULL, 5, 0));
    T(copy_file_range(app, NULL, out, NULL, 5, 0));
    T(copy_file_range(in, NULL, d, NULL, 5, 0));
    T(copy_file_range(d, NULL, out, NULL, 5, 0));
    T(copy_file_range(in, NULL, out, NULL, 5, 1));
    T(copy_file_range(99, NULL, out, NULL, 5, 0));
    T(copy_file_range(in, NULL, 99, NULL, 5, 0));
    int p[2];
    T(pipe(p));
    T(copy_file_range(in, NULL, p[1], NULL, 5, 0));
    T(copy_file_range(p[0], NULL, out, NULL, 5, 0));
    a = -1;
    T(copy_file_range(in, &a, out, NULL, 5, 0));
    contents("in");
    T(ioctl(out, FICLONE, in));
    struct file_clone_range clone = { in, 0, 0, 0 };
    T(ioctl(out, FICLONERANGE, &clone));
    char *big = malloc(300000);
    memset(big, 'b', 300000);
    T(pwrite(in, big, 300000, 0));
    a = b = 0;
    T(copy_file_range(in, &a, out, &b, 300000, 0));
    attributes("out");
    free(big);
}

GROUP(event, splice)
{
    int fd = make_open("f", "0123456789abcdefghij", O_RDWR), out = T(open("out", O_RDWR | O_CREAT, 0644)), p[2], q[2];
    char b[64] = { 0 };
    T(pipe(p));
    T(pipe(q));
    loff_t at = 3;
    T(splice(fd, NULL, p[1], NULL, 5, 0));
    T(splice(fd, &at, p[1], NULL, 4, 0));
    say("%ld", (long)at);
    T(lseek(fd, 0, SEEK_CUR));
    T(tee(p[0], q[1], 100, 0));
    T(splice(p[0], NULL, out, NULL, 100, 0));
    contents("out");
    T(read(q[0], b, 64));
    say("%s", b);
    at = 100;
    T(splice(fd, &at, p[1], NULL, 5, 0));
    T(splice(fd, NULL, out, NULL, 5, 0));
    T(splice(p[0], NULL, out, NULL, 5, SPLICE_F_NONBLOCK));
    T(splice(p[0], &at, out, NULL, 5, 0));
    T(splice(99, NULL, p[1], NULL, 5, 0));
    T(splice(fd, NULL, p[1], NULL, 5, 0x100));
    T(write(p[1], "from pipe", 9));
    at = 2;
    T(splice(p[0], NULL, out, &at, 9, SPLICE_F_MOVE));
    contents("out");
    int app = T(open("out", O_WRONLY | O_APPEND)), ro = T(open("out", O_RDONLY));
    T(write(p[1], "x", 1));
    T(splice(p[0], NULL, app, NULL, 1, 0));
    T(splice(p[0], NULL, ro, NULL, 1, 0));
    T(tee(fd, p[1], 5, 0));
    T(vmsplice(fd, NULL, 0, 0));
}

GROUP(event, ioctl)
{
    int fd = make_open("f", "0123456789", O_RDWR), d = T(open(".", O_RDONLY)), path = T(open("f", O_PATH)), value = 0;
    struct termios t;
    struct winsize w;
    T(ioctl(fd, FIONREAD, &value));
    say("%d", value);
    T(lseek(fd, 4, SEEK_SET));
    T(ioctl(fd, FIONREAD, &value));
    say("%d", value);
    T(ioctl(fd, TCGETS, &t));
    T(ioctl(fd, TIOCGWINSZ, &w));
    T(isatty(fd));
    T(ioctl(d, FIONREAD, &value));
    T(ioctl(d, TCGETS, &t));
    long flags = 0;
    T(ioctl(fd, FS_IOC_GETFLAGS, &flags));
    say("flags %lx", flags);
    T(ioctl(d, FS_IOC_GETFLAGS, &flags));
    flags = 0x20;
    T(ioctl(fd, FS_IOC_SETFLAGS, &flags) <= 0);
    flags = 0;
    T(ioctl(fd, FS_IOC_SETFLAGS, &flags));
    T(ioctl(fd, FS_IOC_GETVERSION, &value));
    T(ioctl(fd, FIGETBSZ, &value));
    say("%d", value);
    T(ioctl(fd, FIBMAP, &value));
    T(ioctl(fd, BLKGETSIZE, &flags));
    T(ioctl(fd, FIOQSIZE, &flags));
    T(ioctl(fd, FIONBIO, &(int){ 1 }));
    T(fcntl(fd, F_GETFL));
    T(ioctl(fd, FIONBIO, &(int){ 0 }));
    T(fcntl(fd, F_GETFL));
    T(ioctl(fd, FIOCLEX));
    T(ioctl(path, FIONREAD, &value));
    T(ioctl(99, FIONREAD, &value));
    T(ioctl(fd, 0x12345678, 0));
    struct fsxattr x = { 0 };
    T(ioctl(fd, FS_IOC_FSGETXATTR, &x));
    T(ioctl(fd, FS_IOC_FIEMAP, NULL));
    T(ioctl(fd, FITRIM, NULL));
}

/* Descriptors of O_PATH, which cannot be waited for. */
GROUP(event, path_descriptors)
{
    make("f", "text");
    int path = open("f", O_PATH), file = open("f", O_RDWR), none = open("f", 3), host = open("/", O_PATH), epoll = epoll_create1(0);
    int fds[] = { path, file, none, host, 50 };
    struct iovec empty[2] = { { "x", 0 }, { "x", 0 } }, full = { "x", 1 }, negative = { "x", -1 };
    for (unsigned i = 0; i < COUNT(fds); i++) {
        fd_set sets[3];
        struct timeval at_once = { 0, 0 };
        for (int set = 0; set < 3; set++) {
            FD_ZERO(&sets[set]);
            FD_SET(fds[i], &sets[set]);
        }
        say("%u", i);
        TN("select", select(64, &sets[0], &sets[1], &sets[2], &at_once));
        say("%d %d %d", !!FD_ISSET(fds[i], &sets[0]), !!FD_ISSET(fds[i], &sets[1]), !!FD_ISSET(fds[i], &sets[2]));
        FD_ZERO(&sets[2]);
        FD_SET(fds[i], &sets[2]);
        TN("exceptions", select(64, NULL, NULL, &sets[2], &at_once));
        struct epoll_event event = { .events = EPOLLIN };
        for (unsigned j = 0; j < COUNT(fds); j++)
            TN("epoll_ctl", epoll_ctl(fds[j], EPOLL_CTL_MOD, fds[i], &event));
        TN("watched", epoll_ctl(epoll, EPOLL_CTL_DEL, fds[i], &event));
        TN("vmsplice of nothing", vmsplice(fds[i], empty, 0, 0));
        TN("vmsplice of empty ones", vmsplice(fds[i], empty, 2, 0));
        TN("vmsplice of one", vmsplice(fds[i], &full, 1, 0));
        TN("vmsplice of a negative one", vmsplice(fds[i], &negative, 1, 0));
        TN("vmsplice of too many", vmsplice(fds[i], empty, 1025, 0));
        TN("vmsplice from nowhere", vmsplice(fds[i], (void *)8, 1, 0));
        TN("vmsplice with wrong flags", vmsplice(fds[i], empty, 0, 16));
    }
}
