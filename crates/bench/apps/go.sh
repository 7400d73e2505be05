# A small program built from a filled build cache, changed and built again.
export GOPATH="$PWD/path" GOCACHE="$PWD/cache" GOTOOLCHAIN=local GOFLAGS=-mod=mod
write_cache() {
    mkdir "$SCRATCH/go-first"
    (cd "$SCRATCH/go-first" && write_program first && GOCACHE="$1" go build -o program .)
    rm -r "$SCRATCH/go-first"
}
write_program() {
    printf 'module program\n\ngo 1.18\n' > go.mod
    printf 'package main\n\nimport (\n\t"encoding/json"\n\t"fmt"\n\t"net/http"\n)\n\nfunc main() {\n\ttext, _ := json.Marshal(http.MethodGet)\n\tfmt.Println(string(text), "%s")\n}\n' "$1" > main.go
}
prepare() {
    once go-cache write_cache
    cp -r "$SCRATCH/go-cache" cache
    write_program first
}
work() { for turn in 1 2 3; do write_program "turn $turn"; go build -o program .; done; }
result() { ./program; }
