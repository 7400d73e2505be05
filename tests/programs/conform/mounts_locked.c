/* Mounts of another user namespace: mount_namespaces(7), "Restrictions on mount namespaces". */
#include "mounts.h"
#include <sys/syscall.h>

#define ATTR(path, flags, set, clear)                                                                        \
    do {                                                                                                     \
        uint64_t attributes_[4] = {set, clear};                                                              \
        T(syscall(SYS_mount_setattr, AT_FDCWD, path, flags, attributes_, sizeof attributes_));               \
    } while (0)

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        say("cannot write %s", path);
    close(fd);
}

/* Enters a user namespace in which the caller is root, and a mount namespace of it. */
static int enter(void)
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
        return say("no namespace: %s", strerrorname_np(errno)), 0;
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", "0 0 1");
    put("/proc/self/gid_map", "0 0 1");
    return 1;
}

/* A mount at `a`, with another at `a/in`. */
static int prepare(void)
{
    if (geteuid() != 0 || !apart_with("abcd"))
        return 0;
    T(mount("outer", "a", "tmpfs", 0, NULL));
    make_dir("a/in");
    make_dir("a/plain");
    T(mount("inner", "a/in", "tmpfs", 0, NULL));
    make_dir("a/in/below");
    return 1;
}

static void clear_up(void)
{
    T(umount2("a/in", 0));
    T(umount2("a", 0));
}

GROUP(mounts_locked, unmounted)
{
    if (!prepare())
        return;
    CHILD {
        if (!enter())
            return;
        T(umount2("a/in", 0));
        T(umount2("a/in", MNT_DETACH));
        T(umount2("a", 0));
        T(umount2("a", MNT_DETACH));
        T(umount2("a", MNT_FORCE));
        T(umount2("a", MNT_EXPIRE));
        T(umount2("a/plain", 0));
        T(mount("a", "b", NULL, MS_MOVE, NULL));
        T(mount("a/in", "b", NULL, MS_MOVE, NULL));
        /* What is mounted here goes. */
        T(mount("own", "b", "tmpfs", 0, NULL));
        T(umount2("b", 0));
        T(mount("own", "a/in/below", "tmpfs", 0, NULL));
        T(umount2("a/in", MNT_DETACH));
        T(umount2("a/in/below", 0));
    }
    clear_up();
}

GROUP(mounts_locked, bound)
{
    if (!prepare())
        return;
    CHILD {
        if (!enter())
            return;
        /* It would show what `a/in` covers. */
        T(mount("a", "b", NULL, MS_BIND, NULL));
        T(mount("a/plain", "b", NULL, MS_BIND, NULL));
        T(umount2("b", 0));
        T(mount("a", "b", NULL, MS_BIND | MS_REC, NULL));
        T(umount2("b/in", 0));
        T(umount2("b", 0));
        T(umount2("b", MNT_DETACH));
        T(mount("a/in", "b", NULL, MS_BIND, NULL));
        T(mount("b", "c", NULL, MS_MOVE, NULL));
        T(umount2("c", 0));
        int tree = syscall(SYS_open_tree, AT_FDCWD, "a", 1 | O_CLOEXEC);
        say("open_tree: %s", tree < 0 ? strerrorname_np(errno) : "a descriptor");
        tree = syscall(SYS_open_tree, AT_FDCWD, "a", 1 | 0x8000 | O_CLOEXEC);
        T(syscall(SYS_move_mount, tree, "", AT_FDCWD, "b", 4));
        T(umount2("b/in", MNT_DETACH));
        T(umount2("b", MNT_DETACH));
        close(tree);
    }
    clear_up();
}

static const struct {
    const char *name;
    unsigned long flags;
} remounts[] = {
    {"none", 0},
    {"ro", MS_RDONLY},
    {"ro, nosuid", MS_RDONLY | MS_NOSUID},
    {"all", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOATIME},
    {"all, noexec", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME},
    {"all, relatime", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_RELATIME},
    {"all but nodev", MS_RDONLY | MS_NOSUID | MS_NOATIME},
};

GROUP(mounts_locked, remounted)
{
    if (geteuid() != 0 || !apart_with("abc"))
        return;
    T(mount("outer", "a", "tmpfs", 0, NULL));
    T(mount(NULL, "a", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOATIME, NULL));
    CHILD {
        if (!enter())
            return;
        for (unsigned i = 0; i < COUNT(remounts); i++) {
            say("%s", remounts[i].name);
            TN("flags", mount(NULL, "a", NULL, MS_REMOUNT | MS_BIND | remounts[i].flags, NULL));
            TN("all", mount(NULL, "a", NULL, MS_REMOUNT | remounts[i].flags, NULL));
        }
        ATTR("a", 0, 0, 1);
        ATTR("a", 0, 8, 0);
        ATTR("a", 0, 0, 2);
        ATTR("a", 0, 0x20, 0x70);
        T(mount(NULL, "a", NULL, MS_REMOUNT, "size=1m"));
        /* A bind mount keeps them. */
        T(mount("a", "b", NULL, MS_BIND, NULL));
        T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOATIME, NULL));
        ATTR("b", 0, 0, 1);
        T(open("b/f", O_CREAT | O_RDWR, 0600));
        T(umount2("b", 0));
        /* What is mounted here has its own. */
        T(mount("own", "b", "tmpfs", MS_RDONLY | MS_NODEV, NULL));
        T(mount("b", "c", NULL, MS_BIND, NULL));
        T(mount(NULL, "c", NULL, MS_REMOUNT | MS_BIND | MS_NOATIME, NULL));
        T(mount(NULL, "b", NULL, MS_REMOUNT | MS_NOSUID, "size=1m"));
        T(mount(NULL, "c", NULL, MS_REMOUNT | MS_RDONLY, NULL));
        T(umount2("c", MNT_FORCE));
        T(umount2("b", 0));
        CHILD {
            if (!enter())
                return;
            T(umount2("a", 0));
            T(mount("deeper", "b", "tmpfs", 0, NULL));
            T(umount2("b", 0));
        }
    }
    T(mount(NULL, "a", NULL, MS_REMOUNT | MS_BIND, NULL));
    T(umount2("a", 0));
}
