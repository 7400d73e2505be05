/*
 * Sequential bulk I/O by the real dd and cp: MIB mebibytes written, read with bs=1M and copied, in MiB/s. A
 * copy may share its source's content until it is written to, so one is also timed with a byte written to it.
 *
 *     bulk DIR MIB
 */
#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    double mib = (double)number(argv[2]);
    char *of, *from, *count, *to_copy;
    char *file = in_dir(argv[1], "bulk"), *copy = in_dir(argv[1], "copy");
    CHECK(asprintf(&of, "of=%s/bulk", argv[1]) > 0);
    CHECK(asprintf(&from, "if=%s/bulk", argv[1]) > 0);
    CHECK(asprintf(&count, "count=%s", argv[2]) > 0);
    CHECK(asprintf(&to_copy, "of=%s/copy", argv[1]) > 0);
    double wrote = RUN("dd", "if=/dev/zero", of, "bs=1M", count, "status=none").wall;
    double rewrote = RUN("dd", "if=/dev/zero", of, "bs=1M", count, "conv=notrunc", "status=none").wall;
    double read = RUN("dd", from, "of=/dev/null", "bs=1M", "status=none").wall;
    double copied = RUN("cp", file, copy).wall;
    double changed = RUN("dd", "if=/dev/zero", to_copy, "bs=1", "count=1", "conv=notrunc", "status=none").wall;
    emit("dd_write_1m", "MiB/s", mib / wrote);
    emit("dd_rewrite_1m", "MiB/s", mib / rewrote);
    emit("dd_read_1m", "MiB/s", mib / read);
    emit("cp", "MiB/s", mib / copied);
    emit("cp_write", "MiB/s", mib / (copied + changed));
    CHECK(unlink(file) == 0 && unlink(copy) == 0);
    return 0;
}
