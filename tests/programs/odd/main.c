/* odd [-b] FROM[+COUNT] STEPS [KEPT]: calls with odd arguments, each chosen by the seed and its own number,
 * so that any of them can be left out. Prints each call in C with its result behind it; two file systems that
 * agree print the same.
 *
 * Each of COUNT seeds gets a directory and processes of its own. KEPT lists the steps to make, separated by
 * commas: how tests/tests/odd.rs shrinks a sequence that differs. The host is read-only meanwhile, in a mount
 * namespace of the program's own, which takes root. The seeds take turns as who a sequence runs as (fence.c);
 * half of them have a second process (peer.c).
 *
 * With -b, one sequence works in the host directory in which the mount $M appears, as root: paths lead from
 * the host into the mount and back. Where $M is a directory, a tmpfs is mounted on it. In a third of these
 * sequences no step is made by a process that has met the mount. */
#include "odd.h"
#include <sys/mount.h>
#include <sys/wait.h>

static uint64_t seed;

static void make(unsigned number)
{
    begin_step(seed, number);
    unsigned kind = roll(112);
    if (kind < 20)
        opens();
    else if (kind < 39)
        names();
    else if (kind < 56)
        attributes();
    else if (kind < 63)
        xattrs();
    else if (kind < 79)
        data();
    else if (kind < 84)
        transfers();
    else if (kind < 86)
        maps();
    else if (kind < 90)
        locks();
    else if (kind < 99)
        descriptors();
    else if (kind < 100)
        programs();
    else if (kind < 108)
        older();
    else
        lists();
}

/* Links from the host into the mount and from there to the host. */
static void begin_beside(void)
{
    char full[sizeof base + 8];
    snprintf(full, sizeof full, "%s/b", base);
    DO(mkdir("m/a", 0777), "mkdir(\"m/a\", 0777)");
    put(4, DO(open("m/b", O_CREAT | O_RDWR, 0600), "f[4] = open(\"m/b\", O_CREAT | O_RDWR, 0600)"));
    DO(symlink("../a", "m/l"), "symlink(\"../a\", \"m/l\")");
    DO(symlink(full, "m/k"), "symlink(BASE \"/b\", \"m/k\")");
    DO(symlink("../m/a", "a/l"), "symlink(\"../m/a\", \"a/l\")");
    DO(symlink("../m/k", "a/k"), "symlink(\"../m/k\", \"a/k\")");
    DO(symlink("m/l", "c"), "symlink(\"m/l\", \"c\")");
    DO(symlink("m", "d"), "symlink(\"m\", \"d\")");
}

/* What every sequence starts from: without it, few names and descriptors would be there. Reads and writes
 * show in times that have been set. */
static void begin(void)
{
    DO(mkdir("a", 0755), "mkdir(\"a\", 0755)");
    DO(mkdir("a/d", 0777), "mkdir(\"a/d\", 0777)");
    put(0, DO(open("b", O_CREAT | O_RDWR, 0644), "f[0] = open(\"b\", O_CREAT | O_RDWR, 0644)"));
    put(1, DO(open("a", O_RDONLY), "f[1] = open(\"a\", O_RDONLY)"));
    put(2, DO(open("a/c", O_CREAT | O_RDWR, 0600), "f[2] = open(\"a/c\", O_CREAT | O_RDWR, 0600)"));
    put(3, DO(open("a", O_TMPFILE | O_RDWR, 0600), "f[3] = open(\"a\", O_TMPFILE | O_RDWR, 0600)"));
    DO(symlink("b", "l"), "symlink(\"b\", \"l\")");
    DO(symlink("a/d", "k"), "symlink(\"a/d\", \"k\")");
    fill();
    DO(write(f[0], buffer, 5000), "write(f[0], buffer, 5000)");
    if (is_beside)
        begin_beside();
    static const struct timespec past[2] = { { 10, 0 }, { 20, 0 } };
    static const char *all[] = { "a", "a/d", "b", "a/c", "l" };
    for (unsigned i = 0; i < COUNT(all); i++)
        DO(utimensat(AT_FDCWD, all[i], past, AT_SYMLINK_NOFOLLOW), "utimensat(AT_FDCWD, \"%s\", past, AT_SYMLINK_NOFOLLOW)", all[i]);
}

/* Whose turn a step is, in a sequence of two processes. */
static int falls_to_peer(unsigned number)
{
    begin_step(seed ^ 0x5eed, number);
    return roll(3) == 0;
}

int in_child(void (*work)(const void *), const void *of)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        work(of);
        _exit(0);
    }
    return child < 0 || waitpid(child, &status, 0) != child ? -1 : status;
}

static void begin_in_child(const void *unused)
{
    (void)unused;
    begin();
}

static void make_in_child(const void *number)
{
    make(*(const unsigned *)number);
}

/* What a process that has not met the mount does: each step is one of a child that has not either. */
static void begin_apart(void)
{
    in_child(begin_in_child, NULL);
    put(0, DO(open("b", O_RDWR), "f[0] = open(\"b\", O_RDWR)"));
    put(1, DO(open("a", O_RDONLY), "f[1] = open(\"a\", O_RDONLY)"));
}

static void make_apart(unsigned number)
{
    int status = in_child(make_in_child, &number);
    if (status)
        say(status, "a step's end");
}

static void run(unsigned steps, const char *kept)
{
    int apart = is_beside && seed % 3 == 0, two = !apart && seed / 5 % 2;
    if (apart)
        begin_apart();
    else
        begin();
    if (two && start_peer(make))
        exit(4);
    for (unsigned number = 0; number < steps; number++) {
        if (kept) {
            if (!*kept)
                break;
            char *end;
            number = strtoul(kept, &end, 10);
            kept = *end ? end + 1 : end;
        }
        if (two && falls_to_peer(number))
            let_peer(number);
        else if (apart)
            make_apart(number);
        else
            make(number);
    }
    end_peer();
}

/* Finds or makes the directory for one sequence, `base`, and that above it which may be changed. */
static int place(char *above)
{
    if (is_beside) {
        strcpy(base, getenv("M"));
        *strrchr(base, '/') = 0;
        strcpy(above, base);
        return chmod(base, 0777);
    }
    if (!getcwd(base, sizeof base))
        return -1;
    snprintf(base + strlen(base), 40, "/%lu", (unsigned long)seed);
    strcpy(above, base);
    strcat(base, "/w");
    return mkdir(above, 0755);
}

/* One sequence. */
static int sequence(unsigned steps, const char *kept)
{
    char above[sizeof base];
    int failed = place(above);
    printf("seed %lu\n", (unsigned long)seed), fflush(stdout);
    pid_t child = failed ? -1 : fork();
    if (child < 0)
        return 2;
    if (child == 0) {
        if (!is_beside && (mkdir(base, 0777) || chmod(base, 0777)))
            _exit(3);
        if (fence(above) || become(is_beside ? 0 : seed % 5))
            _exit(3);
        run(steps, kept);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    /* A mount that the kernel does not know is in every namespace. */
    if (!is_beside)
        umount2(above, MNT_DETACH);
    return status;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "-b"))
        is_beside = 1, argc--, argv++;
    if (argc < 3)
        return 2;
    if (geteuid() != 0)
        return 0;
    char *end;
    uint64_t from = strtoull(argv[1], &end, 10), count = *end == '+' ? strtoull(end + 1, NULL, 10) : 1;
    close_range(3, 200, 0);
    for (seed = from; seed < from + count; seed++) {
        int status = sequence(atoi(argv[2]), argc > 3 ? argv[3] : NULL);
        if (status)
            say(status, "the end of seed %lu", (unsigned long)seed);
    }
    return 0;
}
