/* Prints calls with their results, and attributes without what no two runs have in common. */
#include "odd.h"

char base[4096];
unsigned step;
int is_peer;
int is_beside;

long say(long result, const char *format, ...)
{
    int error = errno;
    char line[6000];
    int used = snprintf(line, sizeof line, is_peer ? "/* %u, the peer: */ " : "/* %u */ ", step);
    va_list list;
    va_start(list, format);
    used += vsnprintf(line + used, sizeof line - 100, format, list);
    va_end(list);
    if (used > (int)sizeof line - 60)
        used = sizeof line - 60;
    used += result == -1 ? sprintf(line + used, "; // %s\n", strerrorname_np(error)) : sprintf(line + used, "; // %ld\n", result);
    if (write(STDOUT_FILENO, line, used) != used)
        abort();
    errno = error;
    return result;
}

/* A time that a sequence has set, or "now". */
static const char *class_of(const struct timespec *time, char *text)
{
    if (time->tv_sec > 1000)
        return "now";
    sprintf(text, "%ld.%ld", (long)time->tv_sec, time->tv_nsec);
    return text;
}

/* The kernel does not count a mount that it does not know among the directories of another. */
unsigned long links_of(unsigned mode, unsigned long links)
{
    return is_beside && S_ISDIR(mode) ? 0 : links;
}

void say_stat(const struct stat *st)
{
    char read[60], written[60];
    /* A socket is mostly the kernel's own, which has its own times, as a device has. */
    if (S_ISSOCK(st->st_mode) || S_ISCHR(st->st_mode)) {
        say(0, "/* mode %o links %lu owner %u:%u */", st->st_mode, (unsigned long)st->st_nlink, st->st_uid, st->st_gid);
        return;
    }
    say(0, "/* mode %o links %lu owner %u:%u size %ld blocks %ld read %s written %s */", st->st_mode, links_of(st->st_mode, st->st_nlink), st->st_uid,
        st->st_gid, (long)st->st_size, (long)st->st_blocks, class_of(&st->st_atim, read), class_of(&st->st_mtim, written));
}
