/* What threads share and what they do not: descriptors that other threads replace and close, concurrent
 * forks, children that share a table, credentials of a thread, descriptors in messages that nobody receives.
 * */
#include "conform.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

static volatile int stop, target;
static volatile long calls;

/* Uses `target` until told to stop; returns the number of failed calls. */
static void *user(void *first)
{
    long bad = 0;
    char b;
    while (!stop) {
        bad += write(target, "x", 1) != 1;
        bad += pread(target, &b, 1, 0) < 0;
        bad += lseek(target, 0, SEEK_CUR) < 0;
        calls++;
    }
    return (void *)bad;
}

static void with_user(const char *text, void (*work)(int), int argument)
{
    pthread_t thread;
    void *bad;
    stop = calls = 0;
    pthread_create(&thread, NULL, user, NULL);
    for (int i = 0; i < 20000 || calls < 1000; i++)
        work(argument);
    stop = 1;
    pthread_join(thread, &bad);
    say("%s: %ld failed", text, (long)bad);
}

static int one, other, host;

static void replace(int flags)
{
    if (flags < 0) {
        dup2(one, target);
        dup2(other, target);
    } else {
        dup3(one, target, flags);
        dup3(other, target, flags);
    }
}

GROUP(shared, dup2_over_a_descriptor_in_use)
{
    one = make_open("a", "", O_RDWR | O_APPEND), other = make_open("b", "", O_RDWR | O_APPEND);
    target = T(dup(one));
    with_user("dup2", replace, -1);
    with_user("dup3", replace, O_CLOEXEC);
    T(dup2(one, 100) == (target = 100));
    with_user("dup2, a high number", replace, -1);
    /* The amount written varies. */
    T(ftruncate(one, 0));
    T(ftruncate(other, 0));
}

GROUP(shared, dup2_drops_record_locks)
{
    int fd = make_open("a", "text", O_RDWR), again = T(open("a", O_RDWR));
    one = make_open("b", "", O_RDWR);
    struct flock lock = { .l_type = F_WRLCK };
    T(fcntl(fd, F_SETLK, &lock));
    T(dup2(one, again));
    CHILD {
        struct flock asked = { .l_type = F_WRLCK };
        T(fcntl(fd, F_GETLK, &asked));
        say("%s", asked.l_type == F_UNLCK ? "gone" : "held");
    }
}

static pthread_barrier_t both;
static int number;

/* Closes the same number as the other thread at the same time. */
static void *closer(void *closed)
{
    for (int i = 0; i < 5000; i++) {
        pthread_barrier_wait(&both);
        *(long *)closed += close(number) == 0;
        pthread_barrier_wait(&both);
    }
    return NULL;
}

static void close_at_once(int min)
{
    pthread_t threads[2];
    long closed[2] = { 0 };
    int bad = 0, keep = make_open("keep", "kept", O_RDONLY);
    pthread_barrier_init(&both, NULL, 3);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, closer, &closed[i]);
    for (int i = 0; i < 5000; i++) {
        char b[5] = { 0 };
        number = fcntl(keep, F_DUPFD, min);
        pthread_barrier_wait(&both);
        pthread_barrier_wait(&both);
        bad += closed[0] + closed[1] != i + 1 || pread(keep, b, 4, 0) != 4 || pread(number, b, 4, 0) != -1;
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    say("from %d: %ld closed, %d bad", min, closed[0] + closed[1], bad);
    T(fcntl(host, F_DUPFD, min));
    T(close(keep));
}

GROUP(shared, two_threads_close_one_number)
{
    host = T(open("/dev/null", O_RDWR));
    close_at_once(0);
    close_at_once(100);
}

/* Opens and closes high numbers, which are really closed each time. */
static void *opener(void *bad)
{
    while (!stop) {
        int fd = fcntl(one, F_DUPFD, 100), low = open("a", O_RDONLY);
        *(long *)bad += fd < 100 || low < 0 || close(fd) || close(low);
        calls++;
    }
    return NULL;
}

GROUP(shared, fork_beside_a_thread_that_opens)
{
    one = make_open("a", "text", O_RDWR), host = T(open("/dev/null", O_RDWR));
    struct stat null;
    T(fstat(host, &null));
    pthread_t thread;
    long failed = 0, wrong = 0;
    stop = calls = 0;
    pthread_create(&thread, NULL, opener, &failed);
    for (int i = 0; i < 400 || calls < 1000; i++) {
        pid_t child = fork();
        if (!child) {
            /* The kernel's descriptors must match what the numbers name. */
            for (int k = 0; k < 8; k++) {
                struct stat st;
                int fd = fcntl(host, F_DUPFD, k < 4 ? 0 : 100);
                if (fstat(fd, &st) || st.st_rdev != null.st_rdev || write(fd, "x", 1) != 1)
                    _exit(1);
            }
            int fd = fcntl(one, F_DUPFD, 100);
            _exit(pwrite(fd, "text", 4, 0) != 4 || close(fd) || fcntl(fd, F_GETFD) != -1);
        }
        int status;
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    stop = 1;
    pthread_join(thread, NULL);
    say("failed %ld, wrong %ld", failed, wrong);
    contents("a");
}

/* Opens and closes one number at a time; the numbers below `limit` suffice for all threads. */
static int limit;

static void *taker(void *bad)
{
    while (!stop) {
        int fd = open("a", O_RDONLY);
        *(long *)bad += fd < 0 || fd >= limit || fcntl(fd, F_SETFD, FD_CLOEXEC) || close(fd);
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

GROUP(shared, threads_open_the_lowest_numbers)
{
    pthread_t threads[3];
    long failed[3] = { 0 };
    make("a", "text");
    int lowest = open("a", O_RDONLY);
    close(lowest);
    limit = lowest + 3;
    stop = calls = 0;
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, taker, &failed[i]);
    while (calls < 200000)
        sched_yield();
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    say("failed %ld", failed[0] + failed[1] + failed[2]);
    say("the lowest is free again: %d", open("a", O_RDONLY) == lowest);
}

static pthread_barrier_t begin_together;

static void *first_opener(void *unused)
{
    pthread_barrier_wait(&begin_together);
    int fd = open("a", O_RDONLY);
    return (void *)(long)(fd < 0 || close(fd));
}

/* The first files that a process opens, in several threads at once, leave nothing open. */
GROUP(shared, threads_open_their_first_files)
{
    int left = 0;
    CHILD {
        make("a", "text");
    }
    for (int round = 0; round < 200; round++) {
        int status;
        pid_t child = fork();
        if (!child) {
            pthread_t threads[4];
            pthread_barrier_init(&begin_together, NULL, 4);
            for (int i = 0; i < 4; i++)
                pthread_create(&threads[i], NULL, first_opener, NULL);
            int bad = 0;
            for (int i = 0; i < 4; i++) {
                void *failed;
                pthread_join(threads[i], &failed);
                bad += failed != NULL;
            }
            for (int fd = 3; fd < 1024; fd++)
                bad += fcntl(fd, F_GETFD) >= 0;
            _exit(bad);
        }
        waitpid(child, &status, 0);
        left += WEXITSTATUS(status);
    }
    say("left %d", left);
}

/* Moves its file to another number and back: some number names it at each moment. */
static void *mover(void *bad)
{
    while (!stop) {
        int to = dup(one);
        *(long *)bad += to < 0 || close(one);
        one = to;
        calls++;
    }
    return NULL;
}

GROUP(shared, fork_beside_a_thread_that_moves_a_descriptor)
{
    struct stat meant;
    one = make_open("a", "text", O_RDWR);
    T(fstat(one, &meant));
    pthread_t thread;
    long failed = 0, wrong = 0;
    stop = calls = 0;
    pthread_create(&thread, NULL, mover, &failed);
    for (int i = 0; i < 600 || calls < 1000; i++) {
        pid_t child = fork();
        if (!child) {
            struct stat st;
            for (int fd = 0; fd < 20; fd++)
                if (!fstat(fd, &st) && st.st_ino == meant.st_ino && st.st_dev == meant.st_dev)
                    _exit(0);
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    stop = 1;
    pthread_join(thread, NULL);
    say("failed %ld, wrong %ld", failed, wrong);
}

static int runs_true(void *unused)
{
    execl("/bin/true", "true", NULL);
    return 99;
}

/* By bare system calls: the library's open() and write() look at the thread's storage. */
static int makes_a_file(void *unused)
{
    int fd = syscall(SYS_openat, AT_FDCWD, "made", O_RDWR | O_CREAT, 0600);
    return fd < 0 || syscall(SYS_write, fd, "made", 4) != 4;
}

/* Chromium makes such a child to confine itself: its storage is zeros, and no thread's. */
GROUP(shared, a_child_with_storage_of_its_own)
{
    static char stack[256 << 10], storage[64 << 10] __attribute__((aligned(64)));
    for (int fs = 0; fs <= CLONE_FS; fs += CLONE_FS) {
        int flags = CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD | fs;
        say_wait(clone(makes_a_file, stack + sizeof stack, flags, NULL, NULL, storage + sizeof storage / 2, NULL));
        contents("made");
        T(unlink("made"));
        say_wait(clone(runs_true, stack + sizeof stack, flags, NULL, NULL, storage + sizeof storage / 2, NULL));
        T(access("made", F_OK));
    }
}

GROUP(shared, children_that_share_the_table)
{
    static char stack[256 << 10];
    make("f", "text");
    for (int i = 0; i < 3; i++) {
        pid_t child = clone(runs_true, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
        say_wait(child);
        child = clone(makes_a_file, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
        say_wait(child);
        child = clone(runs_true, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, NULL);
        say_wait(child);
        CHILD {
            contents("made");
            execl("/bin/cat", "cat", "f", NULL);
        }
    }
    uint64_t arguments[11] = { [0] = CLONE_FILES, [4] = SIGCHLD };
    pid_t child = syscall(SYS_clone3, arguments, sizeof arguments);
    if (!child) {
        execl("/bin/cat", "cat", "f", NULL);
        _exit(1);
    }
    say_wait(child);
    say("%d", arguments[0] == CLONE_FILES);
    contents("f");
}

/* The kernel's table becomes the child's alone when its parent executes another program, and goes with the
 * child. What the parent has locked stays so, and what it has open. */
GROUP(shared, exec_beside_a_child_that_shares_the_table)
{
    static const char script[] = "exec 9<f; flock -n 9 && echo locked; echo >&8; cat <&7; flock -n f echo got 9>&- || echo refused; cat <&9; cat f";
    make("f", "text\n");
    CHILD {
        struct stat st;
        int go[2], ended[2];
        T(pipe2(go, O_CLOEXEC));
        T(pipe2(ended, O_CLOEXEC));
        stat("f", &st);
        dup2(ended[0], 7);
        dup2(go[1], 8);
        if (!syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0)) {
            read(go[0], &st, 1);
            _exit(0);
        }
        execl("/bin/sh", "sh", "-c", script, NULL);
    }
}

GROUP(shared, a_thread_that_is_not_made)
{
    int fd = make_open("f", "0123456789", O_RDWR);
    for (int i = 0; i < 3; i++) {
        T(syscall(SYS_clone, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_FS | CLONE_NEWUSER, 0, 0, 0, 0));
        T(syscall(SYS_clone, CLONE_VM | CLONE_THREAD, 0, 0, 0, 0));
    }
    T(lseek(fd, 3, SEEK_SET));
    pthread_t thread;
    stop = 1, target = fd;
    for (int i = 0; i < 50; i++) {
        T(pthread_create(&thread, NULL, user, NULL));
        T(pthread_join(thread, NULL));
    }
    CHILD {
        T(lseek(fd, 0, SEEK_CUR));
    }
}

static int opens_null(void *failed)
{
    for (int i = 0; i < 2000; i++) {
        int fd = syscall(SYS_open, "/dev/null", O_RDONLY);
        *(int *)failed += fd < 0 || syscall(SYS_close, fd);
    }
    return 0;
}

static int opens_null_and_ends(void *failed)
{
    opens_null(failed);
    syscall(SYS_exit, 0);
    return 0;
}

/* As LTP's clone08: the thread uses its creator's thread-local storage. */
GROUP(shared, a_thread_without_storage_of_its_own)
{
    static char stack[64 << 10];
    static volatile int ends;
    static int failed[2];
    int flags = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_FILES | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID;
    make("f", "text");
    for (int i = 0; i < 20; i++) {
        ends = -1;
        say("%d", clone(opens_null_and_ends, stack + sizeof stack, flags, &failed[0], NULL, NULL, &ends) > 0);
        while (ends)
            opens_null(&failed[1]);
        contents("f");
    }
    say("failed: %d %d", failed[0], failed[1]);
    CHILD {
        contents("f");
    }
}

static int send_one(int socket, int fd)
{
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec v = { &byte, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(socket, &m, MSG_NOSIGNAL);
}

static int receive_one(int socket, int flags)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    int fd = -2;
    struct iovec v = { &byte, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    if (recvmsg(socket, &m, flags) < 0)
        return -1;
    if (CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

#define LARGE (64L << 20)

static long in_use(void)
{
    struct statfs s;
    return statfs(".", &s) ? -1 : (long)(s.f_blocks - s.f_bfree) * s.f_bsize;
}

static int large_file(void)
{
    int fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, LARGE) || pwrite(fd, "text", 4, 0) != 4)
        say("no large file: %s", strerrorname_np(errno));
    return fd;
}

GROUP(shared, messages_that_nobody_receives)
{
    long before = in_use();
    int s[2], fd = large_file();
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    for (int i = 0; i < 3; i++)
        T(send_one(s[0], fd));
    T(unlink("large"));
    T(close(fd));
    say("kept while it is on its way: %d", in_use() - before >= LARGE / 2);
    T(close(s[0]));
    T(close(s[1]));
    say("given back with the sockets: %d", in_use() - before < LARGE / 2);

    fd = large_file();
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    pid_t sender = fork();
    if (!sender) {
        send_one(s[0], fd);
        pause();
    }
    char c;
    T(recv(s[1], &c, 1, MSG_PEEK));
    T(unlink("large"));
    T(close(fd));
    T(close(s[0]));
    T(kill(sender, SIGKILL));
    say_wait(sender);
    say("kept after the sender: %d", in_use() - before >= LARGE / 2);
    int got = T(receive_one(s[1], 0));
    char b[5] = { 0 };
    T(pread(got, b, 4, 0));
    say("%s", b);
    T(send_one(s[1], got));
    T(close(got));
    T(close(s[1]));
    say("given back after all: %d", in_use() - before < LARGE / 2);

    fd = large_file();
    pid_t both_ends = fork();
    if (!both_ends) {
        int own[2];
        socketpair(AF_UNIX, SOCK_DGRAM, 0, own);
        send_one(own[0], fd);
        unlink("large");
        close(fd);
        kill(getpid(), SIGKILL);
    }
    T(close(fd));
    say_wait(both_ends);
    say("given back with sender and receiver: %d", in_use() - before < LARGE / 2);
}

GROUP(shared, messages_that_are_peeked_at)
{
    int s[2], fd = make_open("f", "0123456789", O_RDWR);
    char b[4] = { 0 };
    T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    T(send_one(s[0], fd));
    T(close(fd));
    T(unlink("f"));
    int peeked = T(receive_one(s[1], MSG_PEEK)), again = T(receive_one(s[1], MSG_PEEK));
    T(read(peeked, b, 3));
    T(close(peeked));
    int real = T(receive_one(s[1], 0));
    T(read(real, b, 3));
    say("%s", b);
    T(close(real));
    T(read(again, b, 3));
    say("%s", b);
    T(fcntl(again, F_GETFL));
}

static void *has_another_fsuid(void *unused)
{
    setfsuid(12345);
    setfsgid(12346);
    pthread_barrier_wait(&both);
    T(open("own", O_RDWR | O_CREAT, 0600));
    attributes("own");
    T(open("f", O_RDWR));
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    CHILD {
        T(open("f", O_RDWR));
        T(open("childs", O_RDWR | O_CREAT, 0600));
    }
    attributes("childs");
    return NULL;
}

GROUP(shared, ids_of_a_thread)
{
    if (geteuid())
        return;
    make_open("f", "text", O_RDWR);
    T(chmod("f", 0600));
    T(chmod(".", 0777));
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, has_another_fsuid, NULL);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    T(open("f", O_RDWR));
    T(open("g", O_RDWR | O_CREAT, 0600));
    attributes("g");
    T(syscall(SYS_setresuid, -1, 65534, -1));
    T(open("f", O_RDWR));
    T(syscall(SYS_setresuid, -1, 0, -1));
    T(open("f", O_RDWR));
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    CHILD {
        T(open("f", O_RDWR));
        execl("/bin/cat", "cat", "f", NULL);
    }
}

static void *has_other_groups(void *unused)
{
    gid_t groups[] = { 1, 4321 };
    T(syscall(SYS_setgroups, 2, groups));
    T(syscall(SYS_setfsuid, 65534));
    T(open("group", O_RDONLY));
    T(open("listed", O_RDONLY));
    T(open("all", O_RDONLY));
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    return NULL;
}

/* Supplementary groups are the thread's: another thread has its own. */
GROUP(shared, groups_of_a_thread)
{
    if (geteuid() != 0)
        return;
    struct { uint32_t version; struct { uint16_t tag, perm; uint32_t id; } entries[5]; } acl = { 2, {
        { 1, 6, -1 }, { 4, 0, -1 }, { 8, 4, 4321 }, { 16, 4, -1 }, { 32, 0, -1 } } };
    make("group", "a group's");
    make("listed", "a group's by its ACL");
    make("all", "everybody's but a group's");
    T(chmod(".", 0777));
    T(chmod("group", 0640));
    T(chown("group", 0, 4321));
    T(setxattr("listed", "system.posix_acl_access", &acl, sizeof acl, 0));
    T(chmod("all", 0604));
    T(chown("all", 0, 4321));
    T(syscall(SYS_setgroups, 0, NULL));
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, has_other_groups, NULL);
    pthread_barrier_wait(&both);
    CHILD {
        T(syscall(SYS_setresuid, 65534, 65534, 65534));
        T(open("group", O_RDONLY));
        T(open("listed", O_RDONLY));
        T(open("all", O_RDONLY));
    }
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
}

static int looks_at_a_pipe(void *end)
{
    struct stat st;
    char byte;
    long got = syscall(SYS_fstat, (long)end, &st) | syscall(SYS_read, (long)end, &byte, 1);
    syscall(SYS_exit, got != 1 || byte != 'x');
    return 99;
}

/* A process with the memory and the thread-local storage of its maker, which goes on meanwhile. */
GROUP(shared, a_process_with_the_same_storage)
{
    static char stack[64 << 10];
    struct stat st;
    int fd = make_open("f", "0123456789", O_RDWR), ends[2];
    T(pipe(ends));
    for (int i = 0; i < 3; i++) {
        pid_t child = clone(looks_at_a_pipe, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)(long)ends[0]);
        long seen = syscall(SYS_fstat, ends[1], &st) | syscall(SYS_newfstatat, ends[1], "", &st, AT_EMPTY_PATH);
        long sent = syscall(SYS_write, ends[1], "x", 1);
        say_wait(child);
        say("%ld %ld", seen, sent);
        T(lseek(fd, 3, SEEK_SET));
        contents("f");
    }
    close(ends[0]), close(ends[1]);
}

/* The number, in a child, of a file that it opens once the parent says so. */
static pid_t child_with_files(int told, int go)
{
    pid_t child = fork();
    if (child)
        return child;
    int numbers[6] = { open("f", O_RDWR), open("d", O_RDONLY), open("f", O_PATH), open(".", O_TMPFILE | O_RDWR, 0600),
        open("/proc/self/stat", O_RDONLY), dup(open("f", O_RDONLY)) };
    char byte;
    close(numbers[5]);
    lseek(numbers[0], 3, SEEK_SET);
    pwrite(numbers[3], "no name", 7, 0);
    write(told, numbers, sizeof numbers);
    /* Each byte closes one of them. */
    for (int i = 0; i < 4 && read(go, &byte, 1) == 1; i++) {
        close(numbers[i]);
        write(told, "", 1);
    }
    read(go, &byte, 1);
    _exit(0);
}

GROUP(shared, descriptors_fetched_from_another_process)
{
    make("f", "0123456789");
    mkdir("d", 0755);
    int told[2], go[2], numbers[6], mine[6];
    char byte, text[16] = "";
    if (pipe2(told, O_CLOEXEC) || pipe2(go, O_CLOEXEC))
        return;
    pid_t child = child_with_files(told[1], go[0]);
    if (read(told[0], numbers, sizeof numbers) != sizeof numbers)
        return;
    int process = syscall(SYS_pidfd_open, child, 0);
    T(syscall(SYS_pidfd_getfd, process, numbers[0], 1));
    T(syscall(SYS_pidfd_getfd, process, 900, 0));
    for (int i = 0; i < 6; i++)
        TN("pidfd_getfd", (mine[i] = syscall(SYS_pidfd_getfd, process, numbers[i], 0)) >= 0);
    for (int i = 0; i < 5; i++) {
        struct stat st;
        T(fstat(mine[i], &st));
        say("%o", st.st_mode & S_IFMT);
        T(fcntl(mine[i], F_GETFD));
        T(fcntl(mine[i], F_GETFL) & (O_ACCMODE | O_PATH));
    }
    T(lseek(mine[0], 0, SEEK_CUR));
    T(read(mine[0], text, 2));
    T(write(mine[0], "XY", 2));
    T(faccessat(mine[1], "../f", F_OK, 0));
    T(read(mine[2], text, 1));
    T(pread(mine[3], text, 15, 0));
    say("%s", text);
    T(flock(mine[0], 2));
    T(unlink("f"));
    for (int i = 0; i < 4; i++)
        if (write(go[1], "", 1) != 1 || read(told[0], &byte, 1) != 1)
            return;
    T(syscall(SYS_pidfd_getfd, process, numbers[0], 0));
    kill(child, SIGKILL);
    say_wait(child);
    make("other", "another file");
    T(pread(mine[0], text, 10, 0));
    say("%.10s at %ld", text, (long)lseek(mine[0], 0, SEEK_CUR));
    T(pread(mine[3], text, 15, 0));
    int copy = dup(mine[0]);
    T(close(mine[0]));
    T(pwrite(copy, "Z", 1, 0));
    CHILD {
        T(pread(copy, text, 10, 0));
        say("%.10s", text);
    }
    /* The caller's own. */
    int own = syscall(SYS_pidfd_open, getpid(), 0), fd = open("other", O_RDONLY), again = syscall(SYS_pidfd_getfd, own, fd, 0);
    T(read(fd, text, 7));
    T(close(fd));
    T(read(again, text, 7));
    say("%.7s", text);
    T(syscall(SYS_pidfd_getfd, own, fd, 0));
}

/* A file is fetched again and again while its process duplicates and closes it. */
GROUP(shared, descriptors_fetched_as_they_close)
{
    make("f", "mine");
    make("g", "none");
    int told[2], number, wrong = 0, fetched = 0;
    if (pipe(told))
        return;
    pid_t child = fork();
    if (!child) {
        int fd = open("f", O_RDONLY);
        write(told[1], &fd, sizeof fd);
        for (;;) {
            int copy = dup(fd);
            close(fd);
            close(copy);
            close(open("g", O_RDONLY));
            if (open("f", O_RDONLY) != fd)
                _exit(1);
        }
    }
    read(told[0], &number, sizeof number);
    int process = syscall(SYS_pidfd_open, child, 0);
    for (int i = 0; i < 5000 || fetched < 20; i++) {
        char text[5] = "";
        int fd = syscall(SYS_pidfd_getfd, process, number, 0);
        if (fd < 0 && errno == ESRCH)
            break;
        if (fd < 0) {
            sched_yield();
            continue;
        }
        fetched++;
        int other = open("g", O_RDONLY);
        wrong += pread(fd, text, 4, 0) != 4 || strcmp(text, "mine") && strcmp(text, "none") || lseek(fd, 0, SEEK_CUR);
        wrong += pread(other, text, 4, 0) != 4 || strcmp(text, "none");
        close(other);
        close(fd);
    }
    kill(child, SIGKILL);
    say_wait(child);
    say("%d wrong, fetched %d", wrong, fetched >= 20);
}
