/* User namespaces: what the capabilities of a process in one do not allow. */
#include "conform.h"
#include <linux/capability.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        say("%s: %s", path, strerrorname_np(errno));
    close(fd);
}

/* Enters a user namespace with one user and one group, which are those outside. */
static void enter(void)
{
    T(unshare(CLONE_NEWUSER));
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", "0 0 1");
    put("/proc/self/gid_map", "0 0 1");
}

static void list(const char *path)
{
    char names[256];
    long got = listxattr(path, names, sizeof names);
    say_bytes("names", names, got < 0 ? 0 : got);
}

static void try(const char *name)
{
    char value[16];
    TN("setxattr trusted", setxattr(name, "trusted.a", "x", 1, 0));
    TN("setxattr trusted, new", setxattr(name, "trusted.b", "x", 1, XATTR_CREATE));
    TN("getxattr trusted", getxattr(name, "trusted.a", value, sizeof value));
    TN("removexattr trusted", removexattr(name, "trusted.none"));
    TN("setxattr user", setxattr(name, "user.b", "x", 1, 0));
    TN("setxattr security", setxattr(name, "security.a", "x", 1, 0));
    TN("removexattr security", removexattr(name, "security.none"));
    list(name);
}

static union {
    struct file_handle head;
    char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
} handle;

/* The file of a handle that was made before. */
static void reopen(void)
{
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    TN("open_by_handle_at", open_by_handle_at(dir, &handle.head, O_RDONLY) < 0 ? -1 : 0);
    close(dir);
}

static void make_all(void)
{
    make("f", "text");
    make("other", "text");
    setxattr("f", "trusted.a", "x", 1, 0);
    setxattr("f", "user.a", "x", 1, 0);
}

static void devices(void)
{
    T(mknod("null", S_IFCHR | 0666, makedev(1, 3)));
    T(mknod("block", S_IFBLK | 0666, makedev(7, 0)));
    T(mknod("whiteout", S_IFCHR, 0));
    T(mknod("fifo", S_IFIFO | 0666, 0));
    unlink("null");
    unlink("block");
    unlink("whiteout");
    unlink("fifo");
}

static void flags(void)
{
    int fd = open("other", O_RDONLY), now = 0;
    T(ioctl(fd, FS_IOC_GETFLAGS, &now));
    now |= FS_IMMUTABLE_FL;
    T(ioctl(fd, FS_IOC_SETFLAGS, &now));
    now = 0;
    T(ioctl(fd, FS_IOC_SETFLAGS, &now));
    now = FS_NODUMP_FL;
    T(ioctl(fd, FS_IOC_SETFLAGS, &now));
    close(fd);
}

GROUP(namespace, privileges)
{
    if (geteuid() != 0)
        return;
    make_all();
    int mount;
    handle.head.handle_bytes = MAX_HANDLE_SZ;
    name_to_handle_at(AT_FDCWD, "f", &handle.head, &mount, 0);
    CHILD {
        say("%s", "before");
        reopen();
        try("f");
        devices();
        flags();
        enter();
        say("%s", "after");
        reopen();
        try("f");
        devices();
        flags();
        T(chmod("other", 0600));
        T(chown("other", 0, 0));
        T(open("other", O_RDWR));
        CHILD {
            say("%s", "child");
            try("f");
            devices();
        }
    }
    try("f");
}

GROUP(namespace, regained)
{
    if (geteuid() != 0)
        return;
    make_all();
    chmod("other", 0);
    make_dir("r");
    CHILD {
        struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct data[2] = { { 0 } };
        T(syscall(SYS_capset, &header, data));
        T(open("other", O_RDWR));
        T(chroot("r"));
        enter();
        T(setxattr("f", "trusted.a", "x", 1, 0));
        T(chroot("r"));
        T(unshare(CLONE_NEWUSER));
        T(unshare(CLONE_NEWUSER | 1));
        T(access("/f", F_OK));
    }
}
