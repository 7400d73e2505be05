/* Propagation of mounts and unmounts: MS_SHARED, MS_SLAVE, MS_PRIVATE, MS_UNBINDABLE
 * (mount_namespaces(7)). */
#include "mounts.h"

static int bind(const char *from, const char *to)
{
    return mount(from, to, NULL, MS_BIND, NULL);
}

static int rbind(const char *from, const char *to)
{
    return mount(from, to, NULL, MS_BIND | MS_REC, NULL);
}

static int type(const char *at, int flags)
{
    return mount(NULL, at, NULL, flags, NULL);
}

static int tmpfs(const char *at)
{
    return mount(at, at, "tmpfs", 0, NULL);
}

/* The letter of a peer group: the first that is shown is a. */
static char letter(const char *number, int *known)
{
    for (int i = 0; i < 20; i++) {
        if (!known[i])
            known[i] = atoi(number);
        if (known[i] == atoi(number))
            return 'a' + i;
    }
    return '?';
}

static int by_path(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* What /proc says of what is mounted below here: path, source, groups. */
static void tree(void)
{
    static char lines[100][256];
    int known[20] = { 0 }, count = 0;
    char line[4096];
    FILE *file = fopen("/proc/self/mountinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        char root[2048] = "", point[2048] = "", source[100] = "";
        sscanf(line, "%*s %*s %*s %2047s %2047s", root, point);
        sscanf(strstr(line, " - ") + 3, "%*s %99s", source);
        char *path = strstr(point, "/m/t/"), *word = strtok(line, " ");
        if (!path || count == 100)
            continue;
        path += 5;
        /* What shows the file system of the test itself. */
        int is_outer = !strcmp(source, "lightpath") || !strcmp(source, "tmpfs");
        int length = snprintf(lines[count], 256, "  %s (%s)", path, is_outer ? "outer" : source);
        for (int field = 0; word && field < 6; field++)
            word = strtok(NULL, " ");
        for (; word && strcmp(word, "-"); word = strtok(NULL, " ")) {
            char *colon = strchr(word, ':');
            if (colon)
                length += sprintf(lines[count] + length, " %.*s:%s", (int)(colon - word), word, colon + 1);
            else if (!strcmp(word, "unbindable"))
                length += sprintf(lines[count] + length, " unbindable");
        }
        count++;
    }
    fclose(file);
    qsort(lines, count, 256, by_path);
    for (int i = 0; i < count; i++) {
        char *number;
        while ((number = strpbrk(lines[i], ":")) && number[1]) {
            char *end = number + 1 + strspn(number + 1, "0123456789");
            number[0] = '=';
            number[1] = letter(number + 1, known);
            memmove(number + 2, end, strlen(end) + 1);
        }
        say("%s", lines[i]);
    }
}

static void list(const char *path)
{
    struct dirent **found;
    int count = scandir(path, &found, NULL, alphasort);
    if (count < 0)
        say("  list %s: %s", path, strerrorname_np(errno));
    for (int i = 0; i < count; i++)
        if (found[i]->d_name[0] != '.')
            say("  %s/%s", path, found[i]->d_name);
}

/* a, mounted on itself and shared, with x and y in it; b, c, d. */
static int start(void)
{
    if (!in_own_namespace())
        return 0;
    make_dir("a");
    make_dir("b");
    make_dir("c");
    make_dir("d");
    T(mount("fs", "a", "tmpfs", 0, NULL));
    make_dir("a/x");
    make_dir("a/x/deep");
    make_dir("a/y");
    make("a/file", "a file");
    T(type("a", MS_SHARED));
    return 1;
}

GROUP(mounts, peers)
{
    if (!start())
        return;
    T(bind("a", "b"));
    tree();
    T(tmpfs("a/x"));
    make("a/x/new", "new");
    list("b/x");
    tree();
    T(tmpfs("b/y"));
    T(bind("a", "c"));
    tree();
    T(rbind("b", "d"));
    tree();
    T(umount("c/x"));
    tree();
    T(umount("d"));
    T(umount2("d", MNT_DETACH));
    tree();
    T(umount("b/x"));
    T(umount("c"));
    T(umount("b"));
    tree();
    T(umount("a"));
}

GROUP(mounts, slaves)
{
    if (!start())
        return;
    T(bind("a", "b"));
    T(type("b", MS_SLAVE));
    T(bind("b", "c"));
    tree();
    T(tmpfs("a/x"));
    tree();
    T(tmpfs("b/y"));
    tree();
    T(type("c", MS_SHARED));
    T(bind("c", "d"));
    tree();
    T(tmpfs("a/y"));
    T(tmpfs("a/x/deep"));
    tree();
    T(umount("b/y"));
    tree();
    /* The last peer goes: its slaves lose their master. */
    T(umount("a/y"));
    T(umount("a/x"));
    tree();
    T(umount2("a", MNT_DETACH));
    tree();
    T(umount2("b", MNT_DETACH));
    T(umount2("c", MNT_DETACH));
    T(umount2("d", MNT_DETACH));
}

GROUP(mounts, slaves_of_slaves)
{
    if (!start())
        return;
    T(bind("a", "b"));
    T(type("b", MS_SLAVE));
    T(type("b", MS_SHARED));
    T(bind("b", "c"));
    T(type("c", MS_SLAVE));
    T(bind("b/x", "d"));
    T(type("d", MS_SHARED));
    tree();
    T(tmpfs("a/x"));
    tree();
    T(tmpfs("a/x/.."));
    T(bind("a/y", "a/x/../y"));
    T(rmdir("a/x/deep"));
    T(tmpfs("b/x/deep"));
    T(umount("a/x"));
    tree();
    T(tmpfs("a/x/deep"));
    tree();
    T(type("b", MS_PRIVATE));
    tree();
    T(umount("a/x/deep"));
    tree();
    T(umount2("a", MNT_DETACH));
    T(umount2("b", MNT_DETACH));
    T(umount2("c", MNT_DETACH));
    T(umount2("d", MNT_DETACH));
    T(umount2("a", MNT_DETACH));
    tree();
}

GROUP(mounts, types)
{
    if (!start())
        return;
    T(type("a/x", MS_SHARED));
    T(type("missing", MS_SHARED));
    T(type("a", MS_SHARED | MS_PRIVATE));
    T(type("a", MS_SHARED | MS_NODEV));
    T(tmpfs("a/x"));
    T(tmpfs("a/x/deep"));
    T(mkdir("a/x/deep", 0700));
    T(tmpfs("a/x/deep"));
    tree();
    T(type("a", MS_PRIVATE | MS_REC));
    tree();
    T(type("a/x", MS_UNBINDABLE));
    tree();
    T(bind("a/x", "b"));
    T(bind("a/x/deep", "b"));
    T(umount("b"));
    T(rbind("a", "b"));
    tree();
    T(umount("b"));
    T(type("a", MS_REC | MS_SHARED | MS_SILENT));
    tree();
    T(rbind("a", "b"));
    T(type("a", MS_REC | MS_SLAVE));
    tree();
    T(type("b", MS_REC | MS_SLAVE));
    tree();
    T(type("b", MS_REC | MS_PRIVATE));
    T(type("a", MS_REC | MS_UNBINDABLE));
    T(type("a", MS_REC | MS_SLAVE));
    tree();
    T(umount2("b", MNT_DETACH));
    T(umount2("a", MNT_DETACH));
}

GROUP(mounts, moves_of_shared)
{
    if (!start())
        return;
    T(bind("a", "b"));
    T(tmpfs("c"));
    make_dir("c/sub");
    T(tmpfs("c/sub"));
    /* Onto a shared one: copies, and all of them shared. */
    T(mount("c", "a/x", NULL, MS_MOVE, NULL));
    tree();
    list("b/x");
    /* Out of a shared one. */
    T(mount("a/x", "c", NULL, MS_MOVE, NULL));
    T(type("c", MS_PRIVATE));
    T(tmpfs("d"));
    T(type("d", MS_UNBINDABLE));
    T(mount("d", "a/y", NULL, MS_MOVE, NULL));
    T(type("d", MS_SHARED));
    T(bind("d", "c"));
    T(mount("d", "a/y", NULL, MS_MOVE, NULL));
    tree();
    T(mount("a", "b/y", NULL, MS_MOVE, NULL));
    T(mount("b", "b/x", NULL, MS_MOVE, NULL));
    T(umount2("a", MNT_DETACH));
    tree();
    T(umount2("b", MNT_DETACH));
    T(umount("c"));
    T(umount("d"));
    tree();
}

/* What comes by propagation goes below what is there. */
GROUP(mounts, below_others)
{
    if (!start())
        return;
    T(bind("a", "b"));
    T(type("b", MS_SLAVE));
    T(mount("upper", "b/x", "tmpfs", 0, NULL));
    make("b/x/upper", "");
    T(mount("lower", "a/x", "tmpfs", 0, NULL));
    make("a/x/lower", "");
    list("a/x");
    list("b/x");
    tree();
    T(mount("lowest", "a/x/..", "tmpfs", 0, NULL));
    T(umount("a"));
    T(umount("b/x"));
    list("b/x");
    T(mount("upper", "b/x", "tmpfs", 0, NULL));
    make("b/x/upper", "");
    tree();
    T(umount("a/x"));
    list("b/x");
    tree();
    T(umount("b/x"));
    list("b/x");
    tree();
    /* Something is mounted in what should go. */
    T(tmpfs("a/x"));
    make_dir("a/x/in");
    T(tmpfs("b/x/in"));
    T(umount("a/x"));
    list("b/x");
    tree();
    T(umount2("b", MNT_DETACH));
    T(umount("a"));
}

GROUP(mounts, busy_elsewhere)
{
    if (!start())
        return;
    T(bind("a", "b"));
    T(tmpfs("a/x"));
    make("a/x/f", "f");
    int fd = T(open("b/x/f", O_RDONLY));
    T(umount("a/x"));
    T(close(fd));
    fd = T(open("a/x/f", O_RDONLY));
    T(umount("b/x"));
    T(umount2("b/x", MNT_DETACH));
    contents("a/x/f");
    T(close(fd));
    tree();
    T(tmpfs("a/x"));
    T(mkdir("a/x/in", 0700));
    T(type("b/x", MS_PRIVATE));
    T(tmpfs("b/x/in"));
    fd = T(open("b/x", O_RDONLY));
    T(umount("a/x"));
    tree();
    T(close(fd));
    T(umount2("b", MNT_DETACH));
    T(umount2("a", MNT_DETACH));
}

GROUP(mounts, files_of_peers)
{
    if (!start())
        return;
    make("source", "mounted");
    T(link("a/file", "a/other"));
    T(bind("a", "b"));
    T(bind("b/x", "c"));
    T(bind("source", "a/file"));
    contents("b/file");
    contents("b/other");
    tree();
    T(bind("a/file", "source"));
    T(umount("b/file"));
    contents("a/file");
    tree();
    T(umount("source"));
    T(umount("c"));
    T(umount("b"));
    T(umount("a"));
}

/* A tree that is bound below itself: what propagated there goes with what it came with, and what stands on it
 * moves down. */
GROUP(mounts, bound_below_itself)
{
    if (!start())
        return;
    make_dir("a/x/one"), make_dir("a/x/two");
    T(type("a", MS_PRIVATE));
    T(bind("a/x", "a/x"));
    T(type("a/x", MS_SHARED | MS_REC));
    T(bind("a/x/one", "a/x/one"));
    T(bind("a/x/two", "a/x/two"));
    T(rbind("a/x", "a/x/two"));
    tree();
    T(umount("a/x/two/one"));
    T(umount("a/x/two/two"));
    T(umount("a/x/two"));
    T(umount("a/x"));
    T(umount("a/x/one"));
    T(umount("a/x"));
    T(umount("a/x"));
    T(umount2("a", MNT_DETACH));
}
