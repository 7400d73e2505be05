/* inotify(7): which events a change raises, in which order. */
#include <pthread.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include "conform.h"
#include "mounts.h"

static const struct {
    uint32_t bit;
    const char *name;
} bits[] = {
    { IN_ACCESS, "access" }, { IN_MODIFY, "modify" }, { IN_ATTRIB, "attrib" }, { IN_CLOSE_WRITE, "close_write" },
    { IN_CLOSE_NOWRITE, "close_nowrite" }, { IN_OPEN, "open" }, { IN_MOVED_FROM, "moved_from" },
    { IN_MOVED_TO, "moved_to" }, { IN_CREATE, "create" }, { IN_DELETE, "delete" }, { IN_DELETE_SELF, "delete_self" },
    { IN_MOVE_SELF, "move_self" }, { IN_UNMOUNT, "unmount" }, { IN_Q_OVERFLOW, "overflow" }, { IN_IGNORED, "ignored" },
    { IN_ISDIR, "isdir" },
};

static int group;
static uint32_t cookies[64];
static unsigned known;

/* The event's cookie, numbered in order of first appearance; 0 for none. */
static unsigned cookie(uint32_t value)
{
    for (unsigned i = 0; value && i < known; i++)
        if (cookies[i] == value)
            return i + 1;
    if (!value || known == COUNT(cookies))
        return 0;
    cookies[known++] = value;
    return known;
}

/* Prints the events since the last call. */
static void events(const char *after)
{
    char room[65536] __attribute__((aligned(8)));
    say("after %s:", after);
    for (ssize_t got; (got = read(group, room, sizeof room)) > 0;) {
        for (char *at = room; at < room + got;) {
            struct inotify_event *event = (void *)at;
            char line[400];
            int length = sprintf(line, "  %d", event->wd);
            for (unsigned i = 0; i < COUNT(bits); i++)
                if (event->mask & bits[i].bit)
                    length += sprintf(line + length, " %s", bits[i].name);
            if (event->cookie)
                length += sprintf(line + length, " cookie %u", cookie(event->cookie));
            say("%s %s", line, event->len ? event->name : "");
            at += sizeof *event + event->len;
        }
    }
}

#define DO(call)       \
    ({                 \
        T(call);       \
        events(#call); \
    })

static void begin(void)
{
    group = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    umask(022);
}

/* Adds a watch, identified by the next number. */
static int watch(const char *path, uint32_t mask)
{
    return TN(path, inotify_add_watch(group, path, mask));
}

static char room[8192];

GROUP(watch, names)
{
    begin();
    make_dir("d");
    watch("d", IN_ALL_EVENTS);
    int fd = open("d/f", O_CREAT | O_WRONLY, 0644);
    events("creat");
    close(fd);
    events("close");
    DO(mkdir("d/sub", 0755));
    DO(symlink("f", "d/l"));
    DO(mkfifo("d/p", 0644));
    DO(link("d/f", "d/g"));
    DO(mkdir("d/sub", 0755));
    DO(unlink("d/none"));
    DO(unlink("d/g"));
    DO(unlink("d/f"));
    DO(unlink("d/l"));
    DO(unlink("d/p"));
    DO(rmdir("d/sub"));
    DO(rmdir("d"));
}

GROUP(watch, names_that_are_there)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    make_dir("d/sub");
    symlink("f", "d/l");
    make("d/a-name-that-is-longer-than-what-an-entry-keeps-itself", "text");
    watch("d", IN_ALL_EVENTS);
    DO(chmod("d/a-name-that-is-longer-than-what-an-entry-keeps-itself", 0600));
    DO(unlink("d/a-name-that-is-longer-than-what-an-entry-keeps-itself"));
    DO(unlink("d/f"));
    DO(rmdir("d/sub"));
    DO(unlink("d/l"));
}

GROUP(watch, renames)
{
    begin();
    make_dir("a");
    make_dir("b");
    make_dir("c");
    watch("a", IN_ALL_EVENTS);
    watch("b", IN_ALL_EVENTS);
    make("a/f", "text");
    make("a/g", "text");
    make("c/h", "text");
    make_dir("a/sub");
    make_dir("a/empty");
    events("set-up");
    DO(rename("a/f", "a/f2"));
    DO(rename("a/f2", "b/f"));
    DO(rename("b/f", "c/f"));
    DO(rename("c/f", "a/f"));
    DO(rename("c/h", "b/h"));
    DO(rename("a/f", "a/g"));
    DO(rename("a/g", "b/h"));
    DO(rename("a/sub", "b/sub"));
    DO(rename("b/sub", "a/empty"));
    DO(rename("b/h", "b/h"));
    DO(rename("b/none", "b/h"));
    make("a/x", "x");
    make("c/z", "z");
    events("set-up");
    DO(syscall(SYS_renameat2, AT_FDCWD, "a/x", AT_FDCWD, "b/h", 2));
    DO(syscall(SYS_renameat2, AT_FDCWD, "a/x", AT_FDCWD, "c/z", 2));
    DO(syscall(SYS_renameat2, AT_FDCWD, "a/x", AT_FDCWD, "b/h", 1));
    DO(unlink("b/h"));
    DO(unlink("a/x"));
}

/* An exchange of names in watched and other directories: files, directories, and what is itself watched. */
GROUP(watch, exchanges)
{
    static const char *const kinds[][2] = { { "d/f", "e/g" }, { "d/f", "e/dir" }, { "d/dir", "e/g" }, { "d/dir", "e/dir" }, { "d/followed", "e/g" } };
    begin();
    make_dir("d"), make_dir("e"), make_dir("d/dir"), make_dir("e/dir");
    make("d/f", "1"), make("e/g", "2"), make("d/followed", "3"), make("d/dir/in", "4"), make("e/dir/in", "5");
    watch("d", IN_ALL_EVENTS);
    for (unsigned i = 0; i < COUNT(kinds); i++) {
        const char *in = kinds[i][0], *out = kinds[i][1];
        if (i == COUNT(kinds) - 1)
            watch(in, IN_ALL_EVENTS);
        say("%s and %s", in, out);
        DO(syscall(SYS_renameat2, AT_FDCWD, out, AT_FDCWD, in, RENAME_EXCHANGE));
        DO(syscall(SYS_renameat2, AT_FDCWD, in, AT_FDCWD, out, RENAME_EXCHANGE));
        DO(chmod(in, 0700));
        DO(chmod(out, 0700));
    }
    DO(unlink("d/f"));
    DO(unlink("d/dir/in"));
    DO(rmdir("d/dir"));
    DO(unlink("e/g"));
}

GROUP(watch, content)
{
    begin();
    make_dir("d");
    make("d/f", "some text");
    watch("d", IN_ALL_EVENTS);
    int fd = open("d/f", O_RDWR);
    events("open");
    DO(write(fd, "x", 1));
    DO(read(fd, room, 1));
    DO(pwrite(fd, "y", 1, 3));
    DO(pread(fd, room, 2, 0));
    DO(read(fd, room, 0));
    DO(write(fd, "", 0));
    DO(pread(fd, room, 1, 1000));
    DO(lseek(fd, 0, SEEK_SET));
    struct iovec v[2] = { { room, 2 }, { room + 2, 2 } };
    DO(readv(fd, v, 2));
    DO(writev(fd, v, 2));
    DO(preadv(fd, v, 2, 0));
    DO(pwritev(fd, v, 2, 0));
    DO(ftruncate(fd, 100));
    DO(ftruncate(fd, 100));
    DO(fallocate(fd, 0, 0, 8192));
    DO(fallocate(fd, 3, 0, 4096));
    DO(fsync(fd));
    struct stat status;
    DO(fstat(fd, &status));
    DO(write(fd, (char *)1, 1));
    DO(close(fd));
    DO(truncate("d/f", 3));
    DO(stat("d/f", &status));
    DO(access("d/f", R_OK));
    fd = open("d/f", O_RDONLY);
    events("open for reading");
    DO(close(fd));
    fd = open("d/f", O_WRONLY | O_TRUNC);
    events("open and cut");
    DO(close(fd));
    fd = open("d/f", O_RDWR | O_APPEND);
    events("open to append");
    DO(write(fd, "more", 4));
    DO(close(fd));
    fd = open("d/f", O_PATH);
    events("open as a path");
    DO(close(fd));
    fd = open("d/f", O_WRONLY | O_CREAT | O_EXCL, 0644);
    events("open what is there");
    DO(open("d/none", O_RDONLY));
    fd = open("d/new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    events("open what is not there");
    DO(write(fd, room, 5000));
    DO(write(fd, room, 1));
    DO(close(fd));
}

/* O_NOATIME keeps the access time, not the event. */
GROUP(watch, quiet)
{
    begin();
    make_dir("d");
    make("d/f", "some text");
    int to = open("other", O_CREAT | O_WRONLY, 0644);
    watch("d", IN_ALL_EVENTS);
    watch("d/f", IN_ACCESS);
    int fd = open("d/f", O_RDONLY | O_NOATIME), dir = open("d", O_RDONLY | O_NOATIME);
    events("open");
    DO(read(fd, room, 2));
    DO(pread(fd, room, 2, 0));
    DO(pread(fd, room, 2, 100));
    DO(sendfile(to, fd, NULL, 2));
    DO(syscall(SYS_getdents64, dir, room, 1000));
    DO(close(fd));
}

GROUP(watch, copies)
{
    begin();
    make_dir("d");
    make("d/f", "some text");
    make("d/g", "");
    watch("d", IN_ALL_EVENTS & ~(IN_OPEN | IN_CLOSE));
    int from = open("d/f", O_RDONLY), to = open("d/g", O_WRONLY), ends[2];
    loff_t at = 0;
    DO(copy_file_range(from, &at, to, NULL, 4, 0));
    DO(sendfile(to, from, NULL, 3));
    T(pipe(ends));
    at = 0;
    DO(splice(from, &at, ends[1], NULL, 4, 0));
    DO(splice(ends[0], NULL, to, NULL, 4, 0));
}

GROUP(watch, attributes)
{
    begin();
    make_dir("d");
    make_dir("d/sub");
    make("d/f", "text");
    watch("d", IN_ALL_EVENTS);
    struct timespec both[2] = { { 1, 0 }, { 2, 0 } };
    struct timespec first[2] = { { 1, 0 }, { 0, UTIME_OMIT } };
    struct timespec second[2] = { { 0, UTIME_OMIT }, { 1, 0 } };
    struct timespec neither[2] = { { 0, UTIME_OMIT }, { 0, UTIME_OMIT } };
    DO(chmod("d/f", 0600));
    DO(chown("d/f", getuid(), getgid()));
    DO(chown("d/f", -1, -1));
    DO(chmod("d/f", 06755));
    DO(chown("d/f", -1, -1));
    DO(chown("d/f", -1, -1));
    DO(utimensat(AT_FDCWD, "d/f", both, 0));
    DO(utimensat(AT_FDCWD, "d/f", first, 0));
    DO(utimensat(AT_FDCWD, "d/f", second, 0));
    DO(utimensat(AT_FDCWD, "d/f", neither, 0));
    DO(utimensat(AT_FDCWD, "d/f", NULL, 0));
    DO(setxattr("d/f", "user.a", "b", 1, 0));
    DO(getxattr("d/f", "user.a", room, 1));
    DO(removexattr("d/f", "user.a"));
    DO(removexattr("d/f", "user.a"));
    DO(chmod("d/sub", 0700));
    DO(chmod("d", 0700));
    DO(utimensat(AT_FDCWD, "d", NULL, 0));
    int fd = open("d/f", O_RDWR);
    events("open");
    DO(fchmod(fd, 0640));
    DO(fchown(fd, -1, getgid()));
    DO(futimens(fd, both));
    DO(fsetxattr(fd, "user.c", "d", 1, 0));
    DO(close(fd));
}

GROUP(watch, a_file)
{
    begin();
    make_dir("e");
    make("f", "text");
    watch("f", IN_ALL_EVENTS);
    int fd = open("f", O_RDWR);
    events("open");
    DO(write(fd, "x", 1));
    DO(read(fd, room, 1));
    DO(close(fd));
    DO(chmod("f", 0600));
    DO(rename("f", "g"));
    DO(chmod("g", 0644));
    DO(rename("g", "e/h"));
    DO(chmod("e/h", 0600));
    DO(rename("e", "e2"));
    DO(chmod("e2/h", 0644));
    fd = open("e2/h", O_WRONLY);
    events("open");
    DO(unlink("e2/h"));
    DO(write(fd, "y", 1));
    DO(fchmod(fd, 0600));
    DO(close(fd));
    DO(inotify_rm_watch(group, 1));
}

GROUP(watch, a_file_that_goes)
{
    begin();
    make("f", "text");
    make("g", "text");
    make("h", "text");
    watch("f", IN_ALL_EVENTS);
    watch("g", IN_ALL_EVENTS);
    DO(unlink("f"));
    DO(rename("h", "g"));
    make("f", "again");
    events("make");
    watch("f", IN_ALL_EVENTS);
    DO(chmod("f", 0600));
}

GROUP(watch, a_file_and_its_directory)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    watch("d", IN_ALL_EVENTS);
    watch("d/f", IN_ALL_EVENTS);
    int fd = open("d/f", O_RDWR);
    events("open");
    DO(write(fd, "x", 1));
    DO(read(fd, room, 1));
    DO(fchmod(fd, 0600));
    DO(close(fd));
    DO(rename("d/f", "d/g"));
    DO(chmod("d/g", 0644));
    DO(unlink("d/g"));
}

GROUP(watch, a_file_then_its_directory)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    make("d/g", "text");
    watch("d/f", IN_ALL_EVENTS);
    watch("d", IN_ALL_EVENTS);
    DO(chmod("d/f", 0600));
    DO(chmod("d/g", 0600));
    DO(unlink("d/g"));
    DO(unlink("d/f"));
}

GROUP(watch, directories)
{
    begin();
    make_dir("d");
    make_dir("d/sub");
    make_dir("d/sub/deep");
    watch("d/sub/deep", IN_ALL_EVENTS);
    watch("d", IN_ALL_EVENTS);
    watch("d/sub", IN_ALL_EVENTS);
    DO(chmod("d/sub", 0700));
    DO(mkdir("d/sub/x", 0755));
    DO(mkdir("d/sub/deep/y", 0755));
    int fd = open("d/sub", O_RDONLY | O_DIRECTORY);
    events("opendir");
    DO(syscall(SYS_getdents64, fd, room, sizeof room) > 0);
    DO(syscall(SYS_getdents64, fd, room, sizeof room));
    DO(fchmod(fd, 0755));
    DO(close(fd));
    DO(rename("d/sub", "moved"));
    DO(mkdir("moved/deep/z", 0755));
    DO(rename("moved", "d/back"));
    DO(rmdir("d/back/deep/z"));
    DO(rmdir("d/back/deep/y"));
    DO(rmdir("d/back/deep"));
    DO(rmdir("d/back/x"));
    DO(rmdir("d/back"));
}

GROUP(watch, the_working_directory)
{
    begin();
    watch(".", IN_ALL_EVENTS);
    make("f", "text");
    events("make");
    DO(chmod(".", 0700));
    DO(unlink("f"));
}

GROUP(watch, flags)
{
    begin();
    make_dir("d");
    make("f", "text");
    symlink("f", "l");
    symlink("none", "dangling");
    watch("f", IN_ONLYDIR | IN_MODIFY);
    watch("d", IN_ONLYDIR | IN_CREATE);
    watch("l", IN_DONT_FOLLOW | IN_ALL_EVENTS);
    watch("dangling", IN_ALL_EVENTS);
    watch("l", IN_MODIFY);
    DO(lchown("l", getuid(), getgid()));
    DO(readlink("l", room, sizeof room));
    DO(truncate("f", 1));
    DO(chmod("f", 0600));
    watch("f", IN_MASK_ADD | IN_ATTRIB);
    DO(chmod("f", 0644));
    DO(truncate("f", 0));
    watch("f", IN_ATTRIB);
    DO(truncate("f", 2));
    watch("f", IN_MASK_CREATE | IN_ATTRIB);
    watch("f", IN_MASK_CREATE | IN_MASK_ADD | IN_ATTRIB);
    watch("f", 0);
    watch("none", IN_ATTRIB);
    watch("f/x", IN_ATTRIB);
    watch("", IN_ATTRIB);
    watch("f", IN_ONESHOT | IN_ATTRIB);
    DO(chmod("f", 0600));
    DO(chmod("f", 0644));
    T(inotify_add_watch(group, (char *)1, IN_ATTRIB));
    T(inotify_add_watch(99, "f", IN_ATTRIB));
    T(inotify_add_watch(0, "f", IN_ATTRIB));
    T(inotify_add_watch(99, "f", 0));
    T(inotify_rm_watch(group, 77));
}

GROUP(watch, who_may)
{
    begin();
    make("f", "text");
    make_dir("d");
    chmod("f", 0200);
    chmod("d", 0300);
    become_nobody();
    watch("f", IN_ALL_EVENTS);
    watch("d", IN_ALL_EVENTS);
}

GROUP(watch, excl_unlink)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    watch("d", IN_ALL_EVENTS | IN_EXCL_UNLINK);
    int fd = open("d/f", O_RDWR);
    events("open");
    DO(unlink("d/f"));
    DO(write(fd, "x", 1));
    DO(close(fd));
}

GROUP(watch, unlinked_and_open)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    watch("d", IN_ALL_EVENTS);
    int fd = open("d/f", O_RDWR);
    events("open");
    DO(unlink("d/f"));
    DO(write(fd, "x", 1));
    DO(fchmod(fd, 0600));
    DO(close(fd));
}

GROUP(watch, one_inode)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    symlink("d", "l");
    watch("d", IN_ALL_EVENTS);
    watch("./d/../d", IN_ALL_EVENTS);
    watch("l", IN_ALL_EVENTS);
    watch("d/f", IN_MODIFY);
    watch("l/f", IN_MODIFY);
    DO(truncate("l/f", 1));
    DO(inotify_rm_watch(group, 1));
    DO(truncate("l/f", 2));
    DO(inotify_rm_watch(group, 1));
}

GROUP(watch, removed_and_made_again)
{
    begin();
    make_dir("d");
    watch("d", IN_ALL_EVENTS);
    DO(inotify_rm_watch(group, 1));
    make("d/while-nobody-looks", "text");
    watch("d", IN_ALL_EVENTS);
    DO(unlink("d/while-nobody-looks"));
    int other = inotify_init1(IN_NONBLOCK);
    T(inotify_add_watch(other, "d", IN_CREATE));
    DO(mkdir("d/sub", 0755));
    int first = group;
    group = other;
    events("the same, seen by another");
    close(first);
    DO(rmdir("d/sub"));
    DO(mkdir("d/sub", 0755));
}

GROUP(watch, from_other_processes)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    watch("d", IN_ALL_EVENTS);
    CHILD
    {
        int fd = open("d/f", O_WRONLY);
        write(fd, "x", 1);
    }
    events("child");
    T(system("echo y >d/g"));
    events("shell");
    T(system("exec 3<d/f; /bin/true; /bin/cat <&3 >/dev/null"));
    events("programs that inherit");
}

GROUP(watch, descriptors)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    watch("d", IN_ALL_EVENTS);
    int fd = open("d/f", O_RDWR), copy = dup(fd);
    events("open and dup");
    DO(close(fd));
    DO(write(copy, "x", 1));
    pid_t child = fork();
    if (child == 0) {
        int go;
        read(group, &go, 0);
        pause();
    }
    DO(close(copy));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    events("the death of the last who had it");
    fd = open("d/f", O_RDONLY);
    T(dup2(fd, 50) == 50);
    T(dup2(0, fd) == fd);
    events("dup2 of it and over it");
    T(dup2(0, 50) == 50);
    events("dup2 over the other");
    fd = open("d/f", O_RDONLY | O_CLOEXEC);
    T(fcntl(fd, F_DUPFD, 60) >= 60);
    T(close_range(3, ~0U, 4));
    events("open");
    T(syscall(SYS_close_range, group + 1, ~0U, 0));
    events("close_range");
}

GROUP(watch, opened_before)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    int fd = open("d/f", O_RDWR), twice = dup(fd);
    watch("d", IN_ALL_EVENTS & ~(IN_OPEN | IN_CLOSE_NOWRITE));
    DO(write(fd, "x", 1));
    DO(read(fd, room, 1));
    DO(fchmod(fd, 0600));
    DO(rename("d/f", "d/g"));
    DO(write(fd, "x", 1));
    DO(close(twice));
    DO(close(fd));
}

/* What the watching process has open itself: closes alone. */
GROUP(watch, opened_here_before)
{
    begin();
    make_dir("d");
    make_dir("d/e");
    make("d/f", "text");
    make("g", "text");
    int fd = open("d/f", O_RDWR), twice = dup(fd), reader = open("d/f", O_RDONLY), path = open("d/f", O_PATH);
    int dir = open("d", O_RDONLY), below = open("d/e", O_RDONLY), other = open("g", O_WRONLY | O_APPEND);
    watch("d", IN_ALL_EVENTS);
    watch("g", IN_ALL_EVENTS);
    events("nothing");
    DO(write(fd, "x", 1));
    DO(close(twice));
    DO(close(path));
    DO(close(reader));
    pid_t child = fork();
    if (child == 0) {
        int go;
        read(group, &go, 0);
        pause();
    }
    DO(dup2(0, other) == other);
    DO(close(below));
    DO(close(dir));
    events("the child has them, too");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    events("the death of the child");
    fd = open("d/f", O_RDONLY);
    watch("d", IN_ALL_EVENTS | IN_MASK_ADD);
    DO(close(fd));
}

#define ROUNDS 200

static pthread_barrier_t both;
static int open_in_child[ROUNDS];

/* Forks once in each round, while the other thread adds a watch, each time a little later. The child counts
 * what it has open. */
static void *forks(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&both);
        for (volatile int spins = 0; spins < i * 200; spins++)
            ;
        pid_t child = fork();
        if (child == 0) {
            int open = 0;
            for (int fd = 0; fd < 256; fd++)
                open += fcntl(fd, F_GETFD) >= 0;
            _exit(open);
        }
        int status;
        waitpid(child, &status, 0);
        open_in_child[i] = WEXITSTATUS(status);
        pthread_barrier_wait(&both);
    }
    return unused;
}

GROUP(watch, opened_here_before_a_fork)
{
    begin();
    make_dir("d");
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, forks, NULL);
    int more = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int fd = open("d/f", O_CREAT | O_RDWR, 0644);
        pthread_barrier_wait(&both);
        int wd = inotify_add_watch(group, "d/f", IN_CLOSE);
        pthread_barrier_wait(&both);
        close(fd);
        inotify_rm_watch(group, wd);
        unlink("d/f");
        more += open_in_child[i] != open_in_child[0];
    }
    pthread_join(thread, NULL);
    say("children with other descriptors: %d", more);
}

GROUP(watch, with_the_host)
{
    begin();
    char path[] = "/tmp/conform-watch-XXXXXX", file[64];
    T(mkdtemp(path) != NULL);
    sprintf(file, "%s/f", path);
    make_dir("d");
    T(inotify_add_watch(group, path, IN_CREATE | IN_DELETE));
    watch("d", IN_CREATE | IN_DELETE);
    make("d/f", "text");
    make(file, "text");
    unlink("d/f");
    unlink(file);
    events("both");
    rmdir(path);
}

GROUP(watch, poll)
{
    begin();
    make_dir("d");
    watch("d", IN_ALL_EVENTS);
    struct pollfd one = { group, POLLIN, 0 };
    T(poll(&one, 1, 0));
    CHILD
    {
        close(open("d/f", O_CREAT | O_WRONLY, 0644));
    }
    T(poll(&one, 1, -1));
    for (int i = 0; i < 5; i++)
        chmod("d/f", 0600);
    events("repetitions");
}

GROUP(watch, overflow)
{
    begin();
    make("f", "text");
    make("g", "text");
    int limit = 16384, most = open("/proc/sys/fs/inotify/max_queued_events", O_RDONLY);
    if (read(most, room, 20) > 0)
        limit = atoi(room);
    watch("f", IN_ATTRIB);
    watch("g", IN_ATTRIB);
    for (int i = 0; i < limit; i++) {
        chmod("f", 0600);
        chmod("g", 0600);
    }
    int count = 0, overflows = 0;
    for (ssize_t got; (got = read(group, room, sizeof room)) > 0;)
        for (struct inotify_event *event = (void *)room; (char *)event < room + got; event++)
            event->mask & IN_Q_OVERFLOW ? overflows++ : count++;
    say("%d %d", count - limit, overflows);
}

static void *work(void *argument)
{
    int fd = open("d/f", O_RDWR);
    write(fd, "x", 1);
    pread(fd, room, 1, 0);
    close(fd);
    return argument;
}

GROUP(watch, threads)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    watch("d", IN_ALL_EVENTS);
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    events("a thread");
}

static void *waits(void *unused)
{
    pause();
    return unused;
}

/* Another user changes what a process with several threads watches. */
GROUP(watch, other_users_beside_a_thread)
{
    begin();
    make_dir("d");
    make_dir("d/open");
    make("f", "text");
    chmod("d", 0777), chmod("d/open", 0777), chmod("f", 0666);
    pthread_t thread;
    pthread_create(&thread, NULL, waits, NULL);
    watch("d", IN_ALL_EVENTS & ~(IN_OPEN | IN_ACCESS));
    watch("d/open", IN_ALL_EVENTS & ~(IN_OPEN | IN_ACCESS));
    watch("f", IN_MODIFY);
    CHILD
    {
        become_nobody();
        int fd = T(open("d/f", O_WRONLY | O_CREAT, 0600));
        T(write(fd, "x", 1));
        T(close(fd));
        T(rename("d/f", "d/open/g"));
        T(mkdir("d/open/sub", 0700));
        T(rmdir("d/open/sub"));
        T(unlink("d/open/g"));
        T(truncate("f", 1));
    }
    events("child");
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

GROUP(watch, two_links)
{
    begin();
    make_dir("d");
    make("d/f", "text");
    link("d/f", "d/g");
    watch("d", IN_ALL_EVENTS);
    watch("d/f", IN_ALL_EVENTS);
    watch("d/g", IN_ALL_EVENTS);
    DO(chmod("d/f", 0600));
    DO(unlink("d/f"));
    DO(chmod("d/g", 0644));
    DO(unlink("d/g"));
}

GROUP(watch, nameless)
{
    begin();
    make_dir("d");
    watch("d", IN_CREATE | IN_DELETE | IN_MOVE | IN_ATTRIB);
    int fd = open("d", O_TMPFILE | O_RDWR, 0644);
    sprintf(room, "/proc/self/fd/%d", fd);
    DO(linkat(AT_FDCWD, room, AT_FDCWD, "d/f", AT_SYMLINK_FOLLOW));
    DO(unlink("d/f"));
}

GROUP(watch, after_nobody_watched)
{
    make_dir("d");
    make("d/f", "text");
    make("d/gone", "text");
    CHILD
    {
        begin();
        watch("d", IN_ALL_EVENTS);
    }
    int fd = open("d/f", O_RDWR);
    for (int i = 0; i < 2000; i++)
        pwrite(fd, "x", 1, 0);
    close(fd);
    unlink("d/gone");
    make("d/new", "text");
    begin();
    watch("d", IN_ALL_EVENTS);
    DO(unlink("d/new"));
    make("d/gone", "text");
    events("make");
    DO(truncate("d/f", 1));
    DO(rename("d/f", "d/new"));
    DO(unlink("d/new"));
}

/* A file on which another one is mounted, which has its name elsewhere. */
GROUP(watch, a_mounted_file)
{
    if (geteuid() != 0 || !apart_with("d"))
        return;
    begin();
    make("d/f", "text"), make("g", "other");
    T(mount("d/f", "g", NULL, MS_BIND, NULL));
    watch("g", IN_ALL_EVENTS);
    int fd = open("d/f", O_RDWR);
    DO(write(fd, "more", 4));
    DO(chmod("g", 0600));
    DO(close(fd));
    fd = open("g", O_RDONLY);
    DO(fcntl(fd, F_SETLEASE, F_RDLCK));
    DO(fcntl(fd, F_SETLEASE, F_UNLCK));
    DO(close(fd));
    DO(rename("d/f", "d/h"));
    DO(chmod("d/h", 0640));
    T(umount2("g", MNT_DETACH));
    DO(chmod("d/h", 0600));
}

/* How many watches have ended, and how many events those that have not got. */
static void ended(const char *after)
{
    char room[4096] __attribute__((aligned(8)));
    int ignored = 0, created = 0;
    for (ssize_t got; (got = read(group, room, sizeof room)) > 0;)
        for (char *at = room; at < room + got; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len) {
            ignored += (((struct inotify_event *)at)->mask & IN_IGNORED) != 0;
            created += (((struct inotify_event *)at)->mask & IN_CREATE) != 0;
        }
    say("after %s: %d ended, %d created", after, ignored, created);
}

/* The watches end with the file system; the next one has none. IN_UNMOUNT is not looked at. */
GROUP(watch, unmounted)
{
    if (geteuid() != 0 || !apart_with("a"))
        return;
    begin();
    for (int round = 0; round < 3; round++) {
        T(mount("x", "a", "tmpfs", 0, NULL));
        make_dir("a/d"), make_dir("a/d/e"), make("a/d/f", "text");
        ended("mount");
        T(inotify_add_watch(group, "a", IN_CREATE) > 0);
        T(inotify_add_watch(group, "a/d", IN_CREATE) > 0);
        T(inotify_add_watch(group, "a/d/e", IN_CREATE) > 0);
        T(inotify_add_watch(group, "a/d/f", IN_ATTRIB) > 0);
        make("a/g", "");
        ended("make");
        T(umount2("a", round == 1 ? MNT_DETACH : 0));
        ended("umount");
    }
}
