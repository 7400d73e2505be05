/* differ CASE DIRECTORY HOST: see differ.h. */
#include "differ.h"
#include <stdarg.h>

static struct {
    const char *name;
    int (*run)(const char *, const char *);
} cases[256];
static int count, has_failed;

void add_case(const char *name, int (*run)(const char *, const char *))
{
    cases[count].name = name;
    cases[count++].run = run;
}

void say(const char *text, long result)
{
    tell("%s %s", text, result < 0 ? strerrorname_np(errno) : "0");
}

void tell(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
}

void make(const char *name, mode_t mode)
{
    int fd = open(name, O_CREAT | O_WRONLY, mode);
    if (fd < 0 || fchmod(fd, mode) || close(fd))
        tell("%s: %s", name, strerrorname_np(errno));
}

void ended(pid_t child)
{
    int status;
    has_failed |= waitpid(child, &status, 0) != child || status != 0;
}

int put(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY);
    long length = strlen(text), done = write(fd, text, length), error = errno;
    close(fd);
    errno = error;
    return done == length ? 0 : -1;
}

int is_same_time(const struct stat *one, const struct stat *other)
{
    return one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 4 || chdir(argv[2]))
        return 2;
    for (int i = 0; i < count; i++)
        if (!strcmp(cases[i].name, argv[1]))
            return cases[i].run(argv[2], argv[3]) || has_failed;
    return 2;
}
