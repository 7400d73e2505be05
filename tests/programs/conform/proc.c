/* What /proc says of the files of a process, by paths from a directory under /proc as well. */
#include "conform.h"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static long same(const struct stat *one, const struct stat *other)
{
    return one->st_ino == other->st_ino && one->st_dev == other->st_dev;
}

/* The working directory of a process, seen by its parent. */
static void look_at(pid_t child)
{
    char path[64], text[PATH_MAX];
    struct stat here, there;
    struct statx sx;
    T(stat(".", &here));
    sprintf(path, "/proc/%d/cwd", child);
    long length = TN("readlink", readlink(path, text, sizeof text - 1)) > 0 ? strlen(text) : 0;
    say("%s", length ? strrchr(text, '/') : "");
    TN("stat", stat(path, &there));
    say("%ld", same(&here, &there));
    strcat(path, "/../t/f");
    TN("stat", stat(path, &there));
    sprintf(path, "/proc/%d", child);
    int process = open(path, O_RDONLY | O_DIRECTORY);
    T(fstatat(process, "cwd", &there, 0));
    say("%ld", same(&here, &there));
    T(fstatat(process, "cwd/../t", &there, 0));
    say("%ld", same(&here, &there));
    T(statx(process, "cwd", 0, STATX_INO, &sx));
    say("%d", sx.stx_ino == here.st_ino);
    T(faccessat(process, "cwd/f", F_OK, 0));
    T(faccessat(process, "cwd/none", F_OK, 0));
    int dir = openat(process, "cwd", O_RDONLY | O_DIRECTORY);
    T(fstat(dir, &there));
    say("%ld", same(&here, &there));
    T(fstatat(process, "cwd", &there, AT_SYMLINK_NOFOLLOW));
    say("%o", there.st_mode);
    T(openat(process, "cwd/made", O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0);
    T(unlink("made"));
}

GROUP(proc, working_directories)
{
    make("f", "text");
    for (int runs = 0; runs < 2; runs++) {
        int told[2];
        char byte;
        if (pipe(told))
            return;
        pid_t child = fork();
        if (!child) {
            if (runs)
                access("f", F_OK), write(told[1], "", 1);
            pause();
            _exit(0);
        }
        if (runs)
            read(told[0], &byte, 1);
        look_at(child);
        kill(child, SIGKILL);
        say_wait(child);
    }
    look_at(getpid());
    struct stat here, there;
    stat(".", &here);
    int before = open(".", O_RDONLY), file = open("f", O_RDONLY);
    T(chdir("/proc/self"));
    T(stat("cwd", &there));
    say("%ld", same(&here, &there));
    char name[32];
    sprintf(name, "fd/%d", file);
    T(stat(name, &there));
    say("%ld", (long)there.st_size);
    T(lstat(name, &there));
    say("%o", there.st_mode);
    T(openat(AT_FDCWD, name, O_RDONLY) >= 0);
    char text[PATH_MAX] = "";
    T(readlink(name, text, sizeof text) > 0);
    say("%s", strrchr(text, '/'));
    T(fchdir(before));
}

/* A path that the kernel has no room for. */
GROUP(proc, links_that_are_too_long)
{
    char name[201], text[PATH_MAX + 1], path[32];
    memset(name, 'n', 200), name[200] = 0;
    for (int depth = 0; depth < 21; depth++)
        if (mkdir(name, 0755) || chdir(name))
            return;
    int dir = open(".", O_RDONLY);
    T(readlink("/proc/self/cwd", text, sizeof text));
    sprintf(path, "/proc/self/fd/%d", dir);
    TN("readlink", readlink(path, text, sizeof text));
    T(access("/proc/self/cwd/..", F_OK));
    for (int depth = 0; depth < 21; depth++)
        if (chdir("..") || rmdir(name))
            return;
}

static int ascending(const void *one, const void *other)
{
    return *(const int *)one - *(const int *)other;
}

static void list(const char *text, int dir)
{
    int numbers[1100], count = 0;
    char line[900] = "";
    DIR *stream = fdopendir(dir);
    for (struct dirent *entry; stream && (entry = readdir(stream)) && count < 1100;)
        if (entry->d_name[0] != '.')
            numbers[count++] = atoi(entry->d_name);
    qsort(numbers, count, sizeof *numbers, ascending);
    for (int i = 0; i < count && i < 100; i++)
        sprintf(line + strlen(line), " %d", numbers[i]);
    say("%s:%s", text, line);
    closedir(stream);
}

/* The descriptors of a process are those that it has opened. */
GROUP(proc, lists_of_descriptors)
{
    char path[64], text[PATH_MAX];
    int first = make_open("f", "text", O_RDWR), second = open("f", O_RDONLY);
    close(first);
    static const char *paths[] = { "/proc/self/fd", "/dev/fd", "/proc/thread-self/fd", "/proc/self/fdinfo", "/proc/thread-self/fdinfo" };
    for (unsigned i = 0; i < COUNT(paths); i++)
        list(paths[i], open(paths[i], O_RDONLY));
    static const char *patterns[] = { "/proc/%d/fd", "/proc/%d/fdinfo", "/proc/self/task/%d/fd", "/proc/self/task/%d/fdinfo" };
    for (unsigned i = 0; i < COUNT(patterns); i++) {
        sprintf(path, patterns[i], getpid());
        list(patterns[i], open(path, O_RDONLY));
    }
    sprintf(path, "/proc/%d/task/%d/fd", getpid(), getpid());
    list("by both", open(path, O_RDONLY));
    int own = open("/proc/self", O_RDONLY | O_DIRECTORY);
    list("from a directory", openat(own, "fd", O_RDONLY));
    list("from a directory", openat(own, "fdinfo/", O_RDONLY));
    int counts[6] = { 0 };
    struct stat st;
    for (int number = 0; number < 1024; number++) {
        counts[0] += fcntl(number, F_GETFD) >= 0;
        counts[1] += fstat(number, &st) == 0;
        sprintf(path, "/proc/self/fd/%d", number);
        counts[2] += access(path, F_OK) == 0;
        counts[3] += lstat(path, &st) == 0;
        counts[4] += readlink(path, text, sizeof text) > 0;
        sprintf(path, "/proc/self/fdinfo/%d", number);
        counts[5] += access(path, F_OK) == 0;
    }
    for (unsigned i = 0; i < COUNT(counts); i++)
        say("%d", counts[i]);
}

/* A limit that is lowered leaves the lowest free number to the next open. */
GROUP(proc, numbers_below_a_low_limit)
{
    for (int soft = 0; soft < 2; soft++)
        CHILD {
            struct rlimit limit = { 40, soft ? 4000 : 40 };
            T(setrlimit(RLIMIT_NOFILE, &limit));
            int numbers[50], count = 0;
            while (count < 50 && (numbers[count] = open("f", O_RDONLY | O_CREAT, 0644)) >= 0)
                count++;
            int error = errno;
            for (int i = 0; i < count; i++)
                close(numbers[i]);
            say("%d, %d to %d, %s", count, numbers[0], numbers[count - 1], strerrorname_np(error));
        }
}

static int lines_of(const char *path)
{
    char text[4096];
    int fd = open(path, O_RDONLY), lines = 0;
    for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            lines += text[i] == '\n';
    close(fd);
    return lines;
}

/* By a path from a directory, and by one that is not straight. */
GROUP(proc, lists_of_mounts_by_other_names)
{
    T(symlink("/proc/self/mountinfo", "mountinfo"));
    CHILD {
        int lines = lines_of("/proc/self/mountinfo"), dir = open(".", O_RDONLY);
        const char *names[] = { "mountinfo", "/proc/self/../self/mounts", "/proc//self/mountinfo", "/proc/mounts" };
        for (unsigned i = 0; i < COUNT(names); i++)
            say("%s %d", names[i], lines_of(names[i]) == lines);
        T(chdir("/proc"));
        const char *from_proc[] = { "self/mountinfo", "mounts", "./self/mounts", "thread-self/mountinfo", "self/task/../mounts" };
        for (unsigned i = 0; i < COUNT(from_proc); i++)
            say("%s %d", from_proc[i], lines_of(from_proc[i]) == lines);
        T(chdir("self"));
        say("mounts %d", lines_of("mounts") == lines);
        T(chdir("/etc"));
        say("mtab %d", lines_of("mtab") == lines);
        T(fchdir(dir));
    }
}
