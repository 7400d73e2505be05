/*
 * A source tree's life: extract FILES files from a tar archive, put them under git, ask for its
 * status, read them all, look at them with du and find, copy the tree, remove it.
 *
 *     tree DIR SCRATCH FILES     SCRATCH: a host directory for the archive
 */
#include "bench.h"

enum { IN_DIRECTORY = 100 };

/* FILES files of 0.5 to 4.5 KiB, in directories of 100. */
static void make_source(const char *top, long files)
{
    char text[4608];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 64 == 63 ? '\n' : (char)('a' + i % 26);
    CHECK(mkdir(top, 0755) == 0);
    for (long i = 0; i < files; i++) {
        char *dir = in_dir(top, "dir%03ld", i / IN_DIRECTORY);
        if (i % IN_DIRECTORY == 0)
            CHECK(mkdir(dir, 0755) == 0);
        char *path = in_dir(dir, "file%05ld.c", i);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
        CHECK(fd >= 0);
        size_t size = 512 + (size_t)i * 37 % 4096;
        CHECK(dprintf(fd, "/* %ld */\n", i) > 0);
        CHECK(write(fd, text, size) == (ssize_t)size);
        close(fd);
        free(path);
        free(dir);
    }
}

/* The archive is the same for every file system: made once, by whoever comes first. */
static char *archive_of(const char *scratch, long files)
{
    char *archive = in_dir(scratch, "tree-%ld.tar", files);
    if (access(archive, R_OK) == 0)
        return archive;
    char *source = in_dir(scratch, "tree-%ld", files), *name;
    CHECK(asprintf(&name, "tree-%ld", files) > 0);
    make_source(source, files);
    char *partial = in_dir(scratch, "tree-%ld.tar.new", files);
    RUN("tar", "-cf", partial, "-C", (char *)scratch, name);
    CHECK(rename(partial, archive) == 0);
    RUN("rm", "-r", source);
    return archive;
}

static double median_of_three(const char *cwd, char *const argv[])
{
    double took[3];
    for (int i = 0; i < 3; i++)
        took[i] = run_in(cwd, NULL, argv).wall;
    return median(took, 3);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    char *dir = argv[1], *archive = archive_of(argv[2], number(argv[3])), *name;
    CHECK(asprintf(&name, "tree-%ld", number(argv[3])) > 0);
    char *tree = in_dir(dir, "%s", name), *copy = in_dir(dir, "copy");
    emit("tar_extract", "s", RUN("tar", "-xf", archive, "-C", dir).wall);
    RUN_IN(tree, "git", "init", "-q");
    emit("git_add", "s", RUN_IN(tree, "git", "add", ".").wall);
    RUN_IN(tree, "git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c",
           "gc.auto=0", "commit", "-q", "-m", "all");
    emit("git_status", "s", median_of_three(tree, (char *const[]){ "git", "status", NULL }));
    emit("grep_r", "s", median_of_three(tree, (char *const[]){ "grep", "-rc", "qrstu", "dir000", "dir001", "dir002", NULL }));
    emit("du", "s", median_of_three(dir, (char *const[]){ "du", "-s", tree, NULL }));
    emit("find", "s", median_of_three(dir, (char *const[]){ "find", tree, "-newer", archive, NULL }));
    emit("cp_r", "s", RUN("cp", "-r", tree, copy).wall);
    RUN("rm", "-rf", in_dir(tree, ".git"));
    RUN("rm", "-rf", copy);
    emit("rm_r", "s", RUN("rm", "-r", tree).wall);
    return 0;
}
