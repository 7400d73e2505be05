/* Mounts. */
#include "differ.h"
#include <linux/mount.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>

enum { CLONE_TREE = 1, BENEATH = 0x200 };

/* What a tmpfs shows of its options, and of a file that is bound and removed. */
CASE(tmpfs_shown)
{
    char line[9000], root[4200], at[4200], source[4200], name[101] = {0};
    struct statfs st;
    struct sysinfo memory;
    mkdir("d", 0755);
    memset(name, 's', 100);
    say("mount", mount(name, "d", "tmpfs", 0, "size=1%"));
    say("statfs", statfs("d", &st) | sysinfo(&memory));
    double part = (double)st.f_blocks * st.f_bsize / memory.totalram / memory.mem_unit;
    tell("percent of %s", part > 0.009 && part < 0.011 ? "memory" : "another size");
    make("d/f", 0600);
    make("d/g", 0600);
    say("bind", mount("d/f", "d/g", NULL, MS_BIND, NULL));
    say("unlink", unlink("d/f"));
    FILE *table = fopen("/proc/self/mountinfo", "r");
    while (table && fgets(line, sizeof line, table))
        if (sscanf(line, "%*s %*s %*s %4199s %4199s %*[^-]- tmpfs %4199s", root, at, source) == 3 &&
            strlen(at) > 4 && !strcmp(at + strlen(at) - 4, "/d/g"))
            tell("root %s\nsource of %zu bytes", root, strlen(source));
    umount("d/g");
    umount("d");
    return 0;
}

/* A mount that goes beneath a younger one; one whose owners are those of another user namespace. */
CASE(beneath_and_idmap)
{
    mkdir("a", 0755);
    mkdir("b", 0755);
    if (mount("none", "a", "tmpfs", 0, NULL) || mount("none", "b", "tmpfs", 0, NULL))
        return 1;
    say("move", syscall(SYS_move_mount, AT_FDCWD, "a", AT_FDCWD, "b", BENEATH));
    int ready[2];
    char byte, name[60];
    if (pipe(ready))
        return 1;
    pid_t child = fork();
    if (!child) {
        unshare(CLONE_NEWUSER);
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    static const char *const maps[] = { "uid_map", "gid_map" };
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "/proc/%d/%s", child, maps[i]);
        say("map", put(name, "0 1000 1"));
    }
    snprintf(name, sizeof name, "/proc/%d/ns/user", child);
    int users = open(name, O_RDONLY), tree = syscall(SYS_open_tree, AT_FDCWD, "b", CLONE_TREE);
    struct { uint64_t set, clear, propagation, users; } given = { 0x100000, 0, 0, users };
    say("idmap", syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &given, sizeof given));
    kill(child, SIGKILL);
    return waitpid(child, NULL, 0) != child;
}

/* What needs the kernel to know the directory. */
CASE(kernel_only)
{
    int group = fanotify_init(0, O_RDONLY);
    say("init", group < 0 ? -1 : 0);
    say("mark", fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "."));
    mkdir("d", 0755);
    if (mount("none", "d", "tmpfs", 0, NULL) || mkdir("d/old", 0755))
        return 1;
    say("pivot_root", syscall(SYS_pivot_root, "d", "d/old"));
    return 0;
}

/* Other file systems, and directories of the host, in a mount; a directory of the mount on the host. */
CASE(mounted_across)
{
    mkdir("d", 0755);
    mkdir("e", 0755);
    say("proc", mount("none", "d", "proc", 0, NULL));
    say("host's", mount(host, "e", NULL, MS_BIND, NULL));
    say("on the host", mount("d", host, NULL, MS_BIND, NULL));
    return 0;
}

/* Whether there is a mount on a directory: it has a file that was made there. */
static const char *seen(const char *name)
{
    return access(name, F_OK) ? "not seen" : "seen";
}

/* A mount in a namespace of its own, looked at and unmounted from outside of it. */
CASE(mounted_elsewhere)
{
    int ready[2], done[2];
    char byte;
    mkdir("d", 0755);
    if (pipe(ready) || pipe(done))
        return 1;
    IN_CHILD {
        if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", "d", "tmpfs", 0, NULL))
            _exit(1);
        make("d/f", 0644);
        if (fork() == 0) {
            if (write(ready[1], "", 1) == 1)
                read(done[0], &byte, 1);
            _exit(0);
        }
    }
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    tell("%s", seen("d/f"));
    say("umount", umount("d"));
    return write(done[1], "", 1) != 1;
}

/* A detached tree that is moved onto another one. */
CASE(detached)
{
    mkdir("a", 0755);
    mkdir("b", 0755);
    if (mount("none", "a", "tmpfs", 0, NULL) || mount("none", "b", "tmpfs", 0, NULL))
        return 1;
    int one = syscall(SYS_open_tree, AT_FDCWD, "a", CLONE_TREE), other = syscall(SYS_open_tree, AT_FDCWD, "b", CLONE_TREE);
    say("move", syscall(SYS_move_mount, one, "", other, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
    return 0;
}

/* A tmpfs that fsmount(2) has made, with a file in it before it has a place. */
CASE(made_with_files)
{
    mkdir("d", 0755);
    int context = syscall(SYS_fsopen, "tmpfs", 0);
    say("create", syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    int fd = syscall(SYS_fsmount, context, 0, 0);
    say("open", openat(fd, "f", O_CREAT | O_WRONLY, 0600));
    say("move", syscall(SYS_move_mount, fd, "", AT_FDCWD, "d", MOVE_MOUNT_F_EMPTY_PATH));
    return 0;
}

/* A context of fspick(2) by a duplicate, once the first descriptor is closed. */
CASE(picked)
{
    mkdir("d", 0755);
    if (mount("none", "d", "tmpfs", 0, NULL))
        return 1;
    int first = syscall(SYS_fspick, AT_FDCWD, "d", 0), other = dup(first);
    close(first);
    say("set", syscall(SYS_fsconfig, other, FSCONFIG_SET_STRING, "size", "1M", 0));
    say("reconfigure", syscall(SYS_fsconfig, other, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0));
    return 0;
}

/* As many mounts as a region has not. */
CASE(many_mounts)
{
    int made = 0;
    mkdir("d", 0755);
    while (made < 300 && !mount("none", "d", "tmpfs", 0, NULL))
        made++;
    if (made < 300)
        say("mount", -1);
    tell("%s", made == 300 ? "300" : made > 200 ? "fewer" : "far fewer");
    while (!umount("d"))
        ;
    return 0;
}

/* /proc/self/mountinfo, open while a mount is made. */
CASE(mountinfo_open)
{
    static char text[1 << 20];
    int fd = open("/proc/self/mountinfo", O_RDONLY);
    struct pollfd wants = { fd, POLLPRI };
    mkdir("lightpath-seen", 0755);
    while (read(fd, text, sizeof text - 1) > 0)
        ;
    poll(&wants, 1, 0);
    say("mount", mount("none", "lightpath-seen", "tmpfs", 0, NULL));
    tell("%s", poll(&wants, 1, 1000) == 1 ? "told" : "not told");
    lseek(fd, 0, SEEK_SET);
    memset(text, 0, sizeof text);
    for (long length = 0, got; (got = read(fd, text + length, sizeof text - 1 - length)) > 0; length += got)
        ;
    tell("%s", strstr(text, "/lightpath-seen ") ? "shown" : "not shown");
    return umount("lightpath-seen");
}
