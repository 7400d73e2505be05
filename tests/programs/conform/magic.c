/* Symbolic links, and paths with `..`, that lead through the kernel's magic links to files of this file
 * system. */
#include "conform.h"
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>

static void as_stdin(const char *path)
{
    int saved = dup(0), fd = open(path, O_RDONLY);
    dup2(fd, 0);
    close(fd);
    contents("in");
    T(access("in", R_OK));
    struct stat st;
    T(stat("in", &st));
    say("%o %lld", st.st_mode, (long long)st.st_size);
    T(lstat("in", &st));
    say("%o %lld", st.st_mode, (long long)st.st_size);
    dup2(saved, 0);
    close(saved);
}

GROUP(magic, links_to_descriptors)
{
    make("f", "the file's text");
    for (const char **to = (const char *[]){ "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/thread-self/fd/0", NULL }; *to; to++) {
        T(symlink(*to, "in"));
        as_stdin("f");
        T(unlink("in"));
    }
}

GROUP(magic, a_log_that_is_standard_output)
{
    int out = open("out", O_RDWR | O_CREAT, 0644);
    T(symlink("/dev/stdout", "log"));
    CHILD {
        dup2(out, 1);
        int log = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644);
        if (write(log, "one\n", 4) != 4)
            _exit(1);
        close(log);
        log = open("log", O_WRONLY | O_APPEND);
        if (write(log, "two\n", 4) != 4)
            _exit(2);
    }
    contents("out");
}

GROUP(magic, links_to_the_working_directory)
{
    make("f", "in the directory");
    make_dir("sub");
    make("sub/g", "below");
    T(symlink("/proc/self/cwd/f", "link"));
    T(symlink("/proc/self/cwd/sub", "directory"));
    T(symlink("/proc/self/cwd", "here"));
    contents("link");
    contents("directory/g");
    contents("here/sub/g");
    contents("here/sub/../f");
    contents("/proc/self/cwd/sub/../f");
    contents("/proc/self/cwd//sub/./g");
    contents("/proc/self/cwd/sub/../../none");
    T(truncate("link", 2));
    contents("f");
    T(chmod("link", 0600));
    attributes("f");
    T(mkdir("here/made", 0755));
    T(open("here/created", O_CREAT | O_EXCL | O_WRONLY, 0644));
    attributes("created");
    T(chdir("directory"));
    contents("g");
    T(chdir("../here"));
    contents("g");
    T(rmdir("made"));
    T(unlink("link"));
    T(chdir(".."));
    T(unlink("link"));
}

GROUP(magic, links_round_and_round)
{
    T(symlink("/proc/self/cwd/b", "a"));
    T(symlink("/proc/self/cwd/a", "b"));
    T(open("a", O_RDONLY));
    T(access("a", R_OK));
    T(open("a", O_RDONLY | O_NOFOLLOW));
    T(symlink("/proc/self/cwd/c/c", "c"));
    T(open("c", O_RDONLY));
}

GROUP(magic, descriptors_by_links_of_files_without_a_name)
{
    int fd = make_open("f", "no name", O_RDWR);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    T(symlink(path, "link"));
    T(unlink("f"));
    contents("link");
    int again = open("link", O_RDWR);
    say("%s", again >= 0 ? "open" : strerrorname_np(errno));
    T(write(again, "NO", 2));
    contents("link");
    struct stat st;
    T(fstat(fd, &st));
    say("%lld %ld", (long long)st.st_size, (long)st.st_nlink);
}

GROUP(magic, fifos_without_a_name)
{
    T(mkfifo("p", 0600));
    int fd = T(open("p", O_RDWR | O_NONBLOCK));
    char path[64], text[8] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int i = 0; i < 2; i++) {
        int out = open(path, O_WRONLY | O_NONBLOCK);
        say("%s", out >= 0 ? "open" : strerrorname_np(errno));
        T(write(out, "text", 4));
        T(close(out));
        int in = open(path, O_RDONLY | O_NONBLOCK);
        struct stat st;
        T(fstat(in, &st));
        say("%o %ld", st.st_mode, (long)st.st_nlink);
        T(read(in, text, sizeof text));
        T(close(in));
        T(read(fd, text, i));
        unlink("p");
    }
    T(chmod(path, 0));
    CHILD {
        become_nobody();
        T(open(path, O_RDONLY | O_NONBLOCK));
    }
    T(close(fd));
    T(open(path, O_RDONLY | O_NONBLOCK));
}

GROUP(magic, descriptors_of_links)
{
    make("f", "the file");
    T(chmod("f", 0644));
    T(symlink("f", "l"));
    int fd = open("l", O_PATH | O_NOFOLLOW);
    char path[64], target[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    TN("open", open(path, O_RDONLY));
    TN("open for writing", open(path, O_WRONLY | O_TRUNC));
    struct stat st;
    TN("stat", stat(path, &st));
    say("%o %lld", st.st_mode, (long long)st.st_size);
    say("%s", chmod(path, 0600) ? "not changed" : "changed");
    T(readlinkat(fd, "", target, sizeof target));
    say("%s", target);
    attributes("f");
    contents("f");
}

/* A magic link that was opened itself: a path through its descriptor ends at the link. */
GROUP(magic, links_that_were_opened)
{
    int file = make_open("f", "the file", O_RDONLY);
    char path[64], again[64], text[64] = "";
    struct stat st;
    struct statx sx;
    sprintf(path, "/proc/self/fd/%d", file);
    int link = open(path, O_PATH | O_NOFOLLOW);
    sprintf(again, "/proc/self/fd/%d", link);
    T(stat(again, &st));
    say("%o %ld", st.st_mode, (long)st.st_size);
    T(fstatat(AT_FDCWD, again, &st, 0));
    say("%o %ld", st.st_mode, (long)st.st_size);
    T(statx(AT_FDCWD, again, 0, STATX_BASIC_STATS, &sx));
    say("%o", sx.stx_mode);
    T(open(again, O_RDONLY));
    T(open(again, O_PATH) >= 0);
    T(access(again, R_OK));
    T(chdir(again));
    T(truncate(again, 0));
    T(readlinkat(link, "", text, 60) > 0);
    T(rename("f", again));
    strcat(again, "/x");
    T(open(again, O_RDONLY));
}

GROUP(magic, seals_and_sockets_that_nobody_made)
{
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    T(fcntl(dir, 1034)); /* F_GET_SEALS */
    T(fcntl(dir, 1033, 1));
    T(mknod("socket", S_IFSOCK | 0666, 0));
    make("file", "text");
    const char *names[] = { "socket", "file", "none" };
    for (int i = 0; i < 3; i++) {
        struct sockaddr_un to = { .sun_family = AF_UNIX };
        strcpy(to.sun_path, names[i]);
        int stream = socket(AF_UNIX, SOCK_STREAM, 0), datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
        TN("connect", connect(stream, (struct sockaddr *)&to, sizeof to));
        TN("sendto", sendto(datagram, "x", 1, 0, (struct sockaddr *)&to, sizeof to));
    }
}

/* Calls other than open and stat on a descriptor's file that has no name. */
GROUP(magic, calls_on_files_without_a_name)
{
    int fd = make_open("f", "no name", O_RDWR), nameless = open(".", O_RDWR | O_TMPFILE, 0600);
    T(unlink("f"));
    make_dir("d");
    int dir = open("d", O_RDONLY);
    T(rmdir("d"));
    int fds[] = { fd, nameless, dir };
    for (unsigned i = 0; i < COUNT(fds); i++) {
        char path[64], link[] = "l0";
        link[1] += i;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fds[i]);
        if (symlink(path, link))
            return;
        for (const char **at = (const char *[]){ path, link, NULL }; *at; at++) {
            const char *name = *at;
            say("file %u by %s", i, *at == path ? "descriptor" : "link");
            TN("chmod", chmod(name, 0640));
            TN("chown", chown(name, getuid(), getgid()));
            TN("truncate", truncate(name, 3));
            TN("truncate beyond", truncate(name, -1));
            TN("utimensat", utimensat(AT_FDCWD, name, (struct timespec[2]){ { 5, 6 }, { 7, 8 } }, 0));
            TN("access", access(name, R_OK));
            TN("access to execute", faccessat(AT_FDCWD, name, X_OK, AT_EACCESS));
            TN("setxattr", setxattr(name, "user.a", "b", 1, 0));
            char value[8] = "";
            TN("getxattr", getxattr(name, "user.a", value, sizeof value));
            TN("listxattr", listxattr(name, NULL, 0));
            TN("removexattr", removexattr(name, "user.a"));
            struct statfs sf;
            TN("statfs", statfs(name, &sf));
            TN("rmdir", rmdir(name) == -1);
            attributes_fd(fds[i]);
        }
    }
    int before = open(".", O_RDONLY);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    T(chdir(path));
    T(open("x", O_CREAT | O_RDWR, 0600));
    T(fchdir(before));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    T(chdir(path));
}

/* A file without a name is made in the directory of a descriptor. */
GROUP(magic, nameless_files_in_a_directory_by_descriptor)
{
    make_dir("d");
    int dir = open("d", O_RDONLY);
    if (rename("d", "e"))
        return;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    for (int gone = 0; gone < 2; gone++) {
        struct open_how how = { .flags = O_TMPFILE | O_RDWR, .mode = 02750 };
        int made[] = { T(open(path, O_TMPFILE | O_RDWR, 06742)), T(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how)) };
        for (unsigned i = 0; i < COUNT(made); i++)
            attributes_fd(made[i]);
        T(rmdir("e"));
    }
}

/* Position and flags of a descriptor, and whether its mount and inode number are those of statx(2). */
static void describe(const char *process, int fd)
{
    char path[64], text[1024] = "";
    sprintf(path, "/proc/%s/fdinfo/%d", process, fd);
    int info = open(path, O_RDONLY);
    say("%ld", (long)(read(info, text, sizeof text - 1) > 0));
    close(info);
    struct statx st;
    statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | 0x1000 /* STATX_MNT_ID */, &st);
    long long position = -1;
    unsigned flags = 0;
    unsigned long mount = 0, number = 0;
    int read = sscanf(text, "pos:\t%lld\nflags:\t0%o\nmnt_id:\t%lu\nino:\t%lu\n", &position, &flags, &mount, &number);
    say("%d: %lld %o %d %d", read, position, flags, mount == st.stx_mnt_id, number == st.stx_ino);
}

GROUP(magic, fdinfo)
{
    int fd = make_open("f", "the file's text", O_RDWR | O_APPEND), dir = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int path = open("f", O_PATH), other = open("f", O_WRONLY | O_NONBLOCK | O_SYNC);
    char own[16];
    sprintf(own, "%d", getpid());
    T(lseek(fd, 5, SEEK_SET));
    T(lseek(other, 1LL << 40, SEEK_SET));
    for (int i = 0; i < 4; i++) {
        describe("self", (int[]){ fd, dir, path, other }[i]);
        describe(own, (int[]){ fd, dir, path, other }[i]);
    }
    T(fcntl(fd, F_SETFD, FD_CLOEXEC));
    T(fcntl(fd, F_SETFL, O_NONBLOCK));
    describe("self", fd);
    T(close(fd));
    char room[32];
    sprintf(room, "/proc/self/fdinfo/%d", fd);
    T(open(room, O_RDONLY));
    CHILD {
        describe("self", dir);
        describe("self", other);
    }
}

/* What a child of the caller's has open, and the child's own children. */
GROUP(magic, fdinfo_of_others)
{
    make("f", "text");
    int told[2], go[2], fd = open("f", O_RDWR);
    T(pipe(told));
    T(pipe(go));
    pid_t child = fork();
    if (!child) {
        close(fd);
        fd = open("f", O_RDWR | O_APPEND | O_CLOEXEC);
        lseek(fd, 77, SEEK_SET);
        write(told[1], &fd, sizeof fd);
        read(go[0], &fd, 1);
        _exit(0);
    }
    int theirs, flags;
    T(read(told[0], &theirs, sizeof theirs));
    char path[64], text[256] = "";
    sprintf(path, "/proc/%d/fdinfo/%d", child, theirs);
    int info = T(open(path, O_RDONLY));
    long long position = -1;
    unsigned long mount = 0, number = 0;
    T(read(info, text, sizeof text - 1) > 0);
    int read = sscanf(text, "pos:\t%lld\nflags:\t0%o\nmnt_id:\t%lu\nino:\t%lu\n", &position, &flags, &mount, &number);
    struct stat st;
    T(fstat(fd, &st));
    say("%d: %lld %o %d", read, position, flags, number == st.st_ino);
    T(close(info));
    sprintf(path, "/proc/%d/fdinfo/%d", child, theirs + 20);
    T(open(path, O_RDONLY));
    T(write(go[1], "", 1));
    say_wait(child);
    sprintf(path, "/proc/%d/fdinfo/%d", child, theirs);
    T(open(path, O_RDONLY));
}

/* What is read of an open fdinfo, without what differs between file systems. */
static void show_info(const char *what, int info, int fd, char *text, long length)
{
    struct stat st;
    char *line = text;
    text[length < 0 ? 0 : length] = 0;
    say("%s: %s", what, length < 0 ? strerrorname_np(errno) : "");
    if (fstat(fd, &st) != 0)
        memset(&st, 0, sizeof st);
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        unsigned count, major, minor;
        unsigned long number;
        int pid;
        char kind[3][16], range[2][32];
        *end = 0;
        if (!strncmp(line, "mnt_id", 6) || !strncmp(line, "ino", 3))
            continue;
        if (sscanf(line, "lock:\t%u: %15s %15s %15s %d %x:%x:%lu %31s %31s", &count, kind[0], kind[1], kind[2], &pid, &major, &minor,
                   &number, range[0], range[1]) == 10)
            say("%.*s%s device %d inode %d, %s to %s", (int)strcspn(strstr(line, kind[2]), "0123456789-") + (int)(strstr(line, kind[2]) - line),
                line, pid == getpid() ? "own" : pid == -1 ? "-1" : "other", makedev(major, minor) == st.st_dev, number == st.st_ino, range[0], range[1]);
        else
            say("%s", line);
    }
    (void)info;
}
static void again(const char *what, int info, int fd)
{
    char text[4096];
    lseek(info, 0, SEEK_SET);
    show_info(what, info, fd, text, read(info, text, sizeof text - 1));
    say("%ld", (long)(read(info, text, 10)));
}

/* Position, flags and locks of the moment in which it is read. */
GROUP(magic, fdinfo_when_read)
{
    int fd = make_open("f", "the file's text", O_RDWR), other = open("f", O_RDWR | O_CLOEXEC);
    char path[64], text[4096];
    sprintf(path, "/proc/self/fdinfo/%d", fd);
    int info = T(open(path, O_RDONLY | O_CLOEXEC)), copy = T(dup(info)), second = T(open(path, O_RDONLY));
    again("new", info, fd);
    T(lseek(fd, 7, SEEK_SET));
    T(fcntl(fd, F_SETFL, O_APPEND));
    T(fcntl(fd, F_SETFD, FD_CLOEXEC));
    again("moved", info, fd);
    again("by the copy", copy, fd);
    struct flock lock = { .l_type = F_RDLCK, .l_start = 5, .l_len = 10 };
    T(fcntl(fd, F_SETLK, &lock));
    lock = (struct flock){ .l_type = F_WRLCK, .l_start = 100 };
    T(fcntl(other, F_SETLK, &lock));
    lock = (struct flock){ .l_type = F_WRLCK, .l_start = 50, .l_len = 1 };
    T(fcntl(fd, F_SETLK, &lock));
    again("locked", info, fd);
    T(flock(fd, LOCK_SH));
    T(flock(other, LOCK_SH));
    lock = (struct flock){ .l_type = F_RDLCK, .l_start = 1000 };
    T(fcntl(fd, F_OFD_SETLK, &lock));
    lock = (struct flock){ .l_type = F_RDLCK, .l_start = 30, .l_len = 5 };
    T(fcntl(fd, F_OFD_SETLK, &lock));
    again("all kinds", info, fd);
    lock = (struct flock){ .l_type = F_RDLCK, .l_start = 15, .l_len = 10 };
    T(fcntl(other, F_SETLK, &lock));
    lock = (struct flock){ .l_type = F_WRLCK, .l_start = 50, .l_len = 5 };
    T(fcntl(other, F_SETLK, &lock));
    again("by the other", info, fd);
    sprintf(path, "/proc/thread-self/fdinfo/%d", other);
    int others = T(open(path, O_RDONLY));
    again("the other's", others, other);
    CHILD {
        again("in a child", info, fd);
        lseek(fd, 3, SEEK_SET);
        char name[64];
        sprintf(name, "/proc/%d/fdinfo/%d", getpid(), fd);
        int own = T(open(name, O_RDONLY));
        again("a child's", own, fd);
    }
    again("moved by a child", info, fd);
    /* In pieces. */
    show_info("from the middle", second, fd, text, pread(second, text, sizeof text - 1, 5));
    show_info("far behind", second, fd, text, pread(second, text, sizeof text - 1, 1 << 20));
    T(pread(second, text, 10, -1));
    long total = 0, got;
    while ((got = read(second, text + total, 7)) > 0)
        total += got;
    show_info("by sevens", second, fd, text, total);
    T(lseek(second, 4, SEEK_SET));
    struct iovec pieces[] = { { text, 2 }, { text + 2, 0 }, { text + 2, 3 } };
    T(readv(second, pieces, 3));
    say("%.5s, at %ld", text, (long)lseek(second, 0, SEEK_CUR));
    T(read(second, (char *)8, 10));
    T(read(second, text, 0));
    T(write(second, "", 1));
    struct stat st;
    T(fstat(second, &st));
    say("%o %ld", st.st_mode, (long)st.st_size);
    /* Another file, a file of the host's, none. */
    T(dup2(other, fd));
    again("replaced", info, fd);
    int pipes[2];
    T(pipe(pipes));
    T(dup2(pipes[0], fd));
    again("a pipe", info, -1);
    T(close(fd));
    again("closed", info, -1);
    T(make_open("g", "", O_WRONLY) == fd);
    again("opened again", info, fd);
    T(close(info));
    T(read(info, text, 10));
    again("the copy", copy, fd);
}

/* The same by a name within the directory, and beside a thread. */
static void *wait_on(void *pipe)
{
    char byte;
    read(*(int *)pipe, &byte, 1);
    return NULL;
}
GROUP(magic, fdinfo_by_name)
{
    int fd = make_open("f", "text", O_RDWR), dir = T(open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY)), pipes[2];
    char name[16];
    sprintf(name, "%d", fd);
    int info = T(openat(dir, name, O_RDONLY));
    T(lseek(fd, 3, SEEK_SET));
    again("by name", info, fd);
    pthread_t thread;
    T(pipe(pipes));
    T(pthread_create(&thread, NULL, wait_on, pipes));
    int beside = T(openat(dir, name, O_RDONLY));
    T(lseek(fd, 2, SEEK_SET));
    again("beside a thread", beside, fd);
    again("before", info, fd);
    T(write(pipes[1], "", 1));
    T(pthread_join(thread, NULL));
}

/* The mode of a link tells how the file is open. */
GROUP(magic, modes_of_links)
{
    make("f", "text"), make_dir("d"), symlink("f", "l");
    int all[] = { open("f", O_RDONLY), open("f", O_WRONLY), open("f", O_RDWR), open("f", O_PATH), open("d", O_RDONLY), open("l", O_PATH | O_NOFOLLOW), open(".", O_TMPFILE | O_RDWR, 0600), 99 };
    unlink("l");
    for (int user = 0; user < 3; user++) {
        for (unsigned i = 0; i < COUNT(all); i++) {
            char path[2][60];
            struct stat st;
            struct statx sx;
            sprintf(path[0], "/proc/self/fd/%d", all[i]), sprintf(path[1], "/proc/%d/fd/%d", getpid(), all[i]);
            for (unsigned n = 0; n < 2; n++) {
                if (TN("lstat", lstat(path[n], &st)) == 0)
                    say("%o", st.st_mode);
                if (TN("statx", statx(AT_FDCWD, path[n], AT_SYMLINK_NOFOLLOW, STATX_MODE, &sx)) == 0)
                    say("%o", sx.stx_mode);
            }
            sprintf(path[0], "%d", all[i]);
            int links = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
            if (TN("fstatat", fstatat(links, path[0], &st, AT_SYMLINK_NOFOLLOW)) == 0)
                say("%o", st.st_mode);
            close(links);
            for (unsigned mode = 0; mode < 8 && user; mode++)
                TN("faccessat2", syscall(SYS_faccessat2, AT_FDCWD, path[1], mode, AT_SYMLINK_NOFOLLOW));
        }
        if (user == 0)
            become_nobody();
        else /* Now the links are nobody's. */
            prctl(PR_SET_DUMPABLE, 1);
    }
}

GROUP(magic, links_to_themselves)
{
    struct stat st;
    char *arguments[] = { "x", NULL }, room[10];
    T(symlink("/proc/self/cwd/d", "d"));
    T(symlink("/proc/self/cwd/to/x", "to"));
    static const char *paths[] = { "d", "d/l", "to", "to/x", "/proc/self/cwd/d/l" };
    for (unsigned i = 0; i < COUNT(paths); i++) {
        say("%s", paths[i]);
        T(open(paths[i], O_RDONLY));
        T(stat(paths[i], &st));
        T(access(paths[i], F_OK));
        T(chdir(paths[i]));
        T(execv(paths[i], arguments));
        T(truncate(paths[i], 0));
        T(mkdir(paths[i], 0700));
        T(rename(paths[i], "new"));
        T(rename("new", paths[i]));
        T(readlink(paths[i], room, sizeof room) > 0);
    }
}

/* A link of /proc/self/fd leads to the file, not through the directories of its name. */
GROUP(magic, files_in_closed_directories)
{
    make_dir("d");
    make("d/f", "text");
    make_dir("d/e");
    T(chmod("d/f", 0666) | chmod("d/e", 0777));
    int fd = open("d/f", O_RDWR), dir = open("d/e", O_RDONLY), path = open("d/f", O_PATH);
    T(chmod("d", 0700));
    become_nobody();
    int fds[] = { fd, dir, path };
    for (unsigned i = 0; i < COUNT(fds); i++) {
        char link[64];
        struct stat st;
        struct statx sx;
        sprintf(link, "/proc/self/fd/%d", fds[i]);
        T(stat("d/f", &st));
        TN("stat", stat(link, &st));
        say("%o", st.st_mode);
        TN("statx", statx(AT_FDCWD, link, 0, STATX_BASIC_STATS, &sx));
        TN("access", access(link, R_OK | W_OK));
        TN("chmod", chmod(link, 0600));
        TN("utimensat", utimensat(AT_FDCWD, link, NULL, 0));
        TN("truncate", truncate(link, 2));
        TN("setxattr", setxattr(link, "user.a", "1", 1, 0));
        TN("getxattr", getxattr(link, "user.a", NULL, 0));
        TN("opened", open(link, O_RDONLY) >= 0);
        TN("opened", open(link, O_RDWR) >= 0);
        TN("opened", open(link, O_PATH) >= 0);
        T(open(link, O_CREAT | O_EXCL | O_RDWR, 0600));
        TN("opened", open(link, O_CREAT | O_RDWR, 0600) >= 0);
        T(open(link, O_NOFOLLOW));
        TN("directory", open(link, O_DIRECTORY | O_RDONLY) >= 0);
        TN("statfs", statfs(link, &(struct statfs){ 0 }));
        TN("chdir", chdir(link));
        TN("unlink", unlink(link) == 0);
        strcat(link, "/none");
        TN("below", open(link, O_RDONLY));
    }
}

static volatile int exchanging;

/* Exchanges the names of two directories and of two files, until it is told to stop. */
static void *exchanges(void *unused)
{
    while (exchanging) {
        renameat2(AT_FDCWD, "d", AT_FDCWD, "other", RENAME_EXCHANGE);
        renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_EXCHANGE);
    }
    return unused;
}

/* A magic link leads to the file itself, whatever its name becomes. */
GROUP(magic, renamed_meanwhile)
{
    make_dir("d");
    make_dir("other");
    make("f", "text");
    make("g", "another text");
    int dir = open("d", O_RDONLY), file = open("f", O_RDWR), links = open("/proc/self/fd", O_RDONLY);
    char of_dir[40], of_file[40];
    sprintf(of_dir, "/proc/self/fd/%d", dir);
    sprintf(of_file, "/proc/self/fd/%d", file);
    const char *numbers[] = { strrchr(of_dir, '/') + 1, strrchr(of_file, '/') + 1 };
    struct stat is_dir, is_file, found;
    fstat(dir, &is_dir);
    fstat(file, &is_file);
    int home = open(".", O_RDONLY), wrong[8] = { 0 };
    pthread_t thread;
    exchanging = 1;
    pthread_create(&thread, NULL, exchanges, NULL);
    for (int i = 0; i < 5000; i++) {
        int opened[] = { open(of_dir, O_RDONLY), open(of_file, O_RDONLY), openat(links, numbers[0], O_PATH), openat(links, numbers[1], O_RDWR) };
        for (unsigned k = 0; k < COUNT(opened); k++) {
            wrong[k] += fstat(opened[k], &found) != 0 || found.st_ino != (k % 2 ? is_file : is_dir).st_ino;
            close(opened[k]);
        }
        wrong[4] += stat(of_dir, &found) != 0 || found.st_ino != is_dir.st_ino;
        wrong[5] += fstatat(links, numbers[1], &found, 0) != 0 || found.st_ino != is_file.st_ino;
        wrong[6] += truncate(of_file, 4 + i % 2) != 0 || fstat(file, &found) != 0 || found.st_size != 4 + i % 2;
        wrong[7] += chdir(of_dir) != 0 || stat(".", &found) != 0 || found.st_ino != is_dir.st_ino || fchdir(home) != 0;
    }
    exchanging = 0;
    pthread_join(thread, NULL);
    for (unsigned k = 0; k < COUNT(wrong); k++)
        say("%d wrong", wrong[k]);
    T(unlink("f") | unlink("g"));
}

/* The numbers that another process has open, and has closed. */
GROUP(magic, descriptors_of_another)
{
    int ready[2];
    T(pipe(ready));
    pid_t child = fork();
    if (!child) {
        int files[8];
        for (unsigned i = 0; i < COUNT(files); i++)
            files[i] = make_open("f", "text", O_RDWR);
        for (unsigned i = 1; i < COUNT(files); i++)
            close(files[i]);
        write(ready[1], &files[0], sizeof files[0]);
        pause();
        _exit(0);
    }
    int first;
    read(ready[0], &first, sizeof first);
    const char *directories[] = { "fd", "fdinfo" };
    for (unsigned d = 0; d < COUNT(directories); d++) {
        char path[80], target[PATH_MAX];
        sprintf(path, "/proc/%d/%s", child, directories[d]);
        DIR *listing = opendir(path);
        int count = 0;
        for (struct dirent *found; (found = readdir(listing));)
            count++;
        say("%d names", count);
        closedir(listing);
        for (int number = first; number < first + 10; number++) {
            struct stat st;
            sprintf(path, "/proc/%d/%s/%d", child, directories[d], number);
            TN("stat", stat(path, &st));
            TN("lstat", lstat(path, &st));
            TN("access", access(path, R_OK));
            TN("open", close(open(path, O_RDONLY)));
            if (d == 0)
                TN("readlink", readlink(path, target, sizeof target) > 0 ? 0 : -1);
        }
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Whoever may not trace a process does not see what it has open. */
GROUP(magic, links_of_another_user)
{
    if (geteuid() != 0)
        return;
    make_dir("d"), make("d/g", "text");
    chmod(".", 0755);
    int file = make_open("f", "text", O_RDWR), ready[2];
    T(pipe(ready));
    pid_t child = fork();
    if (!child) {
        chdir("d");
        write(ready[1], "", 1);
        pause();
        _exit(0);
    }
    char path[80], target[PATH_MAX];
    read(ready[0], path, 1);
    for (int round = 0; round < 2; round++)
        CHILD {
            if (round)
                T(setgroups(0, NULL) | setresgid(65534, 65534, 65534) | setresuid(65534, 65534, 65534));
            char number[16];
            sprintf(number, "fd/%d", file);
            const char *links[] = { "cwd", "cwd/.", "cwd/g", number };
            for (unsigned i = 0; i < COUNT(links); i++) {
                struct stat st;
                sprintf(path, "/proc/%d/%s", child, links[i]);
                TN("readlink", readlink(path, target, sizeof target) > 0 ? 0 : -1);
                TN("stat", stat(path, &st));
                TN("lstat", lstat(path, &st));
                TN("access", access(path, R_OK));
                TN("open", close(open(path, O_RDONLY)));
                TN("chdir", chdir(path));
            }
        }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* The same, where something is mounted over the file. */
GROUP(magic, covered)
{
    if (geteuid() != 0)
        return;
    make_dir("d");
    make("d/f", "text");
    make("f", "below");
    make("g", "above");
    CHILD {
        T(unshare(CLONE_NEWNS));
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
        int dir = open("d", O_RDONLY), file = open("f", O_RDONLY);
        T(mount("none", "d", "tmpfs", 0, NULL));
        T(mount("g", "f", NULL, MS_BIND, NULL));
        char link[40];
        sprintf(link, "/proc/self/fd/%d", file);
        contents("f");
        contents(link);
        sprintf(link, "/proc/self/fd/%d", dir);
        T(access("d/f", F_OK));
        int again = open(link, O_RDONLY);
        T(faccessat(again, "f", F_OK, 0));
        T(chdir(link));
        T(access("f", F_OK));
    }
    umount("d");
    umount("f");
}

/* What the links of a procfs lead to, of this process, and of one that waits. */
static void say_links(int proc, int fd, pid_t other)
{
    char own[PATH_MAX], path[64], target[PATH_MAX];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, own, sizeof own);
    const char *forms[] = { "self/fd/%d", "thread-self/fd/%d", "%2$d/fd/%1$d", "%3$d/fd/%1$d", "%2$d/task/%2$d/fd/%1$d" };
    for (unsigned i = 0; i < COUNT(forms); i++) {
        snprintf(path, sizeof path, forms[i], fd, getpid(), other);
        ssize_t got = readlinkat(proc, path, target, sizeof target);
        int file = openat(proc, path, O_RDONLY);
        char text[8] = "";
        if (file != -1 && read(file, text, sizeof text - 1) < 0)
            say("no read");
        say("%s %d %s", forms[i], got == length && !memcmp(own, target, length), text);
    }
    snprintf(path, sizeof path, "%d", fd);
    int links = T(openat(proc, "self/fd", O_PATH | O_DIRECTORY)), file = openat(links, path, O_RDONLY);
    T(file != -1);
    T(openat(proc, "self/cwd/f", O_RDONLY));
    T(openat(proc, "1/fd/0/none", O_RDONLY));
}

/* A procfs that is mounted nowhere. */
GROUP(magic, of_another_procfs)
{
    make("f", "text");
    int fd = open("f", O_RDONLY);
    pid_t other = fork();
    if (!other)
        for (;;)
            pause();
    int context = syscall(SYS_fsopen, "proc", 1);
    T(syscall(SYS_fsconfig, context, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0));
    say_links(T(syscall(SYS_fsmount, context, 1, 0)), fd, other);
    say_links(T(syscall(SYS_open_tree, AT_FDCWD, "/proc", 1 /* OPEN_TREE_CLONE */)), fd, other);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}
