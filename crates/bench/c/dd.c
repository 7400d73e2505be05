/*
 * The 2003 workload (descriptor lookup): `dd if=/dev/zero of=foo bs=1 count=COUNT`, the real dd.
 *
 *     dd DIR COUNT
 *
 * The historical figure is system time; where calls are answered in process the work moves to
 * user time, so both are given, and the wall clock.
 */
#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    char *of, *count;
    CHECK(asprintf(&of, "of=%s/foo", argv[1]) > 0);
    CHECK(asprintf(&count, "count=%ld", number(argv[2])) > 0);
    struct cost cost = RUN("dd", "if=/dev/zero", of, "bs=1", count, "status=none");
    struct stat st;
    CHECK(stat(in_dir(argv[1], "foo"), &st) == 0);
    if (st.st_size != number(argv[2])) {
        fprintf(stderr, "dd wrote %lld bytes\n", (long long)st.st_size);
        return 1;
    }
    emit("dd_wall", "s", cost.wall);
    emit("dd_system", "s", cost.system);
    emit("dd_cpu", "s", cost.user + cost.system);
    CHECK(unlink(in_dir(argv[1], "foo")) == 0);
    return 0;
}
