// Processes mount, bind, move, remount and unmount, each in a directory of its own, while others of them are
// stopped and killed anywhere in it. The others go on, and what a killed one leaves can be taken out.
#include "storm.h"
#include <sys/mount.h>

enum { WORKERS = 5 };

static count *turns;
static const char *const points[] = {"a", "b", "c"};

static void must(int result, const char *what)
{
    if (result)
        bad("%s: %s", what, strerror(errno));
}

static void take_out(void)
{
    for (int i = 0; i < 3; i++)
        while (!umount2(points[i], MNT_DETACH))
            ;
}

static void turn(void)
{
    struct stat one, two;
    must(mount("storm", "a", "tmpfs", 0, "size=1m"), "a new file system");
    close(make("a/f"));
    must(mount("a", "b", NULL, MS_BIND, NULL), "a bind mount");
    if (stat("a/f", &one) || stat("b/f", &two) || one.st_ino != two.st_ino || one.st_dev != two.st_dev)
        bad("a bind mount shows something else");
    must(mount("b", "c", NULL, MS_MOVE, NULL), "a move");
    if (!stat("b/f", &two) || stat("c/f", &two) || one.st_ino != two.st_ino)
        bad("a moved mount is not where it was moved");
    must(mount(NULL, "c", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), "a remount");
    if (open("c/g", O_RDWR | O_CREAT, 0600) >= 0 || errno != EROFS)
        bad("a mount that is read-only takes a file");
    close(make("a/g"));
    must(umount2("c", 0), "umount of a bind mount");
    must(umount2("a", 0), "umount of a file system");
    if (!stat("a/f", &one))
        bad("a mount is there after its end");
}

// A mount in a shared one is in its peer too, and leaves it with the other.
static void peers(void)
{
    struct stat one, two;
    must(mount("storm", "a", "tmpfs", 0, "size=1m"), "a file system to share");
    must(mount(NULL, "a", NULL, MS_SHARED, NULL), "to share it");
    must(mkdir("a/in", 0700), "a directory");
    must(mount("a", "b", NULL, MS_BIND, NULL), "a peer");
    must(mount("storm", "b/in", "tmpfs", 0, "size=64k"), "a mount in a peer");
    if (stat("a/in", &one) || stat("b/in", &two) || one.st_dev != two.st_dev || one.st_ino != two.st_ino)
        bad("a mount in a peer is in one only");
    must(umount2("a/in", 0), "umount in a peer");
    if (stat("b/in", &two) || two.st_dev == one.st_dev)
        bad("an unmount in a peer leaves the other");
    must(mount(NULL, "b", NULL, MS_SLAVE, NULL), "a slave");
    must(umount2("b", 0), "umount of a slave");
    must(umount2("a", 0), "umount of its master");
}

static void work(long which)
{
    char name[16];
    sprintf(name, "w%ld", which);
    if (chdir(name))
        _exit(1);
    take_out();
    for (;; turns[which]++) {
        turn();
        peers();
    }
}

static long mounted(void)
{
    char line[4096];
    long lines = 0;
    FILE *table = fopen("/proc/self/mounts", "r");
    while (table && fgets(line, sizeof line, table))
        lines += strstr(line, dir) != NULL;
    if (table)
        fclose(table);
    return lines;
}

// Waits until a worker has made two turns more.
static void goes_on(int which, const pid_t *workers, const char *who)
{
    long before = turns[which];
    for (double end = now() + PATIENCE; turns[which] < before + 2; nap(200))
        if (now() > end) {
            figures->hung++;
            fprintf(stderr, "hung: %s\n", who);
            show(workers[which]);
            return;
        }
}

// Kills a worker and has another take its place. Whoever buries the dead holds the locks of what it was
// changing: none is stopped before the next has passed them.
static void replace(int which, pid_t *workers)
{
    finish(workers[which]);
    workers[which] = start(work, which);
    goes_on(which, workers, "the successor of a killed process");
}

void mounts(void)
{
    long tries = number("tries", 100), kills = 0;
    pid_t workers[WORKERS];
    char name[16];
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        bad("no mounts of its own: %s", strerror(errno));
    long before = mounted();
    turns = shared(WORKERS * sizeof *turns);
    for (int i = 0; i < WORKERS; i++) {
        sprintf(name, "w%d", i);
        mkdir(name, 0700);
        for (int point = 0; point < 3; point++) {
            sprintf(name, "w%d/%s", i, points[point]);
            mkdir(name, 0700);
        }
        workers[i] = start(work, i);
    }
    for (long try = 0; try < tries && figures->hung < 5; try++) {
        int which = below(WORKERS);
        nap(below(3000));
        if (below(2)) {
            replace(which, workers), kills++;
            continue;
        }
        kill(workers[which], SIGSTOP);
        settle(workers[which]);
        for (int other = 0; other < WORKERS; other++)
            if (other != which)
                goes_on(other, workers, "beside a process stopped as it mounts, one that mounts elsewhere");
        if (below(4) == 0)
            replace(which, workers), kills++;
        else
            kill(workers[which], SIGCONT);
    }
    for (int i = 0; i < WORKERS; i++) {
        finish(workers[i]);
        sprintf(name, "w%d", i);
        must(chdir(name), "chdir");
        take_out();
        must(chdir(".."), "chdir");
    }
    if (mounted() != before)
        bad("%ld mounts are left of %ld", mounted(), before);
    clean_up(".", "/");
    printf(" tries=%ld kills=%ld turns=%ld", tries, kills, (long)turns[0]);
}
