//! The clock for file times: `CLOCK_REALTIME_COARSE`, like Linux's `ktime_get_coarse_real_ts64`, read through
//! the vDSO without a C library (vdso(7)).

use core::mem::MaybeUninit;

use lp_abi::linux::{__NR_clock_gettime, CLOCK_REALTIME_COARSE};
use lp_region::sync::{AtomicU64, Ordering};

use crate::caller::task::Time;

/// Address of `__vdso_clock_gettime`; 0 until [`init`] has found it.
static VDSO: AtomicU64 = AtomicU64::new(0);

type ClockGettime = unsafe extern "C" fn(i32, *mut [i64; 2]) -> i32;

/// Finds the vDSO's function in the ELF image at `AT_SYSINFO_EHDR` (getauxval(3)). Without an image or the
/// function, [`now`] makes system calls.
///
/// # Safety
/// `ehdr` must be 0 or the address that the kernel gave.
pub unsafe fn init(ehdr: usize) {
    if ehdr == 0 {
        return;
    }
    // SAFETY: the caller guarantees the kernel's address, where the kernel maps a whole ELF image.
    let found = unsafe { Image::parse(ehdr).and_then(|image| image.function(b"__vdso_clock_gettime")) };
    VDSO.store(found.unwrap_or(0) as u64, Ordering::Relaxed); // Relaxed: the address stands alone.
}

/// The current time.
#[inline]
pub fn now() -> Time {
    let mut time = MaybeUninit::<[i64; 2]>::uninit();
    let function = VDSO.load(Ordering::Relaxed); // Relaxed: the address stands alone.
    if function != 0 {
        // SAFETY: `init` found it under the name of a function of this type.
        let function = unsafe { core::mem::transmute::<usize, ClockGettime>(function as usize) };
        // SAFETY: the function writes 16 bytes, the size of `time`.
        unsafe { function(CLOCK_REALTIME_COARSE as i32, time.as_mut_ptr()) };
    } else {
        now_slow(time.write([0; 2]));
    }
    // SAFETY: either branch has written it.
    let time = unsafe { time.assume_init() };
    Time { sec: time[0], nsec: time[1] as u32 }
}

#[cold]
fn now_slow(time: &mut [i64; 2]) {
    // SAFETY: the kernel writes 16 bytes, the size of `time`.
    let _ = unsafe { lp_abi::syscall!(__NR_clock_gettime, CLOCK_REALTIME_COARSE, time.as_mut_ptr()) };
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const SYMBOL_SIZE: usize = 24;

/// The vDSO's dynamic symbols: elf(5). Read with our own code because the image is mapped memory of unknown
/// length, not the slice that the `object` crate parses.
struct Image {
    bias: usize,
    symbols: usize,
    strings: usize,
    count: usize,
}

impl Image {
    /// # Safety
    /// A whole ELF image must be mapped at `ehdr`.
    unsafe fn parse(ehdr: usize) -> Option<Image> {
        let (mut bias, mut dynamic) = (None, None);
        // SAFETY: e_phoff, e_phentsize and e_phnum are at these offsets of a 64-bit ELF header.
        let (offset, size, count) =
            unsafe { (read::<u64>(ehdr + 32), read::<u16>(ehdr + 54), read::<u16>(ehdr + 56)) };
        for index in 0..count as usize {
            let header = ehdr + offset as usize + index * size as usize;
            // SAFETY: within the program headers, which are part of the image.
            let (kind, file, address) =
                unsafe { (read::<u32>(header), read::<u64>(header + 8), read::<u64>(header + 16)) };
            match kind {
                PT_LOAD if bias.is_none() => {
                    bias = Some(ehdr.wrapping_add(file as usize).wrapping_sub(address as usize));
                }
                PT_DYNAMIC => dynamic = Some(ehdr + file as usize),
                _ => {}
            }
        }
        // SAFETY: the dynamic section is part of the image.
        unsafe { Image::from_dynamic(bias?, dynamic?) }
    }

    /// # Safety
    /// `dynamic` must be the dynamic section of an image loaded with `bias`.
    unsafe fn from_dynamic(bias: usize, dynamic: usize) -> Option<Image> {
        let (mut symbols, mut strings, mut hash, mut gnu) = (0, 0, 0, 0);
        for index in 0..64 {
            let at = dynamic + index * 16;
            // SAFETY: DT_NULL ends the section, and the loop.
            let (tag, value) = unsafe { (read::<u64>(at), read::<u64>(at + 8) as usize) };
            match tag {
                0 => break,
                DT_SYMTAB => symbols = bias.wrapping_add(value),
                DT_STRTAB => strings = bias.wrapping_add(value),
                DT_HASH => hash = bias.wrapping_add(value),
                DT_GNU_HASH => gnu = bias.wrapping_add(value),
                _ => {}
            }
        }
        let count = match (hash, gnu) {
            (0, 0) => 0,
            // SAFETY: the DT_GNU_HASH table is part of the image.
            (0, gnu) => unsafe { gnu_count(gnu) },
            // SAFETY: the second word of DT_HASH, which is the number of symbols and part of the image.
            (hash, _) => unsafe { read::<u32>(hash + 4) as usize },
        };
        (symbols != 0 && strings != 0 && count != 0).then_some(Image { bias, symbols, strings, count })
    }

    /// # Safety
    /// The image must be mapped.
    unsafe fn function(&self, name: &[u8]) -> Option<usize> {
        (0..self.count).find_map(|index| {
            let symbol = self.symbols + index * SYMBOL_SIZE;
            // SAFETY: within the symbol table.
            let (string, value) = unsafe { (read::<u32>(symbol) as usize, read::<u64>(symbol + 8) as usize) };
            // SAFETY: names are NUL-terminated, so the comparison ends at the first byte that differs.
            let same = (0..=name.len())
                .all(|at| unsafe { read::<u8>(self.strings + string + at) } == *name.get(at).unwrap_or(&0));
            (same && value != 0).then(|| self.bias.wrapping_add(value))
        })
    }
}

/// Number of symbols that a DT_GNU_HASH table covers: the end of the highest chain.
///
/// # Safety
/// `table` must be such a table.
unsafe fn gnu_count(table: usize) -> usize {
    // SAFETY: number of buckets, first symbol, words of the bloom filter; buckets and chains follow it.
    let (buckets, first, bloom) = unsafe {
        (read::<u32>(table) as usize, read::<u32>(table + 4) as usize, read::<u32>(table + 8) as usize)
    };
    let bucket_at = table + 16 + bloom * 8;
    let chain_at = bucket_at + buckets * 4;
    // SAFETY: within the table's buckets.
    let last =
        (0..buckets).map(|index| unsafe { read::<u32>(bucket_at + index * 4) as usize }).max().unwrap_or(0);
    if last < first {
        return 0;
    }
    let mut symbol = last;
    // SAFETY: a chain ends at the first word with bit 0 set.
    while unsafe { read::<u32>(chain_at + (symbol - first) * 4) } & 1 == 0 {
        symbol += 1;
    }
    symbol + 1
}

/// # Safety
/// `address` must be readable for a `T`.
unsafe fn read<T: Copy>(address: usize) -> T {
    // SAFETY: the caller guarantees that a `T` can be read there.
    unsafe { core::ptr::read_unaligned(address as *const T) }
}
