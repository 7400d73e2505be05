/* Processes that share working directory, root directory and umask: clone(2) with CLONE_FS. */
#include "mounts.h"
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>

/* The directory that the group runs in. */
static char home[PATH_MAX];

/* Asks a child for its next step; the child says that it is done. */
struct steps {
    int ask[2], done[2];
};

static void prepare(void)
{
    getcwd(home, sizeof home);
    make_dir("a");
    make_dir("a/b");
    make_dir("c");
    make("here", "home");
    make("a/here", "a");
    make("a/b/here", "b");
    make("c/here", "c");
}

static pid_t share(int flags)
{
    fflush(stdout);
    return syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
}

/* Where the caller stands, by the call, by a file, by /proc, and what its umask leaves. */
static void stand(const char *who)
{
    char path[PATH_MAX], text[32] = "", link[PATH_MAX] = "";
    struct stat made;
    errno = 0;
    const char *cwd = syscall(SYS_getcwd, path, sizeof path) < 0 ? strerrorname_np(errno) : path;
    const char *below = strstr(cwd, home);
    int fd = open("here", O_RDONLY);
    if (fd < 0)
        strcpy(text, strerrorname_np(errno));
    else
        text[read(fd, text, sizeof text - 1)] = 0;
    close(fd);
    if (below)
        readlink("/proc/self/cwd", link, sizeof link - 1);
    fd = open("made", O_CREAT | O_EXCL | O_RDWR, 0666);
    int mode = fstat(fd, &made) ? -1 : (int)made.st_mode & 0777;
    close(fd);
    unlink("made");
    const char *linked = strstr(link, home);
    say("%s: []%s, %s, []%s, %o", who, below ? below + strlen(home) : cwd, text,
        linked ? linked + strlen(home) : link, mode);
}

static void begin(struct steps *steps)
{
    pipe(steps->ask);
    pipe(steps->done);
}

/* The child's side: waits for the next step; ends if it is the last. */
static int next(struct steps *steps)
{
    char step = 0;
    if (read(steps->ask[0], &step, 1) != 1 || step == 'q')
        _exit(0);
    return step;
}

static void did(struct steps *steps)
{
    write(steps->done[1], "", 1);
}

/* The parent's side: has the child do a step. */
static void ask(struct steps *steps, char step)
{
    char byte;
    write(steps->ask[1], &step, 1);
    read(steps->done[0], &byte, 1);
}

/* A child that does what it is asked to. */
static void obey(struct steps *steps, const char *who)
{
    for (;;) {
        switch (next(steps)) {
        case 's': stand(who); break;
        case 'a': TN("chdir a", chdir("a")); break;
        case 'b': TN("chdir b", chdir("b")); break;
        case 'c': TN("chdir c", chdir("c")); break;
        case '.': TN("chdir ..", chdir("..")); break;
        case 'h': TN("chdir home", chdir(home)); break;
        case '/': TN("chdir /", chdir("/")); break;
        case '7': say("umask: %o", umask(077)); break;
        case '2': say("umask: %o", umask(022)); break;
        case 'u': TN("unshare", unshare(CLONE_FS)); break;
        case 'r': TN("chroot .", chroot(".")); break;
        case 'R': TN("access /here", access("/here", F_OK)); break;
        }
        did(steps);
    }
}

static pid_t servant(struct steps *steps, const char *who)
{
    begin(steps);
    pid_t child = share(CLONE_FS);
    if (!child) {
        close(steps->ask[1]);
        close(steps->done[0]);
        obey(steps, who);
    }
    close(steps->ask[0]);
    close(steps->done[1]);
    return child;
}

static void dismiss(struct steps *steps, pid_t child)
{
    write(steps->ask[1], "q", 1);
    say_wait(child);
    close(steps->ask[1]);
    close(steps->done[0]);
}

GROUP(sharing, directory_and_umask)
{
    struct steps steps;
    prepare();
    umask(027);
    pid_t child = servant(&steps, "child");
    for (const char *step = "sabs..c7s"; *step; step++) {
        ask(&steps, *step);
        stand("parent");
    }
    T(chdir(".."));
    ask(&steps, 's');
    say("umask: %o", umask(02));
    ask(&steps, 's');
    int fd = open("a/b", O_RDONLY | O_DIRECTORY);
    T(fchdir(fd));
    ask(&steps, 's');
    T(chdir("/"));
    ask(&steps, 'h');
    stand("parent");
    ask(&steps, '/');
    char path[PATH_MAX];
    say("%ld", syscall(SYS_getcwd, path, sizeof path));
    T(access("here", F_OK));
    ask(&steps, 'h');
    ask(&steps, 'a');
    dismiss(&steps, child);
    stand("parent");
}

static int go(void *to)
{
    chdir(to);
    umask(04);
    return 3;
}

/* In all ways to make such a process. */
GROUP(sharing, by_any_call)
{
    static char stack[1 << 18] __attribute__((aligned(16)));
    prepare();
    say_wait(share(CLONE_FS) ?: (chdir("a"), umask(01), _exit(1), 0));
    stand("clone");
    struct clone_args args = { .flags = CLONE_FS, .exit_signal = SIGCHLD };
    say_wait(syscall(SYS_clone3, &args, sizeof args) ?: (chdir("b"), umask(02), _exit(2), 0));
    stand("clone3");
    say_wait(clone(go, stack + sizeof stack, CLONE_FS | SIGCHLD, ".."));
    stand("on a stack");
    say_wait(clone(go, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FS | SIGCHLD, "b"));
    stand("in the parent's memory");
    say_wait(clone(go, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, home));
    stand("there, without sharing");
    say_wait(share(0) ?: (chdir(home), umask(07), _exit(4), 0));
    stand("without sharing");
}

GROUP(sharing, unshared)
{
    struct steps steps;
    prepare();
    umask(022);
    pid_t child = servant(&steps, "child");
    for (const char *step = "au.c7s"; *step; step++) {
        ask(&steps, *step);
        stand("parent");
    }
    /* The other way round: who began leaves, the child and a new one stay. */
    dismiss(&steps, child);
    T(chdir(home));
    struct steps second, third;
    child = servant(&steps, "child");
    pid_t other = servant(&second, "other");
    T(chdir("a"));
    T(unshare(CLONE_FS));
    T(chdir("b"));
    ask(&steps, 's');
    ask(&steps, '.');
    ask(&steps, 'c');
    ask(&second, 's');
    ask(&second, '7');
    stand("parent");
    pid_t grandchild = servant(&third, "third");
    ask(&third, 's');
    T(chdir(home));
    ask(&third, 's');
    ask(&third, 'a');
    stand("parent");
    ask(&steps, 's');
    T(unshare(CLONE_FS));
    ask(&third, 'b');
    stand("parent");
    dismiss(&third, grandchild);
    dismiss(&steps, child);
    ask(&second, 's');
    dismiss(&second, other);
    T(unshare(CLONE_FS));
    stand("parent");
}

GROUP(sharing, three_and_a_killed_one)
{
    struct steps first, second;
    prepare();
    pid_t child = servant(&first, "first");
    pid_t other = servant(&second, "second");
    ask(&first, 'a');
    ask(&second, 's');
    stand("parent");
    kill(child, SIGSTOP);
    T(chdir("b"));
    ask(&second, 's');
    ask(&second, '.');
    kill(child, SIGCONT);
    ask(&first, 's');
    kill(child, SIGKILL);
    say_wait(child);
    ask(&second, 's');
    T(chdir("b"));
    ask(&second, 's');
    kill(other, SIGKILL);
    say_wait(other);
    stand("parent");
    T(chdir(".."));
    stand("parent");
}

/* Who began ends; the others go on. */
GROUP(sharing, without_who_began)
{
    struct steps first, second;
    prepare();
    for (int killed = 0; killed < 2; killed++) {
        begin(&first);
        begin(&second);
        pid_t began = fork();
        if (!began) {
            chdir("a");
            if (!share(CLONE_FS)) {
                close(second.done[1]);
                obey(&first, "first");
            }
            if (!share(CLONE_FS)) {
                close(first.done[1]);
                obey(&second, "second");
            }
            umask(05);
            if (killed)
                raise(SIGKILL);
            _exit(0);
        }
        say_wait(began);
        /* Other processes come and go in between. */
        for (int i = 0; i < 300; i++) {
            pid_t passer = fork();
            if (!passer)
                _exit(chdir("c"));
            waitpid(passer, 0, 0);
        }
        ask(&first, 's');
        ask(&second, 'b');
        ask(&first, 's');
        ask(&first, '2');
        ask(&second, 's');
        for (int i = 0; i < 2; i++) {
            struct steps *steps = i ? &second : &first;
            char byte;
            close(steps->done[1]);
            write(steps->ask[1], "q", 1);
            while (read(steps->done[0], &byte, 1) == 1)
                ;
            close(steps->done[0]);
            close(steps->ask[0]);
            close(steps->ask[1]);
        }
    }
    stand("parent");
}

GROUP(sharing, a_removed_directory)
{
    struct steps steps;
    prepare();
    make_dir("gone");
    T(chdir("gone"));
    pid_t child = servant(&steps, "child");
    T(rmdir("../gone"));
    struct stat before, after;
    T(stat(".", &before));
    ask(&steps, 's');
    for (int i = 0; i < 300; i++) {
        char name[PATH_MAX + 16];
        sprintf(name, "%s/new%d", home, i);
        mkdir(name, 0777);
    }
    T(stat(".", &after));
    T(before.st_ino == after.st_ino && !after.st_nlink);
    ask(&steps, 'u');
    T(chdir(home));
    ask(&steps, 's');
    T(mkdir("other", 0777));
    ask(&steps, 'h');
    ask(&steps, 's');
    dismiss(&steps, child);
}

/* A new image goes on sharing; so do threads. */
GROUP(sharing, over_exec)
{
    struct steps steps;
    prepare();
    begin(&steps);
    pid_t child = share(CLONE_FS);
    if (!child) {
        char script[200];
        dup2(steps.ask[0], 0);
        dup2(steps.done[1], 6);
        for (int fd = 7; fd < 20; fd++)
            close(fd);
        strcpy(script, "echo >&6; read x; cat here; cd a; echo >&6; read x; cat here; umask 012; echo >&6");
        execl("/bin/sh", "sh", "-c", script, NULL);
        _exit(1);
    }
    char byte;
    read(steps.done[0], &byte, 1);
    T(chdir("c"));
    T(chdir(".."));
    write(steps.ask[1], "\n", 1);
    read(steps.done[0], &byte, 1);
    stand("parent");
    T(chdir("b"));
    write(steps.ask[1], "\n", 1);
    read(steps.done[0], &byte, 1);
    say_wait(child);
    stand("parent");
}

static void *wander(void *to)
{
    T(chdir(to));
    return NULL;
}

GROUP(sharing, beside_threads)
{
    struct steps steps;
    pthread_t thread;
    prepare();
    pid_t child = servant(&steps, "child");
    pthread_create(&thread, NULL, wander, "a");
    pthread_join(thread, NULL);
    ask(&steps, 's');
    ask(&steps, 'b');
    pthread_create(&thread, NULL, wander, ".");
    pthread_join(thread, NULL);
    stand("parent");
    dismiss(&steps, child);
}

/* A thread that leaves the directories and the umask of its process, and takes steps like a servant. */
struct apart {
    struct steps steps;
    pthread_t thread;
    const char *name;
};

static void *works_apart(void *given)
{
    struct apart *own = given;
    char step;
    T(unshare(CLONE_FS));
    for (;;) {
        write(own->steps.done[1], "", 1);
        if (read(own->steps.ask[0], &step, 1) != 1 || step == 'q')
            return NULL;
        char path[] = { step, 0 };
        switch (step) {
        case 's': stand(own->name); break;
        case 'm': umask(077); break;
        case '.': T(chdir("..")); break;
        case 'u': T(unshare(CLONE_FS)); break;
        case 'R': T(chroot(".")); T(access("/here", F_OK)); break;
        case 'f': {
            CHILD { stand("child of the thread"); T(chdir("/")); }
            break;
        }
        case 'k': {
            pid_t child = share(CLONE_FS);
            if (child == 0) {
                chdir("b");
                stand("child that shares with the thread");
                fflush(stdout);
                _exit(0);
            }
            say_wait(child);
            break;
        }
        case 't': { /* Another thread, which shares with it. */
            pthread_t other;
            pthread_create(&other, NULL, wander, "..");
            pthread_join(other, NULL);
            break;
        }
        case 'x':
            fflush(stdout);
            execl("/bin/sh", "sh", "-c", "pwd -P | sed 's,.*/,,'; cat here; umask", NULL);
        default: T(chdir(path));
        }
        fflush(stdout);
    }
}

static void go_apart(struct apart *apart, const char *name)
{
    char done;
    apart->name = name;
    pipe(apart->steps.ask), pipe(apart->steps.done);
    fflush(stdout);
    pthread_create(&apart->thread, NULL, works_apart, apart);
    read(apart->steps.done[0], &done, 1);
}

static void end_apart(struct apart *apart)
{
    write(apart->steps.ask[1], "q", 1);
    pthread_join(apart->thread, NULL);
}

GROUP(sharing, a_thread_apart)
{
    static struct apart one, other;
    prepare();
    go_apart(&one, "one");
    stand("first");
    ask(&one.steps, 's');
    ask(&one.steps, 'a');
    ask(&one.steps, 'm');
    ask(&one.steps, 's');
    stand("first");
    T(chdir("c"));
    umask(027);
    ask(&one.steps, 's');
    go_apart(&other, "other");
    ask(&other.steps, 's');
    ask(&other.steps, '.');
    ask(&other.steps, 's');
    stand("first");
    ask(&one.steps, 'f');
    ask(&one.steps, 's');
    ask(&one.steps, 'k');
    ask(&one.steps, 's');
    ask(&one.steps, 't');
    ask(&one.steps, 's');
    ask(&one.steps, 'u');
    ask(&one.steps, 's');
    stand("first");
    end_apart(&one);
    ask(&other.steps, 's');
    end_apart(&other);
    stand("first");
    T(unshare(CLONE_FS));
    stand("alone");
}

/* A directory that only a thread stands in, removed. */
GROUP(sharing, a_removed_directory_of_a_thread)
{
    static struct apart one;
    prepare();
    go_apart(&one, "one");
    ask(&one.steps, 'c');
    T(chdir(home));
    ask(&one.steps, 'u');
    T(unlink("c/here"));
    T(rmdir("c"));
    for (int i = 0; i < 300; i++) {
        char name[20];
        sprintf(name, "n%d", i);
        mkdir(name, 0755), rmdir(name), close(open("g", O_CREAT | O_RDWR, 0644)), unlink("g");
    }
    ask(&one.steps, 's');
    stand("first");
    ask(&one.steps, '.');
    ask(&one.steps, 's');
    end_apart(&one);
}

/* An exec by such a thread, and by one beside it. */
GROUP(sharing, exec_of_a_thread_apart)
{
    static struct apart one;
    prepare();
    for (int i = 0; i < 3; i++) {
        int alive[2];
        char byte;
        pipe(alive);
        CHILD {
            struct steps steps;
            if (i == 1 && !servant(&steps, "child"))
                _exit(1);
            go_apart(&one, "one");
            ask(&one.steps, 'a');
            ask(&one.steps, 'm');
            if (i == 2)
                execl("/bin/sh", "sh", "-c", "cat here; umask", NULL);
            write(one.steps.ask[1], "x", 1);
            pause();
        }
        /* Whoever the child has made ends with it. */
        close(alive[1]);
        read(alive[0], &byte, 1);
        close(alive[0]);
    }
}

/* A root directory of one thread's own. */
GROUP(sharing, root_of_a_thread)
{
    static struct apart one;
    if (geteuid() != 0)
        return;
    prepare();
    go_apart(&one, "one");
    ask(&one.steps, 'a');
    ask(&one.steps, 'R');
    T(access("/here", F_OK));
    T(access(home, F_OK));
    contents("here");
    end_apart(&one);
    T(access(home, F_OK));
}

GROUP(sharing, root)
{
    struct steps steps;
    if (geteuid() != 0)
        return;
    prepare();
    pid_t child = servant(&steps, "child");
    T(access("/here", F_OK));
    T(access("/a/b", F_OK));
    ask(&steps, 'a');
    ask(&steps, 'r');
    T(access("/here", F_OK));
    T(access("/b/here", F_OK));
    T(access("/../b/here", F_OK));
    T(access(home, F_OK));
    ask(&steps, 'R');
    T(chdir("/b"));
    T(chroot("/b"));
    ask(&steps, 'R');
    T(access("/../here", F_OK));
    contents("/here");
    ask(&steps, 'u');
    T(chroot("."));
    ask(&steps, 'R');
    dismiss(&steps, child);
}

/* Of two that set out at once, all stand where one of them went. */
GROUP(sharing, together)
{
    prepare();
    int differ = 0;
    for (int round = 0; round < 200; round++) {
        pid_t first = share(CLONE_FS), second = first ? share(CLONE_FS) : 0;
        if (!first || !second) {
            char path[PATH_MAX + 2];
            for (int i = 0; i < 20; i++) {
                sprintf(path, "%s/%s", home, i % 2 ? "c" : first ? "a/b" : "a");
                chdir(path);
            }
            _exit(0);
        }
        waitpid(first, 0, 0);
        waitpid(second, 0, 0);
        char path[PATH_MAX];
        getcwd(path, sizeof path);
        differ += strcmp(path + strlen(home), "/c") != 0;
        chdir(home);
    }
    say("%d", differ);
}

/* A mount is in use while one of them is in it, whoever made them. */
GROUP(sharing, mounts)
{
    struct steps steps;
    if (!in_own_namespace())
        return;
    prepare();
    T(mount("none", "c", "tmpfs", 0, NULL));
    make("c/here", "mounted");
    begin(&steps);
    pid_t began = fork();
    if (!began) {
        if (!share(CLONE_FS))
            obey(&steps, "child");
        chdir("c");
        _exit(0);
    }
    say_wait(began);
    T(umount("c"));
    ask(&steps, 's');
    T(umount("c"));
    ask(&steps, 'h');
    T(umount("c"));
    ask(&steps, 's');
    write(steps.ask[1], "q", 1);
}

static void *ends(void *unused)
{
    return unused;
}

/* A thread gets a descriptor table for itself, and the other ends: the process lives, and has what it had. */
GROUP(sharing, a_table_apart)
{
    for (int by_range = 0; by_range < 2; by_range++) {
        int fd = make_open("locked", "text", O_RDWR);
        T(flock(fd, LOCK_EX));
        pthread_t thread;
        pthread_create(&thread, NULL, ends, NULL);
        T(by_range ? syscall(SYS_close_range, 1000, 1001, 2) : unshare(CLONE_FILES));
        pthread_join(thread, NULL);
        for (int i = 0; i < 3; i++)
            CHILD T(flock(open("locked", O_RDWR), LOCK_EX | LOCK_NB));
        char byte;
        T(pread(fd, &byte, 1, 0));
        close(fd);
        CHILD T(flock(open("locked", O_RDWR), LOCK_EX | LOCK_NB));
    }
}
