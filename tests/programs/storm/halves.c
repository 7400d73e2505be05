// A call of a killed process either was made or was not, once waitpid(2) has returned, whatever is queried,
// by whichever thread of the process that waited, and whatever other processes write meanwhile.
#include "storm.h"
#include <semaphore.h>

enum { NAMES = 6 };

static void name_of(int which, char *name)
{
    // Short names are stored in the entry, long ones outside it.
    sprintf(name, "%s%d", which % 2 ? "a-name-that-is-too-long-for-an-entry-" : "n", which);
}

static void change_here(long unused)
{
    char one[64], two[64];
    for (;;) {
        name_of(below(NAMES), one);
        name_of(below(NAMES), two);
        switch (below(6)) {
        case 0:
            close(open(one, O_RDWR | O_CREAT, 0600));
            break;
        case 1:
            link(one, two);
            break;
        case 2:
            rename(one, two);
            break;
        case 3:
            mkdir("d", 0700);
            rmdir("d");
            break;
        default:
            unlink(one);
        }
    }
}

static void change(long unused)
{
    if (chdir("halves"))
        _exit(1);
    change_here(0);
}

// The possible queries of the directory.
struct view {
    long inode[NAMES], links[NAMES], listed[NAMES], directory_links, entries;
    int is_directory;
};

static void look(struct view *view)
{
    char name[64];
    struct stat status;
    memset(view, 0, sizeof *view);
    for (int i = 0; i < NAMES; i++) {
        name_of(i, name);
        if (!lstat(name, &status))
            view->inode[i] = status.st_ino, view->links[i] = status.st_nlink;
    }
    view->is_directory = !lstat("d", &status);
    DIR *stream = opendir(".");
    for (struct dirent *entry; (entry = readdir(stream)); view->entries++)
        for (int i = 0; i < NAMES; i++) {
            name_of(i, name);
            if (!strcmp(entry->d_name, name))
                view->listed[i] = entry->d_ino;
        }
    closedir(stream);
    stat(".", &status);
    view->directory_links = status.st_nlink;
}

static void check(const struct view *view, const char *when)
{
    long present = 2;
    for (int i = 0; i < NAMES; i++) {
        long names = 0;
        for (int j = 0; j < NAMES; j++)
            names += view->inode[i] && view->inode[j] == view->inode[i];
        if (view->inode[i] != view->listed[i])
            bad("%s: lstat of name %d gives inode %ld, readdir %ld", when, i, view->inode[i], view->listed[i]);
        if (view->links[i] != names)
            bad("%s: inode %ld has %ld links and %ld names", when, view->inode[i], view->links[i], names);
        present += view->inode[i] != 0;
    }
    if (view->entries != present + view->is_directory)
        bad("%s: %ld entries, %ld names", when, view->entries, present + view->is_directory);
    if (view->directory_links != 2 + view->is_directory)
        bad("%s: the directory has %ld links, and %d directories in it", when, view->directory_links,
            view->is_directory);
}

// Kills a child and waits for it by one of the two calls.
static void end(pid_t child, int by_id)
{
    siginfo_t info;
    if (!by_id)
        return finish(child);
    kill(child, SIGKILL);
    waitid(P_PID, child, &info, WEXITED);
}

// Another thread, which looks when told.
static sem_t asked, answered;
static struct view *wanted;

static void *looker(void *unused)
{
    for (;;) {
        sem_wait(&asked);
        if (!wanted)
            return NULL;
        look(wanted);
        sem_post(&answered);
    }
}

static void look_in_thread(struct view *view)
{
    wanted = view;
    sem_post(&asked);
    sem_wait(&answered);
}

static void kill_and(void (*first_look)(struct view *))
{
    long kills = number("kills", 2000), changed = 0;
    mkdir("halves", 0700);
    int inside = open("halves", O_RDONLY | O_DIRECTORY);
    for (long i = 0; i < kills; i++) {
        pid_t victim = start(change, i);
        nap(300 + below(700));
        end(victim, i & 1);
        struct view before, after;
        fchdir(inside);
        first_look(&before);
        check(&before, "after a kill");
        // Another process that changes something else.
        close(make("else"));
        unlink("else");
        look(&after);
        check(&after, "after a kill and a change by another");
        if (memcmp(&before, &after, sizeof before)) {
            changed++;
            bad("kill %ld: names changed after their changer was gone", i);
        }
        for (int name = 0; name < NAMES; name++) {
            char text[64];
            name_of(name, text);
            if ((symlink("nowhere", text) == 0) != !after.inode[name])
                bad("kill %ld: lstat and symlink do not agree on name %d", i, name);
            if (!after.inode[name])
                unlink(text);
        }
        chdir("..");
    }
    fchdir(inside);
    for (int name = 0; name < NAMES; name++) {
        char text[64];
        name_of(name, text);
        unlink(text);
    }
    rmdir("d");
    chdir("..");
    close(inside);
    if (rmdir("halves"))
        bad("rmdir of an emptied directory: %s", strerror(errno));
    printf(" kills=%ld changed_later=%ld", kills, changed);
}

void halves(void)
{
    kill_and(look);
}

void halves_threads(void)
{
    pthread_t thread;
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    pthread_create(&thread, NULL, looker, NULL);
    kill_and(look_in_thread);
    wanted = NULL;
    sem_post(&asked);
    pthread_join(thread, NULL);
}

static void enter(long make)
{
    if (make && mkdir(dir, 0700) && errno != EEXIST || chdir(dir)) {
        bad("%s: %s", dir, strerror(errno));
        _exit(1);
    }
}

static void change_there(long unused)
{
    enter(0);
    change_here(0);
}

static void look_there(long unused)
{
    struct view before, after;
    enter(0);
    look(&before);
    check(&before, "after a kill");
    // Others write meanwhile.
    close(make("else"));
    unlink("else");
    look(&after);
    if (memcmp(&before, &after, sizeof before))
        bad("names changed after their changer was gone");
}

static void leave_there(long unused)
{
    clean_up(dir, "-");
}

static void in_child(void (*work)(long), long argument)
{
    pid_t child = start(work, argument);
    waitpid(child, NULL, 0);
}

// The process that waits never uses the file system; those that look have just begun to.
void halves_apart(void)
{
    long kills = number("kills", 2000);
    in_child(enter, 1);
    for (long i = 0; i < kills; i++) {
        pid_t victim = start(change_there, i);
        nap(500 + below(1000));
        end(victim, i & 1);
        in_child(look_there, 0);
    }
    in_child(leave_there, 0);
    printf(" kills=%ld", kills);
}
