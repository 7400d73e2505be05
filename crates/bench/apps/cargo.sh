# A Rust program of 20 x SIZE modules, without dependencies.
prepare() {
    mkdir -p src
    printf '[package]\nname = "program"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml
    for i in $(seq $((SIZE * 20))); do
        printf 'pub fn unit(text: &str) -> Option<u32> {\n    text.parse::<u32>().ok().map(|n| n + %s)\n}\n' "$i" > "src/unit$i.rs"
        echo "mod unit$i;"
    done > src/main.rs
    {
        echo 'fn main() {'
        echo '    let mut sum = 0;'
        for i in $(seq $((SIZE * 20))); do echo "    sum += unit$i::unit(\"1\").unwrap_or(0);"; done
        echo '    println!("{sum}");'
        echo '}'
    } >> src/main.rs
}
work() { cargo build -q --offline; }
result() { target/debug/program; }
