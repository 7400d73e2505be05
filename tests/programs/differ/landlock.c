/* Rules of landlock(7) on what a run needs on the host. */
#include "differ.h"
#include <linux/landlock.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <termios.h>

/* Of Linux 6.10. */
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1 << 15)
#endif

/* Restricts the process to what `directory` allows of `rights`, if any. */
static int restrict_to(const char *directory, uint64_t rights)
{
    struct landlock_ruleset_attr handled = { .handled_access_fs = rights };
    int rules = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (directory) {
        struct landlock_path_beneath_attr rule = { rights, open(directory, O_PATH | O_CLOEXEC) };
        if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
            return -1;
        close(rule.parent_fd);
    }
    int done = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, rules, 0);
    close(rules);
    return done;
}

/* What a process may read though no rule says so. */
CASE(ruled_out_cache)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/lightpath", getenv("XDG_CACHE_HOME"));
    mkdir(path, 0755);
    if (restrict_to(NULL, LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_READ_FILE))
        return 1;
    say("other", open("/usr", O_RDONLY));
    say("cache", open(path, O_RDONLY));
    return 0;
}

/* ioctl(2) on a device, which a rule allows. */
CASE(ruled_devices)
{
    struct termios settings;
    mkdir("d", 0755);
    if (mount("none", "d", "tmpfs", 0, NULL) || mknod("d/null", S_IFCHR | 0666, makedev(1, 3)))
        return 1;
    if (restrict_to("d", LANDLOCK_ACCESS_FS_IOCTL_DEV))
        return 1;
    say("ioctl", ioctl(open("d/null", O_RDWR), TCGETS, &settings));
    return 0;
}
