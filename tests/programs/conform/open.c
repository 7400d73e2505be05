/* open, openat, openat2, creat: flags, names, errors. */
#include "conform.h"

static void close_if(long fd)
{
    if (fd > 2)
        T(close(fd));
}

GROUP(open, access_modes)
{
    make("f", "hello");
    char b[8];
    int modes[] = { O_RDONLY, O_WRONLY, O_RDWR, 3 };
    for (unsigned i = 0; i < COUNT(modes); i++) {
        say("mode %d", modes[i]);
        int fd = T(open("f", modes[i]));
        T(read(fd, b, 2));
        T(write(fd, "xy", 2));
        T(fcntl(fd, F_GETFL));
        T(ftruncate(fd, 5));
        T(lseek(fd, 0, SEEK_CUR));
        T(fchmod(fd, 0644));
        T(fsync(fd));
        close_if(fd);
    }
    contents("f");
}

GROUP(open, create)
{
    close_if(T(open("a", O_CREAT | O_WRONLY, 0640)));
    close_if(T(open("a", O_CREAT | O_RDWR, 0777)));
    T(open("a", O_CREAT | O_EXCL | O_RDWR, 0777));
    close_if(T(open("b", O_CREAT | O_EXCL, 04755)));
    close_if(T(open("c", O_CREAT | O_RDONLY, 0)));
    close_if(T(open("ro", O_CREAT | O_RDWR | O_EXCL, 0400)));
    close_if(T(creat("d", 0600)));
    make_dir("dir");
    T(open("dir", O_CREAT | O_RDONLY, 0644));
    T(open("dir", O_CREAT | O_DIRECTORY, 0644));
    T(open("dir/", O_CREAT, 0644));
    T(open("new/", O_CREAT, 0644));
    T(open("new", O_CREAT | O_DIRECTORY, 0644));
    T(open("dir/x/y", O_CREAT, 0644));
    T(open("a/x", O_CREAT, 0644));
    T(symlink("target", "l"));
    T(open("l", O_CREAT | O_EXCL | O_RDWR, 0644));
    T(open("l", O_CREAT | O_NOFOLLOW | O_RDWR, 0644));
    close_if(T(open("l", O_CREAT | O_RDWR, 0600)));
    attributes("target");
    T(symlink("nodir/target", "m"));
    T(open("m", O_CREAT | O_RDWR, 0600));
    T(open(".", O_CREAT, 0600));
    T(open("..", O_CREAT | O_RDWR, 0600));
    T(open("", O_CREAT, 0600));
    umask(077);
    close_if(T(open("u", O_CREAT | O_RDWR, 0666)));
    umask(0);
    close_if(T(open("v", O_CREAT | O_RDWR, 07777)));
    umask(022);
}

GROUP(open, truncate)
{
    make("f", "hello");
    close_if(T(open("f", O_TRUNC | O_RDONLY)));
    contents("f");
    make("f", "hello");
    close_if(T(open("f", O_TRUNC | O_WRONLY)));
    contents("f");
    make("g", "text");
    T(chmod("g", 0));
    CHILD {
        become_nobody();
        T(open("g", O_RDONLY | O_TRUNC));
        T(open("g", O_CREAT | O_EXCL));
    }
    attributes("g");
    make_dir("d");
    T(open("d", O_TRUNC | O_RDONLY));
    T(open("d", O_TRUNC | O_WRONLY));
}

GROUP(open, directory)
{
    make("f", "");
    make_dir("d");
    T(symlink("d", "l"));
    T(symlink("f", "lf"));
    T(open("f", O_DIRECTORY));
    close_if(T(open("d", O_DIRECTORY)));
    close_if(T(open("d", O_RDONLY)));
    T(open("d", O_WRONLY));
    T(open("d", O_RDWR));
    T(open("d", O_RDWR | O_DIRECTORY));
    close_if(T(open("l", O_DIRECTORY)));
    T(open("l", O_DIRECTORY | O_NOFOLLOW));
    T(open("lf", O_DIRECTORY));
    T(open("f/", O_RDONLY));
    close_if(T(open("d/", O_RDONLY)));
    close_if(T(open("l/", O_RDONLY | O_NOFOLLOW)));
    T(open("lf/", O_RDONLY));
    T(open("f/.", O_RDONLY));
    T(open("f/..", O_RDONLY));
    close_if(T(open("d/.", O_RDONLY)));
    close_if(T(open("d/../f", O_RDONLY)));
    close_if(T(open("d//..//./f", O_RDONLY)));
    int d = T(open("d", O_RDONLY | O_DIRECTORY));
    char b[4];
    T(read(d, b, 4));
    T(pread(d, b, 4, 0));
    T(write(d, b, 4));
    T(ftruncate(d, 0));
    T(lseek(d, 0, SEEK_CUR));
    T(fsync(d));
    T(fcntl(d, F_GETFL));
    close_if(d);
}

/* A walk of the kernel that starts again, with locks, goes on counting links (total_link_count in namei.c).
   Beside changes of mounts anywhere on the machine, ELOOP may come before 40 links: ask until it does not. */
static int open_chain(const char *name)
{
    int fd = open(name, O_RDONLY);
    for (int n = 0; n < 30 && fd < 0; n++) {
        usleep(1000 * n);
        fd = open(name, O_RDONLY);
    }
    return fd;
}

static int stat_chain(const char *name)
{
    struct stat st;
    int done = stat(name, &st);
    for (int n = 0; n < 30 && done < 0; n++) {
        usleep(1000 * n);
        done = stat(name, &st);
    }
    return done;
}

GROUP(open, nofollow_and_loops)
{
    make("f", "x");
    T(symlink("f", "l"));
    T(symlink("l", "ll"));
    T(symlink("loop", "loop"));
    T(symlink("b", "a"));
    T(symlink("a", "b"));
    T(open("l", O_NOFOLLOW));
    T(open("loop", O_RDONLY));
    T(open("a", O_RDONLY));
    T(open("loop/x", O_RDONLY));
    T(open("loop", O_CREAT | O_RDWR, 0600));
    close_if(T(open("ll", O_RDONLY)));
    char name[16], target[16];
    strcpy(target, "f");
    for (int i = 0; i < 45; i++) {
        sprintf(name, "chain%d", i);
        if (symlink(target, name))
            say("symlink failed");
        strcpy(target, name);
    }
    close_if(T(open_chain("chain38")));
    close_if(T(open_chain("chain39")));
    T(open_chain("chain40"));
    T(open_chain("chain44"));
    struct stat st;
    T(stat_chain("chain39"));
    T(stat_chain("chain40"));
    T(lstat("chain44", &st));
    make_dir("d");
    T(symlink(".", "d/dot"));
    close_if(T(open("d/dot/dot/dot/dot/dot/dot/dot/dot/dot/dot", O_RDONLY)));
    T(symlink("..", "d/up"));
    close_if(T(open("d/up/d/up/d/up/d/up/f", O_RDONLY)));
    T(symlink("/", "root"));
    close_if(T(open("root/etc/passwd", O_RDONLY)));
}

GROUP(open, long_names)
{
    char name[600], *path = malloc(9000);
    memset(name, 'n', sizeof name);
    name[255] = 0;
    close_if(TN("open 255", open(name, O_CREAT | O_RDWR, 0600)));
    name[255] = 'n', name[256] = 0;
    TN("open 256", open(name, O_CREAT | O_RDWR, 0600));
    TN("open 256 existing", open(name, O_RDONLY));
    /* A slash after the name of a new file comes before the name's length. */
    static const char *const before[] = { "", "./", "none/", "nnn/../", "/proc/" }, *const after[] = { "/", "//", "/." };
    int flags[] = { O_CREAT, O_CREAT | O_EXCL, O_CREAT | O_RDWR | O_TRUNC, O_CREAT | O_DIRECTORY, O_CREAT | O_PATH, O_RDONLY };
    for (unsigned i = 0; i < COUNT(before); i++)
        for (unsigned n = 0; n < COUNT(after); n++)
            for (unsigned k = 0; k < COUNT(flags); k++) {
                sprintf(path, "%s%s%s", before[i], name, after[n]);
                TN("open 256 and a slash", open(path, flags[k], 0600));
            }
    TN("mkdir 256", mkdir(name, 0700));
    TN("stat 256/x", access("nnn", F_OK));
    strcpy(path, "");
    for (int i = 0; i < 2045; i++)
        strcat(path, "./");
    strcat(path, "f");
    make("f", "x");
    say("length %zu", strlen(path));
    close_if(TN("open 4091", open(path, O_RDONLY)));
    strcpy(path, "");
    for (int i = 0; i < 2047; i++)
        strcat(path, "./");
    strcat(path, "f");
    say("length %zu", strlen(path));
    close_if(TN("open 4095", open(path, O_RDONLY)));
    strcat(path, "g");
    TN("open 4096", open(path, O_RDONLY));
    TN("mkdir 4096", mkdir(path, 0700));
    TN("rename 4096", rename(path, "x"));
    TN("rename to 4096", rename("f", path));
    TN("symlink 4096", symlink(path, "s"));
    path[4095] = 0;
    TN("symlink 4095", symlink(path, "s"));
    TN("open s", open("s", O_RDONLY));
    TN("unlink s", unlink("s"));
    strcpy(path, "d");
    for (int i = 0; i < 30; i++) {
        mkdir(path, 0755);
        strcat(path, "/ddddddddddddddddddddddddddddddddddddddddd");
    }
    TN("deep", access(path, F_OK));
    *strrchr(path, '/') = 0;
    TN("deep", access(path, F_OK));
    for (int i = 0; i < 30; i++) {
        rmdir(path);
        char *slash = strrchr(path, '/');
        if (slash)
            *slash = 0;
    }
    free(path);
}

GROUP(open, path_only)
{
    make("f", "text");
    make_dir("d");
    T(symlink("f", "l"));
    char b[8];
    int p = T(open("f", O_PATH));
    T(read(p, b, 4));
    T(write(p, b, 4));
    T(pread(p, b, 4, 0));
    T(lseek(p, 0, SEEK_SET));
    T(fcntl(p, F_GETFL));
    T(fcntl(p, F_SETFL, O_APPEND));
    T(fchmod(p, 0600));
    T(fchown(p, 0, 0));
    T(ftruncate(p, 0));
    T(fsync(p));
    attributes_fd(p);
    T(faccessat(p, "", R_OK, AT_EMPTY_PATH));
    T(fcntl(p, F_GETFD));
    int q = T(dup(p));
    T(linkat(q, "", AT_FDCWD, "via_empty", AT_EMPTY_PATH));
    char proc[64];
    sprintf(proc, "/proc/self/fd/%d", p);
    int r = TN("open /proc/self/fd/p", open(proc, O_RDWR));
    T(read(r, b, 4));
    close_if(r);
    T(linkat(AT_FDCWD, proc, AT_FDCWD, "via_proc", AT_SYMLINK_FOLLOW));
    close_if(q);
    close_if(p);
    int l = T(open("l", O_PATH | O_NOFOLLOW));
    attributes_fd(l);
    memset(b, 0, sizeof b);
    T(readlinkat(l, "", b, sizeof b));
    say("%s", b);
    close_if(l);
    close_if(T(open("f", O_PATH | O_CREAT | O_TRUNC | O_RDWR, 0600)));
    contents("f");
    T(open("nosuch", O_PATH | O_CREAT, 0600));
    T(open("f", O_PATH | O_DIRECTORY));
    int d = T(open("d", O_PATH | O_DIRECTORY));
    close_if(T(openat(d, "in", O_CREAT | O_RDWR, 0600)));
    T(fchdir(d));
    T(access("in", F_OK));
    char e[100];
    T(syscall(SYS_getdents64, d, e, sizeof e));
    T(fstat(d, &(struct stat){ 0 }));
    T(openat(d, "../f", O_PATH));
    T(mkdirat(d, "sub", 0755));
}

GROUP(open, tmpfile)
{
    make_dir("d");
    int fd = T(open("d", O_TMPFILE | O_RDWR, 0600));
    T(write(fd, "anon", 4));
    attributes_fd(fd);
    char proc[64];
    sprintf(proc, "/proc/self/fd/%d", fd);
    T(linkat(AT_FDCWD, proc, AT_FDCWD, "d/named", AT_SYMLINK_FOLLOW));
    attributes_fd(fd);
    contents("d/named");
    T(linkat(AT_FDCWD, proc, AT_FDCWD, "d/named", AT_SYMLINK_FOLLOW));
    close_if(fd);
    fd = T(open("d", O_TMPFILE | O_RDWR | O_EXCL, 0600));
    sprintf(proc, "/proc/self/fd/%d", fd);
    T(linkat(AT_FDCWD, proc, AT_FDCWD, "d/excl", AT_SYMLINK_FOLLOW));
    T(linkat(fd, "", AT_FDCWD, "d/empty", AT_EMPTY_PATH));
    close_if(fd);
    T(open("d", O_TMPFILE | O_RDONLY, 0600));
    T(open("d/named", O_TMPFILE | O_RDWR, 0600));
    T(open("nosuch", O_TMPFILE | O_RDWR, 0600));
    fd = T(open(".", O_TMPFILE | O_WRONLY, 0644));
    T(linkat(fd, "", AT_FDCWD, "empty_path", AT_EMPTY_PATH));
    T(linkat(AT_FDCWD, "", AT_FDCWD, "of_directory", AT_EMPTY_PATH));
    T(write(fd, "later", 5));
    close_if(fd);
    close_if(T(open("d/", O_TMPFILE | O_RDWR, 0)));
}

GROUP(open, append)
{
    int fd = make_open("f", "base", O_WRONLY | O_APPEND);
    T(lseek(fd, 0, SEEK_CUR));
    T(write(fd, "1", 1));
    T(lseek(fd, 0, SEEK_CUR));
    T(lseek(fd, 0, SEEK_SET));
    T(write(fd, "2", 1));
    T(pwrite(fd, "3", 1, 0));
    T(lseek(fd, 0, SEEK_CUR));
    contents("f");
    T(fcntl(fd, F_SETFL, 0));
    T(pwrite(fd, "B", 1, 0));
    T(write(fd, "end", 3));
    contents("f");
    T(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
    T(fcntl(fd, F_GETFL));
    T(ftruncate(fd, 2));
    T(write(fd, "z", 1));
    contents("f");
    int a = T(open("f", O_WRONLY | O_APPEND)), b = T(open("f", O_WRONLY | O_APPEND));
    for (int i = 0; i < 3; i++)
        if (write(a, "a", 1) != 1 || write(b, "b", 1) != 1)
            say("short");
    contents("f");
}

GROUP(open, other_flags)
{
    make("f", "text");
    int flags[] = { O_SYNC, O_DSYNC, O_DIRECT, O_NOATIME, O_NONBLOCK, O_NOCTTY, O_CLOEXEC, O_LARGEFILE, O_ASYNC,
                    O_APPEND, O_EXCL, 0x40000000, O_RDWR | O_SYNC | O_APPEND | O_CLOEXEC };
    for (unsigned i = 0; i < COUNT(flags); i++) {
        say("flags %o", flags[i]);
        int fd = T(open("f", flags[i]));
        T(fcntl(fd, F_GETFL));
        T(fcntl(fd, F_GETFD));
        close_if(fd);
    }
    CHILD {
        become_nobody();
        T(open("f", O_NOATIME));
    }
    int fd = T(open("f", O_RDWR | O_DIRECT));
    char b[600] = "";
    T(read(fd, b + 1, 3));
    T(pwrite(fd, b + 3, 5, 1));
    close_if(fd);
}

GROUP(open, at)
{
    make_dir("d");
    make("d/f", "inner");
    make("f", "outer");
    int d = T(open("d", O_RDONLY)), f = T(open("f", O_RDONLY));
    close_if(T(openat(d, "f", O_RDONLY)));
    close_if(T(openat(d, "../f", O_RDONLY)));
    T(openat(f, "x", O_RDONLY));
    T(openat(99, "f", O_RDONLY));
    T(openat(-1, "f", O_RDONLY));
    close_if(T(openat(99, "/etc/passwd", O_RDONLY)));
    T(openat(d, "", O_RDONLY));
    close_if(T(openat(AT_FDCWD, "d/f", O_RDONLY)));
    close_if(T(openat(d, "new", O_CREAT | O_EXCL | O_WRONLY, 0600)));
    T(mkdirat(d, "sub", 0700));
    T(mkdirat(f, "sub", 0700));
    T(unlinkat(d, "sub", 0));
    T(unlinkat(d, "new", AT_REMOVEDIR));
    T(unlinkat(d, "sub", AT_REMOVEDIR));
    T(unlinkat(d, "new", 0));
    T(unlinkat(d, "f", 0x8000));
    T(renameat(d, "f", AT_FDCWD, "g"));
    T(renameat(AT_FDCWD, "g", d, "h"));
    T(symlinkat("h", d, "s"));
    T(linkat(d, "h", d, "i", 0));
    T(linkat(d, "s", d, "is", 0));
    T(linkat(d, "s", d, "if", AT_SYMLINK_FOLLOW));
    T(linkat(d, "s", d, "ix", 0x8000));
    T(faccessat(d, "h", R_OK, 0));
    T(fstatat(d, "s", &(struct stat){ 0 }, AT_SYMLINK_NOFOLLOW));
    T(fstatat(d, "", &(struct stat){ 0 }, AT_EMPTY_PATH));
    T(fstatat(d, "", &(struct stat){ 0 }, 0));
    T(fstatat(d, "h", &(struct stat){ 0 }, 0x40000000));
    T(fchmodat(d, "h", 0600, 0));
    T(fchownat(d, "h", -1, -1, 0));
    T(utimensat(d, "h", NULL, 0));
    T(rmdir("d"));
    T(unlinkat(d, "h", 0));
    char path[300];
    T(renameat(d, "i", AT_FDCWD, "out"));
    T(unlinkat(d, "is", 0) | unlinkat(d, "if", 0) | unlinkat(d, "s", 0));
    T(rmdir("d"));
    T(openat(d, "x", O_CREAT | O_RDWR, 0600));
    T(openat(d, ".", O_RDONLY) > 0);
    T(openat(d, "..", O_RDONLY) > 0);
    T(mkdirat(d, "x", 0700));
    attributes_fd(d);
    (void)path;
}

static long openat2_call(int dir, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
    return open_how(dir, path, (struct open_how){ .flags = flags, .mode = mode, .resolve = resolve });
}

GROUP(open, openat2)
{
    make_dir("d");
    make("f", "x");
    make("d/f", "y");
    T(symlink("../f", "d/up"));
    T(symlink("f", "d/l"));
    T(symlink("/etc/passwd", "d/abs"));
    int d = T(open("d", O_RDONLY));
    close_if(T(openat2_call(d, "f", O_RDONLY, 0, 0)));
    T(openat2_call(d, "f", O_RDONLY, 0600, 0));
    T(openat2_call(d, "f", 0x8000000000ULL, 0, 0));
    T(openat2_call(d, "f", O_RDONLY, 0, 0x8000));
    T(openat2_call(d, "new", O_CREAT, 0200000, 0));
    close_if(T(openat2_call(d, "f", O_RDONLY, 0, RESOLVE_NO_MAGICLINKS)));
    struct open_how how = { 0 };
    T(syscall(SYS_openat2, d, "f", &how, 0));
    T(syscall(SYS_openat2, d, "f", &how, 8));
    T(syscall(SYS_openat2, d, "f", NULL, sizeof how));
}

GROUP(open, permissions)
{
    make("none", "x");
    make("read", "x");
    make("write", "x");
    make("both", "x");
    T(chmod("both", 0666));
    make_dir("closed");
    make("closed/f", "x");
    make_dir("search");
    make("search/f", "x");
    make_dir("list");
    make("list/f", "x");
    make_dir("full");
    make_dir("sticky");
    make("sticky/theirs", "x");
    T(chmod("none", 0) | chmod("read", 0444) | chmod("write", 0222) | chmod("closed", 0) | chmod("search", 0711));
    T(chmod("list", 0744) | chmod("full", 0777) | chmod("sticky", 01777));
    CHILD {
        become_nobody();
        T(open("none", O_RDONLY));
        T(open("none", O_WRONLY));
        T(open("none", O_PATH) > 0);
        T(open("read", O_RDONLY) > 0);
        T(open("read", O_RDWR));
        T(open("write", O_WRONLY) > 0);
        T(open("write", O_RDONLY));
        T(open("closed/f", O_RDONLY));
        T(open("closed/nosuch", O_RDONLY));
        T(open("closed", O_RDONLY));
        T(open("closed", O_PATH) > 0);
        T(open("search/f", O_RDONLY) > 0);
        T(open("search", O_RDONLY));
        T(open("search/new", O_CREAT | O_RDWR, 0600));
        T(open("list", O_RDONLY) > 0);
        T(open("list/f", O_RDONLY));
        T(open("list/nosuch", O_RDONLY));
        T(open("new", O_CREAT | O_RDWR, 0600));
        T(open("read", O_CREAT | O_RDONLY, 0600) > 0);
        T(unlink("read"));
        T(rename("read", "other"));
        T(mkdir("d", 0700));
        T(symlink("x", "s"));
        /* Our own file: with fs.protected_hardlinks another user's would be refused first. */
        T(link("both", "hard"));
        T(open("full/mine", O_CREAT | O_RDWR, 0600) > 0);
        T(link("full/mine", "full/hard"));
        T(rename("full/mine", "full/moved"));
        T(rename("full/moved", "moved"));
        T(rename("read", "full/taken"));
        T(unlink("sticky/theirs"));
        T(rename("sticky/theirs", "sticky/x"));
        T(rename("sticky/theirs", "full/x"));
        make("sticky/mine", "y");
        T(rename("sticky/mine", "sticky/theirs"));
        T(unlink("sticky/mine"));
        T(rmdir("full"));
        T(chmod("read", 0600));
        T(chown("full/moved", 0, 0));
        T(chown("full/moved", 65534, 65534));
        T(chmod("full/moved", 02755));
        attributes("full/moved");
        T(truncate("read", 0));
        T(truncate("full/moved", 10));
        T(utimensat(AT_FDCWD, "read", NULL, 0));
        T(utimensat(AT_FDCWD, "write", NULL, 0));
        struct timespec ts[2] = { { 1, 0 }, { 2, 0 } };
        T(utimensat(AT_FDCWD, "write", ts, 0));
        T(access("read", R_OK));
        T(access("read", W_OK));
        T(access("read", X_OK));
        T(access("none", F_OK));
        T(access("closed/f", F_OK));
        T(chdir("closed"));
        T(chdir("list"));
        T(chdir("search"));
        T(readlink("read", (char[4]){ 0 }, 4));
        T(open("../full/again", O_CREAT | O_RDWR, 0600) > 0);
        T(mknod("../full/dev", S_IFCHR | 0600, 0x103));
        T(mknod("../full/fifo", S_IFIFO | 0600, 0));
    }
}

GROUP(open, limits)
{
    make("f", "x");
    int first = T(open("f", O_RDONLY));
    int opened = 0;
    CHILD {
        unsigned long limit[2] = { 20, 20 };
        T(syscall(SYS_setrlimit, 7, limit));
        while (open("f", O_RDONLY) >= 0)
            opened++;
        say("opened %d: %s", opened, strerrorname_np(errno));
        T(dup(first));
        T(fcntl(first, F_DUPFD, 0));
        T(dup2(first, 19));
        T(dup2(first, 20));
        T(fcntl(first, F_DUPFD, 20));
        T(open("new", O_CREAT | O_RDWR, 0600));
        T(access("new", F_OK));
        T(close(10));
        T(open("f", O_RDONLY));
    }
    T(open("f", O_RDONLY));
}

GROUP(open, lowest_descriptor)
{
    make("f", "x");
    for (int i = 0; i < 6; i++)
        T(open("f", O_RDONLY));
    T(close(4));
    T(close(6));
    T(open("f", O_RDONLY));
    T(open("/dev/null", O_RDONLY));
    T(close(3));
    T(open("/dev/null", O_RDONLY));
    T(close(5));
    T(dup(8));
    T(close(0));
    T(open("f", O_RDONLY));
    T(close(0));
    T(close(0));
    T(close(-1));
    T(close(1000));
    int p[2];
    T(pipe(p));
    say("%d %d", p[0], p[1]);
    for (int round = 0; round < 2000; round++) {
        int fd = open("f", O_RDONLY);
        if (fd != 9 || close(fd)) {
            say("round %d: %d", round, fd);
            break;
        }
    }
}

/* openat2(2) does not add O_LARGEFILE, as the other calls do. */
GROUP(open, large_files)
{
    enum { LARGE = 0100000 };
    make("f", "text"), make_dir("d");
    const struct {
        const char *path;
        unsigned flags;
    } all[] = { { "f", O_RDWR }, { "f", O_RDWR | LARGE }, { "f", O_PATH }, { "f", O_PATH | LARGE }, { "d", O_DIRECTORY }, { "d", O_DIRECTORY | LARGE } };
    for (unsigned i = 0; i < COUNT(all); i++) {
        int plain = T(syscall(SYS_open, all[i].path, all[i].flags)), second = T(openat2_call(AT_FDCWD, all[i].path, all[i].flags, 0, 0));
        say("%o %o", fcntl(plain, F_GETFL), fcntl(second, F_GETFL));
        close(plain);
        if (second >= 0)
            close(second);
    }
    int created = creat("g", 0600);
    say("%o", fcntl(created, F_GETFL));
}
