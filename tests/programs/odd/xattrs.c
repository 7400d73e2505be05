/* Extended attributes. */
#include "odd.h"
#include <sys/xattr.h>

/* The calls of Linux 6.13. */
static void by_directory(const char *name, void *value, const char *at, long size, int flags)
{
    char dir[16];
    int fd = dir_fd(dir), how = PICK(0, 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1);
    struct path p = path(0);
    if (is_link_of_descriptor(&p))
        how &= ~AT_SYMLINK_NOFOLLOW;
    struct {
        uint64_t value;
        uint32_t size, flags;
        char rest[4096];
    } arguments = { (uint64_t)value, size, flags };
    arguments.rest[5] = roll(2);
    long room = roll(5) ? 16 : PICK(0, 8, 17, 24, 4097);
    switch (roll(4)) {
    case 0:
        DO(syscall(463, fd, p.at, how, name, &arguments, room), "setxattrat(%s, %s, 0x%x, \"%s\", { %s, %ld, %d }, %ld)", dir, p.text, how, name, at, size, flags, room);
        break;
    case 1:
        DO(syscall(464, fd, p.at, how, name, &arguments, room), "getxattrat(%s, %s, 0x%x, \"%s\", { %s, %ld, %d }, %ld)", dir, p.text, how, name, at, size, flags, room);
        break;
    case 2:
        DO(syscall(465, fd, p.at, how, value, size), "listxattrat(%s, %s, 0x%x, %s, %ld)", dir, p.text, how, at, size);
        break;
    default:
        DO(syscall(466, fd, p.at, how, name), "removexattrat(%s, %s, 0x%x, \"%s\")", dir, p.text, how, name);
    }
}

void xattrs(void)
{
    static const char *names[] = { "user.a", "user.b", "trusted.a", "security.a", "system.posix_acl_access", "user.", "a", "", "nothing.a" };
    const char *name = names[roll(COUNT(names))];
    struct path p = path(0);
    char at[24];
    void *value = memory(at);
    long size = PICK(0, 1, 5, 100, 4096, 65536, 65537);
    int flags = PICK(0, 0, XATTR_CREATE, XATTR_REPLACE, 3, 4);
    fill();
    switch (roll(9)) {
    case 0:
    case 1:
        DO(setxattr(p.at, name, value, size, flags), "setxattr(%s, \"%s\", %s, %ld, %d)", p.text, name, at, size, flags);
        break;
    case 2: {
        long got = getxattr(p.at, name, value, size);
        say(got, "getxattr(%s, \"%s\", %s, %ld) /* %x */", p.text, name, at, size, value == buffer ? sum(size ? got : 0) : 0);
        break;
    }
    case 3:
        /* The link itself has the rights of a placeholder. */
        if (!is_link_of_descriptor(&p))
            DO(lremovexattr(p.at, name), "lremovexattr(%s, \"%s\")", p.text, name);
        break;
    case 4: {
        unsigned a = slot();
        if (roll(3))
            DO(fsetxattr(f[a], name, value, size, flags), "fsetxattr(f[%u], \"%s\", %s, %ld, %d)", a, name, at, size, flags);
        else
            DO(fremovexattr(f[a], name), "fremovexattr(f[%u], \"%s\")", a, name);
        break;
    }
    case 5: {
        unsigned a = slot();
        DO(roll(2) ? fgetxattr(f[a], name, value, size) : flistxattr(f[a], value, size), "fgetxattr(f[%u], \"%s\", %s, %ld)", a, name, at, size);
        break;
    }
    case 6:
        by_directory(name, value, at, size, flags);
        break;
    case 7: {
        static char long_name[300];
        memset(long_name, 'n', sizeof long_name - 1);
        memcpy(long_name, "user.", 5);
        long_name[PICK(254, 255, 256)] = 0;
        DO(setxattr(p.at, long_name, value, size, flags), "setxattr(%s, name(%zu), %s, %ld, %d)", p.text, strlen(long_name), at, size, flags);
        break;
    }
    default:
        DO(llistxattr(p.at, value, size), "llistxattr(%s, %s, %ld)", p.text, at, size);
    }
}

