/* differ CASE DIRECTORY HOST: one row of docs/differences.md, in an empty directory. HOST is a directory of
 * the host. Prints what tests/tests/differ.rs expects of the kernel and of Lightpath. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static void say(const char *text, long result)
{
    printf("%s %s\n", text, result < 0 ? strerrorname_np(errno) : "0");
    fflush(stdout);
}

/* A dynamic program that an effective user executes who is not the real one. */
static int of_two_users(const char *directory)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/f", directory);
    close(open(name, O_CREAT | O_WRONLY, 0644));
    pid_t child = fork();
    if (!child) {
        if (setresuid(1000, 0, 0))
            _exit(99);
        execl("/usr/bin/test", "test", "-e", name, NULL);
        _exit(98);
    }
    int status;
    waitpid(child, &status, 0);
    printf("test %d\n", WEXITSTATUS(status));
    return 0;
}

/* A child in a new user namespace whose map has this many lines: the owner of a file, who is in the last. */
static int owner_seen_with(int lines)
{
    int ready[2], mapped[2];
    char byte;
    struct stat st;
    uid_t owner = 2 * (lines - 1);
    close(open("f", O_CREAT | O_WRONLY, 0644));
    if (chown("f", owner, 0) || pipe(ready) || pipe(mapped))
        return 1;
    pid_t child = fork();
    if (!child) {
        int done = unshare(CLONE_NEWUSER);
        if (write(ready[1], "", 1) != 1 || read(mapped[0], &byte, 1) != 1 || done || stat("f", &st))
            _exit(97);
        printf("%d lines: %s\n", lines, st.st_uid == owner ? "owner" : st.st_uid == 65534 ? "nobody" : "other");
        fflush(stdout);
        _exit(0);
    }
    char name[60], map[4000] = "0 0 1\n";
    for (int line = 1; line < lines; line++)
        sprintf(map + strlen(map), "%d %d 1\n", 2 * line, 2 * line);
    snprintf(name, sizeof name, "/proc/%d/uid_map", child);
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    int fd = open(name, O_WRONLY);
    say("map", write(fd, map, strlen(map)) == (long)strlen(map) ? 0 : -1);
    if (write(mapped[1], "", 1) != 1)
        return 1;
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}

/* Attributes that a file system's owner may set, who is root in a user namespace. */
static int attributes(void)
{
    static const char *const maps[][2] = { { "/proc/self/uid_map", "0 0 1" }, { "/proc/self/setgroups", "deny" }, { "/proc/self/gid_map", "0 0 1" } };
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
        return 1;
    for (int i = 0; i < 3; i++) {
        int fd = open(maps[i][0], O_WRONLY);
        if (write(fd, maps[i][1], strlen(maps[i][1])) < 0)
            return 1;
        close(fd);
    }
    mkdir("d", 0755);
    say("mount", mount("none", "d", "tmpfs", 0, NULL));
    close(open("d/f", O_CREAT | O_WRONLY, 0644));
    say("setxattr", setxattr("d/f", "security.test", "x", 1, 0));
    return 0;
}

/* What a tmpfs shows of its options, and of a file that is bound and removed. */
static int tmpfs_shown(void)
{
    char line[9000], root[4200], at[4200], source[4200], name[101] = {0};
    struct statfs st;
    struct sysinfo memory;
    mkdir("d", 0755);
    memset(name, 's', 100);
    say("mount", mount(name, "d", "tmpfs", 0, "size=1%"));
    say("statfs", statfs("d", &st) | sysinfo(&memory));
    double part = (double)st.f_blocks * st.f_bsize / memory.totalram / memory.mem_unit;
    printf("percent of %s\n", part > 0.009 && part < 0.011 ? "memory" : "another size");
    close(open("d/f", O_CREAT | O_WRONLY, 0600));
    close(open("d/g", O_CREAT | O_WRONLY, 0600));
    say("bind", mount("d/f", "d/g", NULL, MS_BIND, NULL));
    say("unlink", unlink("d/f"));
    FILE *table = fopen("/proc/self/mountinfo", "r");
    while (table && fgets(line, sizeof line, table))
        if (sscanf(line, "%*s %*s %*s %4199s %4199s %*[^-]- tmpfs %4199s", root, at, source) == 3 &&
            strlen(at) > 4 && !strcmp(at + strlen(at) - 4, "/d/g"))
            printf("root %s\nsource of %zu bytes\n", root, strlen(source));
    umount("d/g");
    umount("d");
    return 0;
}

/* An absolute link of the host's, from a root directory in a mount. */
static int link_of_host(const char *host)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/l", host);
    int fd = open(host, O_PATH | O_DIRECTORY);
    mkdir("root", 0755);
    close(open("root/lightpath-only-here", O_CREAT | O_WRONLY, 0644));
    say("link", symlink("/lightpath-only-here", name));
    say("chroot", chroot("root"));
    say("open", openat(fd, "l", O_RDONLY));
    return 0;
}

/* The link of a closed number: as one of two paths, of which the other starts at one, and on a read-only file
 * system. */
static int closed_numbers(void)
{
    char name[60];
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    close(fd);
    say("rename", renameat(AT_FDCWD, name, -1, "g"));
    say("mount", mount(NULL, "/proc", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    say("unlink", unlink(name));
    return 0;
}

enum { CLONE_TREE = 1, FROM_FD = 4, BENEATH = 0x200 };

/* A mount that goes beneath a younger one; one whose owners are those of another user namespace. */
static int beneath_and_idmap(void)
{
    mkdir("a", 0755);
    mkdir("b", 0755);
    if (mount("none", "a", "tmpfs", 0, NULL) || mount("none", "b", "tmpfs", 0, NULL))
        return 1;
    say("move", syscall(SYS_move_mount, AT_FDCWD, "a", AT_FDCWD, "b", BENEATH));
    int ready[2];
    char byte, name[60];
    if (pipe(ready))
        return 1;
    pid_t child = fork();
    if (!child) {
        unshare(CLONE_NEWUSER);
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    static const char *const maps[] = { "uid_map", "gid_map" };
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "/proc/%d/%s", child, maps[i]);
        int map = open(name, O_WRONLY);
        say("map", write(map, "0 1000 1", 8) == 8 ? 0 : -1);
        close(map);
    }
    snprintf(name, sizeof name, "/proc/%d/ns/user", child);
    int users = open(name, O_RDONLY), tree = syscall(SYS_open_tree, AT_FDCWD, "b", CLONE_TREE);
    struct { uint64_t set, clear, propagation, users; } given = { 0x100000, 0, 0, users };
    say("idmap", syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &given, sizeof given));
    kill(child, SIGKILL);
    return waitpid(child, NULL, 0) != child;
}

/* What needs the kernel to know the directory. */
static int kernel_only(void)
{
    int group = fanotify_init(0, O_RDONLY);
    say("init", group < 0 ? -1 : 0);
    say("mark", fanotify_mark(group, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "."));
    mkdir("d", 0755);
    if (mount("none", "d", "tmpfs", 0, NULL) || mkdir("d/old", 0755))
        return 1;
    say("pivot_root", syscall(SYS_pivot_root, "d", "d/old"));
    return 0;
}

/* A number above those that the table of descriptors has room for. */
static int select_above(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(100, &set);
    struct timeval now = { 0, 0 };
    close_range(3, ~0U, 0);
    /* A child's table is as large as its parent's descriptors need. */
    pid_t child = fork();
    if (!child) {
        int dir = open(".", O_RDONLY);
        say("open", dir);
        say("select", select(101, &set, NULL, NULL, &now));
        _exit(0);
    }
    return waitpid(child, NULL, 0) != child;
}

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
static int counts_of_reads(void)
{
    const char *paths[] = { "f", "/proc/self/exe" };
    close(open("f", O_CREAT | O_WRONLY, 0644));
    for (int i = 0; i < 2; i++) {
        char byte;
        int fd = open(paths[i], O_RDONLY);
        long before = counted("syscr: ");
        for (int n = 0; n < 100; n++)
            pread(fd, &byte, 1, 0);
        printf("%s %s\n", i ? "the host's" : "a file's", counted("syscr: ") - before >= 100 ? "counted" : "not counted");
    }
    return 0;
}

/* A shared mapping of four pages as /proc/self/smaps shows it: its file, and whether all flags are those of
 * any file's. */
static int shown_mapping(void)
{
    char line[512], start[32];
    int fd = open("f", O_CREAT | O_RDWR, 0644), within = 0;
    if (ftruncate(fd, 4 * 4096))
        return 1;
    void *at = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    snprintf(start, sizeof start, "%lx-", (unsigned long)at);
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (!strncmp(line, start, strlen(start))) {
            within = 1;
            printf("file %s\n", strstr(line, "/f\n") ? "f" : strstr(line, "lightpath") ? "the region" : "another");
        }
        if (within && !strncmp(line, "VmFlags:", 8)) {
            printf("userfaultfd %s\n", strstr(line, " um") || strstr(line, " uw") ? "yes" : "no");
            break;
        }
    }
    return fclose(maps);
}

/* Rulesets of landlock(7): one that only a duplicate leads to, and nine at a time. */
static int rulesets(void)
{
    struct { uint64_t files; } handled = { 1 << 2 };
    struct __attribute__((packed)) { uint64_t allowed; int directory; } rule = { 1 << 2, open(".", O_PATH) };
    int first = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0), other = dup(first);
    close(first);
    say("add", syscall(SYS_landlock_add_rule, other, 1, &rule, 0));
    int made = 0;
    for (int i = 0; i < 8; i++)
        made = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    say("eighth", made);
    say("ninth", syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0));
    return 0;
}

/* The names in the working directory, in their order. */
static void list(const char *text)
{
    DIR *dir = opendir(".");
    printf("%s", text);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            printf(" %s", entry->d_name);
    printf("\n");
    fflush(stdout);
    closedir(dir);
}

/* A listing after a name was given to another file. */
static int order_of_names(void)
{
    for (const char *name = "abc"; *name; name++)
        close(open((char[]){ *name, 0 }, O_CREAT | O_WRONLY, 0644));
    list("made");
    if (rename("c", "a"))
        return 1;
    list("over");
    if (syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 2))
        return 1;
    list("exchanged");
    return 0;
}

/* A descriptor that was opened under other credentials, or by another process. */
static int link_of_the_parent(void)
{
    chmod(".", 0777);
    int fd = open("f", O_CREAT | O_RDWR, 0666);
    if (fchown(fd, 1000, 1000) || setresuid(1000, 1000, 1000))
        return 1;
    pid_t child = fork();
    if (!child) {
        say("link", linkat(fd, "", AT_FDCWD, "x", AT_EMPTY_PATH));
        fd = open("f", O_RDWR);
        say("own", linkat(fd, "", AT_FDCWD, "y", AT_EMPTY_PATH));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4 || chdir(argv[2]))
        return 2;
    if (!strcmp(argv[1], "of_two_users"))
        return of_two_users(argv[2]);
    if (!strcmp(argv[1], "large_maps"))
        return owner_seen_with(32) || owner_seen_with(33);
    if (!strcmp(argv[1], "attributes"))
        return attributes();
    if (!strcmp(argv[1], "tmpfs_shown"))
        return tmpfs_shown();
    if (!strcmp(argv[1], "closed_numbers"))
        return closed_numbers();
    if (!strcmp(argv[1], "link_of_host"))
        return link_of_host(argv[3]);
    if (!strcmp(argv[1], "beneath_and_idmap"))
        return beneath_and_idmap();
    if (!strcmp(argv[1], "kernel_only"))
        return kernel_only();
    if (!strcmp(argv[1], "rulesets"))
        return rulesets();
    if (!strcmp(argv[1], "select_above"))
        return select_above();
    if (!strcmp(argv[1], "counts_of_reads"))
        return counts_of_reads();
    if (!strcmp(argv[1], "shown_mapping"))
        return shown_mapping();
    if (!strcmp(argv[1], "order_of_names"))
        return order_of_names();
    if (!strcmp(argv[1], "link_of_the_parent"))
        return link_of_the_parent();
    return 2;
}
