//! Building and testing whole projects over their clean checkouts: what git says afterwards, and what an
//! apply leaves, against the same work without Lightpath.

mod trees;

use std::fs;
use std::process::Command;

use trees::{Trees, sh};

/// Makes a checkout of what is there.
const COMMIT: &str = "git init -q; git add -A; git -c user.name=n -c user.email=e commit -qm all";
/// Lists a tree but for git's own files: names, types, modes, links and content.
const BUILT: &str = r#"
export LC_ALL=C
find . -path ./.git -prune -o \( -type d -printf '%P %y %m\n' \) -o -printf '%P %y %m %s %n %l\n' | sort
find . -path ./.git -prune -o -type f -exec md5sum {} + | sort
"#;

const C: &str = r#"
set -e
mkdir src tests; printf '*.o\n*.d\n*.a\n/sum\n/out/\n/src/version.h\n/tests/run\n' > .gitignore
printf 'int sum(const int *of, int count);\n' > src/sum.h
cat > src/sum.c <<'F'
#include "sum.h"
int sum(const int *of, int count) { int all = 0; while (count--) all += *of++; return all; }
F
cat > src/main.c <<'F'
#include "sum.h"
#include "version.h"
#include <stdio.h>
int main(void) { int of[] = { 1, 2, 3 }; printf("%s %d\n", VERSION, sum(of, 3)); return 0; }
F
cat > tests/run.c <<'F'
#include "../src/sum.h"
#include <assert.h>
int main(void) { int of[] = { 4, 5 }; assert(sum(of, 2) == 9 && sum(of, 0) == 0); return 0; }
F
echo 1.2 > VERSION
cat > Makefile <<'F'
CFLAGS = -g -O1 -MMD
all: sum
src/version.h: VERSION
	printf '#define VERSION "%s"\n' "$$(cat VERSION)" > $@.new && mv $@.new $@
src/main.o: src/version.h
libsum.a: src/sum.o
	ar rcs $@ $^
sum: src/main.o libsum.a
	$(CC) -o $@ $^
tests/run: tests/run.o libsum.a
	$(CC) -o $@ $^
check: all tests/run
	./tests/run && ./sum | grep -q '1.2 6'
install: all
	install -d out/bin && install -m 755 sum out/bin/sum && ln -sf sum out/bin/add && ln out/bin/sum out/bin/plus
-include src/*.d
F
"#;

const RUST: &str = r#"
set -e
mkdir src tests; echo /target > .gitignore
printf '[package]\nname = "sum"\nversion = "1.2.0"\nedition = "2021"\n[workspace]\n' > Cargo.toml
cat > build.rs <<'F'
fn main() {
    let out = std::env::var("OUT_DIR").unwrap();
    std::fs::write(format!("{out}/made.rs"), "pub const MADE: u32 = 40;").unwrap();
    println!("cargo:rerun-if-changed=build.rs");
}
F
cat > src/lib.rs <<'F'
include!(concat!(env!("OUT_DIR"), "/made.rs"));
pub fn sum(of: &[u32]) -> u32 { of.iter().sum::<u32>() + MADE }
#[test]
fn nothing_is_what_was_made() { assert_eq!(sum(&[]), 40); }
F
printf 'fn main() { println!("{}", sum::sum(&[1, 1])); }\n' > src/main.rs
printf '#[test]\nfn sums() { assert_eq!(sum::sum(&[2]), 42); }\n' > tests/sums.rs
cargo generate-lockfile --offline 2> /dev/null
"#;

const WEB: &str = r#"
set -e
mkdir src test left; printf '/node_modules/\n/dist/\n' > .gitignore
cat > package.json <<'F'
{ "name": "page", "version": "1.2.0", "type": "commonjs", "bin": "src/index.js", "dependencies": { "left": "file:left" },
  "scripts": { "build": "node build.js", "test": "node --test test/" } }
F
printf '{ "name": "left", "version": "0.1.0", "main": "left.js", "bin": "left.js" }\n' > left/package.json
printf '#!/usr/bin/env node\nmodule.exports = (text, width) => text.padStart(width);\n' > left/left.js; chmod 755 left/left.js
printf 'const left = require("left");\nmodule.exports = name => `<p>${left(name, 6)}</p>`;\n' > src/index.js
cat > build.js <<'F'
const fs = require('fs'), page = require('./src/index.js');
fs.rmSync('dist', { recursive: true, force: true });
fs.cpSync('src', 'dist/src', { recursive: true });
fs.writeFileSync('dist/index.html', page('you'));
fs.symlinkSync('index.html', 'dist/start');
F
cat > test/page.js <<'F'
const test = require('node:test'), assert = require('node:assert'), page = require('../src/index.js');
test('page', () => assert.strictEqual(page('me'), '<p>    me</p>'));
F
export npm_config_cache=$PWD/../npm npm_config_update_notifier=false
npm install --offline --no-audit --no-fund --package-lock-only > /dev/null
"#;

/// Does `work` on a checkout of what `make` makes, on the host and over it.
fn compare(make: &str, work: &str) {
    let trees = Trees::new(&format!("{make}\n{COMMIT}"));
    sh(&trees.tree(), work);
    let built = sh(&trees.tree(), BUILT);
    fs::remove_dir_all(trees.tree()).unwrap();
    let copied = Command::new("cp").arg("-a").args([trees.copy(), trees.tree()]).status().unwrap();
    assert!(copied.success());

    trees.over(work);
    assert_eq!(trees.over(BUILT), built);
    assert_eq!(trees.over("git status --porcelain"), "");
    assert_eq!(sh(&trees.tree(), BUILT), sh(&trees.copy(), BUILT), "the host's tree was written to");
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), BUILT), built);
    assert_eq!(sh(&trees.tree(), "git status --porcelain"), "");
}

#[test]
fn make_builds_over_a_checkout() {
    compare(C, "make -j2 && make check install && make -q all && git status --porcelain");
}

#[test]
fn cargo_builds_over_a_checkout() {
    // What cargo notes for itself has times in it.
    let work = "unset CARGO_TARGET_DIR RUSTFLAGS; export CARGO_INCREMENTAL=0
        cargo build --offline -q && [ $(target/debug/sum) = 42 ] && cargo test --offline -q && cargo build --offline
        find target -name .fingerprint -prune -exec rm -r {} + ; rm target/.rustc_info.json";
    compare(RUST, work);
}

#[test]
fn npm_builds_over_a_checkout() {
    if Command::new("npm").arg("--version").output().is_err() {
        eprintln!("there is no npm");
        return;
    }
    let work = "export npm_config_cache=$PWD/../npm npm_config_update_notifier=false
        npm ci --offline --no-audit --no-fund && npm run build && npm test && test -e node_modules/.bin/left";
    compare(WEB, work);
}
