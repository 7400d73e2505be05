/* statmount(2), listmount(2): mounts by their ids of 64 bits. */
#include "mounts.h"
#include <sys/sysmacros.h>

/* struct statmount; its strings begin behind it. */
static struct {
    uint32_t size, options;
    uint64_t mask;
    uint32_t major, minor;
    uint64_t magic;
    uint32_t sb_flags, type;
    uint64_t id, parent;
    uint32_t old_id, old_parent;
    uint64_t attributes, propagation, peers, master, from;
    uint32_t root, point;
    uint64_t ns;
    uint32_t subtype, source, array_count, array, security_count, security;
    uint64_t supported;
    uint32_t ids[4];
    uint64_t spare[43];
    char strings[16384];
} is;
enum { FIXED = 512, ALL = 0x7fff, STATMOUNT = 457, LISTMOUNT = 458 };
enum { SB_BASIC = 1, BASIC = 2, FROM = 4, ROOT = 8, POINT = 0x10, TYPE = 0x20, NS = 0x40, OPTIONS = 0x80, SUBTYPE = 0x100,
       SOURCE = 0x200, ARRAY = 0x400, SECURITY = 0x800, SUPPORTED = 0x1000 };
struct request { uint32_t size, spare; uint64_t id, param, ns; };
#define ROOT_OF_ALL UINT64_MAX

static int apart(void)
{
    return apart_with("ab");
}

static uint64_t id_of(const char *path, int mask)
{
    struct statx x;
    return statx(AT_FDCWD, path, 0, mask, &x) ? 0 : *(uint64_t *)((char *)&x + 0x90);
}

static uint64_t wide(const char *path)
{
    return id_of(path, 0x4000);
}

static long stat_mount(uint64_t id, uint64_t mask, void *to, size_t size)
{
    struct request request = { sizeof request, 0, id, mask, 0 };
    memset(&is, 0x55, sizeof is);
    return syscall(STATMOUNT, &request, to, size, 0);
}

static const char *end_of(const char *path)
{
    const char *end = strstr(path, "/m/t");
    return end ? end + 4 : path;
}

/* What all bits of the mask give for the mount of a path that stands in that of `below`. */
static void say_mount(const char *path, const char *below)
{
    struct stat st;
    say("%s", path);
    if (TN("statmount", stat_mount(wide(path), ALL, &is, sizeof is)) || stat(path, &st))
        return;
    const char *text = is.strings;
    say("  mask %llx, supported %d", (long long)is.mask, (is.supported & ALL) == ALL);
    say("  device %d, magic %llx, flags %x", makedev(is.major, is.minor) == st.st_dev, (long long)is.magic, is.sb_flags);
    say("  ids %d %d, parents %d %d", is.id == wide(path), is.old_id == id_of(path, STATX_MNT_ID),
        is.parent == wide(below), is.old_parent == id_of(below, STATX_MNT_ID));
    say("  attributes %llx, propagation %llx, peers %d, master %d, from %d", (long long)is.attributes,
        (long long)is.propagation, is.peers != 0, is.master != 0, is.from == is.master);
    if (is.mask & TYPE)
        say("  type %d %s", is.type, text + is.type);
    if (is.mask & ROOT)
        say("  root %s", end_of(text + is.root));
    if (is.mask & POINT)
        say("  point %s", end_of(text + is.point));
    if (is.mask & OPTIONS)
        say("  options %s", text + is.options);
    if (is.mask & ARRAY) {
        say("  array of %d", is.array_count);
        const char *one = text + is.array;
        for (unsigned i = 0; i < is.array_count; i++, one += strlen(one) + 1)
            say("    %s", one);
    }
    if (is.mask & SOURCE)
        say("  source %s", text + is.source);
    say("  subtype %d, security %d %d", is.subtype, is.security, is.security_count);
    say("  length %d", is.size - (int)strlen(text + is.point) * (is.mask & POINT ? 1 : 0));
    say("  first %d, last %d", text[0], text[is.size - FIXED - 1]);
}

GROUP(mounts, statmount)
{
    if (!apart())
        return;
    make_dir("a b");
    T(mount("na me,x", "a b", "tmpfs", MS_NOSUID | MS_NOATIME, "size=1m,mode=700,nr_inodes=20"));
    say_mount("a b", ".");
    make_dir("a b/sub");
    make("a b/file", "");
    T(mount("a b/sub", "b", NULL, MS_BIND, NULL));
    say_mount("b", ".");
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NODEV | MS_NOEXEC | MS_STRICTATIME | MS_NODIRATIME | MS_NOSYMFOLLOW, NULL));
    say_mount("b", ".");
    T(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RELATIME, NULL));
    T(mount(NULL, "a b", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    say_mount("b", ".");
    T(mount(NULL, "a b", NULL, MS_REMOUNT, NULL));
    T(mount("none", "a b/sub", "tmpfs", 0, NULL));
    say_mount("a b/sub", "a b");
    T(mount(NULL, "b", NULL, MS_SHARED, NULL));
    say_mount("b", ".");
    uint64_t peers = is.peers;
    T(mount("b", "a", NULL, MS_BIND, NULL));
    say_mount("a", ".");
    say("one group: %d", is.peers == peers);
    T(mount(NULL, "a", NULL, MS_SLAVE, NULL));
    say_mount("a", ".");
    say("its master: %d", is.master == peers);
    T(mount(NULL, "a", NULL, MS_SHARED, NULL));
    say_mount("a", ".");
    say("its master: %d, other peers: %d", is.master == peers, is.peers != peers);
    T(umount("a"));
    T(mount(NULL, "b", NULL, MS_UNBINDABLE, NULL));
    say_mount("b", ".");
    uint64_t gone = wide("b");
    T(umount("b"));
    T(stat_mount(gone, ALL, &is, sizeof is));
    T(mount("a b/file", ({ make("f", ""); "f"; }), NULL, MS_BIND, NULL));
    say_mount("f", ".");
    T(umount("f"));
    T(umount("a b/sub"));
    T(umount("a b"));
    make_dir("c");
    T(mount(NULL, "c", "tmpfs", 0, NULL));
    say_mount("c", ".");
    T(chdir("c"));
    T(umount2("../c", MNT_DETACH));
    T(stat_mount(wide("."), ALL, &is, sizeof is));
    T(chdir("/"));
}

GROUP(mounts, statmount_arguments)
{
    if (!apart())
        return;
    T(mount("source", "a", "tmpfs", 0, NULL));
    uint64_t a = wide("a");
    for (int bit = 0; bit < 16; bit++) {
        TN("one bit", stat_mount(a, 1u << bit, &is, sizeof is));
        say("  %x: mask %llx, size %d", 1 << bit, (long long)is.mask, is.mask & POINT ? 0 : is.size);
    }
    T(stat_mount(a, 0, &is, sizeof is));
    say("  mask %llx, size %d", (long long)is.mask, is.size);
    static const int sizes[] = { 0, 1, 4, 64, 511, 512, 513, 518, 519, 520 };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        TN("type", stat_mount(a, TYPE, &is, sizes[i]));
        say("  %d: size %x", sizes[i], is.size);
        TN("basic", stat_mount(a, BASIC, &is, sizes[i]));
        say("  %d: size %x, attributes %llx", sizes[i], is.size, (long long)is.attributes);
        if (sizes[i] > 511) {
            TN("subtype", stat_mount(a, SUBTYPE, &is, sizes[i]));
            say("  %d: size %x", sizes[i], is.size);
        }
    }
    T(stat_mount(a, BASIC, NULL, 0));
    T(stat_mount(a, BASIC, NULL, 512));
    T(stat_mount(a, TYPE, NULL, 512));
    T(stat_mount(a, TYPE, NULL, 513));
    T(stat_mount(a, TYPE, NULL, 5130));
    T(stat_mount(a, BASIC, (void *)-4096, 0));
    T(stat_mount(a, BASIC, (void *)-4096, 512));
    struct request at = { sizeof at, 0, a, BASIC, 0 };
    T(syscall(STATMOUNT, NULL, &is, sizeof is, 0));
    T(syscall(STATMOUNT, &at, &is, sizeof is, 1));
    T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    at.size = 24, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    at.size = 23, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    at.size = 0, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    at.size = 5000, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    struct { struct request at; uint64_t more[2]; } longer = { at, { 0, 1 } };
    longer.at.size = 40, T(syscall(STATMOUNT, &longer, &is, sizeof is, 0));
    longer.at.size = 48, T(syscall(STATMOUNT, &longer, &is, sizeof is, 0));
    at.size = sizeof at, at.ns = 5, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    at.ns = 0, at.id = 1, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    at.id = 1u << 31, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    at.id = ROOT_OF_ALL, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    at.id = 1ull << 60, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    /* The namespace, by its id. */
    T(stat_mount(a, NS, &is, sizeof is));
    uint64_t ns = is.ns;
    T(stat_mount(wide("/"), NS, &is, sizeof is));
    say("one namespace: %d", ns == is.ns);
    at.id = a, at.ns = ns, T(syscall(STATMOUNT, &at, &is, sizeof is, 0));
    say("  mask %llx", (long long)is.mask);
    CHILD {
        become_nobody();
        T(stat_mount(a, ALL, &is, sizeof is));
        say("  mask %llx", (long long)is.mask);
    }
    T(umount("a"));
}

static uint64_t ids[4096];
static long listed;

static long list(uint64_t of, uint64_t last, size_t count, int flags)
{
    struct request request = { sizeof request, 0, of, last, 0 };
    memset(ids, 0, sizeof ids);
    return listed = syscall(LISTMOUNT, &request, ids, count, flags);
}

/* Where an id is in the list. */
static long place(uint64_t id)
{
    for (long i = 0; i < listed; i++)
        if (ids[i] == id)
            return i;
    return -1;
}

GROUP(mounts, listmount)
{
    if (!apart())
        return;
    uint64_t root = wide("/"), base = wide(".");
    long before = list(ROOT_OF_ALL, 0, COUNT(ids), 0);
    say("the root %d, the test's %d", place(root) >= 0, place(base) > 0);
    T(mount("none", "a", "tmpfs", 0, NULL));
    make_dir("a/x");
    make_dir("a/x/y");
    T(mount("none", "a/x", "tmpfs", 0, NULL));
    make_dir("a/x/y");
    T(mount("a", "b", NULL, MS_BIND, NULL));
    T(mount("none", "a/x/y", "tmpfs", 0, NULL));
    T(mount("none", "b", "tmpfs", 0, NULL));
    uint64_t a = wide("a"), x = wide("a/x"), y = wide("a/x/y"), top = wide("b"), all[] = { a, x, y, top };
    say("more: %ld", list(ROOT_OF_ALL, 0, COUNT(ids), 0) - before);
    int rises = 1;
    for (long i = 1; i < listed; i++)
        rises &= ids[i] > ids[i - 1];
    long total = listed;
    say("rises %d, at the end %ld %ld %ld %ld", rises, total - place(a), total - place(x), total - place(y), total - place(top));
    /* In pieces. */
    long pieces = 0, calls = 0;
    uint64_t last = 0;
    while (list(ROOT_OF_ALL, last, 3, 0) > 0 && calls++ < 1000) {
        pieces += listed;
        last = ids[listed - 1];
    }
    say("in pieces: %d", pieces == total);
    for (size_t i = 0; i < COUNT(all); i++) {
        TN("from", list(ROOT_OF_ALL, all[i], COUNT(ids), 0));
        TN("from, one", list(ROOT_OF_ALL, all[i], 1, 0));
        TN("below, after the largest id", list(all[i], -1, COUNT(ids), 0));
        TN("below, before the largest id", list(all[i], -1, COUNT(ids), 1));
        TN("below", list(all[i], 0, COUNT(ids), 0));
        say("  %ld %ld %ld %ld", place(a), place(x), place(y), place(top));
        TN("below, backwards", list(all[i], 0, COUNT(ids), 1));
        say("  %ld %ld %ld %ld", place(a), place(x), place(y), place(top));
        say("backwards from there to the start: %d", list(ROOT_OF_ALL, all[i], COUNT(ids), 1) + (long)(i == 3 ? 1 : 2) <= total);
        TN("backwards, two", list(ROOT_OF_ALL, all[i], 2, 1));
        say("  falls %d", ids[0] > ids[1] && ids[0] < all[i]);
    }
    T(list(base, 0, COUNT(ids), 0));
    say("  %ld %ld %ld %ld", place(a), place(x), place(y), place(top));
    say("all below the root's: %d", list(root, 0, COUNT(ids), 0) == total - 1);
    list(ROOT_OF_ALL, 0, COUNT(ids), 1);
    say("backwards all: %d, first %d", listed == total, place(top) == 0 && place(a) == 4);
    say("backwards in pieces: %d", ({
        for (last = pieces = calls = 0; list(ROOT_OF_ALL, last, 3, 1) > 0 && calls++ < 1000; last = ids[listed - 1])
            pieces += listed;
        pieces == total;
    }));
    T(list(a, x, COUNT(ids), 0));
    T(list(a, y, COUNT(ids), 1));
    T(list(a, 0, 0, 0));
    T(list(a, 0, 1, 0));
    T(list(a, 1, 1, 0));
    T(list(a, 0, 1, 2));
    T(list(a, 0, 1000000, 0));
    T(list(a, 0, 1000001, 0));
    T(list(1, 0, 1, 0));
    T(list(1ull << 60, 0, 1, 0));
    struct request at = { sizeof at, 0, a, 0, 0 };
    T(syscall(LISTMOUNT, &at, NULL, 4, 0));
    T(syscall(LISTMOUNT, &at, NULL, 0, 0));
    T(syscall(LISTMOUNT, &at, (void *)-4096, 1, 0));
    T(syscall(LISTMOUNT, NULL, ids, 1, 0));
    at.size = 8, T(syscall(LISTMOUNT, &at, ids, 4, 0));
    at.size = 24, T(syscall(LISTMOUNT, &at, ids, 4, 0));
    at.ns = 5, T(syscall(LISTMOUNT, &at, ids, 4, 0));
    at.size = sizeof at, T(syscall(LISTMOUNT, &at, ids, 4, 0));
    stat_mount(a, NS, &is, sizeof is);
    at.ns = is.ns, T(syscall(LISTMOUNT, &at, ids, 4, 0));
    at.id = ROOT_OF_ALL, say("by the namespace's id: %d", syscall(LISTMOUNT, &at, ids, COUNT(ids), 0) == total);
    T(umount("b"));
    T(umount("b"));
    say("left: %ld", list(ROOT_OF_ALL, 0, COUNT(ids), 0) - before);
    T(umount2("a", MNT_DETACH));
    say("left: %ld", list(ROOT_OF_ALL, 0, COUNT(ids), 0) - before);
    T(list(a, 0, 4, 0));
}

/* Of a process whose root directory is in a mount: what is not below it is shown to the privileged. */
GROUP(mounts, ids_from_a_root)
{
    if (!apart())
        return;
    make_dir("a/r");
    T(mount("none", "a", "tmpfs", 0, NULL));
    make_dir("a/r");
    make_dir("a/s");
    T(mount("none", "a/r", "tmpfs", 0, NULL));
    make_dir("a/r/x");
    T(mount("none", "a/r/x", "tmpfs", 0, NULL));
    T(mount("none", "a/s", "tmpfs", 0, NULL));
    make_dir("b/r");
    make_dir("b/r/x");
    T(mount("none", "b/r/x", "tmpfs", 0, NULL));
    uint64_t all[] = { wide("/"), wide("."), wide("a"), wide("a/r"), wide("a/r/x"), wide("a/s"), wide("b/r/x"), 7, ROOT_OF_ALL };
    const char *roots[] = { "a", "a/r", "a/r/x", "b/r", "b/r/x" };
    for (size_t r = 0; r < COUNT(roots); r++)
        for (int user = 0; user < 2; user++)
            CHILD {
                T(chroot(roots[r]));
                if (user)
                    become_nobody();
                for (size_t i = 0; i < COUNT(all); i++) {
                    say("%s, %zu", roots[r], i);
                    /* How many there are besides is the host's affair. */
                    long count = list(all[i], 0, COUNT(ids), 0);
                    TN("listmount", i < 2 && count > 0 ? 1 : count);
                    say("  %d %d %d %d %d", place(all[2]) >= 0, place(all[3]) >= 0, place(all[4]) >= 0, place(all[5]) >= 0, place(all[6]) >= 0);
                    TN("statmount", stat_mount(all[i], BASIC, &is, sizeof is));
                }
            }
    T(umount2("a", MNT_DETACH));
    T(umount("b/r/x"));
}
