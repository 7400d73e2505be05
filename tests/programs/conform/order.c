/* Which error comes first when several arguments are wrong. */
#include "conform.h"
#include "mounts.h"
#include <linux/fs.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define BAD ((void *)8)

/* Names that lead nowhere in several ways, one side and both. */
GROUP(order, two_paths)
{
    make_dir("d");
    make("f", "text");
    int file = open("f", O_RDONLY), dir = open("d", O_RDONLY);
    static char longer[300], below[300], of_host[300];
    memset(longer, 'n', 256);
    sprintf(below, "d/%s", longer);
    sprintf(of_host, "/proc/%s", longer);
    const struct {
        const char *text, *at;
        int fd;
    } sides[] = {
        { "none", "none", AT_FDCWD }, { "f/x", "f/x", AT_FDCWD }, { "d/none/x", "d/none/x", AT_FDCWD }, { "empty", "", AT_FDCWD },
        { "NULL", NULL, AT_FDCWD }, { "bad", BAD, AT_FDCWD }, { "closed", "x", 99 }, { "closed, absolute", "/proc/none", 99 },
        { "of a file", "x", -2 }, { "of a directory", "x", -3 }, { "host", "/proc/version", AT_FDCWD }, { "host, missing", "/none/x", AT_FDCWD },
        { "longer", longer, AT_FDCWD }, { "longer below", below, AT_FDCWD }, { "host, longer", of_host, AT_FDCWD },
    };
    for (unsigned a = 0; a < COUNT(sides); a++)
        for (unsigned b = 0; b < COUNT(sides); b++) {
            int from = sides[a].fd == -2 ? file : sides[a].fd == -3 ? dir : sides[a].fd;
            int to = sides[b].fd == -2 ? file : sides[b].fd == -3 ? dir : sides[b].fd;
            /* Nothing of the host's is to be touched. */
            if (!strncmp(sides[a].text, "host", 4) && !strncmp(sides[b].text, "host", 4))
                continue;
            say("%s to %s", sides[a].text, sides[b].text);
            TN("rename", syscall(SYS_renameat2, from, sides[a].at, to, sides[b].at, 0));
            TN("rename with bad flags", syscall(SYS_renameat2, from, sides[a].at, to, sides[b].at, 8));
            TN("link", linkat(from, sides[a].at, to, sides[b].at, 0));
        }
}

GROUP(order, times)
{
    make("f", "text");
    struct timespec bad[2] = { { 1, -1 }, { 1, 1 } }, omitted[2] = { { 1, UTIME_OMIT }, { 1, UTIME_OMIT } };
    const char *paths[] = { "f", "none", "f/x", "" };
    for (unsigned i = 0; i < COUNT(paths); i++) {
        T(utimensat(AT_FDCWD, paths[i], bad, 0));
        T(utimensat(AT_FDCWD, paths[i], omitted, 0));
        T(utimensat(AT_FDCWD, paths[i], omitted, 0x800000));
        T(utimensat(AT_FDCWD, paths[i], bad, 0x800000));
    }
    int fd = open("f", O_RDWR);
    T(syscall(SYS_utimensat, fd, NULL, bad, 0));
    T(syscall(SYS_utimensat, fd, NULL, omitted, 7));
}

GROUP(order, values)
{
    make("f", "text");
    const char *paths[] = { "f", "none", "f/x" };
    for (unsigned i = 0; i < COUNT(paths); i++) {
        T(setxattr(paths[i], "user.a", BAD, 5, 0));
        T(setxattr(paths[i], "user.a", NULL, 5, 0));
        T(setxattr(paths[i], "user.a", NULL, 0, XATTR_REPLACE));
        T(setxattr(paths[i], "trusted.a", BAD, 5, 0));
        T(setxattr(paths[i], "nothing.a", BAD, 5, 0));
        T(setxattr(paths[i], "user.a", BAD, 5, 9));
        T(setxattr(paths[i], "", BAD, 5, 0));
        T(setxattr(paths[i], "user.a", BAD, 65537, 0));
    }
    T(setxattr(NULL, "user.a", "x", 1, 9));
    T(getxattr(NULL, "", NULL, 0));
    T(truncate(NULL, -1));
    T(syscall(SYS_openat, AT_FDCWD, NULL, O_CREAT | O_DIRECTORY, 0644));
    struct open_how how = { .flags = O_PATH | O_RDWR };
    T(syscall(SYS_openat2, AT_FDCWD, NULL, &how, sizeof how));
}

GROUP(order, of_descriptors)
{
    make_dir("d");
    int file = make_open("f", "text", O_RDWR), path = open("f", O_PATH), dir = open("d", O_RDONLY), reader = open("f", O_RDONLY);
    T(open("d", O_RDONLY | O_DIRECT));
    T(open("d", O_PATH | O_DIRECT) >= 0);
    int all[] = { file, path, dir, reader, 99 };
    char room[16];
    struct iovec vector = { room, sizeof room };
    for (unsigned i = 0; i < COUNT(all); i++) {
        int fd = all[i];
        say("descriptor %u", i);
        TN("mmap", (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, -4096) == -1 ? -1 : 0);
        TN("mmap", (long)mmap(NULL, 0, PROT_READ, 0, fd, 0) == -1 ? -1 : 0);
        TN("mmap", (long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 1) == -1 ? -1 : 0);
        TN("preadv2", syscall(SYS_preadv2, fd, &vector, 1, 0, 0, 8));
        TN("preadv2", syscall(SYS_preadv2, fd, &vector, 1, 0, 0, 0x800));
        TN("readahead", syscall(SYS_readahead, fd, 0, INT64_MIN));
        TN("sync_file_range", syscall(SYS_sync_file_range, fd, -1, 0, 0));
        TN("sync_file_range", syscall(SYS_sync_file_range, fd, 0, 0, 8));
        TN("seals", fcntl(fd, F_ADD_SEALS, 0x400));
        TN("seals", fcntl(fd, F_ADD_SEALS, 1));
        TN("fallocate", fallocate(fd, 0x80, 0, 10));
        TN("fallocate", fallocate(fd, 0x400, 0, 10));
        TN("fallocate", fallocate(fd, 0x80, -1, 10));
    }
}

/* NULL is no empty path to these. */
GROUP(order, null_and_empty_paths)
{
    int fd = make_open("f", "text", O_RDWR), all[] = { fd, AT_FDCWD, 99 };
    for (unsigned i = 0; i < COUNT(all); i++) {
        TN("fchownat", fchownat(all[i], NULL, -1, -1, AT_EMPTY_PATH));
        TN("fchmodat2", syscall(452, all[i], NULL, 0644, AT_EMPTY_PATH));
        TN("fchownat, empty", fchownat(all[i], "", -1, -1, AT_EMPTY_PATH));
        TN("fchmodat2, empty", syscall(452, all[i], "", 0755, AT_EMPTY_PATH));
    }
    struct timespec times[2] = { { 5, 5 }, { 6, 6 } };
    int more[] = { fd, open("f", O_PATH), open(".", O_TMPFILE | O_RDWR, 0600), open("/proc/version", O_RDONLY), open("/dev/null", O_RDWR), 99, AT_FDCWD };
    const char *paths[] = { NULL, "" };
    for (unsigned i = 0; i < COUNT(more); i++)
        for (unsigned n = 0; n < COUNT(paths); n++) {
            say("descriptor %u, %s", i, paths[n] ? "empty" : "NULL");
            TN("linkat", linkat(more[i], paths[n], AT_FDCWD, "x1", 0));
            TN("linkat, itself", linkat(more[i], paths[n], AT_FDCWD, "x2", AT_EMPTY_PATH));
            TN("linkat, to", linkat(AT_FDCWD, "f", more[i], paths[n], AT_EMPTY_PATH));
            TN("linkat, both", linkat(more[i], paths[n], AT_FDCWD, paths[n], AT_EMPTY_PATH));
            TN("utimensat", syscall(SYS_utimensat, more[i], paths[n], times, 0));
            TN("utimensat, itself", syscall(SYS_utimensat, more[i], paths[n], times, AT_EMPTY_PATH));
            TN("utimensat, bad", syscall(SYS_utimensat, more[i], paths[n], BAD, 0));
            TN("utimensat, the link", syscall(SYS_utimensat, more[i], paths[n], times, AT_SYMLINK_NOFOLLOW));
            TN("futimesat", syscall(SYS_futimesat, more[i], paths[n], NULL));
        }
}

/* The flags of an open of what /proc/self/fd leads to come before what is there. */
GROUP(order, reopened)
{
    make("f", "text"), make_dir("d");
    int file = make_open("f", "text", O_RDWR), dir = open("d", O_RDONLY), bare = open(".", O_TMPFILE | O_RDWR, 0600);
    int all[] = { file, dir, bare }, flags[] = { O_TMPFILE, O_TMPFILE | O_RDWR, O_TMPFILE | O_CREAT | O_RDWR, O_CREAT | O_EXCL, O_CREAT | O_EXCL | O_DIRECTORY, O_TMPFILE & ~O_DIRECTORY };
    for (unsigned i = 0; i < COUNT(all); i++)
        for (unsigned n = 0; n < COUNT(flags); n++) {
            char path[40];
            sprintf(path, "/proc/self/fd/%d", all[i]);
            TN("open", open(path, flags[n], 0600) < 0 ? -1 : 0);
            struct open_how how = { .flags = flags[n], .mode = flags[n] & (O_CREAT | 020000000) ? 0600 : 0 };
            TN("openat2, small", syscall(SYS_openat2, AT_FDCWD, path, &how, 8));
        }
}

/* splice(2) and the like between files, directories, pipes and what is closed, with offsets that cannot be
 * read. */
GROUP(order, moving)
{
    make("f", "text"), make_dir("d");
    int pipes[2];
    if (pipe2(pipes, O_NONBLOCK))
        return;
    int all[] = { open("f", O_RDONLY), open("f", O_WRONLY), open("f", O_PATH), open("d", O_RDONLY), pipes[0], pipes[1], open("/proc/version", O_PATH), -1 };
    off_t zero = 0, negative = -1, *offsets[] = { NULL, &zero, &negative, BAD };
    for (unsigned a = 0; a < COUNT(all); a++)
        for (unsigned b = 0; b < COUNT(all); b++) {
            if (fcntl(all[a], F_GETFD) >= 0 && a >= 4 && b >= 4)
                continue;
            say("from %u to %u", a, b);
            TN("tee", tee(all[a], all[b], 5, 2));
            TN("tee, bad flags", tee(all[a], all[b], 5, 16));
            TN("tee, nothing", tee(all[a], all[b], 0, 0));
            for (unsigned i = 1; i < COUNT(offsets); i++) {
                TN("splice", splice(all[a], offsets[i], all[b], NULL, 5, SPLICE_F_NONBLOCK));
                TN("splice", splice(all[a], NULL, all[b], offsets[i], 5, SPLICE_F_NONBLOCK));
                TN("sendfile", syscall(SYS_sendfile, all[b], all[a], offsets[i], 5));
                TN("copy_file_range", copy_file_range(all[a], offsets[i], all[b], NULL, 5, i == 1));
                zero = 0, negative = -1;
                char rest[100];
                while (read(pipes[0], rest, sizeof rest) > 0) {}
            }
        }
}

GROUP(order, long_names)
{
    make("f", "text"), make_dir("d");
    char longer[300], below[310];
    memset(longer, 'n', 256), longer[256] = 0;
    sprintf(below, "d/%s/", longer);
    const char *all[] = { "f", "none", "none/x", "f/x", ".", "d/..", longer, below, "", NULL, BAD };
    for (unsigned a = 0; a < COUNT(all); a++)
        for (unsigned b = 0; b < COUNT(all); b++)
            if (a == 6 || a == 7 || b == 6 || b == 7) {
                say("%u to %u", a, b);
                for (unsigned flags = 0; flags < 6; flags++)
                    TN("rename", syscall(SYS_renameat2, AT_FDCWD, all[a], AT_FDCWD, all[b], flags));
                TN("link", link(all[a], all[b]));
            }
}

GROUP(order, executing)
{
    make("f", "text"), make("x", "text"), chmod("x", 0755);
    static char *none[] = { NULL };
    int file = open("f", O_RDONLY), dir = open(".", O_RDONLY), program = open("x", O_RDONLY), path = open("x", O_PATH);
    int all[] = { AT_FDCWD, file, dir, program, path, 99 };
    const char *paths[] = { "f", "x", "none", "f/x", ".", "", NULL, BAD };
    /* 0x10000: AT_EXECVE_CHECK. */
    int flags[] = { 0, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, 1, 1 | AT_EMPTY_PATH, 0x10000, 0x10000 | AT_EMPTY_PATH };
    for (unsigned i = 0; i < COUNT(all); i++)
        for (unsigned n = 0; n < COUNT(paths); n++)
            for (unsigned k = 0; k < COUNT(flags); k++)
                TN("execveat", syscall(SYS_execveat, all[i], paths[n], none, none, flags[k]));
}

/* The descriptor comes before what the address names. */
GROUP(order, addresses)
{
    int pair[2] = { -1, -1 };
    make("f", "text"), socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    int all[] = { -1, 99, open("f", O_RDWR), open("f", O_PATH), open("/dev/null", O_RDWR),
        socket(AF_UNIX, SOCK_DGRAM, 0), socket(AF_UNIX, SOCK_STREAM, 0), socket(AF_UNIX, SOCK_SEQPACKET, 0),
        pair[0], socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_DGRAM, 0),
        socket(AF_INET6, SOCK_STREAM, 0), socket(AF_INET6, SOCK_DGRAM, 0), socket(AF_NETLINK, SOCK_RAW, 0) };
    struct sockaddr_un missing = { AF_UNIX, "none/s" }, plain = { AF_UNIX, "f" }, node = { AF_UNIX, "s" };
    struct sockaddr_un outside = { AF_UNIX, "o" };
    socklen_t lengths[] = { sizeof missing, 5 };
    mknod("s", S_IFSOCK | 0777, 0), symlink("/none/s", "o");
    for (unsigned i = 0; i < COUNT(all); i++)
        for (unsigned k = 0; k < COUNT(lengths); k++) {
            say("descriptor %u, length %u", i, lengths[k]);
            const struct sockaddr_un *to[] = { &missing, &plain, &node, &outside };
            for (unsigned n = 0; n < COUNT(to); n++) {
                struct iovec piece = { "x", 1 };
                struct mmsghdr message = { { (void *)to[n], lengths[k], &piece, 1, NULL, 0, 0 }, 0 };
                TN("connect", connect(all[i], (void *)to[n], lengths[k]));
                TN("bind", bind(all[i], (void *)to[n], lengths[k]));
                TN("sendto", sendto(all[i], "x", 1, MSG_NOSIGNAL, (void *)to[n], lengths[k]));
                TN("sendto out of band",
                    sendto(all[i], "x", 1, MSG_NOSIGNAL | MSG_OOB, (void *)to[n], lengths[k]));
                TN("sendmsg", sendmsg(all[i], &message.msg_hdr, MSG_NOSIGNAL));
                TN("sendmmsg", sendmmsg(all[i], &message, 1, MSG_NOSIGNAL));
            }
        }
}

/* Calls on attributes copy names and values before they look for the descriptor. */
GROUP(order, names_of_values)
{
    int path = (make("f", "text"), open("f", O_PATH)), all[] = { path, 99 };
    static char room[5000];
    struct {
        uint64_t value;
        uint32_t size, flags;
        char rest[5000];
    } arguments = { (uint64_t)room, 5, 0 };
    for (unsigned i = 0; i < COUNT(all); i++) {
        TN("fsetxattr", fsetxattr(all[i], "", "x", 1, 0));
        TN("fsetxattr", fsetxattr(all[i], "user.a", BAD, 1, 0));
        TN("fgetxattr", fgetxattr(all[i], "", room, 5));
        TN("fremovexattr", fremovexattr(all[i], BAD));
    }
    if (syscall(464, -1, "", 0, "", NULL, 0) < 0 && errno == ENOSYS)
        return;
    size_t sizes[] = { 0, 15, 16, 17, 4096, 4097 };
    const char *paths[] = { "f", "none" };
    for (unsigned i = 0; i < COUNT(sizes); i++)
        for (unsigned n = 0; n < COUNT(paths); n++)
            for (unsigned k = 0; k < 2; k++) {
                arguments.rest[0] = k;
                TN("setxattrat", syscall(463, AT_FDCWD, paths[n], 0, "user.a", &arguments, sizes[i]));
                TN("getxattrat", syscall(464, AT_FDCWD, paths[n], 0, "user.a", &arguments, sizes[i]));
                TN("getxattrat, bad flags", syscall(464, AT_FDCWD, paths[n], 1, "user.a", &arguments, sizes[i]));
            }
}

GROUP(order, dedupe)
{
    make("f", "text"), make_dir("d");
    int all[] = { open("f", O_RDONLY), open("f", O_WRONLY), open("d", O_RDONLY), open("f", O_PATH), 99 };
    for (unsigned i = 0; i < COUNT(all); i++) {
        struct file_dedupe_range range = { .src_length = 4 };
        TN("dedupe", ioctl(all[i], FIDEDUPERANGE, &range));
        range.reserved1 = 1;
        TN("dedupe", ioctl(all[i], FIDEDUPERANGE, &range));
        TN("dedupe", ioctl(all[i], FIDEDUPERANGE, BAD));
    }
}

GROUP(order, handles)
{
    make("f", "text"), symlink("f", "l"), make_dir("d");
    const char *all[] = { "f", "l", "d" };
    int flags[] = { O_RDONLY, O_PATH, O_CREAT | O_EXCL, O_CREAT, O_NOFOLLOW, O_DIRECTORY | O_CREAT };
    for (unsigned i = 0; i < COUNT(all); i++) {
        struct {
            struct file_handle head;
            char room[128];
        } handle = { .head.handle_bytes = 128 };
        int id;
        if (name_to_handle_at(AT_FDCWD, all[i], &handle.head, &id, 0))
            return;
        for (unsigned n = 0; n < COUNT(flags); n++)
            TN("open_by_handle_at", open_by_handle_at(AT_FDCWD, &handle.head, flags[n]) < 0 ? -1 : 0);
    }
}

static void of_closed(int dir)
{
    static char dots[4097];
    for (unsigned i = 0; i < 4096; i++)
        dots[i] = i % 2 ? '/' : '.';
    struct stat st;
    struct open_how how = { .flags = O_RDONLY }, wrong = { .flags = O_RDONLY, .resolve = 1 << 9 };
    TN("open", openat(dir, "x", O_RDONLY));
    TN("open of nothing", openat(dir, "", O_RDONLY));
    TN("open of NULL", openat(dir, NULL, O_RDONLY));
    TN("open of a long path", openat(dir, dots, O_RDONLY));
    TN("open with wrong flags", openat(dir, "x", O_TMPFILE | O_CREAT | O_RDWR, 0600));
    TN("open for reading of a new one", openat(dir, "x", O_TMPFILE | O_RDONLY, 0600));
    TN("openat2", syscall(SYS_openat2, dir, "x", &how, sizeof how));
    TN("openat2 with wrong flags", syscall(SYS_openat2, dir, "x", &wrong, sizeof wrong));
    TN("openat2 of a wrong size", syscall(SYS_openat2, dir, "x", &how, 5000));
    TN("stat", fstatat(dir, "x", &st, 0));
    TN("stat of a long path", fstatat(dir, dots, &st, 0));
    TN("stat of NULL", fstatat(dir, NULL, &st, 0));
    TN("stat of itself", fstatat(dir, "", &st, AT_EMPTY_PATH));
    TN("stat with wrong flags", fstatat(dir, "x", &st, 1));
    TN("absolute", fstatat(dir, "/", &st, 0));
    TN("mkdir", mkdirat(dir, "x", 0755));
    TN("unlink with wrong flags", unlinkat(dir, "x", 1));
    TN("rename with wrong flags", syscall(SYS_renameat2, dir, "x", dir, "y", 8));
    TN("rename", renameat(dir, "x", AT_FDCWD, "y"));
    TN("rename", renameat(AT_FDCWD, "f", dir, "y"));
    TN("rename to NULL", renameat(AT_FDCWD, "f", dir, NULL));
    TN("link", linkat(dir, "x", AT_FDCWD, "y", 0));
    TN("link", linkat(AT_FDCWD, "f", dir, "y", 0));
    TN("symlink to nothing", symlinkat("", dir, "x"));
    TN("chmod", fchmodat(dir, "x", 0600, 0));
    TN("chown with wrong flags", fchownat(dir, "x", 0, 0, 1));
    TN("times", utimensat(dir, "x", (struct timespec[2]){ { 0, -1 } }, 0));
    TN("times of NULL", syscall(SYS_utimensat, dir, NULL, NULL, 0));
    TN("access", syscall(SYS_faccessat2, dir, "x", 8, 0));
    TN("readlink", readlinkat(dir, "x", (char[9]){ 0 }, 0));
    TN("execute", syscall(SYS_execveat, dir, "x", NULL, NULL, 1));
}

/* A number that was a directory of this file system, and is closed: what is found before it comes first. */
GROUP(order, of_closed_directories)
{
    make_dir("d");
    make("f", "text");
    int dir = open("d", O_RDONLY);
    T(close(dir));
    of_closed(dir);
    dir = open("d", O_RDONLY);
    T(close_range(dir, dir, 0));
    of_closed(dir);
    of_closed(-1);
}

/* move_mount(2), whose first path is read after the second was walked. */
GROUP(order, moved_mounts)
{
    if (geteuid() != 0)
        return;
    make_dir("d");
    make("f", "");
    static const struct {
        const char *text, *at;
        int fd;
    } sides[] = { { "d", "d", AT_FDCWD }, { "f", "f", AT_FDCWD }, { "none", "none", AT_FDCWD }, { "empty", "", AT_FDCWD }, { "bad", BAD, AT_FDCWD },
        { "NULL", NULL, AT_FDCWD }, { "closed", "x", 99 }, { "bad closed", BAD, 99 }, { "empty closed", "", 99 }, { "host", "/proc", AT_FDCWD },
        { "host, missing", "/none/x", AT_FDCWD } };
    static const unsigned flags[] = { 0, 4, 0x40, 0x44, 0x80000000 };
    for (unsigned a = 0; a < COUNT(sides); a++)
        for (unsigned b = 0; b < COUNT(sides); b++)
            for (unsigned i = 0; i < COUNT(flags); i++) {
                /* Nothing of the host's is to be moved. */
                if (!strncmp(sides[a].text, "host", 4))
                    continue;
                char text[100];
                snprintf(text, sizeof text, "%s to %s, %x", sides[a].text, sides[b].text, flags[i]);
                TN(text, syscall(SYS_move_mount, sides[a].fd, sides[a].at, sides[b].fd, sides[b].at, flags[i]));
            }
}

/* Numbers of files that were closed, with something else that is wrong. */
GROUP(order, of_closed_numbers)
{
    char byte[16];
    struct iovec one = { byte, 1 }, negative = { byte, -1 };
    loff_t at = -5;
    struct stat st;
    int kept = make_open("f", "text", O_RDWR), fd = dup(kept);
    close(fd);
    T(pread(fd, byte, 1, -1));
    T(pwrite(fd, byte, 1, -1));
    T(pread(fd, BAD, 1, 0));
    T(preadv(fd, &one, 1, -1));
    T(pwritev(fd, &one, 1, -1));
    T(readv(fd, &negative, 1));
    T(readv(fd, BAD, 1));
    T(readv(fd, &one, 2000));
    T(preadv2(fd, &one, 1, -2, 0));
    T(preadv2(fd, &one, 1, 0, 0x1000));
    T(flock(fd, 99));
    T(flock(fd, LOCK_SH));
    T(lseek(fd, 0, 99));
    T(ftruncate(fd, -1));
    T(fallocate(fd, 99, 0, 1));
    T(fallocate(fd, 0, -1, 1));
    T(fsetxattr(fd, "", "x", 1, 0));
    T(fsetxattr(fd, "user.a", "x", 1, 99));
    T(fsetxattr(fd, "user.a", BAD, 1, 0));
    T(fgetxattr(fd, "", byte, 1));
    T(fgetxattr(fd, BAD, byte, 1));
    T(fremovexattr(fd, ""));
    T(flistxattr(fd, byte, -1));
    T(fchmod(fd, -1));
    T(fchown(fd, 1, 1));
    T(fstat(fd, BAD));
    T(syscall(SYS_getdents64, fd, BAD, 10));
    T(fcntl(fd, 99, 0));
    T(fcntl(fd, F_SETFL, O_APPEND));
    T(fcntl(fd, F_DUPFD, -1));
    T(fcntl(fd, 1027, kept));
    T(fcntl(kept, 1027, fd));
    T(fcntl(1, 1027, fd));
    T(fsync(fd));
    T(syscall(SYS_sync_file_range, fd, -1, 5, 99));
    T(posix_fadvise(fd, 0, 0, 99));
    T(readahead(fd, -1, 1));
    T(syncfs(fd));
    T(copy_file_range(fd, &at, kept, NULL, 1, 99));
    T(sendfile(kept, fd, &at, 1));
    T(sendfile(fd, kept, BAD, 1));
    T(splice(fd, &at, kept, NULL, 1, 99));
    T(syscall(SYS_epoll_wait, fd, byte, 0, 0));
    T(syscall(SYS_epoll_wait, fd, byte, 1, 0));
    T(ioctl(fd, 99, 0));
    T((long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0));
    T((long)mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 1));
    T(openat(fd, "x", 99));
    T(openat(fd, BAD, 0));
    T(fstatat(fd, "x", &st, 99));
    T(fchdir(fd));
}

/* epoll_ctl(2) on files that cannot watch or be watched. */
GROUP(order, watched_descriptors)
{
    int ours = make_open("f", "text", O_RDWR), of_host = open("/proc/version", O_RDONLY), epoll = epoll_create1(0), pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    const struct {
        const char *text;
        int fd;
    } sides[] = { { "file", ours }, { "host's", of_host }, { "epoll", epoll }, { "socket", pair[0] }, { "closed", 99 }, { "path", open("f", O_PATH) },
        { "host's file", open("/proc/self/exe", O_RDONLY) }, { "host's directory", open("/", O_RDONLY) } };
    struct epoll_event event = { .events = EPOLLIN }, *events[] = { &event, NULL, BAD };
    for (unsigned a = 0; a < COUNT(sides); a++)
        for (unsigned b = 0; b < COUNT(sides); b++)
            for (unsigned i = 0; i < 9; i++) {
                char text[100];
                if (a == 2 && b == 3)
                    continue;
                snprintf(text, sizeof text, "%s watches %s, %u, %u", sides[a].text, sides[b].text, i / 3 + 1, i % 3);
                TN(text, syscall(SYS_epoll_ctl, sides[a].fd, i / 3 + 1, sides[b].fd, events[i % 3]));
            }
}

GROUP(order, of_roots_and_watches)
{
    const char *paths[] = { "none", "f", "f/x", "", NULL, BAD };
    const unsigned masks[] = { 0, IN_CREATE, IN_MASK_ADD | IN_MASK_CREATE | IN_CREATE, 0x100000, IN_ONLYDIR, IN_ONLYDIR | IN_CREATE };
    const unsigned flags[] = { 0, 1, 4, 0x8000, 0x8001, 0x9000, 0x100, 0x1000, 0x800 };
    make("f", "text"), make_dir("d");
    const int fds[] = { inotify_init(), open("f", O_RDONLY), 99 };
    for (unsigned f = 0; f < COUNT(fds); f++)
        for (unsigned m = 0; m < COUNT(masks); m++)
            for (unsigned p = 0; p < COUNT(paths); p++)
                TN("inotify_add_watch", inotify_add_watch(fds[f], paths[p], masks[m]));
    for (unsigned p = 0; p < COUNT(paths); p++) {
        T(chroot(paths[p]));
        for (unsigned i = 0; i < COUNT(flags); i++)
            TN("open_tree", syscall(SYS_open_tree, AT_FDCWD, paths[p], flags[i]) >= 0 ? 0 : -1);
        TN("open_tree", syscall(SYS_open_tree, 99, paths[p], 0) >= 0 ? 0 : -1);
    }
    CHILD {
        become_nobody();
        for (unsigned p = 0; p < COUNT(paths); p++) {
            T(chroot(paths[p]));
            T(syscall(SYS_open_tree, AT_FDCWD, paths[p], 1));
            T(syscall(SYS_open_tree, AT_FDCWD, paths[p], 8));
        }
        T(chroot("d"));
    }
}

/* What a mount refuses and what its file system does, beside what the file's permissions do. */
static void of_read_only(const char *mount)
{
    static const struct {
        const char *name;
        int flags;
    } opens[] = { { "O_RDONLY", O_RDONLY }, { "O_WRONLY", O_WRONLY }, { "O_RDWR", O_RDWR }, { "O_TRUNC", O_RDONLY | O_TRUNC },
        { "O_WRONLY, O_TRUNC", O_WRONLY | O_TRUNC }, { "O_APPEND", O_WRONLY | O_APPEND }, { "O_NOATIME", O_WRONLY | O_NOATIME },
        { "O_CREAT", O_WRONLY | O_CREAT }, { "O_PATH", O_PATH } };
    static const int modes[] = { F_OK, W_OK, R_OK | W_OK, X_OK, W_OK | X_OK };
    static const char *names[] = { "of_root", "of_all", "directory", "program", "pipe" };
    for (unsigned n = 0; n < COUNT(names); n++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s", mount, names[n]);
        say("%s", path);
        for (unsigned i = 0; i < COUNT(opens); i++) {
            int fd = TN(opens[i].name, open(path, opens[i].flags | O_NONBLOCK, 0600));
            if (fd >= 0)
                close(fd);
        }
        for (unsigned i = 0; i < COUNT(modes); i++) {
            TN("access", access(path, modes[i]));
            TN("faccessat", faccessat(AT_FDCWD, path, modes[i], AT_EACCESS));
        }
    }
}

static void fill_with_kinds(const char *at)
{
    if (chdir(at))
        return;
    make("of_root", "text"), make("of_all", "text"), make("program", "text"), make_dir("directory");
    chmod("of_root", 0600), chmod("of_all", 0666), chmod("program", 0755), chmod("directory", 0700);
    mkfifo("pipe", 0600);
    if (chdir(".."))
        return;
}

GROUP(order, of_read_only_mounts)
{
    if (geteuid() != 0 || !apart_with("abc"))
        return;
    T(mount("x", "a", "tmpfs", 0, NULL));
    T(mount("x", "c", "tmpfs", 0, NULL));
    fill_with_kinds("a"), fill_with_kinds("c");
    chmod("a", 0755), chmod("c", 0755);
    T(mount("a", "b", NULL, MS_BIND, NULL));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    T(mount("x", "c", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    of_read_only("b");
    of_read_only("c");
    CHILD {
        become_nobody();
        of_read_only("b");
        of_read_only("c");
    }
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOEXEC, NULL));
    T(mount(NULL, "c", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOEXEC, NULL));
    CHILD {
        become_nobody();
        of_read_only("b");
        of_read_only("c");
    }
    T(umount2("b", 0));
    T(umount2("c", 0));
    T(umount2("a", 0));
}

static void make_all_kinds(int dir, const char *name)
{
    TN("open", openat(dir, name, O_CREAT | O_WRONLY, 0600));
    TN("open O_EXCL", openat(dir, name, O_CREAT | O_EXCL | O_RDONLY, 0600));
    TN("mkdir", mkdirat(dir, name, 0700));
    TN("symlink", symlinkat("text", dir, name));
    TN("fifo", mknodat(dir, name, S_IFIFO | 0600, 0));
    TN("device", mknodat(dir, name, S_IFCHR | 0600, 0x103));
    TN("block device", mknodat(dir, name, S_IFBLK | 0600, 0x103));
    TN("device, slash", mknodat(dir, "no/", S_IFCHR | 0600, 0x103));
    TN("device, present", mknodat(dir, "f", S_IFCHR | 0600, 0x103));
    TN("link", linkat(AT_FDCWD, "b/f", dir, name, 0));
}

/* Directories that were removed, that are another user's, and that are in a read-only mount. */
GROUP(order, where_nothing_is_made)
{
    if (geteuid() != 0 || !apart_with("abu"))
        return;
    T(mount("x", "a", "tmpfs", 0, NULL));
    make("a/f", "text");
    make_dir("a/gone"), make_dir("a/mine");
    T(chown("a/mine", 65534, 65534));
    T(chmod("a/f", 0666));
    T(mount("a", "b", NULL, MS_BIND, NULL));
    int shown = open("b", O_RDONLY), gone = open("b/gone", O_RDONLY), mine = open("b/mine", O_RDONLY);
    int writable = open("a", O_RDONLY), mine_too = open("a/mine", O_RDONLY), gone_too = open("a/gone", O_RDONLY);
    T(rmdir("a/gone"));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    say("root");
    make_all_kinds(gone, "x");
    make_all_kinds(shown, "x");
    CHILD {
        become_nobody();
        int all[] = { shown, gone, mine, writable, mine_too, gone_too };
        for (unsigned i = 0; i < COUNT(all); i++) {
            say("directory %u", i);
            char name[] = { 'a' + i, 0 };
            make_all_kinds(all[i], name);
        }
    }
    T(umount2("b", MNT_DETACH));
    T(umount2("a", MNT_DETACH));
}

/* fchmodat2(2) of a symbolic link, by its owner and by others. */
GROUP(order, mode_of_a_link)
{
    T(symlink("text", "l"));
    T(syscall(452, AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW));
    CHILD {
        become_nobody();
        T(syscall(452, AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW));
    }
}
