/*
 * The no-ACL workload (2009), in lmbench's manner: stat, and open with close, of a file that the
 * caller owns and of one that it does not. Only the second asks for the ACL.
 *
 *     acl DIR BATCH_MS
 *
 * Another owner takes root to arrange; without it the second pair is left out.
 */
#include "bench.h"

enum { SOMEBODY = 65533 };

static void measure(const char *path, const char *whose)
{
    struct stat st;
    char metric[64];
    snprintf(metric, sizeof metric, "stat_%s", whose);
    EMIT_US(metric, CHECK(stat(path, &st) == 0));
    snprintf(metric, sizeof metric, "open_close_%s", whose);
    EMIT_US(metric, {
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        close(fd);
    });
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    batch_ns = (uint64_t)number(argv[2]) * 1000000;
    char *dir = in_dir(argv[1], "acl"), *mine = in_dir(dir, "mine"), *theirs = in_dir(dir, "theirs");
    CHECK(mkdir(dir, 0755) == 0);
    close(make_file(mine, 4096));
    measure(mine, "owner");
    if (geteuid() == 0) {
        close(make_file(theirs, 4096));
        CHECK(chown(theirs, SOMEBODY, SOMEBODY) == 0);
        CHECK(chown(dir, SOMEBODY, SOMEBODY) == 0);
        measure(theirs, "other");
        CHECK(unlink(theirs) == 0);
    }
    CHECK(unlink(mine) == 0 && rmdir(dir) == 0);
    return 0;
}
