/* Programs that are executed several times, and change in between. */
#include "conform.h"
#include <elf.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

/* Puts the content of the file `from` at the start of the file `to`, by write(2) or through a mapping. */
static void put(const char *to, const char *from, int flags, int mapped)
{
    static char bytes[1 << 20];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, flags | O_RDWR | O_CLOEXEC, 0755);
    ssize_t length = read(in, bytes, sizeof bytes);
    if (in < 0 || out < 0 || length <= 0) {
        say("cannot copy %s", from);
    } else if (mapped) {
        if (ftruncate(out, length))
            say("ftruncate failed");
        char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
        memcpy(map, bytes, length);
        munmap(map, length);
    } else if (pwrite(out, bytes, length, 0) != length || ftruncate(out, length)) {
        say("write failed");
    }
    close(in);
    close(out);
}

static void run(const char *text, const char *path)
{
    for (int time = 1; time <= 3; time++) {
        say("%s, time %d", text, time);
        CHILD {
            T(execl(path, path, NULL));
        }
    }
}

GROUP(program, executed_again_after_a_change)
{
    put("p", "/bin/true", O_CREAT, 0);
    run("new", "./p");
    put("p", "/bin/false", 0, 0);
    run("overwritten", "./p");
    put("p", "/bin/true", 0, 1);
    run("overwritten through a mapping", "./p");
    put("p", "/bin/false", 0, 1);
    run("and again", "./p");
    put("q", "/bin/true", O_CREAT, 0);
    T(rename("q", "p"));
    run("replaced", "./p");
    T(unlink("p"));
    run("removed", "./p");
    put("p", "/bin/false", O_CREAT, 0);
    run("created again", "./p");
    T(truncate("p", 0));
    run("empty", "./p");
    put("p", "/bin/true", 0, 0);
    run("filled", "./p");
    T(truncate("p", 100));
    CHILD {
        signal(SIGSEGV, SIG_DFL);
        T(execl("./p", "./p", NULL) == -1);
    }
    put("p", "/bin/true", O_TRUNC, 0);
    run("truncated and written", "./p");
    T(chmod("p", 0600));
    run("not executable", "./p");
    T(chmod("p", 0700));
    run("executable again", "./p");
}

GROUP(program, executed_by_several_names)
{
    put("r", "/usr/bin/readlink", O_CREAT, 0);
    T(link("r", "hard"));
    T(symlink("r", "soft"));
    const char *names[] = {"r", "hard", "soft", "r", "hard"};
    for (unsigned i = 0; i < COUNT(names); i++) {
        char command[100];
        snprintf(command, sizeof command, "basename \"$(./%s /proc/self/exe)\" > out", names[i]);
        T(system(command));
        contents("out");
    }
    T(rename("hard", "moved"));
    T(system("basename \"$(./moved /proc/self/exe)\" > out"));
    contents("out");
    /* An exec that fails leaves the name. */
    T(system("cp /bin/bash s"));
    T(link("s", "a"));
    T(link("s", "z"));
    for (const char **name = (const char *[]){ "a", "s", "z", NULL }; *name; name++) {
        char command[300];
        snprintf(command, sizeof command, "./%s -c 'shopt -s execfail; x=$(head -c 200000 /dev/zero | tr \\\\0 x); exec ./a \"$x\" 2>/dev/null; exec ./r \"$x\" 2>/dev/null; basename $(readlink /proc/$$/exe)' > out", *name);
        T(system(command));
        contents("out");
    }
}

/* What a program that has removed its own file is told of it, by itself and by a process that it has made. */
GROUP(program, that_has_removed_its_file)
{
    char top[PATH_MAX], text[PATH_MAX] = "";
    getcwd(top, sizeof top);
    make_dir("d");
    put("d/p", "/bin/sh", O_CREAT, 0);
    T(system("d/p -c 'rm d/p; readlink /proc/$$/exe; (exec readlink /proc/$$/exe); :' >out"));
    FILE *out = fopen("out", "r");
    while (fgets(text, sizeof text, out))
        say("%s", strncmp(text, top, strlen(top)) == 0 ? text + strlen(top) : text);
    fclose(out);
    T(unlink("out"));
}

GROUP(program, many_in_turn)
{
    char name[20];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "./p%d", i);
        put(name, i % 3 ? "/bin/true" : "/bin/false", O_CREAT, 0);
    }
    for (int time = 0; time < 2; time++)
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof name, "./p%d", i);
            CHILD {
                T(execl(name, name, NULL));
            }
        }
}

GROUP(program, inherits_only_what_is_open)
{
    put("ls", "/bin/ls", O_CREAT, 0);
    for (int time = 1; time <= 3; time++) {
        /* 0, 1, 2 and the directory's own. */
        T(system("./ls /proc/self/fd < /dev/null 2> /dev/null | wc -l > out"));
        contents("out");
    }
    /* Where there are few numbers left. */
    for (int time = 1; time <= 3; time++)
        T(system("ulimit -n 70; ./ls > /dev/null"));
}

GROUP(program, executed_side_by_side)
{
    put("p", "/bin/true", O_CREAT, 0);
    for (int round = 0; round < 20; round++) {
        pid_t children[8];
        for (unsigned i = 0; i < COUNT(children); i++) {
            children[i] = fork();
            if (!children[i]) {
                execl("./p", "./p", NULL);
                _exit(99);
            }
        }
        for (unsigned i = 0; i < COUNT(children); i++) {
            int status = -1;
            waitpid(children[i], &status, 0);
            if (status != (round % 2 ? 1 << 8 : 0))
                say("round %d: status %x", round, status);
        }
        put("p", round % 2 ? "/bin/true" : "/bin/false", 0, round % 3 == 0);
    }
    say("done");
}

/* A script's process has the script's name. */
/* What the first line may hold, and what the kernel takes for cut off. */
GROUP(program, first_lines)
{
    char text[600];
    for (int length = 249; length <= 259; length++)
        for (int how = 0; how < 4; how++) {
            /* "#!" and a path of slashes that ends in sh, at the end of a line, of a blank, of an argument, of the file. */
            int end = sprintf(text, "#!/bin");
            memset(text + end, '/', length - end);
            strcpy(text + length - 2, "sh");
            static const char *const ends[] = {"\nexit 7\n", " \nexit 7\n", " -eeeeeeeeeeee\nexit 7\n", ""};
            strcat(text, ends[how]);
            make("script", text);
            chmod("script", 0700);
            char name[32];
            sprintf(name, "%d %d", length, how);
            TN(name, 0);
            CHILD {
                execl("./script", "script", NULL);
                say("%s", strerrorname_np(errno));
                _exit(1);
            }
        }
}

GROUP(program, named_after_their_scripts)
{
    make("first.sh", "#!/bin/sh\nread name </proc/$$/comm\necho \"$name $0 $*\"\n");
    make("second.sh", "#!./shell\nread name </proc/$$/comm\necho \"$name $0 $*\"\n");
    make("third.sh", "#!./first.sh -x\n");
    make("plain.sh", "#!./shell\necho \"$0 $*\"\n");
    put("shell", "/bin/sh", O_CREAT, 0);
    symlink("first.sh", "link");
    static const char *const paths[] = { "./first.sh", "./second.sh", "./third.sh", "./link", "first.sh" };
    chmod("first.sh", 0755), chmod("second.sh", 0755), chmod("third.sh", 0755), chmod("plain.sh", 0755);
    for (unsigned i = 0; i < COUNT(paths); i++)
        CHILD {
            execl(paths[i], "argument", "more", NULL);
        }
    /* By a descriptor that the exec closes, the interpreter would not find the script. */
    char *arguments[] = { "argument", NULL };
    for (int flags = 0; flags < 2; flags++) {
        CHILD {
            int fd = open("plain.sh", O_RDONLY | (flags ? O_CLOEXEC : 0));
            T(syscall(SYS_execveat, fd, "", arguments, environ, AT_EMPTY_PATH));
        }
        CHILD {
            int dir = open(".", O_RDONLY | (flags ? O_CLOEXEC : 0));
            T(syscall(SYS_execveat, dir, "plain.sh", arguments, environ, 0));
        }
        CHILD {
            int fd = open("plain.sh", O_RDONLY | (flags ? O_CLOEXEC : 0));
            char path[32];
            sprintf(path, "/proc/self/fd/%d", fd);
            execv(path, arguments);
            say("%s", strerrorname_np(errno));
        }
    }
}

/* What a program that a descriptor names is called: dynamic and static ones, a script, and one without a
 * name. */
GROUP(program, named_by_descriptors)
{
    static const char *const files[] = { "/bin/sh", "shell", "script", "static", "gone" };
    put("shell", "/bin/sh", O_CREAT, 0), put("gone", "/bin/sh", O_CREAT, 0), system("cp \"$(command -v busybox)\" static");
    make("script", "#!./shell\nread name </proc/$$/comm\necho \"$name\"\n");
    chmod("script", 0755);
    char *shell[] = { "argument", "-c", "read name </proc/$$/comm; echo \"$name\"", NULL };
    char *words[] = { "cat", "/proc/self/comm", NULL };
    for (unsigned i = 0; i < COUNT(files); i++) {
        char **arguments = !strcmp(files[i], "static") ? words : shell;
        int fd = open(files[i], O_RDONLY);
        say("%s", files[i]);
        dup2(fd, 77);
        close(fd);
        if (i == COUNT(files) - 1)
            unlink(files[i]);
        CHILD T(syscall(SYS_execveat, 77, "", arguments, environ, AT_EMPTY_PATH));
        CHILD T(execve("/dev/fd/77", arguments, environ));
        CHILD T(execve("/proc/self/fd/77", arguments, environ));
        close(77);
    }
}

/* Programs look for the auxiliary vector behind the environment. */
GROUP(program, vector_behind_the_environment)
{
    char **end = environ;
    while (*end)
        end++;
    int entries = 0;
    for (Elf64_auxv_t *at = (void *)(end + 1); at->a_type != AT_NULL; at++)
        if (at->a_type == AT_PAGESZ || at->a_type == AT_ENTRY || at->a_type == AT_EXECFN)
            entries += at->a_un.a_val == getauxval(at->a_type);
    say("%d", entries);
    if (getenv("AGAIN"))
        return;
    char self[PATH_MAX] = "", *arguments[] = { self, "program.vector_behind_the_environment", NULL };
    readlink("/proc/self/exe", self, sizeof self - 1);
    char *environments[][4] = { { "AGAIN=1", NULL }, { "AGAIN=1", "LD_PRELOAD=libm.so.6", NULL }, { "AGAIN=1", "LD_LIBRARY_PATH=/lib", "B=c", NULL } };
    for (unsigned i = 0; i < COUNT(environments); i++)
        CHILD execve(self, arguments, environments[i]);
}

/* Whether a stopped program has code where it begins. */
static int has_code(pid_t child)
{
    char path[64];
    Elf64_auxv_t pairs[64] = {{0}};
    snprintf(path, sizeof path, "/proc/%d/auxv", child);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = read(fd, pairs, sizeof pairs - sizeof *pairs);
    close(fd);
    Elf64_auxv_t *pair = pairs;
    while (length > 0 && pair->a_type != AT_NULL && pair->a_type != AT_ENTRY)
        pair++;
    errno = 0;
    return ptrace(PTRACE_PEEKTEXT, child, pair->a_un.a_val, 0) != 0 && !errno;
}

/* A debugger sees a new program first before its linker has run, and sets breakpoints in it. */
GROUP(program, is_there_when_a_debugger_sees_it)
{
    for (int time = 1; time <= 3; time++) {
        CHILD {
            T(execl("/usr/bin/true", "true", NULL));
        }
        pid_t child = fork();
        if (!child) {
            if (ptrace(PTRACE_TRACEME, 0, 0, 0))
                _exit(9);
            execl("/usr/bin/true", "true", NULL);
            _exit(8);
        }
        int status;
        T(waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
        T(has_code(child));
        T(ptrace(PTRACE_DETACH, child, 0, 0));
        say_wait(child);
    }
}

/* A static program of the host's, by a descriptor that names it only: it sees the mount all the same. */
GROUP(program, static_by_its_name_only)
{
    make("f", "text\n");
    for (int flags = 0; flags < 2; flags++)
        CHILD {
            char *arguments[] = { "cat", "f", NULL };
            int fd = open("/bin/busybox", (flags ? O_PATH : O_RDONLY) | O_CLOEXEC);
            T(syscall(SYS_execveat, fd, "", arguments, environ, AT_EMPTY_PATH));
        }
}

/* Executes a file, by its path or by a descriptor, and says what it prints: of scripts, only the name of
 * their interpreter. */
static void printed_by(const char *path, int by_descriptor)
{
    char line[600], *arguments[] = { "script", "f", NULL };
    CHILD {
        int fd = open(path, O_RDONLY), out = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0644);
        dup2(out, 1);
        if (by_descriptor)
            syscall(SYS_execveat, fd, "", arguments, environ, AT_EMPTY_PATH);
        else
            execv(path, arguments);
        say("%s", strerrorname_np(errno));
    }
    FILE *lines = fopen("out", "r");
    while (fgets(line, sizeof line, lines))
        say("%s", line[0] == '#' ? strrchr(line, '/') : line);
    fclose(lines);
    unlink("out");
}

/* Scripts of the host's whose interpreters are scripts, five at most; the last one's is a static program. Its
 * path ends with the file. */
GROUP(program, scripts_in_a_row)
{
    char directory[] = "/tmp/scriptsXXXXXX", path[64], text[PATH_MAX], before[64];
    T(mkdtemp(directory) != NULL);
    make("f", "text\n");
    sprintf(before, "%s/cat", directory);
    T(symlink("/bin/busybox", before));
    for (int i = 1; i <= 7; i++) {
        sprintf(text, "#!%s%s", before, i == 1 ? "" : "\n");
        sprintf(path, "%s/%d", directory, i);
        make(path, text);
        chmod(path, 0755);
        strcpy(before, path);
        printed_by(path, 0);
    }
    for (int i = 1; i <= 7; i += 2) {
        sprintf(path, "%s/%d", directory, i);
        printed_by(path, 1);
    }
    put("cat", "/bin/cat", O_CREAT, 0);
    sprintf(text, "#!%s/cat\n", getcwd(text + 2000, 2000));
    sprintf(path, "%s/1", directory);
    make(path, text);
    printed_by(path, 0);
    printed_by(path, 1);
    for (int i = 1; i <= 7; i++) {
        sprintf(path, "%s/%d", directory, i);
        unlink(path);
    }
    sprintf(path, "%s/cat", directory);
    unlink(path);
    T(rmdir(directory));
}

/* First lines that the file ends, or a NUL. */
GROUP(program, first_lines_without_an_end)
{
    static const struct {
        const char *text;
        int length;
    } lines[] = {
        { "#!", 2 },
        { "#! ", 3 },
        { "#! \t\n", 5 },
        { "#!\0\n", 4 },
        { "#!/bin/echo a  ", 15 },
        { "#!/bin/echo  ", 13 },
        { "#!/bin/echo a  \n", 16 },
        { "#!/bin/echo", 11 },
        { "#!/bin/echo\0 x\n", 15 },
        { "#!/bin/echo a\0 b\n", 17 },
        { "#!/bin/echo \0b\n", 15 },
    };
    for (unsigned i = 0; i < COUNT(lines); i++) {
        int fd = open("script", O_CREAT | O_TRUNC | O_WRONLY, 0755);
        write(fd, lines[i].text, lines[i].length);
        close(fd);
        CHILD {
            execl("./script", "script", "w", NULL);
            say("%u: %s", i, strerrorname_np(errno));
        }
    }
}

/* A static program of the host's when no descriptor is left: the kernel needs none. */
GROUP(program, static_with_no_number_left)
{
    make("f", "text\n");
    CHILD {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 24;
        setrlimit(RLIMIT_NOFILE, &limit);
        while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
            ;
        T(getrlimit(RLIMIT_NOFILE, &limit));
        say("%d", (int)limit.rlim_cur);
        T(execl("/bin/busybox", "cat", "f", NULL));
    }
}

/* An exec of a FIFO is no open of it: who waits for a reader goes on waiting. */
GROUP(program, that_is_a_fifo)
{
    char directory[] = "/tmp/fifoXXXXXX", path[64];
    T(mkdtemp(directory) != NULL);
    sprintf(path, "%s/q", directory);
    T(mkfifo(path, 0755));
    pid_t writer = fork();
    if (!writer) {
        open(path, O_WRONLY);
        _exit(7);
    }
    while (!sleeps(writer))
        usleep(100);
    errno = 0;
    execl(path, path, NULL);
    say("%s", strerrorname_np(errno));
    usleep(10000);
    T(waitpid(writer, NULL, WNOHANG));
    kill(writer, SIGKILL);
    say_wait(writer);
    unlink(path);
    T(rmdir(directory));
}
