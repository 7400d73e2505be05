# The same files compiled again through a filled cache.
export CCACHE_DIR="$PWD/cache" CCACHE_NOHASHDIR=1
prepare() {
    for i in $(seq $((SIZE * 10))); do
        printf '#include <stdio.h>\nint unit%s(void) { return puts("%s"); }\n' "$i" "$i" > "unit$i.c"
        ccache cc -O1 -c "unit$i.c"
    done
}
work() { for i in $(seq $((SIZE * 10))); do ccache cc -O1 -c "unit$i.c"; done; }
result() { sha256sum ./*.o; }
