/* Processes, threads and signals at work on files. */
#include "conform.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/vfs.h>

GROUP(process, fork_copies_the_table)
{
    int fd = make_open("f", "0123456789", O_RDWR);
    CHILD {
        T(close(fd));
        T(open("g", O_CREAT | O_RDWR, 0600));
        T(open("g", O_RDONLY));
        T(chdir("/"));
        umask(077);
    }
    T(fcntl(fd, F_GETFD));
    T(fcntl(4, F_GETFD));
    T(access("g", F_OK));
    T(open("h", O_CREAT | O_RDWR, 0666));
    attributes("h");
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (!child) {
            char b;
            _exit(pread(fd, &b, 1, i % 10) != 1 || b != '0' + i % 10);
        }
        int status;
        waitpid(child, &status, 0);
        if (status)
            say("child %d: %x", i, status);
    }
    T(lseek(fd, 0, SEEK_CUR));
    pid_t grandchild = fork();
    if (!grandchild) {
        if (fork() == 0) {
            usleep(50000);
            make("born", "written");
            rename("born", "orphan");
            _exit(0);
        }
        _exit(0);
    }
    say_wait(grandchild);
    for (int i = 0; i < 2500 && access("orphan", F_OK); i++)
        usleep(10000);
    contents("orphan");
}

/* What a child waits for without a call on files. */
static volatile int *go;

/* A child that makes no call until `*go`, and then only ends. */
static pid_t child_that_only_ends(void)
{
    pid_t child = fork();
    if (!child) {
        while (!*go)
            usleep(1000);
        _exit(0);
    }
    return child;
}

/* Lets the child end, and returns once it has, without having waited for it. */
static void end(pid_t child)
{
    siginfo_t info;
    *go = 1;
    T(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
    *go = 0;
}

static long blocks_free(void)
{
    struct statfs fs;
    return statfs(".", &fs) ? -1 : (long)fs.f_bfree;
}

GROUP(process, children_that_only_end)
{
    go = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    say("the last to have a lock");
    int fd = make_open("f", "0123456789", O_RDWR);
    T(flock(fd, LOCK_EX));
    pid_t child = child_that_only_ends();
    T(close(fd));
    int other = T(open("f", O_RDWR));
    T(flock(other, LOCK_EX | LOCK_NB));
    end(child);
    T(flock(other, LOCK_EX | LOCK_NB));
    say_wait(child);

    say("the lock that another waits for");
    child = child_that_only_ends();
    T(close(other));
    pid_t waiter = fork();
    if (!waiter)
        _exit(flock(open("f", O_RDWR), LOCK_EX) != 0);
    usleep(20000);
    end(child);
    say_wait(waiter);
    say_wait(child);

    say("the last to have a file");
    fd = make_open("big", "", O_RDWR);
    T(ftruncate(fd, 1 << 20));
    T(posix_fallocate(fd, 0, 1 << 20));
    long before = blocks_free();
    T(unlink("big"));
    child = child_that_only_ends();
    T(close(fd));
    T(blocks_free() < before + 200);
    end(child);
    T(blocks_free() >= before + 200);
    say_wait(child);

    say("nobody waits");
    fd = T(open("f", O_RDWR));
    T(flock(fd, LOCK_EX));
    void (*old)(int) = signal(SIGCHLD, SIG_IGN);
    child = child_that_only_ends();
    T(close(fd));
    *go = 1;
    T(wait(NULL));
    *go = 0;
    signal(SIGCHLD, old);
    fd = T(open("f", O_RDWR));
    T(flock(fd, LOCK_EX | LOCK_NB));

    say("the parent has ended");
    child = fork();
    if (!child) {
        child_that_only_ends();
        _exit(0);
    }
    say_wait(child);
    T(close(fd));
    fd = T(open("f", O_RDWR));
    T(flock(fd, LOCK_EX | LOCK_NB));
    *go = 1;
    int tries = 0;
    while (flock(fd, LOCK_EX | LOCK_NB) && ++tries < 5000)
        usleep(1000);
    T(tries < 5000);

    say("many before the first is waited for");
    static pid_t all[300];
    for (unsigned i = 0; i < COUNT(all); i++)
        all[i] = child_that_only_ends();
    long sum = 0;
    for (unsigned i = 0; i < COUNT(all); i++) {
        int status;
        sum += waitpid(all[i], &status, 0) == all[i] && status == 0;
    }
    T(sum);
    contents("f");
}

static int read_by_handler;

static void reads(int number)
{
    (void)number;
    char byte;
    read_by_handler = pread(4, &byte, 1, 3) == 1 && byte == '3';
}

GROUP(process, children_whose_first_call_is_a_handlers)
{
    go = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = make_open("f", "0123456789", O_RDWR);
    if (fd != 4)
        dup2(fd, 4);
    signal(SIGUSR1, reads);
    pid_t child = fork();
    if (!child) {
        while (!*go)
            usleep(1000);
        _exit(read_by_handler ? 7 : 8);
    }
    T(kill(child, SIGUSR1));
    *go = 1;
    say_wait(child);
    *go = 0;
    child = child_that_only_ends();
    T(kill(child, SIGKILL));
    say_wait(child);
}

/* The result of an exec of `path`. */
static void try_exec(const char *text, const char *path)
{
    say("%s", text);
    CHILD {
        T(execl(path, path, NULL));
    }
}

GROUP(process, exec_of_a_file_that_is_written)
{
    system("cp /bin/true program; printf '#!/bin/sh\\nexit 3\\n' >script; chmod 755 program script; cp program locked; chmod 0 locked");
    static const char *const names[] = { "./program", "./script" };
    for (unsigned i = 0; i < COUNT(names); i++) {
        try_exec("closed", names[i]);
        int fd = T(open(names[i], O_WRONLY));
        try_exec("open for writing", names[i]);
        T(dup2(fd, 20));
        T(close(fd));
        try_exec("by a duplicate", names[i]);
        T(close(20));
        try_exec("closed again", names[i]);
        fd = T(open(names[i], O_RDONLY));
        try_exec("open for reading", names[i]);
        T(close(fd));
        fd = T(open(names[i], O_PATH | O_RDWR));
        try_exec("a path", names[i]);
        T(close(fd));
        int out[2];
        pipe(out);
        pid_t child = fork();
        if (child == 0) {
            open(names[i], O_RDWR | O_APPEND);
            write(out[1], "x", 1);
            pause();
        }
        char byte;
        read(out[0], &byte, 1);
        try_exec("open in another process", names[i]);
        kill(child, SIGKILL);
        say_wait(child);
        try_exec("of a process that was killed", names[i]);
        close(out[0]);
        close(out[1]);
        int marked = T(open(names[i], O_RDWR | O_CLOEXEC));
        try_exec("close on exec", names[i]);
        T(close(marked));
    }
    become_nobody();
    try_exec("not permitted", "./locked");
}

GROUP(process, vfork_and_spawn)
{
    make("in", "from the file\n");
    extern char **environ;
    posix_spawn_file_actions_t a;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addopen(&a, 0, "in", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&a, 1, "out", O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addclose(&a, 2);
    char *argv[] = { "cat", NULL };
    pid_t pid;
    T(posix_spawn(&pid, "/bin/cat", &a, NULL, argv, environ));
    say_wait(pid);
    contents("out");
    T(posix_spawn(&pid, "/nosuch", NULL, NULL, argv, environ));
    posix_spawn_file_actions_addopen(&a, 5, "nosuch", O_RDONLY, 0);
    T(posix_spawn(&pid, "/bin/cat", &a, NULL, argv, environ));
    T(open("in", O_RDONLY));
    for (int i = 0; i < 20; i++) {
        pid = vfork();
        if (!pid) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        int status;
        waitpid(pid, &status, 0);
        if (status)
            say("vfork %d: %x", i, status);
    }
    T(open("in", O_RDONLY));
    T(system("cat in; exit 3") >> 8);
    FILE *p = popen("cat in", "r");
    char b[64] = { 0 };
    TP(fgets(b, sizeof b, p));
    say("%s", b);
    T(pclose(p));
}

static void *thread_work(void *arg)
{
    long n = (long)arg, bad = 0;
    char name[32], b[64];
    for (int i = 0; i < 100; i++) {
        sprintf(name, "t%ld", n);
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        int length = sprintf(b, "%ld %d", n, i);
        bad += fd < 0 || write(fd, b, length) != length;
        char back[64] = { 0 };
        bad += pread(fd, back, 64, 0) != length || strcmp(back, b);
        int d = dup(fd);
        bad += d < 0 || lseek(d, 0, SEEK_CUR) != length;
        bad += close(fd) || close(d);
    }
    return (void *)bad;
}

GROUP(process, threads_64)
{
    pthread_t t[64];
    long bad = 0;
    for (long i = 0; i < 64; i++)
        if (pthread_create(&t[i], NULL, thread_work, (void *)i))
            say("pthread_create failed");
    for (int i = 0; i < 64; i++) {
        void *r;
        pthread_join(t[i], &r);
        bad += (long)r;
    }
    say("bad %ld", bad);
    T(open("t1", O_RDONLY));
}

static int shared_fd;
static void *shared_reader(void *arg)
{
    long sum = 0;
    unsigned char b;
    while (read(shared_fd, &b, 1) == 1)
        sum += b + 1000000;
    return (void *)sum;
}

GROUP(process, threads_share_the_position)
{
    char text[20001];
    for (int i = 0; i < 20000; i++)
        text[i] = 'a' + i % 26;
    text[20000] = 0;
    shared_fd = make_open("f", text, O_RDONLY);
    pthread_t t[8];
    long sum = 0;
    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, shared_reader, NULL);
    for (int i = 0; i < 8; i++) {
        void *r;
        pthread_join(t[i], &r);
        sum += (long)r;
    }
    say("%ld", sum);
    T(lseek(shared_fd, 0, SEEK_CUR));
}

static void *closer(void *arg)
{
    char name[16];
    for (int i = 0; i < 2000; i++) {
        sprintf(name, "c%ld", (long)arg);
        int fd = open(name, O_CREAT | O_RDWR, 0600);
        if (fd < 0)
            return (void *)1;
        /* Another thread may get our number a moment later; its calls must never reach our file. */
        if (write(fd, name, strlen(name)) < 0)
            return (void *)2;
        close(fd);
    }
    return NULL;
}

GROUP(process, threads_reuse_numbers)
{
    pthread_t t[8];
    long bad = 0;
    for (long i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, closer, (void *)i);
    for (int i = 0; i < 8; i++) {
        void *r;
        pthread_join(t[i], &r);
        bad += (long)r;
    }
    say("bad %ld", bad);
    for (int i = 0; i < 8; i++) {
        char name[16];
        sprintf(name, "c%d", i);
        contents(name);
    }
    T(open("c0", O_RDONLY));
}

static void *forker(void *arg)
{
    long bad = 0;
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (!child) {
            int fd = open("forked", O_RDWR | O_CREAT | O_APPEND, 0600);
            _exit(write(fd, "x", 1) != 1);
        }
        int status;
        waitpid(child, &status, 0);
        bad += status != 0;
    }
    return (void *)bad;
}

GROUP(process, threads_that_fork)
{
    pthread_t t[4], w[4];
    long bad = 0;
    for (long i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, forker, NULL), pthread_create(&w[i], NULL, thread_work, (void *)i);
    for (int i = 0; i < 4; i++) {
        void *r;
        pthread_join(t[i], &r), bad += (long)r;
        pthread_join(w[i], &r), bad += (long)r;
    }
    say("bad %ld", bad);
    attributes("forked");
}

static volatile int handled, handler_bad;
static void handler(int signal)
{
    int saved = errno;
    char name[16];
    sprintf(name, "s%d", handled % 4);
    int fd = open(name, O_CREAT | O_WRONLY | O_APPEND, 0600);
    if (fd < 0 || write(fd, "!", 1) != 1 || close(fd))
        handler_bad++;
    struct stat st;
    if (stat(name, &st))
        handler_bad++;
    handled++;
    errno = saved;
}

GROUP(process, handlers_that_make_calls)
{
    struct sigaction a = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &a, NULL);
    struct itimerval every = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_REAL, &every, NULL);
    char b[5000], name[16];
    memset(b, 'x', sizeof b);
    int bad = 0;
    for (int i = 0; i < 3000 || handled < 20; i++) {
        sprintf(name, "f%d", i % 7);
        int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
        bad += fd < 0 || write(fd, b, sizeof b) != sizeof b || pread(fd, b, 100, 10) != 100 || close(fd);
        if (i % 3 == 0)
            bad += rename(name, "moved") != 0 || unlink("moved") != 0;
        if (i > 1000000)
            break;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    say("bad %d, in the handler %d, enough %d", bad, handler_bad, handled >= 20);
    for (int i = 0; i < 7; i++) {
        sprintf(name, "s%d", i), unlink(name);
        sprintf(name, "f%d", i), unlink(name);
    }
    T(open("after", O_CREAT | O_RDWR, 0600));
}

GROUP(process, handlers_in_threads)
{
    struct sigaction a = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &a, NULL);
    pthread_t t[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, thread_work, (void *)i);
    for (int k = 0; k < 200; k++) {
        pthread_kill(t[k % 4], SIGUSR1);
        usleep(100);
        if (k == 199)
            break;
        if (k > 150)
            continue;
    }
    long bad = 0;
    for (int i = 0; i < 4; i++) {
        void *r;
        pthread_join(t[i], &r);
        bad += (long)r;
    }
    say("bad %ld %d", bad, handler_bad);
    char name[16];
    for (int i = 0; i < 4; i++) {
        sprintf(name, "s%d", i);
        unlink(name);
    }
}

GROUP(process, killed_at_any_time)
{
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        if (!child) {
            for (int i = 0;; i++) {
                char name[16], other[16];
                sprintf(name, "k%d", i % 5), sprintf(other, "k%d", (i + 1) % 5);
                int fd = open(name, O_CREAT | O_RDWR, 0600);
                if (write(fd, "0123456789", 10) != 10)
                    _exit(1);
                ftruncate(fd, i % 20);
                close(fd);
                rename(name, other);
                mkdir("dir", 0700);
                link(other, "dir/hard");
                symlink("x", "dir/soft");
                unlink("dir/hard");
                unlink("dir/soft");
                rmdir("dir");
                unlink(other);
            }
        }
        usleep(1000 + round * 137);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status))
            say("round %d: %x", round, status);
        unlink("dir/hard"), unlink("dir/soft"), rmdir("dir");
        for (int i = 0; i < 5; i++) {
            char name[16];
            sprintf(name, "k%d", i);
            unlink(name);
        }
        make("after", "works");
        mkdir("d", 0755);
        if (rename("after", "d/after") || unlink("d/after") || rmdir("d"))
            say("round %d: %s", round, strerrorname_np(errno));
    }
    DIR *dir = opendir(".");
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            say("left: %s", e->d_name);
    closedir(dir);
    attributes(".");
}

GROUP(process, stopped_process_blocks_no_reader)
{
    make("f", "0123456789");
    pid_t child = fork();
    if (!child)
        for (;;) {
            int fd = open("f", O_RDWR);
            if (pwrite(fd, "0123456789", 10, 0) != 10)
                _exit(1);
            close(fd);
        }
    int bad = 0;
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        kill(child, SIGSTOP);
        char b[16];
        int fd = open("f", O_RDONLY);
        bad += fd < 0 || read(fd, b, 10) != 10 || memcmp(b, "0123456789", 10) || access("f", R_OK);
        close(fd);
        kill(child, SIGCONT);
    }
    say("bad %d", bad);
    kill(child, SIGKILL);
    say_wait(child);
}

static void *thread_that_moves(void *unused)
{
    umask(077);
    T(chdir("d"));
    return unused;
}

GROUP(process, cwd_and_umask_of_threads)
{
    make_dir("d");
    pthread_t t;
    pthread_create(&t, NULL, thread_that_moves, NULL);
    pthread_join(t, NULL);
    T(open("in_d", O_CREAT | O_RDWR, 0666));
    T(access("../d/in_d", F_OK));
    attributes("in_d");
}

GROUP(process, stdio)
{
    FILE *f = fopen("f", "w+");
    T(fprintf(f, "line %d\n", 1));
    T(fputs("line 2\n", f) >= 0);
    T(fflush(f));
    T(fseek(f, 0, SEEK_SET));
    char b[64] = { 0 };
    TP(fgets(b, 64, f));
    say("%s", b);
    T(ftell(f));
    T(fseek(f, -3, SEEK_END));
    T(fgetc(f));
    T(ungetc('Z', f));
    T(fgetc(f));
    rewind(f);
    T(fread(b, 1, 64, f));
    T(feof(f));
    T(fclose(f));
    f = fopen("f", "a");
    T(fputs("appended\n", f) >= 0);
    T(fclose(f));
    contents("f");
    f = fopen("f", "r+");
    setvbuf(f, NULL, _IONBF, 0);
    T(fputc('L', f));
    T(fclose(f));
    contents("f");
    TP(fopen("f", "wx"));
    TP(fopen("nosuch", "r"));
    TP(fopen("f", "re"));
    f = tmpfile();
    T(fputs("temporary", f) >= 0);
    rewind(f);
    memset(b, 0, 64);
    T(fread(b, 1, 64, f));
    say("%s", b);
    char template[] = "tmpXXXXXX", directory[] = "dirXXXXXX";
    T(mkstemp(template) > 2);
    T(unlink(template));
    TP(mkdtemp(directory));
    T(rmdir(directory));
    char *real = realpath("f", NULL);
    say("%s", real ? strrchr(real, 0x2f) : "none");
    f = freopen("g", "w", f);
    T(fputs("re", f) >= 0);
    T(fclose(f));
    contents("g");
}

GROUP(process, descriptors_after_a_failed_open)
{
    /* A process that ends with a file open after a failed open; then one that may get what it left. */
    make("f", "text");
    for (int round = 0; round < 3; round++) {
        CHILD {
            T(open("f", O_RDONLY));
            T(open("nosuch", O_RDONLY));
        }
        CHILD {
            int p[2];
            T(pipe(p));
            T(fcntl(p[1], F_GETFD));
            T(dup2(p[1], 9));
            T(write(9, "x", 1));
            T(dup(p[0]));
            T(open("f", O_RDONLY));
        }
    }
}

static void copy_file(const char *from, const char *to)
{
    static char block[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    for (long n; (n = read(in, block, sizeof block)) > 0;)
        write(out, block, n);
    close(in), close(out);
}

/* Starts a program and returns once it runs. */
static pid_t start(const char *program)
{
    int p[2];
    char c;
    pipe2(p, O_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(program, "sleep", "20", NULL);
        write(p[1], "x", 1);
        _exit(1);
    }
    close(p[1]);
    say("executed: %d", read(p[0], &c, 1) == 0);
    close(p[0]);
    return child;
}

/* The result of an open whose descriptor is not wanted. */
static int closed(int fd)
{
    return fd < 0 ? fd : close(fd);
}

static void try_to_write(const char *text)
{
    say("%s", text);
    T(closed(open("p", O_WRONLY)));
    T(closed(open("p", O_RDWR)));
    T(closed(open("p", O_RDONLY | O_TRUNC)));
    T(closed(open("p", O_WRONLY | O_CREAT, 0644)));
    T(open("p", O_WRONLY | O_CREAT | O_EXCL, 0644));
    T(closed(open("p", O_RDONLY)));
    T(closed(open("p", O_PATH)));
    T(truncate("p", 5));
    T(truncate("p", -1));
    T(chmod("p", 0755));
}

GROUP(process, text_is_busy)
{
    copy_file("/bin/sleep", "p");
    copy_file("/bin/sleep", "q");
    pid_t child = start("./p");
    try_to_write("while it runs");
    T(rename("p", "r"));
    T(closed(open("r", O_WRONLY)));
    T(rename("r", "p"));
    T(link("p", "s"));
    T(closed(open("s", O_WRONLY)));
    T(kill(child, SIGKILL));
    T(waitpid(child, NULL, 0) == child);
    T(closed(open("p", O_WRONLY)));
    T(truncate("p", 5));
    /* Executed while it is open for writing. */
    int fd = T(open("q", O_WRONLY));
    T(execl("./q", "q", "0", NULL));
    make("script", "#!./q 0\n");
    T(chmod("script", 0755));
    T(execl("./script", "script", NULL));
    T(close(fd));
    fd = T(open("script", O_RDWR));
    T(execl("./script", "script", NULL));
    T(close(fd));
    fd = T(open("q", O_RDONLY));
    CHILD execl("./q", "q", "0", NULL);
    T(closed(open("q", O_WRONLY)));
    /* One that is removed. */
    child = start("./q");
    T(unlink("q"));
    char own[40];
    sprintf(own, "/proc/self/fd/%d", fd);
    T(closed(open(own, O_WRONLY)));
    T(closed(open(own, O_RDONLY)));
    kill(child, SIGKILL), waitpid(child, NULL, 0);
    T(closed(open(own, O_WRONLY)));
}

static void *goes_on(void *root)
{
    char path[PATH_MAX], byte;
    getcwd(path, sizeof path);
    strcat(path, "/file");
    while (task_state(getpid()) != 'Z')
        sched_yield();
    int fd = openat(*(int *)root, path + 1, O_RDWR);
    T(read(fd, &byte, 1));
    strcat(path, "2");
    T(openat(*(int *)root, path + 1, O_RDWR | O_CREAT | O_EXCL, 0600) >= 0);
    T(access("file2", F_OK));
    _exit(0);
}

/* What was opened is there for the other threads when the first has ended. */
GROUP(process, after_its_first_thread)
{
    make("file", "text");
    CHILD {
        static int root;
        root = open("/", O_RDONLY | O_DIRECTORY);
        pthread_t thread;
        pthread_create(&thread, NULL, goes_on, &root);
        pthread_exit(NULL);
    }
}
