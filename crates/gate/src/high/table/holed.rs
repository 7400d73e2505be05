//! The calls of a process that maps large holes ([`crate::high::memory::holes`]): a dispatch table of its
//! own, so that other processes pay nothing.
//!
//! The kernel fails with `EFAULT` at a hole, or stops there and returns less, and what it had taken from a
//! socket may be lost. So memory that a call names gets pages first: as much as the call says where the
//! length is among its arguments, else the page of each argument that is an address in a hole.

// Calls are patterns here, under the kernel's names.
#![allow(non_upper_case_globals)]

use core::arch::global_asm;

use lp_abi::PAGE_SIZE;
use lp_abi::linux::*;
use lp_vfs::task::Task;

use crate::high::calls::aio;
use crate::high::frame::handler::task;
use crate::high::frame::message;
use crate::high::memory::holes;
use crate::low::dispatch::{NOT_OURS, stub_table, to_handler};

global_asm!(
    ".pushsection .text.lp_holed,\"ax\",@progbits",
    ".hidden lp_holed",
    "lp_holed:",
    ".cfi_startproc",
    "mov edi, [rbp - 56]",
    "lea rsi, [rbp - 48]",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {touch}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    to_handler!("lea r10, [rip + lp_table_calls]"),
    "jmp rax",
    "2:",
    "mov rax, {not_ours}",
    "ret",
    ".cfi_endproc",
    ".popsection",
    not_ours = const NOT_OURS,
    touch = sym touch,
);

stub_table! {
    /// The table of a process that maps large holes.
    pub(crate) HOLED "lp_table_holed": "lp_holed"
}

/// Words below are no addresses of mappings: counts, flags, descriptors.
const LOWEST: usize = 1 << 16;

/// Gives pages to the memory that call `nr` names. `words` holds its arguments in reverse order.
pub(crate) extern "sysv64" fn touch(nr: u32, words: &[usize; 6]) {
    let task = task();
    let [f, e, d, c, b, a] = *words;
    let words = [a, b, c, d, e, f];
    match nr {
        __NR_mmap
        | __NR_munmap
        | __NR_mremap
        | __NR_mprotect
        | __NR_pkey_mprotect
        | __NR_madvise
        | __NR_msync
        | __NR_remap_file_pages
        | __NR_shmat
        | __NR_mlock
        | __NR_mlock2
        | __NR_munlock => return,
        __NR_readv | __NR_writev | __NR_preadv | __NR_pwritev | __NR_preadv2 | __NR_pwritev2
        | __NR_vmsplice => holes::touch_vector(task, b, c),
        __NR_recvmsg | __NR_sendmsg => touch_messages(task, b, 1),
        __NR_recvmmsg | __NR_sendmmsg => touch_messages(task, b, c as u32),
        __NR_io_submit => aio::touch_buffers(task, b as i64, c as *const _),
        _ => {}
    }
    for (at, word) in words.into_iter().enumerate() {
        // mincore(2) says of its first argument what is there.
        if word < LOWEST || nr == __NR_mincore && at == 0 {
            continue;
        }
        let has_length = place_of_memory(nr) == Some(at);
        holes::touch(task, word, if has_length { words[at + 1] } else { PAGE_SIZE });
    }
}

/// Index of the address whose length is the call's next argument.
fn place_of_memory(nr: u32) -> Option<usize> {
    match nr {
        __NR_getcwd => Some(0),
        __NR_read | __NR_write | __NR_pread64 | __NR_pwrite64 | __NR_recvfrom | __NR_sendto
        | __NR_getdents | __NR_getdents64 | __NR_readlink | __NR_listxattr | __NR_llistxattr
        | __NR_flistxattr => Some(1),
        __NR_readlinkat | __NR_setxattr | __NR_lsetxattr | __NR_fsetxattr | __NR_getxattr
        | __NR_lgetxattr | __NR_fgetxattr => Some(2),
        _ => None,
    }
}

fn touch_messages(task: &Task, at: usize, count: u32) {
    for message in message::messages(at, count) {
        holes::touch(task, message.name, message.name_length as usize);
        holes::touch(task, message.control, message.control_length);
        holes::touch_vector(task, message.vector, message.vector_length);
    }
}
