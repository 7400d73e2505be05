/*
 * COUNT autocommit inserts by the sqlite3 command: each is a transaction with its own rollback
 * journal, created, written, synced and deleted.
 *
 *     sqlite DIR SCRATCH COUNT     SCRATCH: a host directory for the script
 */
#include "bench.h"

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    char *script = in_dir(argv[2], "inserts.%d.sql", (int)getpid());
    char *database = in_dir(argv[1], "test.db");
    long count = number(argv[3]);
    FILE *out = fopen(script, "w");
    CHECK(out != NULL);
    fprintf(out, "create table t(id integer primary key, name text, value real);\n");
    for (long i = 0; i < count; i++)
        fprintf(out, "insert into t(name, value) values('name %ld', %ld.5);\n", i, i % 1000);
    CHECK(fclose(out) == 0);
    struct cost cost = run_in(NULL, script, (char *const[]){ "sqlite3", database, NULL });
    CHECK(unlink(script) == 0);
    CHECK(unlink(database) == 0);
    emit("sqlite_autocommit", "s", cost.wall);
    return 0;
}
