/*
 * A small build: UNITS C files compiled and linked by the host's cc, sources, objects and program
 * all in DIR; the program is then run.
 *
 *     build DIR UNITS
 */
#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    char *dir = in_dir(argv[1], "build");
    long units = number(argv[2]);
    CHECK(mkdir(dir, 0755) == 0);
    FILE *header = fopen(in_dir(dir, "all.h"), "w"), *driver = fopen(in_dir(dir, "main.c"), "w");
    FILE *makefile = fopen(in_dir(dir, "build.sh"), "w");
    CHECK(header && driver && makefile);
    fprintf(header, "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    fprintf(driver, "#include \"all.h\"\nint main(void) { int sum = 0;\n");
    fprintf(makefile, "set -e\n");
    for (long i = 0; i < units; i++) {
        FILE *unit = fopen(in_dir(dir, "unit%ld.c", i), "w");
        CHECK(unit != NULL);
        fprintf(unit, "#include \"all.h\"\nint unit%ld(void) { return atoi(\"%ld\"); }\n", i, i);
        CHECK(fclose(unit) == 0);
        fprintf(header, "int unit%ld(void);\n", i);
        fprintf(driver, "sum += unit%ld();\n", i);
        fprintf(makefile, "cc -O1 -c unit%ld.c -o unit%ld.o\n", i, i);
    }
    fprintf(driver, "return sum != %ld; }\n", units * (units - 1) / 2);
    fprintf(makefile, "cc -O1 -c main.c -o main.o\ncc *.o -o program\n./program\n");
    CHECK(fclose(header) == 0 && fclose(driver) == 0 && fclose(makefile) == 0);
    emit("cc_build", "s", RUN_IN(dir, "sh", "build.sh").wall);
    RUN("rm", "-r", dir);
    return 0;
}
