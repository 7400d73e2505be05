/* FIFOs and sockets in the mount, /dev/fd, /proc/self, the working directory, links out and in, mount
 * boundaries. */
#include "conform.h"
#include <linux/capability.h>
#include <signal.h>
#include <pthread.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/un.h>

GROUP(special, fifo)
{
    signal(SIGPIPE, SIG_IGN);
    T(mkfifo("p", 0640));
    T(mkfifo("p", 0640));
    T(open("p", O_WRONLY | O_NONBLOCK));
    int r = T(open("p", O_RDONLY | O_NONBLOCK)), w = T(open("p", O_WRONLY | O_NONBLOCK));
    char b[16] = { 0 };
    T(read(r, b, 16));
    T(write(w, "through", 7));
    T(read(r, b, 16));
    say("%s", b);
    attributes_fd(r);
    T(lseek(r, 0, SEEK_SET));
    T(pread(r, b, 1, 0));
    T(ftruncate(w, 0));
    T(fcntl(r, F_GETFL));
    T(fcntl(w, F_GETPIPE_SZ));
    T(close(w));
    T(read(r, b, 16));
    T(close(r));
    int both = T(open("p", O_RDWR));
    T(write(both, "x", 1));
    T(read(both, b, 1));
    T(rename("p", "q"));
    T(link("q", "l"));
    attributes("q");
    int via = T(open("l", O_WRONLY | O_NONBLOCK));
    T(write(via, "link", 4));
    T(read(both, b, 16));
    T(unlink("q"));
    T(unlink("l"));
    T(write(both, "y", 1));
    T(read(both, b, 16));
    T(close(both));
}

GROUP(special, fifo_blocking)
{
    T(mkfifo("b", 0600));
    pid_t child = fork();
    if (!child) {
        int in = open("b", O_WRONLY);
        _exit(write(in, "blocking", 8) != 8);
    }
    char b[16] = { 0 };
    int out = T(open("b", O_RDONLY));
    T(read(out, b, 16));
    say("%s", b);
    T(read(out, b, 16));
    say_wait(child);
    int path = T(open("b", O_PATH));
    attributes_fd(path);
    T(chmod("b", 0444));
    T(stat("b", &(struct stat){ 0 }));
    attributes("b");
    T(open("b", O_RDONLY | O_DIRECTORY));
    T(open("b", O_RDONLY | O_CREAT | O_EXCL, 0600));
    T(truncate("b", 0));
}

GROUP(special, socket)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "sock" }, n = { .sun_family = AF_UNIX, .sun_path = "nosuch" }, f = { .sun_family = AF_UNIX, .sun_path = "file" }, got;
    socklen_t length = sizeof got;
    make("file", "");
    int s = T(socket(AF_UNIX, SOCK_STREAM, 0)), c = T(socket(AF_UNIX, SOCK_STREAM, 0)), x = T(socket(AF_UNIX, SOCK_STREAM, 0));
    umask(0);
    T(bind(s, (void *)&a, sizeof a));
    umask(022);
    attributes("sock");
    T(bind(x, (void *)&a, sizeof a));
    T(bind(x, (void *)&f, sizeof f));
    T(connect(c, (void *)&a, sizeof a));
    T(listen(s, 5));
    T(connect(c, (void *)&n, sizeof n));
    T(connect(c, (void *)&f, sizeof f));
    T(connect(c, (void *)&a, sizeof a));
    int k = T(accept(s, (void *)&got, &length));
    T(write(c, "hello", 5));
    char b[16] = { 0 };
    T(read(k, b, 16));
    say("%s", b);
    memset(&got, 0, sizeof got), length = sizeof got;
    T(getsockname(s, (void *)&got, &length));
    say("%s %d", got.sun_path, length);
    memset(&got, 0, sizeof got), length = sizeof got;
    T(getpeername(c, (void *)&got, &length));
    say("%s %d", got.sun_path, length);
    T(open("sock", O_RDWR));
    T(open("sock", O_PATH));
    T(rename("sock", "moved"));
    struct sockaddr_un m = { .sun_family = AF_UNIX, .sun_path = "moved" };
    int d = T(socket(AF_UNIX, SOCK_STREAM, 0));
    T(connect(d, (void *)&m, sizeof m));
    T(link("moved", "hard"));
    T(chmod("moved", 0600));
    attributes("hard");
    CHILD {
        become_nobody();
        int e = T(socket(AF_UNIX, SOCK_STREAM, 0));
        T(connect(e, (void *)&m, sizeof m));
    }
    T(close(s));
    int e = T(socket(AF_UNIX, SOCK_STREAM, 0));
    T(connect(e, (void *)&m, sizeof m));
    T(unlink("moved"));
    T(connect(e, (void *)&m, sizeof m));
    /* The name gets the mode that the socket was given. */
    struct sockaddr_un given = { .sun_family = AF_UNIX, .sun_path = "given" };
    int g = T(socket(AF_UNIX, SOCK_STREAM, 0));
    T(fchmod(g, 0640));
    T(bind(g, (void *)&given, sizeof given));
    attributes("given");
    T(unlink("given"));
    struct sockaddr_un abstract = { .sun_family = AF_UNIX };
    int z = T(socket(AF_UNIX, SOCK_STREAM, 0));
    T(bind(z, (void *)&abstract, sizeof(sa_family_t)));
    struct sockaddr_un dg = { .sun_family = AF_UNIX, .sun_path = "dg" };
    int r = T(socket(AF_UNIX, SOCK_DGRAM, 0)), t = T(socket(AF_UNIX, SOCK_DGRAM, 0));
    T(bind(r, (void *)&dg, sizeof dg));
    T(sendto(t, "dgram", 5, 0, (void *)&dg, sizeof dg));
    T(recv(r, b, 16, 0));
    T(connect(e, (void *)&dg, sizeof dg));
    struct iovec v = { "msg", 3 };
    struct msghdr h = { .msg_name = &dg, .msg_namelen = sizeof dg, .msg_iov = &v, .msg_iovlen = 1 };
    T(sendmsg(t, &h, 0));
    T(recv(r, b, 16, 0));
}

GROUP(special, dev_fd_and_proc)
{
    int fd = make_open("f", "0123456789", O_RDWR);
    char path[64], b[300] = { 0 };
    T(lseek(fd, 4, SEEK_SET));
    sprintf(path, "/dev/fd/%d", fd);
    int again = TN("open /dev/fd/N", open(path, O_RDONLY));
    T(lseek(again, 0, SEEK_CUR));
    sprintf(path, "/proc/self/fd/%d", fd);
    long n = TN("readlink", readlink(path, b, sizeof b));
    say("%s", n > 0 ? strrchr(b, '/') : "");
    T(stat(path, &(struct stat){ 0 }));
    struct stat st, direct;
    stat(path, &st), stat("f", &direct);
    say("same %d", st.st_ino == direct.st_ino && st.st_dev == direct.st_dev);
    lstat(path, &st);
    say("link %d", S_ISLNK(st.st_mode));
    TN("truncate", truncate(path, 5));
    contents("f");
    TN("chmod", chmod(path, 0600));
    TN("access", access(path, R_OK));
    TN("rename", rename(path, "x"));
    TN("unlink", unlink(path));
    sprintf(path, "/proc/%d/fd/%d", getpid(), fd);
    TN("open /proc/PID/fd", open(path, O_RDONLY) > 0);
    sprintf(path, "/proc/thread-self/fd/%d", fd);
    TN("open /proc/thread-self/fd", open(path, O_RDONLY) > 0);
    T(unlink("f"));
    sprintf(path, "/proc/self/fd/%d", fd);
    memset(b, 0, sizeof b);
    TN("readlink of unlinked", readlink(path, b, sizeof b) > 0);
    say("%s", b[0] ? strrchr(b, '/') : "");
    TN("open unlinked", open(path, O_RDWR) > 0);
    TN("closed", access("/proc/self/fd/77", F_OK));
    make("g", "cwd");
    T(open("/proc/self/cwd/g", O_RDONLY) > 0);
    memset(b, 0, sizeof b);
    TN("readlink cwd", readlink("/proc/self/cwd", b, sizeof b) > 0);
    say("%s", strrchr(b, '/'));
    T(open("/proc/self/cwd", O_RDONLY | O_DIRECTORY) > 0);
    T(open("/proc/self/root/etc/passwd", O_RDONLY) > 0);
    DIR *dir = opendir("/proc/self/fd");
    int count = 0, wrong = 0;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && atoi(e->d_name) < 100) {
            count++;
            wrong += fcntl(atoi(e->d_name), F_GETFD) < 0;
        }
    say("listed %d wrong %d", count, wrong);
    closedir(dir);
    T(dup2(fd, 0));
    T(open("/dev/stdin", O_RDONLY) > 0);
    TP(freopen("/dev/null", "r", stdin));
    int d = T(open(".", O_RDONLY));
    sprintf(path, "/proc/self/fd/%d/g", d);
    TN("through a directory", access(path, F_OK));
    sprintf(path, "/dev/fd/%d/new", d);
    TN("create through it", open(path, O_CREAT | O_RDWR, 0600) > 0);
    T(access("new", F_OK));
}

GROUP(special, cwd)
{
    char b[5000], small[4];
    TP(getcwd(b, sizeof b));
    char *top = strdup(b);
    TP(getcwd(small, sizeof small));
    T(syscall(SYS_getcwd, b, 0));
    T(syscall(SYS_getcwd, b, strlen(top)));
    T(syscall(SYS_getcwd, b, strlen(top) + 1) == (long)strlen(top) + 1);
    make_dir("d");
    make_dir("d/e");
    make("f", "");
    T(symlink("d/e", "l"));
    T(chdir("l"));
    TP(getcwd(b, sizeof b));
    say("%s", b + strlen(top));
    T(chdir(".."));
    TP(getcwd(b, sizeof b));
    say("%s", b + strlen(top));
    T(chdir("f"));
    T(chdir("../f"));
    T(chdir("nosuch"));
    T(chdir(""));
    T(chdir("e"));
    int fd = T(open(".", O_RDONLY)), up = T(open("../..", O_PATH));
    T(chdir("/"));
    T(fchdir(fd));
    TP(getcwd(b, sizeof b));
    say("%s", b + strlen(top));
    T(fchdir(up));
    TP(getcwd(b, sizeof b));
    say("[%s]", b + strlen(top));
    int file = T(open("f", O_RDONLY));
    T(fchdir(file));
    T(fchdir(99));
    T(chdir("d/e"));
    CHILD {
        T(chdir(".."));
        T(access("e", F_OK));
    }
    T(access("../e", F_OK));
    CHILD {
        execl("/bin/pwd", "pwd", "-P", NULL);
    }
    T(rename(top, "x"));
    T(rmdir("../e"));
    TP(getcwd(b, sizeof b));
    T(open("x", O_CREAT | O_RDWR, 0600));
    T(chdir("."));
    T(chdir(".."));
    TP(getcwd(b, sizeof b));
    T(fchdir(fd));
    T(chdir(top));
    T(chdir("../../.."));
    TP(getcwd(b, sizeof b));
    say("above %d", strlen(b) < strlen(top) && !strncmp(b, top, strlen(b)));
    T(access("nosuch-name-here", F_OK));
    T(chdir(top));
    T(open("d", O_RDONLY) > 0);
}

GROUP(special, host_and_mount)
{
    T(access("/etc/passwd", R_OK));
    T(symlink("/etc", "etc"));
    T(open("etc/passwd", O_RDONLY) > 0);
    T(open("etc/nosuch", O_RDONLY));
    T(open("etc/../etc/passwd", O_RDONLY) > 0);
    T(symlink("/dev/null", "null"));
    int null = T(open("null", O_WRONLY));
    T(write(null, "x", 1));
    T(link("/etc/passwd", "passwd"));
    T(rename("/dev/null", "x"));
    char top[5000], path[6000], host[100];
    TP(getcwd(top, sizeof top));
    sprintf(host, "/tmp/conform-%d", getpid());
    T(mkdir(host, 0700) == 0);
    sprintf(path, "%s/in", host);
    TN("symlink from the host", symlink(top, path));
    make("f", "inside");
    strcat(path, "/f");
    int fd = TN("open through it", open(path, O_RDWR));
    T(write(fd, "W", 1));
    contents("f");
    strcat(path, "/x");
    TN("ENOTDIR", open(path, O_RDWR));
    sprintf(path, "%s/in/new", host);
    TN("create through it", open(path, O_CREAT | O_RDWR, 0600) > 0);
    sprintf(path, "%s/in/../t/f", host);
    TN("up and down", access(path, F_OK));
    sprintf(path, "%s/in", host);
    TN("unlink", unlink(path));
    TN("rename file to the host", rename("f", path));
    TN("link to the host", link("f", path));
    TN("rmdir", rmdir(host));
    sprintf(path, "%s/../../%s", top, "nosuch-name");
    TN("out of the mount", access(path, F_OK));
    sprintf(path, "%s/../..%s/t/f", top, strrchr(top, '/') ? "/m" : "");
    TN("out and in again", access(path, F_OK));
    sprintf(path, "/proc/self/root%s/f", top);
    TN("by /proc/self/root", access(path, F_OK) >= -1);
    sprintf(path, "//..//.%s///.//f", top);
    TN("odd slashes", access(path, F_OK));
    sprintf(path, "/nosuch/..%s/f", top);
    TN("missing component", access(path, F_OK));
    sprintf(path, "/etc/..%s/f", top);
    TN("host component", access(path, F_OK));
    sprintf(path, "/etc/passwd/..%s/f", top);
    TN("file component", access(path, F_OK));
}

/* A socket that is bound has the mode that fchmod(2) gave it before; nobody listens once it is closed. */
GROUP(special, sockets_with_modes)
{
    const mode_t modes[] = { 0, 0600, 0755, 0777, 01777, 04755, 02777, 07777 };
    umask(022);
    for (unsigned i = 0; i < COUNT(modes); i++) {
        struct sockaddr_un to = { .sun_family = AF_UNIX };
        sprintf(to.sun_path, "s%u", i);
        int at = socket(AF_UNIX, SOCK_STREAM, 0);
        T(fchmod(at, modes[i]));
        if (i % 2 && geteuid() == 0)
            T(fchown(at, 12, 34));
        T(bind(at, (void *)&to, sizeof to));
        attributes(to.sun_path);
        T(fchmod(at, 0700));
        attributes(to.sun_path);
        struct stat st;
        fstat(at, &st);
        say("%o", st.st_mode);
        close(at);
        int stream = socket(AF_UNIX, SOCK_STREAM, 0), datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
        T(connect(stream, (void *)&to, sizeof to));
        T(connect(datagram, (void *)&to, sizeof to));
        T(sendto(datagram, "x", 1, 0, (void *)&to, sizeof to));
        close(stream), close(datagram);
    }
    int pair[2];
    T(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    T(fchmod(pair[0], 0400));
    struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = "pair" };
    T(bind(pair[0], (void *)&to, sizeof to));
    attributes("pair");
}

GROUP(special, fifos_without_capabilities)
{
    if (geteuid() != 0)
        return;
    const struct {
        mode_t mode;
        uid_t owner;
    } kinds[] = { { 0600, 0 }, { 0600, 65534 }, { 0666, 65534 }, { 0400, 0 }, { 0000, 0 }, { 0060, 1 } };
    chmod(".", 0777);
    umask(0);
    for (unsigned i = 0; i < COUNT(kinds); i++) {
        char fifo[16];
        struct sockaddr_un to = { .sun_family = AF_UNIX };
        sprintf(fifo, "p%u", i), sprintf(to.sun_path, "s%u", i);
        int at = socket(AF_UNIX, SOCK_STREAM, 0);
        T(mkfifo(fifo, 0600));
        T(bind(at, (void *)&to, sizeof to));
        T(listen(at, 100));
        chmod(fifo, kinds[i].mode), chown(fifo, kinds[i].owner, kinds[i].owner);
        chmod(to.sun_path, kinds[i].mode), chown(to.sun_path, kinds[i].owner, kinds[i].owner);
        for (int way = 0; way < 4; way++)
            CHILD {
                say("mode %o, owner %d, way %d", kinds[i].mode, kinds[i].owner, way);
                uint32_t all = permitted_capabilities();
                if (way == 1)
                    T(set_capabilities(all & ~(1u << CAP_DAC_OVERRIDE), all));
                if (way == 2)
                    T(set_capabilities(0, all));
                if (way == 3)
                    setfsuid(65534);
                T(open(fifo, O_RDWR | O_NONBLOCK) >= 0 ? 0 : -1);
                T(open(fifo, O_RDONLY | O_NONBLOCK) >= 0 ? 0 : -1);
                T(open(fifo, O_WRONLY | O_NONBLOCK) >= 0 ? 0 : -1);
                T(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&to, sizeof to));
                T(access(fifo, R_OK));
                T(access(fifo, W_OK));
                T(faccessat(AT_FDCWD, fifo, R_OK, AT_EACCESS));
            }
        close(at);
    }
}

/* A descriptor of a FIFO that is fetched from a process is one of the same inode. */
GROUP(special, fifo_fetched_from_a_process)
{
    struct stat st, fetched;
    T(mkfifo("p", 0640));
    int fd = T(open("p", O_RDWR)), process = syscall(SYS_pidfd_open, getpid(), 0), got = syscall(SYS_pidfd_getfd, process, fd, 0);
    T(fstat(fd, &st));
    T(fstat(got, &fetched));
    say("%d %d", st.st_dev == fetched.st_dev, st.st_ino == fetched.st_ino);
    T(fchmod(got, 0600));
    attributes("p");
    T(fcntl(got, F_GETFD));
    T(write(got, "data", 4));
    char text[8] = "";
    T(read(fd, text, 8));
    say("%s", text);
    T(close(fd));
    T(write(got, "more", 4));
    T(read(got, text, 8));
    say("%s", text);
}

/* Calls on sockets that fail for what they are given, where sockets have names. */
GROUP(special, bad_buffers_of_sockets)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "sock" }, from;
    socklen_t length = sizeof from;
    int s = T(socket(AF_UNIX, SOCK_STREAM, 0)), pair[2];
    T(bind(s, (void *)&name, sizeof name));
    T(listen(s, 5));
    for (int i = 0; i < 2; i++) {
        int c = T(socket(AF_UNIX, SOCK_STREAM, 0));
        T(connect(c, (void *)&name, sizeof name));
        if (i)
            T(accept4(s, (void *)8, &length, SOCK_CLOEXEC));
        else
            T(accept(s, (void *)8, &length));
        T(dup(c));
    }
    T(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    char byte, control[64];
    struct iovec v = { &byte, 1 };
    struct msghdr m = { .msg_name = &from, .msg_namelen = -1, .msg_iov = &v, .msg_iovlen = 1 };
    T(write(pair[0], "x", 1));
    T(recvmsg(pair[1], &m, 0));
    m.msg_namelen = sizeof from;
    T(recvmsg(pair[1], &m, MSG_DONTWAIT));
    /* More messages at a time than one sendmmsg(2) sends. */
    static struct mmsghdr many[1100];
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    for (int i = 0; i < 1100; i++)
        many[i].msg_hdr = (struct msghdr){ .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    static char bytes[1100];
    T(write(pair[0], bytes, sizeof bytes));
    T(recvmmsg(pair[1], many, 1100, MSG_DONTWAIT, NULL));
}

static volatile int is_over;
static void *unlinks(void *path)
{
    while (!is_over)
        unlink(path);
    return NULL;
}

/* A FIFO is renamed while another thread, on a long way, removes its old name, where a file is by then. */
GROUP(special, fifo_renamed_beside_an_unlink)
{
    static char path[4002];
    for (int i = 0; i < 4000; i += 2)
        memcpy(path + i, "./", 2);
    path[4000] = 'p';
    int lost = 0, fd = -1;
    pthread_t thread;
    make("file", "");
    pthread_create(&thread, NULL, unlinks, path);
    struct timespec now, start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (now = start; !lost && (now.tv_sec - start.tv_sec) * 10 + now.tv_nsec / 100000000 - start.tv_nsec / 100000000 < 7;
         clock_gettime(CLOCK_MONOTONIC, &now)) {
        if (fd < 0) {
            mkfifo("q", 0600);
            fd = open("q", O_RDWR | O_NONBLOCK);
        }
        rename("q", "p");
        int there = rename("p", "q") == 0;
        link("file", "p");
        if (there) {
            int other = open("q", O_RDWR | O_NONBLOCK);
            char byte;
            lost = write(fd, "x", 1) != 1 || read(other, &byte, 1) != 1;
            close(other);
        } else {
            close(fd);
            fd = -1;
        }
    }
    is_over = 1;
    pthread_join(thread, NULL);
    say("lost %d", lost);
    unlink("p");
    unlink("q");
}
