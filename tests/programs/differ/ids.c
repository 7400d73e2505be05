/* Users, groups, namespaces of users, and capabilities. */
#include "differ.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* How a program ends that is executed as `path` with these arguments, by a child that `prepare` has
 * changed. */
static int status_of(void (*prepare)(void), const char *path, char *const *arguments)
{
    int status;
    pid_t child = fork();
    if (!child) {
        prepare();
        execv(path, arguments);
        _exit(126);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void two_users(void)
{
    if (setresuid(1000, 0, 0))
        _exit(99);
}

static void another_user(void)
{
    if (setresuid(1000, 1000, 1000) || dup2(open("/dev/null", O_WRONLY), 2) != 2)
        _exit(99);
}

/* A dynamic program that an effective user executes who is not the real one. */
CASE(of_two_users)
{
    char name[4200], *arguments[] = { "test", "-e", name, NULL };
    snprintf(name, sizeof name, "%s/f", directory);
    make("f", 0644);
    tell("test %d", status_of(two_users, "/usr/bin/test", arguments));
    return 0;
}

/* A program that may be executed and not read. */
CASE(unreadable_program)
{
    char name[4200], line[4300], *arguments[] = { "true", NULL };
    snprintf(name, sizeof name, "%s/true", host);
    snprintf(line, sizeof line, "cp /usr/bin/true %s", name);
    if (chmod(host, 0755) || system(line) || chmod(name, 0711))
        return 1;
    tell("exit %d", status_of(another_user, name, arguments));
    return unlink(name);
}

/* A child in a new user namespace whose map has this many lines: the owner of a file, who is in the last. */
static int owner_seen_with(int lines)
{
    int ready[2], mapped[2];
    char byte;
    struct stat st;
    uid_t owner = 2 * (lines - 1);
    make("f", 0644);
    if (chown("f", owner, 0) || pipe(ready) || pipe(mapped))
        return 1;
    pid_t child = fork();
    if (!child) {
        int done = unshare(CLONE_NEWUSER);
        if (write(ready[1], "", 1) != 1 || read(mapped[0], &byte, 1) != 1 || done || stat("f", &st))
            _exit(97);
        tell("%d lines: %s", lines, st.st_uid == owner ? "owner" : st.st_uid == 65534 ? "nobody" : "other");
        _exit(0);
    }
    char name[60], map[4000] = "0 0 1\n";
    for (int line = 1; line < lines; line++)
        sprintf(map + strlen(map), "%d %d 1\n", 2 * line, 2 * line);
    snprintf(name, sizeof name, "/proc/%d/uid_map", child);
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    say("map", put(name, map));
    if (write(mapped[1], "", 1) != 1)
        return 1;
    ended(child);
    return 0;
}

CASE(large_maps)
{
    return owner_seen_with(32) || owner_seen_with(33);
}

/* Makes the process root of a user namespace of its own, with mounts of its own. */
static int become_root_within(void)
{
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) || put("/proc/self/uid_map", "0 0 1") ||
           put("/proc/self/setgroups", "deny") || put("/proc/self/gid_map", "0 0 1");
}

/* Flags that root of a user namespace sets on a mount from outside it, and clears again. */
CASE(flags_set_within)
{
    mkdir("d", 0755);
    if (mount("none", "d", "tmpfs", 0, NULL) || become_root_within())
        return 1;
    say("set", mount(NULL, "d", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID, NULL));
    say("clear", mount(NULL, "d", NULL, MS_REMOUNT | MS_BIND, NULL));
    return 0;
}

/* A descriptor that was opened under other credentials, or by another process. */
CASE(link_of_the_parent)
{
    chmod(".", 0777);
    int fd = open("f", O_CREAT | O_RDWR, 0666);
    if (fchown(fd, 1000, 1000) || setresuid(1000, 1000, 1000))
        return 1;
    IN_CHILD {
        say("link", linkat(fd, "", AT_FDCWD, "x", AT_EMPTY_PATH));
        fd = open("f", O_RDWR);
        say("own", linkat(fd, "", AT_FDCWD, "y", AT_EMPTY_PATH));
    }
    return 0;
}

/* A device without CAP_MKNOD. */
CASE(device_without_capability)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2];
    mkdir("d", 0755);
    if (mount("none", "d", "tmpfs", 0, NULL) || mknod("d/null", S_IFCHR | 0666, makedev(1, 3)))
        return 1;
    syscall(SYS_capget, &header, sets);
    sets[0].effective = sets[0].permitted = sets[0].permitted & ~(1u << CAP_MKNOD);
    say("capset", syscall(SYS_capset, &header, sets));
    say("open", open("d/null", O_RDWR));
    return 0;
}

/* A FIFO that the process may not open again, once it has changed its user. */
CASE(splice_of_another_user)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/p", host);
    chmod(".", 0777);
    if (mkfifo(name, 0600))
        return 1;
    int fifo = open(name, O_RDWR), fd = open("f", O_CREAT | O_RDWR, 0666);
    unlink(name);
    if (write(fifo, "text", 4) != 4 || setresuid(1000, 1000, 1000))
        return 1;
    say("splice", splice(fifo, NULL, fd, NULL, 4, 0));
    return 0;
}
