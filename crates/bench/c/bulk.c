/*
 * Sequential bulk I/O by the real dd: MIB mebibytes written and read with bs=1M, in MiB/s.
 *
 *     bulk DIR MIB
 */
#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    double mib = (double)number(argv[2]);
    char *of, *from, *count;
    CHECK(asprintf(&of, "of=%s/bulk", argv[1]) > 0);
    CHECK(asprintf(&from, "if=%s/bulk", argv[1]) > 0);
    CHECK(asprintf(&count, "count=%s", argv[2]) > 0);
    double wrote = RUN("dd", "if=/dev/zero", of, "bs=1M", count, "status=none").wall;
    double rewrote = RUN("dd", "if=/dev/zero", of, "bs=1M", count, "conv=notrunc", "status=none").wall;
    double read = RUN("dd", from, "of=/dev/null", "bs=1M", "status=none").wall;
    emit("dd_write_1m", "MiB/s", mib / wrote);
    emit("dd_rewrite_1m", "MiB/s", mib / rewrote);
    emit("dd_read_1m", "MiB/s", mib / read);
    CHECK(unlink(in_dir(argv[1], "bulk")) == 0);
    return 0;
}
