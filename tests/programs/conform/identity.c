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

static void make_all(void)
{
    umask(0);
    chmod(".", 0777);
    for (unsigned i = 0; i < COUNT(files); i++) {
        char dir[32];
        make(files[i].name, "");
        snprintf(dir, sizeof dir, "%s.d", files[i].name);
        make_dir(dir);
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

static int set_caps(uint32_t effective, uint32_t permitted)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { { effective, permitted, 0 }, { 0, 0, 0 } };
    return syscall(SYS_capset, &header, data);
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
            if (set_caps(effective, permitted) != 0)
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
