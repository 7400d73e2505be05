/* Extended attributes and POSIX ACLs, as on tmpfs. */
#include "conform.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/mman.h>
#include <sys/xattr.h>

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *path)
{
    char names[4096], *sorted[64];
    ssize_t length = llistxattr(path, names, sizeof names);
    int count = 0;
    for (ssize_t at = 0; at < length; at += strlen(names + at) + 1)
        sorted[count++] = names + at;
    qsort(sorted, count, sizeof *sorted, by_text);
    say("  %s has %zd bytes of names", path, length);
    for (int i = 0; i < count; i++) {
        char value[300];
        ssize_t size = lgetxattr(path, sorted[i], value, sizeof value);
        say_bytes(sorted[i], value, size < 0 ? 0 : size);
    }
}

GROUP(attribute, user)
{
    make("f", "x");
    make_dir("d");
    T(symlink("f", "l"));
    T(mkfifo("p", 0600));
    char v[300];
    T(getxattr("f", "user.none", v, 10));
    T(listxattr("f", v, 10));
    T(setxattr("f", "user.a", "one", 3, 0));
    T(setxattr("f", "user.a", "two", 3, XATTR_CREATE));
    T(setxattr("f", "user.b", "two", 3, XATTR_REPLACE));
    T(setxattr("f", "user.a", "longer value", 12, XATTR_REPLACE));
    T(setxattr("f", "user.empty", "", 0, 0));
    T(setxattr("f", "user.b", "x", 1, 7));
    T(setxattr("f", "user.", "x", 1, 0));
    T(setxattr("f", "user", "x", 1, 0));
    T(setxattr("f", "", "x", 1, 0));
    T(setxattr("f", "other.x", "x", 1, 0));
    T(setxattr("f", "system.x", "x", 1, 0));
    T(setxattr("f", "trusted.t", "x", 1, 0));
    T(setxattr("f", "security.s", "x", 1, 0));
    list("f");
    T(getxattr("f", "user.a", v, 0));
    T(getxattr("f", "user.a", v, 5));
    T(getxattr("f", "user.a", v, 12));
    T(listxattr("f", v, 0));
    T(listxattr("f", v, 3));
    T(removexattr("f", "user.a"));
    T(removexattr("f", "user.a"));
    list("f");
    T(setxattr("d", "user.dir", "x", 1, 0));
    T(lsetxattr("l", "user.l", "x", 1, 0));
    T(lsetxattr("l", "trusted.l", "x", 1, 0));
    T(setxattr("l", "user.through", "x", 1, 0));
    T(setxattr("p", "user.p", "x", 1, 0));
    T(setxattr("p", "trusted.p", "x", 1, 0));
    list("d"), list("l"), list("p"), list("f");
    int fd = T(open("f", O_RDONLY)), path = T(open("f", O_PATH));
    T(fsetxattr(fd, "user.fd", "y", 1, 0));
    T(fgetxattr(fd, "user.fd", v, 10));
    T(flistxattr(fd, v, 300));
    T(fremovexattr(fd, "user.fd"));
    T(fsetxattr(path, "user.fd", "y", 1, 0));
    T(fgetxattr(path, "user.fd", v, 1));
    T(fsetxattr(99, "user.fd", "y", 1, 0));
    T(setxattr("nosuch", "user.a", "x", 1, 0));
    char name[400];
    memset(name, 'n', sizeof name);
    memcpy(name, "user.", 5);
    name[255] = 0;
    TN("255", setxattr("f", name, "x", 1, 0));
    name[255] = 'n', name[256] = 0;
    TN("256", setxattr("f", name, "x", 1, 0));
    TN("get 256", getxattr("f", name, v, 1));
    char *big = calloc(1, 70000);
    TN("64k", setxattr("f", "user.big", big, 65536, 0));
    TN("64k+1", setxattr("f", "user.big", big, 65537, 0));
    T(getxattr("f", "user.big", NULL, 0));
    T(removexattr("f", "user.big"));
    T(link("f", "hard"));
    T(getxattr("hard", "user.through", v, 10));
    T(rename("f", "g"));
    T(getxattr("g", "user.through", v, 10));
    T(chmod("g", 0444));
    CHILD {
        become_nobody();
        T(setxattr("g", "user.x", "x", 1, 0));
        T(getxattr("g", "user.through", v, 10));
        T(getxattr("g", "trusted.t", v, 10));
        T(setxattr("g", "trusted.t", "x", 1, 0));
        T(setxattr("g", "security.s", "x", 1, 0));
        T(listxattr("g", v, 300));
        T(removexattr("g", "user.through"));
    }
    T(chmod("g", 0));
    CHILD {
        become_nobody();
        T(getxattr("g", "user.through", v, 10));
        T(listxattr("g", v, 300) >= 0);
    }
    for (int i = 0; i < 40; i++) {
        sprintf(name, "user.many%d", i);
        if (setxattr("d", name, &i, sizeof i, 0))
            say("many %d: %s", i, strerrorname_np(errno));
    }
    list("d");
}

/* acl(5) in the form of posix_acl_xattr.h */
struct entry {
    uint16_t tag, perm;
    uint32_t id;
};
static long set_acl(const char *path, const char *name, const struct entry *entries, int count)
{
    char value[4 + 64 * 8] = { 2, 0, 0, 0 };
    memcpy(value + 4, entries, count * 8);
    return setxattr(path, name, value, 4 + count * 8, 0);
}
#define ACL(path, name, ...) ({ struct entry e_[] = { __VA_ARGS__ }; set_acl(path, name, e_, COUNT(e_)); })
#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"
#define NOID 0xffffffff

GROUP(attribute, acl)
{
    if (geteuid())
        return;
    make("f", "x");
    make_dir("d");
    T(chmod("f", 0600));
    char v[300];
    T(getxattr("f", ACCESS, v, 300));
    T(ACL("f", ACCESS, { 1, 6, NOID }, { 4, 0, NOID }, { 32, 0, NOID }));
    T(getxattr("f", ACCESS, v, 300));
    attributes("f");
    T(ACL("f", ACCESS, { 1, 6, NOID }, { 2, 4, 65534 }, { 4, 0, NOID }, { 16, 4, NOID }, { 32, 0, NOID }));
    attributes("f");
    list("f");
    CHILD {
        become_nobody();
        T(open("f", O_RDONLY) > 0);
        T(open("f", O_WRONLY));
        T(access("f", R_OK));
        T(ACL("f", ACCESS, { 1, 7, NOID }, { 4, 7, NOID }, { 32, 7, NOID }));
    }
    T(chmod("f", 0600));
    list("f");
    CHILD {
        become_nobody();
        T(open("f", O_RDONLY));
    }
    T(ACL("f", ACCESS, { 1, 6, NOID }, { 4, 0, NOID }, { 8, 6, 65534 }, { 16, 6, NOID }, { 32, 0, NOID }));
    CHILD {
        become_nobody();
        T(open("f", O_RDWR) > 0);
        T(access("f", X_OK));
    }
    T(ACL("f", ACCESS, { 1, 6, NOID }, { 2, 4, 1 }, { 4, 0, NOID }, { 32, 0, NOID }));
    T(ACL("f", ACCESS, { 1, 6, NOID }, { 4, 0, NOID }));
    T(ACL("f", ACCESS, { 1, 9, NOID }, { 4, 0, NOID }, { 32, 0, NOID }));
    T(ACL("f", ACCESS, { 4, 0, NOID }, { 1, 6, NOID }, { 32, 0, NOID }));
    T(setxattr("f", ACCESS, "\1\0\0\0", 4, 0));
    T(setxattr("f", ACCESS, "x", 1, 0));
    T(ACL("f", DEFAULT, { 1, 6, NOID }, { 4, 0, NOID }, { 32, 0, NOID }));
    T(removexattr("f", ACCESS));
    attributes("f");
    T(ACL("d", DEFAULT, { 1, 7, NOID }, { 2, 5, 65534 }, { 4, 0, NOID }, { 16, 7, NOID }, { 32, 1, NOID }));
    list("d");
    attributes("d");
    make("d/f", "x");
    make_dir("d/sub");
    T(open("d/private", O_CREAT | O_RDWR, 0600) > 0);
    attributes("d/f"), attributes("d/sub"), attributes("d/private");
    list("d/f"), list("d/sub"), list("d/private");
    T(symlink("x", "d/l"));
    list("d/l");
    CHILD {
        become_nobody();
        T(open("d/f", O_RDONLY) > 0);
        T(open("d/f", O_WRONLY));
        T(open("d/private", O_RDONLY));
    }
    T(removexattr("d", DEFAULT));
    T(removexattr("d", DEFAULT));
    CHILD {
        become_nobody();
        T(removexattr("d", DEFAULT));
        T(removexattr("f", ACCESS));
        /* A file has none. */
        T(removexattr("f", DEFAULT));
        T(setxattr("f", DEFAULT, NULL, 0, 0));
        T(setxattr("f", DEFAULT, "\2\0\0\0", 4, 0));
        T(ACL("f", DEFAULT, { 1, 6, NOID }, { 4, 0, NOID }, { 32, 0, NOID }));
    }
    make("d/plain", "x");
    list("d/plain");
    T(rename("d/f", "moved"));
    list("moved");
    T(chown("moved", 5, 5));
    list("moved");
}

/* Removes both lists of a file and a directory of user 1234, which have some or none, and sets them to lists
 * that say no more than the mode, or nothing. */
static void without_lists(void)
{
    static const char *const names[] = { "f", "d", "plain", "bare", "l" };
    for (unsigned i = 0; i < COUNT(names); i++) {
        const char *name = names[i];
        say("%s", name);
        T(removexattr(name, ACCESS));
        T(removexattr(name, ACCESS));
        T(removexattr(name, DEFAULT));
        T(removexattr(name, DEFAULT));
        T(setxattr(name, ACCESS, NULL, 0, 0));
        T(setxattr(name, DEFAULT, NULL, 0, 0));
        T(setxattr(name, ACCESS, "\2\0\0\0", 4, 0));
        T(setxattr(name, DEFAULT, "\2\0\0\0", 4, XATTR_REPLACE));
        T(ACL(name, ACCESS, { 1, 6, NOID }, { 4, 4, NOID }, { 32, 0, NOID }));
        T(removexattr(name, ACCESS));
        T(lremovexattr(name, ACCESS));
        int fd = open(name, O_RDONLY);
        T(fremovexattr(fd, ACCESS));
        T(fremovexattr(fd, DEFAULT));
        close(fd);
        attributes(name);
        list(name);
    }
}

/* Who may remove a list: the file's owner, or who has CAP_FOWNER, whatever is there to remove. */
GROUP(attribute, who_may_remove_a_list)
{
    static const struct {
        const char *who;
        uid_t user;
        gid_t group;
        uint32_t capabilities;
    } callers[] = {
        { "owner", 1234, 1234, 0 },
        { "member of the group", 4321, 1234, 0 },
        { "one whom the lists name", 65534, 65534, 0 },
        { "another", 4321, 4321, 0 },
        { "another, CAP_FOWNER", 4321, 4321, 1 << CAP_FOWNER },
        { "another, CAP_DAC_OVERRIDE", 4321, 4321, 1 << CAP_DAC_OVERRIDE },
        { "root without capabilities", 0, 0, 0 },
    };
    if (geteuid() != 0)
        return;
    chmod(".", 0777);
    T(symlink("f", "l"));
    for (unsigned i = 0; i < COUNT(callers); i++) {
        make("f", "x"), make("plain", "x"), make_dir("d"), make_dir("bare");
        T(ACL("f", ACCESS, { 1, 6, NOID }, { 2, 6, 65534 }, { 4, 4, NOID }, { 16, 6, NOID }, { 32, 0, NOID }));
        T(ACL("d", ACCESS, { 1, 7, NOID }, { 2, 7, 65534 }, { 4, 5, NOID }, { 16, 7, NOID }, { 32, 5, NOID }));
        T(ACL("d", DEFAULT, { 1, 7, NOID }, { 2, 7, 65534 }, { 4, 5, NOID }, { 16, 7, NOID }, { 32, 5, NOID }));
        T(chown("f", 1234, 1234) | chown("plain", 1234, 1234) | chown("d", 1234, 1234) | chown("bare", 1234, 1234));
        CHILD {
            say("%s", callers[i].who);
            prctl(PR_SET_KEEPCAPS, 1);
            setgroups(0, NULL);
            T(setresgid(callers[i].group, callers[i].group, callers[i].group));
            T(setresuid(callers[i].user, callers[i].user, callers[i].user));
            T(set_capabilities(callers[i].capabilities, callers[i].capabilities));
            without_lists();
        }
        T(unlink("f") | unlink("plain") | rmdir("d") | rmdir("bare"));
    }
    /* A file that nobody may change, though the caller is its owner and has all capabilities. */
    make("f", "x");
    int fd = open("f", O_RDONLY), flag = FS_IMMUTABLE_FL, none = 0;
    T(ACL("f", ACCESS, { 1, 6, NOID }, { 2, 6, 65534 }, { 4, 4, NOID }, { 16, 6, NOID }, { 32, 0, NOID }));
    T(ioctl(fd, FS_IOC_SETFLAGS, &flag));
    T(removexattr("f", ACCESS));
    T(removexattr("f", DEFAULT));
    T(ioctl(fd, FS_IOC_SETFLAGS, &none));
    T(removexattr("f", ACCESS));
    attributes("f");
}

/* A file's capabilities, as setcap(8) stores them: who may set and remove them, and what takes them away. */
GROUP(attribute, capabilities)
{
    static const char valid[24] = { 1, 0, 0, 2, 0, 32 };
    static const char *const name = "security.capability", *const other = "security.other";
    static const struct {
        uid_t user;
        uint32_t capabilities;
    } callers[] = { { 0, ~0u }, { 0, 1u << CAP_SETFCAP }, { 0, 1 << CAP_SYS_ADMIN }, { 1234, 0 }, { 1234, 1u << CAP_SETFCAP }, { 4321, 0 }, { 4321, 1 << CAP_FOWNER } };
    if (geteuid() != 0)
        return;
    chmod(".", 0777);
    char value[64];
    for (unsigned i = 0; i < COUNT(callers); i++) {
        make("f", "x"), make("g", "x");
        T(chown("f", 1234, 1234) | chown("g", 1234, 1234));
        T(setxattr("g", name, valid, 20, 0));
        T(setxattr("g", other, "x", 1, 0));
        CHILD {
            say("user %u, %x", callers[i].user, callers[i].capabilities);
            prctl(PR_SET_KEEPCAPS, 1);
            setgroups(0, NULL);
            uint32_t all = callers[i].capabilities & permitted_capabilities();
            T(setresuid(callers[i].user, callers[i].user, callers[i].user));
            T(set_capabilities(all, all));
            T(setxattr("f", name, valid, 20, XATTR_REPLACE));
            T(setxattr("f", name, valid, 20, 0));
            T(setxattr("f", name, valid, 19, 0));
            T(setxattr("f", name, valid, 24, 0));
            T(setxattr("f", name, "\1\0\0\0", 4, 0));
            T(setxattr("f", name, valid, 0, 0));
            T(setxattr("f", other, "x", 1, 0));
            T(getxattr("g", name, value, sizeof value));
            T(getxattr("g", other, value, sizeof value));
            T(removexattr("g", name));
            T(removexattr("g", name));
            T(removexattr("g", other));
        }
        list("f"), list("g");
        T(unlink("f") | unlink("g"));
    }
    make("f", "text");
    for (int change = 0; change < 6; change++) {
        T(setxattr("f", name, valid, 20, 0));
        int fd = open("f", O_RDWR);
        switch (change) {
        case 0: T(write(fd, "w", 1)); break;
        case 1: T(ftruncate(fd, 2)); break;
        case 2: T(chown("f", 1, 1)); break;
        case 3: T(chown("f", -1, -1)); break;
        case 4: T(chmod("f", 0755)); break;
        case 5: T(rename("f", "g") | rename("g", "f")); break;
        }
        close(fd);
        T(getxattr("f", name, value, sizeof value));
    }
}

/* The set-group-ID bit of a new file in another group's directory goes by the mode before the umask. */
GROUP(attribute, setgid_and_umask)
{
    if (geteuid() != 0)
        return;
    make_dir("d");
    T(chown("d", 0, 1234));
    T(chmod("d", 02777));
    CHILD {
        become_nobody();
        int masks[] = { 0, 010, 077, 022 };
        int modes[] = { 02777, 02767, 02770, 02010, 02000, 0777 };
        for (unsigned i = 0; i < COUNT(masks); i++)
            for (unsigned m = 0; m < COUNT(modes); m++) {
                umask(masks[i]);
                int fd = open("d/f", O_CREAT | O_RDWR | O_EXCL, modes[m]);
                struct stat st;
                fstat(fd, &st);
                say("umask %o mode %o: %o %u", masks[i], modes[m], st.st_mode, st.st_gid);
                close(fd);
                T(unlink("d/f"));
                T(mknod("d/p", S_IFIFO | modes[m], 0));
                attributes("d/p");
                T(unlink("d/p"));
            }
        umask(010);
        T(mkdir("d/sub", 02777));
        attributes("d/sub");
        int fd = open("d", O_TMPFILE | O_RDWR, 02777);
        attributes_fd(fd);
    }
}

/* Removing an access list of a file whose group is another one, even if there is none. */
GROUP(attribute, setgid_without_a_list)
{
    if (geteuid() != 0)
        return;
    make("f", "text");
    make_dir("d");
    for (int group = 1234; group; group = group == 1234 ? 65534 : 0) {
        T(chown("f", 65534, group));
        T(chown("d", 65534, group));
        for (int way = 0; way < 3; way++) {
            T(chmod("f", 02755));
            T(chmod("d", 02755));
            CHILD {
                become_nobody();
                const char *name = way == 2 ? "system.posix_acl_default" : "system.posix_acl_access";
                T(way == 1 ? setxattr("f", name, "\2\0\0\0", 4, 0) : removexattr("f", name));
                T(way == 1 ? setxattr("d", name, "\2\0\0\0", 4, 0) : removexattr("d", name));
            }
            attributes("f");
            attributes("d");
        }
    }
    T(chown("f", 0, 1234));
    T(chmod("f", 02755));
    T(removexattr("f", "system.posix_acl_access"));
    attributes("f");
}

/* fs.protected_*: names in directories that others may write to, as the host is set. */
GROUP(attribute, protected_names)
{
    if (geteuid() != 0)
        return;
    int modes[] = { 01777, 0777, 01770, 01775 };
    for (unsigned i = 0; i < COUNT(modes); i++) {
        char dir[8] = "d0";
        dir[1] += i;
        make_dir(dir);
        T(chown(dir, 1000, 65534));
        T(chmod(dir, modes[i]));
        if (chdir(dir))
            return;
        make("target", "text");
        make("file", "text");
        T(chmod("file", 0666) | chmod("target", 0666));
        T(chown("file", 2000, 2000));
        T(symlink("target", "link"));
        T(symlink("../target", "up"));
        T(symlink(".", "here"));
        T(lchown("link", 2000, 2000) | lchown("here", 2000, 2000));
        CHILD {
            become_nobody();
            contents("link");
            contents("here/target");
            struct stat st;
            T(stat("link", &st));
            T(lstat("link", &st));
            T(access("here", R_OK));
            T(open("file", O_RDWR) > 0);
            T(open("file", O_RDWR | O_CREAT, 0600) > 0);
            T(open("file", O_RDWR | O_CREAT | O_EXCL, 0600));
            T(open("link", O_RDWR | O_CREAT, 0600) > 0);
            T(open("new", O_RDWR | O_CREAT, 0600) > 0);
            T(link("file", "another") == 0);
        }
        if (chdir(".."))
            return;
    }
}

/* An entry that no list may have comes before who may set it and what it is set on; a wrong order of entries
 * comes behind. */
GROUP(attribute, acl_faults_in_order)
{
    struct list {
        uint32_t version;
        struct {
            uint16_t tag, rights;
            uint32_t id;
        } entries[4];
    } good = { 2, { { 1, 7, -1 }, { 4, 5, -1 }, { 0x20, 5, -1 } } }, lists[7];
    for (unsigned i = 0; i < COUNT(lists); i++)
        lists[i] = good;
    lists[1].entries[1].tag = 0x40;
    lists[2].entries[1].tag = 2;
    lists[3].entries[1].tag = 8;
    lists[4].entries[1].tag = 0x20;
    lists[5].entries[1].rights = 8;
    lists[6].version = 1;
    make("f", "text");
    make_dir("d");
    T(symlink("f", "l"));
    for (int user = 0; user < 2; user++) {
        if (user)
            become_nobody();
        for (unsigned i = 0; i < COUNT(lists); i++)
            for (const char **at = (const char *[]){ "f", "d", "l", NULL }; *at; at++) {
                say("%u of %s", i, *at);
                TN("access", setxattr(*at, "system.posix_acl_access", &lists[i], 28, 0));
                TN("default", setxattr(*at, "system.posix_acl_default", &lists[i], 28, 0));
                TN("of a link", lsetxattr(*at, "system.posix_acl_access", &lists[i], 28, 0));
                TN("of a wrong size", setxattr(*at, "system.posix_acl_default", &lists[i], 27, 0));
            }
    }
}

/* Memory that ends too early for a value. */
GROUP(attribute, values_across_a_fault)
{
    static char big[5000];
    static const char *const names[] = { "user.short", "user.long", "system.posix_acl_access", NULL };
    struct {
        uint32_t version;
        struct {
            uint16_t tag, rights;
            uint32_t id;
        } entries[5];
    } acl = { 2, { { 1, 7, -1 }, { 2, 6, 1000 }, { 4, 5, -1 }, { 0x10, 7, -1 }, { 0x20, 5, -1 } } };
    int fd = make_open("f", "text", O_RDONLY);
    char *m = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *end = m + 8192;
    T(mprotect(end, 4096, PROT_NONE));
    T(setxattr("f", "user.short", "valuevalue", 10, 0));
    T(setxattr("f", "user.long", memset(big, 'b', sizeof big), sizeof big, 0));
    T(setxattr("f", "system.posix_acl_access", &acl, sizeof acl, 0));
    for (const char *const *name = names; *name; name++)
        for (int room = 0; room < 8000; room = room * 5 + 1) {
            say("%s, room for %d", *name, room);
            TN("of a path", getxattr("f", *name, end - room, 9000));
            TN("of a descriptor", fgetxattr(fd, *name, end - room, 9000));
        }
    for (int room = 0; room < 50; room += 7)
        TN("list", flistxattr(fd, end - room, 100));
}

/* A list of names that is longer than any that may be read. */
GROUP(attribute, list_too_long)
{
    static char room[70000];
    char name[256] = "user.";
    int fd = make_open("f", "", O_RDWR), set = 0;
    for (int i = 0; i < 270; i++) {
        memset(name + 5, 'n', 245);
        sprintf(name + 250, "%03d", i);
        set += !fsetxattr(fd, name, "", 0, 0);
    }
    say("%d", set);
    T(flistxattr(fd, room, 0));
    for (int size = 65535; size <= 65537; size++)
        T(flistxattr(fd, room, size));
    T(flistxattr(fd, room, sizeof room));
    T(listxattr("f", room, sizeof room));
}
