/* link, unlink, symlink, readlink, rename, renameat2, mkdir, rmdir: names and every error. */
#include "conform.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#define RENAME_WHITEOUT 4
#endif

GROUP(names, mkdir_rmdir)
{
    make("f", "");
    T(mkdir("d", 0755));
    T(mkdir("d", 0755));
    T(mkdir("d/", 0755));
    T(mkdir("f", 0755));
    T(mkdir("f/", 0755));
    T(mkdir("f/x", 0755));
    T(mkdir("nosuch/x", 0755));
    T(mkdir("e/", 0755));
    T(mkdir("g//", 0755));
    T(mkdir("h/.", 0755));
    T(mkdir(".", 0755));
    T(mkdir("..", 0755));
    T(mkdir("/", 0755));
    T(mkdir("", 0755));
    T(symlink("target", "l"));
    T(mkdir("l", 0755));
    T(mkdir("l/", 0755));
    T(access("target", F_OK));
    T(mkdir("m", 07777));
    attributes("m");
    umask(0);
    T(mkdir("n", 01777));
    attributes("n");
    umask(022);
    T(rmdir("f"));
    T(rmdir("f/"));
    T(rmdir("nosuch"));
    T(rmdir("l"));
    T(rmdir("l/"));
    T(rmdir("."));
    T(rmdir("d/."));
    T(rmdir("d/.."));
    T(rmdir(".."));
    T(rmdir("/"));
    T(rmdir(""));
    T(mkdir("d/sub", 0755));
    T(rmdir("d"));
    T(rmdir("d/sub/"));
    T(rmdir("d"));
    T(symlink("e", "le"));
    T(rmdir("le"));
    T(rmdir("le/"));
    T(rmdir("e"));
    T(rmdir("e"));
}

GROUP(names, link)
{
    make("f", "x");
    make_dir("d");
    T(symlink("f", "l"));
    T(symlink("nosuch", "dangling"));
    T(link("f", "g"));
    T(link("f", "g"));
    T(link("f", "d"));
    T(link("f", "l"));
    T(link("f", "dangling"));
    T(link("d", "e"));
    T(link("nosuch", "x"));
    T(link("f", "nosuch/x"));
    T(link("f", "f/x"));
    T(link("f/", "x"));
    T(link("f", "x/"));
    T(link("", "x"));
    T(link("f", ""));
    T(link("l", "hard_symlink"));
    attributes("hard_symlink");
    T(link("dangling", "hard_dangling"));
    T(linkat(AT_FDCWD, "l", AT_FDCWD, "followed", AT_SYMLINK_FOLLOW));
    attributes("followed");
    T(linkat(AT_FDCWD, "dangling", AT_FDCWD, "x", AT_SYMLINK_FOLLOW));
    T(link(".", "x"));
    T(link("f", "."));
    T(link("f", "d/."));
    T(link("f", "/etc/passwd"));
    T(link("/etc/passwd", "x"));
    T(link("f", "/tmp/lp-tests-cross-device"));
    T(mkfifo("p", 0600));
    T(link("p", "q"));
    attributes("q");
    T(unlink("f"));
    attributes("g");
    T(unlink("g"));
    attributes("followed");
    for (int i = 0; i < 200; i++) {
        char name[16];
        sprintf(name, "d/n%d", i);
        if (link("followed", name))
            say("link %d: %s", i, strerrorname_np(errno));
    }
    attributes("followed");
}

GROUP(names, unlink)
{
    make("f", "x");
    make_dir("d");
    T(symlink("f", "l"));
    T(symlink("d", "ld"));
    T(unlink("d"));
    T(unlink("d/"));
    T(unlink("f/"));
    T(unlink("f/x"));
    T(unlink("l/"));
    T(unlink("ld/"));
    T(unlink("ld"));
    T(unlink("l"));
    T(access("f", F_OK));
    T(unlink("nosuch"));
    T(unlink("nosuch/x"));
    T(unlink(""));
    T(unlink("."));
    T(unlink(".."));
    T(unlink("/"));
    T(unlink("d/.."));
    T(unlinkat(AT_FDCWD, "d", 0));
    T(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
    T(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR));
    T(unlinkat(AT_FDCWD, "f", 1));
    T(unlink("f"));
    T(unlink("f"));
    T(remove("f"));
}

GROUP(names, symlink)
{
    char b[300] = "";
    make("f", "");
    T(symlink("f", "l"));
    T(symlink("other", "l"));
    T(symlink("f", "f"));
    T(symlink("", "e"));
    T(symlink("f", ""));
    T(symlink("f", "x/"));
    T(symlink("f", "nosuch/x"));
    T(symlink("f", "f/x"));
    T(symlink("f", "."));
    T(symlink("a//b/../c/", "odd"));
    T(readlink("odd", b, sizeof b));
    b[11] = 0;
    say("%s", b);
    T(readlink("l", b, 1));
    T(readlink("odd", b, 4));
    T(readlink("l", b, 0));
    T(readlink("l", b, -1));
    T(readlink("f", b, sizeof b));
    T(readlink(".", b, sizeof b));
    T(readlink("nosuch", b, sizeof b));
    T(readlink("", b, sizeof b));
    T(readlink("l/", b, sizeof b));
    T(readlinkat(AT_FDCWD, "", b, sizeof b));
    T(readlinkat(99, "l", b, sizeof b));
    int fd = T(open("f", O_RDONLY));
    T(readlinkat(fd, "", b, sizeof b));
    T(readlinkat(fd, "l", b, sizeof b));
    attributes("l");
    attributes("odd");
    T(symlink("l/", "via"));
    T(open("via", O_RDONLY));
    T(symlink(".", "self"));
    T(open("self/self/self/f", O_RDONLY) > 0);
    T(unlink("self"));
}

/* What a file in the place of another leaves of both: content, links, what is open, the directory's names. */
GROUP(names, rename_over)
{
    make("kept", "kept");
    make("old", "old");
    T(link("old", "second"));
    int open_old = open("old", O_RDONLY);
    make("new", "new");
    T(rename("new", "old"));
    contents("old");
    contents("second");
    attributes("old");
    attributes("second");
    T(access("new", F_OK));
    make("new", "newer");
    T(rename("new", "second"));
    contents("second");
    struct stat st;
    char byte;
    T(fstat(open_old, &st));
    printf("links %ld, size %ld\n", (long)st.st_nlink, (long)st.st_size);
    T(read(open_old, &byte, 1));
    T(close(open_old));
    for (int i = 0; i < 300; i++) {
        make("tmp", i % 2 ? "odd" : "even");
        if (rename("tmp", "last") != 0)
            T(-1);
    }
    contents("last");
    T(symlink("nowhere", "link"));
    T(rename("link", "last"));
    T(access("last", F_OK));
    T(rename("kept", "last"));
    contents("last");
    T(mkfifo("pipe", 0600));
    T(rename("pipe", "last"));
    T(unlink("last"));
    T(unlink("old"));
    T(unlink("second"));
    T(rmdir("."));
}

GROUP(names, rename_files)
{
    make("a", "A");
    make("b", "B");
    make_dir("d");
    make_dir("full");
    make("full/x", "");
    T(symlink("a", "l"));
    T(rename("a", "c"));
    T(rename("c", "b"));
    contents("b");
    T(rename("b", "b"));
    T(link("b", "hard"));
    T(rename("b", "hard"));
    attributes("b");
    T(rename("b", "d"));
    T(rename("b", "d/"));
    T(rename("b", "x/"));
    T(rename("b/", "x"));
    T(rename("b", "nosuch/x"));
    T(rename("b", "b/x"));
    T(rename("nosuch", "x"));
    T(rename("nosuch", "nosuch"));
    T(rename("", "x"));
    T(rename("b", ""));
    T(rename("b", "."));
    T(rename("b", ".."));
    T(rename(".", "x"));
    T(rename("d/.", "x"));
    T(rename("d/..", "x"));
    T(rename("..", "x"));
    T(rename("/", "x"));
    T(rename("b", "/"));
    T(rename("d", "."));
    T(rename("d", "b"));
    T(rename("d", "full"));
    T(rename("full", "d"));
    T(rename("d", "d/sub"));
    T(rename("d", "d"));
    T(rename("d/", "e/"));
    T(rename("d", "l"));
    T(rename("l", "m"));
    attributes("m");
    T(rename("hard", "m"));
    attributes("m");
    T(rename("b", "/tmp/lp-tests-cross"));
    T(rename("/etc/hostname", "x"));
    int fd = T(open("b", O_RDWR));
    make("over", "over");
    T(rename("over", "b"));
    attributes_fd(fd);
    contents("b");
}

GROUP(names, rename_directories)
{
    make_dir("a");
    make_dir("a/b");
    make_dir("a/b/c");
    make("a/b/c/f", "deep");
    make("f", "");
    T(rename("a", "a/b/c/d"));
    T(rename("a/b", "a/b/c/d"));
    T(rename("a/b/c", "a"));
    T(rename("a/b/c", "a/b"));
    T(rename("a/b/c", "a/x"));
    contents("a/x/f");
    T(rename("a", "f"));
    T(rename("f", "a"));
    make_dir("e");
    T(rename("a/x", "e"));
    contents("e/f");
    T(rename("a", "e"));
    T(rename("e/", "a/moved/"));
    T(rename("a/b/", "top"));
    T(symlink("a", "l"));
    T(rename("l/", "x"));
    T(rename("top", "l"));
    T(rename("top", "l/"));
    T(rename("l/moved", "back"));
    T(rename("back", "nosuch/x"));
    T(rename("back", "f/x"));
    T(chdir("back"));
    T(rename("../back", "../again"));
    char b[300];
    TP(getcwd(b, sizeof b));
    say("%s", strrchr(b, '/'));
    T(rename("f", "../g"));
    T(rename("../again", "../again/x"));
    T(rename("../a", "a"));
    T(rename("..", "x"));
    T(access("../again/a", F_OK));
}

static long renameat2_call(const char *from, const char *to, unsigned flags)
{
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

GROUP(names, renameat2)
{
    make("a", "A");
    make("b", "B");
    make_dir("d");
    make("d/in", "in");
    T(symlink("a", "l"));
    T(renameat2_call("a", "b", RENAME_NOREPLACE));
    T(renameat2_call("a", "a", RENAME_NOREPLACE));
    T(renameat2_call("a", "new", RENAME_NOREPLACE));
    T(renameat2_call("new", "a", RENAME_NOREPLACE));
    T(renameat2_call("a", "l", RENAME_NOREPLACE));
    T(renameat2_call("nosuch", "b", RENAME_NOREPLACE));
    T(renameat2_call("a", "b", RENAME_EXCHANGE));
    contents("a");
    T(renameat2_call("a", "nosuch", RENAME_EXCHANGE));
    T(renameat2_call("nosuch", "a", RENAME_EXCHANGE));
    T(renameat2_call("a", "d", RENAME_EXCHANGE));
    attributes("a");
    attributes("d");
    attributes(".");
    T(renameat2_call("a", "d", RENAME_EXCHANGE));
    T(renameat2_call("d", "d/in", RENAME_EXCHANGE));
    T(renameat2_call("d/in", "d", RENAME_EXCHANGE));
    T(renameat2_call("a", "l", RENAME_EXCHANGE));
    attributes("a");
    T(renameat2_call("l", "a", RENAME_EXCHANGE));
    T(renameat2_call("a", "a", RENAME_EXCHANGE));
    make_dir("e");
    T(renameat2_call("d/in", "e", RENAME_EXCHANGE));
    attributes("d");
    attributes("d/in");
    T(renameat2_call("a", "b", RENAME_EXCHANGE | RENAME_NOREPLACE));
    T(renameat2_call("a", "b", 0x80));
    T(renameat2_call("a", "x", RENAME_WHITEOUT | RENAME_EXCHANGE));
    T(renameat2_call("a", "white", RENAME_WHITEOUT));
    attributes("a");
    T(renameat2_call("b", "d/", RENAME_EXCHANGE));
    T(renameat2_call("b", "x/", RENAME_NOREPLACE));
    T(renameat2_call("d", "newdir/", RENAME_NOREPLACE));
}

GROUP(names, odd_names)
{
    const char *names[] = { " ", "  x ", "-", "--help", "\n", "\t", "\xff\xfe", "\xc3\xa9", "a\\b", "*", "?", "...", ".hidden", ". ", "x.", "\"", "'", "$HOME", "\x01" };
    for (unsigned i = 0; i < COUNT(names); i++)
        TN("create", close(open(names[i], O_CREAT | O_EXCL | O_RDWR, 0600)));
    for (unsigned i = 0; i < COUNT(names); i++)
        TN("create", open(names[i], O_CREAT | O_EXCL | O_RDWR, 0600));
    T(access("./...", F_OK));
    T(access(".../x", F_OK));
    T(access("//", F_OK));
    T(access("", F_OK));
    T(access("A", F_OK));
    make("a", "");
    T(access("A", F_OK));
}

GROUP(names, many)
{
    char name[64];
    for (int i = 0; i < 5000; i++) {
        sprintf(name, "file-number-%d", i);
        int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (fd < 0 || close(fd))
            say("create %d: %s", i, strerrorname_np(errno));
    }
    attributes(".");
    for (int i = 0; i < 5000; i += 3) {
        sprintf(name, "file-number-%d", i);
        if (unlink(name))
            say("unlink %d", i);
    }
    int there = 0;
    for (int i = 0; i < 5000; i++) {
        sprintf(name, "file-number-%d", i);
        there += access(name, F_OK) == 0;
    }
    say("%d", there);
    char other[64];
    for (int i = 1; i < 5000; i += 3) {
        sprintf(name, "file-number-%d", i), sprintf(other, "moved-%d", i);
        if (rename(name, other))
            say("rename %d", i);
    }
    DIR *dir = opendir(".");
    int count = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        count++;
        if (e->d_name[0] != '.' && unlink(e->d_name))
            say("unlink %s", e->d_name);
    }
    say("%d", count);
    closedir(dir);
    attributes(".");
}

GROUP(names, whole_tree_at_once)
{
    pid_t child[4];
    for (int c = 0; c < 4; c++)
        if (!(child[c] = fork())) {
            char a[64], b[64];
            int bad = 0;
            sprintf(a, "d%d", c);
            mkdir(a, 0755);
            for (int i = 0; i < 300; i++) {
                sprintf(a, "d%d/x", c), sprintf(b, "shared%d", c);
                int fd = open(a, O_CREAT | O_RDWR, 0600);
                bad += fd < 0;
                close(fd);
                bad += rename(a, b) != 0;
                bad += link(b, a) != 0;
                bad += unlink(b) != 0;
                bad += rename(a, "contended") != 0;
                mkdir("common", 0755);
                rmdir("common");
                int t = open("contended", O_RDONLY);
                if (t >= 0)
                    close(t);
            }
            _exit(bad != 0);
        }
    for (int c = 0; c < 4; c++)
        say_wait(child[c]);
    rmdir("common");
}

/* The working directory has a path that no buffer holds; getcwd(3) then looks into every directory above. */
GROUP(names, ten_thousand_levels)
{
    enum { LEVELS = 10000 };
    static char text[8 * LEVELS];
    char top[PATH_MAX], name[32];
    getcwd(top, sizeof top);
    for (int i = 0; i < LEVELS; i++)
        if (mkdir("d", 0755) || chdir("d"))
            say("%d %s", i, strerrorname_np(errno));
    T(syscall(SYS_getcwd, text, 4096L));
    T(syscall(SYS_getcwd, text, sizeof text));
    T(syscall(SYS_getcwd, text, 1L));
    T(syscall(SYS_getcwd, text, 0L));
    T(syscall(SYS_getcwd, NULL, 4096L));
    T(readlink("/proc/self/cwd", text, sizeof text));
    char *found = TP(getcwd(NULL, 0));
    say("%zd", found ? strlen(found) - strlen(top) : -1);
    free(found);
    sprintf(name, "/proc/self/fd/%d", make_open("f", "text", O_RDWR));
    T(readlink(name, text, sizeof text));
    T(rename("f", "../g"));
    T(unlink("../g"));
    for (int i = 0; i < LEVELS; i++)
        if (chdir("..") || rmdir("d"))
            say("%d %s", i, strerrorname_np(errno));
}
