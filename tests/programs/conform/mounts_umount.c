/* umount2(2): beside changes of names, by MNT_EXPIRE, and of what covers the start of a walk. */
#include "mounts.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Makes and removes a name, a link and a file under another name, until it is killed. */
static void change_names(int own)
{
    char dir[16], file[16], link_name[16], moved[16];
    sprintf(dir, "b/d%d", own), sprintf(file, "b/f%d", own), sprintf(link_name, "b/l%d", own), sprintf(moved, "b/m%d", own);
    for (;;) {
        mkdir(dir, 0755);
        rmdir(dir);
        mknod(file, S_IFREG | 0644, 0);
        link(file, link_name);
        rename(link_name, moved);
        unlink(moved);
        unlink(file);
    }
}

/* The state of a directory that the changes of names leave behind. */
static long state_of(const char *path)
{
    struct stat st;
    stat(path, &st);
    return st.st_nlink + 1000000 * st.st_ctim.tv_nsec + st.st_size;
}

/* What was mounted on b stays as it is once it is unmounted there. */
GROUP(mounts, names_beside_unmounts)
{
    if (!in_own_namespace())
        return;
    make_dir("b");
    make_dir("c");
    T(mount("none", "c", "tmpfs", 0, NULL));
    pid_t child[2];
    for (int i = 0; i < 2; i++)
        if (!(child[i] = fork()))
            change_names(i);
    long late = 0;
    for (int round = 0; round < 250; round++) {
        mount("c", "b", NULL, MS_BIND, NULL);
        for (volatile int wait = 0; wait < round % 7 * 300; wait++)
            ;
        while (umount("b"))
            ;
        long first = state_of("c");
        for (int i = 0; i < 30; i++) {
            sched_yield();
            if (state_of("c") != first) {
                late++;
                break;
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    say("changes after an unmount: %ld", late);
    T(umount("c"));
    /* What they were about to do between two mounts. */
    for (int i = 0; i < 8; i++) {
        char left[16];
        sprintf(left, "b/%c%d", "dflm"[i / 2], i % 2);
        remove(left);
    }
}

/* MNT_EXPIRE asks again after somebody has gone through the mount. */
GROUP(mounts, expire)
{
    if (!in_own_namespace())
        return;
    make_dir("b");
    T(mount("none", "b", "tmpfs", 0, NULL));
    make_dir("b/dir");
    char path[PATH_MAX];
    getcwd(path, sizeof path - 8);
    strcat(path, "/b/dir");
    for (int i = 0; i < 2; i++) {
        T(umount2("b", MNT_EXPIRE));
        T(access("b", F_OK));
        T(umount2("b", MNT_EXPIRE));
        T(access("b/dir", F_OK));
        T(umount2("b", MNT_EXPIRE));
        T(access(path, F_OK));
        T(umount2("b", MNT_EXPIRE));
        T(umount2("b", MNT_EXPIRE | MNT_FORCE));
        T(umount2("b/dir", MNT_EXPIRE));
        CHILD {
            T(access(path, F_OK));
        }
    }
    T(umount2("b", MNT_EXPIRE));
    T(umount2("b", MNT_EXPIRE));
    T(access("b/dir", F_OK));
}

/* A walk starts below what is mounted there, and an unmount takes out the uppermost. */
GROUP(mounts, on_the_start_of_a_walk)
{
    if (!in_own_namespace())
        return;
    make_dir("b");
    T(mount("none", "b", "tmpfs", 0, NULL));
    make("b/f", "below");
    CHILD {
        T(chdir("b"));
        T(mount("none", ".", "tmpfs", 0, NULL));
        T(access("f", F_OK));
        T(access("../b/f", F_OK));
        T(umount("."));
        T(access("../b/f", F_OK));
        T(umount("."));
    }
    CHILD {
        T(chroot("b"));
        T(chdir("/"));
        for (int i = 0; i < 3; i++)
            T(mount("/", "/", NULL, MS_BIND, NULL));
        contents("/f");
        for (int i = 0; i < 3; i++)
            T(umount("/"));
        contents("/f");
        T(umount2("/", MNT_EXPIRE));
        /* Of the root directory itself: the file system becomes read-only. */
        int fd = T(open("/f", O_WRONLY));
        T(umount("/"));
        T(close(fd));
        T(umount("/"));
        T(umount("/"));
        T(open("/f", O_WRONLY));
        contents("/f");
    }
    T(open("b/f", O_WRONLY));
    T(mount(NULL, "b", NULL, MS_REMOUNT, NULL));
    T(close(T(open("b/f", O_WRONLY))));
    T(umount("b"));
}

/* A number that a descriptor may have, as far up as that of few programs. */
static int far_number(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 15001 ? limit.rlim_max : 15001;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur - 1;
}

/* An open file keeps a mount busy, whichever number it has just got. */
GROUP(mounts, a_descriptor_that_moves)
{
    if (!apart_with("m"))
        return;
    T(mount("none", "m", "tmpfs", 0, NULL));
    pid_t child = fork();
    if (!child) {
        int fd = open("m/f", O_RDWR | O_CREAT, 0600), other = far_number();
        for (;;) {
            dup2(fd, other);
            close(fd);
            int now = other;
            other = fd, fd = now;
        }
    }
    while (access("m/f", F_OK) != 0)
        sched_yield();
    int busy = 0;
    for (int i = 0; i < 20000; i++)
        busy += umount("m") != 0 && errno == EBUSY;
    say("busy %d", busy);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    T(umount("m"));
}

/* No code in what is mounted noexec, whatever becomes of a mapping. */
GROUP(mounts, mapped_without_execution)
{
    if (!apart_with("m"))
        return;
    T(mount("none", "m", "tmpfs", MS_NOEXEC, NULL));
    int fd = make_open("m/f", "code", O_RDWR);
    void *m = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    T(mprotect(m, 4096, PROT_READ | PROT_EXEC));
    T(mprotect(m, 4096, PROT_READ | PROT_WRITE));
    fd = make_open("f", "code", O_RDWR);
    m = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    T(mprotect(m, 4096, PROT_READ | PROT_EXEC));
    T(umount2("m", MNT_DETACH));
}
