# A new cluster, and 100 x SIZE transactions on it.
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
as_user() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
prepare() {
    mkdir cluster
    if [ "$(id -u)" = 0 ]; then chmod 711 . ..; chown 65534:65534 cluster; fi
}
work() {
    cd cluster
    as_user initdb -D data -U bench --no-sync > /dev/null
    as_user pg_ctl -s -w -D data -l log -o "-k $PWD -h ''" start
    as_user pgbench -h "$PWD" -U bench -i -q postgres > /dev/null 2>&1
    as_user pgbench -h "$PWD" -U bench -t $((SIZE * 100)) postgres > /dev/null 2>&1
    as_user psql -h "$PWD" -U bench -At -c 'select count(*) from pgbench_history' postgres > ../count
    as_user pg_ctl -s -w -D data -m fast stop
}
result() { cat count; }
