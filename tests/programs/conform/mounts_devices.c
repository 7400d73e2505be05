/* Devices made with mknod(2), on a file system that allows them and on one that does not. */
#include "mounts.h"
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static void use(const char *path)
{
    struct stat st;
    char room[8] = "";
    for (unsigned flags = O_RDONLY; flags <= O_RDWR; flags++) {
        int fd = TN("open", open(path, flags) < 0 ? -1 : 0) ? -1 : open(path, flags | O_CLOEXEC);
        T(write(fd, "text", 4));
        T(read(fd, room, 4));
        T(lseek(fd, 0, SEEK_SET));
        if (T(fstat(fd, &st)) == 0)
            say("%o %x", st.st_mode, (unsigned)st.st_rdev);
        T(fsetxattr(fd, "user.a", "x", 1, 0));
        T(fchmod(fd, 0640));
        T(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
        int more = dup(fd);
        T(close(fd));
        T(read(more, room, 1));
        CHILD T(write(more, "x", 1));
        T(close(more));
    }
}

GROUP(mounts, devices)
{
    if (!in_own_namespace())
        return;
    make_dir("a");
    T(mount("fs", "a", "tmpfs", 0, NULL));
    T(mknod("a/null", S_IFCHR | 0600, makedev(1, 3)));
    T(mknod("a/zero", S_IFCHR | 0666, makedev(1, 5)));
    T(mknod("a/full", S_IFCHR | 0400, makedev(1, 7)));
    T(mknod("a/whiteout", S_IFCHR | 0600, 0));
    T(mknod("a/none", S_IFCHR | 0600, makedev(400, 77)));
    T(mknod("a/disk", S_IFBLK | 0600, makedev(400, 77)));
    const char *all[] = { "a/null", "a/zero", "a/full", "a/whiteout", "a/none", "a/disk" };
    for (unsigned i = 0; i < COUNT(all); i++) {
        say("%s", all[i]);
        use(all[i]);
        T(open(all[i], O_CREAT | O_EXCL | O_RDWR, 0600));
        T(open(all[i], O_DIRECTORY));
        T(close(open(all[i], O_PATH)));
    }
    T(mount(NULL, "a", NULL, MS_REMOUNT | MS_NODEV, NULL));
    T(open("a/null", O_RDONLY));
    T(open("a/whiteout", O_RDONLY));
    T(mount(NULL, "a", NULL, MS_REMOUNT, NULL));
    T(unlink("a/null"));
    T(umount2("a", MNT_DETACH));
}
