/* User namespaces: what the capabilities of a process in one do not allow. */
#include "conform.h"
#include <linux/capability.h>
#include <linux/fs.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        say("%s: %s", path, strerrorname_np(errno));
    close(fd);
}

/* Gives the caller's namespace its users and groups. */
static void map(const char *users, const char *groups)
{
    put("/proc/self/uid_map", users);
    put("/proc/self/setgroups", "deny");
    put("/proc/self/gid_map", groups);
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
        T(set_capabilities(0, 0));
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

/* What a group needs besides: files of several owners in a directory of everyone's. */
static void make_owned(void)
{
    static const struct {
        const char *name;
        int uid, gid, mode;
    } files[] = {
        { "root", 0, 0, 0600 },       { "own", 1000, 1000, 0600 },      { "closed", 1000, 1000, 0 },
        { "mixed", 1000, 1001, 0 },   { "other", 1001, 1001, 0600 },    { "shared", 1001, 1002, 0660 },
        { "high", 100005, 100007, 0 }, { "set", 1000, 1000, 06755 },
    };
    for (unsigned i = 0; i < COUNT(files); i++) {
        make(files[i].name, "text");
        chown(files[i].name, files[i].uid, files[i].gid);
        chmod(files[i].name, files[i].mode);
    }
    make_dir("sticky");
    chmod("sticky", 01777);
    make("sticky/own", "");
    chown("sticky/own", 1000, 1000);
    make("sticky/other", "");
    chown("sticky/other", 1001, 1001);
    make("sticky/mixed", "");
    chown("sticky/mixed", 1001, 1000);
    make_dir("setgid");
    chown("setgid", 1001, 1001);
    chmod("setgid", 02777);
    chmod(".", 0777);
}

static const char *const owned[] = { "root", "own", "closed", "mixed", "other", "shared", "high", "set" };

static void owner(const char *path)
{
    struct stat st;
    struct statx sx;
    if (lstat(path, &st) != 0 || statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &sx) != 0)
        say("%s: %s", path, strerrorname_np(errno));
    else
        say("%s: %o %u:%u, %u:%u", path, st.st_mode & 07777, st.st_uid, st.st_gid, sx.stx_uid, sx.stx_gid);
}

static void owner_fd(const char *text, int fd)
{
    struct stat st, empty;
    struct statx sx;
    if (fstat(fd, &st) != 0 || fstatat(fd, "", &empty, AT_EMPTY_PATH) != 0
        || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx) != 0)
        say("%s: %s", text, strerrorname_np(errno));
    else
        say("%s: %u:%u, %u:%u, %u:%u", text, st.st_uid, st.st_gid, empty.st_uid, empty.st_gid, sx.stx_uid, sx.stx_gid);
}

static void ids(void)
{
    gid_t groups[8];
    int count = getgroups(8, groups);
    say("ids: %u %u %u %u, %d groups", getuid(), geteuid(), getgid(), getegid(), count);
}

/* What the process may do with every file. */
static void use(const char *text)
{
    char name[64];
    say("%s", text);
    ids();
    for (unsigned i = 0; i < COUNT(owned); i++) {
        owner(owned[i]);
        int fd = TN("open", open(owned[i], O_RDWR));
        if (fd >= 0) {
            owner_fd("fd", fd);
            close(fd);
        }
        TN("access", access(owned[i], R_OK | W_OK));
        TN("eaccess", faccessat(AT_FDCWD, owned[i], R_OK | W_OK, AT_EACCESS));
        TN("times", utimensat(AT_FDCWD, owned[i], NULL, 0));
        TN("exact times", utimensat(AT_FDCWD, owned[i], (struct timespec[2]){ { 1, 1 }, { 2, 2 } }, 0));
        snprintf(name, sizeof name, "%s-link", owned[i]);
        TN("link", link(owned[i], name));
        TN("unlink", unlink(name));
    }
    T(open("own", O_RDONLY | O_NOATIME));
    T(open("other", O_RDONLY | O_NOATIME));
}

/* Makes a file, a directory, a symbolic link and a FIFO, and says whose they are. */
static void make_some(const char *prefix)
{
    static const char *const kinds[] = { "file", "dir", "link", "fifo" };
    char name[64];
    for (unsigned i = 0; i < COUNT(kinds); i++) {
        snprintf(name, sizeof name, "%s-%s", prefix, kinds[i]);
        int fd;
        switch (i) {
        case 0:
            fd = TN("create", open(name, O_CREAT | O_EXCL | O_RDWR, 0644));
            owner_fd(name, fd);
            close(fd);
            break;
        case 1: TN("mkdir", mkdir(name, 0755)); break;
        case 2: TN("symlink", symlink("x", name)); break;
        case 3: TN("mkfifo", mkfifo(name, 0600)); break;
        }
        owner(name);
    }
}

static void owners(void)
{
    DIR *dir = opendir(".");
    struct dirent *entry;
    char names[64][64];
    int count = 0;
    while ((entry = readdir(dir)) && count < 64)
        if (entry->d_name[0] != '.')
            strncpy(names[count++], entry->d_name, 63)[63] = 0;
    closedir(dir);
    qsort(names, count, sizeof names[0], (int (*)(const void *, const void *))strcmp);
    for (int i = 0; i < count; i++)
        owner(names[i]);
}

static void become(uid_t user)
{
    gid_t groups[] = { user, 1002 };
    setgroups(2, groups);
    T(setresgid(user, user, user));
    T(setresuid(user, user, user));
    prctl(PR_SET_DUMPABLE, 1);
}

/* A user makes a namespace in which it is root: unshare -r. */
GROUP(namespace, owners)
{
    if (geteuid() != 0)
        return;
    make_owned();
    CHILD {
        become(1000);
        use("user");
        T(unshare(CLONE_NEWUSER));
        use("no map");
        make_some("unmapped");
        T(chown("own", 0, 0));
        T(chown("own", -1, -1));
        T(chown("own", 65534, 65534));
        put("/proc/self/uid_map", "0 1000 1");
        owner("own");
        put("/proc/self/setgroups", "deny");
        put("/proc/self/gid_map", "0 1000 1");
        use("root");
        make_some("mapped");
        CHILD {
            use("child");
            make_some("child");
        }
    }
    owners();
}

GROUP(namespace, changes)
{
    if (geteuid() != 0)
        return;
    make_owned();
    CHILD {
        become(1000);
        T(unshare(CLONE_NEWUSER));
        map("7 1000 1", "8 1000 1");
        ids();
        for (unsigned i = 0; i < COUNT(owned); i++) {
            say("%s", owned[i]);
            TN("same", chown(owned[i], 7, 8));
            TN("owner", chown(owned[i], 7, -1));
            TN("group", chown(owned[i], -1, 8));
            TN("neither", chown(owned[i], -1, -1));
            TN("outside", chown(owned[i], 1000, -1));
            TN("outside group", chown(owned[i], -1, 1000));
            TN("overflow", lchown(owned[i], 65534, 65534));
            int fd = open(owned[i], O_RDONLY);
            if (fd >= 0)
                TN("fchown", fchown(fd, 0, 0));
            close(fd);
            TN("chmod", chmod(owned[i], 0640));
            TN("setgid", chmod(owned[i], 02750));
            owner(owned[i]);
        }
        T(chown("none", 0, 0));
        T(unlink("sticky/other"));
        T(unlink("sticky/mixed"));
        T(unlink("sticky/own"));
        T(mkdir("setgid/d", 0777));
        owner("setgid/d");
        T(mknod("setgid/f", S_IFREG | 02775, 0));
        owner("setgid/f");
        T(setuid(7));
        T(setuid(0));
        T(setuid(1000));
        ids();
        make_some("later");
    }
    owners();
}

/* A map with ranges, written from outside. */
static pid_t mapped_child(const char *users, const char *groups, void (*work)(void), long flags)
{
    int made[2], go[2];
    char path[64], byte;
    pipe(made);
    pipe(go);
    pid_t child = flags ? syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0) : fork();
    if (child == 0) {
        if (!flags)
            T(unshare(CLONE_NEWUSER));
        write(made[1], "m", 1);
        read(go[0], &byte, 1);
        work();
        _exit(0);
    }
    read(made[0], &byte, 1);
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    put(path, users);
    snprintf(path, sizeof path, "/proc/%d/gid_map", child);
    put(path, groups);
    write(go[1], "g", 1);
    for (int i = 0; i < 2; i++) {
        close(made[i]);
        close(go[i]);
    }
    return child;
}

static void in_ranges(void)
{
    gid_t groups[] = { 3, 20, 999 };
    ids();
    owner("high");
    owner("root");
    make_some("first");
    T(setgroups(3, groups));
    T(setresgid(7, 7, 7));
    T(setresuid(5, 5, 0));
    use("five");
    make_some("five");
    T(setresuid(0, 0, 0));
    T(setfsuid(6));
    make_some("fsuid");
    T(setfsuid(70000));
    make_some("fsuid-kept");
    T(setresuid(70000, -1, -1));
    T(chown("five-file", 65535, 999));
    T(chown("five-dir", 65536, -1));
    T(chown("five-dir", -1, 1000));
    owners();
}

GROUP(namespace, ranges)
{
    if (geteuid() != 0)
        return;
    make_owned();
    say_wait(mapped_child("0 100000 65536\n", "0 0 1\n1 100001 999\n", in_ranges, 0));
    owners();
}

static void born_there(void)
{
    use("born");
    make_some("born");
    char *const none[] = { NULL };
    char *const arguments[] = { "/bin/sh", "-c", "echo > by-sh; stat -c '%n %u:%g' by-sh own high", NULL };
    execve(arguments[0], arguments, none);
}

GROUP(namespace, cloned)
{
    if (geteuid() != 0)
        return;
    make_owned();
    say_wait(mapped_child("0 1000 1\n1 100005 10\n", "0 1000 1\n1 100007 10\n", born_there, CLONE_NEWUSER));
    owners();
}

GROUP(namespace, nested)
{
    if (geteuid() != 0)
        return;
    make_owned();
    CHILD {
        become(1000);
        T(unshare(CLONE_NEWUSER));
        map("0 1000 1", "0 1000 1");
        T(unshare(CLONE_NEWUSER));
        owner("own");
        put("/proc/self/uid_map", "33 0 1");
        put("/proc/self/gid_map", "44 0 1");
        use("nested");
        make_some("nested");
        T(chown("own", 33, 44));
        T(chown("own", 0, 0));
        CHILD {
            T(unshare(CLONE_NEWUSER));
            put("/proc/self/uid_map", "1000 33 1");
            put("/proc/self/gid_map", "1000 44 1");
            use("deep");
            make_some("deep");
        }
        /* One without a map. */
        CHILD {
            T(unshare(CLONE_NEWUSER));
            T(unshare(CLONE_NEWUSER));
            owner("own");
            make_some("lost");
        }
    }
    owners();
}

static void waits(void)
{
    pause();
}

GROUP(namespace, entered)
{
    if (geteuid() != 0)
        return;
    make_owned();
    pid_t child = mapped_child("0 1000 1\n1 100005 10\n", "0 1000 1\n1 100007 10\n", waits, CLONE_NEWUSER);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    int space = open(path, O_RDONLY), process = syscall(SYS_pidfd_open, child, 0);
    for (int by_process = 0; by_process < 2; by_process++) {
        CHILD {
            T(setns(0, CLONE_NEWUSER));
            T(setns(by_process ? process : space, CLONE_NEWUSER));
            ids();
            owner("own");
            make_some(by_process ? "early-p" : "early");
            T(setgid(0));
            T(setuid(0));
            use("inside");
            make_some(by_process ? "late-p" : "late");
            T(setns(space, CLONE_NEWUSER));
        }
    }
    kill(child, 9);
    say_wait(child);
    owners();
}

static void say_acl(const char *path)
{
    char value[256];
    long got = getxattr(path, "system.posix_acl_access", value, sizeof value);
    if (got < 0)
        say("%s: %s", path, strerrorname_np(errno));
    else
        say_bytes(path, value, got);
}

static long put_acl(const char *path, uint32_t user, uint32_t group)
{
    struct {
        uint32_t version;
        struct {
            uint16_t tag, perm;
            uint32_t id;
        } entries[6];
    } acl = { 2, { { 1, 6, -1 }, { 2, 4, user }, { 4, 0, -1 }, { 8, 6, group }, { 16, 7, -1 }, { 32, 0, -1 } } };
    return setxattr(path, "system.posix_acl_access", &acl, sizeof acl, 0);
}

static void with_lists(void)
{
    say_acl("high");
    TN("set", put_acl("own", 3, 4));
    TN("overflow", put_acl("own", 65534, 4));
    TN("no user", put_acl("own", 100, 4));
    TN("no group", put_acl("own", 3, 100));
    TN("other's", put_acl("other", 3, 4));
    TN("other's, no user", put_acl("other", 100, 4));
    say_acl("own");
    char value[8];
    TN("size", getxattr("own", "system.posix_acl_access", NULL, 0));
    TN("too small", getxattr("own", "system.posix_acl_access", value, sizeof value));
}

GROUP(namespace, acl)
{
    if (geteuid() != 0)
        return;
    make_owned();
    put_acl("high", 100005, 1002);
    say_wait(mapped_child("0 1000 1\n1 100005 10\n", "0 1000 1\n1 100007 10\n", with_lists, CLONE_NEWUSER));
    say_acl("own");
    CHILD {
        become(100007);
        T(open("own", O_RDONLY));
        T(open("own", O_RDWR));
    }
}

/* Maps with many lines, one of them in the other. */
static void lines(char *to, unsigned inside, unsigned outside, unsigned step)
{
    *to = 0;
    for (unsigned i = 0; i < 12; i++)
        sprintf(to + strlen(to), "%u %u 2\n", inside + 3 * i, outside + step * i);
}

static const unsigned many_users[] = { 0, 1, 2, 34, 35, 36 };

static void look_at_many(void)
{
    for (unsigned i = 0; i < COUNT(many_users); i++) {
        char name[16];
        sprintf(name, "m%u", many_users[i]);
        owner(name);
    }
    T(setresgid(534, 534, 534));
    T(setresuid(533, 533, 533));
    ids();
    make_some("many");
}

static void in_many(void)
{
    char text[1024];
    T(setgroups(0, NULL));
    T(setresgid(0, 0, 0));
    T(setresuid(0, 0, 0));
    for (unsigned i = 0; i < COUNT(many_users); i++) {
        char name[16];
        sprintf(name, "m%u", many_users[i]);
        TN(name, mknod(name, S_IFREG, 0));
        TN("chown", chown(name, many_users[i], many_users[i]));
        owner(name);
    }
    prctl(PR_SET_DUMPABLE, 1);
    lines(text, 500, 0, 3);
    say_wait(mapped_child(text, text, look_at_many, CLONE_NEWUSER));
}

GROUP(namespace, many)
{
    char users[1024], groups[1024];
    if (geteuid() != 0)
        return;
    chmod(".", 0777);
    lines(users, 0, 200000, 10);
    lines(groups, 0, 300000, 7);
    say_wait(mapped_child(users, groups, in_many, CLONE_NEWUSER));
    owners();
}

static pthread_barrier_t meet;

static void *other_user(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&meet);
    T(syscall(SYS_setresgid, 4, 4, 4));
    T(syscall(SYS_setresuid, 3, 3, 3));
    make_some("other");
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    owner("mine-file");
    return NULL;
}

static void with_threads(void)
{
    pthread_t thread;
    pthread_barrier_init(&meet, NULL, 2);
    pthread_create(&thread, NULL, other_user, NULL);
    make_some("before");
    T(syscall(SYS_setresuid, 0, 0, 0));
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    ids();
    make_some("mine");
    owner("other-file");
    pthread_barrier_wait(&meet);
    pthread_join(thread, NULL);
}

GROUP(namespace, threads)
{
    if (geteuid() != 0)
        return;
    chmod(".", 0777);
    say_wait(mapped_child("0 1000 1\n1 100005 10\n", "0 1000 1\n1 100007 10\n", with_threads, 0));
    owners();
}

static int in_parents_memory(void *text)
{
    owner("own");
    make_some(text);
    T(open("other", O_RDWR));
    return 0;
}

GROUP(namespace, vforked)
{
    static char stack[1 << 18] __attribute__((aligned(16)));
    if (geteuid() != 0)
        return;
    make_owned();
    CHILD {
        become(1000);
        for (int i = 0; i < 2; i++) {
            int flags = CLONE_VM | CLONE_VFORK | SIGCHLD | (i ? 0 : CLONE_NEWUSER);
            say_wait(clone(in_parents_memory, stack + sizeof stack, flags, i ? "plain" : "vforked"));
            owner("own");
            make_some(i ? "again" : "after");
        }
    }
    owners();
}

static void administer(void)
{
    static const char *const names[] = { "d/f", "d", "outside" };
    static const char capability[20] = { 1, 0, 0, 2, 0, 32 };
    for (unsigned i = 0; i < COUNT(names); i++) {
        say("%s", names[i]);
        T(setxattr(names[i], "security.a", "x", 1, 0));
        T(setxattr(names[i], "trusted.a", "x", 1, 0));
        T(setxattr(names[i], "user.a", "x", 1, 0));
        T(setxattr(names[i], "security.capability", capability, sizeof capability, 0));
        list(names[i]);
        T(removexattr(names[i], "security.b"));
        T(removexattr(names[i], "security.capability"));
        list(names[i]);
    }
}

/* Attributes on a file system that was made in the namespace, and on others. */
GROUP(namespace, file_systems_of_its_own)
{
    if (geteuid() != 0)
        return;
    make("outside", "text");
    make_dir("d");
    CHILD {
        T(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        map("0 0 1", "0 0 1");
        T(mount("none", "d", "tmpfs", 0, NULL));
        make("d/f", "text");
        administer();
        CHILD {
            T(unshare(CLONE_NEWUSER));
            map("0 0 1", "0 0 1");
            administer();
        }
        list("d/f");
        T(umount("d"));
    }
    list("outside");
}

/* The value of a file's capabilities: version, users' sets, and who must be root, if `root` is not -1. */
static int permit(const char *path, unsigned magic, int root)
{
    unsigned value[6] = { magic, 1 << CAP_NET_RAW, 0, 0, 0, root };
    return setxattr(path, "security.capability", value, root == -1 ? 20 : 24, 0);
}

static void permitted(const char *path)
{
    static const size_t sizes[] = { 0, 4, 20, 24, 64 };
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        unsigned char value[64] = { 0 };
        TN(path, getxattr(path, "security.capability", value, sizes[i]));
        say_bytes("value", value, 24);
    }
}

static void all_permitted(void)
{
    static const char *const names[] = { "short", "root", "user", "effective", "inside", "none" };
    for (unsigned i = 0; i < COUNT(names); i++)
        permitted(names[i]);
    T(permit("own", 0x02000000, -1));
    permitted("own");
    T(permit("own", 0x02000001, -1));
    permitted("own");
    T(permit("own", 0x03000000, 0));
    permitted("own");
    T(permit("own", 0x03000001, 5));
    permitted("own");
    T(permit("own", 0x03000000, 4000));
    T(permit("own", 0x03000002, 5));
    T(permit("own", 0x02000002, -1));
    T(permit("own", 0x01000000, -1));
    T(permit("other", 0x02000000, -1));
    T(permit("other", 0x02000002, -1));
}

GROUP(namespace, file_capabilities)
{
    if (geteuid() != 0)
        return;
    static const char *const names[] = { "short", "root", "user", "effective", "inside", "none", "own", "other" };
    for (unsigned i = 0; i < COUNT(names); i++)
        make(names[i], "text");
    T(chown("own", 1000, 1000));
    T(permit("short", 0x02000000, -1));
    T(permit("root", 0x03000000, 0));
    T(permit("user", 0x03000000, 5000));
    T(permit("effective", 0x03000001, 1000));
    T(permit("inside", 0x03000001, 1005));
    all_permitted();
    say_wait(mapped_child("0 1000 10\n", "0 1000 10\n", all_permitted, CLONE_NEWUSER));
    permitted("own");
    say_wait(mapped_child("0 1000 5\n7 0 1\n", "0 1000 5\n7 0 1\n", all_permitted, CLONE_NEWUSER));
    permitted("own");
}

/* As whoever runs the group. */
GROUP(namespace, plain)
{
    char line[32];
    uid_t user = geteuid();
    gid_t group = getegid();
    make("before", "text");
    make_dir("dir");
    CHILD {
        T(unshare(CLONE_NEWUSER));
        owner("before");
        make_some("early");
        sprintf(line, "3 %u 1", user);
        put("/proc/self/uid_map", line);
        put("/proc/self/setgroups", "deny");
        sprintf(line, "4 %u 1", group);
        put("/proc/self/gid_map", line);
        ids();
        owner("before");
        owner("/");
        make_some("late");
        T(chown("before", 3, 4));
        T(chown("before", user, group));
        T(chmod("dir", 0));
        T(mkdir("dir/x", 0700));
        T(rmdir("dir/x"));
        T(rename("late-file", "dir"));
        T(chmod("before", 06755));
        owner("before");
    }
    owners();
}

static void further_below(void)
{
    T(setresgid(0, 0, 0));
    T(setresuid(0, 0, 0));
    prctl(PR_SET_DUMPABLE, 1);
    pid_t child = mapped_child("7 0 1\n8 3 2\n", "9 0 1\n10 3 2\n", waits, CLONE_NEWUSER);
    FILE *file = fopen("pid", "w");
    fprintf(file, "%d", child);
    fclose(file);
    say_wait(child);
}

GROUP(namespace, entered_below)
{
    char path[64], text[16] = "";
    if (geteuid() != 0)
        return;
    make_owned();
    pid_t child = mapped_child("0 1000 1\n1 100005 10\n", "0 1000 1\n1 100007 10\n", further_below, CLONE_NEWUSER);
    for (ssize_t got = 0; got <= 0; usleep(1000)) {
        int fd = open("pid", O_RDONLY);
        got = read(fd, text, sizeof text - 1);
        close(fd);
    }
    pid_t below = atoi(text);
    unlink("pid");
    snprintf(path, sizeof path, "/proc/%d/ns/user", below);
    int space = open(path, O_RDONLY), process = syscall(SYS_pidfd_open, below, 0);
    for (int by_process = 0; by_process < 2; by_process++) {
        CHILD {
            T(setns(by_process ? process : space, CLONE_NEWUSER));
            T(setgid(10));
            T(setuid(7));
            use("below");
            make_some(by_process ? "below-p" : "below");
            T(chown("below-file", 8, 11));
            T(chown("below-file", 0, 0));
        }
    }
    kill(below, 9);
    say_wait(child);
    owners();
}
