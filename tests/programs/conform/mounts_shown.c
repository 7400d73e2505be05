/* Options of a tmpfs and a ramfs: which are taken, and what mountinfo, mounts and statmount(2) show. */
#include "mounts.h"
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

enum { FLAG, STRING, CREATE = 6, RECONFIGURE = 7 };
enum { FROM_FD = 4 };

static int apart(void)
{
    return apart_with("a");
}

/* Kernels differ in whether they show the width of inode numbers that nobody has asked for. */
static void without_width(char *options, const char *asked)
{
    for (int wide = 0; wide < 2; wide++) {
        char *found = strstr(options, wide ? ",inode64" : ",inode32");
        if (found && !(wide && strstr(asked, "inode64")))
            memmove(found, found + 8, strlen(found + 8) + 1);
    }
}

/* What /proc shows of the mount "a". */
static void show_a(const char *asked)
{
    char line[4096];
    FILE *table = fopen("/proc/self/mountinfo", "r");
    while (fgets(line, sizeof line, table)) {
        char *options = strstr(line, " - ");
        char *end = options ? strstr(line, "/a ") : NULL;
        if (!end || end > options)
            continue;
        without_width(options, asked);
        say("  mountinfo:%.*s", (int)strcspn(options + 2, "\n"), options + 2);
    }
    fclose(table);
    table = fopen("/proc/self/mounts", "r");
    while (fgets(line, sizeof line, table)) {
        char *end = strstr(line, "/a ");
        if (!end)
            continue;
        without_width(end, asked);
        say("  mounts:%.*s", (int)strcspn(end + 2, "\n"), end + 2);
    }
    fclose(table);
}

static void try(const char *kind, unsigned long flags, const char *options)
{
    char text[256];
    snprintf(text, sizeof text, "mount %s %lx \"%.100s\"", kind, flags, options ?: "(null)");
    if (TN(text, mount("none", "a", kind, flags, options)))
        return;
    show_a(options ?: "");
    struct stat root;
    if (!stat("a", &root))
        say("  mode %o, owner %d %d", root.st_mode, (int)root.st_uid, (int)root.st_gid);
    TN("umount", umount("a"));
}

GROUP(mounts, options_shown)
{
    static const char *const options[] = {
        NULL, "", "mode=1777", "mode=0", "mode=777", "mode=17777", "mode=0700", "mode=8", "mode=-1", "mode=", "mode",
        "mode=0x1ff", "mode=77777777777", "mode=+755", "mode=700,mode=755", "uid=0", "uid=7,gid=8", "uid=-1", "gid=-1",
        "uid=4294967295", "uid=4294967296", "uid=", "uid", "uid=0x10", "uid=010", "uid= 1", "uid=+1", "uid=08",
        "uid=1,uid=2", "size=0", "size=1", "size=64k", "size=64K", "size=4096", "size=0%", "size=1%x", "size=1x",
        "size=", "size", "size=-1", "size=+1", "size=0x1000", "size=010k", "size=1m", "size=1g", "size=1t", "size=1p",
        "size=1e", "size=1E", "size=16e", "size=18446744073709551615", "size=1kk", "nr_blocks=0", "nr_blocks=10",
        "nr_blocks=1k", "nr_blocks=-1", "nr_blocks=10%", "nr_blocks=9223372036854775808", "nr_blocks=10,size=1m",
        "size=1m,nr_blocks=10", "nr_inodes=0", "nr_inodes=10", "nr_inodes=1k", "nr_inodes=1t", "nr_inodes=-1",
        "nr_inodes=9223372036854775807", "nr_inodes=10%", "huge=never", "huge=bad", "huge=", "huge", "huge=deny",
        "huge=force", "huge=Always", "huge=1", "noswap", "noswap=1", "noswap=", "swap", "inode32", "inode64",
        "inode64,inode32", "inode32,inode64", "inode64=1", "ro", "rw", "ro,rw", "rw,ro", "ro=1", "sync", "async", "dirsync",
        "mand", "nomand", "lazytime", "nolazytime", "sync,async", "sync,dirsync,mand,lazytime", "nodirsync", "nosuid",
        "noatime", "relatime", "silent", "iversion", "defaults", "source=x", "source=", "source", ",", "size=1m,",
        "size=1m,,nr_inodes=8", "size=1m, nr_inodes=8", "Size=1m", "=", "=x", "foo", "foo=bar", "size=1m,foo",
        "size=1m,5", "noswap,size=1m,nr_inodes=7,mode=700,uid=1,gid=2,mpol=bind:0,inode64,sync", "context=x", "seclabel",
    };
    if (!apart())
        return;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        try("tmpfs", 0, options[i]);
    static const unsigned long flags[] = {MS_SYNCHRONOUS, MS_DIRSYNC, MS_MANDLOCK, MS_LAZYTIME, MS_RDONLY};
    static const char *const clearing[] = {NULL, "async", "nomand", "nolazytime", "rw", "ro,sync"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        for (size_t j = 0; j < sizeof clearing / sizeof *clearing; j++)
            try("tmpfs", flags[i], clearing[j]);
    /* Huge pages, as far as the kernel has them. */
    if (!mount("none", "a", "tmpfs", 0, "huge=always")) {
        umount("a");
        try("tmpfs", 0, "huge=always");
        try("tmpfs", 0, "huge=within_size");
        try("tmpfs", 0, "size=1m,huge=advise,noswap");
    }
}

GROUP(mounts, memory_policy)
{
    static const char *const policies[] = {
        "default", "local", "bind:0", "bind:0,0", "bind:0-0", "bind:", "bind", "bind:x", "bind:0-", "bind:1-0",
        "bind:999", "prefer", "prefer:0", "prefer:0-1", "prefer:0,0", "prefer:", "interleave:0", "interleave:",
        "weighted interleave:0", "prefer (many):0", "prefer (many)", "bad", "", "bind=static:0", "bind=relative:0",
        "bind=bad:0", "bind=:0", "default:0", "default=static", "default=bad", "local:0", "local=static", "prefer=static",
        "prefer=static:0", "preferred", "bind:0=static", "bind:0,size=1m", "bind:0,0,size=1m", "Bind:0",
    };
    if (!apart())
        return;
    try("tmpfs", 0, "mpol");
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char text[64];
        snprintf(text, sizeof text, "mpol=%s", policies[i]);
        try("tmpfs", 0, text);
    }
}

static void again(const char *before, unsigned long flags, const char *after)
{
    char text[256];
    if (mount("none", "a", "tmpfs", 0, before)) {
        say("mount %s: %s", before, strerrorname_np(errno));
        return;
    }
    snprintf(text, sizeof text, "\"%s\", then %lx \"%s\"", before, flags, after ?: "(null)");
    TN(text, mount("none", "a", NULL, MS_REMOUNT | flags, after));
    char asked[256];
    snprintf(asked, sizeof asked, "%s,%s", before, after);
    show_a(asked);
    umount("a");
}

GROUP(mounts, options_remounted)
{
    static const char *const pairs[][2] = {
        {"", "noswap"}, {"noswap", "size=1m"}, {"noswap", "noswap"}, {"", "inode32"}, {"inode32", "inode64"}, {"inode64", ""},
        {"", "size=1m"}, {"size=1m", ""}, {"size=1m", "size=0"}, {"size=0", "size=1m"}, {"size=0", "size=0"},
        {"size=0", "nr_inodes=5"}, {"nr_inodes=0", "nr_inodes=5"}, {"nr_inodes=0", "nr_inodes=0"}, {"nr_inodes=5", "nr_inodes=0"},
        {"nr_inodes=5", "nr_inodes=1"}, {"nr_inodes=5", "size=1m"}, {"size=1m", "nr_inodes=5,size=2m"}, {"", "mode=700"},
        {"mode=700", ""}, {"mode=700,uid=5,gid=6", "mode=755,uid=1,gid=2"}, {"", "mpol=bind:0"}, {"mpol=bind:0", ""},
        {"mpol=bind:0", "mpol=default"}, {"mpol=bind:0", "mpol=local"}, {"", "mpol=bad"}, {"", "huge=bad"}, {"", "uid=-1"},
        {"", "sync"}, {"", "ro"}, {"", "dirsync"}, {"dirsync", ""}, {"dirsync", "dirsync"}, {"sync", ""}, {"mand", ""}, {"", "mand"},
        {"lazytime", ""}, {"", "lazytime"}, {"lazytime", "nolazytime"}, {"lazytime", "size=1m"}, {"ro", ""}, {"ro", "rw"},
        {"ro", "ro"}, {"", "source=x"}, {"", "source=x,source=y"}, {"", "foo"}, {"size=1m", "nr_blocks=3"},
        {"size=1m,nr_inodes=5", "foo,size=2m"}, {"size=1m", "size=2m,foo"},
    };
    if (!apart())
        return;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        again(pairs[i][0], 0, pairs[i][1]);
    again("lazytime", MS_LAZYTIME, "");
    again("", MS_SYNCHRONOUS, "");
    again("", MS_DIRSYNC, "");
    again("", MS_MANDLOCK, NULL);
    again("", MS_SYNCHRONOUS, "async");
    again("dirsync,sync,mand", MS_RDONLY, "");
    again("", MS_RDONLY, "rw");
    /* Without limits there is no size. */
    struct statfs st;
    T(mount("none", "a", "tmpfs", 0, "size=0,nr_inodes=0"));
    T(statfs("a", &st));
    say("%ld %ld %ld %ld %ld", st.f_blocks, st.f_bfree, st.f_bavail, st.f_files, st.f_ffree);
    make("a/f", "text");
    T(umount("a"));
}

GROUP(mounts, option_texts)
{
    if (!apart())
        return;
    static char text[3 * 4096];
    static const int lengths[] = {1000, 1023, 1024, 1025, 4000, 4090, 4095, 4096, 4097, 8000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(text, ',', sizeof text);
        memset(text + lengths[i], 0, 1);
        memcpy(text + lengths[i] - 7, "size=1m", 7);
        say("options of %d bytes", lengths[i]);
        T(mount("none", "a", "tmpfs", 0, text));
        show_a("");
        T(umount("a"));
        memset(text, 's', sizeof text);
        text[lengths[i]] = 0;
        say("source, type of %d bytes", lengths[i]);
        TN("source", mount(text, "a", "tmpfs", 0, NULL));
        umount("a");
        TN("type", mount("none", "a", text, 0, NULL));
    }
    /* Memory that ends before the text does. */
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    memcpy(pages + 4096 - 8, "size=64k", 8);
    TN("to the end of memory", mount("none", "a", "tmpfs", 0, pages + 4096 - 8));
    show_a("");
    umount("a");
    TN("options nowhere", mount("none", "a", "tmpfs", 0, pages + 4096));
    TN("type to the end of memory", mount("none", "a", pages + 4096 - 8, 0, ""));
    TN("source to the end of memory", mount(pages + 4096 - 8, "a", "tmpfs", 0, ""));
    TN("bad options, and a bad path", mount("none", "b", "tmpfs", 0, "foo"));
    TN("options nowhere, and a bad path", mount("none", "b", "tmpfs", 0, pages + 4096));
    TN("bad options of a bind", mount("a", "a", NULL, MS_BIND, "foo"));
    umount("a");
    TN("options nowhere, of a bind", mount("a", "a", NULL, MS_BIND, pages + 4096));
    TN("bad options of another type", mount("none", "a", "no_such", 0, "foo"));
    TN("bad options without a type", mount("none", "a", NULL, 0, "foo"));
    TN("empty type", mount("none", "a", "", 0, ""));
    TN("subtype", mount("none", "a", "tmpfs.x", 0, ""));
    TN("empty source", mount("", "a", "tmpfs", 0, ""));
    show_a("");
    umount("a");
    TN("no source", mount(NULL, "a", "tmpfs", 0, ""));
    show_a("");
    umount("a");
    TN("source as an option", mount(NULL, "a", "tmpfs", 0, "source=y,size=1m"));
    show_a("");
    umount("a");
    TN("source as an option twice", mount(NULL, "a", "tmpfs", 0, "source=y,source=y"));
    TN("source as an option besides", mount("x", "a", "tmpfs", 0, "source=y"));
    TN("source that needs escapes", mount("a b\tc\\d#e", "a", "tmpfs", 0, ""));
    show_a("");
    umount("a");
}

GROUP(mounts, ramfs)
{
    static const char *const options[] = {NULL, "mode=700", "mode=755", "mode=8", "mode", "size=1m", "foo", "foo=bar", "ro",
                                          "sync,mand", "source=x", "size=x,mode=711"};
    if (!apart())
        return;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        try("ramfs", 0, options[i]);
    struct statfs st;
    T(mount("none", "a", "ramfs", 0, NULL));
    T(statfs("a", &st));
    say("type %lx, %ld %ld %ld %ld %ld", (long)st.f_type, st.f_blocks, st.f_bfree, st.f_bavail, st.f_files, st.f_ffree);
    make("a/f", "text");
    T(mkdir("a/d", 0755));
    T(umount("a"));
}

static int config(int fd, int command, const char *key, const char *value)
{
    char text[128];
    snprintf(text, sizeof text, "%s=%.40s", key ?: "", value ?: "(flag)");
    return TN(text, syscall(SYS_fsconfig, fd, command, key, value, 0));
}

GROUP(mounts, options_by_fsconfig)
{
    static const char *const options[][2] = {
        {"size", "1m"}, {"nr_inodes", "9"}, {"mode", "710"}, {"uid", "3"}, {"gid", "4"}, {"noswap", NULL}, {"noswap", "1"},
        {"inode64", NULL}, {"mpol", "bind:0"}, {"mpol", "bind:0,0"}, {"huge", "bad"}, {"sync", NULL}, {"lazytime", NULL},
        {"mand", "x"}, {"dirsync", NULL}, {"nomand", NULL}, {"source", "s"}, {"source", "t"}, {"uid", "-1"}, {"size", NULL},
        {"size", "1m,nr_inodes=7"}, {"foo", NULL}, {"", "x"},
    };
    if (!apart())
        return;
    int fs = T(syscall(SYS_fsopen, "tmpfs", 0));
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        config(fs, options[i][1] ? STRING : FLAG, options[i][0], options[i][1]);
    T(syscall(SYS_fsconfig, fs, CREATE, NULL, NULL, 0));
    int mount_fd = T(syscall(SYS_fsmount, fs, 0, 0));
    T(syscall(SYS_move_mount, mount_fd, "", AT_FDCWD, "a", FROM_FD));
    T(close(mount_fd) | close(fs));
    show_a("inode64");
    fs = T(syscall(SYS_fspick, AT_FDCWD, "a", 0));
    config(fs, STRING, "size", "2m");
    config(fs, STRING, "source", "other");
    config(fs, STRING, "source", "another");
    config(fs, FLAG, "nolazytime", NULL);
    config(fs, STRING, "mode", "700");
    config(fs, STRING, "mpol", "local");
    T(syscall(SYS_fsconfig, fs, RECONFIGURE, NULL, NULL, 0));
    show_a("inode64");
    config(fs, FLAG, "nodirsync", NULL);
    config(fs, FLAG, "dirsync", NULL);
    T(syscall(SYS_fsconfig, fs, RECONFIGURE, NULL, NULL, 0));
    T(close(fs));
    show_a("inode64");
    T(umount("a"));
}

/* The mount "a" itself, and its file system: which of them is read-only. */
static void say_read_only(void)
{
    char line[4096], point[1024], own[8];
    FILE *table = fopen("/proc/self/mountinfo", "r");
    while (fgets(line, sizeof line, table))
        if (sscanf(line, "%*s %*s %*s %*s %1023s %7[rwo]", point, own) == 2 && !strcmp(strrchr(point, '/'), "/a"))
            say("  mount %s, file system %.2s", own, strrchr(line, ' ') + 1);
    fclose(table);
}

/* struct mnt_id_req and struct statmount, as far as they are read. */
struct request {
    unsigned size, spare;
    unsigned long id, what, space;
};
struct answer {
    unsigned size, options;
    unsigned long mask;
    unsigned major, minor;
    unsigned long magic;
    unsigned flags, type;
    unsigned long id, parent;
    unsigned old_id, old_parent;
    unsigned long attributes, propagation, peers, master, from;
    unsigned root, point;
    unsigned long space;
    unsigned subtype, source, count, array, security_count, security_array;
    unsigned long rest[46];
    char text[1024];
};

GROUP(mounts, options_by_statmount)
{
    enum { STATMOUNT = 457, WIDE_ID = 0x4000, BASIC = 1 | 2 | 0x20 | 0x80 | 0x200 | 0x400 };
    static const struct {
        const char *kind, *source, *options;
        unsigned long flags;
    } mounts[] = {
        {"tmpfs", "some source", "size=64k,mode=700,uid=3,mpol=bind:0,noswap,inode64", 0},
        {"tmpfs", "s", "inode64,mode=700", MS_MANDLOCK | MS_DIRSYNC | MS_LAZYTIME | MS_RDONLY | MS_NOSYMFOLLOW},
        {"tmpfs", "s", "inode64,mand,sync", MS_NOATIME},
        {"ramfs", "", "mode=711", MS_NOSUID},
        {"ramfs", "s", NULL, 0},
    };
    if (!apart())
        return;
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        static struct answer is;
        struct statx found = {0};
        T(mount(mounts[i].source, "a", mounts[i].kind, mounts[i].flags, mounts[i].options));
        TN("statx", syscall(SYS_statx, AT_FDCWD, "a", 0, WIDE_ID, &found));
        struct request request = {sizeof request, 0, ((unsigned long *)&found)[18], BASIC, 0};
        memset(&is, 0, sizeof is);
        if (!TN("statmount", syscall(STATMOUNT, &request, &is, sizeof is, 0))) {
            say("  mask %lx, magic %lx, flags %x, attributes %lx", is.mask, is.magic, is.flags, is.attributes);
            say("  type %s, source %s", is.text + is.type, is.text + is.source);
            if (is.mask & 0x80)
                say("  options %s", is.text + is.options);
            for (unsigned at = is.array, n = 0; n < is.count; n++, at += strlen(is.text + at) + 1)
                say("  option %s", is.text + at);
        }
        T(umount("a"));
    }
}

GROUP(mounts, read_only_by_fsmount)
{
    if (!apart())
        return;
    for (int which = 0; which < 4; which++) {
        int fs = T(syscall(SYS_fsopen, "tmpfs", 0));
        config(fs, FLAG, which & 1 ? "ro" : "rw", NULL);
        T(syscall(SYS_fsconfig, fs, CREATE, NULL, NULL, 0));
        int mount_fd = T(syscall(SYS_fsmount, fs, 0, which >> 1));
        T(syscall(SYS_move_mount, mount_fd, "", AT_FDCWD, "a", FROM_FD));
        T(close(mount_fd) | close(fs));
        say_read_only();
        T(umount("a"));
    }
}
