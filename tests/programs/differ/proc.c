/* What /proc tells of a process. */
#include "differ.h"

#include <sys/socket.h>
#include <sys/un.h>

/* What one line of /proc/self/io counts. */
static long counted(const char *name)
{
    char text[1024] = "";
    int fd = open("/proc/self/io", O_RDONLY);
    read(fd, text, sizeof text - 1);
    close(fd);
    const char *line = strstr(text, name);
    return line ? atol(line + strlen(name)) : -1;
}

/* A hundred reads of a file and as many of the host's. */
CASE(counts_of_reads)
{
    const char *paths[] = { "f", "/proc/self/exe" };
    make("f", 0644);
    for (int i = 0; i < 2; i++) {
        char byte;
        int fd = open(paths[i], O_RDONLY);
        long before = counted("syscr: ");
        for (int n = 0; n < 100; n++)
            pread(fd, &byte, 1, 0);
        tell("%s %s", i ? "the host's" : "a file's", counted("syscr: ") - before >= 100 ? "counted" : "not counted");
    }
    return 0;
}

/* The signals for which a process has handlers that has made none. */
CASE(caught_signals)
{
    char line[200];
    unsigned long caught = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (fgets(line, sizeof line, status))
        sscanf(line, "SigCgt: %lx", &caught);
    fclose(status);
    tell("SEGV %d, BUS %d", (int)(caught >> (SIGSEGV - 1) & 1), (int)(caught >> (SIGBUS - 1) & 1));
    return 0;
}

/* A socket bound in the directory, in the host's list of them. */
CASE(listed_sockets)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    snprintf(name.sun_path, sizeof name.sun_path, "socket-of-%d", getpid());
    int made = socket(AF_UNIX, SOCK_STREAM, 0), found = 0;
    if (bind(made, (struct sockaddr *)&name, sizeof name))
        return 1;
    char line[300];
    FILE *list = fopen("/proc/net/unix", "re");
    while (fgets(line, sizeof line, list))
        found += strstr(line, name.sun_path) != NULL;
    fclose(list);
    tell("%d by its name", found);
    return 0;
}

/* Copies a static program, busybox, to a directory of the host. */
static int make_static(const char *host, char name[4200])
{
    char line[4300];
    snprintf(name, 4200, "%s/busybox", host);
    snprintf(line, sizeof line, "cp \"$(command -v busybox)\" %s", name);
    return system(line);
}

/* A static program: whose mappings it has, and whether its file may be written to while it runs. */
CASE(static_programs)
{
    char name[4200], line[4300];
    int ends[2], status;
    if (make_static(host, name) || pipe2(ends, O_CLOEXEC))
        return 1;
    snprintf(line, sizeof line, "%s cat /proc/self/maps | grep -q lightpath && echo the gate || echo alone", name);
    system(line);
    pid_t child = fork();
    if (!child) {
        execl(name, name, "sleep", "60", NULL);
        _exit(1);
    }
    close(ends[1]);
    read(ends[0], line, 1);
    say("open", open(name, O_WRONLY));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return unlink(name);
}

/* A static program that executes itself by /proc: its name. If that is `exe`, busybox changes it to its
 * argument. */
CASE(static_by_itself)
{
    char name[4200], line[4300];
    if (make_static(host, name))
        return 1;
    snprintf(line, sizeof line, "%s sh -c 'exec -a cat /proc/self/exe /proc/self/comm'", name);
    return system(line) || unlink(name);
}
