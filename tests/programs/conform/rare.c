/* Rare calls: changes of single ids and capabilities, calls that create descriptors beside open files,
 * batches of messages, limits, and calls that take a descriptor other than a file's.
 */
#include "conform.h"
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

/* The caller's access to a file of root and to a file of a group. */
static void may(const char *who)
{
    say("%s", who);
    T(open("owner", O_RDONLY));
    T(open("group", O_RDONLY));
    T(access("owner", R_OK));
    T(faccessat(AT_FDCWD, "group", R_OK, AT_EACCESS));
    T(open("made", O_WRONLY | O_CREAT | O_EXCL, 0644));
    attributes("made");
    T(unlink("made"));
}

static void make_files(void)
{
    make("owner", "root's");
    make("group", "a group's");
    chmod(".", 0777);
    chmod("owner", 0600);
    chmod("group", 0640);
    if (chown("group", 0, 4321))
        say("chown: %s", strerrorname_np(errno));
}

GROUP(rare, one_id_at_a_time)
{
    if (geteuid() != 0)
        return;
    make_files();
    CHILD {
        T(syscall(SYS_setreuid, -1, 65534));
        may("effective user");
        T(syscall(SYS_setreuid, -1, 0));
        may("and back");
    }
    CHILD {
        T(syscall(SYS_setreuid, 65534, -1));
        may("real user");
    }
    CHILD {
        gid_t groups[] = { 1, 4321 };
        T(syscall(SYS_setgroups, 2, groups));
        T(syscall(SYS_setregid, -1, 65534));
        T(syscall(SYS_setresuid, -1, 65534, -1));
        may("supplementary group");
    }
    CHILD {
        T(syscall(SYS_setgroups, 0, NULL));
        T(syscall(SYS_setresgid, -1, 4321, -1));
        T(syscall(SYS_setresuid, 65534, 65534, 65534));
        may("effective group");
        T(syscall(SYS_setresgid, 0, 0, 0));
        T(syscall(SYS_setgroups, 0, NULL));
    }
}

static void keep_only(uint32_t capabilities)
{
    T(set_capabilities(capabilities, capabilities));
}

GROUP(rare, capabilities)
{
    if (geteuid() != 0)
        return;
    make_files();
    chown("owner", 65534, 0);
    CHILD {
        keep_only(0);
        may("none");
        T(chown("group", 1, 1));
        T(chmod("owner", 0644));
        T(mknod("device", S_IFCHR | 0600, 0));
    }
    CHILD {
        keep_only(1 << CAP_DAC_OVERRIDE);
        may("CAP_DAC_OVERRIDE");
        T(chmod("owner", 0644));
    }
    CHILD {
        keep_only(1 << CAP_DAC_READ_SEARCH);
        may("CAP_DAC_READ_SEARCH");
        T(open("owner", O_WRONLY));
    }
    CHILD {
        keep_only(1 << CAP_CHOWN | 1 << CAP_FOWNER);
        T(chown("group", 1, 1));
        T(chmod("owner", 0640));
    }
    attributes("owner");
    attributes("group");
}

/* A new descriptor has the lowest free number. */
static void made(const char *what, long fd, long expected)
{
    say("%s: %s", what, fd < 0 ? strerrorname_np(errno) : fd == expected ? "the lowest number" : "another number");
    if (fd >= 0)
        close(fd);
}

GROUP(rare, makers_of_descriptors)
{
    int low = make_open("f", "text", O_RDWR), next = make_open("g", "text", O_RDWR);
    close(low);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    struct perf_event_attr event = { .type = PERF_TYPE_SOFTWARE, .size = sizeof event, .config = PERF_COUNT_SW_PAGE_FAULTS };
    made("eventfd", syscall(SYS_eventfd, 0), low);
    made("eventfd2", syscall(SYS_eventfd2, 0, EFD_CLOEXEC), low);
    made("epoll_create", syscall(SYS_epoll_create, 1), low);
    made("inotify_init1", syscall(SYS_inotify_init1, IN_CLOEXEC), low);
    made("timerfd_create", syscall(SYS_timerfd_create, CLOCK_MONOTONIC, 0), low);
    made("signalfd4", syscall(SYS_signalfd4, -1, &mask, 8, 0), low);
    made("pidfd_open", syscall(SYS_pidfd_open, getpid(), 0), low);
    made("userfaultfd", syscall(SYS_userfaultfd, 1), low);
    made("perf_event_open", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0), low);
    made("memfd_secret", syscall(SYS_memfd_secret, 0), low);
    made("mq_open", syscall(SYS_mq_open, "none-of-this-name", O_RDONLY, 0, NULL), low);
    made("open", open("f", O_RDONLY), low);
    T(write(next, "more", 4));
    contents("g");
}

GROUP(rare, waits_of_epoll)
{
    int events = eventfd(1, 0), poll_fd = epoll_create1(0);
    struct epoll_event want = { .events = EPOLLIN, .data.u32 = 7 }, got = { 0 };
    struct timespec none = { 0, 0 };
    T(epoll_ctl(poll_fd, EPOLL_CTL_ADD, events, &want));
    T(syscall(SYS_epoll_pwait, poll_fd, &got, 1, 0, NULL, 8));
    say("%u", got.data.u32);
    got.data.u32 = 0;
    T(syscall(SYS_epoll_pwait2, poll_fd, &got, 1, &none, NULL, 8));
    say("%u", got.data.u32);
    int file = make_open("f", "text", O_RDWR);
    T(epoll_ctl(poll_fd, EPOLL_CTL_ADD, file, &want) == -1 ? errno : 0);
    T(syscall(SYS_epoll_pwait, file, &got, 1, 0, NULL, 8));
    T(syscall(SYS_epoll_pwait2, file, &got, 1, &none, NULL, 8));
}

GROUP(rare, messages_by_the_dozen)
{
    int ends[2];
    T(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    char room[3][8] = { "", "", "" };
    struct iovec pieces[3] = { { room[0], 8 }, { room[1], 8 }, { room[2], 8 } };
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 3; i++)
        messages[i].msg_hdr.msg_iov = &pieces[i], messages[i].msg_hdr.msg_iovlen = 1;
    T(send(ends[0], "one", 3, 0));
    T(send(ends[0], "two", 3, 0));
    T(syscall(SYS_recvmmsg, ends[1], messages, 3, MSG_DONTWAIT, NULL));
    say("%s %u %s %u", room[0], messages[0].msg_len, room[1], messages[1].msg_len);
    T(send(ends[0], "three", 5, 0));
    T(syscall(SYS_recvfrom, ends[1], room[2], 8, 0, NULL, NULL));
    say("%s", room[2]);
    int file = make_open("f", "text", O_RDWR);
    /* Straight into a mapping of a file. */
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    T(send(ends[0], "mapped", 6, 0));
    T(syscall(SYS_recvfrom, ends[1], map, 4, 0, NULL, NULL));
    contents("f");
}

GROUP(rare, pages_in_another_order)
{
    int fd = make_open("f", "text", O_RDWR);
    T(ftruncate(fd, 8192));
    char *private = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    T(syscall(SYS_remap_file_pages, private, 4096, 0, 1, 0));
    T(syscall(SYS_remap_file_pages, private, 0, 0, 1, 0));
    T(syscall(SYS_remap_file_pages, private, 4096, PROT_READ, 1, 0));
    T(munmap(private, 8192));
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    T(syscall(SYS_remap_file_pages, shared, 0, 0, 1, 0));
    T(syscall(SYS_remap_file_pages, shared, 4096, PROT_READ, 1, 0));
    say("%.4s", shared);
}

GROUP(rare, limits_of_a_process)
{
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, new = { 10, RLIM_INFINITY };
    int fd = make_open("f", "12345678", O_RDWR | O_APPEND);
    T(syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &old));
    new.rlim_max = old.rlim_max;
    /* The output goes to a file too, so it waits until the limit is gone. */
    long results[8], limited = syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &new, NULL);
    results[0] = write(fd, "abcd", 4), results[1] = errno;
    results[2] = write(fd, "e", 1), results[3] = errno;
    results[4] = ftruncate(fd, 11), results[5] = errno;
    results[6] = syscall(SYS_prlimit64, getpid(), RLIMIT_FSIZE, &old, NULL);
    say("%ld: %ld, %ld %s, %ld %s; %ld", limited, results[0], results[2], strerrorname_np(results[3]), results[4],
        strerrorname_np(results[5]), results[6]);
    T(write(fd, "e", 1));
    contents("f");
}

GROUP(rare, descriptors_of_another_kind)
{
    int file = make_open("f", "text", O_RDWR), dir = open(".", O_RDONLY | O_DIRECTORY);
    int kinds[2] = { file, dir };
    for (int i = 0; i < 2; i++) {
        int fd = kinds[i];
        struct itimerspec timer = { { 0, 0 }, { 1, 0 } };
        sigset_t mask;
        sigemptyset(&mask);
        say("%s", i ? "a directory" : "a file");
        T(syscall(SYS_setns, fd, 0));
        T(syscall(SYS_signalfd4, fd, &mask, 8, 0));
        T(syscall(SYS_timerfd_settime, fd, 0, &timer, NULL));
        T(syscall(SYS_fsconfig, fd, 6, NULL, NULL, 0));
        T(syscall(SYS_fsmount, fd, 0, 0));
        T(syscall(SYS_pidfd_getfd, fd, 0, 0));
        /* A kernel without modules does not have the call. */
        if (syscall(SYS_finit_module, -1, "", 0) < 0 && errno != ENOSYS)
            T(syscall(SYS_finit_module, fd, "", 0));
        T(syscall(SYS_mq_timedsend, fd, "", 0, 0, NULL));
    }
}
