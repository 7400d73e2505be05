/* Access control lists, as the attributes that acl(5) describes: of any entries, mostly in order. */
#include "odd.h"
#include <sys/xattr.h>

struct entry {
    uint16_t tag, rights;
    uint32_t id;
};
/* ACL_USER_OBJ and so on. */
enum { OWNER = 1, USER = 2, OWNING_GROUP = 4, GROUP = 8, MASK = 0x10, OTHERS = 0x20 };

struct list {
    uint32_t version;
    struct entry entries[12];
};

static unsigned draw(struct list *list)
{
    unsigned count = 0;
    uint16_t rights[] = { roll(8), roll(8), roll(8) };
    list->version = roll(20) ? 2 : roll(4);
    list->entries[count++] = (struct entry){ OWNER, rights[0], -1 };
    for (unsigned n = roll(3); n; n--)
        list->entries[count++] = (struct entry){ USER, roll(8), PICK(0, 1000, 2000, 65534) };
    list->entries[count++] = (struct entry){ OWNING_GROUP, rights[1], -1 };
    for (unsigned n = roll(3); n; n--)
        list->entries[count++] = (struct entry){ GROUP, roll(8), PICK(0, 1000, 2000, 3000) };
    if (count > 2 || roll(3) == 0)
        list->entries[count++] = (struct entry){ MASK, roll(8), -1 };
    list->entries[count++] = (struct entry){ OTHERS, rights[2], -1 };
    /* Sometimes one is wrong, missing, or there twice. */
    if (roll(8) == 0)
        list->entries[roll(count)].tag = PICK(0, 1, 2, 4, 8, 0x10, 0x20, 0x40);
    if (roll(15) == 0)
        list->entries[roll(count)].rights = roll(16);
    if (roll(12) == 0)
        count--;
    return count;
}

void lists(void)
{
    static const char *const names[] = { "system.posix_acl_access", "system.posix_acl_access", "system.posix_acl_default" };
    const char *name = names[roll(COUNT(names))];
    struct path p = path(0);
    struct stat st;
    union {
        struct list list;
        char text[300];
    } room = { 0 };
    long size;
    switch (roll(6)) {
    case 0:
        memset(buffer, 0, 300);
        size = PICK(0, 4, 28, 300);
        errno = 0;
        long got = getxattr(p.at, name, buffer, size);
        say(got, "getxattr(%s, \"%s\", buffer, %ld) /* %x */", p.text, name, size, sum(size ? got : 0));
        return;
    case 1:
        DO(removexattr(p.at, name), "removexattr(%s, \"%s\")", p.text, name);
        return;
    case 2: {
        unsigned at = slot();
        size = 4 + 8 * draw(&room.list);
        DO(fsetxattr(f[at], name, &room, size, 0), "fsetxattr(f[%u], \"%s\", list, %ld)", at, name, size);
        return;
    }
    default:
        size = 4 + 8 * draw(&room.list);
        if (roll(20) == 0)
            size = PICK(0, 3, 4, 5, 12, 27);
        int flags = PICK(0, 0, 0, XATTR_CREATE, XATTR_REPLACE);
        if (!DO(setxattr(p.at, name, &room, size, flags), "setxattr(%s, \"%s\", list, %ld, %d)", p.text, name, size, flags) && !stat(p.at, &st))
            say_stat(&st);
    }
}
