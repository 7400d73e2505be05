//! Dispatch tables: from a call's number to its handler.

/// Answers one system call. The arguments are the registers `rdi rsi rdx r10 r8 r9`, unchecked. The result is
/// what the kernel would leave in `rax` (`-errno` on failure) or one of the values below.
///
/// A handler runs on the program's stack, which may be small: keep frames under 4 KiB and use the buffers of
/// [`crate::low::thread::record::Thread`] for more. No signal handler of the program runs before it returns.
pub(crate) type Handler = unsafe extern "sysv64" fn(usize, usize, usize, usize, usize, usize) -> isize;

/// The kernel answers the call: the site's own `syscall` runs with the registers as the program set them.
pub(crate) const NOT_OURS: isize = isize::MIN;
/// For [`crate::low::live::process`] only: like [`NOT_OURS`], for a call that creates a child that shares
/// memory with its parent until it execs.
pub(crate) const SHARE_MEMORY: isize = isize::MIN + 1;
/// For [`crate::low::live::deferred`], [`crate::low::live::process`] and [`crate::high::run::apart`] only:
/// run deferred signal handlers, then look the handler up and call it again.
pub(crate) const AGAIN: isize = isize::MIN + 2;
/// For [`crate::low::live::process`] only: the call creates a thread. The entry makes the call itself to
/// learn whether it fails.
pub(crate) const MAKE_THREAD: isize = isize::MIN + 5;
/// The call was interrupted while it waited ([`crate::low::live::deferred`]) and has had no effect. After the
/// signal's handler has run, it fails with `EINTR`, or restarts if that handler has `SA_RESTART`. The kernel's
/// ERESTARTSYS.
pub(crate) const RESTART: isize = -512;

/// The table at a symbol that assembly defines.
macro_rules! table_at {
    ($symbol:literal) => {{
        unsafe extern "C" {
            #[link_name = $symbol]
            static TABLE: [i32; 512];
        }
        $crate::low::dispatch::Table(&raw const TABLE)
    }};
}

pub(crate) use table_at;

/// Defines a dispatch table: `dispatch_table!(pub NAME "symbol": __NR_read => handler, ...)`, in ascending
/// order of numbers (the assembler rejects any other). Numbers without a handler are [`NOT_OURS`]; `.. =>
/// handler` at the end answers those from [`lp_abi::gated::UNKNOWN`] up.
///
/// Handlers are stored as offsets from the table. Absolute addresses would cost the dynamic linker one
/// relocation per entry, and two copied pages, in every process.
macro_rules! dispatch_table {
    ($(#[$doc:meta])* $visible:vis $name:ident $symbol:literal: $($nr:path => $handler:path,)* $(.. => $unknown:path,)?) => {
        core::arch::global_asm!(
            concat!(".pushsection .rodata.", $symbol, ",\"a\",@progbits"),
            ".balign 64",
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!($symbol, ":"),
            $(concat!(".org ", $symbol, " + 4 * {}\n.long {} - ", $symbol, " # ", stringify!($nr)),)*
            $(concat!(".org ", $symbol, " + 4 * {}\n.rept 512 - {}\n.long {} - ", $symbol, "\n.endr # ", stringify!($unknown)),)?
            concat!(".org ", $symbol, " + 4 * 512"),
            ".popsection",
            $(const $nr, sym $handler,)*
            $(const lp_abi::gated::UNKNOWN, const lp_abi::gated::UNKNOWN, sym $unknown,)?
        );
        $(#[$doc])*
        $visible static $name: $crate::low::dispatch::Table = $crate::low::dispatch::table_at!($symbol);
    };
}

pub(crate) use dispatch_table;

/// Defines a dispatch table whose entries are all one stub: `stub_table!(pub NAME "symbol": "stub")`.
macro_rules! stub_table {
    ($(#[$doc:meta])* $visible:vis $name:ident $symbol:literal: $stub:literal) => {
        core::arch::global_asm!(
            concat!(".pushsection .rodata.", $symbol, ",\"a\",@progbits"),
            ".balign 64",
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!($symbol, ":"),
            ".rept 512",
            concat!(".long ", $stub, " - ", $symbol),
            ".endr",
            ".popsection",
        );
        $(#[$doc])*
        $visible static $name: $crate::low::dispatch::Table = $crate::low::dispatch::table_at!($symbol);
    };
}

pub(crate) use stub_table;

/// For a stub: finds the handler of the entry's call in the table whose address `$table` loads into r10, and
/// loads the arguments. The entry has kept the number and the arguments below its rbp, which stays the
/// entry's: a handler may rely on it ([`crate::low::live::wait`]). The handler is in rax; without one it goes
/// to the next label 2.
macro_rules! to_handler {
    ($table:literal) => {
        concat!(
            "mov r11d, [rbp - 56]\n",
            $table,
            "\nmovsxd rax, dword ptr [r10 + 4 * r11]\n",
            "test eax, eax\n",
            "jz 2f\n",
            "add rax, r10\n",
            "mov rdi, [rbp - 8]\n",
            "mov rsi, [rbp - 16]\n",
            "mov rdx, [rbp - 24]\n",
            "mov rcx, [rbp - 32]\n",
            "mov r8, [rbp - 40]\n",
            "mov r9, [rbp - 48]",
        )
    };
}

pub(crate) use to_handler;

/// A dispatch table made by [`dispatch_table!`] or [`stub_table!`].
pub struct Table(#[doc(hidden)] pub *const [i32; 512]);

// SAFETY: the table is constant.
unsafe impl Sync for Table {}

impl Table {
    /// The table's address, as the entry takes it.
    pub fn address(&self) -> usize {
        self.0 as usize
    }

    /// Whether two calls have the same handler.
    pub fn is_same(&self, nr: u32, other: u32) -> bool {
        self.handler(nr).is_some_and(|handler| {
            self.handler(other).is_some_and(|other| handler as usize == other as usize)
        })
    }

    /// Whether call `nr` has a handler.
    pub fn handles(&self, nr: u32) -> bool {
        self.handler(nr).is_some()
    }

    /// The handler of call `nr`.
    pub fn handler(&self, nr: u32) -> Option<Handler> {
        // SAFETY: the table is constant and has 512 entries.
        let distance = *unsafe { &*self.0 }.get(nr as usize)?;
        // SAFETY: a nonzero offset leads to a handler.
        (distance != 0)
            .then(|| unsafe { core::mem::transmute(self.address().wrapping_add(distance as usize)) })
    }
}

/// Whether calls on low descriptors take a fast path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LowFds {
    /// They do: the table is that of all calls, and none of the gate's own descriptors is low.
    Short,
    /// They do, and record the calls.
    Recorded,
    /// No: all calls go through the table.
    Long,
    /// Calls on descriptors go to the kernel, except those on the gate's own, which the table has
    /// ([`crate::low::above`]).
    Apart,
}

/// How the calls of a process are answered.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    pub(crate) table: &'static Table,
    pub(crate) way: LowFds,
    /// The lowest of the gate's own descriptors, for the entries of [`LowFds::Apart`].
    pub(crate) hidden: u32,
}
