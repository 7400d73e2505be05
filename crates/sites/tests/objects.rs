//! The machine's own objects: every site is found, and every patch is one that can be executed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use lp_abi::image::{GATE_PAGE, QUICK_CALLS};
use lp_sites::elf::Elf;
use lp_sites::image::{Site, StandsFor, Verdict};
use lp_sites::thunk::GateEntry;
use lp_sites::{Analysis, Bundle, Patch, Status, analyse};

const GLIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";

fn cargo() -> PathBuf {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc runs");
    Path::new(String::from_utf8_lossy(&sysroot.stdout).trim()).join("bin/cargo")
}

/// Analyses an object and checks everything that holds for all of them.
fn analysed(path: impl AsRef<Path>) -> Analysis {
    let path = path.as_ref();
    let contents = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let elf = Elf::parse(&contents).expect("an object");
    let analysis = analyse(&elf).expect("it can be analysed");
    assert_eq!(analysis.unpatchable(), None);
    let patched = analysis.sites.iter().filter(|site| site.verdict == Verdict::Patch).count();
    assert_eq!(analysis.patched_sites(), patched);
    check_patches(&elf, &analysis);
    analysis
}

/// Follows each patch: the jump leads to a thunk, the thunk enters the gate and comes back to the site.
fn check_patches(elf: &Elf<'_>, analysis: &Analysis) {
    let pages = analysis.pages(elf).expect("pages");
    let sites: BTreeSet<u64> = analysis.sites.iter().map(|site| site.address).collect();
    let mut changed = 0;
    for patch in &analysis.patches {
        let (start, bytes) = pages
            .iter()
            .find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&patch.start))
            .expect("a patched page");
        let at = (patch.start - start) as usize;
        let jump = Decoder::with_ip(64, &bytes[at..], patch.start, DecoderOptions::NONE).decode();
        assert_eq!(jump.code(), Code::Jmp_rel32_64, "at {:#x}", patch.start);
        assert_eq!(jump.near_branch_target(), patch.thunk);
        assert!(bytes[at + 5..at + patch.bytes as usize].iter().all(|byte| *byte == 0xcc));
        changed += patch.bytes as usize;
        check_steps(analysis, patch);
        let thunk = thunk_at(analysis, patch.thunk);
        let call =
            thunk.iter().position(|instruction| instruction.flow_control() == FlowControl::IndirectCall);
        let call = call.expect("a call of the gate");
        assert_eq!(thunk[call].memory_displacement64(), (GATE_PAGE + patch.entry.slot()) as u64);
        let back = thunk.last().expect("a jump back").near_branch_target();
        assert!(elf.is_code(back));
        if patch.stands_for == StandsFor::Function {
            check_function(elf, analysis, patch, &thunk[call..]);
            continue;
        }
        let own = sites.contains(&(back - 2));
        let not_ours = thunk[call + 2];
        assert_eq!(not_ours.code(), Code::Jo_rel32_64, "at {:#x}", patch.start);
        let displaced = not_ours.near_branch_target() != back - 2;
        if displaced {
            check_copy(analysis, not_ours.near_branch_target(), patch);
        }
        assert!(own || displaced, "the thunk of {:#x} makes no call", patch.start);
        if let (GateEntry::Quick(call) | GateEntry::QuickScratch(call), true) = (patch.entry, own) {
            let site = analysis.sites.iter().find(|site| site.address == back - 2).expect("the site");
            assert!(site.number.is(QUICK_CALLS[call]), "{:#x} enters as another call", patch.start);
        }
    }
    // Nothing but the patches differs from the file.
    let mut differing = 0;
    for (start, bytes) in &pages {
        let offset = (elf.text.offset + start - elf.text.address) as usize;
        let original = &elf.file[offset..];
        differing += bytes.iter().zip(original).filter(|(new, old)| new != old).count();
    }
    assert!(differing <= changed && (changed == 0 || differing > 0));
}

/// Checks that each instruction of a thunk is a step, but for the distance of the site within.
fn check_steps(analysis: &Analysis, patch: &Patch) {
    let at = patch.thunk.wrapping_sub(analysis.place.delta as u64) as usize;
    let code = &analysis.thunks[at..at + patch.thunk_bytes as usize];
    let starts = patch.steps.iter().map(|step| step.offset as usize);
    for (start, next) in starts.clone().zip(starts.skip(1).chain([code.len()])) {
        let length = Decoder::new(64, &code[start..], DecoderOptions::NONE).decode().len();
        let data = next.checked_sub(start + length);
        assert!(matches!(data, Some(0 | 4)), "{:#x} of the thunk of {:#x}", start + length, patch.start);
    }
}

/// Checks a thunk that stands for a function, from its call on: both ways out of it other than by a return
/// lead to the displaced instructions.
fn check_function(elf: &Elf<'_>, analysis: &Analysis, patch: &Patch, thunk: &[Instruction]) {
    assert!(elf.exports.contains(&patch.start), "{:#x} is no function", patch.start);
    let GateEntry::QuickScratch(_) = patch.entry else { panic!("{:?}", patch.entry) };
    assert_eq!(thunk[2].code(), Code::Jo_rel32_64);
    let slow = thunk[2].near_branch_target();
    let offset = slow.wrapping_sub(analysis.place.delta as u64) as usize;
    let back = thunk.last().expect("a jump back");
    assert!((patch.thunk..back.ip()).contains(&slow));
    assert_eq!(back.near_branch_target(), patch.start + patch.bytes);
    // Two bytes behind the address at this distance, behind the function's return, unwinders find its caller.
    let distance = i32::from_le_bytes(analysis.thunks[offset - 4..offset].try_into().expect("four bytes"));
    let ret = slow.wrapping_add_signed(i64::from(distance)) + 1;
    assert_eq!(elf.at(ret).expect("code")[0], 0xc3);
    assert_eq!(elf.region(ret), elf.region(patch.start));
}

/// Checks the copy of a displaced `syscall`: the distance to the site's precedes it.
fn check_copy(analysis: &Analysis, copy: u64, patch: &Patch) {
    let range = patch.thunk..patch.thunk + patch.thunk_bytes;
    assert!(range.contains(&copy), "the copy for {:#x} is elsewhere", patch.start);
    let offset = copy.wrapping_sub(analysis.place.delta as u64) as usize;
    assert_eq!(&analysis.thunks[offset..offset + 2], &[0x0f, 0x05]);
    let distance = i32::from_le_bytes(analysis.thunks[offset - 4..offset].try_into().expect("four bytes"));
    let site = copy.wrapping_add_signed(i64::from(distance));
    assert!(analysis.sites.iter().any(|known| known.address == site), "{site:#x} is no site");
    assert!((patch.start..patch.start + patch.bytes).contains(&site));
}

/// The instructions of a thunk, up to its first jump.
fn thunk_at(analysis: &Analysis, address: u64) -> Vec<Instruction> {
    let offset = address.wrapping_sub(analysis.place.delta as u64) as usize;
    let mut decoder = Decoder::with_ip(64, &analysis.thunks[offset..], address, DecoderOptions::NONE);
    let mut instructions = Vec::new();
    loop {
        let instruction = decoder.decode();
        instructions.push(instruction);
        if instruction.code() == Code::Jmp_rel32_64 {
            return instructions;
        }
    }
}

fn with_number(analysis: &Analysis, nr: u32) -> Vec<&Site> {
    analysis.sites.iter().filter(|site| site.number.is(nr)).collect()
}

/// What objdump, which knows no more than we do, counts in the whole object.
fn syscalls_by_objdump(path: &str) -> usize {
    let listing =
        Command::new("objdump").args(["-d", path]).output().expect("objdump runs; install binutils");
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    listing
        .lines()
        .filter(|line| line.split('\t').next_back().is_some_and(|text| text.trim() == "syscall"))
        .count()
}

#[test]
fn glibc() {
    let analysis = analysed(GLIBC);
    let count = analysis.sites.len();
    // objdump is out of step in front of __restore_rt.
    assert!(count.abs_diff(syscalls_by_objdump(GLIBC)) <= 1, "{count} sites");
    assert!(analysis.patches.len() > 200);
    for nr in [0, 1, 3, 9, 13, 56, 58, 59, 231, 257, 262] {
        let sites = with_number(&analysis, nr);
        assert!(!sites.is_empty(), "call {nr} has no site");
        assert!(sites.iter().all(|site| site.verdict == Verdict::Patch), "call {nr}");
    }
    for nr in [15, 202, 228] {
        assert!(
            with_number(&analysis, nr).iter().all(|site| site.verdict == Verdict::NotNeeded),
            "call {nr}"
        );
    }
    // The return from signal handlers, which unwinders know by its bytes, is found and left alone.
    assert_eq!(with_number(&analysis, 15).len(), 1);
    let dynamic =
        analysis.sites.iter().filter(|site| site.number == lp_sites::number::Number::Dynamic).count();
    assert!((1..12).contains(&dynamic), "{dynamic} numbers are not known beforehand");
    // The functions that programs call enter by the shortest way, but for fstat, which musl and old glibc
    // make themselves.
    for (call, nr) in QUICK_CALLS.into_iter().enumerate().filter(|(_, nr)| *nr != 5) {
        let shortest = analysis.patches.iter().filter(|patch| patch.entry == GateEntry::QuickScratch(call));
        assert!(shortest.count() >= 1, "call {nr}");
    }
}

#[test]
fn dynamic_linker() {
    let analysis = analysed(LINKER);
    assert!(with_number(&analysis, 257).iter().all(|site| site.verdict == Verdict::Patch));
    assert!(with_number(&analysis, 9).iter().all(|site| site.verdict == Verdict::Patch));
    let pages: BTreeSet<u64> = analysis.patches.iter().map(|patch| patch.start / 4096).collect();
    assert!(pages.len() <= 8, "attaching maps {} pages of it", pages.len());
}

#[test]
fn musl() {
    let analysis = analysed(MUSL);
    assert_eq!(analysis.sites.len(), syscalls_by_objdump(MUSL));
    // __unmapself unmaps the stack that it stands on, and exits.
    let no_stack: Vec<_> = analysis.sites.iter().filter(|site| site.verdict == Verdict::NoStack).collect();
    assert_eq!(no_stack.len(), 1);
    assert!(no_stack[0].number.is(60));
    assert!(with_number(&analysis, 56).iter().all(|site| site.verdict == Verdict::Patch));
    assert!(with_number(&analysis, 15).iter().all(|site| site.verdict == Verdict::NotNeeded));
}

#[test]
fn rust_program_with_calls_of_its_own() {
    let analysis = analysed(cargo());
    assert!(!analysis.patches.is_empty());
    // Its vector registers may be in use.
    assert!(analysis.patches.iter().all(|patch| patch.entry == GateEntry::Vector));
}

/// Analyses assembler source as if it were part of a C library.
fn assembled(text: &str) -> Analysis {
    let directory = tempfile::tempdir().expect("a directory");
    let object = directory.path().join("object.so");
    let source = directory.path().join("source.S");
    std::fs::write(&source, text).expect("a file");
    let mut compiler = Command::new("gcc");
    compiler.args(["-shared", "-nostdlib", "-Wl,-soname,librt.so.1", "-o"]).arg(&object).arg(&source);
    assert!(compiler.status().is_ok_and(|status| status.success()), "gcc failed");
    let contents = std::fs::read(&object).expect("the object");
    analyse(&Elf::parse(&contents).expect("an object")).expect("it can be analysed")
}

const FUNCTION: &str = "
.text
.macro function name
.globl \\name
.type \\name, @function
\\name:
.endm
";

#[test]
fn entries_keep_what_is_read() {
    let analysis = assembled(&format!("{FUNCTION}{READERS}"));
    let entries: Vec<GateEntry> = analysis.patches.iter().map(|patch| patch.entry).collect();
    use GateEntry::{Plain, Quick, QuickScratch, Vector};
    assert_eq!(
        entries,
        [QuickScratch(0), Quick(0), Quick(0), Quick(0), QuickScratch(0), Quick(0), Plain, Vector]
    );
}

/// Sites of read(2) in functions that behind it read: nothing; an argument; an argument on one of two ways;
/// perhaps one, in a function that they call; what they have set themselves; nothing, but their callers may.
/// Then a call without an entry of its own, and one that keeps a vector register.
const READERS: &str = "
function nothing
    mov $0, %eax
    syscall
    ret
.size nothing, .-nothing
function argument
    mov $0, %eax
    syscall
    mov %rsi, %rax
    ret
.size argument, .-argument
function one_way
    mov $0, %eax
    syscall
    cmp $-4096, %rax
    ja 1f
    ret
1:  mov (%rdi), %eax
    ret
.size one_way, .-one_way
function callee
    mov $0, %eax
    syscall
    mov %rax, %rdi
    call *%rbx
    ret
.size callee, .-callee
function set
    mov $0, %eax
    syscall
    xor %esi, %esi
    lea 8(%rsi), %rdi
    mov %rdi, %rax
    ret
.size set, .-set
.type hidden, @function
hidden:
    mov $0, %eax
    syscall
    ret
.size hidden, .-hidden
function another
    mov $3, %eax
    syscall
    ret
.size another, .-another
function vector
    mov $0, %eax
    syscall
    movq %xmm0, %rax
    ret
.size vector, .-vector
";

#[test]
fn functions_that_make_one_call_elsewhere() {
    let analysis = assembled(&format!("{FUNCTION}{ELSEWHERE}"));
    assert_eq!(analysis.sites.len(), 1);
    assert_eq!(analysis.sites[0].number, lp_sites::number::Number::Dynamic);
    let whole = analysis.patches.iter().filter(|patch| patch.stands_for == StandsFor::Function);
    let entries: Vec<GateEntry> = whole.map(|patch| patch.entry).collect();
    assert_eq!(entries, [GateEntry::QuickScratch(0), GateEntry::QuickScratch(4), GateEntry::QuickScratch(1)]);
}

/// One site, and functions that use it: read, pread64 and write as C libraries make them. Then functions that
/// are not one call with an entry of its own: another call; with other arguments; with two calls; that do not
/// preserve a register; that return something else; that store more; whose second instruction is jumped to;
/// that have no name outside.
const ELSEWHERE: &str = "
.data
.globl single
.hidden single
single: .byte 1
.section .tbss
.globl error
.hidden error
error:  .long 0
.text
.type site, @function
site:
    push %rbx
    mov %rcx, %r10
    cmpb $0, single(%rip)
    jne 1f
    mov %fs:16, %rbx
    test $1, %bl
    jne 1f
    pop %rbx
    ret
1:  mov 16(%rsp), %rax
    syscall
    pop %rbx
    ret
.size site, .-site
.type checked, @function
checked:
    sub $16, %rsp
    push 24(%rsp)
    call site
    pop %rdx
    pop %rcx
    cmp $-4096, %rax
    ja 1f
    add $8, %rsp
    ret
1:  mov error@gottpoff(%rip), %rdx
    neg %eax
    mov %eax, %fs:(%rdx)
    mov $-1, %rax
    add $8, %rsp
    ret
.size checked, .-checked
.macro passes number
    movslq %edi, %rdi
    xor %r8d, %r8d
    push $\\number
    call checked
    add $8, %rsp
    ret
.endm
function reads
    endbr64
    xor %ecx, %ecx
    passes 0
.size reads, .-reads
function reads_at
    passes 17
.size reads_at, .-reads_at
function writes
    passes 1
.size writes, .-writes
function another
    passes 3
.size another, .-another
function other_arguments
    mov %rdx, %rsi
    passes 0
.size other_arguments, .-other_arguments
function twice
    push $0
    call checked
    pop %rcx
    passes 0
.size twice, .-twice
function keeps_nothing
    xor %ebx, %ebx
    passes 0
.size keeps_nothing, .-keeps_nothing
function other_result
    sub $8, %rsp
    push $0
    call checked
    add $16, %rsp
    xor %eax, %eax
    ret
.size other_result, .-other_result
function stores
    movq %rsi, (%rdx)
    passes 0
.size stores, .-stores
function entered
    nop
1:  passes 0
    jmp 1b
.size entered, .-entered
.type hidden, @function
hidden:
    passes 0
.size hidden, .-hidden
";

#[test]
fn compiled_corner_cases() {
    let analysis = assembled(&format!("{FUNCTION}{CORNERS}"));
    let verdicts: Vec<Verdict> = analysis.sites.iter().map(|site| site.verdict.clone()).collect();
    use Verdict::{NotNeeded, Patch, Unpatchable};
    assert_eq!(verdicts, [Patch, Patch, Patch, NotNeeded, Unpatchable, Patch]);
    assert!(analysis.sites[1].number.is(0) && analysis.sites[5].number.is(257));
}

/// A function each: an ordinary site; one with no room before it, so that what follows is displaced; a retry
/// loop that jumps to the number's load; a futex with its number in another register; a site that is jumped
/// to from both sides; one whose number is pushed and popped. The bytes of `syscall` within another
/// instruction are none.
const CORNERS: &str = "
function ordinary
    mov $1, %eax
    syscall
    ret
.size ordinary, .-ordinary
function tight
    xor %eax, %eax
    syscall
    cmp $-4096, %rax
    ja 1f
    ret
1:  ret
.size tight, .-tight
function retry
    test %edi, %edi
1:  mov $3, %eax
    syscall
    test %eax, %eax
    js 1b
    ret
.size retry, .-retry
function indirect
    mov $202, %r9d
1:  mov %r9d, %eax
    syscall
    test %eax, %eax
    js 1b
    ret
.size indirect, .-indirect
function cornered
    test %edi, %edi
    mov $3, %eax
    jz 1f
    nop
1:  syscall
2:  nop
    test %eax, %eax
    jz 1b
    js 2b
    ret
.size cornered, .-cornered
function pushed
    push $257
    pop %rax
    nop
    syscall
    mov $0x050f, %eax
    ret
.size pushed, .-pushed
";

#[test]
fn pointers_to_a_call_are_no_jumps_to_it() {
    let analysis = assembled(&format!("{FUNCTION}{POINTED}"));
    let verdicts: Vec<Verdict> = analysis.sites.iter().map(|site| site.verdict.clone()).collect();
    assert_eq!(verdicts, [Verdict::Patch, Verdict::Unpatchable]);
    assert_eq!(analysis.patches.len(), 1);
}

/// Addresses in data: of a system call and of what follows it, as valgrind has them; of the instruction
/// before one, and of what follows.
const POINTED: &str = "
.data
.quad 1f, 2f, 3f, 4f
.text
function compared
    mov $0, %eax
1:  syscall
2:  ret
.size compared, .-compared
function entered
    mov $0, %eax
3:  nop
    syscall
4:  ret
.size entered, .-entered
";

#[test]
fn jump_tables_without_bounds_of_functions() {
    let analysis = assembled(TABLES);
    let verdicts: Vec<Verdict> = analysis.sites.iter().map(|site| site.verdict.clone()).collect();
    assert_eq!(verdicts, [Verdict::Unpatchable, Verdict::Patch]);
}

/// Functions without a description, two of which use jump tables. The first table leads to the first
/// function's site. The second, read as a part of the first, would lead to the second function's.
const TABLES: &str = "
caller:
    call first
    call second
    call third
    ret
first:
    lea 1f(%rip), %rdx
    movslq (%rdx, %rdi, 4), %rax
    add %rdx, %rax
    jmp *%rax
2:  mov $0, %eax
3:  syscall
    ret
second:
    mov $0, %eax
4:  syscall
    ret
third:
    .skip 5, 0x90
5:  lea 6f(%rip), %rdx
    movslq (%rdx, %rdi, 4), %rax
    add %rdx, %rax
    jmp *%rax
.section .rodata
1:  .long 2b - 1b, 3b - 1b
6:  .long 5b - 6b
";

#[test]
fn bytes_within_an_instruction_are_no_branch() {
    for is_described in [true, false] {
        let (start, end) = if is_described { (".cfi_startproc", ".cfi_endproc") } else { ("", "") };
        let analysis = assembled(&LOOKALIKE.replace("START", start).replace("END", end));
        let is_read = |site: &Site| site.number.is(0);
        assert_eq!(analysis.sites.iter().map(is_read).collect::<Vec<_>>(), [is_described]);
    }
}

/// A constant in one function that reads as a jump into the site of another.
const LOOKALIKE: &str = "
first:
    START
    mov $0, %eax
1:  syscall
    ret
    END
caller:
    .cfi_startproc
    call first
    call second
    ret
    .skip 300, 0xcc
    .cfi_endproc
second:
    START
    .byte 0x48, 0xb8, 0xe9
    .long 1b - 2f
2:  .byte 0, 0, 0
    ret
    END
";

#[test]
fn bundle_keeps_what_it_learnt() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(Bundle::file_name());
    let bundle = Bundle::open(&path).expect("a bundle");
    let Status::Patched(sites) = bundle.add(Path::new(GLIBC)).expect("added") else { panic!("not patched") };
    assert!(sites > 200);
    let length = std::fs::metadata(&path).expect("the bundle").len();
    // Again, and through another handle, nothing is added.
    let again = Bundle::open(&path).expect("the same bundle");
    assert_eq!(again.add(Path::new(GLIBC)).expect("known"), Status::Patched(sites));
    assert_eq!(again.look(Path::new(GLIBC)).expect("known"), Some(Status::Patched(sites)));
    assert_eq!(std::fs::metadata(&path).expect("the bundle").len(), length);
    assert_eq!(again.add(Path::new("/bin/true")).expect("added"), Status::NoSites);
    std::fs::write(directory.path().join("text"), "no object").expect("a file");
    assert!(matches!(again.add(&directory.path().join("text")), Ok(Status::Refused(_))));
    let mut packed = std::fs::read("/bin/true").expect("a program");
    packed[1000..1004].copy_from_slice(b"UPX!");
    std::fs::write(directory.path().join("packed"), packed).expect("a file");
    let other = Bundle::open(&directory.path().join("other")).expect("a bundle");
    assert!(matches!(other.add(&directory.path().join("packed")), Ok(Status::Trapped(_))));
    // There was no space for its header.
    let begun = directory.path().join("begun");
    std::fs::File::create(&begun)
        .and_then(|file| file.set_len(lp_abi::image::PAGES_AT as u64))
        .expect("a file");
    std::fs::set_permissions(&begun, std::os::unix::fs::PermissionsExt::from_mode(0o0)).expect("changed");
    assert_eq!(
        Bundle::open(&begun).expect("made").add(Path::new("/bin/true")).expect("added"),
        Status::NoSites
    );
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&begun).expect("the bundle"));
    assert_eq!(mode & 0o777, 0o644);
    std::fs::write(&path, "something else, longer than a header").expect("a file");
    assert!(Bundle::open(&path).is_err(), "a file that is no bundle is taken for one");
}

#[test]
fn a_full_bundle_is_replaced() {
    use lp_abi::image::{ENTRIES, ENTRIES_AT, ObjectRecord, state};
    use std::os::unix::fs::FileExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(Bundle::file_name());
    let first = Bundle::open(&path).expect("a bundle");
    let full = std::fs::File::options().write(true).open(&path).expect("the bundle");
    for slot in 0..ENTRIES {
        let at = (ENTRIES_AT + slot * size_of::<ObjectRecord>()) as u64;
        full.write_all_at(&[1; 16], at).expect("written");
        full.write_all_at(&state::NO_SITES.to_le_bytes(), at + 16).expect("written");
    }
    let second = Bundle::open(&path).expect("the same bundle");
    assert!(matches!(first.add(Path::new(GLIBC)), Ok(Status::Patched(_))));
    assert!(!first.is_current());
    // Both go on with what has replaced it.
    assert_eq!(second.add(Path::new("/bin/true")).expect("added"), Status::NoSites);
    assert_eq!(first.add(Path::new("/bin/ls")).expect("added"), Status::NoSites);
    let now = Bundle::open(&path).expect("a bundle");
    for object in [GLIBC, "/bin/true", "/bin/ls"] {
        assert!(now.look(Path::new(object)).expect("readable").is_some(), "{object} is missing");
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("the directory").count(), 1);
}

#[test]
fn several_builders_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(Bundle::file_name());
    let objects = [GLIBC, LINKER, "/bin/true", "/bin/ls", "/bin/cat", "/bin/bash"];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let bundle = Bundle::open(&path).expect("a bundle");
                for object in objects {
                    bundle.add(Path::new(object)).expect("added");
                }
            });
        }
    });
    let bundle = Bundle::open(&path).expect("a bundle");
    for object in objects {
        assert!(bundle.look(Path::new(object)).expect("readable").is_some(), "{object} is missing");
    }
}
