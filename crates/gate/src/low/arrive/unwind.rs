//! Unwind information of the entries (`.eh_frame`): how a debugger, a profiler and an unwinder in the program
//! step from the gate to the site.
//!
//! An entry's caller is the function that contains the site, not the thunk: thunks lie outside all objects
//! that unwinders know. The thunk's own code says where its site is ([`lp_abi::image`]): its `jo` leads to
//! the site's `syscall`, or, if that was displaced, to a copy in the thunk, and the distance of the site
//! from the copy precedes the copy. A thunk that stands for a whole function has the same before the
//! function's displaced start. The entry that saves vector registers calls the ordinary one; that caller is
//! recognised by the first byte of its code, which no thunk has there.
//!
//! A rule is a DWARF expression (DWARF 5, 2.5) because it reads code. It uses no operations but those that
//! Valgrind knows as well: no branches and no copies, so a choice is a product with 0 or 1. Where the return
//! address is in no place that an expression reaches, while a child uses the stack, the stack ends at the
//! entry.

/// The state of an entry's stack, for the instructions that follow.
///
/// `entered`: the return address is on top. `pushed`: rbp is above it. `framed`: rbp points to the saved rbp.
/// `kept`: so it does, and the arguments are below. `left`: the return address is in a register or a record.
macro_rules! unwind {
    (entered) => {
        // rsp + 8, rsp
        concat!(
            unwind!(@rules "0x77, 8", "0x77, 0"),
            "\n.irp register, rbp, rdi, rsi, rdx, r10, r8, r9\n.cfi_same_value \\register\n.endr"
        )
    };
    (pushed) => {
        // rsp + 16, rsp + 8; rbp is at rsp.
        concat!(unwind!(@rules "0x77, 16", "0x77, 8"), "\n.cfi_escape 0x10, 6, 2, 0x77, 0")
    };
    (framed) => {
        // rbp + 16, rbp + 8; rbp is at rbp.
        concat!(unwind!(@rules "0x76, 16", "0x76, 8"), "\n.cfi_escape 0x10, 6, 2, 0x76, 0")
    };
    (kept) => {
        // rdi is at rbp - 8, and so on.
        concat!(
            unwind!(framed),
            "\n.cfi_escape 0x10, 5, 2, 0x76, 0x78, 0x10, 4, 2, 0x76, 0x70, 0x10, 1, 2, 0x76, 0x68",
            "\n.cfi_escape 0x10, 10, 2, 0x76, 0x60, 0x10, 8, 2, 0x76, 0x58, 0x10, 9, 2, 0x76, 0x50"
        )
    };
    (left) => {
        ".cfi_def_cfa rsp, 128\n.cfi_same_value rbp\n.cfi_undefined rip"
    };
    // The caller's stack pointer: above the return address, and above the red zone if that leads to a thunk.
    // The return address, or the address after the site's `syscall`.
    (@rules $above:literal, $at:literal) => {
        concat!(
            ".cfi_escape 0x0f, 15, ", $above, unwind!(@in_thunk $at),
            ", 0x37, 0x24, 0x22\n", // lit7, shl, plus
            ".cfi_escape 0x16, 16, 0x83, 0x01", unwind!(@back $at), unwind!(@in_thunk $at),
            unwind!(@leads $at), unwind!(@distance $at), unwind!(@leads $at),
            ", 0x39, 0x25, 0x30, 0x29, 0x1e", // lit9, shr, lit0, eq, mul: within 512 bytes is a copy
            ", 0x22, 0x23, 2, 0x1e, 0x22",    // plus, plus_uconst 2, mul, plus
        )
    };
    // The return address.
    (@back $at:literal) => {
        concat!(", ", $at, ", 0x06") // deref
    };
    // 1 if it leads to a thunk, or 0.
    (@in_thunk $at:literal) => {
        // deref, const1u 0xff, and, const1u 0x48, eq
        concat!(unwind!(@back $at), ", 0x06, 0x08, 0xff, 0x1a, 0x08, 0x48, 0x29")
    };
    // From it to where the thunk's `jo` leads: what is stored 10 bytes on, and 14.
    (@leads $at:literal) => {
        // plus_uconst 10, deref, sign extension without 14
        concat!(unwind!(@back $at), ", 0x23, 10, 0x06", unwind!(@extended "0xf2, 0xff, 0xff, 0x7f"))
    };
    // What is stored before the place where it leads.
    (@distance $at:literal) => {
        concat!(
            unwind!(@back $at), unwind!(@in_thunk $at), unwind!(@leads $at),
            ", 0x1e, 0x22, 0x34, 0x1c, 0x06", // mul, plus, lit4, minus, deref
            unwind!(@extended "0, 0, 0, 0x80"),
        )
    };
    // The sign extension of 32 bits, plus 2^31 minus a constant: const4u 2^31, plus, const4u, and, const4u,
    // minus.
    (@extended $constant:literal) => {
        concat!(
            ", 0x0c, 0, 0, 0, 0x80, 0x22, 0x0c, 0xff, 0xff, 0xff, 0xff, 0x1a, 0x0c, ", $constant, ", 0x1c"
        )
    };
}
pub(crate) use unwind;
