//! Output, status and environment must be the same with the gate as without.

use std::process::Command;

use crate::Case;
use crate::gate::{Gate, output};
use crate::programs::SESSIONS;

pub const CASES: &[Case] = &[
    ("processes_and_signals_glibc", |gate| same(gate, "gcc", "processes.c")),
    ("processes_and_signals_musl", |gate| same(gate, "musl-gcc", "processes.c")),
    ("real_programs", real_programs),
    ("environment_is_clean", environment),
    ("own_preload_is_kept", own_preload),
    ("large_environment", large_environment),
    ("static_program_is_refused", static_program),
    ("setuid_program_is_refused", setuid_program),
    ("script_of_static_interpreter_is_refused", static_script),
    ("linker_as_a_command", linker),
    ("unloaded_and_loaded_again", reload),
    ("objects_without_a_name", nameless),
    ("detached_threads_glibc", |gate| same(gate, "gcc", "detached.c")),
    ("detached_threads_musl", |gate| same(gate, "musl-gcc", "detached.c")),
    ("calls_on_small_stacks", |gate| same(gate, "gcc", "small_stack.c")),
];

fn same(gate: &Gate, compiler: &str, source: &str) {
    let program = gate.compile(compiler, source);
    let without = output(&mut Command::new(&program));
    let with = output(&mut gate.command(&program));
    assert!(without.status.success());
    assert_eq!(text(&with.stderr), text(&without.stderr));
    assert_eq!(text(&with.stdout), text(&without.stdout));
    assert_eq!(with.status, without.status);
}

fn real_programs(gate: &Gate) {
    for (name, script) in SESSIONS {
        let run = |mut command: Command| {
            let directory = tempfile::tempdir().expect("a temporary directory");
            output(command.arg("-c").arg(script).current_dir(&directory))
        };
        let (without, with) = (run(Command::new("bash")), run(gate.command("bash")));
        assert!(without.status.success(), "{name} fails on this machine: {}", text(&without.stderr));
        assert_eq!(text(&with.stdout), text(&without.stdout), "{name}: {}", text(&with.stderr));
        assert_eq!(with.status, without.status, "{name}");
    }
}

fn environment(gate: &Gate) {
    let script =
        "env | grep -E 'LIGHTPATH|LD_PRELOAD'; env -i /usr/bin/env; env -i sh -c 'exec env' | grep LIGHT";
    // The caller of the tests may have set the command to be tested.
    let with = output(gate.command("bash").env_remove("LIGHTPATH_BIN").arg("-c").arg(script));
    assert_eq!(text(&with.stdout), "");
    assert_eq!(text(&with.stderr), "");
}

fn own_preload(gate: &Gate) {
    let both = format!("{}:libm.so.6", gate.library().display());
    let script =
        "echo $LD_PRELOAD; sh -c 'echo $LD_PRELOAD; grep -c libm /proc/self/maps > /dev/null && echo loaded'";
    let with = output(gate.command("sh").arg("-c").arg(script).env("LD_PRELOAD", both));
    assert_eq!(text(&with.stdout), "libm.so.6\nlibm.so.6\nloaded\n");
}

fn large_environment(gate: &Gate) {
    let script = "import os, subprocess
env = {'V%d' % i: 'x' * 50 for i in range(5000)}
print(subprocess.run(['sh', '-c', 'env | wc -l'], env=env, capture_output=True).stdout)
env['LD_PRELOAD'] = '/nonexistent/' + 'y' * 3000
print(len(subprocess.run(['env'], env=env, capture_output=True).stdout))
env = {'V%d' % i: 'x' * 100000 for i in range(100)}
try: subprocess.run(['true'], env=env)
except OSError as e: print(e.errno)";
    let run = |mut command: Command| text(&output(command.arg("-c").arg(script)).stdout);
    assert_eq!(run(gate.command("python3")), run(Command::new("python3")));
}

fn static_program(gate: &Gate) {
    let program = gate.directory().join("static");
    let source = gate.directory().join("static.c");
    std::fs::write(&source, "int main(void){return 0;}").expect("a file");
    let compiled = Command::new("gcc").arg("-static").arg("-o").arg(&program).arg(&source).status();
    assert!(compiled.is_ok_and(|status| status.success()));
    refused(gate, &program, "statically linked");
}

fn setuid_program(gate: &Gate) {
    use std::os::unix::fs::PermissionsExt;
    let program = gate.directory().join("setuid");
    std::fs::copy("/bin/true", &program).expect("a copy");
    let owner = std::ffi::CString::new(program.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: the path is NUL-terminated.
    let given = unsafe { libc::chown(owner.as_ptr(), 65534, 65534) } == 0;
    // SAFETY: geteuid(2) has no effect.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert!(given || !is_root, "chown failed for root");
    if !given {
        return; // Only root can give a file away, and set-user-ID to oneself changes nothing.
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("a mode");
    refused(gate, &program, "setuid program");
}

fn static_script(gate: &Gate) {
    use std::os::unix::fs::PermissionsExt;
    let script = gate.directory().join("script");
    static_program(gate);
    std::fs::write(&script, format!("#! {}\n", gate.directory().join("static").display())).expect("a file");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    refused(gate, &script, "statically linked");
}

fn refused(gate: &Gate, program: &std::path::Path, why: &str) {
    let with = output(gate.command("bash").arg("-c").arg(format!("{}; echo $?", program.display())));
    let errors = text(&with.stderr);
    assert_eq!(text(&with.stdout), "126\n", "{errors}");
    assert_eq!(
        errors.lines().filter(|line| line.starts_with("lightpath: ") && line.contains(why)).count(),
        1,
        "{errors}"
    );
}

fn linker(gate: &Gate) {
    let with = output(gate.command("bash").arg("-c").arg("/lib64/ld-linux-x86-64.so.2 /bin/echo by hand"));
    assert_eq!(text(&with.stdout), "by hand\n", "{}", text(&with.stderr));
}

fn reload(gate: &Gate) {
    // An object with a system call of its own, loaded at the same address again and again, and two of them at
    // once.
    let source = gate.directory().join("object.c");
    let code = "#include <unistd.h>\n#include <sys/syscall.h>\nlong own(int fd){long r;asm volatile(\"syscall\":\"=a\"(r):\"a\"(8),\"D\"(fd),\"S\"(0),\"d\"(1):\"rcx\",\"r11\",\"memory\");return r;}";
    std::fs::write(&source, code).expect("a file");
    for name in ["one.so", "two.so"] {
        let object = gate.directory().join(name);
        let compiled =
            Command::new("gcc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&object).arg(&source).status();
        assert!(compiled.is_ok_and(|status| status.success()));
    }
    let script = "import _ctypes, ctypes, os, sys
fd = os.open('/dev/null', os.O_RDONLY)
for i in range(20):
    handle = _ctypes.dlopen(sys.argv[1], 2)
    other = ctypes.CDLL(sys.argv[2])
    assert ctypes.CDLL(sys.argv[1]).own(fd) == 0 and other.own(fd) == 0
    maps = open('/proc/self/maps').read()
    _ctypes.dlclose(handle)
print('ok')";
    let mut command = gate.command("python3");
    command.arg("-c").arg(script).arg(gate.directory().join("one.so")).arg(gate.directory().join("two.so"));
    let with = output(&mut command);
    assert_eq!(text(&with.stdout), "ok\n", "{}", text(&with.stderr));
}

fn nameless(gate: &Gate) {
    let source = gate.directory().join("inline.c");
    let code = "#include <stdio.h>\nint main(void){long r;asm volatile(\"syscall\":\"=a\"(r):\"a\"(8),\"D\"(99),\"S\"(0),\"d\"(1):\"rcx\",\"r11\",\"memory\");printf(\"%ld\\n\",r);return 0;}";
    std::fs::write(&source, code).expect("a file");
    for build_id in ["sha1", "none"] {
        let program = gate.directory().join(format!("inline-{build_id}"));
        let option = format!("-Wl,--build-id={build_id}");
        let compiled =
            Command::new("gcc").arg("-O2").arg(option).arg("-o").arg(&program).arg(&source).status();
        assert!(compiled.is_ok_and(|status| status.success()));
        let script = "import os, sys
fd = os.memfd_create('x')
os.write(fd, open(sys.argv[1], 'rb').read())
os.execve(fd, ['x'], os.environ)";
        for _ in 0..2 {
            let with = output(gate.command("python3").arg("-c").arg(script).arg(&program));
            assert_eq!(text(&with.stdout), "-9\n", "{build_id}: {}", text(&with.stderr));
            let with = output(&mut gate.command(&program));
            assert_eq!(text(&with.stdout), "-9\n", "{build_id}: {}", text(&with.stderr));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
