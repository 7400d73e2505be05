/* file_getattr(2), file_setattr(2), and the requests of ioctl(2) for the same flags. */
#include "conform.h"
#include <linux/fs.h>
#include <sys/ioctl.h>

/* `struct file_attr` of linux/fs.h, which older headers lack. */
struct attr {
    uint64_t xflags;
    uint32_t extsize, nextents, projid, cowextsize;
};

static long get(int dir, const char *path, void *to, size_t size, unsigned flags)
{
    return syscall(468, dir, path, to, size, flags);
}

static long set(int dir, const char *path, const void *from, size_t size, unsigned flags)
{
    return syscall(469, dir, path, from, size, flags);
}

static int is_missing(void)
{
    return get(-1, "", NULL, 0, 0) < 0 && errno == ENOSYS;
}

static void say_attr(const char *path)
{
    struct attr a;
    memset(&a, 0xee, sizeof a);
    if (TN("file_getattr", get(AT_FDCWD, path, &a, sizeof a, AT_SYMLINK_NOFOLLOW)) == 0)
        say("%s: %lx %x %x %x %x", path, (long)a.xflags, a.extsize, a.nextents, a.projid, a.cowextsize);
}

GROUP(file_attr, of_types)
{
    if (is_missing())
        return;
    make("f", "text"), make_dir("d");
    mkfifo("p", 0644), symlink("f", "l");
    const char *all[] = { "f", "d", "p", "l", "none", "f/x", "" };
    for (unsigned i = 0; i < COUNT(all); i++) {
        struct attr a = { .xflags = FS_XFLAG_NODUMP };
        say_attr(all[i]);
        TN("file_setattr", set(AT_FDCWD, all[i], &a, sizeof a, AT_SYMLINK_NOFOLLOW));
        say_attr(all[i]);
    }
    struct attr a;
    T(get(AT_FDCWD, "l", &a, sizeof a, 0));
    say("%lx", (long)a.xflags);
}

GROUP(file_attr, flags)
{
    if (is_missing())
        return;
    make("f", "text"), make_dir("d"), symlink("f", "l");
    int fd = open("f", O_RDWR);
    for (unsigned bit = 0; bit < 64; bit++) {
        struct attr a = { .xflags = 1ULL << bit }, none = { 0 };
        struct fsxattr x = { .fsx_xflags = 1ULL << bit };
        say("bit %u", bit);
        TN("file", set(AT_FDCWD, "f", &a, sizeof a, 0));
        TN("directory", set(AT_FDCWD, "d", &a, sizeof a, 0));
        TN("link", set(AT_FDCWD, "l", &a, sizeof a, AT_SYMLINK_NOFOLLOW));
        TN("ioctl", ioctl(fd, FS_IOC_FSSETXATTR, &x));
        set(AT_FDCWD, "f", &none, sizeof none, 0), set(AT_FDCWD, "d", &none, sizeof none, 0);
    }
    for (unsigned field = 0; field < 4; field++) {
        struct attr a = { .xflags = FS_XFLAG_EXTSIZE | FS_XFLAG_COWEXTSIZE };
        (&a.extsize)[field] = 1;
        TN("field", set(AT_FDCWD, "f", &a, sizeof a, 0));
        a.xflags = 0;
        TN("field alone", set(AT_FDCWD, "f", &a, sizeof a, 0));
    }
}

GROUP(file_attr, sizes_and_errors)
{
    if (is_missing())
        return;
    make("f", "text");
    static char room[5000];
    size_t sizes[] = { 0, 8, 23, 24, 25, 32, 4096, 4097 };
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        memset(room, 0x7, sizeof room);
        TN("get", get(AT_FDCWD, "f", room, sizes[i], 0));
        say("%d %d %d", room[23], room[24], room[31]);
        memset(room, 0, sizeof room);
        TN("set", set(AT_FDCWD, "f", room, sizes[i], 0));
        room[24] = 1;
        TN("set more", set(AT_FDCWD, "f", room, sizes[i], 0));
    }
    struct attr bad = { .xflags = 1ULL << 40 };
    void *nowhere = (void *)8;
    T(get(AT_FDCWD, "f", room, 5000, 0x40000));
    T(get(AT_FDCWD, "none", nowhere, 24, 0));
    T(get(AT_FDCWD, "f", nowhere, 24, 0));
    T(set(AT_FDCWD, "none", nowhere, 24, 0));
    T(set(AT_FDCWD, "none", &bad, 24, 0));
    T(get(AT_FDCWD, NULL, room, 24, 0));
    T(get(AT_FDCWD, NULL, room, 24, AT_EMPTY_PATH));
    T(get(99, "", room, 24, AT_EMPTY_PATH));
    int fd = open("f", O_RDONLY), path = open("f", O_PATH);
    T(get(fd, "", room, 24, AT_EMPTY_PATH));
    T(get(path, "", room, 24, AT_EMPTY_PATH));
    T(get(fd, "x", room, 24, 0));
    T(get(fd, "", room, 24, 0));
}

GROUP(file_attr, permission)
{
    if (is_missing() || geteuid() != 0)
        return;
    make("f", "text"), make("u", "text");
    chmod(".", 0777), chown("u", 65534, 65534);
    struct attr immutable = { .xflags = FS_XFLAG_IMMUTABLE }, none = { 0 }, nodump = { .xflags = FS_XFLAG_NODUMP };
    T(set(AT_FDCWD, "f", &immutable, 24, 0));
    T(open("f", O_RDWR));
    T(unlink("f"));
    T(set(AT_FDCWD, "f", &nodump, 24, 0));
    become_nobody();
    T(set(AT_FDCWD, "f", &none, 24, 0));
    T(set(AT_FDCWD, "u", &nodump, 24, 0));
    T(set(AT_FDCWD, "u", &immutable, 24, 0));
    struct attr both = { .xflags = FS_XFLAG_IMMUTABLE | FS_XFLAG_FILESTREAM }, odd = { .xflags = FS_XFLAG_FILESTREAM };
    T(set(AT_FDCWD, "u", &both, 24, 0));
    T(set(AT_FDCWD, "u", &odd, 24, 0));
    say_attr("u");
}
