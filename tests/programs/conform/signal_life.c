/* Signals that arrive while a process or thread starts, ends, calls exec, or repairs a mapping. */
#include "signals.h"
#include <sys/auxv.h>
#include <pthread.h>

/* Descriptor at which an image of `signal.exec` waits for the end of its pipe. */
#define WAITS_AT 300
/* Descriptor at which it has the memory of `shared`. */
#define TELLS_AT 301

GROUP(signal, image)
{
    /* The program of the exec below; run on its own it only checks its mask. */
    say_blocked("an image starts with");
    if (fcntl(TELLS_AT, F_GETFD) == -1)
        return;
    char b;
    read(WAITS_AT, &b, 1);
    sigset_t pending;
    sigpending(&pending);
    _exit(sigismember(&pending, SIGUSR2) ? 21 : 20);
}

static void exec_under_fire(const char *program)
{
    /* Each child is sent SIGUSR1 once, at some moment of its exec, and has SIGUSR2 blocked, which is sent
     * before. Either the handler gets the signal or the new image dies of it. */
    int died = 0, handled = 0, lost = 0, twice = 0, odd = 0, rounds = 400;
    int out = open("images", O_CREAT | O_RDWR | O_TRUNC, 0600);
    for (int i = 0; i < rounds; i++) {
        share();
        int ends[2];
        pipe2(ends, O_CLOEXEC);
        pid_t child = fork();
        if (!child) {
            handle(SIGUSR1, count_both, SA_RESTART);
            sigset_t second;
            sigemptyset(&second);
            sigaddset(&second, SIGUSR2);
            sigprocmask(SIG_BLOCK, &second, NULL);
            raise(SIGUSR2);
            dup2(ends[0], WAITS_AT);
            dup2(ends[0], TELLS_AT);
            dup2(out, 1);
            close(ends[1]);
            shared->ready = 1;
            execl(program, "conform", "signal.image", NULL);
            _exit(9);
        }
        while (!shared->ready)
            sched_yield();
        for (volatile int spin = 0; spin < i * 997 % 400000; spin++)
            ;
        kill(child, SIGUSR1);
        close(ends[0]);
        close(ends[1]);
        int status = 0;
        waitpid(child, &status, 0);
        int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1;
        if (!killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 21))
            odd++;
        if (killed && shared->handled)
            twice++;
        else if (!killed && !shared->handled)
            lost++;
        died += killed;
        handled += shared->handled;
        munmap((void *)shared, 4096);
    }
    say("rounds %d, lost %d, twice %d, odd ends %d, accounted %d", rounds, lost, twice, odd, died + handled);
    close(out);
    /* How many images get that far depends on the machine; one may die within its line. */
    system("sort -u images | grep -vxE '(an image starts with:)+( 12)?'; rm images");
}

GROUP(signal, during_exec)
{
    exec_under_fire("/proc/self/exe");
}

GROUP(signal, during_exec_of_a_file_here)
{
    system("cp /proc/$PPID/exe program");
    exec_under_fire("./program");
    unlink("program");
}

GROUP(signal, during_exec_that_fails)
{
    share();
    handle(SIGALRM, count_one, SA_RESTART);
    make("nothing", "no program");
    chmod("nothing", 0755);
    every(50);
    int odd = 0;
    for (int i = 0; i < 1000; i++)
        if (execl("./nothing", "nothing", NULL) != -1 || errno != ENOEXEC)
            odd++;
    for (int i = 0; i < 1000; i++)
        if (execl("/etc/hostname/x", "x", NULL) != -1 || errno != ENOTDIR)
            odd++;
    int before = shared->handled;
    say("odd %d, still handled %d", odd, AWAIT(shared->handled > before));
    every(0);
    say_blocked("blocked");
}

GROUP(signal, exec_makes_progress)
{
    /* A timer that fires faster than an exec can be prepared must not prevent the exec. */
    share();
    int fine = 0;
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (!child) {
            handle(SIGALRM, count_one, SA_RESTART);
            dup2(open("/dev/null", O_WRONLY), 1);
            every(20);
            /* The timer continues in the new image, and kills it. */
            execl("/proc/self/exe", "conform", "signal.image", NULL);
            _exit(9);
        }
        int status;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM || status == 0)
            fine++;
    }
    say("execs %d", fine);
}

GROUP(signal, to_a_child_just_made)
{
    share();
    int lost = 0, odd = 0;
    handle(SIGUSR1, count_one, 0);
    make("f", "x");
    for (int i = 0; i < 1000; i++) {
        shared->handled = 0;
        pid_t child = fork();
        if (!child) {
            for (int left = 2000; !shared->handled && left > 0; left--) {
                access("f", F_OK);
                usleep(20);
            }
            sigset_t set;
            sigprocmask(SIG_BLOCK, NULL, &set);
            _exit(sigismember(&set, SIGUSR1) || sigismember(&set, SIGTERM));
        }
        if (i % 2)
            for (volatile int spin = 0; spin < i * 37; spin++)
                ;
        kill(child, SIGUSR1);
        int status;
        waitpid(child, &status, 0);
        odd += status != 0;
        lost += shared->handled != 1;
    }
    say("lost %d, odd ends %d", lost, odd);
}

static pid_t fires_at;

static void only_here(int signal, siginfo_t *info, void *context)
{
    if (getpid() == fires_at)
        shared->handled++;
    else
        shared->wrong++;
}

static void fork_under_fire(pid_t (*make_child)(void))
{
    /* A timer is not inherited: the child must get none of its parent's signals, and have none blocked. */
    share();
    fires_at = getpid();
    handle(SIGALRM, only_here, SA_RESTART);
    make("f", "x");
    every(100);
    int odd = 0;
    for (int i = 0; i < 500; i++) {
        pid_t child = make_child();
        if (!child) {
            for (int k = 0; k < 20; k++)
                access("f", F_OK);
            sigset_t set;
            sigprocmask(SIG_BLOCK, NULL, &set);
            _exit(sigismember(&set, SIGALRM) || sigismember(&set, SIGTERM));
        }
        int status = 0;
        while (waitpid(child, &status, 0) == -1 && errno == EINTR)
            ;
        odd += child < 0 || status != 0;
    }
    int before = shared->handled;
    say("odd %d, in a child %d, still handled %d", odd, shared->wrong, AWAIT(shared->handled > before));
    every(0);
    say_blocked("blocked");
}

static pid_t make_by_fork(void)
{
    return fork();
}

static pid_t make_by_vfork(void)
{
    pid_t child = vfork();
    if (!child) {
        access("f", F_OK);
        _exit(0);
    }
    return child;
}

GROUP(signal, during_fork)
{
    fork_under_fire(make_by_fork);
}

GROUP(signal, during_vfork)
{
    fork_under_fire(make_by_vfork);
}

static int at_work;
static char opened[] = "g";

static void makes_calls(int signal, siginfo_t *info, void *context)
{
    int error = errno, fd;
    BUMP(handled);
    if (pwrite(at_work, "x", 1, 0) != 1)
        BUMP(wrong);
    if ((fd = open(opened, O_RDONLY)) == -1)
        BUMP(wrong);
    else
        close(fd);
    errno = error;
}

GROUP(signal, during_exit)
{
    share();
    make("g", "x");
    at_work = make_open("f", "x", O_RDWR);
    int odd = 0;
    for (int i = 0; i < 2000; i++) {
        pid_t child = fork();
        if (!child) {
            for (int k = 0; k < 40; k++)
                open("g", O_RDONLY);
            handle(SIGALRM, makes_calls, 0);
            struct itimerval v = { { 0, 30 }, { 0, 1 + i % 60 } };
            setitimer(ITIMER_REAL, &v, NULL);
            char b;
            for (int k = 0; k < 50 + i % 100; k++)
                pread(at_work, &b, 1, 0);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        odd += status != 0;
    }
    say("failed calls of handlers %d, odd ends %d, some handled %d", shared->wrong, odd, shared->handled > 0);
}

static void *short_life(void *unused)
{
    access("f", F_OK);
    return NULL;
}

GROUP(signal, to_threads_that_end)
{
    /* A process signal that a thread has taken is not lost when the thread ends. */
    share();
    pid_t child = fork();
    if (!child) {
        handle(SIGRTMIN, count_one, SA_RESTART);
        make("f", "x");
        shared->ready = 1;
        while (!shared->stop) {
            pthread_t threads[3];
            int made = 0;
            while (made < 3 && !pthread_create(&threads[made], NULL, short_life, NULL))
                made++;
            while (made)
                pthread_join(threads[--made], NULL);
        }
        _exit(0);
    }
    AWAIT(shared->ready);
    int sent = 0, seen = 1;
    for (int burst = 0; burst < 500 && seen; burst++) {
        for (int i = 0; i < 20; i++, sent++)
            sigqueue(child, SIGRTMIN, (union sigval){ .sival_int = sent });
        seen = AWAIT(shared->handled >= sent);
    }
    shared->stop = 1;
    say_wait(child);
    say("sent %d, handled %d", sent, shared->handled);
}

/* Touches the pages of a mapping of a file that another process makes grow, under signals whose handler
 * changes the file. */
static void *touch(void *mapping)
{
    static const int all = 3000;
    for (int page = 0; page < all; page++) {
        while (page >= shared->pages)
            sched_yield();
        ((volatile char *)mapping)[page * 4096L] = 1;
    }
    return NULL;
}

static void repair_under_fire(int threads)
{
    const int all = 3000;
    share();
    at_work = make_open("f", "", O_RDWR);
    make("g", "x");
    char *mapping = mmap(NULL, all * 4096L, PROT_READ | PROT_WRITE, MAP_SHARED, at_work, 0);
    pid_t child = fork();
    if (!child) {
        for (int page = 1; page <= all; page++) {
            ftruncate(at_work, page * 4096L);
            shared->pages = page;
            sched_yield();
        }
        _exit(0);
    }
    handle(SIGALRM, makes_calls, SA_RESTART);
    every(50);
    pthread_t others[4];
    for (int t = 0; t < threads; t++)
        pthread_create(&others[t], NULL, touch, mapping);
    touch(mapping);
    for (int t = 0; t < threads; t++)
        pthread_join(others[t], NULL);
    every(0);
    int status = 0;
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
        ;
    say("failed calls of handlers %d, the other ended with %d", shared->wrong, status);
    say_blocked("blocked");
    unlink("f");
}

GROUP(signal, during_a_mapping_s_repair)
{
    repair_under_fire(0);
}

GROUP(signal, during_a_mapping_s_repair_by_threads)
{
    repair_under_fire(3);
}

static void start_a_program(int signal)
{
    pid_t child = vfork();
    if (!child) {
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    int status = -1;
    waitpid(child, &status, 0);
    shared->handled = status;
}

/* A handler that starts a program has a stack that is little larger than the kernel's frame. */
GROUP(signal, program_started_on_a_small_stack)
{
    share();
    shared->handled = -1;
    size_t size = (getauxval(AT_MINSIGSTKSZ) + 4800 + 15) & ~15L;
    char *low = TP(mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    T(mprotect(low + 32768, 32768, PROT_READ | PROT_WRITE));
    stack_t stack = { .ss_sp = low + 32768, .ss_size = size };
    T(sigaltstack(&stack, NULL));
    struct sigaction action = { .sa_handler = start_a_program, .sa_flags = SA_ONSTACK };
    T(sigaction(SIGUSR1, &action, NULL));
    T(raise(SIGUSR1));
    say("%d", (int)shared->handled);
}
