# 1,000 x SIZE transactions, each with its own journal.
write_inserts() {
    awk -v n=$((SIZE * 1000)) 'BEGIN {
        print "create table t(id integer primary key, name text, value real);"
        for (i = 0; i < n; i++) printf "insert into t(name, value) values(\047name %d\047, %d.5);\n", i, i % 1000
    }' > "$1"
}
prepare() { once "inserts-$SIZE.sql" write_inserts; }
work() { sqlite3 test.db < "$SCRATCH/inserts-$SIZE.sql"; }
result() { sqlite3 test.db .dump; }
