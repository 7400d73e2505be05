# Compilers and build tools at work in the mount.

project() {
    mkdir -p p/src p/include; cd p
    cat >include/shape.h <<'X'
#ifndef SHAPE_H
#define SHAPE_H
double area(double w, double h);
const char *name(void);
#endif
X
    cat >src/area.c <<'X'
#include "shape.h"
double area(double w, double h) { return w * h; }
X
    cat >src/name.c <<'X'
#include "shape.h"
const char *name(void) { return "shape"; }
X
    cat >src/main.c <<'X'
#include <stdio.h>
#include "shape.h"
int main(void) { printf("%s %.1f\n", name(), area(2, 3)); FILE *f = fopen("out.txt", "w"); fprintf(f, "written\n"); return fclose(f); }
X
    cat >Makefile <<'X'
CFLAGS = -O1 -Iinclude -MMD -g0
OBJS = build/main.o build/area.o build/name.o
app: $(OBJS)
	$(CC) -o $@ $^
build/%.o: src/%.c | build
	$(CC) $(CFLAGS) -c -o $@ $<
build:
	mkdir -p $@
lib.a: build/area.o build/name.o
	ar rcsD $@ $^
clean:
	rm -rf build app lib.a
-include $(OBJS:.o=.d)
.PHONY: clean
X
}

#:: gcc needs gcc
printf '#include <stdio.h>\nint main(int c,char**v){printf("hi %%d\\n",c);return c;}\n' >a.c; gcc -o a a.c; ./a; echo $?; ./a x; echo $?; gcc -c a.c; gcc -o b a.o; cmp a b; gcc -S a.c; gcc -E a.c | wc -l >/dev/null; gcc -pipe -O2 -o c a.c; ./c; gcc -save-temps -o d a.c; ls; echo 'int x = ;' >bad.c; gcc bad.c 2>&1 | grep -c error; gcc nosuch.c; echo $?; gcc -g -o g a.c; strip g -o gs; ./gs; objdump -d a.o | wc -l; nm a.o; size a.o | wc -l; readelf -h a | head -2; objcopy --only-keep-debug g g.debug; gcc -x c - -o e <a.c; ./e; echo $?; TMPDIR=$T gcc -o f a.c; gcc -flto -O2 -o l a.c; ./l; gcc -static-pie -o sp a.c 2>/dev/null; rm -f sp; gcc -fprofile-arcs -ftest-coverage -o cov a.c; ./cov; ls *.gc*; rm *.gc*; rm cov g g.debug gs d l

#:: gpp needs g++ limit 120
cat >a.cpp <<'X'
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>
namespace fs = std::filesystem;
int main() {
    fs::create_directories("d/e/f"); std::ofstream("d/e/f/x") << "content\n" << 42; std::ifstream in("d/e/f/x"); std::string s; while (std::getline(in, s)) std::cout << s << '\n';
    fs::copy("d", "copy", fs::copy_options::recursive); fs::rename("copy/e", "moved"); fs::create_symlink("d/e", "link"); std::cout << fs::read_symlink("link") << fs::file_size("d/e/f/x") << fs::exists("nosuch") << fs::equivalent("link", "d/e") << fs::is_symlink("link") << '\n';
    fs::resize_file("moved/f/x", 100); std::cout << fs::file_size("moved/f/x") << ' ' << fs::remove_all("copy") << '\n'; std::error_code e; fs::remove("d", e); std::cout << e.message() << '\n'; fs::permissions("moved/f/x", fs::perms::owner_read); fs::create_hard_link("moved/f/x", "hard"); std::cout << fs::hard_link_count("hard") << '\n';
    std::vector<std::thread> v; for (int i = 0; i < 16; i++) v.emplace_back([i] { std::ofstream("t" + std::to_string(i)) << std::string(i * 1000, 'x'); }); for (auto &t : v) t.join();
    int n = 0; for (auto &p : fs::recursive_directory_iterator(".")) n += p.is_regular_file(); std::cout << n << '\n'; std::fstream f("t1", std::ios::in | std::ios::out); f.seekp(5); f << "YY"; f.seekg(0); std::getline(f, s); std::cout << s.substr(0, 10) << '\n'; try { throw std::runtime_error("x"); } catch (std::exception &x) { std::cout << x.what() << '\n'; }
}
X
g++ -std=c++17 -g0 -o a a.cpp && ./a

#:: make needs gcc,make,ar limit 120
project; make -j2 2>&1 | sort; ./app; cat out.txt; make; touch -d '2030-01-01' include/shape.h; make 2>/dev/null | sort; touch include/shape.h; touch -d '2001-01-01' src/*.c include/*; make; echo; make lib.a | tail -1; ar t lib.a; gcc -Iinclude -o linked src/main.c lib.a; ./linked; echo 'broken' >>src/area.c; make 2>/dev/null | tail -1; make -k app >/dev/null 2>&1; echo $?; ls build; make clean; make -n | head -2; ls; make nosuch; echo $?; make -C src; echo $?; printf 'all:\n\t@echo $(wildcard src/*.c) $(shell ls include)\n\t@echo multi > m; cat m\n' >M; make -f M; make -f nosuch; echo $?

#:: shared_library needs gcc
cat >l.c <<'X'
#include <stdio.h>
int counter = 5;
int bump(void) { return ++counter; }
__attribute__((constructor)) static void up(void) { puts("loaded"); }
__attribute__((destructor)) static void down(void) { puts("unloaded"); }
X
cat >m.c <<'X'
#include <dlfcn.h>
#include <stdio.h>
int main(int c, char **v)
{
    void *h = dlopen(v[1], RTLD_NOW);
    if (!h) { printf("fails: %s\n", dlerror() ? "yes" : "no"); return 1; }
    int (*f)(void) = dlsym(h, "bump");
    printf("%d\n", f());
    printf("%d\n", f());
    dlclose(h);
    setvbuf(stdout, 0, _IONBF, 0);
    return 0;
}
X
cat >n.c <<'X'
#include <stdio.h>
int bump(void);
int main(void) { printf("linked %d\n", bump()); return 0; }
X
gcc -shared -fPIC -o libl.so l.c; gcc -o m m.c -ldl; ./m ./libl.so; ./m "$T/libl.so"; ./m libl.so; echo $?; ./m ./nosuch.so; echo $?; echo junk >junk.so; ./m ./junk.so; echo $?; gcc -o n n.c -L. -ll; nm n | grep -c bump; cp m "$OUT/m"; "$OUT/m" ./libl.so; mkdir d; mv libl.so d; ./m ./libl.so; echo $?; ln -s d/libl.so libl.so; ./m ./libl.so

#:: cargo needs cargo,gcc limit 300
mkdir -p c/src c/util/src; cd c; printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nutil = { path = "util" }\n[profile.dev]\ndebug = false\n' >Cargo.toml; printf '[package]\nname = "util"\nversion = "0.1.0"\nedition = "2021"\n' >util/Cargo.toml; echo 'pub fn twice(x: u32) -> u32 { 2 * x }' >util/src/lib.rs
cat >src/main.rs <<'X'
use std::{fs, io::{Read, Seek, SeekFrom, Write}, thread};
fn main() -> std::io::Result<()> {
    fs::create_dir_all("out/a/b")?;
    let mut f = fs::OpenOptions::new().read(true).write(true).create(true).open("out/f")?;
    f.write_all(b"hello world")?; f.seek(SeekFrom::Start(6))?; let mut s = String::new(); f.read_to_string(&mut s)?;
    println!("{s} {} {}", util::twice(21), f.metadata()?.len());
    let t: Vec<_> = (0..8).map(|i| thread::spawn(move || fs::write(format!("out/a/{i}"), vec![b'x'; i * 100]))).collect();
    for t in t { t.join().unwrap()?; }
    fs::copy("out/f", "out/g")?; fs::rename("out/g", "out/h")?; fs::hard_link("out/h", "out/i")?; std::os::unix::fs::symlink("h", "out/s")?;
    let mut n: Vec<_> = fs::read_dir("out/a")?.map(|e| e.unwrap().file_name()).collect(); n.sort(); println!("{n:?}");
    println!("{:?}", fs::read("nosuch").unwrap_err().kind()); fs::remove_dir_all("out/a")?;
    println!("{}", String::from_utf8(std::process::Command::new("cat").arg("out/s").output()?.stdout).unwrap());
    Ok(())
}
#[test]
fn works() { assert_eq!(util::twice(2), 4); }
X
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=1; cargo build -q --offline && ./target/debug/small; cargo test -q --offline 2>&1 | grep -c 'test result: ok'; touch src/main.rs; cargo build --offline 2>&1 | grep -c Compiling; cargo run -q --offline; echo 'broken' >>src/main.rs; cargo build -q --offline 2>/dev/null; echo $?; cargo clean -q 2>/dev/null; rm -rf target Cargo.lock

#:: tools_of_the_compiler needs gcc,make,perl limit 120
project; make -s; mkdir -p inst; install -D app inst/bin/app; inst/bin/app; tar czf ../p.tgz .; mv ../p.tgz .; mkdir u; tar xzf p.tgz -C u; make -s -C u; cmp app u/app; gcc -M -Iinclude src/main.c | head -1; make -j4 -s -B; make -q; echo $?; gcov --version >/dev/null; gdb --version >/dev/null 2>&1; rm p.tgz; cd ..; rm -r p
