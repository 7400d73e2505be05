//! The stack that the kernel made for the gate's file, adapted for the program.

use core::ffi::CStr;
use core::ops::Range;

use lp_abi::linux::{__NR_brk, __NR_prctl};

use crate::low::object::objects::{Auxiliary, Segment};
use crate::low::start::standalone::image::Image;
use crate::low::tools::report;

const AT_NULL: usize = 0;
const AT_PHDR: usize = 3;
const AT_PHENT: usize = 4;
const AT_PHNUM: usize = 5;
const AT_BASE: usize = 7;
const AT_ENTRY: usize = 9;
const AT_HWCAP2: usize = 26;
const AT_EXECFN: usize = 31;

/// The words at the start of the stack.
pub(super) struct InitialStack {
    at: *mut usize,
    arguments: usize,
    variables: usize,
    /// Addresses: start of the arguments' strings, start of the environment's, end of both.
    strings: [usize; 3],
}

/// `struct prctl_mm_map` of linux/prctl.h.
#[repr(C)]
struct MemoryMap {
    code: [usize; 2],
    data: [usize; 2],
    /// Start and end of the heap.
    heap: [usize; 2],
    stack: usize,
    arguments: [usize; 2],
    environment: [usize; 2],
    vector: *const [usize; 2],
    vector_bytes: u32,
    program: u32,
}

const PR_SET_MM: u32 = 35;
const PR_SET_MM_MAP: u32 = 14;
/// Leaves the kernel's record of the program's file unchanged.
const NO_FILE: u32 = u32::MAX;

impl InitialStack {
    /// # Safety
    /// `at` must be the stack pointer as the kernel sets it for a new program.
    pub(super) unsafe fn read(at: *mut usize) -> InitialStack {
        // SAFETY: the kernel puts there the number of arguments, the arguments and a null pointer, the
        // variables and a null pointer.
        unsafe {
            let arguments = *at;
            let first = at.add(1 + arguments + 1);
            let mut variables = 0;
            while *first.add(variables) != 0 {
                variables += 1;
            }
            let end_of = |vector: *mut usize, count: usize| match count {
                0 => 0,
                count => {
                    let last = *vector.add(count - 1);
                    last + report::c_bytes(last as *const u8).len() + 1
                }
            };
            let start = if arguments == 0 { at as usize } else { *at.add(1) };
            let middle = end_of(at.add(1), arguments).max(start);
            InitialStack {
                at,
                arguments,
                variables,
                strings: [start, middle, end_of(first, variables).max(middle)],
            }
        }
    }

    pub(super) fn environment(&self) -> *mut *mut u8 {
        self.at.wrapping_add(1 + self.arguments + 1).cast()
    }

    /// Whether valgrind's launcher started the program, which it says in the environment. Such a program
    /// translates the code that it maps.
    pub(super) fn is_translator(&self) -> bool {
        let first = self.environment();
        (0..self.variables).any(|index| {
            // SAFETY: the environment has so many variables, which are NUL-terminated.
            let text = unsafe { *first.add(index) };
            // SAFETY: as above.
            !text.is_null() && unsafe { report::c_bytes(text) }.starts_with(b"VALGRIND_LAUNCHER=")
        })
    }

    /// Closes the gap left by variables removed from the environment: the auxiliary vector must follow the
    /// environment's null pointer.
    pub(super) fn close_gap(&mut self) {
        let (from, count) = (self.vector(), self.entries().count() + 1);
        let first = self.environment();
        // SAFETY: the environment ends with a null pointer, at its old place or before; the vector moves
        // down, within the stack.
        unsafe {
            while self.variables != 0 && (*first.add(self.variables - 1)).is_null() {
                self.variables -= 1;
            }
            self.vector().copy_from(from, count);
        }
    }

    /// The auxiliary vector.
    fn vector(&self) -> *mut [usize; 2] {
        self.environment().wrapping_add(self.variables + 1).cast()
    }

    fn entries(&self) -> impl Iterator<Item = *mut [usize; 2]> {
        let first = self.vector();
        // SAFETY: the vector ends with AT_NULL, at which the iteration stops.
        (0..).map(move |index| first.wrapping_add(index)).take_while(|at| unsafe { (**at)[0] } != AT_NULL)
    }

    /// The machine's features according to AT_HWCAP2.
    pub(super) fn hwcap2(&self) -> usize {
        // SAFETY: `at` is an entry of the vector.
        self.entries()
            .map(|at| unsafe { *at })
            .find(|[kind, _]| *kind == AT_HWCAP2)
            .map_or(0, |[_, value]| value)
    }

    pub(super) fn auxiliary(&self) -> Auxiliary {
        // SAFETY: the process's own vector.
        unsafe { Auxiliary::read(self.vector()) }
    }

    /// Makes the vector describe the program, executed under the name `name`. All other entries that matter
    /// are as the kernel set them; nobody has used the bytes of AT_RANDOM yet.
    pub(super) fn describe(&mut self, image: &Image, name: &'static CStr) {
        for entry in self.entries() {
            // SAFETY: an entry of the vector, which nothing else uses at this point.
            let [kind, value] = unsafe { &mut *entry };
            *value = match *kind {
                AT_PHDR => image.headers_at,
                AT_PHENT => size_of::<Segment>(),
                AT_PHNUM => image.segments().len(),
                AT_BASE => 0,
                AT_ENTRY => image.entry,
                AT_EXECFN => name.as_ptr() as usize,
                _ => continue,
            };
        }
    }

    /// Makes the vector name `base` as the address of the program's loader.
    pub(super) fn set_loader(&mut self, base: usize) {
        for entry in self.entries() {
            // SAFETY: an entry of the vector, which nothing else uses at this point.
            let [kind, value] = unsafe { &mut *entry };
            if *kind == AT_BASE {
                *value = base;
            }
        }
    }

    /// Makes /proc/self/auxv, stat and the like describe the program. Where the kernel cannot do this, they
    /// describe the gate's file.
    pub(super) fn show(&self, [code, data]: [Range<usize>; 2]) {
        // SAFETY: brk(0) only asks where the heap ends, which is still empty.
        let Ok(heap) = (unsafe { lp_abi::syscall!(__NR_brk, 0) }) else { return };
        let [arguments, environment, end] = self.strings;
        let map = MemoryMap {
            code: [code.start, code.end],
            data: [data.start, data.end],
            heap: [heap, heap],
            stack: self.at as usize,
            arguments: [arguments, environment],
            environment: [environment, end],
            vector: self.vector(),
            vector_bytes: ((self.entries().count() + 1) * size_of::<[usize; 2]>()) as u32,
            program: NO_FILE,
        };
        // SAFETY: the kernel reads the record and the vector, which outlive the call.
        let _ = unsafe {
            lp_abi::syscall!(__NR_prctl, PR_SET_MM, PR_SET_MM_MAP, &raw const map, size_of::<MemoryMap>(), 0)
        };
    }
}
