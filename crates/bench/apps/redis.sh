# 4,000 x SIZE writes, 16 at a time, each synced to the append-only file.
prepare() { :; }
work() {
    redis-server --port 0 --unixsocket "$PWD/socket" --dir "$PWD" --save '' --appendonly yes --appendfsync always > log &
    server=$!
    until redis-cli -s socket ping > /dev/null 2>&1; do sleep 0.01; done
    redis-benchmark -s socket -n $((SIZE * 4000)) -P 16 -c 4 -t incr -q > /dev/null
    redis-cli -s socket --raw get counter:__rand_int__ > counter
    redis-cli -s socket shutdown nosave
    wait $server
}
result() { cat counter; grep -c -a -i '^incr' appendonlydir/*.incr.aof; }
