/*
 * One application: SCRIPT's phases in a new directory of DIR. `prepare` is not timed, `work` is, and what
 * `result` prints goes to SCRATCH/result.
 *
 *     app DIR NAME SCRIPT SCRATCH SIZE     SCRATCH: a host directory for inputs
 */
#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    char *dir = in_dir(argv[1], "%s", argv[2]), *script = argv[3], *scratch = argv[4], *size = argv[5], *cpu;
    CHECK(mkdir(dir, 0755) == 0);
    RUN_IN(dir, "sh", script, "prepare", scratch, size);
    struct cost cost = RUN_IN(dir, "sh", script, "work", scratch, size);
    RUN_IN(dir, "sh", "-c", "sh \"$0\" result \"$1\" \"$2\" > \"$1/result\"", script, scratch, size);
    emit(argv[2], "s", cost.wall);
    CHECK(asprintf(&cpu, "%s_cpu", argv[2]) > 0);
    emit(cpu, "s", cost.user + cost.system);
    return 0;
}
