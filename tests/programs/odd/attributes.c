/* Calls on the attributes of a path. */
#include "odd.h"
#include <sys/statfs.h>

void attributes(void)
{
    char dir[16], at[24];
    int fd = dir_fd(dir);
    struct path p = path(0);
    struct stat st;
    int flags = PICK(0, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, 0x200, 0x800000);
    switch (roll(16)) {
    case 0:
        if (!DO(fstatat(fd, p.at, &st, flags), "fstatat(%s, %s, &st, 0x%x)", dir, p.text, flags))
            say_stat(&st);
        break;
    case 1: {
        struct statx sx = { 0 };
        unsigned mask = PICK(0, STATX_BASIC_STATS, STATX_ALL, STATX_SIZE, 0x80000000);
        if (!DO(statx(fd, p.at, flags, mask, &sx), "statx(%s, %s, 0x%x, 0x%x, &sx)", dir, p.text, flags, mask))
            say(0, "/* mask %x mode %o links %lu size %llu attributes %llx of %llx */", sx.stx_mask & ~0xfff01000u, sx.stx_mode, links_of(sx.stx_mode, sx.stx_nlink),
                (long long)sx.stx_size, (long long)sx.stx_attributes & 0x870, (long long)sx.stx_attributes_mask & 0x70);
        break;
    }
    case 2: {
        unsigned mode = roll(010000);
        if (roll(2))
            DO(syscall(452, fd, p.at, mode, flags), "fchmodat2(%s, %s, 0%o, 0x%x)", dir, p.text, mode, flags);
        else
            DO(fchmod(fd, mode), "fchmod(%s, 0%o)", dir, mode);
        break;
    }
    case 3: {
        int owner = PICK(-1, 0, 1000, 2000, 65534), group = PICK(-1, 0, 1000, 2000, 3000);
        DO(fchownat(fd, p.at, owner, group, flags), "fchownat(%s, %s, %d, %d, 0x%x)", dir, p.text, owner, group, flags);
        break;
    }
    case 4: {
        struct timespec ts[2] = { { roll(100), PICK(0, 5, UTIME_OMIT, UTIME_NOW, 1000000000, -1) }, { roll(100), PICK(0, 7, UTIME_OMIT, 999999999) } };
        DO(utimensat(fd, p.at, ts, flags), "utimensat(%s, %s, (struct timespec[]){ { %ld, %ld }, { %ld, %ld } }, 0x%x)", dir, p.text,
            (long)ts[0].tv_sec, ts[0].tv_nsec, (long)ts[1].tv_sec, ts[1].tv_nsec, flags);
        break;
    }
    case 5: {
        int mode = PICK(0, 1, 2, 4, 7, 8, -1);
        /* Of a program that another user has started, access(2) asks for the rights of that user. */
        int eaccess = geteuid() != getuid() ? AT_EACCESS : PICK(0, AT_EACCESS);
        DO(syscall(SYS_faccessat2, fd, p.at, mode, flags | eaccess), "faccessat2(%s, %s, %d, 0x%x)", dir, p.text, mode, flags | eaccess);
        break;
    }
    case 6: {
        long length = where();
        if (length > 1 << 20)
            length = 1 << 20;
        DO(truncate(p.at, length), "truncate(%s, %ld)", p.text, length);
        break;
    }
    case 7: {
        long size = PICK(0, 1, 3, 100, -1, INT32_MAX);
        memset(buffer, 0, 200);
        long got = readlinkat(fd, p.at, memory(at), size < 0 || size > 100 ? size : size);
        if (got > 0 && (strstr(buffer, base) || strchr(buffer, '[') || !strncmp(buffer, "/proc/", 6)))
            break; /* Of a socket, or of a link itself: a number that only one run has. */
        /* The start of an absolute path is that of the directory that the sequence runs in. */
        say(got, "readlinkat(%s, %s, %s, %ld) /* %.*s */", dir, p.text, at, size, (int)(got > 0 && (got < size || *buffer != '/') ? got : 0), buffer);
        break;
    }
    case 8: {
        struct statfs sf;
        DO(statfs(p.at, &sf), "statfs(%s, &sf)", p.text);
        break;
    }
    case 9: {
        union {
            struct file_handle head;
            char room[200];
        } h = { .head.handle_bytes = PICK(0, 8, 12, 128, 200) };
        int id;
        DO(syscall(SYS_name_to_handle_at, fd, p.at, &h, &id, flags & ~AT_SYMLINK_NOFOLLOW), "name_to_handle_at(%s, %s, h(%u), &id, 0x%x)", dir,
            p.text, h.head.handle_bytes, flags & ~AT_SYMLINK_NOFOLLOW);
        break;
    }
    case 10:
        if (!strcmp(p.text, "NULL") || chdir(p.at) == 0) {
            char here[5000] = "";
            if (!getcwd(here, sizeof here) || strncmp(here, base, strlen(base)))
                (void)!chdir(base);
        }
        say(0, "chdir(%s)", p.text);
        break;
    case 11: {
        struct timespec ts[2] = { { 10 + roll(3), 0 }, { 20 + roll(3), 0 } };
        if (roll(2))
            DO(futimens(fd, ts), "futimens(%s, { %ld, %ld })", dir, (long)ts[0].tv_sec, (long)ts[1].tv_sec);
        else
            DO(utimensat(fd, p.at, roll(4) ? ts : roll(2) ? NULL : (void *)8, 0), "utimensat(%s, %s, ts, 0)", dir, p.text);
        break;
    }
    case 12: {
        struct timespec ts[2] = { { 10, 0 }, { 20, 0 } };
        DO(syscall(SYS_utimensat, fd, p.at, ts, flags), "utimensat(%s, %s, { 10, 20 }, 0x%x)", dir, p.text, flags);
        break;
    }
    case 13: {
        struct {
            uint64_t flags;
            uint32_t more[1030];
        } known = { PICK(0, 0, 0x80, 0x10, 1) };
        long size = roll(6) ? 24 : PICK(0, 8, 23, 32, 4097);
        known.flags &= 0x80;
        if (roll(2))
            DO(syscall(468, fd, p.at, &known, size, flags), "file_getattr(%s, %s, &known, %ld, 0x%x)", dir, p.text, size, flags);
        else
            DO(syscall(469, fd, p.at, &known, size, flags), "file_setattr(%s, %s, { 0x%lx }, %ld, 0x%x)", dir, p.text, (long)known.flags, size, flags);
        break;
    }
    case 14: {
        struct statfs sf;
        DO(fstatfs(fd, &sf), "fstatfs(%s, &sf)", dir);
        break;
    }
    default:
        if (roll(2))
            DO(faccessat(AT_FDCWD, p.at, roll(8), geteuid() == getuid() ? 0 : AT_EACCESS), "access(%s)", p.text);
        else
            DO(lchown(p.at, PICK(-1, 0, 1000), PICK(-1, 0, 2000)), "lchown(%s)", p.text);
    }
}
