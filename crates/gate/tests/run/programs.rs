//! Sessions of real programs.

/// A session: its name, and a shell script that runs in an empty directory.
pub const SESSIONS: &[(&str, &str)] = &[
    (
        "bash",
        "for i in 1 2 3; do echo $i > f$i; done; cat f* | sort -r | while read x; do echo got $x; done; cat < <(echo sub); (cd /; pwd); ls | wc -l; rm f?; trap 'echo bye' EXIT; kill -0 $$ && echo alive",
    ),
    (
        "coreutils",
        "mkdir d; touch d/a d/b; ln -s a d/c; cp -a d e; mv e f; find f | sort; du -s d >/dev/null; stat -c %F d/c; chmod 600 d/a; ls -l d | cut -c1-10; dd if=/dev/zero of=z bs=1k count=8 2>/dev/null; sha1sum z; tail -c 3 z | od -c; rm -r d f z",
    ),
    (
        "python",
        r#"python3 -c '
import subprocess, os, threading, tempfile, socket, select, mmap
print(subprocess.run(["echo", "child"], capture_output=True).stdout)
print(subprocess.run(["sh", "-c", "echo $X; exit 3"], env={"X": "1"}).returncode)
threads = [threading.Thread(target=lambda: open("/etc/passwd").read()) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
with tempfile.TemporaryFile() as f:
    f.write(b"hello"); f.flush(); m = mmap.mmap(f.fileno(), 5); print(m[:])
a, b = socket.socketpair(); a.send(b"x"); print(select.select([b], [], [], 1)[0] == [b], b.recv(1))
import ssl, ctypes, multiprocessing
print(multiprocessing.Pool(2).map(abs, [-1, -2]))
pid = os.fork()
if pid == 0: os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
'"#,
    ),
    (
        "perl",
        r#"perl -e 'print `echo perl`; system("echo system"); open(F, ">x"); print F "1\n"; close F; print -s "x", "\n"; exec "echo", "exec"'"#,
    ),
    (
        "git",
        "export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'; git init -q -b main r; cd r; git config user.email a@b; git config user.name n; echo a > a; git add a; git commit -q -m one; git checkout -q -b side; echo b >> a; git commit -q -am two; git checkout -q main; git merge -q side; git log --format=%H; git gc -q; git fsck 2>&1 | sort",
    ),
    (
        "make",
        "printf '#include <stdio.h>\\nint main(){puts(\"built\");}\\n' > a.c; printf 'a: a.o\\n\\tgcc -o a a.o\\na.o: a.c\\n\\tgcc -c a.c\\n' > Makefile; make -j2 2>&1; ./a",
    ),
    (
        "sqlite3",
        "sqlite3 t.db 'create table t(a); insert into t values(1),(2); select sum(a) from t; pragma journal_mode=wal; delete from t; vacuum;'",
    ),
    (
        "node",
        r#"node -e 'const c = require("child_process"); console.log(c.execSync("echo node").toString()); const { Worker } = require("worker_threads"); new Worker("console.log(1)", { eval: true }).on("exit", () => c.spawn("sh", ["-c", "exit 4"]).on("exit", (code) => console.log(code)));'"#,
    ),
    (
        "java",
        r#"cat > H.java <<'E'
public class H { public static void main(String[] a) throws Exception {
  Process p = new ProcessBuilder("sh", "-c", "echo child").inheritIO().start(); System.out.println(p.waitFor());
  try { Object o = null; o.hashCode(); } catch (NullPointerException e) { System.out.println("null"); }
  Thread t = new Thread(() -> System.out.println("thread")); t.start(); t.join(); System.gc(); } }
E
javac H.java && java H"#,
    ),
    ("cargo", "cargo init -q --vcs none --name x 2>/dev/null; cargo run -q --offline"),
];
