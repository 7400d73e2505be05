/* Programs that restrict themselves with seccomp(2). A case runs alone, in a process that has not used the
 * directory yet; its output is compared between file systems. A call that its filter does not list kills it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[300], other[300];

static void say(const char *format, ...)
{
    char line[300];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    write(1, line, length);
}

#define T(call) ({ errno = 0; long r_ = (long)(call); say("%s = %ld %d\n", #call, r_, errno); r_; })

static void install(struct sock_filter *code, int count)
{
    struct sock_fprog program = { count, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
        say("no filter: %d\n", errno), _exit(9);
}

/* Allows these calls and kills the process for any other. */
static void allow(const int *calls, int count)
{
    struct sock_filter code[200] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)) };
    int at = 1;
    for (int c = 0; c < count; c++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[c], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    install(code, at);
}

/* Allows every call except this one, which fails with an errno, or kills if that is 0. */
static void deny(int call, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, error ? SECCOMP_RET_ERRNO | error : SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install(code, 4);
}

#define ALLOW(...) allow((const int[]) { __VA_ARGS__ }, sizeof((const int[]) { __VA_ARGS__ }) / sizeof(int))

static void never(void)
{
    ALLOW(SYS_write, SYS_exit_group);
    say("here\n");
}

static void never_host(void)
{
    char text[8];
    ALLOW(SYS_write, SYS_exit_group, SYS_openat, SYS_open, SYS_read, SYS_close, SYS_newfstatat, SYS_dup, SYS_mmap, SYS_munmap);
    int fd = T(open("/proc/version", O_RDONLY));
    T(read(fd, text, 8));
    T(syscall(SYS_open, "/dev/null", O_RDONLY));
    T(dup(fd));
    T(close(fd));
    struct stat st;
    T(stat("/", &st));
    T(munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096));
    T(open("/nowhere/none", O_RDONLY));
}

static void before(void)
{
    static char big[1 << 20], back[1 << 20];
    struct stat st;
    memset(big, 'b', sizeof big);
    int fd = open(path, O_RDWR | O_CREAT, 0600), second = open(other, O_RDWR | O_CREAT, 0600);
    say("%d\n", write(fd, "before", 6) == 6);
    ALLOW(SYS_write, SYS_read, SYS_lseek, SYS_close, SYS_pread64, SYS_pwrite64, SYS_newfstatat, SYS_fstat, SYS_ftruncate, SYS_exit_group);
    T(write(fd, "after", 5));
    T(pwrite(second, big, sizeof big, 0));
    T(pread(second, back, sizeof back, 0));
    say("%d\n", memcmp(big, back, sizeof big));
    T(lseek(fd, 0, SEEK_SET));
    T(read(fd, back, 20));
    say("%.11s\n", back);
    T(fstat(fd, &st));
    say("%ld %d\n", (long)st.st_size, st.st_mtime > 1000000000);
    for (int i = 0; i < 50; i++)
        if (ftruncate(second, i % 2 ? 5000000 : 3) || pwrite(second, "x", 1, i * 4096) != 1)
            say("turn %d\n", i);
    T(close(fd));
    T(close(second));
    T(close(second));
}

static void after(void)
{
    char text[8] = "";
    struct stat st;
    ALLOW(SYS_write, SYS_read, SYS_lseek, SYS_close, SYS_openat, SYS_newfstatat, SYS_unlink, SYS_mkdir, SYS_rmdir,
          SYS_rename, SYS_exit_group);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    say("%d\n", fd >= 0);
    say("%ld\n", (long)write(fd, "text", 4));
    say("%ld %ld\n", (long)lseek(fd, 0, SEEK_SET), (long)read(fd, text, 8));
    say("%s %d\n", text, close(fd));
    for (int i = 0; i < 500; i++) {
        fd = open(path, O_RDWR);
        if (fd < 0 || write(fd, "more", 4) != 4 || close(fd))
            say("turn %d: %d\n", i, errno);
    }
    int host = open("/dev/null", O_WRONLY);
    say("%d %d\n", host >= 0, close(host));
    T(stat(path, &st));
    T(mkdir(other, 0700));
    T(rmdir(other));
    T(rename(path, other));
    T(stat(path, &st));
    T(unlink(other));
    T(unlink(other));
}

static void dups(void)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    ALLOW(SYS_write, SYS_close, SYS_dup2, SYS_dup3, SYS_poll, SYS_select, SYS_pselect6, SYS_exit_group);
    T(dup2(fd, 20));
    T(write(20, "twenty", 6));
    T(dup3(20, 21, 0));
    T(close(20));
    T(write(21, "twenty", 6));
    T(write(20, "twenty", 6));
    T(dup2(1, 21));
    say("%d\n", (int)write(21, "out\n", 4));
    T(dup2(fd, 70));
    T(write(70, "seventy", 7));
    T(dup2(1, 71));
    say("%d\n", (int)write(71, "out\n", 4));
    T(close(70));
    T(close(70));
    T(close(71));
}

static void strict(void)
{
    char text[20] = "";
    int fd = open(path, O_RDWR | O_CREAT, 0600), host = open("/dev/zero", O_RDWR), pair[2];
    pipe(pair);
    write(fd, "first", 5);
    lseek(fd, 0, SEEK_SET);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    T(read(fd, text, 3));
    T(write(fd, "second", 6));
    T(read(fd, text, 8));
    T(read(host, text, 4));
    T(write(pair[1], "host", 4));
    T(read(pair[0], text, 9));
    say("%s\n", text);
    syscall(SYS_exit, 0);
}

static void strict_never(void)
{
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    say("here\n");
    syscall(SYS_exit, 0);
}

/* What ends a process in strict mode: a fault by its signal, all else by the kernel's SIGKILL. */
static void strict_ends(void)
{
    for (int how = 0; how < 4; how++) {
        int status = -1;
        pid_t child = fork();
        if (!child) {
            int fd = open(path, O_RDWR | O_CREAT, 0600);
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
            write(fd, "s", 1);
            if (how == 0)
                *(volatile int *)8 = 1;
            if (how == 1)
                __asm__ volatile("hlt");
            if (how == 2)
                abort();
            _exit(0);
        }
        for (int left = 600; left && waitpid(child, &status, WNOHANG) != child; left--)
            left == 1 ? kill(child, SIGTERM) : usleep(100000);
        say("%d: %x\n", how, status & 0x7f);
    }
}

static int shared;

static void *worker(void *number)
{
    char text[8] = "";
    for (int i = 0; i < 200; i++)
        if (pwrite(shared, "word", 4, (long)number * 4) != 4 || pread(shared, text, 4, (long)number * 4) != 4 || memcmp(text, "word", 4))
            say("worker %ld: %d\n", (long)number, errno);
    return NULL;
}

static void threads(void)
{
    shared = open(path, O_RDWR | O_CREAT, 0600);
    for (int turn = 0; turn < 16; turn++) /* The file's only writer so far. */
        pwrite(shared, "x", 1, 0);
    ALLOW(SYS_write, SYS_pwrite64, SYS_pread64, SYS_close, SYS_clone, SYS_clone3, SYS_mmap, SYS_munmap, SYS_mprotect,
          SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_rt_sigprocmask, SYS_madvise, SYS_exit, SYS_brk, SYS_rt_sigaction, SYS_getrandom, SYS_exit_group);
    for (int round = 0; round < 150; round++) {
        pthread_t thread[4];
        for (long t = 0; t < 4; t++)
            if ((errno = pthread_create(&thread[t], NULL, worker, (void *)t)))
                say("thread: %d\n", errno);
        for (int t = 0; t < 4; t++)
            pthread_join(thread[t], NULL);
    }
    T(close(shared));
}

static volatile long handled;

static void handler(int number)
{
    char text[4];
    if (pread(shared, text, 4, 0) != 4)
        say("in the handler: %d\n", errno);
    handled++;
}

static void signals(void)
{
    char text[4096] = "";
    shared = open(path, O_RDWR | O_CREAT, 0600);
    pwrite(shared, text, sizeof text, 0);
    signal(SIGALRM, handler);
    struct itimerval often = { { 0, 200 }, { 0, 200 } };
    setitimer(ITIMER_REAL, &often, NULL);
    ALLOW(SYS_write, SYS_pwrite64, SYS_pread64, SYS_rt_sigreturn, SYS_exit_group);
    while (handled < 300)
        if (pwrite(shared, text, sizeof text, 0) != sizeof text)
            say("write: %d\n", errno);
    say("handled\n");
}

static sigjmp_buf top;
static volatile int has_top;

static void jump(int number)
{
    if (has_top && ++handled <= 300)
        siglongjmp(top, 1);
}

/* A handler that jumps out of the interrupted call: later calls must still work. */
static void jumps(void)
{
    static char text[4096];
    shared = open(path, O_RDWR | O_CREAT, 0600);
    pwrite(shared, text, sizeof text, 0);
    signal(SIGALRM, jump);
    struct itimerval often = { { 0, 300 }, { 0, 300 } };
    setitimer(ITIMER_REAL, &often, NULL);
    ALLOW(SYS_write, SYS_pwrite64, SYS_pread64, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_exit_group);
    for (sigsetjmp(top, 1), has_top = 1; handled < 300;)
        if (pwrite(shared, text, sizeof text, 0) != sizeof text || pread(shared, text, sizeof text, 0) != sizeof text)
            say("calls: %d\n", errno);
    say("jumped\n");
}

/* SA_RESETHAND: the handler runs once, however often the signal arrives. */
static void resets(void)
{
    static char text[4096];
    shared = open(path, O_RDWR | O_CREAT, 0600);
    pwrite(shared, text, sizeof text, 0);
    struct sigaction once = { .sa_handler = handler, .sa_flags = SA_RESETHAND };
    sigaction(SIGURG, &once, NULL);
    pid_t parent = getpid(), child = fork();
    if (!child) {
        for (int i = 0; i < 20000; i++)
            kill(parent, SIGURG);
        _exit(0);
    }
    ALLOW(SYS_write, SYS_pwrite64, SYS_pread64, SYS_rt_sigreturn, SYS_wait4, SYS_exit_group);
    while (!waitpid(child, NULL, WNOHANG))
        if (pwrite(shared, text, sizeof text, 0) != sizeof text)
            say("write: %d\n", errno);
    say("handled %ld\n", handled);
}

static void forks(void)
{
    ALLOW(SYS_write, SYS_clone, SYS_fork, SYS_wait4, SYS_set_robust_list, SYS_rt_sigprocmask, SYS_exit_group, SYS_getpid);
    pid_t child = fork();
    if (!child) {
        say("child\n");
        _exit(3);
    }
    int status = 0;
    say("%d ", waitpid(child, &status, 0) == child);
    say("%d\n", WEXITSTATUS(status));
    child = syscall(SYS_fork);
    if (!child)
        _exit(4);
    say("%d ", waitpid(child, &status, 0) == child);
    say("%d\n", WEXITSTATUS(status));
}

/* A filter that allows more than the program needs changes nothing. */
static void denied(void)
{
    deny(SYS_ptrace, EPERM);
    char command[700];
    snprintf(command, sizeof command, "echo text > %s && cat %s && (cat %s; exit 5)", path, path, path);
    T(WEXITSTATUS(system(command)));
    int fd = T(open(path, O_RDONLY));
    T(dup(fd));
    char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    say("%.4s\n", map);
}

/* A socket in the directory, under a filter that kills for calls on sockets that the program does not make. */
static void sockets(void)
{
    static const int calls[] = { SYS_getsockopt, SYS_setsockopt, SYS_getpeername };
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        deny(calls[i], 0);
    struct sockaddr_un name = { AF_UNIX, "" }, missing = { AF_UNIX, "" };
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    snprintf(missing.sun_path, sizeof missing.sun_path, "%s", other);
    int to = T(socket(AF_UNIX, SOCK_DGRAM, 0)), from = T(socket(AF_UNIX, SOCK_DGRAM, 0));
    int internet = T(socket(AF_INET, SOCK_DGRAM, 0));
    T(bind(internet, (void *)&name, sizeof name));
    T(connect(internet, (void *)&name, sizeof name));
    T(bind(to, (void *)&name, sizeof name));
    T(bind(from, (void *)&name, sizeof name));
    T(sendto(from, "x", 1, 0, (void *)&missing, sizeof missing));
    T(sendto(from, "x", 1, 0, (void *)&name, sizeof name));
    T(connect(from, (void *)&name, sizeof name));
    char got;
    T(read(to, &got, 1));
}

static volatile int arrived, disordered;

static void in_order(int number, siginfo_t *info, void *context)
{
    if (info->si_code != SI_QUEUE || info->si_value.sival_int != arrived)
        disordered++;
    arrived++;
}

/* A filter under which calls that the program does not make fail, as man's: everything goes on working. */
static void failing(void)
{
    enum { SIGNALS = 500 };
    static char big[4096];
    static const int calls[] = { SYS_openat2, SYS_memfd_create, SYS_setfsuid, SYS_setfsgid, SYS_umask, SYS_rt_tgsigqueueinfo };
    struct sigaction action = { .sa_sigaction = in_order, .sa_flags = SA_SIGINFO };
    sigaction(SIGRTMIN, &action, NULL);
    umask(027);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        deny(calls[i], i % 2 ? EPERM : ENOSYS);
    char command[700];
    snprintf(command, sizeof command, "echo text > %s && cat %s && stat -c '%%a %%u' %s; exit 5", path, path, path);
    T(WEXITSTATUS(system(command)));
    int fd = T(open(path, O_RDWR));
    T(dup(fd));
    say("%.4s\n", (char *)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
    pid_t parent = getpid(), child = fork();
    for (int i = 0; !child && i < SIGNALS; i++)
        while (sigqueue(parent, SIGRTMIN, (union sigval) { i }))
            ;
    if (!child)
        _exit(0);
    while (arrived < SIGNALS)
        if (pwrite(fd, big, sizeof big, 0) != sizeof big)
            say("write: %d\n", errno);
    say("%d %d\n", arrived, disordered);
    T(waitpid(child, NULL, 0) == child);
}

/* A process without barriers appends to a file whose sole writer is another process. */
static void together(void)
{
    enum { ROUNDS = 3000 };
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600), pair[2];
    struct stat st;
    pipe(pair);
    for (int i = 0; i < 100; i++)
        write(fd, "p", 1);
    pid_t child = fork();
    if (!child) {
        int own = open(path, O_WRONLY | O_APPEND);
        read(pair[0], &own, 0);
        ALLOW(SYS_write, SYS_exit_group);
        for (int i = 0; i < ROUNDS; i++)
            write(own, "c", 1);
        _exit(0);
    }
    for (int i = 0; i < ROUNDS; i++)
        write(fd, "p", 1);
    int status;
    waitpid(child, &status, 0);
    for (int i = 0; i < 100; i++)
        write(fd, "p", 1);
    fstat(fd, &st);
    say("%d %ld\n", status, (long)st.st_size);
}

/* Filters that know calls by their old numbers only, and files of the host. */
static void numbers(void)
{
    static const int calls[] = { SYS_unlink, SYS_rename, SYS_chmod, SYS_rmdir, SYS_mkdir, SYS_link, SYS_symlink,
                                 SYS_mknod, SYS_chown, SYS_lchown, SYS_access, SYS_utimes };
    char room[] = "/tmp/lightpath-filter-XXXXXX", file[64], to[64];
    if (!mkdtemp(room))
        _exit(9);
    snprintf(file, sizeof file, "%s/file", room);
    snprintf(to, sizeof to, "%s/to", room);
    close(open(file, O_WRONLY | O_CREAT, 0600));
    close(open(path, O_WRONLY | O_CREAT, 0600));
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        int status;
        pid_t child = fork();
        if (!child) {
            deny(calls[i], EPERM);
            int second = calls[i] == SYS_rename || calls[i] == SYS_link || calls[i] == SYS_symlink;
            long done = syscall(calls[i], calls[i] == SYS_mkdir ? to : file, second ? (long)to : 0, 0);
            say("%u %ld %d\n", i, done, errno);
            _exit(0);
        }
        waitpid(child, &status, 0);
        say("%d\n", status);
    }
    int gone = unlink(file);
    say("%d %d\n", gone, rmdir(room));
}

static const struct { const char *name; void (*run)(void); } cases[] = {
    { "never", never }, { "never_host", never_host }, { "before", before }, { "after", after }, { "dups", dups },
    { "strict", strict }, { "strict_never", strict_never }, { "strict_ends", strict_ends }, { "threads", threads }, { "signals", signals },
    { "jumps", jumps }, { "resets", resets },
    { "forks", forks }, { "denied", denied }, { "sockets", sockets }, { "failing", failing }, { "together", together },
    { "numbers", numbers },
};

/* filter deny CALL ERRNO COMMAND...: runs a command under a filter from outside.
 * filter ring COMMAND...: runs one with an io_uring instance on descriptor 9.
 */
int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "ring")) {
        char parameters[120] = "";
        int ring = syscall(425, 4, parameters);
        if (ring < 0 || dup2(ring, 9) != 9)
            return 9;
        execvp(argv[2], argv + 2);
        return 127;
    }
    if (argc > 4 && !strcmp(argv[1], "deny")) {
        deny(atoi(argv[2]), atoi(argv[3]));
        execvp(argv[4], argv + 4);
        return 127;
    }
    for (unsigned c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        if (argc == 2)
            say("%s\n", cases[c].name);
        if (argc == 3 && !strcmp(argv[1], cases[c].name)) {
            snprintf(path, sizeof path, "%s/file", argv[2]);
            snprintf(other, sizeof other, "%s/other", argv[2]);
            cases[c].run();
        }
    }
    _exit(0);
}
