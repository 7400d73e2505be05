/* around MOUNT: every call that takes a path or a descriptor, with a path into a mount that covers a host
 * directory and with descriptors of the mount. The caller checks whether the host directory has changed. A
 * result that comes from it shows as a size of 4242, as the attribute user.host, or as success where
 * Lightpath must fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/stat.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { HOST_SIZE = 4242 };

static const char *mount_point;
static int leaks, made;

/* One call in a process of its own, because some change their process and some wait. */
#define CALL(name, ...) call(#name, (long[7]) { __VA_ARGS__ }, NULL)
/* The same; `look` returns whether the result comes from the host. */
#define LOOK(name, look, ...) call(#name, (long[7]) { __VA_ARGS__ }, look)

static struct stat st;
static struct statx sx;
static struct statfs sf;
static char room[4096];
static char attributes[64];

/* If it succeeds, the kernel has made the call. */
static int always(void) { return 1; }
/* The host's file has two pages. */
static int cache_leaks(void) { return *(uint64_t *)room > 1; }
static int stat_leaks(void) { return st.st_size == HOST_SIZE; }
static int statx_leaks(void) { return sx.stx_size == HOST_SIZE; }
static int room_leaks(void) { return memmem(room, sizeof room, "user.host", 9) || memmem(room, sizeof room, "of the host", 11); }

/* The host's directory has this attribute. */
static int root_leaks(void) { return getxattr("/", "user.host", NULL, 0) >= 0; }
/* The host's file has FS_XFLAG_NODUMP. */
static int flags_leak(void) { return *(uint64_t *)attributes & 0x80; }

/* Mounts that the kernel has, by listmount(2), in which those of the run come after them; -1 before Linux 6.8. */
static long mounts_before;
#define FIRST_OF_RUN (1ull << 40)
static long kernel_mounts(void)
{
    struct { uint32_t size, spare; uint64_t id, last; } request = { 24, 0, -1, 0 };
    static uint64_t ids[4096];
    long count = syscall(458, &request, ids, 4096, 0);
    while (count > 0 && ids[count - 1] > FIRST_OF_RUN)
        count--;
    return count;
}
static int mount_leaks(void) { return kernel_mounts() != mounts_before; }

/* What the call has returned. */
static long last;

/* A copy of a tree is not of the host's directory. */
static int tree_leaks(void)
{
    char parent[400];
    struct stat here, host;
    snprintf(parent, sizeof parent, "%s", mount_point);
    *strrchr(parent, '/') = 0;
    return fstat(last, &here) || stat(*parent ? parent : "/", &host) || here.st_dev == host.st_dev;
}

/* The host's file systems that are "lazytime". */
static int lazy_mounts(void)
{
    FILE *table = fopen("/proc/self/mountinfo", "r");
    char line[4096];
    int count = 0;
    while (fgets(line, sizeof line, table))
        count += strstr(line, "lazytime") && !strstr(line, mount_point);
    fclose(table);
    return count;
}

/* What was picked is not the host's file system: it can be changed. */
static int pick_leaks(void)
{
    int before = lazy_mounts();
    syscall(431, last, 0, "lazytime", NULL, 0);
    syscall(431, last, 7, NULL, NULL, 0);
    return lazy_mounts() != before;
}

/* The mount of a handle is not the host's, in which the covered directory is. */
static struct { unsigned bytes; int type; char bits[128]; } handle;
static int host_mount;
static int handle_leaks(void) { return *(int *)room == host_mount; }
static void find_host_mount(void)
{
    char parent[400];
    snprintf(parent, sizeof parent, "%s", mount_point);
    *strrchr(parent, '/') = 0;
    handle.bytes = sizeof handle.bits;
    if (syscall(303, AT_FDCWD, *parent ? parent : "/", &handle, &host_mount, 0))
        host_mount = -1;
}

/* A watch on the host's file gets no events of ours. */
static const char *watched;
static int watched_by;
static int watch_leaks(void)
{
    struct pollfd one = { watched_by, POLLIN, 0 };
    chmod(watched, 0611);
    return poll(&one, 1, 0) != 1;
}

static void call(const char *name, long *w, int (*look)(void))
{
    made++;
    memset(&st, 0, sizeof st), memset(&sx, 0, sizeof sx), memset(room, 0, sizeof room);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        long done = syscall(w[0], w[1], w[2], w[3], w[4], w[5], w[6]);
        last = done;
        int leak = look && done >= 0 && look();
        /* The file opened for reading must not be the host's. */
        if (!leak && done > 2 && !look && read(done, room, sizeof room) > 0)
            leak = room_leaks();
        _exit(leak);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status) {
        printf("%s(%ld): %s %d\n", name, w[0], WIFSIGNALED(status) ? "signal" : "leak", status);
        leaks++;
    }
}

/* Files in the state in which the calls below may leave them. */
static void fresh(void)
{
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "ours", 4);
    close(fd);
    mkdir("d", 0755);
    symlink("f", "l");
}

static void by_path(const char *f, const char *d, const char *l, const char *n, int at)
{
    struct { uint64_t value; uint32_t size, flags; } set = { (uintptr_t)"value", 5, 0 }, get = { (uintptr_t)room, sizeof room, 0 };
    struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
    handle.bytes = sizeof handle.bits;
    struct { uint64_t flags, mode, resolve; } how = { O_RDWR | O_CREAT, 0600, 0 };
    struct { uint32_t pathname_lo, pathname_hi; uint64_t rest[14]; } bpf = { (uintptr_t)f, (uintptr_t)f >> 32 };
    struct sockaddr_un address = { AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%s", n);
    int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0), datagram = socket(AF_UNIX, SOCK_DGRAM, 0), events = inotify_init(), group = fanotify_init(0, 0);
    struct iovec byte = { "b", 1 };
    struct mmsghdr message = { { &address, sizeof address, &byte, 1 } };

    if (at == AT_FDCWD) {
        CALL(open, 2, (long)f, O_RDONLY);
        CALL(open, 2, (long)n, O_RDWR | O_CREAT, 0600), unlink("n");
        CALL(creat, 85, (long)n, 0600), unlink("n");
        LOOK(stat, stat_leaks, 4, (long)f, (long)&st);
        LOOK(lstat, stat_leaks, 6, (long)f, (long)&st);
        CALL(access, 21, (long)f, R_OK);
        CALL(truncate, 76, (long)f, 1);
        CALL(chdir, 80, (long)d);
        CALL(rename, 82, (long)f, (long)n), rename("n", "f");
        CALL(mkdir, 83, (long)n, 0700), rmdir("n");
        CALL(rmdir, 84, (long)d), fresh();
        CALL(link, 86, (long)f, (long)n), unlink("n");
        CALL(unlink, 87, (long)f), fresh();
        CALL(symlink, 88, (long)"target", (long)n), unlink("n");
        CALL(readlink, 89, (long)l, (long)room, sizeof room);
        CALL(chmod, 90, (long)f, 0611);
        CALL(chown, 92, (long)f, 77, 77);
        CALL(lchown, 94, (long)l, 77, 77);
        CALL(utime, 132, (long)f, 0);
        CALL(mknod, 133, (long)n, S_IFIFO | 0600, 0), unlink("n");
        LOOK(uselib, always, 134, (long)f);
        CALL(statfs, 137, (long)f, (long)&sf);
        LOOK(pivot_root, always, 155, (long)d, (long)d);
        LOOK(chroot, root_leaks, 161, (long)d);
        LOOK(acct, always, 163, (long)f);
        LOOK(mount, mount_leaks, 165, (long)"none", (long)d, (long)"tmpfs", 0, 0);
        LOOK(mount, always, 165, (long)d, (long)"/mnt", 0, MS_BIND, 0);
        char options[900];
        snprintf(options, sizeof options, "lowerdir=%s:%s", mount_point, mount_point);
        LOOK(mount, always, 165, (long)"overlay", (long)"/mnt", (long)"overlay", 0, (long)options);
        LOOK(umount2, mount_leaks, 166, (long)d, 0);
        LOOK(swapon, always, 167, (long)f, 0);
        LOOK(swapoff, always, 168, (long)f);
        LOOK(quotactl, always, 179, 0x800007 << 8, (long)f, 0, (long)room);
        CALL(setxattr, 188, (long)f, (long)"user.a", (long)"v", 1, 0);
        CALL(lsetxattr, 189, (long)f, (long)"user.b", (long)"v", 1, 0);
        LOOK(getxattr, room_leaks, 191, (long)f, (long)"user.host", (long)room, sizeof room);
        LOOK(lgetxattr, room_leaks, 192, (long)f, (long)"user.host", (long)room, sizeof room);
        LOOK(listxattr, room_leaks, 194, (long)f, (long)room, sizeof room);
        LOOK(llistxattr, room_leaks, 195, (long)f, (long)room, sizeof room);
        CALL(removexattr, 197, (long)f, (long)"user.host");
        CALL(lremovexattr, 198, (long)f, (long)"user.host");
        CALL(utimes, 235, (long)f, 0);
        watched = f, watched_by = events;
        LOOK(inotify_add_watch, watch_leaks, 254, events, (long)f, IN_ATTRIB);
        LOOK(bpf, always, 321, 6, (long)&bpf, sizeof bpf);
        LOOK(bpf, always, 321, 7, (long)&bpf, sizeof bpf);
        CALL(bind, 49, socket_fd, (long)&address, sizeof address), unlink("n");
        CALL(connect, 42, socket_fd, (long)&address, sizeof address);
        CALL(sendto, 44, datagram, (long)"b", 1, 0, (long)&address, sizeof address);
        CALL(sendmsg, 46, datagram, (long)&message.msg_hdr, 0);
        CALL(sendmmsg, 307, datagram, (long)&message, 1, 0);
    }
    CALL(openat, 257, at, (long)f, O_RDONLY);
    CALL(openat, 257, at, (long)n, O_RDWR | O_CREAT, 0600), unlink("n");
    CALL(openat, 257, at, (long)d, O_RDWR | O_TMPFILE, 0600);
    CALL(openat2, 437, at, (long)n, (long)&how, sizeof how), unlink("n");
    CALL(mkdirat, 258, at, (long)n, 0700), rmdir("n");
    CALL(mknodat, 259, at, (long)n, S_IFREG | 0600, 0), unlink("n");
    CALL(fchownat, 260, at, (long)f, 77, 77, 0);
    CALL(futimesat, 261, at, (long)f, 0);
    LOOK(newfstatat, stat_leaks, 262, at, (long)f, (long)&st, 0);
    CALL(unlinkat, 263, at, (long)f, 0), fresh();
    CALL(unlinkat, 263, at, (long)d, AT_REMOVEDIR), fresh();
    CALL(renameat, 264, at, (long)f, at, (long)n), rename("n", "f");
    CALL(linkat, 265, at, (long)f, at, (long)n, 0), unlink("n");
    CALL(symlinkat, 266, (long)"target", at, (long)n), unlink("n");
    CALL(readlinkat, 267, at, (long)l, (long)room, sizeof room);
    CALL(fchmodat, 268, at, (long)f, 0611);
    CALL(faccessat, 269, at, (long)f, R_OK);
    CALL(utimensat, 280, at, (long)f, (long)times, 0);
    LOOK(fanotify_mark, always, 301, group, FAN_MARK_ADD, FAN_OPEN, at, (long)f);
    LOOK(name_to_handle_at, handle_leaks, 303, at, (long)f, (long)&handle, (long)room, 0);
    CALL(renameat2, 316, at, (long)f, at, (long)n, 1), rename("n", "f");
    CALL(execveat, 322, at, (long)f, 0, 0, 0);
    LOOK(statx, statx_leaks, 332, at, (long)f, 0, STATX_SIZE, (long)&sx);
    LOOK(open_tree, tree_leaks, 428, at, (long)d, 1);
    LOOK(move_mount, always, 429, at, (long)d, AT_FDCWD, (long)"/mnt", 0);
    LOOK(move_mount, always, 429, AT_FDCWD, (long)"/mnt", at, (long)d, 0);
    LOOK(fspick, pick_leaks, 433, at, (long)d, 0);
    CALL(faccessat2, 439, at, (long)f, R_OK, 0);
    LOOK(mount_setattr, mount_leaks, 442, at, (long)d, 0, (long)attributes, 32);
    CALL(fchmodat2, 452, at, (long)f, 0611, 0);
    CALL(setxattrat, 463, at, (long)f, 0, (long)"user.c", (long)&set, sizeof set);
    LOOK(getxattrat, room_leaks, 464, at, (long)f, 0, (long)"user.host", (long)&get, sizeof get);
    LOOK(listxattrat, room_leaks, 465, at, (long)f, 0, (long)room, sizeof room);
    CALL(removexattrat, 466, at, (long)f, 0, (long)"user.host");
    LOOK(open_tree_attr, tree_leaks, 467, at, (long)d, 1, (long)attributes, 32);
    LOOK(file_getattr, flags_leak, 468, at, (long)f, (long)attributes, 24, 0);
    CALL(file_setattr, 469, at, (long)f, (long)attributes, 24, 0);
    close(socket_fd), close(datagram), close(events), close(group);
}

/* A descriptor of ours where the kernel expects one of its own. */
static void as_descriptor(int fd)
{
    char range[32] = "";
    LOOK(cachestat, cache_leaks, 451, fd, (long)range, (long)room, 0);
    LOOK(quotactl_fd, always, 443, fd, 0x800007 << 8, 0, (long)room);
    LOOK(fsconfig, always, 431, fd, 6, 0, 0, 0);
    LOOK(fsmount, always, 432, fd, 0, 0);
    LOOK(fsopen, always, 430, (long)"none of this name", 0);
    LOOK(setns, always, 308, fd, 0);
    LOOK(finit_module, always, 313, fd, (long)"", 0);
    LOOK(open_by_handle_at, always, 304, fd, (long)room, O_RDONLY);
    LOOK(pidfd_getfd, always, 438, fd, 0, 0);
    LOOK(io_destroy, always, 207, 1);
    LOOK(io_getevents, always, 208, 1, 0, 0, 0, 0);
    LOOK(io_submit, always, 209, 1, 0, 0);
    LOOK(io_cancel, always, 210, 1, 0, 0);
    LOOK(io_pgetevents, always, 333, 1, 0, 0, 0, 0, 0);
    LOOK(io_uring_setup, always, 425, 1, (long)room);
    LOOK(io_uring_enter, always, 426, fd, 0, 0, 0, 0, 0);
    LOOK(io_uring_register, always, 427, fd, 0, 0, 0);
}

/* A ruleset of landlock(7), and what is none. */
static void by_ruleset(int fd)
{
    uint64_t handled = 1 << 2;
    struct { uint64_t access; int32_t parent; } __attribute__((packed)) rule = { 1 << 2, fd };
    CALL(landlock_create_ruleset, 444, (long)&handled, sizeof handled, 0);
    CALL(landlock_create_ruleset, 444, 0, 0, 1);
    LOOK(landlock_add_rule, always, 445, fd, 1, (long)&rule, 0);
    LOOK(landlock_restrict_self, always, 446, fd, 0);
}

/* NULL and empty paths: the directory itself. */
static void by_directory(const char *nothing, int at)
{
    struct { uint64_t value; uint32_t size, flags; } set = { (uintptr_t)"value", 5, 0 }, get = { (uintptr_t)room, sizeof room, 0 };
    struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
    CALL(fchownat, 260, at, (long)nothing, 77, 77, AT_EMPTY_PATH);
    CALL(newfstatat, 262, at, (long)nothing, (long)&st, AT_EMPTY_PATH);
    CALL(utimensat, 280, at, (long)nothing, (long)times, AT_EMPTY_PATH);
    CALL(linkat, 265, at, (long)nothing, at, (long)"n", AT_EMPTY_PATH);
    LOOK(name_to_handle_at, handle_leaks, 303, at, (long)nothing, (long)&handle, (long)room, AT_EMPTY_PATH);
    CALL(statx, 332, at, (long)nothing, AT_EMPTY_PATH, STATX_SIZE, (long)&sx);
    LOOK(open_tree, tree_leaks, 428, at, (long)nothing, 1 | AT_EMPTY_PATH);
    LOOK(move_mount, always, 429, at, (long)nothing, AT_FDCWD, (long)"/mnt", 4);
    LOOK(fspick, pick_leaks, 433, at, (long)nothing, 8);
    LOOK(mount_setattr, mount_leaks, 442, at, (long)nothing, AT_EMPTY_PATH, (long)attributes, 32);
    CALL(fchmodat2, 452, at, (long)nothing, 0711, AT_EMPTY_PATH);
    CALL(setxattrat, 463, at, (long)nothing, AT_EMPTY_PATH, (long)"user.d", (long)&set, sizeof set);
    LOOK(getxattrat, room_leaks, 464, at, (long)nothing, AT_EMPTY_PATH, (long)"user.host", (long)&get, sizeof get);
    LOOK(listxattrat, room_leaks, 465, at, (long)nothing, AT_EMPTY_PATH, (long)room, sizeof room);
    CALL(removexattrat, 466, at, (long)nothing, AT_EMPTY_PATH, (long)"user.host");
    LOOK(open_tree_attr, tree_leaks, 467, at, (long)nothing, 1 | AT_EMPTY_PATH, (long)attributes, 32);
    LOOK(file_getattr, flags_leak, 468, at, (long)nothing, (long)attributes, 24, AT_EMPTY_PATH);
    CALL(file_setattr, 469, at, (long)nothing, (long)attributes, 24, AT_EMPTY_PATH);
    unlink("n");
}

int main(int argc, char **argv)
{
    static const char *names[] = { "f", "d", "l", "n" };
    char whole[4][400];
    mount_point = argv[1];
    mounts_before = kernel_mounts();
    find_host_mount();
    if (argc != 2 || chdir(mount_point))
        return 9;
    fresh();
    for (int n = 0; n < 4; n++)
        snprintf(whole[n], sizeof whole[n], "%s/%s", mount_point, names[n]);
    by_path(whole[0], whole[1], whole[2], whole[3], AT_FDCWD);
    by_path("f", "d", "l", "n", AT_FDCWD);
    int at = open(".", O_RDONLY | O_DIRECTORY);
    by_path("f", "d", "l", "n", at);
    for (int way = 0; way < 2; way++) {
        by_directory(way ? "" : NULL, AT_FDCWD);
        by_directory(way ? "" : NULL, at);
    }
    int file = open("f", O_RDWR);
    as_descriptor(file);
    as_descriptor(at);
    by_ruleset(at);
    printf("%d calls, %d leaks\n", made, leaks);
    return leaks != 0;
}
