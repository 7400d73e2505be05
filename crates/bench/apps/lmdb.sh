# 10,000 x SIZE records loaded into a mapped B-tree, then dumped.
write_records() {
    awk -v n=$((SIZE * 10000)) 'BEGIN {
        print "VERSION=3\nformat=print\ntype=btree\nmapsize=268435456\nHEADER=END"
        for (i = 0; i < n; i++) printf " key%09d\n value %d of the records\n", (i * 7919) % n, i
        print "DATA=END"
    }' > "$1"
}
prepare() { once "records-$SIZE" write_records; mkdir db; }
work() { mdb_load -f "$SCRATCH/records-$SIZE" db; mdb_dump -p db > dump; }
result() { sha256sum dump; }
