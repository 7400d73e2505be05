/* stat, lstat, fstat, statx, access, statfs: attributes of everything, and their errors. */
#include "conform.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

GROUP(stat, types)
{
    umask(0);
    make("f", "some text");
    make_dir("d");
    T(symlink("f", "l"));
    T(symlink("nowhere", "dangling"));
    T(mkfifo("p", 0644));
    T(mknod("reg", S_IFREG | 0600, 0));
    T(mknod("zero", 0600, 0));
    T(mknod("chr", S_IFCHR | 0600, makedev(1, 3)));
    T(mknod("blk", S_IFBLK | 0600, makedev(7, 200)));
    T(mknod("sock", S_IFSOCK | 0600, 0));
    T(mknod("dir", S_IFDIR | 0600, 0));
    T(mknod("lnk", S_IFLNK | 0600, 0));
    T(mknod("bad", 0170000 | 0600, 0));
    T(mknod("f", S_IFREG | 0600, 0));
    T(mknod("x/y", S_IFREG | 0600, 0));
    T(mknod("slash/", S_IFREG | 0600, 0));
    const char *names[] = { "f", "d", "l", "dangling", "p", "reg", "zero", "chr", "blk", "sock", "." };
    struct stat st, dot;
    stat(".", &dot);
    for (unsigned i = 0; i < COUNT(names); i++) {
        attributes(names[i]);
        if (!lstat(names[i], &st))
            say("same device %d inode not zero %d", st.st_dev == dot.st_dev, st.st_ino != 0);
        TN(names[i], stat(names[i], &st));
    }
    T(stat("l", &st));
    say("followed size %ld", (long)st.st_size);
    T(stat("f/", &st));
    T(lstat("l/", &st));
    T(stat("d/", &st));
    T(lstat("d/l", &st));
    T(stat("", &st));
    T(stat("f/x", &st));
    T(stat("nosuch/x", &st));
    T(fstat(99, &st));
    T(fstat(-1, &st));
}

GROUP(stat, directory_sizes_and_links)
{
    make_dir("d");
    attributes("d");
    make("d/a", "");
    attributes("d");
    make_dir("d/sub");
    make_dir("d/sub/sub");
    attributes("d");
    T(symlink("x", "d/l"));
    T(link("d/a", "d/b"));
    attributes("d");
    attributes("d/a");
    T(rename("d/sub/sub", "moved"));
    attributes("d/sub");
    attributes("moved");
    attributes(".");
    T(rename("moved", "d/back"));
    attributes("d");
    T(rmdir("d/sub"));
    T(unlink("d/a"));
    attributes("d");
    attributes("d/b");
    int fd = T(open("d/b", O_RDWR));
    T(unlink("d/b"));
    attributes_fd(fd);
    int dir = T(open("d/back", O_RDONLY));
    T(rmdir("d/back"));
    attributes_fd(dir);
    make_dir("one");
    make_dir("two");
    make_dir("one/x");
    int over = T(open("two", O_RDONLY));
    T(rename("one", "two"));
    attributes_fd(over);
    attributes("two");
}

GROUP(stat, blocks)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    long sizes[] = { 1, 4096, 4097, 100000, 1000000 };
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        char *data = calloc(1, sizes[i]);
        if (pwrite(fd, data, sizes[i], 0) != sizes[i])
            say("short");
        free(data);
        attributes_fd(fd);
    }
    T(ftruncate(fd, 5000));
    attributes_fd(fd);
    T(ftruncate(fd, 1 << 30));
    attributes_fd(fd);
    T(pwrite(fd, "x", 1, 1 << 29));
    attributes_fd(fd);
    T(ftruncate(fd, 0));
    attributes_fd(fd);
    char text[5000];
    memset(text, 's', sizeof text);
    int lengths[] = { 1, 30, 60, 100, 127, 128, 200, 1000, 4000 };
    for (unsigned i = 0; i < COUNT(lengths); i++) {
        text[lengths[i]] = 0;
        if (symlink(text, "l"))
            say("symlink failed");
        attributes("l");
        text[lengths[i]] = 's';
        unlink("l");
    }
}

static void say_statx(const char *text, long result, const struct statx *x)
{
    if (result) {
        say("%s = -1 %s", text, strerrorname_np(errno));
        return;
    }
    say("%s: mask %x blksize %u attributes %llx/%llx nlink %u owner %u:%u mode %o size %llu blocks %llu rdev %u:%u", text,
        x->stx_mask, x->stx_blksize, (unsigned long long)x->stx_attributes, (unsigned long long)x->stx_attributes_mask,
        x->stx_nlink, x->stx_uid, x->stx_gid, x->stx_mode, (unsigned long long)x->stx_size,
        (unsigned long long)x->stx_blocks, x->stx_rdev_major, x->stx_rdev_minor);
}

GROUP(stat, statx)
{
    struct statx x;
    make("f", "text");
    make_dir("d");
    T(symlink("f", "l"));
    int fd = T(open("f", O_RDONLY)), d = T(open("d", O_RDONLY));
#define X(...) ({ memset(&x, 0, sizeof x); say_statx(#__VA_ARGS__, statx(__VA_ARGS__, &x), &x); })
    X(AT_FDCWD, "f", 0, STATX_BASIC_STATS);
    say("birth %d", x.stx_btime.tv_sec != 0);
    X(AT_FDCWD, "f", 0, STATX_ALL);
    say("birth %d", x.stx_btime.tv_sec != 0);
    X(AT_FDCWD, "f", 0, STATX_BTIME);
    X(AT_FDCWD, "f", 0, STATX_SIZE);
    X(AT_FDCWD, "f", 0, 0);
    X(AT_FDCWD, "l", 0, STATX_BASIC_STATS);
    X(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS);
    X(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS);
    X(fd, "", 0, STATX_BASIC_STATS);
    X(fd, NULL, AT_EMPTY_PATH, STATX_BASIC_STATS);
    X(d, "", AT_EMPTY_PATH, STATX_BASIC_STATS);
    X(d, "x", 0, STATX_BASIC_STATS);
    X(d, "../f", 0, STATX_BASIC_STATS);
    X(99, "", AT_EMPTY_PATH, STATX_BASIC_STATS);
    X(99, "f", 0, STATX_BASIC_STATS);
    X(fd, "f", 0, STATX_BASIC_STATS);
    X(AT_FDCWD, "", AT_EMPTY_PATH, STATX_BASIC_STATS);
    X(AT_FDCWD, "nosuch", 0, STATX_BASIC_STATS);
    X(AT_FDCWD, "f", 0x40000000, STATX_BASIC_STATS);
    X(AT_FDCWD, "f", AT_STATX_FORCE_SYNC, STATX_BASIC_STATS);
    X(AT_FDCWD, "f", AT_STATX_DONT_SYNC, STATX_BASIC_STATS);
    X(AT_FDCWD, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_BASIC_STATS);
    X(AT_FDCWD, "f", AT_NO_AUTOMOUNT, STATX_BASIC_STATS);
    X(AT_FDCWD, "f", 0, 0x80000000);
    T(syscall(SYS_statx, AT_FDCWD, "f", 0, STATX_ALL, NULL));
}

GROUP(stat, access)
{
    make("r", "");
    make("w", "");
    make("x", "");
    make("n", "");
    make_dir("d");
    T(symlink("r", "l"));
    T(symlink("nosuch", "dangling"));
    T(chmod("r", 0444) | chmod("w", 0222) | chmod("x", 0111) | chmod("n", 0));
    const char *names[] = { "r", "w", "x", "n", "d", "l", "dangling", "nosuch", "", "r/", "r/y", "." };
    for (int pass = 0; pass < 2; pass++)
        CHILD {
            if (pass)
                become_nobody();
            for (unsigned i = 0; i < COUNT(names); i++) {
                say("%s", names[i]);
                for (int mode = 0; mode < 8; mode++)
                    TN("  access", access(names[i], mode));
                TN("  eaccess", faccessat(AT_FDCWD, names[i], R_OK | W_OK, AT_EACCESS));
                TN("  nofollow", faccessat(AT_FDCWD, names[i], F_OK, AT_SYMLINK_NOFOLLOW));
            }
            T(access("r", 8));
            T(access("r", -1));
            T(syscall(SYS_faccessat2, AT_FDCWD, "r", R_OK, 0x40000000));
            T(syscall(SYS_faccessat2, AT_FDCWD, "", R_OK, AT_EMPTY_PATH));
            T(syscall(SYS_faccessat2, 99, "", R_OK, AT_EMPTY_PATH));
            T(syscall(SYS_faccessat, 99, "r", R_OK));
        }
    CHILD {
        if (!geteuid() && setresuid(0, 65534, 0))
            say("setresuid failed");
        T(access("n", R_OK));
        T(faccessat(AT_FDCWD, "n", R_OK, AT_EACCESS));
    }
}

GROUP(stat, statfs)
{
    struct statfs s, t;
    memset(&s, 0, sizeof s);
    T(statfs(".", &s));
    say("type %lx bsize %ld namelen %ld frsize %ld blocks>0 %d free<=blocks %d avail<=free %d files>0 %d", (long)s.f_type,
        (long)s.f_bsize, (long)s.f_namelen, (long)s.f_frsize, s.f_blocks > 0, s.f_bfree <= s.f_blocks,
        s.f_bavail <= s.f_bfree, s.f_files > 0);
    char *data = calloc(1, 4 << 20);
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    T(write(fd, data, 4 << 20));
    T(fstatfs(fd, &t));
    say("same type %d", s.f_type == t.f_type);
    T(close(fd));
    T(unlink("f"));
    T(statfs("nosuch", &s));
    T(statfs("", &s));
    T(fstatfs(99, &s));
    make("g", "");
    T(statfs("g", &s));
    T(statfs("g/", &s));
    T(symlink("nosuch", "l"));
    T(statfs("l", &s));
    struct statvfs v;
    T(statvfs(".", &v));
    say("flag %lx namemax %lu", v.f_flag & ~0x1000UL & ~ST_NOSUID & ~ST_NODEV, v.f_namemax);
    T(pathconf(".", _PC_NAME_MAX));
    T(pathconf(".", _PC_PATH_MAX));
    T(pathconf(".", _PC_LINK_MAX));
    T(pathconf(".", _PC_2_SYMLINKS));
    T(syscall(SYS_ustat, 0, NULL));
}

/* access(2) goes by the real ids, AT_EACCESS and open(2) by those of the file system. */
GROUP(stat, access_by_three_ids)
{
    if (geteuid() != 0)
        return;
    const mode_t modes[] = { 0700, 0070, 0007, 0000 };
    const struct {
        uid_t real, effective, of_files;
    } ids[] = { { 1000, 2000, 2000 }, { 2000, 1000, 1000 }, { 0, 1000, 1000 }, { 1000, 0, 0 },
        { 2000, 2000, 1000 }, { 1000, 1000, 2000 }, { 0, 0, 1000 } };
    make_dir("d"), make("d/f", "text");
    chmod(".", 0755), chown("d/f", 1000, 1000);
    for (unsigned m = 0; m < COUNT(modes); m++) {
        chmod("d/f", modes[m]);
        for (unsigned i = 0; i < COUNT(ids); i++)
            CHILD {
                say("mode %o, ids %d %d %d", modes[m], ids[i].real, ids[i].effective, ids[i].of_files);
                syscall(SYS_setgroups, 0, NULL);
                syscall(SYS_setresgid, ids[i].real, ids[i].effective, 0);
                syscall(SYS_setresuid, ids[i].real, ids[i].effective, 0);
                syscall(SYS_setfsuid, ids[i].of_files);
                for (int asked = X_OK; asked <= R_OK; asked <<= 1) {
                    T(access("d/f", asked));
                    T(syscall(SYS_faccessat2, AT_FDCWD, "d/f", asked, AT_EACCESS));
                    T(syscall(SYS_faccessat2, AT_FDCWD, "d/f", asked, 0));
                }
                T(open("d/f", O_RDONLY) >= 0 ? 0 : -1);
                T(open("d/f", O_WRONLY) >= 0 ? 0 : -1);
            }
    }
}
