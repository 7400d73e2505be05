//! Programs of a host tree: what nobody has touched is executed from the host's file, all else from the
//! session, and a program cannot tell one from the other.

mod trees;

use std::fs;
use std::os::unix::fs::MetadataExt;

use trees::{Trees, sh};

/// A dynamic, a static and a large program that say what they are.
const MAKE: &str = r#"
cat > who.c <<'F'
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
#ifdef LARGE
char large[5 << 20] = { 1 };
#endif
int main(int argc, char **argv) {
    char exe[4096] = "", comm[64] = "";
    if (readlink("/proc/self/exe", exe, sizeof exe - 1) < 0) perror("exe");
    FILE *file = fopen("/proc/self/comm", "r");
    if (!file || !fgets(comm, sizeof comm, file)) perror("comm");
    printf("%s %s %s %s %d\n", strrchr(exe, '/'), comm, (char *) getauxval(AT_EXECFN), argv[0], access("/proc/self/exe", X_OK));
    fflush(stdout);
    if (argc > 1) { char byte; return read(0, &byte, 1) < 0; }
    return 0;
}
F
cc -o dynamic who.c; cc -static -o static who.c; cc -DLARGE -o large who.c
printf '#!./dynamic arg\n' > script; printf '#!/bin/sh\necho "$0"\n' > shell; chmod 755 script shell; chmod 711 large
ln -s dynamic link; mkdir d; cp dynamic d/moved
"#;

const SAY: &str = "for p in dynamic static large script shell link d/moved; do ./$p < /dev/null; done; \
    PATH=$PWD:$PATH dynamic; exec 5< dynamic; python3 -c 'import os; os.execve(5, [\"by fd\"], {})' | sed 's/ .*//'";

#[test]
fn programs_say_the_same_over_a_tree_as_in_a_copy() {
    let trees = Trees::new(MAKE);
    let there = |text: String, at: &std::path::Path| text.replace(at.to_str().unwrap(), "HERE");
    let said = |script: &str| {
        let over = there(trees.over(script), &trees.tree());
        assert_eq!(over, there(sh(&trees.copy(), script), &trees.copy()), "{script}");
    };
    said(SAY);
    // The gate gets into them in other ways.
    for way in ["LD_LIBRARY_PATH=/nonexistent", "LD_PRELOAD=libm.so.6", "LD_LIBRARY_PATH=$PWD"] {
        said(&format!("export {way}; {SAY}"));
    }
    // Content that has been taken in, names that have moved, and what the session has changed.
    said("cat dynamic static large > /dev/null; cat dynamic static large > /dev/null");
    said(SAY);
    said(&format!("mv dynamic t; ln t dynamic; mv d e; mkdir d; mv e/moved d/moved; {SAY}"));
    said(&format!("cp large dynamic; chmod 755 static; printf '#!/bin/sh\necho new\n' > static; {SAY}"));
}

/// The number of the file that a running program's text is mapped from, if that is a file of its name.
fn text_of(trees: &Trees, name: &str, before: &str) -> Option<u64> {
    let (pid, found) = (trees.home.path().join("pid"), trees.home.path().join("found"));
    let script = format!(
        "{before} ./{name} wait < ../fifo & echo $! > ../pid; touch $READY; read line; kill $!; true"
    );
    // It has been loaded once it waits for a byte.
    let look = format!(
        "until grep -q '^0 0x0 ' /proc/$(cat {0})/syscall; do :; done; \
         awk '$2 == \"r-xp\" && $6 ~ /\\/{name}$/ {{ print $5 }}' /proc/$(cat {0})/maps > {1}",
        pid.display(),
        found.display()
    );
    trees.beside(&script, &look);
    fs::read_to_string(found).unwrap().lines().next().and_then(|line| line.trim().parse().ok())
}

#[test]
fn an_untouched_program_shares_its_text_with_the_host() {
    let trees = Trees::new(MAKE);
    sh(trees.home.path(), "mkfifo fifo");
    // Nobody writes to it, so a program that reads it waits.
    let keeper = fs::File::options().read(true).write(true).open(trees.home.path().join("fifo")).unwrap();
    for name in ["dynamic", "static", "large"] {
        let number = fs::metadata(trees.tree().join(name)).unwrap().ino();
        assert_eq!(text_of(&trees, name, ""), Some(number), "{name}");
        assert_ne!(text_of(&trees, name, &format!("printf x >> {name};")), Some(number), "{name}");
    }
    drop(keeper);
}

/// Opening the file of a running program for writing fails, as on the host.
#[test]
fn a_running_program_is_not_written_to() {
    let trees = Trees::new(MAKE);
    let script = "mkfifo p; for n in dynamic large; do ./$n wait < p & exec 4> p; sleep 0.2; echo x 2>&1 >> $n || echo busy; \
        exec 4>&-; wait; echo x >> $n && echo written; done";
    let script = format!("{{ {script}; }} 2>&1 | sed 's/^sh: [0-9]*: //'");
    assert_eq!(trees.over(&script), sh(&trees.copy(), &script));
}

/// A program that has changed on the host since it was seen does not run, nor does a mixture.
#[test]
fn a_program_that_has_changed_on_the_host_is_an_error() {
    let trees = Trees::new(MAKE);
    let text = trees.beside(
        "stat dynamic > /dev/null; touch $READY; read line; ./dynamic 2>&1 || true",
        "cp large t; mv t dynamic",
    );
    assert!(text.contains("Input/output error") || text.contains("I/O error"), "{text}");
    assert_eq!(trees.over("./dynamic").split(' ').next(), Some("/dynamic"));
}

/// Privileges that the session has taken from a program stay with the host.
#[test]
fn a_mode_that_the_session_has_changed_counts() {
    if !trees::is_root() {
        return;
    }
    let trees = Trees::new("cp /usr/bin/id id; chmod 4755 id");
    sh(trees.home.path(), "chmod 755 .");
    let script = "chmod 755 id; setpriv --reuid 65534 --regid 65534 --clear-groups ./id -u";
    assert_eq!(trees.over(script), "65534\n");
}
