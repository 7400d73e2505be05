/* Signals that arrive at any moment of a call: each must be delivered once, under the program's mask. */
#include "signals.h"
#include <sys/socket.h>
#include <poll.h>
#include <sys/select.h>
#include <ucontext.h>

GROUP(signal, pairs)
{
    /* Both signals of a pair arrive while the process is stopped, most likely inside a call. */
    share();
    pid_t child = fork();
    if (!child) {
        handle(SIGUSR1, count_both, 0);
        handle(SIGUSR2, count_both, 0);
        write_until_stopped("f", 1 << 16);
        say_blocked("blocked at the end");
        _exit(0);
    }
    AWAIT(shared->ready);
    int pair = 0;
    for (int seen = 1; pair < 3000 && seen; pair++) {
        kill(child, SIGSTOP);
        kill(child, SIGUSR1);
        kill(child, SIGUSR2);
        kill(child, SIGCONT);
        int left = 50000;
        while ((seen = shared->handled > pair && shared->second > pair) == 0 && left-- > 0)
            usleep(20);
    }
    shared->stop = 1;
    say_wait(child);
    say("pairs %d, first %d, second %d", pair, shared->handled, shared->second);
}

#define BURST 16

static void in_order(int signal, siginfo_t *info, void *context)
{
    if (info->si_code != SI_QUEUE || info->si_value.sival_int != shared->handled)
        shared->wrong++;
    shared->handled++;
}

/* Queues one signal to a thread, as pthread_sigqueue(3) does within a process. */
static int queue_to_thread(pid_t pid, int signal, int value)
{
    siginfo_t info = { .si_signo = signal, .si_code = SI_QUEUE };
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_int = value;
    return syscall(SYS_rt_tgsigqueueinfo, pid, pid, signal, &info);
}

static void bursts(int to_thread, int stopped)
{
    share();
    pid_t child = fork();
    if (!child) {
        handle(SIGRTMIN, in_order, 0);
        write_until_stopped("f", 4096);
        say_blocked("blocked at the end");
        _exit(0);
    }
    AWAIT(shared->ready);
    int sent = 0, seen = 1;
    for (int burst = 0; burst < 1000 && seen; burst++) {
        if (stopped)
            kill(child, SIGSTOP);
        for (int i = 0; i < BURST; i++, sent++)
            if (to_thread)
                queue_to_thread(child, SIGRTMIN, sent);
            else
                sigqueue(child, SIGRTMIN, (union sigval){ .sival_int = sent });
        if (stopped)
            kill(child, SIGCONT);
        seen = AWAIT(shared->handled >= sent);
    }
    shared->stop = 1;
    say_wait(child);
    say("sent %d, handled %d, out of order %d", sent, shared->handled, shared->wrong);
}

GROUP(signal, queued_to_the_process)
{
    bursts(0, 1);
}

GROUP(signal, queued_to_the_process_as_it_runs)
{
    bursts(0, 0);
}

GROUP(signal, queued_to_the_thread)
{
    bursts(1, 1);
}

GROUP(signal, queued_to_the_thread_as_it_runs)
{
    bursts(1, 0);
}

#define NUMBERS 3

static volatile int next_of[NUMBERS];

static void in_order_with_calls(int signal, siginfo_t *info, void *context)
{
    int error = errno, which = signal - SIGRTMIN;
    struct sigaction a;
    sigaction(signal, NULL, &a);
    sigaction(signal, &a, NULL);
    char b;
    if (info->si_value.sival_int != next_of[which]++)
        BUMP(wrong);
    int fd = open("f", O_RDWR);
    if (fd == -1 || pread(fd, &b, 1, 0) != 1 || pwrite(fd, "x", 1, which) != 1 || close(fd))
        BUMP(wrong);
    BUMP(handled);
    errno = error;
}

GROUP(signal, queued_to_handlers_that_make_calls)
{
    /* Several numbers at once, whose handlers interrupt each other and reinstall themselves; one blocks the
     * others. */
    share();
    make("f", "x");
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < NUMBERS; i++) {
            struct sigaction a = { .sa_sigaction = in_order_with_calls, .sa_flags = SA_SIGINFO | SA_RESTART };
            if (i == 1)
                sigfillset(&a.sa_mask);
            sigaction(SIGRTMIN + i, &a, NULL);
        }
        write_until_stopped("f", 1 << 14);
        say_blocked("blocked at the end");
        _exit(0);
    }
    AWAIT(shared->ready);
    int sent = 0, seen = 1;
    for (int round = 0; round < 300 && seen; round++) {
        for (int i = 0; i < BURST; i++)
            for (int which = 0; which < NUMBERS; which++, sent++)
                queue_to_thread(child, SIGRTMIN + which, round * BURST + i);
        seen = AWAIT(shared->handled >= sent);
    }
    shared->stop = 1;
    say_wait(child);
    say("sent %d, handled %d, wrong %d", sent, shared->handled, shared->wrong);
}

GROUP(signal, without_blocking_themselves)
{
    share();
    pid_t child = fork();
    if (!child) {
        handle(SIGRTMIN, count_one, SA_NODEFER);
        handle(SIGUSR1, count_one, SA_NODEFER);
        write_until_stopped("f", 4096);
        say_blocked("blocked at the end");
        _exit(0);
    }
    AWAIT(shared->ready);
    int sent = 0, seen = 1;
    for (int burst = 0; burst < 500 && seen; burst++) {
        kill(child, SIGSTOP);
        for (int i = 0; i < BURST; i++, sent++)
            queue_to_thread(child, SIGRTMIN, sent);
        kill(child, SIGUSR1);
        sent++;
        kill(child, SIGCONT);
        seen = AWAIT(shared->handled >= sent);
    }
    shared->stop = 1;
    say_wait(child);
    say("sent %d, handled %d", sent, shared->handled);
}

static void sent_by_hand(int signal, siginfo_t *info, void *context)
{
    shared->handled |= 1 << signal;
    if (info->si_code != SI_USER || info->si_pid != getppid())
        shared->wrong++;
}

GROUP(signal, of_faults_that_are_sent)
{
    static const int sent[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGUSR1 };
    share();
    int all = 0;
    for (unsigned i = 0; i < COUNT(sent); i++)
        all |= 1 << sent[i];
    pid_t child = fork();
    if (!child) {
        for (unsigned i = 0; i < COUNT(sent); i++)
            handle(sent[i], sent_by_hand, i % 2 ? SA_NODEFER : 0);
        write_until_stopped("f", 4096);
        say_blocked("blocked at the end");
        _exit(0);
    }
    AWAIT(shared->ready);
    int rounds = 0;
    for (int seen = 1; rounds < 500 && seen; rounds++) {
        kill(child, SIGSTOP);
        for (unsigned i = 0; i < COUNT(sent); i++)
            kill(child, sent[i]);
        shared->handled = 0;
        kill(child, SIGCONT);
        seen = AWAIT(shared->handled == all);
    }
    shared->stop = 1;
    say_wait(child);
    say("rounds %d, wrong %d", rounds, shared->wrong);
}

static void say_masks(int signal, siginfo_t *info, void *context)
{
    const sigset_t *saved = &((ucontext_t *)context)->uc_sigmask;
    say("signal %d: goes back to 10 %s, 12 %s", signal, sigismember(saved, SIGUSR1) ? "blocked" : "open",
        sigismember(saved, SIGUSR2) ? "blocked" : "open");
    say_blocked("in the handler");
}

GROUP(signal, masks_of_waits)
{
    /* Both signals are blocked except during a wait, which includes a file. */
    int fd = make_open("f", "x", O_RDWR);
    sigset_t both, none, second;
    sigemptyset(&none);
    sigemptyset(&second);
    sigaddset(&second, SIGUSR2);
    both = second;
    sigaddset(&both, SIGUSR1);
    handle(SIGUSR1, say_masks, SA_RESTART);
    handle(SIGUSR2, say_masks, 0);
    sigprocmask(SIG_BLOCK, &both, NULL);
    int ends[2];
    pipe(ends);
    const struct timespec long_time = { 20, 0 };
    for (int round = 0; round < 3; round++) {
        const sigset_t *mask = round == 1 ? &second : &none;
        say("round %d", round);
        raise(SIGUSR1);
        if (round)
            raise(SIGUSR2);
        struct pollfd polled[2] = { { fd, 0 }, { ends[0], POLLIN } };
        T(ppoll(polled, 2, &long_time, mask));
        say_blocked("after ppoll");
        raise(SIGUSR1);
        fd_set read, except;
        FD_ZERO(&read);
        FD_ZERO(&except);
        FD_SET(ends[0], &read);
        FD_SET(fd, &except);
        T(pselect(fd + 10, &read, NULL, &except, &long_time, mask));
        say_blocked("after pselect");
        sigset_t pending;
        sigpending(&pending);
        say("pending: 10 %d, 12 %d", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGUSR2));
    }
    say("ready at once: no signal is taken");
    raise(SIGUSR1);
    struct pollfd polled[1] = { { fd, POLLIN } };
    T(ppoll(polled, 1, &long_time, &none));
    fd_set read;
    FD_ZERO(&read);
    FD_SET(fd, &read);
    T(pselect(fd + 1, &read, NULL, NULL, &long_time, &none));
    sigset_t pending;
    sigpending(&pending);
    say("pending: 10 %d, 12 %d", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGUSR2));
    T(syscall(SYS_ppoll, polled, 1, &long_time, &none, 4));
    T(syscall(SYS_ppoll, polled, 1, &long_time, (void *)8, 8));
    T(sigsuspend(&none));
}

static void restart(int first_restarts, int second_restarts)
{
    /* Both signals interrupt a wait together: the one that the kernel takes first decides if the wait goes
     * on. */
    share();
    mkfifo("fifo", 0600);
    pid_t child = fork();
    if (!child) {
        handle(SIGUSR1, count_both, first_restarts ? SA_RESTART : 0);
        handle(SIGUSR2, count_both, second_restarts ? SA_RESTART : 0);
        shared->ready = 1;
        int fd = TN("open", open("fifo", O_RDONLY) >= 0 ? 0 : -1);
        say("handled %d and %d", shared->handled, shared->second);
        if (fd == -1)
            open("fifo", O_RDONLY);
        _exit(0);
    }
    /* Under load a process may sleep for a moment before it waits. */
    for (int calm = 0; calm < 20; usleep(5000))
        calm = shared->ready && sleeps(child) ? calm + 1 : 0;
    kill(child, SIGSTOP);
    /* Before it has stopped it could take one of them alone. */
    waitpid(child, NULL, WUNTRACED);
    kill(child, SIGUSR2);
    kill(child, SIGUSR1);
    kill(child, SIGCONT);
    AWAIT(shared->handled && shared->second && sleeps(child));
    int fd = open("fifo", O_WRONLY);
    say_wait(child);
    close(fd);
    unlink("fifo");
}

GROUP(signal, restart_of_a_wait)
{
    for (int flags = 0; flags < 4; flags++) {
        say("restarts: first %d, second %d", flags & 1, flags >> 1);
        restart(flags & 1, flags >> 1);
    }
}

GROUP(signal, calls_that_never_wait)
{
    /* Signals come at any moment of calls that return at once. None ends with EINTR, though the handler has
     * no SA_RESTART. Some of the opens reach the kernel by a link. */
    share();
    handle(SIGALRM, count_one, 0);
    T(symlink("/proc/self/status", "link"));
    int failed[4] = { 0 };
    for (int i = 0; i < 30 || shared->handled < 4000; i++) {
        every(20 + i % 50);
        for (int turn = 0; turn < 50; turn++) {
            int fd = open("/dev/null", O_RDWR), linked = open("link", O_RDONLY);
            failed[0] += fd < 0;
            failed[1] += linked < 0;
            failed[2] += close(fd) != 0;
            failed[3] += close(linked) != 0;
        }
    }
    every(0);
    say("failed: %d %d %d %d", failed[0], failed[1], failed[2], failed[3]);
    unlink("link");
}

/* munmap(2) of ranges that it refuses and that the stack is in: the thread goes on, with its signals. */
GROUP(signal, open_after_munmap_of_bad_ranges)
{
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const size_t lengths[] = { -1, -4095, 1UL << 62 };
    for (unsigned i = 0; i < COUNT(lengths); i++) {
        TN("munmap", munmap(page, lengths[i]));
        TN("munmap of no page", munmap(page + 1, lengths[i]));
        TN("syscall", syscall(SYS_munmap, page, lengths[i]));
    }
    T(munmap((char *)&page - (uintptr_t)&page % 4096 + 8, 4096));
    T(munmap((char *)&page - (uintptr_t)&page % 4096, 0));
    say_blocked("blocked");
    make("f", "text");
    contents("f");
}

/* A message that does not come, with a time limit: it is a signal's to end, with SA_RESTART or without
   (signal(7)). */
GROUP(signal, ends_a_timed_receive)
{
    share();
    make("f", "text");
    int pair[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    struct timeval limit = { 0, 400000 };
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (int restarts = 0; restarts < 2; restarts++) {
        handle(SIGALRM, count_one, restarts ? SA_RESTART : 0);
        struct itimerval once = { { 0, 0 }, { 0, 50000 } };
        setitimer(ITIMER_REAL, &once, NULL);
        char bytes[8], control[64];
        struct iovec piece = { bytes, sizeof bytes };
        struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        T(recvmsg(pair[0], &message, 0));
    }
    say("%d", shared->handled);
}
