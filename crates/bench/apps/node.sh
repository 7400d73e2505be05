# A program of 100 x SIZE modules, started five times.
prepare() {
    mkdir -p node_modules
    for i in $(seq $((SIZE * 100))); do
        mkdir "node_modules/m$i"
        printf '{"name":"m%s","version":"1.0.0","main":"lib/index.js"}\n' "$i" > "node_modules/m$i/package.json"
        mkdir "node_modules/m$i/lib"
        echo "module.exports = $i;" > "node_modules/m$i/lib/index.js"
    done
    printf 'let sum = 0;\nfor (let i = 1; i <= %s; i++) sum += require("m" + i);\nconsole.log(sum);\n' $((SIZE * 100)) > main.js
}
work() { for turn in 1 2 3 4 5; do node main.js; done > sums; }
result() { cat sums; }
