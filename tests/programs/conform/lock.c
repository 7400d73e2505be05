/* flock, POSIX record locks, open file description locks: conflicts, waiting, deadlock, release at close and
 * death. */
#include "conform.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

static struct flock range(short type, long start, long length)
{
    return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
}

static long set(int fd, int command, short type, long start, long length)
{
    struct flock l = range(type, start, length);
    return fcntl(fd, command, &l);
}

static void get(int fd, int command, short type, long start, long length)
{
    struct flock l = range(type, start, length);
    errno = 0;
    long result = fcntl(fd, command, &l);
    say("  get %ld+%ld: %ld %s type %d whence %d start %ld length %ld %s", start, length, result, result ? strerrorname_np(errno) : "", l.l_type,
        l.l_whence, (long)l.l_start, (long)l.l_len, l.l_pid == -1 ? "ofd" : l.l_pid == 0 ? "none" : l.l_pid == getppid() ? "parent" : l.l_pid == getpid() ? "self" : "other");
}

GROUP(lock, posix)
{
    int fd = make_open("f", "0123456789", O_RDWR), ro = T(open("f", O_RDONLY)), wo = T(open("f", O_WRONLY));
    T(set(fd, F_SETLK, F_WRLCK, 2, 4));
    get(fd, F_GETLK, F_WRLCK, 0, 0);
    CHILD {
        get(fd, F_GETLK, F_WRLCK, 0, 0);
        get(fd, F_GETLK, F_RDLCK, 3, 1);
        get(fd, F_GETLK, F_RDLCK, 6, 0);
        T(set(fd, F_SETLK, F_WRLCK, 0, 2));
        T(set(fd, F_SETLK, F_WRLCK, 0, 3));
        T(set(fd, F_SETLK, F_RDLCK, 5, 1));
        T(set(fd, F_SETLK, F_RDLCK, 6, 0));
    }
    T(set(fd, F_SETLK, F_RDLCK, 3, 1));
    CHILD {
        get(fd, F_GETLK, F_WRLCK, 3, 1);
        T(set(fd, F_SETLK, F_RDLCK, 3, 1));
        T(set(fd, F_SETLK, F_WRLCK, 3, 1));
        get(fd, F_GETLK, F_WRLCK, 4, 0);
    }
    T(set(fd, F_SETLK, F_UNLCK, 0, 3));
    CHILD {
        get(fd, F_GETLK, F_WRLCK, 0, 0);
    }
    T(set(ro, F_SETLK, F_WRLCK, 100, 1));
    T(set(ro, F_SETLK, F_RDLCK, 100, 1));
    T(set(wo, F_SETLK, F_RDLCK, 200, 1));
    T(set(wo, F_SETLK, F_WRLCK, 200, 1));
    T(set(fd, F_SETLK, 7, 0, 1));
    T(set(fd, F_SETLK, F_WRLCK, -1, 1));
    T(set(fd, F_SETLK, F_WRLCK, 10, -5));
    T(set(fd, F_SETLK, F_WRLCK, 3, -5));
    T(set(fd, F_SETLK, F_WRLCK, 0x7fffffffffffffffL, 2));
    struct flock end = { .l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -2, .l_len = 5 }, bad = end;
    T(fcntl(fd, F_SETLK, &end));
    bad.l_whence = 9;
    T(fcntl(fd, F_SETLK, &bad));
    CHILD {
        get(fd, F_GETLK, F_WRLCK, 7, 100);
    }
    T(set(99, F_SETLK, F_WRLCK, 0, 1));
    int p[2];
    T(pipe(p));
    T(set(p[0], F_SETLK, F_RDLCK, 0, 1));
    T(close(wo));
    CHILD {
        get(fd, F_GETLK, F_WRLCK, 0, 0);
        T(set(fd, F_SETLK, F_WRLCK, 0, 0));
    }
    int d = T(dup(fd));
    T(set(fd, F_SETLK, F_WRLCK, 0, 0));
    T(close(d));
    CHILD {
        T(set(fd, F_SETLK, F_WRLCK, 0, 0));
    }
    int dir = T(open(".", O_RDONLY));
    T(set(dir, F_SETLK, F_RDLCK, 0, 1));
    T(lockf(fd, F_TLOCK, 5));
    T(lockf(fd, F_TEST, 0));
    T(lockf(fd, F_ULOCK, 0));
}

GROUP(lock, many_ranges)
{
    int fd = make_open("f", "", O_RDWR);
    for (int i = 0; i < 200; i++)
        if (set(fd, F_SETLK, i % 3 ? F_WRLCK : F_RDLCK, (i * 37) % 200 * 10, 5))
            say("lock %d: %s", i, strerrorname_np(errno));
    CHILD {
        get(fd, F_GETLK, F_WRLCK, 0, 0);
        get(fd, F_GETLK, F_WRLCK, 555, 10);
        get(fd, F_GETLK, F_RDLCK, 1000, 0);
        int free_at = 0;
        for (int i = 0; i < 2000; i++)
            free_at += set(fd, F_SETLK, F_WRLCK, i, 1) == 0;
        say("%d", free_at);
    }
    T(set(fd, F_SETLK, F_UNLCK, 100, 1000));
    CHILD {
        int free_at = 0;
        for (int i = 0; i < 2000; i++)
            free_at += set(fd, F_SETLK, F_WRLCK, i, 1) == 0;
        say("%d", free_at);
    }
    T(set(fd, F_SETLK, F_WRLCK, 0, 0));
    T(set(fd, F_SETLK, F_UNLCK, 0, 0));
    CHILD {
        get(fd, F_GETLK, F_WRLCK, 0, 0);
    }
}

GROUP(lock, waiting)
{
    int fd = make_open("f", "", O_RDWR);
    T(set(fd, F_SETLK, F_WRLCK, 0, 10));
    int p[2];
    T(pipe(p));
    pid_t child = fork();
    if (!child) {
        char c;
        close(p[1]);
        long locked = set(fd, F_SETLKW, F_WRLCK, 5, 10);
        /* The byte was written before the lock was released. */
        _exit(locked ? 1 : read(p[0], &c, 1) != 1);
    }
    close(p[0]);
    usleep(100000);
    T(write(p[1], "x", 1));
    T(set(fd, F_SETLK, F_UNLCK, 0, 10));
    say_wait(child);
    T(flock(fd, LOCK_EX));
    child = fork();
    if (!child) {
        int other = open("f", O_RDWR);
        _exit(flock(other, LOCK_EX) != 0);
    }
    usleep(100000);
    T(flock(fd, LOCK_UN));
    say_wait(child);
    T(set(fd, F_SETLK, F_WRLCK, 0, 0));
    child = fork();
    if (!child) {
        signal(SIGALRM, SIG_IGN);
        struct sigaction a = { .sa_handler = (void (*)(int))nap };
        sigaction(SIGALRM, &a, NULL);
        ualarm(100000, 100000);
        T(set(fd, F_SETLKW, F_WRLCK, 0, 0));
        _exit(0);
    }
    say_wait(child);
}

GROUP(lock, deadlock)
{
    int fd = make_open("f", "", O_RDWR);
    T(set(fd, F_SETLK, F_WRLCK, 0, 1));
    pid_t child = fork();
    if (!child) {
        if (set(fd, F_SETLK, F_WRLCK, 1, 1))
            say("child cannot lock its own");
        long r = set(fd, F_SETLKW, F_WRLCK, 0, 1);
        _exit(r ? 1 : 0);
    }
    for (int calm = 0; calm < 20; usleep(10000))
        calm = sleeps(child) ? calm + 1 : 0;
    T(set(fd, F_SETLKW, F_WRLCK, 1, 1));
    T(set(fd, F_SETLK, F_UNLCK, 0, 1));
    say_wait(child);
}

/* A thread that waits for a lock on a byte of `threads_file`, and its result. */
struct waiter {
    pthread_t thread;
    long byte, result;
    volatile pid_t tid;
};
static int threads_file;

static void *waits(void *given)
{
    struct waiter *waiter = given;
    waiter->tid = gettid();
    waiter->result = set(threads_file, F_SETLKW, F_WRLCK, waiter->byte, 1);
    return NULL;
}

static void begin_to_wait(struct waiter *waiter, long byte)
{
    *waiter = (struct waiter){ .byte = byte };
    pthread_create(&waiter->thread, NULL, waits, waiter);
    while (!waiter->tid)
        sched_yield();
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiter->tid);
    /* Asleep twice, some time apart: not in a lock of the C library. */
    for (int asleep = 0; asleep < 2;) {
        FILE *stat = fopen(path, "r");
        if (!stat || fscanf(stat, "%*d %*s %c", &state) != 1)
            break;
        fclose(stat);
        asleep = state == 'S' ? asleep + 1 : 0;
        usleep(5000);
    }
}

/* A process that has locked a byte: on command it requests byte 0, releases its own, or ends. */
static pid_t owner_of(long byte, int *to, int *from)
{
    int told[2], tells[2];
    long answer = pipe(told) + pipe(tells);
    pid_t child = fork();
    if (!child) {
        char command;
        answer = set(threads_file, F_SETLK, F_WRLCK, byte, 1);
        while (write(tells[1], &answer, sizeof answer) == sizeof answer && read(told[0], &command, 1) == 1
               && command != 'e')
            answer = command == 'a' ? set(threads_file, F_SETLKW, F_WRLCK, 0, 1) ? errno : 0
                                    : set(threads_file, F_SETLK, F_UNLCK, byte, 1);
        _exit(0);
    }
    close(told[0]);
    close(tells[1]);
    *to = told[1], *from = tells[0];
    if (read(*from, &answer, sizeof answer) != sizeof answer || answer)
        say("no lock of its own");
    return child;
}

static const char *tell(int to, int from, char command)
{
    long answer = -1;
    if (write(to, &command, 1) != 1 || read(from, &answer, sizeof answer) != sizeof answer)
        return "gone";
    return answer ? strerrorname_np(answer) : "done";
}

/* The locks belong to the process, and each of its threads may wait for another process's lock: the process
 * counts as waiting for the lock of the thread that began last. */
GROUP(lock, deadlock_of_threads)
{
    threads_file = make_open("f", "", O_RDWR);
    T(set(threads_file, F_SETLK, F_WRLCK, 0, 1));
    for (int round = 0; round < 5; round++) {
        struct waiter first, second;
        int to[2], from[2];
        pid_t owners[2];
        for (long i = 0; i < 2; i++)
            owners[i] = owner_of(1 + i, &to[i], &from[i]);
        begin_to_wait(&first, 1);
        begin_to_wait(&second, 2);
        say("the owner of what the second thread waits for: %s", tell(to[1], from[1], 'a'));
        say("unlocks: %s", tell(to[1], from[1], 'u'));
        pthread_join(second.thread, NULL);
        say("the second thread: %ld", second.result);
        say("the owner of what the first thread waits for: %s", tell(to[0], from[0], 'a'));
        say("unlocks: %s", tell(to[0], from[0], 'u'));
        pthread_join(first.thread, NULL);
        say("the first thread: %ld", first.result);
        for (int i = 0; i < 2; i++) {
            say("ends: %s", tell(to[i], from[i], 'e'));
            close(to[i]);
            close(from[i]);
            say_wait(owners[i]);
            T(set(threads_file, F_SETLK, F_UNLCK, 1 + i, 1));
        }
    }
}

/* Who holds byte `at` of a ring and waits for the next one. */
static pid_t member(int fd, int at, int next)
{
    int held[2];
    char c;
    if (pipe(held))
        return -1;
    pid_t child = fork();
    if (!child) {
        if (set(fd, F_SETLK, F_WRLCK, at, 1) || write(held[1], "x", 1) != 1)
            _exit(1);
        _exit(set(fd, F_SETLKW, F_WRLCK, next, 1) != 0);
    }
    if (read(held[0], &c, 1) != 1)
        say("no lock");
    close(held[0]), close(held[1]);
    for (int calm = 0; calm < 3; usleep(2000))
        calm = sleeps(child) ? calm + 1 : 0;
    return child;
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* Linux finds a ring of at most 12. */
GROUP(lock, deadlock_of_many)
{
    int fd = make_open("f", "", O_RDWR);
    struct sigaction act = { .sa_handler = on_alarm };
    sigaction(SIGALRM, &act, NULL);
    for (int size = 10; size <= 13; size++) {
        pid_t members[13];
        T(set(fd, F_SETLK, F_WRLCK, 0, 1));
        for (int at = size - 1; at > 0; at--)
            members[at] = member(fd, at, (at + 1) % size);
        if (size > 12)
            ualarm(50000, 50000);
        T(set(fd, F_SETLKW, F_WRLCK, 1, 1));
        ualarm(0, 0);
        T(set(fd, F_SETLK, F_UNLCK, 0, 1));
        for (int at = size - 1; at > 0; at--)
            say_wait(members[at]);
    }
}

/* A lock that a thread gets through a descriptor that another has closed meanwhile is released again, as
 * nothing else would. So are those that the process has got on the file since. */
GROUP(lock, closed_while_waiting)
{
    threads_file = make_open("f", "", O_RDWR);
    int other = open("f", O_RDWR), to, from;
    struct waiter waiter;
    pid_t owner = owner_of(1, &to, &from);
    T(set(other, F_SETLK, F_WRLCK, 5, 1));
    begin_to_wait(&waiter, 1);
    T(close(threads_file));
    T(set(other, F_SETLK, F_WRLCK, 6, 1));
    say("unlocks: %s", tell(to, from, 'u'));
    pthread_join(waiter.thread, NULL);
    say("the waiter: %ld", waiter.result);
    CHILD {
        for (int byte = 1; byte < 7; byte++)
            get(other, F_GETLK, F_WRLCK, byte, 1);
    }
    say("ends: %s", tell(to, from, 'e'));
    say_wait(owner);
    /* Its number names another open file of the same inode. */
    threads_file = open("f", O_RDWR);
    owner = owner_of(1, &to, &from);
    begin_to_wait(&waiter, 1);
    T(dup2(other, threads_file) == threads_file);
    say("unlocks: %s", tell(to, from, 'u'));
    pthread_join(waiter.thread, NULL);
    say("the waiter: %ld", waiter.result);
    CHILD {
        get(other, F_GETLK, F_WRLCK, 1, 1);
    }
    say("ends: %s", tell(to, from, 'e'));
    say_wait(owner);
}

GROUP(lock, released_at_death)
{
    int fd = make_open("f", "", O_RDWR);
    int p[2];
    char c;
    T(pipe(p));
    for (int kind = 0; kind < 3; kind++) {
        say("kind %d", kind);
        pid_t child = fork();
        if (!child) {
            int own = open("f", O_RDWR);
            if (kind == 0)
                set(own, F_SETLK, F_WRLCK, 0, 0);
            else if (kind == 1)
                flock(own, LOCK_EX);
            else
                set(own, F_OFD_SETLK, F_WRLCK, 0, 0);
            if (write(p[1], "x", 1) != 1)
                _exit(1);
            pause();
            _exit(0);
        }
        T(read(p[0], &c, 1));
        T(kind == 1 ? flock(fd, LOCK_EX | LOCK_NB) : set(fd, kind ? F_OFD_SETLK : F_SETLK, F_WRLCK, 0, 0));
        pid_t waiter = fork();
        if (!waiter) {
            int own = open("f", O_RDWR);
            _exit(kind == 1 ? flock(own, LOCK_EX) != 0 : set(own, kind ? F_OFD_SETLKW : F_SETLKW, F_WRLCK, 0, 0) != 0);
        }
        usleep(50000);
        T(kill(child, SIGKILL));
        say_wait(child);
        say_wait(waiter);
        T(kind == 1 ? flock(fd, LOCK_EX | LOCK_NB) : set(fd, kind ? F_OFD_SETLK : F_SETLK, F_WRLCK, 0, 0));
        T(kind == 1 ? flock(fd, LOCK_UN) : set(fd, kind ? F_OFD_SETLK : F_SETLK, F_UNLCK, 0, 0));
    }
}

GROUP(lock, flock)
{
    int fd = make_open("f", "", O_RDWR), other = T(open("f", O_RDONLY)), d = T(dup(fd));
    T(flock(fd, LOCK_SH));
    T(flock(other, LOCK_SH | LOCK_NB));
    T(flock(other, LOCK_EX | LOCK_NB));
    T(flock(fd, LOCK_UN));
    T(flock(other, LOCK_EX | LOCK_NB));
    T(flock(fd, LOCK_SH | LOCK_NB));
    T(flock(other, LOCK_SH));
    T(flock(fd, LOCK_SH | LOCK_NB));
    T(flock(other, LOCK_UN));
    T(flock(d, LOCK_EX));
    T(flock(fd, LOCK_EX | LOCK_NB));
    T(flock(other, LOCK_EX | LOCK_NB));
    T(close(fd));
    T(flock(other, LOCK_EX | LOCK_NB));
    CHILD {
        T(flock(d, LOCK_EX | LOCK_NB));
        T(flock(other, LOCK_EX | LOCK_NB));
        T(flock(d, LOCK_UN));
    }
    T(flock(other, LOCK_EX | LOCK_NB));
    T(set(d, F_SETLK, F_WRLCK, 0, 0));
    T(flock(99, LOCK_EX));
    T(flock(d, 0));
    T(flock(d, LOCK_SH | LOCK_EX));
    T(flock(d, 77));
    int dir = T(open(".", O_RDONLY)), path = T(open("f", O_PATH));
    T(flock(dir, LOCK_EX));
    T(flock(path, LOCK_EX));
    T(close(other));
    T(flock(d, LOCK_EX | LOCK_NB));
    CHILD {
        execl("/bin/sh", "sh", "-c", "flock -n f true; echo $?; flock -n 4 && echo inherited", NULL);
    }
}

GROUP(lock, open_file_description)
{
    int a = make_open("f", "", O_RDWR), b = T(open("f", O_RDWR)), d = T(dup(a));
    T(set(a, F_OFD_SETLK, F_WRLCK, 0, 10));
    T(set(b, F_OFD_SETLK, F_WRLCK, 5, 1));
    T(set(b, F_OFD_SETLK, F_WRLCK, 10, 1));
    T(set(d, F_OFD_SETLK, F_WRLCK, 5, 1));
    T(set(b, F_SETLK, F_WRLCK, 5, 1));
    get(b, F_OFD_GETLK, F_WRLCK, 0, 0);
    get(b, F_GETLK, F_WRLCK, 0, 0);
    T(set(a, F_SETLK, F_WRLCK, 100, 10));
    get(b, F_OFD_GETLK, F_WRLCK, 100, 0);
    T(set(b, F_OFD_SETLK, F_WRLCK, 100, 1));
    T(close(a));
    T(set(b, F_OFD_SETLK, F_WRLCK, 5, 1));
    CHILD {
        T(set(d, F_OFD_SETLK, F_UNLCK, 5, 1));
    }
    T(set(b, F_OFD_SETLK, F_WRLCK, 5, 1));
    T(close(d));
    T(set(b, F_OFD_SETLK, F_WRLCK, 0, 0));
    struct flock pid = range(F_WRLCK, 0, 1);
    pid.l_pid = 5;
    T(fcntl(b, F_OFD_SETLK, &pid));
    CHILD {
        T(set(b, F_OFD_SETLK, F_WRLCK, 0, 0));
        int own = T(open("f", O_RDWR));
        T(set(own, F_OFD_SETLK, F_RDLCK, 0, 1));
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The lines of /proc/locks about a file, without their numbers and the file's. */
static void table(const char *path)
{
    struct stat st;
    T(stat(path, &st));
    char lines[32][200], line[200], kind[16], advice[16], mode[16], from[24], to[24];
    FILE *locks = fopen("/proc/locks", "re");
    long last = 0, number, pid, inode;
    int count = 0, wrong = 0;
    unsigned major, minor;
    while (fgets(line, sizeof line, locks)) {
        int got = sscanf(line, "%ld: %15s %15s %15s %ld %x:%x:%ld %23s %23s", &number, kind, advice, mode, &pid, &major, &minor, &inode, from, to);
        wrong += got < 1 || (number != last && number != last + 1);
        last = number;
        if (got != 10 || makedev(major, minor) != st.st_dev || inode != (long)st.st_ino || count == 32)
            continue;
        const char *who = pid == -1 ? "no process" : pid == getpid() ? "this process" : "another process";
        sprintf(lines[count++], "%s %s %s, %s, %s %s", kind, advice, mode, who, from, to);
    }
    fclose(locks);
    qsort(lines, count, sizeof lines[0], by_text);
    say("%d wrong numbers", wrong);
    for (int i = 0; i < count; i++)
        say("  %s", lines[i]);
}

GROUP(lock, table)
{
    int fd = make_open("f", "0123456789", O_RDWR), other = open("f", O_RDWR), alone = make_open("g", "x", O_RDWR);
    table("f");
    set(fd, F_SETLK, F_WRLCK, 2, 4);
    set(fd, F_SETLK, F_RDLCK, 100, 0);
    set(other, F_OFD_SETLK, F_RDLCK, 8, 1);
    flock(alone, LOCK_EX);
    table("f");
    table("g");
    int go[2], ready[2];
    pipe(go), pipe(ready);
    pid_t child = fork();
    if (child == 0) {
        close(go[1]);
        set(fd, F_SETLK, F_WRLCK, 20, 1);
        flock(fd, LOCK_SH);
        table("f");
        table("g");
        write(ready[1], "x", 1);
        read(go[0], ready, 1);
        _exit(0);
    }
    read(ready[0], &go[0], 1);
    table("f");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    table("f");
    set(fd, F_SETLK, F_UNLCK, 0, 0);
    flock(alone, LOCK_UN);
    table("f");
    table("g");
}

/* A process has no locks in /proc/locks but those that it has made. */
GROUP(lock, table_of_a_process)
{
    int fd = make_open("f", "", O_RDWR);
    set(fd, F_SETLK, F_WRLCK, 0, 1);
    char line[200];
    long number, pid, last = 0;
    int own = 0, wrong = 0;
    FILE *locks = fopen("/proc/locks", "re");
    while (fgets(line, sizeof line, locks)) {
        if (sscanf(line, "%ld: %*s %*s %*s %ld", &number, &pid) == 2)
            own += pid == getpid();
        wrong += number != last && number != last + 1;
        last = number;
    }
    fclose(locks);
    say("%d of its own, %d wrong numbers", own, wrong);
}

GROUP(lock, kept_over_exec)
{
    int fd = make_open("f", "", O_RDWR);
    pid_t child = fork();
    if (!child) {
        T(set(fd, F_SETLK, F_WRLCK, 0, 0));
        execl("/bin/sh", "sh", "-c", "echo locked >go; while [ ! -e stop ]; do sleep 0.02; done", NULL);
    }
    for (int i = 0; i < 2500 && access("go", F_OK); i++)
        usleep(10000);
    T(set(fd, F_SETLK, F_RDLCK, 0, 1));
    make("stop", "");
    say_wait(child);
    T(set(fd, F_SETLK, F_WRLCK, 0, 1));
}

/* A directory ends where its size says. */
GROUP(lock, end_of_a_directory)
{
    make("one", ""), make("two", "");
    int fd = open(".", O_RDONLY);
    long starts[] = { 0, -2, -1000, LONG_MAX, LONG_MAX - 10, LONG_MIN };
    int commands[] = { F_SETLK, F_OFD_SETLK, F_GETLK, F_OFD_GETLK };
    for (unsigned i = 0; i < COUNT(starts); i++)
        for (unsigned n = 0; n < COUNT(commands); n++)
            for (int type = F_RDLCK; type <= F_UNLCK; type += 2) {
                struct flock lock = { .l_type = type, .l_whence = SEEK_END, .l_start = starts[i], .l_len = 1 };
                TN("fcntl", fcntl(fd, commands[n], &lock));
            }
}

/* Closing a descriptor of O_PATH drops no locks, as it could not have made them. */
GROUP(lock, closed_path_descriptors)
{
    int fd = make_open("f", "0123456789", O_RDWR), other = open("f", O_RDWR);
    T(lockf(fd, F_TLOCK, 0));
    int path = open("f", O_PATH);
    struct flock held = { .l_type = F_WRLCK };
    T(fcntl(other, F_OFD_SETLK, &held));
    T(close(path));
    T(fcntl(other, F_OFD_SETLK, &held));
    path = open("f", O_PATH);
    int onto = dup(path);
    T(dup2(0, onto));
    T(fcntl(other, F_OFD_SETLK, &held));
    T(close_range(path, path, 0));
    T(fcntl(other, F_OFD_SETLK, &held));
    T(close(open("f", O_RDONLY)));
    T(fcntl(other, F_OFD_SETLK, &held));
}

/* Ranges near the largest offset, from each place. */
static void holder(int fd, int type, pid_t known)
{
    struct flock ask = { .l_type = F_WRLCK, .l_len = 10 };
    T(fcntl(fd, type, &ask));
    say("  type %d held by %d", ask.l_type, ask.l_pid == known ? 1000000 : ask.l_pid);
}

/* Locks of processes in other pid namespaces. */
GROUP(lock, pid_namespaces)
{
    if (geteuid())
        return;
    int fd = make_open("f", "text", O_RDWR), other = T(open("f", O_RDWR));
    struct flock first = { .l_type = F_WRLCK, .l_len = 1 }, second = { .l_type = F_WRLCK, .l_start = 1, .l_len = 1 };
    pid_t outside = getpid();
    T(fcntl(fd, F_SETLK, &first));
    CHILD {
        T(unshare(CLONE_NEWPID));
        CHILD {
            holder(fd, F_GETLK, outside);
            holder(fd, F_OFD_GETLK, outside);
        }
    }
    first.l_type = F_UNLCK;
    T(fcntl(fd, F_SETLK, &first));
    int ready[2], done[2];
    T(pipe(ready)), T(pipe(done));
    pid_t between = fork();
    if (between == 0) {
        unshare(CLONE_NEWPID);
        pid_t inside = fork();
        if (inside == 0) {
            fcntl(fd, F_SETLK, &second);
            CHILD holder(fd, F_GETLK, 0);
            write(ready[1], "", 1);
            read(done[0], ready, 1);
            _exit(0);
        }
        read(ready[0], done, 1);
        /* Here it has another number. */
        holder(fd, F_GETLK, inside);
        holder(other, F_OFD_GETLK, inside);
        write(done[1], "", 1);
        waitpid(inside, NULL, 0);
        _exit(0);
    }
    say_wait(between);
}

GROUP(lock, ranges_at_the_end)
{
    static const long sizes[] = { 0, 10, INT64_MAX - 1, INT64_MAX }, numbers[] = { 0, 1, -1, 10, INT64_MAX, INT64_MAX - 1, INT64_MIN, 1L << 62 };
    static const int commands[] = { F_SETLK, F_OFD_SETLK, F_GETLK, F_OFD_GETLK };
    int fd = make_open("f", "", O_RDWR);
    for (unsigned s = 0; s < COUNT(sizes); s++) {
        T(ftruncate(fd, sizes[s]));
        T(lseek(fd, sizes[s], SEEK_SET) == sizes[s]);
        for (int whence = 0; whence < 4; whence++)
            for (unsigned a = 0; a < COUNT(numbers); a++)
                for (unsigned b = 0; b < COUNT(numbers); b++)
                    for (unsigned c = 0; c < COUNT(commands); c++) {
                        struct flock lock = { F_WRLCK, whence, numbers[a], numbers[b], c & 1 && a == 3 };
                        errno = 0;
                        int done = fcntl(fd, commands[c], &lock);
                        say("%d %ld %ld, %u: %s %d %ld %ld", whence, numbers[a], numbers[b], c, done ? strerrorname_np(errno) : "done", lock.l_type,
                            (long)lock.l_start, (long)lock.l_len);
                    }
    }
    T(ftruncate(fd, 0));
}
