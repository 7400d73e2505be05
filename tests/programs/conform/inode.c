/* chmod, chown, truncate, fallocate: calls that change an inode. */
#include "conform.h"
#include <linux/falloc.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

GROUP(inode, chmod)
{
    make("f", "x");
    make_dir("d");
    T(symlink("f", "l"));
    T(symlink("nosuch", "m"));
    int modes[] = { 0, 0777, 07777, 04711, 02755, 01777, 0100644, 037777777777 };
    for (unsigned i = 0; i < COUNT(modes); i++) {
        T(chmod("f", modes[i]));
        attributes("f");
        T(chmod("d", modes[i]));
        attributes("d");
    }
    int fd = T(open("f", O_RDONLY));
    T(fchmod(fd, 0640));
    attributes("f");
    T(chmod("l", 0600));
    T(chmod("m", 0600));
    T(chmod("nosuch", 0600));
    T(chmod("", 0600));
    T(chmod("f/", 0600));
    T(chmod("d/", 0755));
    T(fchmod(99, 0600));
    T(fchmodat(AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW));
    T(syscall(452, AT_FDCWD, "l", 0600, AT_SYMLINK_NOFOLLOW));
    T(syscall(452, AT_FDCWD, "f", 0611, AT_SYMLINK_NOFOLLOW));
    T(syscall(452, fd, "", 0622, AT_EMPTY_PATH));
    T(syscall(452, AT_FDCWD, "f", 0611, 0x40000000));
    attributes("f");
    CHILD {
        become_nobody();
        T(chmod("f", 0600));
        T(fchmod(fd, 0600));
        T(chmod("d", 0700));
    }
}

GROUP(inode, chown)
{
    if (geteuid())
        return;
    make("f", "x");
    make_dir("d");
    T(symlink("f", "l"));
    T(chown("f", 1, 2));
    T(chown("f", -1, 5));
    T(chown("f", 6, -1));
    attributes("f");
    T(lchown("l", 7, 8));
    attributes("l");
    T(chown("l", 9, 10));
    attributes("f");
    T(chmod("f", 06755));
    T(chown("f", 11, 12));
    attributes("f");
    T(chmod("f", 02644));
    T(chown("f", 11, 13));
    attributes("f");
    T(chmod("d", 06755));
    T(chown("d", 1, 1));
    attributes("d");
    T(chmod("f", 06755));
    T(chown("f", -1, -1));
    attributes("f");
    int fd = T(open("f", O_RDWR));
    T(fchown(fd, 20, 21));
    T(fchownat(fd, "", 22, 23, AT_EMPTY_PATH));
    T(fchownat(AT_FDCWD, "l", 24, 25, AT_SYMLINK_NOFOLLOW));
    T(fchownat(AT_FDCWD, "f", 24, 25, 0x40000000));
    attributes("f");
    attributes("l");
    T(chmod("f", 06777));
    CHILD {
        become_nobody();
        T(write(fd, "x", 1));
        attributes("f");
    }
    T(chmod("f", 06777));
    CHILD {
        become_nobody();
        T(truncate("f", 0));
        attributes("f");
        T(chown("f", 65534, 65534));
        T(chown("f", -1, 65534));
    }
    T(chmod("f", 06777));
    T(write(fd, "root", 4));
    attributes("f");
    T(chown("nosuch", 1, 1));
    T(fchown(99, 1, 1));
    T(chown("f", 0xfffffffe, 0x7fffffff));
    attributes("f");
}

GROUP(inode, setgid_directory)
{
    if (geteuid())
        return;
    make_dir("d");
    T(chown("d", 0, 77));
    T(chmod("d", 02777));
    make("d/f", "x");
    make_dir("d/sub");
    T(symlink("x", "d/l"));
    T(mkfifo("d/p", 0644));
    attributes("d/f");
    attributes("d/sub");
    attributes("d/l");
    attributes("d/p");
    T(open("d/x", O_CREAT | O_RDWR, 02775) > 0);
    attributes("d/x");
    CHILD {
        become_nobody();
        umask(0);
        T(open("d/n", O_CREAT | O_RDWR, 02775) > 0);
        attributes("d/n");
        T(open("d/m", O_CREAT | O_RDWR, 02765) > 0);
        attributes("d/m");
        T(mkdir("d/nd", 0777));
        attributes("d/nd");
    }
}

GROUP(inode, truncate)
{
    int fd = make_open("f", "hello world", O_RDWR), ro = T(open("f", O_RDONLY)), wo = T(open("f", O_WRONLY));
    make_dir("d");
    T(truncate("f", 5));
    contents("f");
    T(ftruncate(fd, 8));
    contents("f");
    T(ftruncate(wo, 6));
    T(ftruncate(ro, 6));
    T(ftruncate(fd, -1));
    T(truncate("f", -1));
    T(truncate("d", 0));
    T(truncate("nosuch", 0));
    T(truncate("", 0));
    T(truncate("f/", 0));
    T(ftruncate(99, 0));
    T(ftruncate(fd, 0x7fffffffffffffffL));
    attributes("f");
    T(ftruncate(fd, 10000));
    T(lseek(fd, 9000, SEEK_SET));
    T(write(fd, "data", 4));
    T(ftruncate(fd, 9002));
    T(ftruncate(fd, 9010));
    char b[16];
    T(pread(fd, b, 16, 8998));
    say_bytes("after shrink and grow", b, 12);
    T(ftruncate(fd, 4096));
    T(ftruncate(fd, 4097));
    T(ftruncate(fd, 100));
    attributes("f");
    T(symlink("f", "l"));
    T(truncate("l", 3));
    contents("f");
    T(mkfifo("p", 0600));
    T(truncate("p", 0));
    struct rlimit limit = { 1000, 1000 };
    CHILD {
        signal(SIGXFSZ, SIG_IGN);
        T(setrlimit(RLIMIT_FSIZE, &limit));
        T(ftruncate(fd, 1001));
        T(ftruncate(fd, 1000));
        T(pwrite(fd, "0123456789", 10, 995));
        T(pwrite(fd, "x", 1, 1000));
        T(fallocate(fd, 0, 0, 2000));
        T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 2000));
        T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1000));
    }
    CHILD {
        T(setrlimit(RLIMIT_FSIZE, &limit));
        T(pwrite(fd, "x", 1, 1000));
    }
    CHILD {
        T(setrlimit(RLIMIT_FSIZE, &limit));
        T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 2000));
    }
    CHILD {
        T(setrlimit(RLIMIT_FSIZE, &limit));
        T(ftruncate(fd, 2000));
    }
    attributes("f");
}

GROUP(inode, fallocate)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644)), ro;
    T(fallocate(fd, 0, 0, 10000));
    attributes("f");
    T(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 50000));
    attributes("f");
    char data[20000];
    memset(data, 'x', sizeof data);
    T(pwrite(fd, data, sizeof data, 0));
    T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 8000));
    attributes("f");
    contents("f");
    T(lseek(fd, 0, SEEK_HOLE));
    T(lseek(fd, 8192, SEEK_DATA));
    T(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 100));
    T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100000, 100));
    T(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
    T(fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, 4096));
    T(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 100));
    T(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, 100));
    T(fallocate(fd, FALLOC_FL_UNSHARE_RANGE, 0, 100));
    T(fallocate(fd, 0x8000, 0, 100));
    T(fallocate(fd, 0, 0, 0));
    T(fallocate(fd, 0, -1, 10));
    T(fallocate(fd, 0, 10, -1));
    T(fallocate(fd, 0, 0x7fffffffffffffffL, 10));
    T(fallocate(99, 0, 0, 10));
    ro = T(open("f", O_RDONLY));
    T(fallocate(ro, 0, 0, 10));
    int d = T(open(".", O_RDONLY));
    T(fallocate(d, 0, 0, 10));
    int p[2];
    T(pipe(p));
    T(fallocate(p[1], 0, 0, 10));
    T(posix_fallocate(fd, 0, 30000));
    T(posix_fallocate(fd, -1, 3));
    attributes("f");
    T(fallocate(fd, 0, 0, 60L << 30));
    attributes("f");
}

GROUP(inode, file_flags_on_exec)
{
    make("f", "x");
    int w = T(open("f", O_RDWR));
    T(chmod("f", 04755));
    T(write(w, "y", 1));
    attributes("f");
    T(chmod("f", 0755));
    char *argv[] = { "./f", NULL }, *envp[] = { NULL };
    T(close(w));
    CHILD {
        T(execve("./f", argv, envp));
    }
    T(chmod("f", 0644));
    T(execve("./f", argv, envp));
    T(execve("./nosuch", argv, envp));
    T(execve(".", argv, envp));
    T(execve("./f/x", argv, envp));
    make("empty", "");
    T(chmod("empty", 0755));
    T(execve("./empty", argv, envp));
    make("script", "#!/nosuch/interpreter\n");
    T(chmod("script", 0755));
    T(execve("./script", argv, envp));
    make("script2", "#!\n");
    T(chmod("script2", 0755));
    T(execve("./script2", argv, envp));
    make("loop", "#!./loop\n");
    T(chmod("loop", 0755));
    T(execve("./loop", argv, envp));
    T(symlink("cycle", "cycle"));
    T(execve("./cycle", argv, envp));
    T(execve("", argv, envp));
    int fd = T(open("f", O_RDONLY | O_CLOEXEC));
    T(syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH));
    T(syscall(SYS_execveat, 99, "f", argv, envp, 0));
    T(syscall(SYS_execveat, AT_FDCWD, "cycle", argv, envp, AT_SYMLINK_NOFOLLOW));
}

/* Where data and holes begin from each of some places on. */
static void data_and_holes(int fd)
{
    static const long at[] = { 0, 100, 4096, 8192, 12288, 20480, 40000, 65535 };
    for (unsigned i = 0; i < COUNT(at); i++) {
        T(lseek(fd, at[i], SEEK_DATA));
        T(lseek(fd, at[i], SEEK_HOLE));
    }
}

GROUP(inode, space_never_written)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    T(fallocate(fd, 0, 0, 65536));
    data_and_holes(fd);
    T(pwrite(fd, "data", 4, 10000));
    data_and_holes(fd);
    T(pwrite(fd, "x", 1, 4096));
    T(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096));
    data_and_holes(fd);
    T(fallocate(fd, 0, 0, 65536));
    data_and_holes(fd);
    attributes_fd(fd);
    int written = make_open("g", "text", O_RDWR);
    T(pwrite(written, "\0\0", 2, 5000));
    T(fallocate(written, FALLOC_FL_KEEP_SIZE, 0, 65536));
    T(ftruncate(written, 65536));
    data_and_holes(written);
}

/* Zeros, too, make data of space. */
GROUP(inode, space_written_with_zeros)
{
    static char zeros[20000];
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    T(fallocate(fd, 0, 0, 1 << 20));
    T(pwrite(fd, zeros, 1, 4096));
    data_and_holes(fd);
    T(pwrite(fd, zeros, 1, 8192));
    T(pwrite(fd, zeros, sizeof zeros, 30000));
    data_and_holes(fd);
    struct iovec two[2] = { { zeros, 10 }, { zeros, 10 } };
    T(pwritev(fd, two, 2, 102400));
    T(lseek(fd, 122880, SEEK_SET));
    T(write(fd, zeros, 4096));
    data_and_holes(fd);
    int from = make_open("g", "", O_RDWR);
    T(ftruncate(from, 8192));
    off_t at = 200000;
    T(copy_file_range(from, NULL, fd, &at, 8192, 0));
    T(lseek(fd, 300000, SEEK_SET));
    at = 0;
    T(sendfile(fd, from, &at, 5000));
    data_and_holes(fd);
    T(fallocate(from, FALLOC_FL_KEEP_SIZE, 0, 1 << 16));
    T(pwrite(from, zeros, 1, 20000));
    data_and_holes(from);
    attributes_fd(from);
}

GROUP(inode, space_by_ioctl)
{
    struct space { short type, whence; long start, length; int rest[6]; } space = { 0, SEEK_SET, 8192, 4096 };
    enum { RESVSP = 40, UNRESVSP, RESVSP64, UNRESVSP64, ZERO_RANGE = 57 };
    int fd = make_open("f", "text", O_RDWR), ro = T(open("f", O_RDONLY)), dir = T(open(".", O_RDONLY)), path = T(open("f", O_PATH));
    T(ioctl(fd, _IOW('X', RESVSP, struct space), &space));
    attributes_fd(fd);
    space.whence = SEEK_END;
    T(ioctl(fd, _IOW('X', RESVSP64, struct space), &space));
    attributes_fd(fd);
    space.whence = SEEK_CUR, space.start = 0;
    T(lseek(fd, 100, SEEK_SET));
    T(ioctl(fd, _IOW('X', UNRESVSP, struct space), &space));
    contents("f");
    attributes_fd(fd);
    T(ioctl(fd, _IOW('X', UNRESVSP64, struct space), &space));
    T(ioctl(fd, _IOW('X', ZERO_RANGE, struct space), &space));
    space.whence = 3;
    T(ioctl(fd, _IOW('X', RESVSP, struct space), &space));
    space.whence = SEEK_SET, space.start = -1;
    T(ioctl(fd, _IOW('X', RESVSP, struct space), &space));
    space.start = 0, space.length = 0;
    T(ioctl(fd, _IOW('X', RESVSP, struct space), &space));
    space.length = 10;
    T(ioctl(ro, _IOW('X', RESVSP, struct space), &space));
    T(ioctl(dir, _IOW('X', RESVSP, struct space), &space));
    T(ioctl(path, _IOW('X', RESVSP, struct space), &space));
    T(ioctl(fd, _IOW('X', RESVSP, struct space), NULL));
    T(ioctl(99, _IOW('X', RESVSP, struct space), &space));
}

static int compare(const void *a, const void *b)
{
    ino_t one = *(const ino_t *)a, other = *(const ino_t *)b;
    return (one > other) - (one < other);
}

/* A new file has a number that no file had before, everywhere. */
GROUP(inode, numbers)
{
    static ino_t seen[1000];
    struct stat st, other;
    int count = 0, differ = 0;
    for (int i = 0; i < 200; i++) {
        int fd = open("f", O_CREAT | O_RDWR, 0644);
        fstat(fd, &st);
        seen[count++] = st.st_ino;
        stat("f", &other);
        differ += other.st_ino != st.st_ino;
        struct statx sx;
        statx(AT_FDCWD, "f", 0, STATX_INO, &sx);
        differ += sx.stx_ino != st.st_ino;
        unlink("f");
        if (i % 2)
            close(fd);
        mkdir("d", 0755), stat("d", &st), seen[count++] = st.st_ino;
        int dir = open("d", O_RDONLY | O_DIRECTORY);
        DIR *listed = fdopendir(dir);
        for (struct dirent *entry; (entry = readdir(listed));)
            differ += !strcmp(entry->d_name, ".") && entry->d_ino != st.st_ino;
        closedir(listed);
        rmdir("d");
        symlink("x", "l"), lstat("l", &st), seen[count++] = st.st_ino;
        listed = opendir(".");
        for (struct dirent *entry; (entry = readdir(listed));)
            differ += !strcmp(entry->d_name, "l") && entry->d_ino != st.st_ino;
        closedir(listed);
        rename("l", "m"), lstat("m", &other), differ += other.st_ino != st.st_ino;
        unlink("m");
        mkfifo("p", 0600), lstat("p", &st), seen[count++] = st.st_ino;
        unlink("p");
        int nameless = open(".", O_TMPFILE | O_RDWR, 0600);
        fstat(nameless, &st), seen[count++] = st.st_ino;
        close(nameless);
    }
    qsort(seen, count, sizeof *seen, compare);
    int twice = 0;
    for (int i = 1; i < count; i++)
        twice += seen[i] == seen[i - 1];
    say("%d, %d twice, %d differ", count, twice, differ);
}
