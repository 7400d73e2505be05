/* mount(2), umount2(2) and what they do to paths, in a mount namespace of the program's own. */
#include "mounts.h"
#include <sys/sendfile.h>
#include <sys/statvfs.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static int bind(const char *from, const char *to)
{
    return mount(from, to, NULL, MS_BIND, NULL);
}

static const char *end_of(const char *path)
{
    const char *end = strstr(path, "/m/t");
    return end ? end + 4 : path;
}

static void say_cwd(void)
{
    char path[PATH_MAX];
    say("  cwd %s", getcwd(path, sizeof path) ? end_of(path) : strerrorname_np(errno));
}

/* Where /proc says that a descriptor is. */
static void say_link(int fd)
{
    char name[40], path[PATH_MAX];
    sprintf(name, "/proc/self/fd/%d", fd);
    long length = readlink(name, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    say("  link %s", end_of(path));
}

static void say_same(const char *a, const char *b)
{
    struct stat x, y;
    if (stat(a, &x) || stat(b, &y))
        say("  %s or %s: %s", a, b, strerrorname_np(errno));
    else
        say("  %s and %s: inode %s, device %s", a, b, x.st_ino == y.st_ino ? "same" : "differs",
            x.st_dev == y.st_dev ? "same" : "differs");
}

static void list(const char *path)
{
    struct dirent **found;
    int count = scandir(path, &found, NULL, alphasort);
    if (count < 0)
        say("  list %s: %s", path, strerrorname_np(errno));
    for (int i = 0; i < count; i++)
        if (found[i]->d_name[0] != '.')
            say("  %s/%s", path, found[i]->d_name);
}

static void say_flags(const char *path)
{
    struct statvfs st;
    if (statvfs(path, &st))
        say("  statvfs %s: %s", path, strerrorname_np(errno));
    else
        say("  %s: flags %lx", path,
            st.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME | ST_RELATIME));
}

static void two_directories(void)
{
    make_dir("a");
    make_dir("b");
    make_dir("a/sub");
    make("a/f", "of a");
    make("a/sub/g", "deep");
    make("b/h", "of b");
}

GROUP(mounts, bind)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(bind("a", "b"));
    list("b");
    say_same("a", "b");
    say_same("a/f", "b/f");
    contents("b/f");
    contents("b/sub/g");
    make("b/new", "made below");
    contents("a/new");
    T(access("b/h", F_OK));
    T(unlink("b/new"));
    T(access("a/new", F_OK));
    T(umount("b"));
    list("b");
    contents("b/h");
    T(umount("b"));
    T(umount("missing"));
    T(umount("a/f"));
}

GROUP(mounts, bind_of_a_file)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(link("b/h", "b/other"));
    T(bind("a/f", "b/h"));
    contents("b/h");
    contents("b/other");
    say_same("a/f", "b/h");
    int fd = T(open("b/h", O_RDWR | O_APPEND));
    say_link(fd);
    T(write(fd, "+", 1));
    T(umount("b/h"));
    T(close(fd));
    contents("a/f");
    T(unlink("b/h"));
    T(unlink("b/other"));
    T(rename("b/other", "b/third"));
    T(unlink("a/f"));
    contents("b/h");
    T(chmod("b/h", 0600));
    T(truncate("b/h", 2));
    attributes("b/h");
    fd = T(open("b/h", O_RDWR));
    T(write(fd, "new", 3));
    T(close(fd));
    T(setxattr("b/h", "user.a", "1", 1, 0));
    T(link("b/h", "b/fourth"));
    contents("b/h");
    T(umount("b/h"));
    contents("b/h");
    make("a/f", "f");
    T(bind("a", "b/h"));
    T(bind("a/f", "b"));
    T(bind("missing", "b"));
    T(bind("a", "missing"));
    T(bind("", "b"));
    T(bind(NULL, "b"));
    T(bind("a/f/x", "b"));
    T(symlink("a", "link"));
    T(bind("link", "b"));
    list("b");
    T(umount2("b", UMOUNT_NOFOLLOW));
    T(symlink("b", "to_b"));
    T(bind("a", "to_b"));
    T(umount2("to_b", UMOUNT_NOFOLLOW));
    T(umount2("to_b", 0));
    list("b");
}

GROUP(mounts, stacked)
{
    if (!in_own_namespace())
        return;
    two_directories();
    make_dir("c");
    make("c/i", "of c");
    T(bind("a", "b"));
    T(bind("c", "b"));
    list("b");
    list("a");
    T(umount("b"));
    list("b");
    T(bind("b", "b"));
    list("b");
    T(umount("b"));
    T(umount("b"));
    T(umount("b"));
    list("b");
    /* One over its own source. */
    T(bind("c", "a"));
    list("a");
    T(bind("a", "b"));
    list("b");
    T(umount("a"));
    list("b");
    T(umount("b"));
}

GROUP(mounts, dots)
{
    if (!in_own_namespace())
        return;
    two_directories();
    make_dir("c");
    T(bind("a/sub", "b"));
    T(chdir("b"));
    say_cwd();
    contents("g");
    T(access("../b/g", F_OK));
    T(access("../f", F_OK));
    T(access("../a/f", F_OK));
    T(access("./g", F_OK));
    T(access("../../t/b/../b/g", F_OK));
    say_same("..", "../../t");
    T(umount("../b"));
    T(chdir(".."));
    say_cwd();
    T(bind("a", "b"));
    T(chdir("b/sub"));
    say_cwd();
    say_same("../..", "../../../t");
    T(chdir("../.."));
    say_cwd();
    int fd = T(open("b/sub", O_RDONLY | O_DIRECTORY));
    say_link(fd);
    int file = T(openat(fd, "../f", O_RDONLY));
    say_link(file);
    T(faccessat(fd, "../../c", F_OK, 0));
    T(umount("b"));
    T(close(file));
    T(umount("b"));
    T(close(fd));
    T(umount("b"));
    /* A working directory is under what is mounted on it later. */
    T(chdir("b"));
    T(bind("../a", "../b"));
    list(".");
    T(access("h", F_OK));
    T(access("../b/h", F_OK));
    T(access("../b/f", F_OK));
    say_cwd();
    T(umount("../b"));
    T(chdir(".."));
    T(umount("b"));
}

GROUP(mounts, links_between)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(bind("a", "b"));
    T(link("a/f", "b/f2"));
    T(link("a/f", "a/f2"));
    T(link("b/f", "b/f3"));
    T(rename("a/f", "b/f"));
    T(rename("a/f2", "b/f4"));
    T(rename("b/f3", "b/f5"));
    T(rename("b/f5", "a/f5"));
    T(rename("a", "c"));
    T(rename("b", "c"));
    T(rename("a", "b"));
    T(rmdir("b"));
    T(unlink("b"));
    T(rmdir("a"));
    T(rename("b/sub", "b/sub2"));
    T(access("a/sub2/g", F_OK));
    T(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 2));
    T(umount("b"));
    list("b");
    T(rename("b", "c"));
}

GROUP(mounts, busy)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(bind("a", "b"));
    int fd = T(open("b/f", O_RDONLY));
    T(umount("b"));
    int other = T(open("a/f", O_RDONLY));
    T(close(fd));
    T(umount("b"));
    T(close(other));
    T(bind("a", "b"));
    fd = T(open("b", O_PATH));
    T(umount("b"));
    T(close(fd));
    T(bind("b", "b/sub"));
    T(umount("b"));
    list("b/sub");
    T(umount("b/sub"));
    T(chdir("b"));
    T(umount("../b"));
    T(chdir(".."));
    CHILD {
        int held = open("b/sub/g", O_RDONLY);
        T(umount("b"));
        T(close(held));
        T(umount("b"));
    }
    T(umount("b"));
    T(umount2("b", 0x100));
    T(umount2("b", MNT_EXPIRE));
    T(bind("a", "b"));
    T(umount2("b", MNT_EXPIRE | MNT_DETACH));
    T(umount2("b", MNT_EXPIRE));
    T(umount2("b", MNT_EXPIRE));
    list("b");
}

/* Each tmpfs is a file system of its own. */
GROUP(mounts, copy_between)
{
    if (!in_own_namespace())
        return;
    make_dir("b");
    make_dir("c");
    T(mount("none", "b", "tmpfs", 0, NULL));
    make("a", "0123456789");
    T(mount("b", "c", NULL, MS_BIND, NULL));
    int from = T(open("a", O_RDONLY)), to = T(open("b/f", O_RDWR | O_CREAT, 0600)), bound = T(open("c/g", O_RDWR | O_CREAT, 0600));
    int append = T(open("b/h", O_RDWR | O_CREAT | O_APPEND, 0600)), dir = T(open("b", O_RDONLY));
    T(copy_file_range(from, NULL, to, NULL, 10, 0));
    T(copy_file_range(from, NULL, to, NULL, 0, 0));
    T(copy_file_range(from, NULL, to, NULL, 10, 1));
    T(copy_file_range(to, NULL, from, NULL, 10, 0));
    T(copy_file_range(from, NULL, append, NULL, 10, 0));
    T(copy_file_range(from, NULL, dir, NULL, 10, 0));
    loff_t far = INT64_MAX, negative = -1;
    T(copy_file_range(from, &far, to, NULL, 10, 0));
    T(copy_file_range(from, &negative, to, NULL, 10, 0));
    T(sendfile(to, from, NULL, 10));
    T(lseek(to, 0, SEEK_SET));
    T(copy_file_range(to, NULL, bound, NULL, 10, 0));
    contents("c/g");
    T(close(from) | close(to) | close(bound) | close(append) | close(dir));
    T(umount("c"));
    T(umount("b"));
}

GROUP(mounts, bad_source)
{
    if (!in_own_namespace())
        return;
    make_dir("b");
    T(mount((void *)8, "b", "tmpfs", 0, NULL));
    T(mount((void *)8, "b", "none_such", 0, NULL));
    T(mount((void *)8, "missing", "tmpfs", 0, NULL));
    T(mount((void *)8, "b", NULL, MS_REMOUNT, NULL));
    T(mount((void *)8, "b", NULL, MS_BIND, NULL));
    T(mount((void *)8, "b", (void *)8, 0, (void *)8));
    T(mount("x", "b", "tmpfs", 0, (void *)8));
    T(mount((void *)8, "b", NULL, MS_PRIVATE, NULL));
}

GROUP(mounts, detach)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(bind("a", "b"));
    int fd = T(open("b/f", O_RDWR));
    int dir = T(open("b/sub", O_RDONLY | O_DIRECTORY));
    T(umount2("b", MNT_DETACH));
    list("b");
    char text[8] = "";
    T(read(fd, text, 4));
    say_bytes("read", text, 4);
    T(write(fd, "!", 1));
    T(faccessat(dir, "g", F_OK, 0));
    T(faccessat(dir, "../f", F_OK, 0));
    T(faccessat(dir, "../../a", F_OK, 0));
    T(close(fd));
    T(close(dir));
    contents("a/f");
    T(bind("a", "b"));
    T(bind("b", "b/sub"));
    T(umount2("b", MNT_DETACH));
    list("b");
    list("a/sub");
    T(umount("b"));
    T(bind("a", "b"));
    T(umount2("b", MNT_FORCE));
}

GROUP(mounts, recursive)
{
    if (!in_own_namespace())
        return;
    two_directories();
    make_dir("c");
    T(bind("b", "a/sub"));
    T(bind("a", "c"));
    list("c/sub");
    T(umount("c"));
    T(mount("a", "c", NULL, MS_BIND | MS_REC, NULL));
    list("c/sub");
    T(umount("c"));
    T(umount("c/sub"));
    T(umount("c"));
    list("a/sub");
    T(umount("a/sub"));
}

GROUP(mounts, tmpfs)
{
    if (!in_own_namespace())
        return;
    make_dir("a");
    make("a/under", "covered");
    T(mount("none", "a", "tmpfs", 0, "size=1m,mode=751,uid=7,gid=8"));
    attributes("a");
    list("a");
    say_same("a", ".");
    say_same("a", "a/.");
    make("a/f", "in it");
    make_dir("a/d");
    contents("a/f");
    T(link("a/f", "f"));
    T(rename("a/f", "f"));
    struct statfs st;
    T(statfs("a", &st));
    say("  type %lx blocks %ld", (long)st.f_type, (long)st.f_blocks);
    int fd = T(open("a/f", O_RDONLY));
    say_link(fd);
    T(umount("a"));
    T(close(fd));
    T(chdir("a/d"));
    say_cwd();
    say_same("../..", "../../../t");
    T(chdir("../.."));
    T(umount("a"));
    list("a");
    T(mount("none", "a", "tmpfs", 0, NULL));
    attributes("a");
    list("a");
    T(mount("none", "a/none", "tmpfs", 0, NULL));
    T(mount("none", "a", "tmpfs", 0, "nonsense=1"));
    T(mount("none", "a", "nosuchfs", 0, NULL));
    T(mount("none", "a", NULL, 0, NULL));
    T(mount("none", "a", "tmpfs", 0, "mode=9"));
    T(mount("none", "a", "tmpfs", 0, "size=1x"));
    T(umount("a"));
    contents("a/under");
    T(mount("none", "a/under", "tmpfs", 0, NULL));
}

GROUP(mounts, read_only)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(bind("a", "b"));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    say_flags("b");
    T(open("b/f", O_RDWR));
    T(open("b/f", O_RDONLY | O_TRUNC));
    T(open("b/new", O_WRONLY | O_CREAT, 0600));
    T(open("b/f", O_WRONLY | O_CREAT | O_EXCL, 0600));
    T(mkdir("b/d", 0700));
    T(mkdir("b/sub", 0700));
    T(rmdir("b/sub"));
    T(unlink("b/f"));
    T(rename("b/f", "b/g"));
    T(link("b/f", "b/g"));
    T(symlink("x", "b/l"));
    T(chmod("b/f", 0600));
    T(chown("b/f", 1, 1));
    T(truncate("b/f", 0));
    T(utimensat(AT_FDCWD, "b/f", NULL, 0));
    T(access("b/f", W_OK));
    T(access("b/f", R_OK));
    T(syscall(SYS_setxattr, "b/f", "user.x", "y", 1, 0));
    int fd = T(open("b/f", O_RDONLY));
    T(fchmod(fd, 0600));
    T(close(fd));
    T(chmod("a/f", 0640));
    attributes("b/f");
    make("a/through", "the other way");
    contents("b/through");
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND, NULL));
    say_flags("b");
    fd = T(open("b/f", O_RDWR));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    T(write(fd, "x", 1));
    T(close(fd));
    fd = T(open("a/f", O_RDWR));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    T(close(fd));
    T(mount(NULL, "a", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    T(umount("b"));
}

/* What a name that exists, or one with a slash behind it, says before the mount is found to be read-only. */
GROUP(mounts, read_only_names)
{
    if (!in_own_namespace())
        return;
    two_directories();
    make("a/g", "");
    T(bind("a", "b"));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    static const char *const names[] = { "b/f", "b/sub", "b/new", "b/f/", "b/sub/", "b/new/", "b/.", "b/f/x" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = names[i];
        say("%s", name);
        T(link("b/g", name));
        T(link("a/g", name));
        T(link("b/none", name));
        T(symlink("x", name));
        T(mkdir(name, 0700));
        T(mknod(name, S_IFREG | 0600, 0));
        T(unlink(name));
        T(rmdir(name));
        T(rename(name, "b/other"));
        T(rename("b/g", name));
        T(rename("b/none", name));
    }
    T(umount("b"));
}

GROUP(mounts, remount)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(mount("none", "a", "tmpfs", 0, NULL));
    T(bind("a", "b"));
    make("a/f", "text");
    int fd = T(open("b/f", O_RDWR));
    T(mount(NULL, "a", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    T(close(fd));
    fd = T(open("b/f", O_RDONLY));
    T(mount(NULL, "a", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    T(close(fd));
    say_flags("a");
    say_flags("b");
    T(open("b/f", O_RDWR));
    T(mkdir("b/d", 0700));
    T(mount(NULL, "b", NULL, MS_REMOUNT, NULL));
    say_flags("a");
    say_flags("b");
    T(mkdir("b/d", 0700));
    T(mkdir("a/e", 0700));
    T(mount(NULL, "a", NULL, MS_REMOUNT, NULL));
    T(mkdir("a/e", 0700));
    T(mount(NULL, "a", NULL, MS_REMOUNT, "size=2m"));
    T(mount(NULL, "a/e", NULL, MS_REMOUNT, NULL));
    T(mount(NULL, "a", NULL, MS_REMOUNT, "nonsense"));
    T(umount("b"));
    T(umount("a"));
    T(mount("none", "a", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL));
    say_flags("a");
    T(mkdir("a/d", 0700));
    T(umount("a"));
}

GROUP(mounts, flags)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(chmod("a/f", 0755));
    T(symlink("f", "a/l"));
    T(mknod("a/null", S_IFCHR | 0666, makedev(1, 3)));
    T(bind("a", "b"));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_NODEV | MS_NOEXEC | MS_NOSUID | MS_NOSYMFOLLOW, NULL));
    say_flags("b");
    T(open("b/null", O_RDWR));
    T(access("b/null", R_OK));
    CHILD {
        T(execl("b/f", "f", NULL));
    }
    T(access("b/f", X_OK));
    T(open("b/l", O_RDONLY));
    T(readlink("b/l", (char[8]){ 0 }, 8));
    contents("a/l");
    T(umount("b"));
}

GROUP(mounts, unprivileged)
{
    if (!in_own_namespace())
        return;
    two_directories();
    T(bind("a", "b"));
    CHILD {
        become_nobody();
        T(bind("a", "b"));
        T(umount("b"));
        T(umount("a"));
        T(umount("missing"));
        T(mount("none", "a", "tmpfs", 0, NULL));
        T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    }
    T(umount("b"));
}

/* The lines of /proc about what is mounted below here. */
static void say_lines(const char *path, int field)
{
    char line[4096], copy[4096];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (!strstr(line, "/m/t/"))
            continue;
        strcpy(copy, line);
        char *word = strtok(copy, " ");
        for (int i = 0; i < field; i++)
            word = strtok(NULL, " ");
        char *options = strtok(NULL, " \n"), *third = strtok(NULL, " \n"), *fourth = strtok(NULL, " \n");
        if (field == 1) /* mounts: type, options */
            say("  %s: %s", end_of(word), options);
        else
            say("  %s: %s %s %s", end_of(word), options, third, fourth);
    }
    if (file)
        fclose(file);
    else
        say("%s: %s", path, strerrorname_np(errno));
}

GROUP(mounts, proc)
{
    if (!in_own_namespace())
        return;
    two_directories();
    make_dir("with space");
    T(bind("a", "b"));
    T(mount("what", "with space", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=700"));
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOATIME, NULL));
    say_lines("/proc/self/mountinfo", 4);
    say_lines("/proc/mounts", 1);
    say_lines("/proc/self/mountstats", 4);
    T(umount("b"));
    T(umount("with space"));
    say_lines("/proc/self/mountinfo", 4);
    say_lines("/proc/self/mountstats", 4);
}

GROUP(mounts, moved)
{
    if (!in_own_namespace())
        return;
    two_directories();
    make_dir("c");
    T(mount("none", "a", "tmpfs", 0, NULL));
    make("a/f", "moves");
    make_dir("a/d");
    T(bind("b", "a/d"));
    T(mount("a", "c", NULL, MS_MOVE, NULL));
    list("a");
    list("c");
    list("c/d");
    T(mount("c", "c/d", NULL, MS_MOVE, NULL));
    T(mount("b", "a", NULL, MS_MOVE, NULL));
    T(umount("c"));
    T(umount("c/d"));
    T(umount("c"));
}

/* A magic link to a symbolic link leads to the link itself, on which nothing can be mounted. */
GROUP(mounts, on_links)
{
    if (!in_own_namespace())
        return;
    make("f", "text"), make("g", "text");
    char path[60];
    int fd = open("f", O_RDONLY);
    sprintf(path, "/proc/self/fd/%d", fd);
    int link = open(path, O_PATH | O_NOFOLLOW);
    sprintf(path, "/proc/self/fd/%d", link);
    TN("mount on a link in /proc", mount("g", path, "", MS_BIND, NULL));
    TN("mount on nothing", mount("g", "/proc/self/none", "", MS_BIND, NULL));
    TN("mount on nothing below a file", mount("g", "/proc/version/x", "", MS_BIND, NULL));
}
