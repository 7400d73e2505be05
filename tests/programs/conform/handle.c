/* name_to_handle_at, open_by_handle_at. */
#include "conform.h"

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200
#endif
#define UNIQUE_MOUNT 0x1
#define CONNECTABLE 0x2

static union {
    struct file_handle head;
    char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
} handle;
static union {
    int narrow;
    uint64_t wide;
} mount_id;

static long name(int dir, const char *path, unsigned size, int flags)
{
    memset(&handle, 0, sizeof handle);
    handle.head.handle_bytes = size;
    return syscall(SYS_name_to_handle_at, dir, path, &handle, &mount_id, flags);
}

static void say_open(const char *text, int mount, int flags)
{
    errno = 0;
    int fd = syscall(SYS_open_by_handle_at, mount, &handle, flags);
    if (fd < 0) {
        say("%s: %s", text, strerrorname_np(errno));
        return;
    }
    struct stat st;
    fstat(fd, &st);
    char content[16] = "";
    if (S_ISREG(st.st_mode))
        pread(fd, content, sizeof content - 1, 0);
    say("%s: mode %o links %lu '%s' flags %x", text, st.st_mode, (unsigned long)st.st_nlink, content, fcntl(fd, F_GETFL));
    close(fd);
}

GROUP(handle, sizes)
{
    make("f", "text");
    unsigned sizes[] = { 0, 1, 11, 12, 13, 64, 128, 129, 1 << 30 };
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        TN("name", name(AT_FDCWD, "f", sizes[i], 0));
        say("%u: %u bytes, type %d", sizes[i], handle.head.handle_bytes, handle.head.handle_type);
    }
}

GROUP(handle, names)
{
    make_dir("d");
    make("f", "text");
    T(symlink("f", "l"));
    T(symlink("none", "dangling"));
    T(mkfifo("fifo", 0600));
    int dir = open("d", O_RDONLY), file = open("f", O_RDONLY), path = open("f", O_PATH), link = open("l", O_PATH | O_NOFOLLOW);
    const char *names[] = { "f", "d", "l", "dangling", "none", "fifo", "f/", "d/", ".", "", "d/../f" };
    int flags[] = { 0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, AT_HANDLE_FID, UNIQUE_MOUNT, CONNECTABLE, AT_SYMLINK_NOFOLLOW,
        CONNECTABLE | AT_HANDLE_FID, CONNECTABLE | AT_EMPTY_PATH, AT_HANDLE_FID | AT_EMPTY_PATH, 0x800000 };
    for (unsigned i = 0; i < COUNT(names); i++)
        for (unsigned f = 0; f < COUNT(flags); f++) {
            long done = name(AT_FDCWD, names[i], MAX_HANDLE_SZ, flags[f]);
            say("%s %x: %s", names[i], flags[f], done ? strerrorname_np(errno) : "");
        }
    TN("directory", name(dir, "", MAX_HANDLE_SZ, AT_EMPTY_PATH));
    TN("file", name(file, "", MAX_HANDLE_SZ, AT_EMPTY_PATH));
    TN("path", name(path, "", MAX_HANDLE_SZ, AT_EMPTY_PATH));
    TN("link", name(link, "", MAX_HANDLE_SZ, AT_EMPTY_PATH));
    TN("below a file", name(file, "x", MAX_HANDLE_SZ, 0));
    TN("closed", name(99, "x", MAX_HANDLE_SZ, 0));
    T(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", NULL, &mount_id, 0));
    T(syscall(SYS_name_to_handle_at, AT_FDCWD, NULL, &handle, &mount_id, 0));
    T(syscall(SYS_name_to_handle_at, file, NULL, &handle, &mount_id, AT_EMPTY_PATH));
    handle.head.handle_bytes = MAX_HANDLE_SZ;
    T(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", &handle, NULL, 0));
}

GROUP(handle, the_same_file_has_the_same_handle)
{
    make("f", "text");
    T(link("f", "g"));
    make("other", "");
    char first[sizeof handle];
    name(AT_FDCWD, "f", MAX_HANDLE_SZ, 0);
    memcpy(first, &handle, sizeof handle);
    int mount = mount_id.narrow;
    name(AT_FDCWD, "g", MAX_HANDLE_SZ, AT_HANDLE_FID);
    say("%d %d", !memcmp(first, &handle, sizeof handle), mount == mount_id.narrow);
    T(rename("f", "moved"));
    name(AT_FDCWD, "moved", MAX_HANDLE_SZ, 0);
    say("%d", !memcmp(first, &handle, sizeof handle));
    name(AT_FDCWD, "other", MAX_HANDLE_SZ, 0);
    say("%d", !memcmp(first, &handle, sizeof handle));
}

GROUP(handle, opening)
{
    if (geteuid() != 0)
        return;
    make_dir("d");
    make("d/f", "inside");
    T(symlink("f", "d/l"));
    int mount = open(".", O_RDONLY | O_DIRECTORY), file = open("d/f", O_RDONLY), path = open(".", O_PATH);
    TN("name", name(AT_FDCWD, "d/f", MAX_HANDLE_SZ, 0));
    say_open("by a directory", mount, O_RDONLY);
    say_open("by a file", file, O_RDWR);
    say_open("by the working directory", AT_FDCWD, O_RDONLY);
    say_open("by a path", path, O_RDONLY);
    say_open("by nothing", 99, O_RDONLY);
    say_open("write only", mount, O_WRONLY | O_APPEND);
    say_open("directory", mount, O_RDONLY | O_DIRECTORY);
    say_open("create", mount, O_RDWR | O_CREAT);
    say_open("create new", mount, O_RDWR | O_CREAT | O_EXCL);
    say_open("path", mount, O_PATH);
    say_open("not following", mount, O_RDONLY | O_NOFOLLOW);
    say_open("cut", mount, O_RDWR | O_TRUNC);
    contents("d/f");
    TN("name", name(AT_FDCWD, "d", MAX_HANDLE_SZ, 0));
    say_open("a directory", mount, O_RDONLY | O_DIRECTORY);
    say_open("a directory, to write", mount, O_RDWR);
    say_open("a directory, create", mount, O_RDONLY | O_CREAT);
    TN("name", name(AT_FDCWD, "d/l", MAX_HANDLE_SZ, 0));
    say_open("a link", mount, O_RDONLY);
    say_open("a link's path", mount, O_PATH | O_NOFOLLOW);
    int elsewhere = open("/proc", O_RDONLY);
    say_open("another file system", elsewhere, O_RDONLY);
    T(syscall(SYS_open_by_handle_at, mount, NULL, O_RDONLY));
    CHILD {
        become_nobody();
        say_open("nobody", mount, O_RDONLY);
        T(syscall(SYS_open_by_handle_at, mount, NULL, O_RDONLY));
        T(syscall(SYS_open_by_handle_at, 99, NULL, O_RDONLY));
        TN("name", name(AT_FDCWD, "d/f", MAX_HANDLE_SZ, 0));
    }
}

GROUP(handle, damaged)
{
    if (geteuid() != 0)
        return;
    make("f", "text");
    int mount = open(".", O_RDONLY | O_DIRECTORY);
    name(AT_FDCWD, "f", MAX_HANDLE_SZ, 0);
    char good[sizeof handle];
    memcpy(good, &handle, sizeof good);
    unsigned sizes[] = { 0, 4, 8, 11, 13, 128, 129 };
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        memcpy(&handle, good, sizeof good);
        handle.head.handle_bytes = sizes[i];
        say("%u bytes", sizes[i]);
        say_open("size", mount, O_RDONLY);
    }
    int types[] = { 0, 1, 2, 254, 255, -1, 0x10000, 0x20001, 0x40001 };
    for (unsigned i = 0; i < COUNT(types); i++) {
        memcpy(&handle, good, sizeof good);
        handle.head.handle_type = types[i];
        say("type %x", types[i]);
        say_open("type", mount, O_RDONLY);
    }
    for (int word = 0; word < 3; word++) {
        memcpy(&handle, good, sizeof good);
        handle.head.f_handle[4 * word + 3] ^= 0x40;
        say_open("another word", mount, O_RDONLY);
    }
    memset(handle.head.f_handle, 0, 12);
    say_open("zeros", mount, O_RDONLY);
    memset(handle.head.f_handle, 0xff, 12);
    say_open("ones", mount, O_RDONLY);
}

GROUP(handle, of_what_is_gone)
{
    if (geteuid() != 0)
        return;
    make("f", "text");
    make_dir("d");
    int mount = open(".", O_RDONLY | O_DIRECTORY), held = open("f", O_RDWR);
    TN("name", name(AT_FDCWD, "f", MAX_HANDLE_SZ, 0));
    T(unlink("f"));
    say_open("open elsewhere", mount, O_RDWR);
    int again = syscall(SYS_open_by_handle_at, mount, &handle, O_RDWR);
    T(close(held));
    T(write(again, "TE", 2));
    say_open("open by handle", mount, O_RDWR);
    T(close(again));
    say_open("closed", mount, O_RDWR);
    for (int i = 0; i < 100; i++) {
        char path[16];
        sprintf(path, "n%d", i);
        make(path, "new");
    }
    say_open("when others were made", mount, O_RDWR);
    TN("name", name(AT_FDCWD, "d", MAX_HANDLE_SZ, 0));
    int dir = open("d", O_RDONLY);
    T(rmdir("d"));
    say_open("a removed directory", mount, O_RDONLY);
    close(dir);
    say_open("a removed directory, closed", mount, O_RDONLY);
}
