/* landlock(7): landlock_create_ruleset(2), landlock_add_rule(2), landlock_restrict_self(2), and what a
 * restricted process may do. */
#include "conform.h"
#include <linux/fs.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define EXECUTE 1u
#define WRITE_FILE (1u << 1)
#define READ_FILE (1u << 2)
#define READ_DIR (1u << 3)
#define REMOVE_DIR (1u << 4)
#define REMOVE_FILE (1u << 5)
#define MAKE_CHAR (1u << 6)
#define MAKE_DIR (1u << 7)
#define MAKE_REG (1u << 8)
#define MAKE_SOCK (1u << 9)
#define MAKE_FIFO (1u << 10)
#define MAKE_BLOCK (1u << 11)
#define MAKE_SYM (1u << 12)
#define REFER (1u << 13)
#define TRUNCATE (1u << 14)
#define ALL 0x7fffu

struct rule {
    uint64_t access;
    int32_t parent;
} __attribute__((packed));

static long ruleset(uint64_t handled)
{
    return syscall(444, &handled, sizeof handled, 0);
}
static long add(int set, int parent, uint64_t access)
{
    struct rule rule = { access, parent };
    return syscall(445, set, 1, &rule, 0);
}
static long allow(int set, const char *path, uint64_t access)
{
    int parent = open(path, O_PATH | O_CLOEXEC);
    long done = add(set, parent, access);
    int error = errno;
    close(parent);
    errno = error;
    return done;
}
static long restrict_self(int set)
{
    return syscall(446, set, 0);
}
/* Handles `handled`, of which `access` is allowed below `path`. */
static void hold(uint64_t handled, const char *path, uint64_t access)
{
    int set = ruleset(handled);
    if (path && allow(set, path, access))
        say("allow: %s", strerrorname_np(errno));
    if (restrict_self(set))
        say("restrict: %s", strerrorname_np(errno));
    close(set);
}
static void tree(void)
{
    make_dir("a");
    make_dir("a/in");
    make_dir("b");
    make("a/f", "of a");
    make("a/in/f", "of in");
    make("b/f", "of b");
    make("f", "here");
}
/* Opens and closes. */
static long reach(const char *path, int flags)
{
    int fd = open(path, flags, 0644);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

GROUP(landlock, arguments)
{
    uint64_t words[8] = { READ_FILE }, bad[8] = { 1ull << 40 };
    make_dir("d");
    make("f", "x");
    say("version known: %d", syscall(444, NULL, 0, 1) >= 1);
    T(syscall(444, NULL, 0, 0));
    T(syscall(444, words, 0, 0));
    T(syscall(444, words, 7, 0));
    T(syscall(444, (void *)1, 8, 0));
    T(syscall(444, words, 5000, 0));
    T(syscall(444, bad, 8, 0));
    T(syscall(444, words, 8, 1));
    T(syscall(444, words, 8, 8));
    words[0] = 0;
    T(syscall(444, words, 8, 0));
    words[0] = READ_FILE, words[7] = 1;
    T(syscall(444, words, sizeof words, 0));
    words[7] = 0;
    int set = T(syscall(444, words, sizeof words, 0));
    T(fcntl(set, F_GETFD));
    int fd = T(open("f", O_RDONLY)), dir = T(open("d", O_PATH)), top = T(open("d", O_RDONLY));
    struct rule rule = { READ_FILE, dir };
    T(syscall(445, set, 1, &rule, 1));
    T(syscall(445, 99, 1, &rule, 1));
    T(syscall(445, 99, 1, &rule, 0));
    T(syscall(445, fd, 1, &rule, 0));
    T(syscall(445, dir, 1, &rule, 0));
    T(syscall(445, set, 0, &rule, 0));
    T(syscall(445, set, 9, &rule, 0));
    T(syscall(445, set, 1, NULL, 0));
    T(syscall(445, fd, 1, NULL, 0));
    T(add(set, dir, 0));
    T(add(set, 99, 0));
    T(add(set, dir, WRITE_FILE));
    T(add(set, 99, WRITE_FILE));
    T(add(set, dir, 1ull << 40));
    T(add(set, 99, READ_FILE));
    T(add(set, -1, READ_FILE));
    T(add(set, set, READ_FILE));
    T(add(set, dir, READ_FILE));
    T(add(set, top, READ_FILE));
    T(add(set, fd, READ_FILE));
    int all = T(ruleset(ALL)), p[2];
    T(add(all, fd, READ_FILE | READ_DIR));
    T(add(all, fd, MAKE_REG));
    T(add(all, fd, READ_FILE | EXECUTE | TRUNCATE | WRITE_FILE));
    T(add(all, dir, ALL));
    pipe(p);
    T(add(all, p[0], READ_FILE));
    T(restrict_self(99));
    T(restrict_self(fd));
    T(restrict_self(dir));
    T(syscall(446, set, 1 << 20));
    T(syscall(446, 99, 1 << 20));
    CHILD
    {
        become_nobody();
        T(restrict_self(set));
        T(restrict_self(99));
        T(syscall(446, set, 1 << 20));
        T(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        T(restrict_self(fd));
        T(restrict_self(set));
        T(reach("f", O_RDONLY));
        T(reach("f", O_WRONLY));
    }
    T(reach("f", O_RDONLY));
}

GROUP(landlock, files)
{
    tree();
    CHILD
    {
        hold(READ_FILE | WRITE_FILE, "a", READ_FILE);
        T(reach("a/f", O_RDONLY));
        T(reach("a/in/f", O_RDONLY));
        T(reach("a/in/../f", O_RDONLY));
        T(reach("a/f", O_WRONLY));
        T(reach("a/f", O_RDWR));
        T(reach("a/f", O_RDONLY | O_TRUNC));
        T(reach("a/f", 3));
        T(reach("b/f", O_RDONLY));
        struct open_how how = { O_RDONLY };
        T(syscall(437, AT_FDCWD, "b/f", &how, sizeof how));
        T(syscall(437, AT_FDCWD, "a/f", &how, sizeof how) > 0);
        how.resolve = RESOLVE_BENEATH;
        T(open_how(AT_FDCWD, "b/f", how));
        T(open_how(AT_FDCWD, "a/../b/f", how));
        T(open_how(AT_FDCWD, "a/f", how) > 0);
        T(reach("f", O_RDONLY));
        T(reach("f", O_RDONLY | O_NOATIME));
        T(reach("f", O_PATH));
        T(reach("f", 3));
        T(reach("none", O_RDONLY));
        T(reach("f/none", O_RDONLY));
        T(reach("f", O_RDONLY | O_DIRECTORY));
        T(reach("b", O_WRONLY));
        T(reach("b", O_RDONLY));
        T(reach(".", O_RDONLY));
        T(reach("f", O_RDONLY | O_CREAT));
        T(reach("f", O_RDONLY | O_CREAT | O_EXCL));
        T(reach("new", O_RDONLY | O_CREAT));
        T(reach("newer", O_WRONLY | O_CREAT));
        T(reach("a/new", O_RDONLY | O_CREAT));
        T(reach("a/newer", O_RDWR | O_CREAT));
        T(reach(".", O_TMPFILE | O_RDWR));
        T(access("new", F_OK));
        T(access("newer", F_OK));
        T(access("a/newer", F_OK));
        struct stat st;
        T(stat("b/f", &st));
        T(chmod("b/f", 0600));
        T(chown("b/f", -1, -1));
        T(utimensat(AT_FDCWD, "b/f", NULL, 0));
        T(chdir("b"));
        T(reach("f", O_RDONLY));
        T(reach("../a/f", O_RDONLY));
    }
    CHILD
    {
        hold(WRITE_FILE, "b", WRITE_FILE);
        T(reach("b/f", O_WRONLY | O_TRUNC));
        T(reach("b/f", O_RDWR));
        T(reach("b", O_TMPFILE | O_RDWR));
        T(reach("b/new", O_RDWR | O_CREAT | O_EXCL));
        T(reach("a/f", O_RDONLY));
        T(reach("a/f", O_RDONLY | O_TRUNC));
        T(reach("a/f", O_RDWR));
        T(reach("a/f", O_RDWR | O_APPEND));
        T(truncate("f", 1));
    }
    CHILD
    {
        hold(READ_DIR, "a", READ_DIR);
        T(reach("a", O_RDONLY));
        T(reach("a/in", O_RDONLY | O_DIRECTORY));
        T(reach("b", O_RDONLY | O_DIRECTORY));
        T(reach(".", O_RDONLY));
        T(reach(".", O_PATH));
        T(reach("f", O_RDWR));
        T(chdir("b"));
    }
    contents("a/f");
    contents("b/f");
    contents("f");
}

GROUP(landlock, what_is_open)
{
    tree();
    int before = T(open("f", O_RDWR)), path = T(open("b", O_PATH));
    char text[8];
    CHILD
    {
        hold(READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE, "a", READ_FILE | WRITE_FILE | READ_DIR);
        T(read(before, text, 4));
        T(write(before, "x", 1));
        T(ftruncate(before, 2));
        T(openat(path, "f", O_RDONLY));
        T(openat(path, ".", O_RDONLY));
        char name[64];
        sprintf(name, "/proc/self/fd/%d", before);
        T(reach(name, O_RDONLY));
        int fd = T(open("a/f", O_RDWR));
        T(ftruncate(fd, 1));
        T(fallocate(fd, 0, 0, 10));
        T(reach("a/f", O_WRONLY | O_TRUNC));
        T(truncate("a/f", 1));
        T(truncate("f", 1));
        T(truncate("a", 1));
        T(truncate("a/none", 1));
        T(truncate("a/f", -1));
        fd = T(open("a/f", O_RDONLY));
        T(ftruncate(fd, 1));
        int twin = T(dup(fd));
        T(read(twin, text, 8));
        sprintf(name, "/proc/self/fd/%d", fd);
        T(reach(name, O_RDWR));
        T(reach(name, O_RDWR | O_TRUNC));
    }
    CHILD
    {
        hold(TRUNCATE, "b", TRUNCATE);
        T(reach("b/f", O_WRONLY | O_TRUNC));
        T(reach("a/f", O_WRONLY | O_TRUNC));
        T(reach("a/f", O_RDONLY | O_TRUNC));
        T(reach("a/f", O_WRONLY));
        int made = T(open("a/made", O_RDWR | O_CREAT | O_TRUNC, 0600));
        T(write(made, "x", 1));
        T(ftruncate(made, 0));
        made = T(open("b/made", O_RDWR | O_CREAT | O_TRUNC, 0600));
        T(ftruncate(made, 0));
        made = T(open("a", O_TMPFILE | O_RDWR, 0600));
        T(ftruncate(made, 0));
        T(ftruncate(before, 0));
    }
    attributes("f");
}

GROUP(landlock, removed_names)
{
    /* So that the directories are not the first in their slots. */
    for (int i = 0; i < 1000; i++) {
        mkdir("old", 0755);
        rmdir("old");
    }
    tree();
    int of_a = T(open("a/f", O_RDWR)), of_b = T(open("b/f", O_RDWR));
    unlink("a/f");
    unlink("b/f");
    CHILD
    {
        hold(READ_FILE | WRITE_FILE, "a", READ_FILE);
        char name[64];
        sprintf(name, "/proc/self/fd/%d", of_a);
        T(reach(name, O_RDONLY));
        T(reach(name, O_WRONLY));
        sprintf(name, "/proc/self/fd/%d", of_b);
        T(reach(name, O_RDONLY));
    }
}

GROUP(landlock, names)
{
    tree();
    make_dir("a/empty");
    make_dir("b/empty");
    CHILD
    {
        hold(REMOVE_FILE | REMOVE_DIR | MAKE_REG | MAKE_DIR | MAKE_SYM | MAKE_FIFO | MAKE_SOCK | MAKE_CHAR | MAKE_BLOCK, "a",
            REMOVE_FILE | MAKE_DIR | MAKE_FIFO);
        T(mkdir("a/d", 0755));
        T(mkdir("b/d", 0755));
        T(mkdir("b/empty", 0755));
        T(mkdir("none/d", 0755));
        T(mkdir("a/d/e", 0755));
        T(rmdir("a/d/e"));
        T(rmdir("a/none"));
        T(rmdir("a/f"));
        T(rmdir("a/."));
        T(unlink("a/d"));
        T(unlink("b/empty"));
        T(unlink("b/none"));
        T(unlink("b/f"));
        T(unlink("a/in/f"));
        T(unlinkat(AT_FDCWD, "a/empty", AT_REMOVEDIR));
        T(symlink("f", "a/l"));
        T(symlink("f", "a/f"));
        T(mkfifo("a/p", 0600));
        T(mkfifo("b/p", 0600));
        T(mknod("a/r", S_IFREG | 0600, 0));
        T(mknod("a/c", S_IFCHR | 0600, 0));
        T(mknod("a/f", S_IFREG | 0600, 0));
        T(reach("a/new", O_WRONLY | O_CREAT));
        T(reach("a/f", O_WRONLY | O_CREAT));
        T(reach("a/f", O_WRONLY | O_CREAT | O_EXCL));
        T(reach("a", O_TMPFILE | O_RDWR));
        T(link("a/f", "a/g"));
        T(rename("a/f", "a/g"));
        T(rename("a/p", "a/q"));
        T(rename("a/q", "a/f"));
        T(rename("a/d", "a/e"));
        int s = socket(AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr_un at = { AF_UNIX, "a/s" };
        T(bind(s, (void *)&at, sizeof at));
        T(access("a/s", F_OK));
    }
    CHILD
    {
        hold(MAKE_SYM | MAKE_SOCK | MAKE_REG | MAKE_CHAR, "b", MAKE_SYM | MAKE_SOCK | MAKE_CHAR);
        T(symlink("f", "b/l"));
        T(symlink("f", "a/l"));
        T(reach("b/l", O_RDONLY));
        T(mknod("b/c", S_IFCHR | 0600, 0));
        T(mknod("a/c", S_IFCHR | 0600, 0));
        T(mkfifo("a/p2", 0600));
        T(mkdir("a/d2", 0700));
        T(link("b/f", "b/g"));
        T(rename("b/f", "b/g"));
        T(rename("b/l", "b/m"));
        int s = socket(AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr_un at = { AF_UNIX, "b/s" };
        T(bind(s, (void *)&at, sizeof at));
        T(listen(s, 1));
        int c = socket(AF_UNIX, SOCK_STREAM, 0);
        T(connect(c, (void *)&at, sizeof at));
    }
}

GROUP(landlock, refers)
{
    tree();
    make_dir("b/sub");
    CHILD
    {
        hold(MAKE_REG | REMOVE_FILE, ".", MAKE_REG | REMOVE_FILE);
        T(link("a/f", "a/g"));
        T(link("a/f", "b/g"));
        T(rename("a/g", "a/h"));
        T(rename("a/h", "b/h"));
        T(rename("a/none", "b/h"));
        T(rename("a/in", "b/in"));
        T(renameat2(AT_FDCWD, "a/f", AT_FDCWD, "b/f", RENAME_EXCHANGE));
        T(renameat2(AT_FDCWD, "a/f", AT_FDCWD, "a/h", RENAME_EXCHANGE));
        T(renameat2(AT_FDCWD, "a/f", AT_FDCWD, "b/f", RENAME_NOREPLACE));
        T(rename("a/f", "b/sub"));
    }
    CHILD
    {
        /* Rights to remove are missing: EACCES precedes EXDEV. */
        hold(MAKE_REG | REMOVE_FILE, ".", MAKE_REG);
        T(link("a/f", "b/g2"));
        T(rename("a/f", "b/g2"));
        T(rename("a/f", "a/g2"));
    }
    CHILD
    {
        hold(REFER | MAKE_REG, ".", REFER | MAKE_REG);
        T(link("a/f", "b/linked"));
        T(rename("b/linked", "a/moved"));
        T(rename("a/in", "b/in"));
        T(rename("b/in", "a/in"));
        T(renameat2(AT_FDCWD, "a/f", AT_FDCWD, "b/f", RENAME_EXCHANGE));
    }
    CHILD
    {
        /* From where less is allowed to where more is, and back. */
        int set = ruleset(REFER | READ_FILE | WRITE_FILE | EXECUTE);
        T(allow(set, "a", REFER | READ_FILE));
        T(allow(set, "b", REFER | READ_FILE | WRITE_FILE));
        T(restrict_self(set));
        T(rename("a/moved", "b/moved"));
        T(link("a/f", "b/linked2"));
        T(link("b/f", "a/linked2"));
        T(rename("a/linked2", "a/linked3"));
        T(renameat2(AT_FDCWD, "a/f", AT_FDCWD, "b/f", RENAME_EXCHANGE));
        T(rename("f", "b/here"));
        T(rename("b/f", "f2"));
        T(rename("a/in", "b/in"));
    }
    CHILD
    {
        /* The file has the rights of its own that it would gain. */
        int set = ruleset(REFER | READ_FILE | WRITE_FILE | REMOVE_FILE | MAKE_REG);
        T(allow(set, "a", REFER | READ_FILE | REMOVE_FILE | MAKE_REG));
        T(allow(set, "b", REFER | READ_FILE | WRITE_FILE | REMOVE_FILE | MAKE_REG));
        T(allow(set, "a/f", WRITE_FILE));
        T(restrict_self(set));
        T(rename("a/f", "b/other"));
        T(rename("b/other", "a/f"));
        T(rename("a/in", "b/in"));
        T(renameat2(AT_FDCWD, "a/f", AT_FDCWD, "b/sub", RENAME_EXCHANGE));
    }
    CHILD
    {
        int set = ruleset(REFER | MAKE_DIR | REMOVE_DIR | MAKE_REG);
        T(allow(set, "a", REFER | MAKE_REG));
        T(allow(set, "b", REFER | MAKE_DIR | REMOVE_DIR));
        T(restrict_self(set));
        T(rename("b/sub", "a/sub"));
        T(rename("a/in", "b/in"));
        T(link("a/f", "b/more"));
        T(link("b/f", "a/more"));
        T(rename("b/sub", "b/sub2"));
    }
    CHILD
    {
        /* Two layers, only one of which lets files move. */
        hold(REFER, ".", REFER);
        T(rename("a/f", "b/twice"));
        hold(MAKE_SYM, ".", MAKE_SYM);
        T(rename("b/twice", "a/f"));
        T(link("b/f", "a/fourth"));
        T(symlink("x", "a/sym"));
        T(rename("a/sym", "a/sym2"));
    }
}

GROUP(landlock, layers)
{
    tree();
    CHILD
    {
        hold(READ_FILE, ".", READ_FILE);
        T(reach("a/f", O_RDONLY));
        hold(READ_FILE | WRITE_FILE, "a", READ_FILE);
        T(reach("a/f", O_RDONLY));
        T(reach("a/f", O_WRONLY));
        T(reach("b/f", O_RDONLY));
        hold(WRITE_FILE, "b", WRITE_FILE);
        T(reach("b/f", O_WRONLY));
        T(reach("a/f", O_RDONLY));
        hold(READ_FILE, "b", READ_FILE);
        T(reach("a/f", O_RDONLY));
        T(reach("b/f", O_RDONLY));
    }
    CHILD
    {
        /* Rights of one layer come from several rules on the way up. */
        int set = ruleset(READ_FILE | WRITE_FILE | READ_DIR);
        T(allow(set, "a", READ_FILE));
        T(allow(set, "a/in", WRITE_FILE));
        T(allow(set, "a/in", READ_DIR));
        T(allow(set, "f", WRITE_FILE));
        T(restrict_self(set));
        T(allow(set, "b", READ_FILE));
        T(reach("b/f", O_RDONLY));
        T(reach("a/in/f", O_RDWR));
        T(reach("a/f", O_RDWR));
        T(reach("a/in", O_RDONLY));
        T(reach("a", O_RDONLY));
        T(reach("f", O_WRONLY));
        T(reach("f", O_RDONLY));
        T(restrict_self(set));
        T(reach("b/f", O_RDONLY));
        T(reach("a/in/f", O_RDWR));
    }
    CHILD
    {
        int set = ruleset(WRITE_FILE);
        T(allow(set, "a", WRITE_FILE));
        int made = 0;
        while (restrict_self(set) == 0 && made < 100)
            made++;
        say("%d layers, then %s", made, strerrorname_np(errno));
        T(reach("a/f", O_WRONLY));
        T(reach("b/f", O_WRONLY));
        T(reach("b/f", O_RDONLY));
    }
    CHILD
    {
        /* A layer without rights to files. */
        uint64_t net[2] = { 0, 1 };
        int set = T(syscall(444, net, 16, 0));
        T(allow(set, ".", READ_FILE));
        T(restrict_self(set));
        T(reach("f", O_RDWR));
        T(rename("a/f", "b/moved"));
        T(mount("none", "a", "none", MS_REMOUNT | MS_BIND, NULL) == -1 && errno != EPERM);
    }
}

static void *look(void *name)
{
    TN((const char *)name, reach("f", O_RDONLY));
    return NULL;
}
static void in_thread(void *(*does)(void *), const char *name)
{
    pthread_t thread;
    pthread_create(&thread, NULL, does, (void *)name);
    pthread_join(thread, NULL);
}
static pthread_barrier_t barrier;
static void *held(void *unused)
{
    hold(READ_FILE, "a", READ_FILE);
    T(reach("f", O_RDONLY));
    T(reach("a/f", O_RDONLY));
    in_thread(look, "in its thread");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHILD
    {
        T(reach("f", O_RDONLY));
        T(reach("a/f", O_RDONLY));
    }
    return NULL;
}
static void *further(void *unused)
{
    hold(READ_FILE, "b", READ_FILE);
    T(reach("f", O_RDONLY));
    T(reach("b/f", O_RDONLY));
    T(reach("a/f", O_RDONLY));
    return NULL;
}

GROUP(landlock, threads)
{
    tree();
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, held, NULL);
    pthread_barrier_wait(&barrier);
    T(reach("f", O_RDONLY));
    in_thread(look, "in another thread of the first");
    CHILD
    {
        T(reach("f", O_RDONLY));
    }
    in_thread(further, NULL);
    T(reach("f", O_RDONLY));
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    hold(READ_FILE, "a", READ_FILE);
    T(reach("f", O_RDONLY));
    in_thread(look, "afterwards");
}

static void *executes(void *unused)
{
    hold(WRITE_FILE, "a", WRITE_FILE);
    char *args[] = { "/bin/sh", "-c", "echo x > a/f && echo a; (echo x > f) 2>&- || echo not f", NULL };
    execv(args[0], args);
    return NULL;
}

GROUP(landlock, over_exec)
{
    tree();
    CHILD
    {
        hold(WRITE_FILE | READ_FILE, "/", READ_FILE);
        char *args[] = { "/bin/sh", "-c", "read x < f; echo $x; (echo x > f) 2>&- || echo not written; (exec /bin/sh -c '(echo x > a/f) 2>&- || echo nor that')", NULL };
        T(execv(args[0], args));
    }
    CHILD
    {
        pthread_t thread;
        pthread_create(&thread, NULL, executes, NULL);
        pthread_join(thread, NULL);
    }
    CHILD
    {
        hold(READ_FILE | MAKE_DIR, "/", READ_FILE);
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", "mkdir d 2>&- || echo no directory", NULL);
            _exit(1);
        }
        say_wait(child);
    }
}

static void run(const char *path)
{
    pid_t child = fork();
    if (child == 0) {
        execl(path, "x", NULL);
        say("%s: %s", path, strerrorname_np(errno));
        _exit(9);
    }
    say_wait(child);
}

GROUP(landlock, programs)
{
    make_dir("a");
    make_dir("b");
    make("a/script", "#!/bin/sh\necho script\n");
    make("a/inner", "#! b/interpreter\n");
    make("b/interpreter", "#!/bin/sh\necho by the interpreter\n");
    chmod("a/script", 0755);
    chmod("a/inner", 0755);
    chmod("b/interpreter", 0755);
    if (system("cp /bin/true a/true; cp /bin/true b/true"))
        say("no copy");
    CHILD
    {
        int set = ruleset(EXECUTE);
        T(allow(set, "a", EXECUTE));
        T(allow(set, "/bin", EXECUTE));
        T(allow(set, "/lib", EXECUTE));
        T(allow(set, "/lib64", EXECUTE));
        T(restrict_self(set));
        run("a/script");
        run("a/true");
        run("b/true");
        run("b/none");
        run("a");
        run("a/inner");
        run("/bin/true");
        int fd = T(open("b/true", O_RDONLY));
        T(fexecve(fd, (char *[]) { "x", NULL }, environ));
        T(syscall(322, fd, "", NULL, NULL, AT_EMPTY_PATH | 0x10000));
        fd = T(open("a/true", O_RDONLY));
        T(syscall(322, fd, "", NULL, NULL, AT_EMPTY_PATH | 0x10000));
    }
    CHILD
    {
        /* Reading is needed, too. */
        int set = ruleset(EXECUTE | READ_FILE);
        T(allow(set, "/", EXECUTE));
        T(restrict_self(set));
        run("a/true");
        run("a/script");
        run("/bin/true");
    }
    CHILD
    {
        int set = ruleset(EXECUTE);
        T(allow(set, ".", EXECUTE));
        T(restrict_self(set));
        run("a/script");
        run("/bin/true");
    }
}

GROUP(landlock, of_files_and_moved_directories)
{
    tree();
    make_dir("gone");
    int gone = T(open("gone", O_RDONLY | O_DIRECTORY)), in = T(open("a/in", O_RDONLY | O_DIRECTORY));
    CHILD
    {
        int set = ruleset(READ_FILE | WRITE_FILE | MAKE_REG | READ_DIR);
        T(allow(set, "f", READ_FILE));
        T(allow(set, "a/in", READ_FILE));
        T(allow(set, "gone", READ_DIR));
        T(add(set, gone, MAKE_REG));
        T(restrict_self(set));
        pid_t child = fork();
        if (!child) {
            T(reach("f", O_RDONLY));
            T(reach("b/f", O_RDONLY));
            T(openat(in, "f", O_RDONLY));
            T(openat(gone, ".", O_RDONLY));
            T(openat(gone, "new", O_RDONLY | O_CREAT, 0600));
            _exit(0);
        }
        say_wait(child);
    }
    unlink("gone/new");
    int ready[2], go[2];
    pipe(ready);
    pipe(go);
    pid_t child = fork();
    if (!child) {
        char byte;
        int set = ruleset(READ_FILE | WRITE_FILE | MAKE_REG | READ_DIR);
        T(allow(set, "f", READ_FILE));
        T(allow(set, "a/in", READ_FILE));
        T(allow(set, "gone", READ_DIR));
        T(restrict_self(set));
        write(ready[1], "x", 1);
        read(go[0], &byte, 1);
        T(reach("b/f2", O_RDONLY));
        T(reach("b/l", O_RDONLY));
        T(reach("f", O_RDONLY));
        T(reach("b/moved/f", O_RDONLY));
        T(reach("b/moved/f", O_WRONLY));
        T(openat(in, "f", O_RDONLY));
        T(openat(gone, ".", O_RDONLY));
        T(openat(gone, "new", O_RDONLY | O_CREAT, 0600));
        T(reach("gone", O_RDONLY));
        _exit(0);
    }
    char byte;
    read(ready[0], &byte, 1);
    T(rename("f", "b/f2"));
    T(link("b/f2", "b/l"));
    make("f", "another");
    T(rename("a/in", "b/moved"));
    T(rmdir("gone"));
    make_dir("gone");
    write(go[1], "x", 1);
    say_wait(child);
}

GROUP(landlock, here_and_on_the_host)
{
    tree();
    CHILD
    {
        int set = ruleset(READ_FILE | READ_DIR);
        T(allow(set, "a", READ_FILE));
        T(allow(set, "/etc", READ_DIR | READ_FILE));
        T(restrict_self(set));
        T(reach("a/f", O_RDONLY));
        T(reach("b/f", O_RDONLY));
        T(reach("a", O_RDONLY));
        T(reach("/etc/passwd", O_RDONLY));
        T(reach("/etc", O_RDONLY));
        T(reach("/usr", O_RDONLY));
        T(reach("/", O_RDONLY));
        T(reach("/dev/null", O_RDONLY));
        T(symlink("/etc/passwd", "out"));
        T(reach("out", O_RDONLY));
        T(symlink("/usr/bin", "usr"));
        T(reach("usr", O_RDONLY));
    }
    CHILD
    {
        hold(READ_FILE | WRITE_FILE | MAKE_REG, "/", READ_FILE | MAKE_REG);
        T(reach("a/f", O_RDONLY));
        T(reach("b/f", O_WRONLY));
        T(reach("a/new", O_RDONLY | O_CREAT));
        T(reach("/etc/passwd", O_RDONLY));
        T(reach("/dev/null", O_WRONLY));
        T(rename("a/f", "b/moved"));
    }
    CHILD
    {
        hold(REFER | MAKE_REG, "/", REFER | MAKE_REG);
        T(rename("a/f", "b/moved"));
        T(rename("b/moved", "a/f"));
        T(rename("a/in", "b/in"));
    }
    CHILD
    {
        hold(READ_FILE, NULL, 0);
        T(reach("a/f", O_RDONLY));
        T(reach("a/f", O_WRONLY));
        T(reach("/etc/passwd", O_RDONLY));
        T(reach("/etc", O_RDONLY));
    }
    CHILD
    {
        int set = ruleset(READ_FILE), twin = dup(set);
        T(allow(twin, "a", READ_FILE));
        T(restrict_self(twin));
        T(reach("a/f", O_RDONLY));
        T(reach("b/f", O_RDONLY));
    }
    CHILD
    {
        /* Over a fork. */
        int set = ruleset(READ_FILE);
        T(allow(set, "a", READ_FILE));
        CHILD
        {
            T(allow(set, "b", READ_FILE));
            T(restrict_self(set));
            T(reach("a/f", O_RDONLY));
            T(reach("b/f", O_RDONLY));
            T(reach("f", O_RDONLY));
        }
        T(reach("f", O_RDONLY));
    }
    CHILD
    {
        for (int i = 0; i < 40; i++)
            close(ruleset(READ_FILE));
        hold(READ_FILE, "b", READ_FILE);
        T(reach("a/f", O_RDONLY));
        T(reach("b/f", O_RDONLY));
    }
}

GROUP(landlock, mounts)
{
    make_dir("d");
    CHILD
    {
        hold(READ_FILE, "/", READ_FILE);
        T(mount("none", "d", "tmpfs", 0, NULL));
        T(mount("d", "d", NULL, MS_BIND, NULL));
        T(mount(NULL, "d", NULL, MS_REMOUNT, NULL));
        T(umount2("d", 0));
        T(chroot("d"));
    }
}

GROUP(landlock, fifos)
{
    make_dir("a");
    make_dir("b");
    T(mkfifo("a/p", 0600));
    T(mkfifo("b/p", 0600));
    CHILD
    {
        hold(READ_FILE | WRITE_FILE | MAKE_FIFO, "a", READ_FILE | WRITE_FILE | MAKE_FIFO);
        int fd = T(open("a/p", O_RDWR | O_NONBLOCK));
        char text[4];
        T(write(fd, "abc", 3));
        T(read(fd, text, 4));
        T(open("b/p", O_RDWR | O_NONBLOCK));
        T(open("b/p", O_PATH));
        T(mkfifo("a/q", 0600));
        fd = T(open("a/q", O_RDWR | O_NONBLOCK));
        T(write(fd, "abc", 3));
        T(read(fd, text, 4));
    }
}

static void events(int fd)
{
    char bytes[4096];
    long got = read(fd, bytes, sizeof bytes);
    for (long at = 0; at < got;) {
        struct inotify_event *event = (void *)(bytes + at);
        say("%x %s", event->mask, event->len ? event->name : "");
        at += sizeof *event + event->len;
    }
}

GROUP(landlock, watches)
{
    tree();
    CHILD
    {
        hold(READ_FILE | WRITE_FILE | MAKE_REG, ".", READ_FILE | WRITE_FILE | MAKE_REG);
        int own = inotify_init1(IN_NONBLOCK);
        T(inotify_add_watch(own, "b", IN_CREATE | IN_MODIFY));
        make("b/first", "x");
        events(own);
    }
    int before = inotify_init1(IN_NONBLOCK);
    T(inotify_add_watch(before, "a", IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVE));
    CHILD
    {
        hold(READ_FILE | WRITE_FILE | MAKE_REG | REMOVE_FILE | READ_DIR, ".", READ_FILE | WRITE_FILE | MAKE_REG | REMOVE_FILE);
        make("a/new", "x");
        T(rename("a/new", "a/other"));
        T(unlink("a/other"));
        T(mkdir("a/d", 0700));
        int own = inotify_init1(IN_NONBLOCK);
        T(inotify_add_watch(own, "b", IN_CREATE));
        make("b/new", "x");
        events(own);
    }
    events(before);
}
