/* Names, paths and links. */
#include "differ.h"
#include <dirent.h>
#include <sys/xattr.h>

/* The names in the working directory, in their order. */
static void list(const char *text)
{
    char line[200] = "";
    DIR *dir = opendir(".");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            strcat(strcat(line, " "), entry->d_name);
    tell("%s%s", text, line);
    closedir(dir);
}

/* A listing after a name was given to another file. */
CASE(order_of_names)
{
    for (const char *name = "abc"; *name; name++)
        make((char[]){ *name, 0 }, 0644);
    list("made");
    if (rename("c", "a"))
        return 1;
    list("over");
    if (syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 2))
        return 1;
    list("exchanged");
    return 0;
}

/* The mount in its parent directory, by a low number and by one above 63. */
CASE(listed_above)
{
    char parent[4200];
    snprintf(parent, sizeof parent, "%s", directory);
    char *name = strrchr(parent, '/') + 1;
    name[-1] = 0;
    for (int number = 3; number <= 70; number += 67) {
        int fd = open(parent, O_RDONLY | O_DIRECTORY), found = 0;
        if (number > fd) {
            dup2(fd, number);
            close(fd);
            fd = number;
        }
        DIR *dir = fdopendir(fd);
        for (struct dirent *entry; dir && (entry = readdir(dir));)
            found |= !strcmp(entry->d_name, name);
        closedir(dir);
        tell("by %s number %s", number > 63 ? "a high" : "a low", found ? "listed" : "not listed");
    }
    return 0;
}

/* The directory that contains the mount: its links, and whether who may not search it reaches the mount. */
CASE(seen_from_above)
{
    char parent[4200];
    struct stat st;
    snprintf(parent, sizeof parent, "%s", directory);
    strrchr(parent, '/')[0] = 0;
    if (stat(parent, &st) || chmod(parent, 0700) || chdir("/"))
        return 1;
    tell("%lu links", (unsigned long)st.st_nlink);
    IN_CHILD {
        if (setresuid(1000, 1000, 1000))
            _exit(1);
        say("access", access(directory, F_OK));
    }
    return chmod(parent, 0755);
}

/* An absolute link of the host's, from a root directory in a mount. */
CASE(link_of_host)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/l", host);
    int fd = open(host, O_PATH | O_DIRECTORY);
    mkdir("root", 0755);
    make("root/lightpath-only-here", 0644);
    say("link", symlink("/lightpath-only-here", name));
    say("chroot", chroot("root"));
    say("open", openat(fd, "l", O_RDONLY));
    return 0;
}

/* A link of the host's to a descriptor of a file in a mount: what does not reach the file. */
CASE(link_to_a_descriptor)
{
    char name[4200], to[60];
    int fd = open("f", O_CREAT | O_RDWR, 0);
    struct timespec times[2] = { { 5, 0 }, { 5, 0 } };
    struct stat st;
    snprintf(name, sizeof name, "%s/l", host);
    snprintf(to, sizeof to, "/proc/self/fd/%d", fd);
    if (symlink(to, name) || fsetxattr(fd, "trusted.a", "x", 1, 0))
        return 1;
    say("chown", chown(name, 5, 5));
    say("utimensat", utimensat(AT_FDCWD, name, times, 0));
    fstat(fd, &st);
    tell("owner %d, time %s", st.st_uid, st.st_mtime == 5 ? "5" : "another");
    tell("%s", listxattr(name, NULL, 0) > 0 ? "1 attribute" : "no attribute");
    chmod(host, 0755);
    if (setresuid(1000, 1000, 1000))
        return 1;
    say("access", access(name, R_OK));
    return 0;
}

/* The link of a closed number: as one of two paths, of which the other starts at one, and on a read-only file
 * system. */
CASE(closed_numbers)
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

/* Links in one path whose targets are longer than two paths. */
CASE(long_links)
{
    char target[4000];
    make("f", 0644);
    /* Each leads through the next, behind as many steps as it has room for. */
    for (int i = 0; i < 3; i++) {
        char name[8] = { 'l', '0' + i, 0 };
        memset(target, 0, sizeof target);
        snprintf(target, sizeof target, i ? "l%d/" : ".", i - 1);
        while (strlen(target) < 3990)
            strcat(target, i ? "./" : "/.");
        if (symlink(target, name))
            return 1;
        snprintf(name + 2, 6, "/f");
        say(i == 2 ? "three" : i ? "two" : "one", access(name, F_OK));
    }
    return 0;
}

static void show_link(const char *text, int fd)
{
    char link[60], target[4200] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    readlink(link, target, sizeof target - 1);
    tell("%s %s", text, strrchr(target, '/') ? strrchr(target, '/') + 1 : "none");
}

/* The names of descriptors of what is gone. */
CASE(names_of_the_gone)
{
    int fd = open("a", O_CREAT | O_RDWR, 0644);
    if (rename("a", "b") || unlink("b"))
        return 1;
    show_link("renamed", fd);
    fd = open("c", O_CREAT | O_RDWR, 0644);
    if (unlink("c"))
        return 1;
    for (const char *name = "defghi"; *name; name++)
        make((char[]){ *name, 0 }, 0644);
    show_link("used again", fd);
    return 0;
}
