/* Descriptors, locks, leases, and calls that the kernel answers. */
#include "differ.h"
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* A number above those that the table of descriptors has room for. */
CASE(select_above)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(100, &set);
    struct timeval now = { 0, 0 };
    close_range(3, ~0U, 0);
    /* A child's table is as large as its parent's descriptors need. */
    IN_CHILD {
        int dir = open(".", O_RDONLY);
        say("open", dir);
        say("select", select(101, &set, NULL, NULL, &now));
    }
    return 0;
}

/* Numbers that the program may not have. */
CASE(taken_numbers)
{
    int taken = 0;
    close_range(3, ~0U, 0);
    make("f", 0644);
    for (int number = 200; number < 256; number++)
        taken += dup2(1, number) != number || close(number) != 0;
    tell("%d taken", taken);
    return 0;
}

/* How many descriptors the link count of /proc/self/fd's directory tells, and how many there are. */
CASE(counted_descriptors)
{
    struct stat st;
    int there = 0;
    close_range(3, ~0U, 0);
    int fd = open(".", O_RDONLY);
    for (int number = 0; number < 1024; number++)
        there += fcntl(number, F_GETFD) >= 0;
    if (fd < 0 || stat("/proc/self/fd", &st))
        return 1;
    tell("%s", st.st_size == there ? "as many" : st.st_size > there ? "more" : "fewer");
    return 0;
}

/* The permission bits of a descriptor of the link /proc/self/fd/N itself. */
CASE(link_itself)
{
    char name[60];
    struct stat st, by_name;
    snprintf(name, sizeof name, "/proc/self/fd/%d", open("f", O_CREAT | O_RDWR, 0644));
    int link = open(name, O_PATH | O_NOFOLLOW);
    if (fstat(link, &st) || lstat(name, &by_name))
        return 1;
    tell("by name %o, by descriptor %o", by_name.st_mode & 0777, st.st_mode & 0777);
    return 0;
}

/* What /proc/self/fdinfo tells of a lease, and to preadv(2). */
CASE(fdinfo)
{
    char name[60], text[1000] = "";
    int fd = open("f", O_CREAT | O_RDONLY, 0644);
    say("lease", fcntl(fd, F_SETLEASE, F_RDLCK));
    lseek(fd, 5, SEEK_SET);
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    int info = open(name, O_RDONLY);
    read(info, text, sizeof text - 1);
    tell("read: %s, %s", strstr(text, "pos:\t5\n") ? "position" : "none", strstr(text, "LEASE") ? "lease" : "no lease");
    memset(text, 0, sizeof text);
    preadv(info, &(struct iovec){ text, sizeof text - 1 }, 1, 0);
    tell("preadv: %s", strstr(text, "pos:\t5\n") ? "position" : "none");
    return 0;
}

/* Waits until a process sleeps; false if there is none. */
static bool falls_asleep(pid_t process)
{
    char name[40], state = 0;
    snprintf(name, sizeof name, "/proc/%d/stat", process);
    while (state != 'S') {
        FILE *status = fopen(name, "r");
        if (!status || fscanf(status, "%*d %*s %c", &state) != 1)
            return false;
        fclose(status);
    }
    return true;
}

/* What /proc/locks tells of a lock and of who waits for it. */
CASE(waits_for_a_lock)
{
    int fd = open("f", O_CREAT | O_RDWR, 0644), other = open("f", O_RDWR);
    flock(fd, LOCK_EX);
    pid_t child = fork();
    if (child == 0)
        _exit(flock(other, LOCK_EX));
    if (!falls_asleep(child))
        return 1;
    char line[200], held[40], waiter[40];
    snprintf(held, sizeof held, " WRITE %d ", getpid());
    snprintf(waiter, sizeof waiter, " WRITE %d ", child);
    bool holds = false, waits = false;
    FILE *locks = fopen("/proc/locks", "r");
    while (fgets(line, sizeof line, locks)) {
        holds |= strstr(line, "FLOCK") && strstr(line, held);
        waits |= strstr(line, "-> FLOCK") && strstr(line, waiter);
    }
    tell("the holder is %s, the waiter %s", holds ? "shown" : "not", waits ? "shown" : "not");
    kill(child, SIGKILL);
    return 0;
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* Two that wait for each other, one of them for a lock of an open file description. */
CASE(ring_through_an_open_file)
{
    struct flock first = { .l_type = F_WRLCK, .l_len = 1 }, second = { .l_type = F_WRLCK, .l_start = 1, .l_len = 1 };
    int fd = open("f", O_CREAT | O_RDWR, 0644), ends[2];
    char c;
    if (pipe(ends) || fcntl(fd, F_SETLK, &first))
        return 1;
    pid_t child = fork();
    if (child == 0) {
        int other = open("f", O_RDWR);
        if (fcntl(other, F_OFD_SETLK, &second) || write(ends[1], "x", 1) != 1)
            _exit(1);
        _exit(fcntl(other, F_OFD_SETLKW, &first));
    }
    if (read(ends[0], &c, 1) != 1 || !falls_asleep(child))
        return 1;
    sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_alarm }, NULL);
    ualarm(100000, 100000);
    say("lock", fcntl(fd, F_SETLKW, &second));
    ualarm(0, 0);
    kill(child, SIGKILL);
    return 0;
}

/* Rulesets of landlock(7): one that only a duplicate leads to, and nine at a time. */
CASE(rulesets)
{
    struct { uint64_t files; } handled = { 1 << 2 };
    struct __attribute__((packed)) { uint64_t allowed; int directory; } rule = { 1 << 2, open(".", O_PATH) };
    int first = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0), other = dup(first);
    close(first);
    say("add", syscall(SYS_landlock_add_rule, other, 1, &rule, 0));
    int made = 0;
    for (int i = 0; i < 8; i++)
        made = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    say("eighth", made);
    say("ninth", syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0));
    return 0;
}

/* Leases of files without a name, or with another one. */
CASE(leases_without_names)
{
    int fd = open("a", O_CREAT | O_RDONLY, 0644);
    if (rename("a", "b"))
        return 1;
    say("renamed", fcntl(fd, F_SETLEASE, F_RDLCK));
    fcntl(fd, F_SETLEASE, F_UNLCK);
    if (unlink("b"))
        return 1;
    say("unlinked", fcntl(fd, F_SETLEASE, F_RDLCK));
    return 0;
}

/* A write lease on a file that is mapped, and open by this descriptor only. */
CASE(lease_of_mapped)
{
    make("f", 0644);
    int fd = open("f", O_RDWR);
    if (ftruncate(fd, 4096) || mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED || close(fd))
        return 1;
    fd = open("f", O_RDWR);
    say("lease", fcntl(fd, F_SETLEASE, F_WRLCK));
    return 0;
}

/* The descriptor in a signal of F_NOTIFY that is fetched. */
CASE(signal_fetched)
{
    sigset_t set;
    siginfo_t info;
    struct timespec second = { 1, 0 };
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fcntl(dir, F_SETSIG, SIGRTMIN);
    say("notify", fcntl(dir, F_NOTIFY, DN_CREATE));
    make("f", 0644);
    if (sigtimedwait(&set, &info, &second) != SIGRTMIN)
        return 1;
    tell("%s", info.si_fd == dir ? "the descriptor" : "another");
    return 0;
}

/* A child that shares the table of descriptors, and no memory, opens a file. */
CASE(table_of_a_child)
{
    int kept = open("f", O_CREAT | O_RDWR, 0644), status;
    pid_t child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (!child)
        _exit(open("f", O_RDONLY) == kept + 1 ? 0 : 1);
    if (waitpid(child, &status, 0) != child || status)
        return 1;
    say("fcntl", fcntl(kept + 1, F_GETFD));
    return 0;
}

static void *apart(void *directory)
{
    char link[4200] = "";
    if (unshare(CLONE_FS) || chdir("d"))
        return directory;
    readlink("/proc/thread-self/cwd", link, sizeof link - 1);
    tell("%s", !strcmp(link, directory) ? "the process's" : "the thread's");
    return NULL;
}

/* /proc/thread-self/cwd of a thread with a working directory of its own. */
/* A thread that takes a copy of the table for itself. */
static void *with_a_table(void *fd)
{
    say("unshare", unshare(CLONE_FILES));
    close(*(int *)fd);
    return NULL;
}

CASE(table_of_a_thread)
{
    pthread_t thread;
    make("f", 0644);
    int fd = open("f", O_RDONLY);
    pthread_create(&thread, NULL, with_a_table, &fd);
    pthread_join(thread, NULL);
    say("flags", fcntl(fd, F_GETFD));
    return 0;
}

/* No number is left for what the gate opens for a moment. */
CASE(no_number_left)
{
    make("f", 0644);
    int fd = open("f", O_RDWR), pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 1;
    struct rlimit few = {pair[1] + 1, pair[1] + 1};
    if (fd < 0 || setrlimit(RLIMIT_NOFILE, &few))
        return 1;
    say("mmap", mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    char byte = 0;
    union {
        char room[CMSG_SPACE(sizeof fd)];
        struct cmsghdr header;
    } control = {.header = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    say("sendmsg", sendmsg(pair[0], &message, 0) == 1 ? 0 : -1);
    int status = -1;
    pid_t child = fork();
    if (!child) {
        execl("/bin/busybox", "true", NULL);
        _exit(errno);
    }
    waitpid(child, &status, 0);
    errno = WEXITSTATUS(status);
    say("static", errno ? -1 : 0);
    return 0;
}

CASE(directory_of_a_thread)
{
    pthread_t thread;
    void *failed = NULL;
    mkdir("d", 0755);
    pthread_create(&thread, NULL, apart, (void *)directory);
    pthread_join(thread, &failed);
    return failed != NULL;
}

/* splice(2) from a FIFO that never had a writer, whose reader does not wait no longer. */
CASE(fifo_without_writers)
{
    mkfifo("p", 0600);
    int fifo = open("p", O_RDONLY | O_NONBLOCK), fd = open("f", O_CREAT | O_RDWR, 0644);
    if (fcntl(fifo, F_SETFL, 0))
        return 1;
    say("splice", splice(fifo, NULL, fd, NULL, 10, SPLICE_F_NONBLOCK));
    return 0;
}

/* io_uring_setup(2): the error of a bad argument, or of a kernel that lacks it. */
CASE(rings)
{
    syscall(SYS_io_uring_setup, 0, NULL);
    tell("%s", errno == ENOSYS ? "ENOSYS" : "another error");
    return 0;
}
