/* Processes and signals: prints what happened, line by line. Run with and without the gate, the output is the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* struct clone_args of <linux/sched.h>, which musl's compiler does not find. */
struct arguments { unsigned long long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; };
#ifndef SYS_clone3
#define SYS_clone3 435
#endif

extern char **environ;
static volatile sig_atomic_t count, last_code, last_value;
static sigjmp_buf jump;

static void plain(int s) { count += s > 0; }
static void full(int s, siginfo_t *i, void *c) { (void)c; count += s > 0; last_code = i->si_code; last_value = i->si_value.sival_int; }
static void leave(int s) { siglongjmp(jump, s); }
static void calls(int s) { (void)s; int fd = open("/dev/null", O_RDONLY); if (fd >= 0) { lseek(fd, 0, SEEK_SET); close(fd); } count++; }

static int status_of(pid_t pid) {
    int s = -1;
    while (waitpid(pid, &s, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(s) ? WEXITSTATUS(s) : 1000 + WTERMSIG(s);
}

static void show(const char *what, int sig) {
    struct sigaction a;
    int r = sigaction(sig, NULL, &a);
    const char *h = a.sa_handler == SIG_DFL ? "default" : a.sa_handler == SIG_IGN ? "ignore" : a.sa_handler == plain ? "plain"
        : a.sa_sigaction == full ? "full" : a.sa_handler == leave ? "leave" : "?";
    printf("%s: %d %s flags %x mask %d%d\n", what, r, h, (unsigned)a.sa_flags & ~0x04000000u, sigismember(&a.sa_mask, SIGUSR2), sigismember(&a.sa_mask, SIGHUP));
}

static void actions(void) {
    struct sigaction a = { .sa_handler = plain, .sa_flags = SA_RESTART }, old;
    show("before", SIGUSR1);
    sigaddset(&a.sa_mask, SIGUSR2);
    printf("set %d\n", sigaction(SIGUSR1, &a, NULL));
    show("plain", SIGUSR1);
    struct sigaction b = { .sa_sigaction = full, .sa_flags = SA_SIGINFO | SA_NODEFER };
    printf("set %d\n", sigaction(SIGUSR1, &b, &old));
    printf("old is plain %d flags %x\n", old.sa_handler == plain, (unsigned)old.sa_flags & ~0x04000000u);
    show("full", SIGUSR1);
    count = 0;
    sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 77 });
    printf("count %d code %d value %d\n", (int)count, (int)last_code, (int)last_value);
    a.sa_flags = SA_RESETHAND;
    sigaction(SIGUSR1, &a, NULL);
    show("reset set", SIGUSR1);
    raise(SIGUSR1);
    show("reset done", SIGUSR1);
    signal(SIGUSR1, SIG_IGN);
    show("ignored", SIGUSR1);
    raise(SIGUSR1);
    printf("kill %d errno %d\n", sigaction(SIGKILL, &a, NULL), errno);
    printf("bad %d errno %d\n", sigaction(99, &a, NULL), errno);
    errno = 0;
    printf("fault %ld errno %d\n", syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8), errno);
    errno = 0;
    printf("fault %ld errno %d\n", syscall(SYS_rt_sigaction, SIGUSR1, NULL, (void *)8, 8), errno);
    show("segv", SIGSEGV);
    signal(SIGSEGV, plain);
    show("segv plain", SIGSEGV);
    signal(SIGSEGV, SIG_DFL);
    show("segv default", SIGSEGV);
    signal(SIGSEGV, SIG_IGN);
    show("segv ignore", SIGSEGV);
    kill(getpid(), SIGSEGV);
    printf("survived an ignored SIGSEGV\n");
    signal(SIGSEGV, SIG_DFL);
}

static void faults(void) {
    signal(SIGSEGV, leave);
    int r = sigsetjmp(jump, 1);
    if (r == 0) *(volatile int *)8 = 1;
    printf("left with %d\n", r);
    signal(SIGSEGV, SIG_DFL);
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) { *(volatile int *)8 = 1; _exit(1); }
    printf("died of %d\n", status_of(p));
    fflush(stdout);
    p = fork();
    if (p == 0) { kill(getpid(), SIGSEGV); _exit(1); }
    printf("died of %d\n", status_of(p));
    fflush(stdout);
    p = fork();
    if (p == 0) { signal(SIGSEGV, SIG_IGN); *(volatile int *)8 = 1; _exit(1); }
    printf("died of %d\n", status_of(p));
}

static int from_clone(void *x) { return *(int *)x + 1; }

static void children(void) {
    static char stack[1 << 16];
    int value = 6;
    printf("clone on a stack of its own: %d\n", status_of(clone(from_clone, stack + sizeof stack, SIGCHLD, &value)));
    printf("clone sharing memory: %d\n", status_of(clone(from_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &value)));
    fflush(stdout);
    pid_t p = vfork();
    if (p == 0) { execl("/bin/sh", "sh", "-c", "exit 5", NULL); _exit(9); }
    printf("vfork and exec: %d\n", status_of(p));
    p = vfork();
    if (p == 0) _exit(4);
    printf("vfork and exit: %d\n", status_of(p));
    p = vfork();
    if (p == 0) { execl("/nonexistent", "x", NULL); _exit(errno == ENOENT ? 3 : 8); }
    printf("vfork and failed exec: %d\n", status_of(p));
    struct arguments c = { .exit_signal = SIGCHLD };
    p = syscall(SYS_clone3, &c, sizeof c);
    if (p == 0) _exit(12);
    printf("clone3 as fork: %d\n", status_of(p));
    printf("clone3 too small: %ld errno %d\n", syscall(SYS_clone3, &c, 8), errno);
    printf("clone3 fault: %ld errno %d\n", syscall(SYS_clone3, (void *)8, sizeof c), errno);
    p = syscall(SYS_fork);
    if (p == 0) _exit(13);
    printf("raw fork: %d\n", status_of(p));
    char *argv[] = { "sh", "-c", "exit 7", NULL };
    p = 0;
    posix_spawn(&p, "/bin/sh", NULL, NULL, argv, environ);
    printf("posix_spawn: %d\n", status_of(p));
    printf("posix_spawn of nothing: %d\n", posix_spawn(&p, "/nonexistent", NULL, NULL, argv, environ));
    printf("system: %d\n", WEXITSTATUS(system("exit 11")));
    char line[64] = "";
    FILE *f = popen("echo from popen", "r");
    if (f) { if (!fgets(line, sizeof line, f)) line[0] = 0; pclose(f); }
    printf("popen: %s", line);
    fflush(stdout);
    p = fork();
    if (p == 0) { p = fork(); if (p == 0) _exit(21); _exit(status_of(p) + 1); }
    printf("nested forks: %d\n", status_of(p));
}

static void exec_signals(void) {
    char *argv[] = { "sh", "-c", "grep -E '^Sig(Ign|Blk)' /proc/self/status", NULL };
    pid_t p;
    signal(SIGSEGV, SIG_IGN);
    signal(SIGUSR2, plain);
    fflush(stdout);
    posix_spawn(&p, "/bin/sh", NULL, NULL, argv, environ);
    status_of(p);
    signal(SIGSEGV, SIG_DFL);
    p = vfork();
    if (p == 0) { signal(SIGUSR2, SIG_IGN); signal(SIGHUP, plain); _exit(0); }
    status_of(p);
    show("after a child's change", SIGUSR2);
    show("after a child's change", SIGHUP);
    signal(SIGUSR2, SIG_DFL);
}

static void *worker(void *x) {
    for (int i = 0; i < 200; i++) { int fd = open("/dev/null", O_RDONLY); lseek(fd, 0, SEEK_SET); close(fd); }
    return x;
}

static void threads(void) {
    pthread_t t[16];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 16; i++) pthread_create(&t[i], NULL, worker, NULL);
        for (int i = 0; i < 16; i++) pthread_join(t[i], NULL);
    }
    printf("threads done\n");
}

static volatile int rounds;
static struct itimerval often = { { 0, 100 }, { 0, 100 } };

/* Rings half as often once no round ends between many rings: where a ring costs more than the time between two,
 * as under a tracer, fork would start again for ever. */
static void ring(int s) {
    static int seen, same;
    calls(s);
    same = rounds == seen ? same + 1 : 0;
    seen = rounds;
    if (same == 64) {
        same = 0;
        often.it_value.tv_usec = often.it_interval.tv_usec *= 2;
        setitimer(ITIMER_REAL, &often, NULL);
    }
}

static void storm(void) {
    struct sigaction a = { .sa_handler = ring, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &a, NULL);
    count = 0;
    setitimer(ITIMER_REAL, &often, NULL);
    int fd = open("/dev/null", O_RDWR), bad = 0;
    for (; count < 2000 || rounds < 300; rounds++) {
        for (int i = 0; i < 100; i++) bad += lseek(fd, i, SEEK_SET) < 0;
        if (rounds % 100 == 0) { pid_t p = fork(); if (p == 0) _exit(0); bad += status_of(p) != 0; }
        if (rounds % 100 == 1) { char *argv[] = { "true", NULL }; pid_t p; bad += posix_spawn(&p, "/bin/true", NULL, NULL, argv, environ) != 0; bad += status_of(p) != 0; }
        if (rounds % 100 == 2) { pid_t p = vfork(); if (p == 0) _exit(0); bad += status_of(p) != 0; }
    }
    struct itimerval v = { 0 };
    setitimer(ITIMER_REAL, &v, NULL);
    printf("storm: %d bad\n", bad);
    int pipes[2];
    pipe(pipes);
    a.sa_flags = 0;
    sigaction(SIGALRM, &a, NULL);
    v.it_value.tv_usec = 20000;
    setitimer(ITIMER_REAL, &v, NULL);
    char c;
    printf("interrupted read: %zd errno %d\n", read(pipes[0], &c, 1), errno);
    signal(SIGALRM, SIG_DFL);
}

static void *cancelled(void *x) { int *p = x; char c; pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL); (void)!read(p[0], &c, 1); return NULL; }

static void cancel(void) {
    int p[2]; void *r; pthread_t t;
    pipe(p);
    pthread_create(&t, NULL, cancelled, p);
    usleep(20000);
    pthread_cancel(t);
    pthread_join(t, &r);
    printf("cancelled %d\n", r == PTHREAD_CANCELED);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    actions();
    faults();
    children();
    exec_signals();
    threads();
    storm();
    cancel();
    return 0;
}
