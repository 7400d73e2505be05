/* access, faccessat2: whose rights count, for all combinations of ids, capabilities and securebits. */
#include "conform.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <sys/prctl.h>

static const struct {
    const char *name;
    uid_t owner;
    gid_t group;
    mode_t mode;
} files[] = {
    { "none", 0, 0, 0 },         { "root", 0, 0, 0700 },         { "user", 4321, 4321, 0700 }, { "member", 0, 4321, 0070 },
    { "others", 0, 0, 0007 },    { "not-owner", 4321, 0, 0077 }, { "run", 0, 0, 0001 },        { "read", 0, 0, 0444 },
    { "other", 1234, 4321, 0 },
};

/* Something that everybody may use, if they get there. */
static void make_within(const char *dir)
{
    char name[32], link[32];
    snprintf(name, sizeof name, "%s/in", dir);
    make(name, "");
    chmod(name, 0777);
    snprintf(link, sizeof link, "%s.l", dir);
    symlink(name, link);
    snprintf(name, sizeof name, "%s/d", dir);
    make_dir(name);
}

static void make_all(void)
{
    umask(0);
    chmod(".", 0777);
    for (unsigned i = 0; i < COUNT(files); i++) {
        char dir[32];
        make(files[i].name, "");
        snprintf(dir, sizeof dir, "%s.d", files[i].name);
        make_dir(dir);
        make_within(dir);
        chown(files[i].name, files[i].owner, files[i].group);
        chown(dir, files[i].owner, files[i].group);
        chmod(files[i].name, files[i].mode);
        chmod(dir, files[i].mode);
    }
}

/* One digit for each file and directory: the modes that are granted, of those without others. */
static void look(const char *text)
{
    char by_real[2 * COUNT(files) + 1] = "", by_effective[2 * COUNT(files) + 1] = "";
    for (unsigned i = 0; i < 2 * COUNT(files); i++) {
        char name[32];
        snprintf(name, sizeof name, i % 2 ? "%s.d" : "%s", files[i / 2].name);
        int real = 0, effective = 0;
        for (int mode = 1; mode < 8; mode *= 2) {
            real |= faccessat(AT_FDCWD, name, mode, 0) == 0 ? mode : 0;
            effective |= syscall(SYS_faccessat2, AT_FDCWD, name, mode, AT_EACCESS) == 0 ? mode : 0;
        }
        by_real[i] = '0' + real;
        by_effective[i] = '0' + effective;
    }
    say("%s: %s %s", text, by_real, by_effective);
}

/* What lies behind the directories, by several ways: errors of access as the real user, of what is there and
 * of what is not, and as the effective one. */
static void look_within(const char *text)
{
    static const char *const ways[] = { "%s.d/in", "%s.d/d/../in", "%s.d.l", "./%s.d//in", "%s.d/none", "%s.d/none/in" };
    char found[4 * COUNT(files) * COUNT(ways) + 1] = "", *to = found;
    for (unsigned i = 0; i < COUNT(files); i++)
        for (unsigned way = 0; way < COUNT(ways); way++) {
            char name[64];
            snprintf(name, sizeof name, ways[way], files[i].name);
            int f_ok = access(name, F_OK) ? errno : 0, x_ok = faccessat(AT_FDCWD, name, W_OK | X_OK, 0) ? errno : 0;
            int effective = syscall(SYS_faccessat2, AT_FDCWD, name, R_OK, AT_EACCESS) ? errno : 0;
            int link = syscall(SYS_faccessat2, AT_FDCWD, name, F_OK, AT_SYMLINK_NOFOLLOW) ? errno : 0;
            to += sprintf(to, "%c%c%c%c", '0' + f_ok, '0' + x_ok, '0' + effective, '0' + link);
        }
    say("%s: %s", text, found);
    struct stat st;
    unsigned reached = 0;
    for (unsigned i = 0; i < COUNT(files); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.d/in", files[i].name);
        reached = reached << 1 | !stat(name, &st);
        if (open(name, O_PATH) >= 0)
            reached |= 1 << 16;
    }
    say("  others than access: %x", reached);
}

static const uid_t ids[] = { 0, 4321, 65534 };

GROUP(identity, ids)
{
    if (geteuid() != 0)
        return;
    make_all();
    for (unsigned i = 0; i < 27; i++)
        for (int bits = 0; bits <= SECBIT_NO_SETUID_FIXUP; bits += SECBIT_NO_SETUID_FIXUP) {
            uid_t real = ids[i % 3], effective = ids[i / 3 % 3], fs = ids[i / 9];
            if (fork() == 0) {
                char text[64];
                snprintf(text, sizeof text, "users %d %d %d%s", real, effective, fs, bits ? " without fixup" : "");
                setgroups(0, NULL);
                if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) != 0)
                    say("securebits");
                syscall(SYS_setresuid, real, effective, 0);
                syscall(SYS_setfsuid, fs);
                look(text);
                _exit(0);
            }
            wait(NULL);
            if (bits)
                continue;
            if (fork() == 0) {
                char text[64];
                snprintf(text, sizeof text, "groups %d %d %d", real, effective, fs);
                setgroups(0, NULL);
                syscall(SYS_setresgid, real, effective, 0);
                syscall(SYS_setfsgid, fs);
                syscall(SYS_setresuid, 65534, 65534, 65534);
                look(text);
                _exit(0);
            }
            wait(NULL);
        }
}

/* The whole walk is the real user's. */
GROUP(identity, ways)
{
    if (geteuid() != 0)
        return;
    make_all();
    for (unsigned i = 0; i < 27; i++) {
        uid_t real = ids[i % 3], effective = ids[i / 3 % 3], fs = ids[i / 9];
        char text[64];
        if (fork() == 0) {
            gid_t group = 4321;
            setgroups(i % 2, &group);
            syscall(SYS_setresuid, real, effective, 0);
            syscall(SYS_setfsuid, fs);
            snprintf(text, sizeof text, "users %d %d %d", real, effective, fs);
            look_within(text);
            _exit(0);
        }
        wait(NULL);
        if (fork() == 0) {
            setgroups(0, NULL);
            syscall(SYS_setresgid, real, effective, 0);
            syscall(SYS_setfsgid, fs);
            syscall(SYS_setresuid, 65534, 65534, 65534);
            snprintf(text, sizeof text, "groups %d %d %d", real, effective, fs);
            look_within(text);
            _exit(0);
        }
        wait(NULL);
    }
    for (unsigned i = 0; i < 8; i++) {
        uint32_t permitted = i & 1 ? 1 << CAP_DAC_OVERRIDE : 1 << CAP_DAC_READ_SEARCH;
        uid_t user = i & 4 ? 65534 : 0;
        if (fork() == 0) {
            char text[64];
            setgroups(0, NULL);
            prctl(PR_SET_KEEPCAPS, 1);
            syscall(SYS_setresuid, user, user, user);
            set_capabilities(i & 2 ? permitted : 0, permitted);
            snprintf(text, sizeof text, "user %d, %x of %x", user, i & 2 ? permitted : 0, permitted);
            look_within(text);
            chdir("others.d");
            TN("from within", access("in", R_OK));
            _exit(0);
        }
        wait(NULL);
    }
}

GROUP(identity, capabilities)
{
    static const uint32_t sets[] = { 0, 1 << CAP_DAC_OVERRIDE, 1 << CAP_DAC_READ_SEARCH };
    if (geteuid() != 0)
        return;
    make_all();
    for (unsigned i = 0; i < 36; i++) {
        int bits = i % 2 ? SECBIT_NO_SETUID_FIXUP : 0;
        uint32_t effective = sets[i / 2 % 3], permitted = effective | sets[i / 6 % 3];
        uid_t user = i / 18 ? 65534 : 0;
        if (fork() == 0) {
            char text[64];
            snprintf(text, sizeof text, "user %d, %x of %x%s", user, effective, permitted, bits ? " without fixup" : "");
            setgroups(0, NULL);
            prctl(PR_SET_KEEPCAPS, 1);
            prctl(PR_SET_SECUREBITS, bits | SECBIT_KEEP_CAPS, 0, 0, 0);
            syscall(SYS_setresuid, user, user, user);
            if (set_capabilities(effective, permitted) != 0)
                say("capset");
            look(text);
            if (fork() == 0) {
                look("  child");
                _exit(0);
            }
            wait(NULL);
            _exit(0);
        }
        wait(NULL);
    }
}

static void *thread(void *unused)
{
    (void)unused;
    look("thread, before");
    syscall(SYS_setresuid, 4321, 4321, 0);
    look("thread, user");
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
    syscall(SYS_setresuid, -1, 0, -1);
    look("thread, root");
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
    look("thread, without fixup");
    return NULL;
}

GROUP(identity, threads)
{
    if (geteuid() != 0)
        return;
    make_all();
    setgroups(0, NULL);
    pthread_t id;
    pthread_create(&id, NULL, thread, NULL);
    pthread_join(id, NULL);
    look("the other");
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
    CHILD {
        syscall(SYS_setresuid, 4321, 0, 0);
        look("after it");
    }
}

/* More supplementary groups than most programs have. */
GROUP(identity, many_groups)
{
    if (geteuid() != 0)
        return;
    static gid_t groups[250];
    for (unsigned i = 0; i < COUNT(groups); i++)
        groups[i] = 1000 + i;
    make("file", "of a group");
    T(chown("file", 0, 1100));
    T(chmod("file", 0040));
    CHILD {
        T(setgroups(COUNT(groups), groups));
        T(setresuid(65534, 65534, 65534));
        T(open("file", O_RDONLY) >= 0);
        CHILD T(open("file", O_RDONLY) >= 0);
    }
}
