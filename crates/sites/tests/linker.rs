//! The dynamic linker for outlines, as the loader of a program.

use std::arch::x86_64::__cpuid_count;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use lp_sites::linker::Answer;

const SYSTEM: &str = "/lib64/ld-linux-x86-64.so.2";

/// A copy of `program` whose loader is `loader`, as the kernel sees it.
fn loaded_by(program: &[u8], loader: &str) -> Vec<u8> {
    const PT_INTERP: u64 = 3;
    let mut copy = program.to_vec();
    let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let (headers, count) = (word(&copy, 32) as usize, word(&copy, 56) as u16);
    let end = copy.len() as u64;
    for at in (0..usize::from(count)).map(|index| headers + index * 56) {
        if word(&copy, at) & 0xffff_ffff == PT_INTERP {
            let bytes = loader.len() as u64 + 1;
            for (field, value) in [(8, end), (32, bytes), (40, bytes)] {
                copy[at + field..at + field + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    copy.extend(loader.bytes().chain([0]));
    copy
}

/// What /bin/ls says and what it tells of its search for libraries, loaded by a linker with these answers.
fn listing(answers: &[Answer]) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let [linker, program] = ["linker", "program"].map(|name| directory.path().join(name));
    let made = lp_sites::linker(&std::fs::read(SYSTEM).unwrap(), answers).unwrap();
    let copy = loaded_by(&std::fs::read("/bin/ls").unwrap(), linker.to_str().unwrap());
    for (path, bytes) in [(&linker, &made), (&program, &copy)] {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&program);
    command.args(["-d", "/usr"]).env("LD_DEBUG", "libs").env("LD_LIBRARY_PATH", directory.path());
    let run = command.output().unwrap();
    assert!(run.status.success(), "{run:?}");
    (String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap())
}

fn asked(leaf: u32, subleaf: u32) -> Answer {
    let answer = __cpuid_count(leaf, subleaf);
    let registers = [answer.eax, answer.ebx, answer.ecx, answer.edx];
    Answer { leaf, subleaf: (leaf == 7).then_some(subleaf), registers }
}

#[test]
fn a_program_runs_and_its_linker_believes_the_answers() {
    let all = [asked(0, 0), asked(1, 0), asked(7, 0)];
    let (said, searched) = listing(&all);
    assert_eq!(said, "/usr\n");
    // x86-64-v3 is AVX2 and others, which leaf 7 tells.
    assert_eq!(searched.contains("x86-64-v3"), is_x86_feature_detected!("avx2"), "{searched}");
    let without =
        all.map(|answer| if answer.leaf == 7 { Answer { registers: [0; 4], ..answer } } else { answer });
    let (said, searched) = listing(&without);
    assert_eq!(said, "/usr\n");
    assert!(searched.contains("x86-64-v2") && !searched.contains("x86-64-v3"), "{searched}");
}
