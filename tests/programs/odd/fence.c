/* Who a sequence runs as, and what it cannot change. */
#include "odd.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>

static void look_at_mount(const void *unused)
{
    (void)unused;
    struct stat point, around;
    if (stat(getenv("M"), &point) || stat(base, &around) || point.st_dev != around.st_dev)
        _exit(1);
}

/* Mounts something on $M, if nothing is, with the directory that a session has made there. A child looks, so
 * that this process need not meet the mount. */
static int mount_beside(void)
{
    if (in_child(look_at_mount, NULL))
        return 0;
    return mount("none", getenv("M"), "tmpfs", 0, "mode=1777") || chdir(getenv("M")) || mkdir("t", 0755);
}

/* Everything but the directory `above`, in which ours is or which is ours, becomes read-only for this process
 * and its children. */
int fence(const char *above)
{
    struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY }, writable = { .attr_clr = MOUNT_ATTR_RDONLY };
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount(above, above, NULL, MS_BIND, NULL))
        return -1;
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof read_only))
        return -1;
    /* A mount that the kernel does not know stays as it is. */
    syscall(SYS_mount_setattr, AT_FDCWD, above, 0, &writable, sizeof writable);
    /* A standard stream was opened outside: /proc/self/fd leads from it to a device that can be changed. */
    for (int fd = 0, null = open("/dev/null", O_RDWR | O_CLOEXEC); fd < 3; fd++) {
        struct stat st;
        if (!fstat(fd, &st) && S_ISCHR(st.st_mode) && dup2(null, fd) < 0)
            return -1;
    }
    return is_beside && mount_beside() || chdir(base) || chdir(".");
}

static int without_capabilities(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { 0 };
    return syscall(SYS_capset, &header, none);
}

int become(unsigned who)
{
    gid_t groups[] = { 2000, 3000 };
    switch (who) {
    case 1:
        return setgroups(2, groups) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000);
    case 2:
        return without_capabilities();
    case 3:
        /* A set-user-ID program that has given its rights up for a while: access(2) asks for root's. */
        return setgroups(1, groups) || setresgid(0, 2000, 0) || setresuid(0, 1000, 0);
    case 4:
        return setgroups(1, groups + 1) || setresuid(1000, 0, 0);
    }
    return 0;
}
