//! Static programs. No dynamic linker takes part in their start, so the gate's own file does the kernel's
//! work.
//!
//! An exec of a static program executes the gate's file for those (`lp_sites::by_gs`) in its place, with the
//! program's arguments and environment and an open descriptor of the program, which LIGHTPATH_GATE names
//! (`crate::low::exec::environment`). The kernel enters [`start`] on the stack that becomes the program's.
//!
//! 1. [`relocate`] performs the gate's own relocations.
//! 2. `image` maps the program from the descriptor, as the kernel would.
//! 3. `vector` makes the auxiliary vector describe the program.
//! 4. [`crate::low::start::attach`] patches it from its site image, like any other object.
//!
//! The kernel also enters it as the loader of programs that are executed by an outline (`interpreter`).
//!
//! What the kernel shows of the process is the program's (`show`), except for the link /proc/PID/exe, which
//! the gate answers (`link`).

mod image;
mod interpreter;
pub(crate) mod link;
mod vector;

use lp_abi::linux::__NR_close;

use crate::low::exec::inherited;
use crate::low::live::{signal, trap};
use crate::low::object::objects::Object;
use crate::low::start::{attach, process_name};
use crate::low::thread::tls;
use crate::low::tools::{names, report};
use image::Image;
use vector::InitialStack;

const DT_NULL: usize = 0;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
/// Relocation types, as checked by `lp_sites::by_gs`: `R_X86_64_RELATIVE`, else `R_X86_64_TPOFF64`.
const RELATIVE: usize = 8;

/// Performs the gate's own relocations. Uses nothing that needs one.
///
/// # Safety
/// Must be called once, before anything else of the gate runs.
pub unsafe extern "sysv64" fn relocate() {
    let (base, mut dynamic): (usize, *const [usize; 2]);
    // SAFETY: only computes addresses.
    unsafe {
        core::arch::asm!("lea {base}, [rip + __ehdr_start]", "lea {dynamic}, [rip + _DYNAMIC]",
            base = out(reg) base, dynamic = out(reg) dynamic, options(nomem, nostack, preserves_flags));
    }
    let (mut table, mut bytes) = (0, 0);
    // SAFETY: the section ends with DT_NULL; the linker made the table, whose entries name places in the
    // gate's data.
    unsafe {
        while (*dynamic)[0] != DT_NULL {
            match *dynamic {
                [DT_RELA, at] => table = at,
                [DT_RELASZ, size] => bytes = size,
                _ => {}
            }
            dynamic = dynamic.add(1);
        }
        let first = (base + table) as *const [usize; 3];
        for index in 0..bytes / size_of::<[usize; 3]>() {
            let [at, kind, addend] = *first.add(index);
            let value = if kind == RELATIVE { base + addend } else { tls::IN_WORDS + addend };
            ((base + at) as *mut usize).write(value);
        }
    }
}

/// Starts the program and returns its entry point. `stack` is as the kernel made it.
///
/// # Safety
/// Only the file's entry may call it, once, after [`relocate`].
pub unsafe extern "sysv64" fn start(stack: *mut usize) -> usize {
    // SAFETY: the caller guarantees that `stack` is as the kernel made it.
    let mut stack = unsafe { InitialStack::read(stack) };
    let auxiliary = stack.auxiliary();
    if auxiliary.linker != 0 {
        return interpreter::start(&mut stack, &auxiliary);
    }
    tls::start_by_gs(stack.hwcap2());
    // SAFETY: the environment as the kernel made it; nothing uses it yet.
    let found = unsafe { inherited::scrub(stack.environment()) };
    let Some((found, program)) = found.and_then(|found| found.program.map(|program| (found, program))) else {
        report::refuse(&[b"this file starts static programs; lightpath run executes it"]);
    };
    let image = match Image::map(program.fd) {
        Ok(image) => image,
        Err(why) => report::refuse(&[program.executed.path.to_bytes(), b": ", why]),
    };
    stack.close_gap();
    stack.describe(&image, program.executed.path);
    let mut room = [0; names::ROOM];
    let path = names::of_descriptor(program.fd, &mut room);
    let object = Object { base: image.base, segments: image.segments(), name: path };
    let (mut auxiliary, translates) = (stack.auxiliary(), stack.is_translator());
    if translates {
        auxiliary.vdso = 0; // valgrind unmaps it.
    }
    // SAFETY: the only call; the program is mapped, and nothing of it runs.
    let mask = unsafe { attach::start_static(&found, &auxiliary, object, translates) };
    process_name::set(program.executed, path);
    stack.show(image::code_and_data(image.base, image.segments().iter().copied()));
    // SAFETY: the descriptor was opened for this start, and nothing else uses it.
    let _ = unsafe { lp_abi::syscall!(__NR_close, program.fd) };
    if let Some(mask) = mask {
        signal::set_mask(lp_abi::linux::SIG_SETMASK, mask & !trap::kept_open(mask));
    }
    image.entry
}
