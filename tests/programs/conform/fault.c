/* Bad pointers in every pointer argument: EFAULT, never a signal; what was done before the fault remains. */
#include "conform.h"
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#define BAD ((void *)8)

/* The last bytes of a page that is followed by an unmapped one. */
static char *page_edge(void)
{
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p + 4096, 4096);
    return p + 4096;
}

GROUP(fault, names)
{
    char *bad[] = { BAD, NULL, (char *)-1, (char *)0x7fffffffffffL, (char *)0xffff800000000000L };
    for (unsigned i = 0; i < COUNT(bad); i++) {
        char *n = bad[i];
        say("pointer %u", i);
        T(open(n, O_RDONLY));
        T(open(n, O_CREAT | O_RDWR, 0600));
        T(syscall(SYS_stat, n, (struct stat[1]){}));
        T(syscall(SYS_lstat, n, (struct stat[1]){}));
        T(syscall(SYS_access, n, 0));
        T(mkdir(n, 0700));
        T(rmdir(n));
        T(unlink(n));
        T(unlinkat(AT_FDCWD, n, 0));
        T(rename(n, "x"));
        T(rename("x", n));
        T(link(n, "x"));
        T(symlink(n, "x"));
        T(symlink("x", n));
        T(readlink(n, (char[4]){ 0 }, 4));
        T(chdir(n));
        T(chmod(n, 0));
        T(chown(n, -1, -1));
        T(lchown(n, -1, -1));
        T(truncate(n, 0));
        T(statfs(n, (struct statfs[1]){}));
        T(mknod(n, 0600 | S_IFREG, 0));
        T(syscall(SYS_creat, n, 0600));
        T(syscall(SYS_execve, n, NULL, NULL));
        T(syscall(SYS_utime, n, NULL));
        T(getxattr(n, "user.a", NULL, 0));
        T(setxattr(n, "user.a", "", 0, 0));
        T(listxattr(n, NULL, 0));
        T(removexattr(n, "user.a"));
    }
    char *edge = page_edge();
    memcpy(edge - 2, "ab", 2);
    T(open(edge - 2, O_RDONLY));
    T(mkdir(edge - 2, 0700));
    memcpy(edge - 2, "a", 2);
    T(mkdir(edge - 2, 0700));
    T(rmdir(edge - 2));
}

GROUP(fault, results)
{
    int fd = make_open("f", "0123456789", O_RDWR);
    T(symlink("f", "l"));
    T(syscall(SYS_stat, "f", BAD));
    T(syscall(SYS_lstat, "f", BAD));
    T(syscall(SYS_fstat, fd, BAD));
    T(syscall(SYS_fstat, fd, NULL));
    T(syscall(SYS_newfstatat, AT_FDCWD, "f", BAD, 0));
    T(syscall(SYS_statx, AT_FDCWD, "f", 0, 0xfff, BAD));
    T(syscall(SYS_statfs, "f", BAD));
    T(syscall(SYS_fstatfs, fd, BAD));
    T(readlink("l", BAD, 100));
    T(readlink("nosuch", BAD, 100));
    T(syscall(SYS_getcwd, BAD, 4096));
    int d = T(open(".", O_RDONLY));
    T(syscall(SYS_getdents64, d, BAD, 1000));
    char b[1000];
    T(syscall(SYS_getdents64, d, b, 1000) > 0);
    T(fcntl(fd, F_GETLK, BAD));
    T(fcntl(fd, F_SETLK, BAD));
    T(fcntl(fd, F_OFD_SETLK, NULL));
    T(syscall(SYS_utimensat, AT_FDCWD, "f", BAD, 0));
    T(syscall(SYS_utimes, "f", BAD));
    T(syscall(SYS_utime, "f", BAD));
    T(ioctl(fd, 0x541b, BAD));
    T(ioctl(fd, 0x5421, BAD));
    T(setxattr("f", "user.a", BAD, 4, 0));
    T(setxattr("f", BAD, "x", 1, 0));
    T(setxattr("f", "user.a", "value", 5, 0));
    T(getxattr("f", "user.a", BAD, 10));
    T(listxattr("f", BAD, 10));
    T(syscall(SYS_openat2, AT_FDCWD, "f", BAD, 24));
    T(sendfile(fd, fd, BAD, 1));
    T(copy_file_range(fd, BAD, fd, NULL, 1, 0));
    T(syscall(SYS_poll, BAD, 1, 0));
    T(syscall(SYS_select, 10, BAD, NULL, NULL, NULL));
    T(syscall(SYS_stat, "f", page_edge() - 100));
    T(syscall(SYS_fstat, fd, page_edge() - 143));
    T(syscall(SYS_fstat, fd, page_edge() - 144));
}

GROUP(fault, data)
{
    int fd = make_open("f", "0123456789abcdefghij", O_RDWR);
    char *edge = page_edge();
    T(read(fd, BAD, 5));
    T(lseek(fd, 0, SEEK_CUR));
    T(read(fd, NULL, 5));
    T(read(fd, BAD, 0));
    T(write(fd, BAD, 5));
    T(write(fd, BAD, 0));
    T(pread(fd, BAD, 5, 0));
    T(pread(fd, BAD, 5, 100));
    T(pwrite(fd, BAD, 5, 0));
    T(pwrite(fd, BAD, 5, 10));
    attributes_fd(fd);
    T(lseek(fd, 0, SEEK_CUR));
    T(read(fd, edge - 4, 10) >= -1);
    T(lseek(fd, 0, SEEK_SET));
    memcpy(edge - 4, "WXYZ", 4);
    T(write(fd, edge - 4, 4));
    T(pwrite(fd, edge, 4, 3));
    contents("f");
    struct iovec v[3] = { { edge - 4, 4 }, { BAD, 4 }, { edge - 4, 4 } };
    T(lseek(fd, 0, SEEK_SET));
    T(writev(fd, v + 1, 1));
    T(readv(fd, v + 1, 1));
    T(readv(fd, v, 1));
    T(writev(fd, BAD, 2));
    T(readv(fd, BAD, 2));
    T(preadv(fd, BAD, 1, 0));
    T(pwritev(fd, NULL, 1, 0));
    struct iovec empty[2] = { { BAD, 0 }, { edge - 4, 2 } };
    T(pwritev(fd, empty, 2, 1));
    char *readonly = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T(pread(fd, readonly, 5, 0));
    T(pwrite(fd, readonly, 5, 0));
    char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T(pread(fd, none, 5, 0));
    T(pwrite(fd, none, 5, 0));
    T(pread(fd, (void *)0xffff800000000000L, 5, 0));
    T(pread(fd, (void *)-4096L, 5, 0));
    T(pwrite(fd, (void *)-1L, 5, 0));
    T(pread(fd, (char *)0x7fffffffe000L + 0x2000, 5, 0));
    contents("f");
}

GROUP(fault, page)
{
    /* A whole page, which is copied differently from a few bytes. */
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 'p', 4096);
    T(write(fd, p, 4096));
    T(pread(fd, BAD, 4096, 0));
    T(pwrite(fd, BAD, 4096, 0));
    T(pread(fd, BAD, 128, 5));
    T(pwrite(fd, BAD, 1000, 5));
    T(lseek(fd, 0, SEEK_SET));
    T(read(fd, BAD, 4096));
    T(write(fd, BAD, 300));
    T(lseek(fd, 0, SEEK_CUR));
    mprotect(p, 4096, PROT_READ);
    T(pread(fd, p, 4096, 0));
    T(pwrite(fd, p, 4096, 0));
    mprotect(p, 4096, PROT_NONE);
    T(pwrite(fd, p, 4096, 0));
    attributes_fd(fd);
    contents("f");
}

GROUP(fault, partial)
{
    /* Within a page the kernel decides how much is transferred before a fault, so only whole pages are
     * compared. */
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    char *p = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 'd', 2 * 4096);
    munmap(p + 2 * 4096, 2 * 4096);
    T(pwrite(fd, p, 4 * 4096, 0));
    T(lseek(fd, 0, SEEK_END));
    T(ftruncate(fd, 5 * 4096));
    T(pread(fd, p, 4 * 4096, 0));
    T(pread(fd, p + 4096, 2 * 4096, 4096));
    T(pwrite(fd, p + 4096, 2 * 4096, 3 * 4096));
    T(lseek(fd, 0, SEEK_SET));
    T(write(fd, p, 3 * 4096));
    T(lseek(fd, 0, SEEK_CUR));
    T(read(fd, p, 3 * 4096));
    T(lseek(fd, 0, SEEK_CUR));
    struct iovec v[2] = { { p, 4096 }, { p + 2 * 4096, 4096 } };
    T(pwritev(fd, v, 2, 0));
    T(preadv(fd, v, 2, 0));
}

GROUP(fault, handler_of_the_program)
{
    /* A program's own SIGSEGV handler must not see the faults of calls, and must see its own. */
    struct sigaction a = { .sa_handler = SIG_DFL };
    sigaction(SIGSEGV, &a, NULL);
    int fd = make_open("f", "x", O_RDWR);
    T(read(fd, BAD, 1));
    signal(SIGSEGV, SIG_IGN);
    T(read(fd, BAD, 1));
    T(write(fd, BAD, 1));
    CHILD {
        signal(SIGSEGV, SIG_DFL);
        T(read(fd, BAD, 1));
        *(volatile int *)BAD = 1;
    }
}
