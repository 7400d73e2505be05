/* conform --list | conform GROUP...: see conform.h. */
#include "conform.h"
#include <grp.h>
#include <linux/capability.h>

static struct {
    const char *name;
    void (*run)(void);
} groups[1024];
static unsigned group_count;

void add_group(const char *name, void (*run)(void))
{
    groups[group_count].name = name;
    groups[group_count++].run = run;
}

void say(const char *format, ...)
{
    char line[8192];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    if (write(STDOUT_FILENO, line, length) != length)
        abort();
}

long say_result(const char *text, long result)
{
    int error = errno;
    if (result == -1)
        say("%s = -1 %s", text, strerrorname_np(error));
    else
        say("%s = %ld", text, result);
    errno = error;
    return result;
}

void *say_pointer(const char *text, void *result)
{
    int error = errno;
    if (result == NULL || result == (void *)-1)
        say("%s = bad %s", text, strerrorname_np(error));
    else
        say("%s = good", text);
    errno = error;
    return result;
}

void say_bytes(const char *text, const void *bytes, long length)
{
    char line[4000];
    size_t used = 0;
    const unsigned char *byte = bytes;
    for (long i = 0; i < length && used < sizeof line - 40;) {
        long run = 1;
        while (i + run < length && byte[i + run] == byte[i])
            run++;
        char one[8];
        if (byte[i] >= ' ' && byte[i] < 127 && byte[i] != '\\')
            sprintf(one, "%c", byte[i]);
        else
            sprintf(one, "\\%02x", byte[i]);
        if (run > 3) {
            used += sprintf(line + used, "{%s*%ld}", one, run);
            i += run;
        } else {
            used += sprintf(line + used, "%s", one);
            i++;
        }
    }
    line[used] = 0;
    say("%s: %ld \"%s\"", text, length, line);
}

static void say_attributes(const char *name, const struct stat *st)
{
    say("  %s: mode %o links %lu owner %u:%u size %lld blocks %lld blksize %ld rdev %lx", name, st->st_mode,
        (unsigned long)st->st_nlink, st->st_uid, st->st_gid, (long long)st->st_size, (long long)st->st_blocks,
        (long)st->st_blksize, (unsigned long)st->st_rdev);
}

void attributes(const char *path)
{
    struct stat st;
    if (lstat(path, &st))
        say("  lstat %s: %s", path, strerrorname_np(errno));
    else
        say_attributes(path, &st);
}

void attributes_fd(int fd)
{
    struct stat st;
    char name[32];
    sprintf(name, "fd %d", fd);
    if (fstat(fd, &st))
        say("  fstat %d: %s", fd, strerrorname_np(errno));
    else
        say_attributes(name, &st);
}

void contents(const char *path)
{
    static char buffer[1 << 20];
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        say("  %s: %s", path, strerrorname_np(errno));
        return;
    }
    long length = 0, n;
    while ((n = read(fd, buffer + length, sizeof buffer - length)) > 0)
        length += n;
    close(fd);
    char text[300];
    snprintf(text, sizeof text, "  %s", path);
    say_bytes(text, buffer, length);
}

void make(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    long length = strlen(text);
    if (fd < 0 || write(fd, text, length) != length || close(fd))
        say("cannot make %s: %s", path, strerrorname_np(errno));
}

void make_dir(const char *path)
{
    if (mkdir(path, 0755))
        say("cannot make directory %s: %s", path, strerrorname_np(errno));
}

int make_open(const char *path, const char *text, int flags)
{
    make(path, text);
    int fd = open(path, flags);
    if (fd < 0)
        say("cannot open %s: %s", path, strerrorname_np(errno));
    return fd;
}

long open_how(int dir, const char *path, struct open_how how)
{
    long done = syscall(SYS_openat2, dir, path, &how, sizeof how);
    for (int n = 0; n < 30 && done < 0 && errno == EAGAIN && !(how.resolve & RESOLVE_CACHED); n++) {
        usleep(1000 * n);
        done = syscall(SYS_openat2, dir, path, &how, sizeof how);
    }
    return done;
}

void say_wait(pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        say("waitpid: %s", strerrorname_np(errno));
    else if (WIFSIGNALED(status))
        say("child killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status))
        say("child exit %d", WEXITSTATUS(status));
}

void become_nobody(void)
{
    if (geteuid() != 0)
        return;
    if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
        say("cannot become nobody: %s", strerrorname_np(errno));
}

int set_capabilities(uint32_t effective, uint32_t permitted)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { { effective, permitted, 0 }, { 0, 0, 0 } };
    return syscall(SYS_capset, &header, data);
}

uint32_t permitted_capabilities(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { { 0 } };
    syscall(SYS_capget, &header, data);
    return data[0].permitted;
}

void nap(void)
{
    struct timespec from, now;
    clock_gettime(CLOCK_REALTIME_COARSE, &from);
    do {
        usleep(20000);
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
    } while (now.tv_sec == from.tv_sec && now.tv_nsec == from.tv_nsec);
}

char task_state(pid_t thread)
{
    char path[64], line[512];
    sprintf(path, "/proc/%d/stat", thread);
    int fd = open(path, O_RDONLY);
    long length = read(fd, line, sizeof line - 1);
    close(fd);
    line[length > 0 ? length : 0] = 0;
    char *end = strrchr(line, ')');
    return end ? end[2] : 0;
}

int sleeps(pid_t thread)
{
    return task_state(thread) == 'S';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int main(int argc, char **argv)
{
    qsort(groups, group_count, sizeof groups[0], by_name);
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (unsigned g = 0; g < group_count; g++)
            say("%s", groups[g].name);
        return 0;
    }
    /* Descriptors that the caller left open would shift our numbers. */
    close_range(3, 200, 0);
    for (int a = 1; a < argc; a++)
        for (unsigned g = 0; g < group_count; g++)
            if (!strcmp(groups[g].name, argv[a]))
                groups[g].run();
    return 0;
}
