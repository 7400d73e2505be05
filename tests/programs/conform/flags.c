/* Flags that no other group passes: each once, with what it is for. docs/flags.md is made from the groups. */
#include "mounts.h"
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/uio.h>

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef STATX_SUBVOL
#define STATX_SUBVOL 0x8000U
#endif
#ifndef STATX_WRITE_ATOMIC
#define STATX_WRITE_ATOMIC 0x10000U
#endif
#ifndef STATX_DIO_READ_ALIGN
#define STATX_DIO_READ_ALIGN 0x20000U
#endif

/* What a mask of statx(2) is answered with. */
static void statx_mask(const char *text, unsigned flags, unsigned mask)
{
    struct statx found;
    memset(&found, 0x5a, sizeof found);
    TN(text, statx(AT_FDCWD, "file", flags, mask, &found));
    say("  mask %#x type %o size %llu direct %u %u", found.stx_mask, found.stx_mode & S_IFMT,
        (unsigned long long)found.stx_size, found.stx_dio_mem_align, found.stx_dio_offset_align);
    uint32_t rest[4];
    memcpy(rest, (char *)&found + 0xb0, sizeof rest);
    say("  atomic writes %u %u %u %u", rest[0], rest[1], rest[2], rest[3]);
}

GROUP(flags, fstatat)
{
    struct stat found;
    make("file", "x");
    T(fstatat(AT_FDCWD, "file", &found, AT_NO_AUTOMOUNT));
    T(fstatat(AT_FDCWD, "", &found, AT_NO_AUTOMOUNT | AT_EMPTY_PATH));
    T(fstatat(AT_FDCWD, "file", &found, AT_STATX_DONT_SYNC));
    T(fstatat(AT_FDCWD, "file", &found, AT_SYMLINK_FOLLOW));
}

GROUP(flags, fchmodat2)
{
    make("file", "x");
    T(symlink("file", "link"));
    int fd = open("file", O_RDONLY), path = open("link", O_PATH | O_NOFOLLOW);
    T(syscall(SYS_fchmodat2, AT_FDCWD, "link", 0640, 0));
    attributes("file");
    T(syscall(SYS_fchmodat2, AT_FDCWD, "link", 0600, AT_SYMLINK_NOFOLLOW));
    T(syscall(SYS_fchmodat2, AT_FDCWD, "file", 0604, AT_SYMLINK_NOFOLLOW));
    attributes("file");
    T(syscall(SYS_fchmodat2, fd, "", 0611, AT_EMPTY_PATH));
    attributes("file");
    T(syscall(SYS_fchmodat2, fd, "", 0611, 0));
    T(syscall(SYS_fchmodat2, path, "", 0611, AT_EMPTY_PATH));
    T(syscall(SYS_fchmodat2, fd, "", 0612, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
    T(syscall(SYS_fchmodat2, AT_FDCWD, "file", 0600, AT_NO_AUTOMOUNT));
    T(syscall(SYS_fchmodat2, -1, "", 0600, AT_EMPTY_PATH));
}

GROUP(flags, statx)
{
    make("file", "0123456789");
#define MASK(flags, mask) statx_mask(#flags ", " #mask, flags, mask)
    MASK(AT_STATX_SYNC_AS_STAT, STATX_BASIC_STATS);
    MASK(AT_STATX_FORCE_SYNC, STATX_BASIC_STATS);
    MASK(AT_STATX_DONT_SYNC, STATX_SIZE);
    MASK(AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_SIZE);
    MASK(AT_NO_AUTOMOUNT, 0);
    MASK(0, STATX_BTIME);
    MASK(0, STATX_MNT_ID);
    MASK(0, STATX_MNT_ID_UNIQUE);
    MASK(0, STATX_MNT_ID | STATX_MNT_ID_UNIQUE);
    MASK(0, STATX_DIOALIGN);
    MASK(0, STATX_SUBVOL);
    MASK(0, STATX_WRITE_ATOMIC);
    MASK(0, STATX_DIO_READ_ALIGN);
    MASK(0, 0x7fffffff);
    MASK(0, 0x80000000);
    struct statx first, second;
    statx(AT_FDCWD, "file", 0, STATX_MNT_ID_UNIQUE, &first);
    statx(AT_FDCWD, ".", 0, STATX_MNT_ID_UNIQUE, &second);
    say("one mount %d beyond 32 bits %d", first.stx_mnt_id == second.stx_mnt_id, first.stx_mnt_id >> 31 != 0);
}

#ifndef AT_HANDLE_MNT_ID_UNIQUE
#define AT_HANDLE_MNT_ID_UNIQUE 1
#endif
#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200
#endif

GROUP(flags, name_to_handle_at)
{
    make("file", "x");
    T(symlink("file", "link"));
    union {
        struct file_handle handle;
        char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } file, link;
    uint64_t mount;
    struct statx found;
    for (unsigned flags = 0; flags < 4; flags++) {
        unsigned passed = (flags & 1 ? AT_HANDLE_MNT_ID_UNIQUE : 0) | (flags & 2 ? AT_HANDLE_FID : 0);
        say("flags %#x", passed);
        mount = 0;
        file.handle.handle_bytes = link.handle.handle_bytes = MAX_HANDLE_SZ;
        T(syscall(SYS_name_to_handle_at, AT_FDCWD, "file", &file, &mount, passed));
        statx(AT_FDCWD, "file", 0, flags & 1 ? STATX_MNT_ID_UNIQUE : STATX_MNT_ID, &found);
        say("  mount as of statx %d", found.stx_mnt_id == mount);
        T(syscall(SYS_name_to_handle_at, AT_FDCWD, "link", &link, &mount, passed | AT_SYMLINK_FOLLOW));
        say("  same handle %d", !memcmp(&file, &link, sizeof(struct file_handle) + file.handle.handle_bytes));
        T(syscall(SYS_name_to_handle_at, AT_FDCWD, "link", &link, &mount, passed));
        say("  same handle %d", !memcmp(&file, &link, sizeof(struct file_handle) + file.handle.handle_bytes));
    }
    T(syscall(SYS_name_to_handle_at, AT_FDCWD, "file", &file, &mount, 0x100));
    T(syscall(SYS_name_to_handle_at, AT_FDCWD, "file", &file, &mount, 0x800));
}

#ifndef AT_EXECVE_CHECK
#define AT_EXECVE_CHECK 0x10000
#endif

GROUP(flags, execveat_check)
{
    char *arguments[] = { "a", NULL };
    make("script", "#!/bin/sh\necho no\n");
    make("text", "echo no\n");
    make("empty", "");
    make_dir("dir");
    T(syscall(SYS_execveat, AT_FDCWD, "script", arguments, environ, AT_EXECVE_CHECK));
    chmod("script", 0755), chmod("text", 0755), chmod("empty", 0755);
    T(syscall(SYS_execveat, AT_FDCWD, "script", arguments, environ, AT_EXECVE_CHECK));
    T(syscall(SYS_execveat, AT_FDCWD, "text", arguments, environ, AT_EXECVE_CHECK));
    T(syscall(SYS_execveat, AT_FDCWD, "empty", arguments, environ, AT_EXECVE_CHECK));
    T(syscall(SYS_execveat, AT_FDCWD, "dir", arguments, environ, AT_EXECVE_CHECK));
    T(syscall(SYS_execveat, AT_FDCWD, "none", arguments, environ, AT_EXECVE_CHECK));
    T(syscall(SYS_execveat, AT_FDCWD, "script", NULL, NULL, AT_EXECVE_CHECK));
    T(symlink("script", "link"));
    T(syscall(SYS_execveat, AT_FDCWD, "link", arguments, environ, AT_EXECVE_CHECK));
    T(syscall(SYS_execveat, AT_FDCWD, "link", arguments, environ, AT_EXECVE_CHECK | AT_SYMLINK_NOFOLLOW));
    int fd = open("script", O_RDONLY);
    T(syscall(SYS_execveat, fd, "", arguments, environ, AT_EXECVE_CHECK | AT_EMPTY_PATH));
    T(syscall(SYS_execveat, fd, "", arguments, environ, AT_EXECVE_CHECK));
    T(syscall(SYS_execveat, AT_FDCWD, "script", arguments, environ, AT_EXECVE_CHECK | 0x20000));
    CHILD {
        become_nobody();
        chmod(".", 0755);
        T(syscall(SYS_execveat, AT_FDCWD, "script", arguments, environ, AT_EXECVE_CHECK));
    }
}

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif
#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x40
#endif
#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80
#endif
#ifndef RWF_NOSIGNAL
#define RWF_NOSIGNAL 0x100
#endif

GROUP(flags, preadv2_and_pwritev2)
{
    static const struct { const char *name; int flag; } all[] = {
#define FLAG(flag) { #flag, flag }
        FLAG(RWF_HIPRI), FLAG(RWF_DSYNC), FLAG(RWF_SYNC), FLAG(RWF_NOWAIT), FLAG(RWF_APPEND), FLAG(RWF_NOAPPEND),
        FLAG(RWF_ATOMIC), FLAG(RWF_DONTCACHE), FLAG(RWF_NOSIGNAL), FLAG(RWF_APPEND | RWF_NOAPPEND), { "next", 0x200 },
    };
    char room[8];
    struct iovec two[2] = { { "ab", 2 }, { "cd", 2 } }, into = { room, sizeof room };
    for (unsigned append = 0; append < 2; append++)
        for (unsigned f = 0; f < COUNT(all); f++) {
            say("%s%s", all[f].name, append ? " of O_APPEND" : "");
            int fd = make_open("file", "0123456789", O_RDWR | (append ? O_APPEND : 0));
            T(pwritev2(fd, two, 2, 1, all[f].flag));
            T(pwritev2(fd, two, 2, -1, all[f].flag));
            T(lseek(fd, 0, SEEK_CUR));
            memset(room, 0, sizeof room);
            T(preadv2(fd, &into, 1, 2, all[f].flag));
            say_bytes("read", room, sizeof room);
            T(preadv2(fd, &into, 1, -1, all[f].flag));
            T(lseek(fd, 0x7fffffffffffffff, SEEK_SET) == 0x7fffffffffffffff);
            T(preadv2(fd, &into, 1, -1, all[f].flag));
            T(pwritev2(fd, two, 2, -1, all[f].flag));
            close(fd);
            contents("file");
            unlink("file");
        }
    int fd = make_open("file", "0123456789", O_RDWR | O_APPEND), set = FS_APPEND_FL, none = 0;
    int plain = open("file", O_RDONLY);
    if (ioctl(fd, FS_IOC_SETFLAGS, &set) == 0) {
        T(pwritev2(fd, two, 2, 1, RWF_NOAPPEND));
        T(pwritev2(fd, two, 2, -1, RWF_NOAPPEND));
        T(preadv2(fd, &into, 1, 0, RWF_NOAPPEND));
        T(preadv2(plain, &into, 1, 0, RWF_NOAPPEND));
        ioctl(fd, FS_IOC_SETFLAGS, &none);
    }
    contents("file");
}

GROUP(flags, mremap_dontunmap)
{
    int fd = make_open("file", "0123456789", O_RDWR);
    T(ftruncate(fd, 8192));
    for (int kind = MAP_SHARED; kind <= MAP_PRIVATE; kind++) {
        char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, kind, fd, 0);
        at[1] = 'x';
        char *other = TP(mremap(at, 8192, 8192, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
        if (other != MAP_FAILED)
            say("%.4s, there %.4s", at, other);
        TP(mremap(at, 8192, 4096, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
        TP(mremap(at, 8192, 8192, MREMAP_DONTUNMAP));
        say("%.4s", at);
    }
}

GROUP(flags, madvise)
{
    static const struct { const char *name; int advice; } all[] = {
#define ADVICE(advice) { #advice, advice }
        ADVICE(MADV_NORMAL), ADVICE(MADV_RANDOM), ADVICE(MADV_SEQUENTIAL), ADVICE(MADV_WILLNEED),
        ADVICE(MADV_DONTNEED), ADVICE(MADV_FREE), ADVICE(MADV_COLD), ADVICE(MADV_PAGEOUT),
        ADVICE(MADV_POPULATE_READ), ADVICE(MADV_POPULATE_WRITE), ADVICE(MADV_DONTDUMP), ADVICE(MADV_DODUMP),
        ADVICE(MADV_WIPEONFORK), ADVICE(MADV_KEEPONFORK), ADVICE(MADV_MERGEABLE), ADVICE(MADV_UNMERGEABLE),
        ADVICE(MADV_DONTFORK), ADVICE(MADV_DOFORK), { "unknown", 77 },
    };
    int fd = make_open("file", "0123456789", O_RDWR);
    T(ftruncate(fd, 16384));
    for (int kind = MAP_SHARED; kind <= MAP_PRIVATE; kind++) {
        say(kind == MAP_SHARED ? "shared" : "private");
        char *at = mmap(NULL, 16384, PROT_READ | PROT_WRITE, kind, fd, 0);
        at[1] = 'x';
        for (unsigned a = 0; a < COUNT(all); a++) {
            TN(all[a].name, madvise(at, 16384, all[a].advice));
            say("  %.4s", at);
        }
        T(madvise(at + 1, 4096, MADV_NORMAL));
        T(madvise(at, -4096, MADV_NORMAL));
        T(madvise(at, 0, MADV_NORMAL));
    }
    contents("file");
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

GROUP(flags, huge_pages)
{
    /* Whether a kernel has huge pages is its own business: only what the mapping holds is compared. */
    int fd = make_open("file", "0123456789", O_RDWR);
    T(ftruncate(fd, 4 << 20));
    char *at = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    madvise(at, 4 << 20, MADV_HUGEPAGE);
    say("%.4s", at);
    madvise(at, 4 << 20, MADV_COLLAPSE);
    say("%.4s", at);
    at[3 << 20] = 'y';
    madvise(at, 4 << 20, MADV_NOHUGEPAGE);
    char byte = 0;
    T(pread(fd, &byte, 1, 3 << 20));
    say("%c", byte);
}

GROUP(flags, posix_fadvise)
{
    int fd = make_open("file", "0123456789", O_RDWR), ends[2];
    for (int advice = POSIX_FADV_NORMAL; advice <= POSIX_FADV_NOREUSE; advice++)
        T(posix_fadvise(fd, 0, 0, advice));
    T(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
    T(posix_fadvise(fd, 5, 5, POSIX_FADV_WILLNEED));
    T(posix_fadvise(fd, 0, 0, POSIX_FADV_NOREUSE + 1));
    T(posix_fadvise(fd, -1, 0, POSIX_FADV_SEQUENTIAL));
    T(posix_fadvise(fd, 0, -1, POSIX_FADV_DONTNEED));
    T(posix_fadvise(-1, 0, 0, POSIX_FADV_NORMAL));
    T(pipe(ends));
    T(posix_fadvise(ends[0], 0, 0, POSIX_FADV_NORMAL));
    T(posix_fadvise(open(".", O_RDONLY), 0, 0, POSIX_FADV_WILLNEED));
    T(posix_fadvise(open("file", O_PATH), 0, 0, POSIX_FADV_NORMAL));
}

#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY 1027
#endif
#ifndef F_CREATED_QUERY
#define F_CREATED_QUERY 1028
#endif

GROUP(flags, fcntl)
{
    int made = open("file", O_RDWR | O_CREAT, 0600), again = open("file", O_RDWR | O_CREAT, 0600);
    T(fcntl(made, F_CREATED_QUERY, 0));
    T(fcntl(again, F_CREATED_QUERY, 0));
    T(fcntl(dup(made), F_CREATED_QUERY, 0));
    T(fcntl(open(".", O_RDONLY), F_CREATED_QUERY, 0));
    T(fcntl(open("file", O_PATH), F_CREATED_QUERY, 0));
    T(fcntl(made, F_DUPFD_QUERY, made));
    T(fcntl(made, F_DUPFD_QUERY, dup(made)));
    T(fcntl(made, F_DUPFD_QUERY, again));
    T(fcntl(made, F_DUPFD_QUERY, 1));
    T(fcntl(made, F_DUPFD_QUERY, 99));
    T(fcntl(open("file", O_PATH), F_DUPFD_QUERY, made));
    uint64_t hint = 77;
    T(fcntl(made, F_GET_RW_HINT, &hint));
    say("%lu", hint);
    for (hint = 0; hint < 7; hint++)
        T(fcntl(made, F_SET_RW_HINT, &hint));
    hint = 2;
    T(fcntl(made, F_SET_RW_HINT, &hint));
    hint = 77;
    T(fcntl(again, F_GET_RW_HINT, &hint));
    say("%lu", hint);
    hint = 3;
    T(fcntl(made, F_SET_FILE_RW_HINT, &hint));
    T(fcntl(made, F_GET_FILE_RW_HINT, &hint));
    T(fcntl(made, F_SET_RW_HINT, NULL));
    T(fcntl(made, 1029, 0));
    int read_only = open("file", O_RDONLY);
    hint = 4;
    T(fcntl(read_only, F_SET_RW_HINT, &hint));
}

GROUP(flags, splice_more_and_gift)
{
    int ends[2], fd = make_open("file", "0123456789", O_RDWR);
    char room[16] = "";
    T(pipe(ends));
    T(splice(fd, NULL, ends[1], NULL, 4, SPLICE_F_MORE | SPLICE_F_MOVE));
    T(read(ends[0], room, sizeof room));
    say("%.4s", room);
    T(splice(fd, NULL, ends[1], NULL, 4, 0x10));
    T(splice(fd, NULL, ends[1], NULL, 4, SPLICE_F_GIFT));
    T(read(ends[0], room, sizeof room));
    char *page = aligned_alloc(4096, 4096);
    memset(page, 'g', 4096);
    struct iovec whole = { page, 4096 };
    T(vmsplice(ends[1], &whole, 1, SPLICE_F_GIFT));
    T(splice(ends[0], NULL, fd, NULL, 4096, SPLICE_F_MOVE | SPLICE_F_MORE));
    T(vmsplice(fd, &whole, 1, 0));
    attributes("file");
}

GROUP(flags, sync_file_range)
{
    int fd = make_open("file", "0123456789", O_RDWR), ends[2];
    T(sync_file_range(fd, 0, 0, 0));
    T(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE));
    T(sync_file_range(fd, 0, 4, SYNC_FILE_RANGE_WRITE));
    T(sync_file_range(fd, 2, 4, SYNC_FILE_RANGE_WAIT_AFTER));
    T(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    T(sync_file_range(fd, 0, 0, 8));
    T(sync_file_range(fd, -1, 4, SYNC_FILE_RANGE_WRITE));
    T(sync_file_range(fd, 4, -1, SYNC_FILE_RANGE_WRITE));
    T(sync_file_range(fd, INT64_MAX, 4, SYNC_FILE_RANGE_WRITE));
    T(sync_file_range(open(".", O_RDONLY), 0, 0, SYNC_FILE_RANGE_WRITE));
    T(sync_file_range(open("file", O_PATH), 0, 0, SYNC_FILE_RANGE_WRITE));
    T(pipe(ends));
    T(sync_file_range(ends[1], 0, 0, SYNC_FILE_RANGE_WRITE));
    T(sync_file_range(-1, 0, 0, SYNC_FILE_RANGE_WRITE));
}

/* What a mount shows of its flags. */
static void shown(const char *path)
{
    char line[1024], want[PATH_MAX];
    if (!realpath(path, want))
        return;
    FILE *table = fopen("/proc/self/mountinfo", "r");
    while (fgets(line, sizeof line, table)) {
        char point[512], options[256], super[256], *rest;
        if (sscanf(line, "%*d %*d %*s %*s %511s %255s", point, options) == 2 && !strcmp(point, want)
            && (rest = strstr(line, " - ")) && sscanf(rest, " - %*s %*s %250s", super) == 1) {
            strcat(super, ",size");
            /* What a tmpfs shows beside these depends on the machine. */
            *strstr(super, ",size") = 0;
            say("  %s; %s", options, super);
        }
    }
    fclose(table);
}

GROUP(flags, mount)
{
    if (!in_own_namespace())
        return;
    static const struct { const char *name; unsigned long flag; } all[] = {
        FLAG(MS_RDONLY), FLAG(MS_NOSUID), FLAG(MS_NODEV), FLAG(MS_NOEXEC), FLAG(MS_SYNCHRONOUS), FLAG(MS_MANDLOCK),
        FLAG(MS_DIRSYNC), FLAG(MS_NOSYMFOLLOW), FLAG(MS_NOATIME), FLAG(MS_NODIRATIME), FLAG(MS_SILENT),
        FLAG(MS_RELATIME), FLAG(MS_STRICTATIME), FLAG(MS_LAZYTIME), FLAG(MS_REC),
        FLAG(MS_NOATIME | MS_STRICTATIME), FLAG(MS_RELATIME | MS_NOATIME),
    };
    make_dir("point");
    for (unsigned f = 0; f < COUNT(all); f++) {
        TN(all[f].name, mount("flags", "point", "tmpfs", all[f].flag, NULL));
        shown("point");
        T(mount(NULL, "point", NULL, MS_REMOUNT | MS_BIND, NULL));
        shown("point");
        TN("again", mount(NULL, "point", NULL, MS_REMOUNT | MS_BIND | all[f].flag, NULL));
        shown("point");
        struct statfs there;
        T(statfs("point", &there));
        say("  %#lx", (long)there.f_flags);
        TN("remounted", mount(NULL, "point", NULL, MS_REMOUNT, NULL));
        shown("point");
        T(umount2("point", 0));
    }
}

GROUP(flags, mount_setattr)
{
    if (!in_own_namespace())
        return;
    static const struct { const char *name; uint64_t flag; } all[] = {
        FLAG(MOUNT_ATTR_RDONLY), FLAG(MOUNT_ATTR_NOSUID), FLAG(MOUNT_ATTR_NODEV), FLAG(MOUNT_ATTR_NOEXEC),
        FLAG(MOUNT_ATTR_RELATIME), FLAG(MOUNT_ATTR_NOATIME), FLAG(MOUNT_ATTR_STRICTATIME),
        FLAG(MOUNT_ATTR_NODIRATIME), FLAG(MOUNT_ATTR_NOSYMFOLLOW), { "unknown", 1 << 30 },
    };
    make_dir("point");
    T(mount("flags", "point", "tmpfs", 0, NULL));
    make_dir("point/below");
    T(mount("flags", "point/below", "tmpfs", 0, NULL));
    for (unsigned f = 0; f < COUNT(all); f++) {
        struct mount_attr set = { .attr_set = all[f].flag }, clear = { .attr_clr = all[f].flag };
        struct mount_attr times = { .attr_set = all[f].flag, .attr_clr = MOUNT_ATTR__ATIME };
        TN(all[f].name, syscall(SYS_mount_setattr, AT_FDCWD, "point", 0, &set, sizeof set));
        shown("point"), shown("point/below");
        T(syscall(SYS_mount_setattr, AT_FDCWD, "point", 0, &times, sizeof times));
        shown("point");
        T(syscall(SYS_mount_setattr, AT_FDCWD, "point", AT_RECURSIVE, &set, sizeof set));
        shown("point/below");
        T(syscall(SYS_mount_setattr, AT_FDCWD, "point", AT_RECURSIVE, &clear, sizeof clear));
        shown("point"), shown("point/below");
    }
    struct mount_attr none = { 0 };
    T(syscall(SYS_mount_setattr, AT_FDCWD, "point", 0, &none, 8));
    T(syscall(SYS_mount_setattr, AT_FDCWD, "point", 0, &none, 5000));
    T(syscall(SYS_mount_setattr, AT_FDCWD, "point", 0x4000, &none, sizeof none));
    int inside = open("point", O_PATH);
    T(syscall(SYS_mount_setattr, inside, "", AT_EMPTY_PATH, &none, sizeof none));
    T(syscall(SYS_mount_setattr, inside, "", 0, &none, sizeof none));
    close(inside);
    T(umount2("point/below", 0));
    T(umount2("point", 0));
}

GROUP(flags, open_tree_and_move_mount)
{
    if (!in_own_namespace())
        return;
    make_dir("point"), make_dir("other");
    T(symlink("point", "to_point"));
    T(symlink("other", "to_other"));
    T(mount("flags", "point", "tmpfs", 0, NULL));
    make("point/file", "here");
    int tree = T(syscall(SYS_open_tree, AT_FDCWD, "point", OPEN_TREE_CLOEXEC)) < 0 ? -1 : 3;
    T(fcntl(tree, F_GETFD));
    close(tree);
    T(syscall(SYS_open_tree, AT_FDCWD, "point", AT_RECURSIVE));
    T(syscall(SYS_open_tree, AT_FDCWD, "to_point", AT_SYMLINK_NOFOLLOW | OPEN_TREE_CLONE));
    close(T(syscall(SYS_open_tree, AT_FDCWD, "point", AT_NO_AUTOMOUNT)));
    T(syscall(SYS_open_tree, AT_FDCWD, "point", 0x20));
    /* From and to by links, then back through descriptors. */
    T(syscall(SYS_move_mount, AT_FDCWD, "to_point", AT_FDCWD, "other", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "to_point", AT_FDCWD, "other", MOVE_MOUNT_F_SYMLINKS));
    contents("other/file");
    int from = open("other", O_PATH), to = open("point", O_PATH);
    T(syscall(SYS_move_mount, from, "", to, "", 0));
    T(syscall(SYS_move_mount, from, "", to, "", MOVE_MOUNT_F_EMPTY_PATH));
    T(syscall(SYS_move_mount, from, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
    contents("point/file");
    T(syscall(SYS_move_mount, AT_FDCWD, "point", AT_FDCWD, "to_other", MOVE_MOUNT_T_SYMLINKS));
    contents("other/file");
    T(syscall(SYS_move_mount, AT_FDCWD, "other", AT_FDCWD, "point", 0x1000));
    T(syscall(SYS_move_mount, AT_FDCWD, "other/file", AT_FDCWD, "point", 0));
    T(syscall(SYS_move_mount, AT_FDCWD, "other", AT_FDCWD, "none", 0));
    close(from), close(to);
    T(umount2("other", MNT_DETACH));
}

GROUP(flags, move_mount_set_group)
{
    if (!in_own_namespace())
        return;
    make_dir("one"), make_dir("two");
    T(mount("flags", "one", "tmpfs", 0, NULL));
    T(mount("one", "two", NULL, MS_BIND, NULL));
    T(syscall(SYS_move_mount, AT_FDCWD, "one", AT_FDCWD, "two", MOVE_MOUNT_SET_GROUP));
    T(mount(NULL, "one", NULL, MS_SHARED, NULL));
    T(syscall(SYS_move_mount, AT_FDCWD, "one", AT_FDCWD, "two", MOVE_MOUNT_SET_GROUP));
    make_dir("one/below");
    T(mount("flags", "one/below", "tmpfs", 0, NULL));
    make("one/below/file", "propagated");
    contents("two/below/file");
    T(syscall(SYS_move_mount, AT_FDCWD, "one", AT_FDCWD, "two", MOVE_MOUNT_SET_GROUP));
    T(syscall(SYS_move_mount, AT_FDCWD, "one/below", AT_FDCWD, "two", MOVE_MOUNT_SET_GROUP));
    T(umount2("one", MNT_DETACH));
    T(umount2("two", MNT_DETACH));
}

/* An enumerator of newer headers. */
#define FSCONFIG_CMD_CREATE_EXCL 8

GROUP(flags, fsconfig)
{
    if (!in_own_namespace())
        return;
    int context = T(syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC));
    T(fcntl(context, F_GETFD));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "ro", NULL, 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "rw", NULL, 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "nonsense", NULL, 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "rw", "value", 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "size", "64k", 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "mode", "0751", 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "mode", "xyz", 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "source", "flags", 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_BINARY, "size", "64k", 3));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_PATH, "size", ".", AT_FDCWD));
    T(syscall(SYS_fsconfig, context, 77, NULL, NULL, 0));
    T(syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE_EXCL, NULL, NULL, 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    int tree = T(syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOEXEC));
    make_dir("point");
    T(syscall(SYS_move_mount, tree, "", AT_FDCWD, "point", MOVE_MOUNT_F_EMPTY_PATH));
    struct stat found;
    T(stat("point", &found));
    say("%o", found.st_mode & 07777);
    shown("point");
    close(tree), close(context);
    T(umount2("point", 0));
}

GROUP(flags, fspick)
{
    if (!in_own_namespace())
        return;
    make_dir("point");
    T(mount("flags", "point", "tmpfs", 0, NULL));
    T(symlink("point", "link"));
    int context = T(syscall(SYS_fspick, AT_FDCWD, "point", FSPICK_CLOEXEC));
    T(fcntl(context, F_GETFD));
    T(syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "ro", NULL, 0));
    T(syscall(SYS_fsconfig, context, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0));
    shown("point");
    T(close(context));
    T(close(syscall(SYS_fspick, AT_FDCWD, "link", 0)));
    T(syscall(SYS_fspick, AT_FDCWD, "link", FSPICK_SYMLINK_NOFOLLOW));
    T(close(syscall(SYS_fspick, AT_FDCWD, "point", FSPICK_NO_AUTOMOUNT)));
    int inside = open("point", O_PATH);
    T(close(syscall(SYS_fspick, inside, "", FSPICK_EMPTY_PATH)));
    T(syscall(SYS_fspick, inside, "", 0));
    T(syscall(SYS_fspick, AT_FDCWD, "point", 0x100));
    T(syscall(SYS_fspick, AT_FDCWD, ".", 0));
    close(inside);
    T(umount2("point", 0));
}

static int in_child(void *unused)
{
    (void)unused;
    int fd = open("child", O_WRONLY | O_CREAT, 0644);
    return fd < 0 || write(fd, "x", 1) != 1;
}

GROUP(flags, clone)
{
    static char stack[65536];
    int pidfd = -1;
    pid_t child = clone(in_child, stack + sizeof stack, CLONE_PIDFD | SIGCHLD, NULL, &pidfd);
    say("child %d descriptor %d", child > 0, pidfd >= 0);
    say_wait(child);
    T(close(pidfd));
    contents("child");
    T(unlink("child"));
    CHILD {
        /* The new process is its creator's brother. */
        child = clone(in_child, stack + sizeof stack, CLONE_PARENT | SIGCHLD, NULL);
        say("child %d", child > 0);
        T(waitpid(child, NULL, 0));
    }
    wait(NULL);
    contents("child");
    CHILD {
        T(unshare(CLONE_FS | CLONE_FILES));
        make_dir("dir");
        T(chdir("dir"));
    }
    contents("child");
}

#ifndef FS_IOC_GETFSUUID
struct fsuuid2 { uint8_t len; uint8_t uuid[16]; };
#define FS_IOC_GETFSUUID _IOR(0x15, 0, struct fsuuid2)
#endif

GROUP(flags, ioctl)
{
    int fd = make_open("file", "0123456789", O_RDWR), other = make_open("other", "0123456789", O_RDWR), on = 1;
    T(ioctl(fd, FIOCLEX));
    T(fcntl(fd, F_GETFD));
    T(ioctl(fd, FIONCLEX));
    T(fcntl(fd, F_GETFD));
    T(ioctl(fd, FIONBIO, &on));
    T(fcntl(fd, F_GETFL) & O_NONBLOCK);
    T(ioctl(fd, FIOASYNC, &on));
    T(fcntl(fd, F_GETFL) & O_ASYNC);
    on = 0;
    T(ioctl(fd, FIOASYNC, &on));
    struct fsxattr attributes = { 0 };
    T(ioctl(fd, FS_IOC_FSGETXATTR, &attributes));
    say("%#x %u", attributes.fsx_xflags, attributes.fsx_projid);
    T(ioctl(fd, FS_IOC_FSSETXATTR, &attributes));
    attributes.fsx_xflags = FS_XFLAG_NODUMP;
    T(ioctl(fd, FS_IOC_FSSETXATTR, &attributes));
    T(ioctl(fd, FS_IOC_FSGETXATTR, &attributes));
    say("%#x", attributes.fsx_xflags);
    attributes.fsx_xflags = FS_XFLAG_REALTIME;
    T(ioctl(fd, FS_IOC_FSSETXATTR, &attributes));
    attributes.fsx_xflags = 0, attributes.fsx_projid = 5;
    T(ioctl(fd, FS_IOC_FSSETXATTR, &attributes));
    struct {
        struct file_dedupe_range head;
        struct file_dedupe_range_info one;
    } range = { { 0, 10, 1, 0, 0 }, { other, 0, 0, 0, 0 } };
    T(ioctl(fd, FIDEDUPERANGE, &range));
    say("%d %llu", range.one.status, (unsigned long long)range.one.bytes_deduped);
    T(ioctl(fd, FIDEDUPERANGE, NULL));
    struct fsuuid2 id = { 0 };
    T(ioctl(fd, FS_IOC_GETFSUUID, &id));
    say("%u bytes", id.len);
    T(ioctl(fd, FIFREEZE, 0));
    T(ioctl(fd, FITHAW, 0));
    T(ioctl(fd, FIGETBSZ, &on));
    say("%d", on);
    T(ioctl(fd, 0x12345678, &on));
}

/* The flags of a file, if they can be read. */
static void flags_of(const char *path)
{
    int flags = 0, fd = open(path, O_RDONLY | O_NONBLOCK);
    struct statx found;
    T(ioctl(fd, FS_IOC_GETFLAGS, &flags));
    close(fd);
    statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &found);
    say("%s: %#x %#llx", path, flags, (unsigned long long)found.stx_attributes);
}

GROUP(flags, inherited)
{
    static const int all[] = { FS_NODUMP_FL, FS_NOATIME_FL, FS_NODUMP_FL | FS_NOATIME_FL, 0 };
    make_dir("dir");
    int dir = open("dir", O_RDONLY);
    for (unsigned i = 0; i < COUNT(all); i++) {
        T(ioctl(dir, FS_IOC_SETFLAGS, &all[i]));
        T(mkdir("dir/below", 0700));
        make("dir/file", "x");
        make("dir/below/file", "x");
        T(symlink("file", "dir/link"));
        T(mkfifo("dir/fifo", 0600));
        flags_of("dir"), flags_of("dir/below"), flags_of("dir/file"), flags_of("dir/below/file"), flags_of("dir/link");
        flags_of("dir/fifo");
        int nameless = open("dir", O_TMPFILE | O_RDWR, 0600), flags = 0;
        T(ioctl(nameless, FS_IOC_GETFLAGS, &flags));
        say("%#x", flags);
        close(nameless);
        T(rename("dir/file", "file"));
        flags_of("file");
        T(unlink("file")), T(unlink("dir/link")), T(unlink("dir/fifo")), T(unlink("dir/below/file")), T(rmdir("dir/below"));
    }
}
