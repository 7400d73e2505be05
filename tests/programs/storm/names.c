// Names that contain their inode's number, in directories that all workers change: every name must lead to
// its own inode.
#include "mixed.h"

static long made;

static void directory(int which, char *path)
{
    sprintf(path, "names.%d", which);
}

static void remove_own(int which)
{
    char path[64], name[400], inner[420], tail[16];
    directory(which, path);
    snprintf(tail, sizeof tail, ".p%d.", place);
    DIR *stream = opendir(path);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        char *found = strstr(entry->d_name, tail);
        if (!found || strchr("itld", entry->d_name[0]) == NULL)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == 'd') {
            snprintf(inner, sizeof inner, "%s/inner", name);
            rmdir(inner);
        }
        // Only the place's own worker removes it.
        if (entry->d_name[0] == 'd' ? rmdir(name) : unlink(name))
            bad("readdir lists %s, which cannot be removed: %s", name, strerror(errno));
    }
    if (stream)
        closedir(stream);
}

void names_begin(void)
{
    for (int i = 0; i < DIRECTORIES; i++) {
        char path[64];
        directory(i, path);
        mkdir(path, 0700);
        remove_own(i);
    }
}

// A file whose content and names contain its inode's number.
static void make_named(void)
{
    char path[64], other[64], temporary[128], name[128], second[128];
    struct stat status;
    directory(below(DIRECTORIES), path);
    directory(below(DIRECTORIES), other);
    made++;
    snprintf(temporary, sizeof temporary, "%s/t.p%d.%ld", path, place, made);
    int file = open(temporary, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || fstat(file, &status)) {
        bad("open(%s, O_CREAT | O_EXCL): %s", temporary, strerror(errno));
        return;
    }
    uint64_t inode = status.st_ino;
    pwrite(file, &inode, sizeof inode, 0);
    // A third of the names are long.
    snprintf(name, sizeof name, "%s/i%s.%lu.p%d.%ld", other, made % 3 ? "" : "------------------------------",
             inode, place, made);
    snprintf(second, sizeof second, "%s/l.%lu.p%d.%ld", path, inode, place, made);
    if (rename(temporary, name) || link(name, second) || fstat(file, &status) || status.st_nlink != 2)
        bad("%s: rename and link: %s, %ld links", name, strerror(errno), (long)status.st_nlink);
    if (below(4)) {
        if (unlink(name) || fstat(file, &status) || status.st_nlink != 1)
            bad("unlink(%s): %s, %ld links", name, strerror(errno), (long)status.st_nlink);
        if (below(4) && (unlink(second) || fstat(file, &status) || status.st_nlink != 0))
            bad("unlink(%s): %s, %ld links", second, strerror(errno), (long)status.st_nlink);
    }
    close(file);
}

static void move_directory(void)
{
    char path[64], other[64], name[128], moved[128], inner[160];
    directory(below(DIRECTORIES), path);
    directory(below(DIRECTORIES), other);
    made++;
    snprintf(name, sizeof name, "%s/d.p%d.%ld", path, place, made);
    snprintf(moved, sizeof moved, "%s/d.p%d.%ld.moved", other, place, made);
    snprintf(inner, sizeof inner, "%s/inner", moved);
    if (mkdir(name, 0700) || rename(name, moved) || mkdir(inner, 0700) || rmdir(inner) || rmdir(moved))
        bad("a directory cannot be moved from %s to %s: %s", path, other, strerror(errno));
}

static void check_named(const char *path, const char *entry)
{
    char name[400];
    struct stat status;
    uint64_t inode = 0, said = strtoul(strchr(entry, '.') + 1, NULL, 10);
    snprintf(name, sizeof name, "%s/%s", path, entry);
    int file = open(name, O_RDONLY);
    if (file < 0) {
        if (errno != ENOENT)
            bad("open(%s): %s", name, strerror(errno));
        return;
    }
    if (fstat(file, &status) || status.st_ino != said || pread(file, &inode, 8, 0) != 8 || inode != said)
        bad("%s is inode %ld and says %ld", name, (long)status.st_ino, (long)inode);
    close(file);
    storm->checks++;
}

static void check_directory(void)
{
    char path[64];
    directory(below(DIRECTORIES), path);
    DIR *stream = opendir(path);
    if (!stream) {
        bad("opendir(%s): %s", path, strerror(errno));
        return;
    }
    for (struct dirent *entry; (entry = readdir(stream));)
        if (strchr("il", entry->d_name[0]) && below(4) == 0)
            check_named(path, entry->d_name);
    closedir(stream);
}

void names_turn(void)
{
    for (int i = 0; i < 3; i++)
        make_named();
    move_directory();
    check_directory();
    if (made % 16 == 0)
        for (int i = 0; i < DIRECTORIES; i++)
            remove_own(i);
}

// Everything that the place's worker created is gone once it has removed what directories list.
void names_end(void)
{
    for (int i = 0; i < DIRECTORIES; i++)
        remove_own(i);
}
