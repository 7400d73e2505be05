/*
 * The attribute workload (2011): COUNT fstat calls on an open file, and `du` of a tree of FILES
 * files: the first time, and the median of three once everything is hot.
 *
 *     fstat DIR COUNT FILES
 */
#include "bench.h"

enum { FANOUT = 316 };

static void fstat_many(const char *dir, long count)
{
    char *path = in_dir(dir, "fstatfile");
    int fd = make_file(path, 4096);
    struct stat st;
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++)
        CHECK(fstat(fd, &st) == 0);
    double took = seconds_since(start);
    CHECK(st.st_size == 4096);
    emit("fstat_many", "s", took);
    close(fd);
    CHECK(unlink(path) == 0);
}

static void du_tree(const char *dir, long files)
{
    char *top = in_dir(dir, "tree");
    CHECK(mkdir(top, 0755) == 0);
    uint64_t start = now_ns();
    for (long i = 0; i < files; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/d%03ld", top, i / FANOUT);
        if (i % FANOUT == 0)
            CHECK(mkdir(path, 0755) == 0);
        snprintf(path + length, sizeof path - (size_t)length, "/f%03ld", i % FANOUT);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
        CHECK(fd >= 0);
        close(fd);
    }
    emit("create_tree", "s", seconds_since(start));
    emit("du_first", "s", RUN("du", "-s", top).wall);
    double hot[3];
    for (int i = 0; i < 3; i++)
        hot[i] = RUN("du", "-s", top).wall;
    emit("du_hot", "s", median(hot, 3));
    emit("rm_tree", "s", RUN("rm", "-r", top).wall);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    fstat_many(argv[1], number(argv[2]));
    du_tree(argv[1], number(argv[3]));
    return 0;
}
