/* openat2: the `resolve` flags that limit a walk. */
#include "conform.h"
#include <sched.h>
#include <sys/mount.h>

static const struct {
    const char *name;
    uint64_t flags;
} limits[] = {
    { "xdev", RESOLVE_NO_XDEV },
    { "magic", RESOLVE_NO_MAGICLINKS },
    { "symlinks", RESOLVE_NO_SYMLINKS },
    { "beneath", RESOLVE_BENEATH },
    { "root", RESOLVE_IN_ROOT },
    { "beneath+xdev", RESOLVE_BENEATH | RESOLVE_NO_XDEV },
    { "root+xdev", RESOLVE_IN_ROOT | RESOLVE_NO_XDEV },
    { "root+symlinks", RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS },
    { "root+magic", RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS },
    { "beneath+root", RESOLVE_BENEATH | RESOLVE_IN_ROOT },
};

static long open_limited(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? 0644 : 0;
    return open_how(dir, path, (struct open_how){ .flags = flags, .resolve = resolve, .mode = mode });
}

/* Opens a path with one limit, and says what was opened by its first bytes, or by its inode's kind. */
static void one(int dir, const char *path, uint64_t flags, uint64_t resolve, const char *limit)
{
    errno = 0;
    int fd = open_limited(dir, path, flags, resolve);
    if (fd < 0) {
        say("%s, %s: %s", path, limit, strerrorname_np(errno));
        return;
    }
    struct stat st;
    fstat(fd, &st);
    char text[16] = "";
    int again = fd;
    if (S_ISREG(st.st_mode) && pread(again, text, sizeof text - 1, 0) < 0)
        strcpy(text, "unreadable");
    say("%s, %s: mode %o links %lu '%s'", path, limit, st.st_mode, (unsigned long)st.st_nlink, text);
    close(fd);
}

static void each(int dir, const char *path, uint64_t flags)
{
    for (unsigned i = 0; i < COUNT(limits); i++)
        one(dir, path, flags, limits[i].flags, limits[i].name);
}

/* The same for a path that must not be shown, because it tells the file systems apart. */
static void each_as(const char *name, int dir, const char *path, uint64_t flags)
{
    for (unsigned i = 0; i < COUNT(limits); i++) {
        errno = 0;
        int fd = open_limited(dir, path, flags, limits[i].flags);
        say("%s, %s: %s", name, limits[i].name, fd < 0 ? strerrorname_np(errno) : "open");
        close(fd);
    }
}

/* top/{f, in/{g, deep/}, links of many kinds}; the directory that is opened is `in`. */
static int tree(void)
{
    make_dir("top");
    make("top/f", "above");
    make_dir("top/in");
    make("top/in/g", "inside");
    make_dir("top/in/deep");
    make("top/in/deep/h", "deep");
    symlink("g", "top/in/plain");
    symlink("deep", "top/in/dir");
    symlink("../f", "top/in/up");
    symlink("deep/../../f", "top/in/round");
    symlink("/g", "top/in/absolute");
    symlink("/deep/../../../g", "top/in/deep/climb");
    symlink("/proc/self/cwd/top/f", "top/in/magic");
    symlink("/proc/self/fd/0", "top/in/standard");
    symlink("loop", "top/in/loop");
    symlink("none", "top/in/dangling");
    symlink("/", "top/in/slash");
    symlink("..", "top/in/deep/dots");
    return open("top/in", O_PATH | O_DIRECTORY);
}

GROUP(resolve, names)
{
    int dir = tree();
    const char *paths[] = { "g", "deep/h", "deep/../g", "none", "g/x", "g/", "deep/", ".", "", "./g", "deep/none", "deep//./h" };
    for (unsigned i = 0; i < COUNT(paths); i++)
        each(dir, paths[i], O_RDONLY);
}

GROUP(resolve, upwards)
{
    int dir = tree();
    const char *paths[] = { "..", "../f", "../in/g", "deep/../../f", "deep/../..", "deep/dots/g", "deep/dots/../f" };
    for (unsigned i = 0; i < COUNT(paths); i++)
        each(dir, paths[i], O_RDONLY);
    each_as("far up", dir, "../../..", O_RDONLY);
}

GROUP(resolve, links)
{
    int dir = tree();
    const char *paths[] = { "plain", "dir/h", "dir", "up", "round", "absolute", "deep/climb", "loop", "dangling", "slash", "slash/g" };
    for (unsigned i = 0; i < COUNT(paths); i++) {
        each(dir, paths[i], O_RDONLY);
        each(dir, paths[i], O_PATH | O_NOFOLLOW);
        each(dir, paths[i], O_RDONLY | O_NOFOLLOW);
    }
}

GROUP(resolve, magic_links)
{
    int dir = tree();
    const char *paths[] = { "magic", "standard" };
    int saved = dup(0);
    dup2(open("top/f", O_RDONLY), 0);
    for (unsigned i = 0; i < COUNT(paths); i++)
        each(dir, paths[i], O_RDONLY);
    const char *absolute[] = { "/proc/self/fd/0", "/proc/self/cwd/top/f", "/proc/self/cwd", "/proc/self/root", "/dev/stdin" };
    for (unsigned i = 0; i < COUNT(absolute); i++) {
        each(dir, absolute[i], O_RDONLY);
        each(AT_FDCWD, absolute[i], O_RDONLY);
    }
    dup2(saved, 0);
}

GROUP(resolve, absolute_paths)
{
    int dir = tree();
    char here[PATH_MAX], path[PATH_MAX + 20];
    if (!getcwd(here, sizeof here))
        return;
    const char *below[] = { "", "/top/f", "/top/in/plain", "/top/none", "/../nowhere", "/top/in/magic" };
    for (unsigned i = 0; i < COUNT(below); i++)
        for (unsigned l = 0; l < COUNT(limits); l++) {
            snprintf(path, sizeof path, "%s%s", here, below[i]);
            errno = 0;
            int fd = open_limited(dir, path, O_RDONLY, limits[l].flags);
            say("%s, %s: %s", below[i], limits[l].name, fd < 0 ? strerrorname_np(errno) : "open");
            close(fd);
        }
    each(dir, "/g", O_RDONLY);
    each(dir, "///deep/h", O_RDONLY);
    each(dir, "/", O_RDONLY);
    each(dir, "//", O_PATH);
    each(dir, "/..", O_RDONLY);
    each(dir, "/etc/passwd", O_PATH);
    each(AT_FDCWD, "/", O_RDONLY);
    each(AT_FDCWD, "/top/f", O_RDONLY);
}

/* Keeps root from making files in the host's root directory, where absolute paths lead. */
static void fence(void)
{
    struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY };
    if (geteuid() == 0 && (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &read_only, sizeof read_only)))
        say("fence: %s", strerrorname_np(errno));
}

GROUP(resolve, making)
{
    fence();
    int dir = tree();
    const char *paths[] = { "new", "../new", "dangling", "/made", "deep/../made too", "absolute", "up", "g", ".", "..", "/", "deep/" };
    for (unsigned i = 0; i < COUNT(paths); i++)
        for (unsigned l = 0; l < COUNT(limits); l++) {
            one(dir, paths[i], O_RDWR | O_CREAT, limits[l].flags, limits[l].name);
            one(dir, paths[i], O_RDWR | O_CREAT | O_EXCL, limits[l].flags, limits[l].name);
            unlink("top/in/new");
            unlink("top/new");
            unlink("top/in/none");
            unlink("top/in/made");
            unlink("top/in/made too");
        }
    each(dir, "deep", O_RDWR | O_TMPFILE);
    each(dir, "dir", O_RDWR | O_TMPFILE);
    each(dir, "..", O_RDWR | O_TMPFILE);
    contents("top/f");
    contents("top/in/g");
}

GROUP(resolve, cached)
{
    int dir = tree();
    one(dir, "g", O_RDONLY, RESOLVE_CACHED, "cached");
    one(dir, "none", O_RDONLY, RESOLVE_CACHED, "cached");
    one(dir, "g/x", O_RDONLY, RESOLVE_CACHED, "cached");
    one(dir, "g/", O_RDONLY, RESOLVE_CACHED, "cached");
    one(dir, "deep/../g", O_RDONLY, RESOLVE_CACHED, "cached");
    nap();
    one(dir, "plain", O_RDONLY, RESOLVE_CACHED, "cached, never followed");
    contents("top/in/plain");
    one(dir, "plain", O_RDONLY, RESOLVE_CACHED, "cached, followed");
    one(dir, "plain", O_RDONLY, RESOLVE_CACHED | RESOLVE_NO_SYMLINKS, "cached, no links");
    one(dir, "loop", O_RDONLY, RESOLVE_CACHED, "cached");
    one(dir, "../f", O_RDONLY, RESOLVE_CACHED | RESOLVE_BENEATH, "cached, beneath");
    one(dir, "../g", O_RDONLY, RESOLVE_CACHED | RESOLVE_IN_ROOT, "cached, root");
    one(dir, "g", O_RDWR | O_TRUNC, RESOLVE_CACHED, "cached, truncated");
    one(dir, "new", O_RDWR | O_CREAT, RESOLVE_CACHED, "cached, made");
    one(dir, ".", O_RDWR | O_TMPFILE, RESOLVE_CACHED, "cached, nameless");
    char name[258];
    memset(name, 'n', 256);
    name[256] = 0;
    TN("a long name", open_limited(dir, name, O_RDONLY, RESOLVE_CACHED));
    TN("a long name", open_limited(dir, name, O_RDONLY, RESOLVE_BENEATH));
    contents("top/in/g");
}

GROUP(resolve, arguments)
{
    int dir = tree(), file = open("top/f", O_RDONLY);
    T(open_limited(dir, "g", O_RDONLY, RESOLVE_BENEATH | RESOLVE_IN_ROOT));
    T(open_limited(dir, "g", O_RDONLY, 0x40));
    T(open_limited(dir, "g", O_RDONLY, UINT64_MAX));
    T(open_limited(dir, "g", O_RDONLY, RESOLVE_BENEATH | 1ULL << 40));
    T(open_limited(file, "g", O_RDONLY, RESOLVE_BENEATH));
    T(open_limited(file, "/g", O_RDONLY, RESOLVE_IN_ROOT));
    T(open_limited(file, "/g", O_RDONLY, RESOLVE_BENEATH));
    T(open_limited(file, "", O_RDONLY, RESOLVE_IN_ROOT));
    T(open_limited(77, "g", O_RDONLY, RESOLVE_BENEATH));
    T(open_limited(77, "/g", O_RDONLY, RESOLVE_IN_ROOT));
    T(open_limited(77, "/g", O_RDONLY, RESOLVE_BENEATH));
    T(open_limited(-1, "/g", O_RDONLY, RESOLVE_NO_XDEV));
    T(open_limited(dir, NULL, O_RDONLY, RESOLVE_BENEATH));
    T(open_limited(dir, "g", O_RDONLY | O_DIRECTORY, RESOLVE_BENEATH));
    T(open_limited(dir, "deep", O_RDWR, RESOLVE_BENEATH));
    T(rename("top/in", "top/away"));
    one(dir, "g", O_RDONLY, RESOLVE_BENEATH, "beneath, moved");
    one(dir, "deep/../g", O_RDONLY, RESOLVE_BENEATH, "beneath, moved");
    T(open_limited(dir, "..", O_RDONLY, RESOLVE_BENEATH));
}

GROUP(resolve, removed)
{
    make_dir("gone");
    int dir = open("gone", O_RDONLY | O_DIRECTORY);
    T(rmdir("gone"));
    each(dir, ".", O_PATH);
    each(dir, "..", O_PATH);
    each(dir, "x", O_RDONLY);
    each(dir, "/", O_PATH);
}

/* From a directory of the host into this file system and out of it again. */
GROUP(resolve, across)
{
    int dir = tree();
    char here[PATH_MAX], path[2 * PATH_MAX];
    if (dir < 0 || !getcwd(here, sizeof here))
        return;
    int root = open("/", O_PATH | O_DIRECTORY), etc = open("/etc", O_PATH | O_DIRECTORY);
    const char *below[] = { "top/f", "top/in/plain", "top/in/up", "top/in/slash", "top/none", "../nowhere", "top/in/../f" };
    for (unsigned i = 0; i < COUNT(below); i++)
        for (unsigned l = 0; l < COUNT(limits); l++) {
            for (int kind = 0; kind < 3; kind++) {
                snprintf(path, sizeof path, "%s%s/%s", kind == 2 ? "../.." : kind ? "" : ".", here, below[i]);
                errno = 0;
                int fd = open_limited(root, path, O_RDONLY, limits[l].flags);
                int error = errno;
                say("%d %s, %s: %s", kind, below[i], limits[l].name, fd < 0 ? strerrorname_np(error) : "open");
                close(fd);
                errno = 0;
                fd = open_limited(etc, path, O_RDONLY, limits[l].flags);
                error = errno;
                say("etc %d %s, %s: %s", kind, below[i], limits[l].name, fd < 0 ? strerrorname_np(error) : "open");
                close(fd);
            }
        }
    /* An absolute link means the root that the walk has. */
    snprintf(path, sizeof path, "%s/top/f", here);
    T(symlink(path, "top/in/home"));
    snprintf(path, sizeof path, ".%s/top/in/home", here);
    each_as("from the root", root, path, O_RDONLY);
    each(dir, "home", O_RDONLY);
    /* Out through `..` to a file of the host. */
    char out[PATH_MAX] = "";
    for (char *slash = here; (slash = strchr(slash, '/')); slash++)
        strcat(out, "../");
    snprintf(path, sizeof path, ".%s/%setc/passwd", here, out);
    each_as("into it and out", root, path, O_PATH);
    snprintf(path, sizeof path, "%setc/passwd", out);
    each_as("out of it", AT_FDCWD, path, O_PATH);
    each(AT_FDCWD, "/etc/mtab", O_PATH | O_NOFOLLOW);
}
