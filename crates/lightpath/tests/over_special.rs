//! FIFOs, sockets and devices of a host tree: programs of the run meet those of the host there.

mod trees;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;
use std::thread;

use trees::{Trees, is_root, sh};

/// Answers each connection with what it was sent, in capitals, until it is sent `end`.
fn echo(listener: UnixListener) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        for (count, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(line.to_uppercase().as_bytes()).unwrap();
            if line == "end\n" {
                return count;
            }
        }
        unreachable!()
    })
}

/// A listener at `path`, which need not fit into an address.
fn listen(path: &Path) -> UnixListener {
    let dir = fs::File::open(path.parent().unwrap()).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    UnixListener::bind(format!("/proc/self/fd/{}/{name}", std::os::fd::AsRawFd::as_raw_fd(&dir))).unwrap()
}

/// What `ask(path, text)` in the scripts below says is the answer, or the error.
const ASK: &str = r#"
import errno, os, socket, stat
def ask(path, text):
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(path)
    except OSError as e: return errno.errorcode[e.errno]
    s.sendall(text.encode() + b'\n')
    return s.makefile().readline().strip()
"#;

fn ask(trees: &Trees, script: &str) -> String {
    trees.over(&format!("exec python3 - <<'END'\n{ASK}{script}\nEND\n"))
}

#[test]
fn a_fifo_leads_to_the_hosts_processes() {
    let trees = Trees::new("mkdir d; mkfifo to d/from; chmod 644 to d/from");
    let tree = trees.tree();
    let host = Command::new("sh").args(["-c", "tr a-z A-Z < to > d/from"]).current_dir(&tree).spawn();
    let mut host = host.unwrap();
    // Renamed and linked in the session, it is the same one.
    let said = trees.over("mv d e; ln to e/link; (echo over > e/link) & cat < e/from; wait; stat -c %F%h to");
    assert_eq!(said, "OVER\nfifo2\n");
    assert!(host.wait().unwrap().success());
    // One that the run makes is its own.
    let said = trees.over("rm to; mkfifo to; (echo own > to) & cat < to; wait");
    assert_eq!(said, "own\n");
}

#[test]
fn a_fifo_that_was_replaced_is_a_conflict() {
    let trees = Trees::new("mkdir d; mkfifo d/p d/q");
    let change = "mv d/q d/p";
    let said = trees.beside("stat -c %F d/p; : > $READY; read x; echo a > d/p || stat -c %h d/p", change);
    assert_eq!(said.lines().last(), Some("1"), "{said}");
    assert!(said.starts_with("fifo\n"), "{said}");
}

#[test]
fn a_socket_leads_to_the_hosts_server() {
    const DEEP: &str =
        "a-directory-with-a-long-name/and-another-one-below-it/so-that-no-address-has-room/for-it";
    let trees = Trees::new(&format!("mkdir -p d {DEEP}"));
    let tree = trees.tree();
    let server = echo(UnixListener::bind(tree.join("d/s")).unwrap());
    let deep = echo(listen(&tree.join(DEEP).join("a-socket-whose-name-is-long-as-well")));
    let datagrams = UnixDatagram::bind(tree.join("datagrams")).unwrap();
    fs::write(tree.join("file"), "").unwrap();
    let script = format!(
        r#"
print(ask('d/s', 'one'), ask(os.getcwd() + '/d/s', 'two'), ask('file', ''), ask('d/none', ''))
os.rename('d', 'e'); os.link('e/s', 'link'); os.symlink('e/s', 'soft')
print(ask('e/s', 'three'), ask('link', 'four'), ask('soft', 'five'), stat.S_ISSOCK(os.stat('link').st_mode))
os.chmod('link', 0o755)
print(ask('link', 'six'))
os.chdir('{DEEP}')
print(ask('a-socket-whose-name-is-long-as-well', 'seven'), ask('a-socket-whose-name-is-long-as-well', 'end'))
os.chdir(os.environ['LIGHTPATH'])
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
print(s.sendto(b'datagram', 'datagrams'))
os.unlink('link'); os.unlink('e/s')
print(ask('e/s', ''))
# One that the run makes in its place is its own.
s = socket.socket(socket.AF_UNIX); s.bind('e/s'); s.listen(1)
c = socket.socket(socket.AF_UNIX); c.connect('e/s'); s.accept()[0].sendall(b'own')
print(c.recv(9), c.getpeername())
"#
    );
    let expected =
        "ONE TWO ECONNREFUSED ENOENT\nTHREE FOUR FIVE True\nSIX\nSEVEN END\n8\nENOENT\nb'own' e/s\n";
    assert_eq!(ask(&trees, &script), expected);
    assert_eq!(deep.join().unwrap(), 1);
    let mut room = [0; 99];
    assert_eq!(datagrams.recv(&mut room).unwrap(), 8);
    // The host's is still there.
    let mut stream = std::os::unix::net::UnixStream::connect(tree.join("d/s")).unwrap();
    stream.write_all(b"end\n").unwrap();
    assert_eq!(server.join().unwrap(), 6);
}

#[test]
fn a_socket_whose_server_has_gone_refuses() {
    let trees = Trees::new("true");
    let path = trees.tree().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(ask(&trees, "print(ask('s', ''))"), "ECONNREFUSED\n");
    // Another server has taken its place, which the next run sees.
    fs::remove_file(&path).unwrap();
    let server = echo(UnixListener::bind(&path).unwrap());
    assert_eq!(ask(&trees, "print(ask('s', 'end'))"), "END\n");
    server.join().unwrap();
}

/// What a session makes is the host's once it was applied.
#[test]
fn an_applied_fifo_leads_to_the_hosts_processes() {
    let trees = Trees::new("mkfifo old");
    assert_eq!(trees.over("mkfifo new; mv old moved; (echo own > new) & cat < new; wait"), "own\n");
    assert_eq!(sh(&trees.tree(), "echo old*"), "old\n");
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), "stat -c %n%F new moved"), "newfifo\nmovedfifo\n");
    for name in ["new", "moved"] {
        let mut host = Command::new("cat");
        let host = host.arg(trees.tree().join(name)).stdout(std::process::Stdio::piped()).spawn().unwrap();
        assert_eq!(trees.over(&format!("echo {name} > {name}")), "");
        assert_eq!(host.wait_with_output().unwrap().stdout, format!("{name}\n").as_bytes());
    }
    assert_eq!(trees.says(&["diff"]), "");
}

#[test]
fn a_device_is_the_hosts() {
    let trees = Trees::new("mkdir d");
    let device = trees.tree().join("d/null");
    let made = Command::new("mknod").arg(&device).args(["c", "1", "3"]).output().unwrap();
    if !made.status.success() {
        assert!(!is_root() || String::from_utf8_lossy(&made.stderr).contains("not permitted"));
        return;
    }
    fs::set_permissions(&device, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let script = "echo gone > d/null; cat d/null; mv d e; wc -c < e/null; stat -c %F e/null";
    assert_eq!(trees.over(script), "0\ncharacter special file\n");
    if is_root() {
        // Whoever may not make devices may use them.
        let script =
            "setpriv --reuid 65534 --clear-groups sh -c 'echo gone > d/null && cat d/null && echo used'";
        trees.says(&["discard"]);
        sh(&trees.tree(), "chmod 755 . ..");
        assert_eq!(trees.over(script), "used\n");
    }
}

/// The host's object has the host's mode.
#[test]
fn a_fifo_that_the_session_has_opened_to_all_is_not_open_to_all() {
    if !is_root() {
        return;
    }
    let trees = Trees::new("mkfifo p; chmod 600 p; chmod 755 . ..");
    let script = "chmod 666 p; stat -c %a p; setpriv --reuid 65534 --regid 65534 --clear-groups \
                  sh -c 'exec 3<>p' 2>&1 | grep -o 'Permission denied'; exec 3<>p && echo open";
    assert_eq!(trees.over(script), "666\nPermission denied\nopen\n");
}
