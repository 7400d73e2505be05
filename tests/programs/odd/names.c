/* Calls that make, remove and move names. */
#include "odd.h"

void names(void)
{
    char dir[16], other[16];
    int fd = dir_fd(dir), to = dir_fd(other);
    struct path p = path(0), q = path(1);
    unsigned mode = roll(2) ? 0755 : roll(010000);
    switch (roll(8)) {
    case 0:
    case 1:
        DO(mkdirat(fd, p.at, mode), "mkdirat(%s, %s, 0%o)", dir, p.text, mode);
        break;
    case 2: {
        unsigned kind = PICK(0, S_IFREG, S_IFIFO, S_IFSOCK, S_IFDIR, S_IFLNK, 0170000, S_IFCHR);
        DO(mknodat(fd, p.at, kind | mode, 0), "mknodat(%s, %s, 0%o, 0)", dir, p.text, kind | mode);
        break;
    }
    case 3:
        if (may_be_target(&q))
            DO(symlinkat(q.at, fd, p.at), "symlinkat(%s, %s, %s)", q.text, dir, p.text);
        break;
    case 4: {
        int flags = PICK(0, 0, AT_REMOVEDIR, AT_REMOVEDIR, 1, AT_SYMLINK_NOFOLLOW);
        DO(unlinkat(fd, p.at, flags), "unlinkat(%s, %s, 0x%x)", dir, p.text, flags);
        break;
    }
    case 5: {
        int flags = PICK(0, 0, 0, AT_SYMLINK_FOLLOW, 1);
        DO(linkat(fd, p.at, to, q.at, flags), "linkat(%s, %s, %s, %s, 0x%x)", dir, p.text, other, q.text, flags);
        break;
    }
    default: {
        unsigned flags = PICK(0, 0, 0, 1, 2, 4, 3, 5, 6, 8);
        /* A link with a slash behind it is read before the other path's bad descriptor is found. */
        if (to != AT_FDCWD && fcntl(to, F_GETFD) < 0 && strstr(p.text, "/\""))
            break;
        DO(syscall(SYS_renameat2, fd, p.at, to, q.at, flags), "renameat2(%s, %s, %s, %s, %u)", dir, p.text, other, q.text, flags);
    }
    }
}

