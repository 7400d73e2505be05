//! The bundle of site images, and the mapping of an image over and beside its object.

use core::cell::UnsafeCell;
use core::mem::{MaybeUninit, size_of};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use lp_abi::image::{
    BundleHeader, ENTRIES, ENTRIES_AT, Fixup, GatePage, MAGIC, ObjectRecord, PROBES, QUICK_CALLS, TextRange,
    TracerDoor, VERSION, first_probe, state,
};
use lp_abi::linux::{
    __NR_close, __NR_fstat, __NR_geteuid, __NR_mmap, __NR_mprotect, __NR_munmap, __NR_newfstatat,
    __NR_openat, __NR_pread64, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, O_CLOEXEC, O_RDONLY, PROT_EXEC,
    PROT_READ, PROT_WRITE, stat,
};
use lp_abi::{Result, gated};

use crate::low::dispatch::{Calls, LowFds, Table};
use crate::low::object::objects::{Object, PF_W};
use crate::low::thread::home;
use crate::low::thread::home::home;
use crate::low::tools::report;

const AT_FDCWD: isize = -100;
const CODE: u32 = PROT_READ | PROT_EXEC;

/// An open bundle.
pub(crate) struct Bundle(usize);

impl Drop for Bundle {
    fn drop(&mut self) {
        // SAFETY: the descriptor belongs to this value.
        let _ = unsafe { lp_abi::syscall!(__NR_close, self.0) };
    }
}

/// The owner of the file that a kind of stat(2) describes.
fn owner(stat_it: impl FnOnce(*mut stat) -> Result<usize>) -> Option<u32> {
    let mut found = MaybeUninit::<stat>::zeroed();
    stat_it(found.as_mut_ptr()).ok()?;
    // SAFETY: initialised: zeros are a valid record too.
    Some(unsafe { found.assume_init_ref() }.st_uid)
}

impl Bundle {
    /// Opens the bundle at `path`; `None` if there is none for this gate.
    ///
    /// # Safety
    /// `path` must be NUL-terminated.
    pub(crate) unsafe fn open(path: *const u8) -> Option<Bundle> {
        // SAFETY: the caller guarantees that `path` is NUL-terminated.
        let fd = unsafe { lp_abi::syscall!(__NR_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) }.ok()?;
        let bundle = Bundle(fd);
        // SAFETY: the caller guarantees that `path` is NUL-terminated.
        if unsafe { report::c_bytes(path) }.starts_with(b"/tmp/") && !bundle.is_own() {
            return None;
        }
        let header = bundle.read::<BundleHeader>(0)?;
        let same = header.magic == MAGIC && header.version == VERSION && header.gated_set == gated::GATED_SET;
        same.then_some(bundle)
    }

    /// Whether it belongs to this process's user, or to the owner of the gate's own file: in a user namespace
    /// the two may differ. In a directory that everyone may write to, another user may have put it there.
    fn is_own(&self) -> bool {
        // SAFETY: the path is NUL-terminated; both calls fill the record in.
        let own = owner(|to| unsafe { lp_abi::syscall!(__NR_fstat, self.0, to) });
        let gate = home::settings().preload.pointer();
        // SAFETY: as above.
        let gates = owner(|to| unsafe { lp_abi::syscall!(__NR_newfstatat, AT_FDCWD, gate, to, 0) });
        // SAFETY: geteuid(2) changes nothing.
        let user = unsafe { lp_abi::syscall!(__NR_geteuid) }.map(|user| user as u32);
        own.is_some() && (user.ok() == own || gates == own)
    }

    /// The entry of the object with this key.
    pub(crate) fn find(&self, key: [u64; 2]) -> Option<ObjectRecord> {
        let first = first_probe(key);
        for probe in 0..PROBES {
            let index = (first + probe) % ENTRIES;
            let entry = self.read::<ObjectRecord>(ENTRIES_AT + index * size_of::<ObjectRecord>())?;
            if entry.state == state::EMPTY {
                return None;
            }
            if entry.key == key {
                return Some(entry);
            }
        }
        None
    }

    /// Reads a record of integers.
    fn read<T: Copy>(&self, at: usize) -> Option<T> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the kernel writes within `value`, which counts as initialised only if all of it was
        // written; records of integers are valid for any bytes.
        unsafe {
            let got = lp_abi::syscall!(__NR_pread64, self.0, value.as_mut_ptr(), size_of::<T>(), at);
            (got == Ok(size_of::<T>())).then(|| value.assume_init())
        }
    }
}

/// Maximum number of thunk pages recorded.
const THUNKS: usize = 64;

/// Addresses of thunk pages mapped beside objects, so that those of an unloaded object can be replaced.
static THUNK_PAGES: [AtomicUsize; THUNKS] = [const { AtomicUsize::new(0) }; THUNKS];

/// Number of sites patched in this process.
pub(crate) static SITES: AtomicU32 = AtomicU32::new(0);

/// Patches `object` according to `entry`.
///
/// # Errors
/// Those of mmap(2).
///
/// # Safety
/// `entry` must be that of the object. Nobody may execute a patched place of its text or change the
/// text meanwhile.
pub(crate) unsafe fn apply(bundle: &Bundle, object: &Object<'_>, entry: &ObjectRecord) -> Result<()> {
    let base = object.base;
    let wanted = base.wrapping_add_signed(entry.thunk_delta as isize);
    let moved = match map_thunks(bundle, wanted, entry, CODE) {
        Ok(()) => 0,
        Err(_) => {
            // SAFETY: the caller guarantees the right entry, and that nobody executes or changes the text.
            unsafe { map_thunks_elsewhere(bundle, base, wanted, entry)? }
        }
    };
    for range in entry.ranges.iter().take(entry.range_count as usize) {
        let (at, from) = (base + range.at as usize, range.from);
        // SAFETY: the pages replace those of the object's text; they equal them byte for byte except at
        // patched sites.
        unsafe {
            let protection = if moved == 0 { protection(object, range) } else { PROT_READ | PROT_WRITE };
            let flags = MAP_PRIVATE | MAP_FIXED;
            lp_abi::syscall!(__NR_mmap, at, range.bytes, protection, flags, bundle.0, from)?;
        }
    }
    if moved != 0 {
        // SAFETY: the pages are private copies, writable until `correct` makes them code.
        unsafe { correct(bundle, object, wanted.wrapping_add_signed(moved), moved, entry)? };
    }
    let thunks = wanted.wrapping_add_signed(moved);
    for slot in &THUNK_PAGES {
        let known = slot.load(Ordering::Relaxed);
        if known == thunks {
            break;
        }
        // Relaxed: the word stands alone. Losing this race loses only the right to reuse the pages.
        if known == 0 && slot.compare_exchange(0, thunks, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            break;
        }
    }
    SITES.fetch_add(entry.sites, Ordering::Relaxed);
    Ok(())
}

/// How the pages of a range are mapped: data of the program's may lie beside the text (`ld -N`).
fn protection(object: &Object<'_>, range: &TextRange) -> u32 {
    let is_writable = object.code().any(|code| {
        code.flags & PF_W != 0
            && code.address < range.at + range.bytes
            && range.at < code.address + code.bytes
    });
    if is_writable { CODE | PROT_WRITE } else { CODE }
}

fn map_thunks(bundle: &Bundle, at: usize, entry: &ObjectRecord, protection: u32) -> Result<()> {
    // The thunks of an unloaded object stay mapped; those of another object at the same address replace them.
    let stale = THUNK_PAGES.iter().any(|thunks| thunks.load(Ordering::Relaxed) == at);
    let fixed = if stale { MAP_FIXED } else { MAP_FIXED_NOREPLACE };
    let (bytes, from) = (entry.thunk_bytes, entry.thunk_at);
    // SAFETY: new pages where nothing is mapped, or over the thunks of an unloaded object.
    let got =
        unsafe { lp_abi::syscall!(__NR_mmap, at, bytes, protection, MAP_PRIVATE | fixed, bundle.0, from) }?;
    if got == at {
        return Ok(());
    }
    // A kernel without MAP_FIXED_NOREPLACE treats the address as a hint. SAFETY: the mapping was just made,
    // and nothing uses it.
    let _ = unsafe { lp_abi::syscall!(__NR_munmap, got, bytes) };
    Err(lp_abi::Errno::EEXIST)
}

/// Finds another address for the thunks, within reach of the text. Returns its distance from the one wanted.
///
/// # Safety
/// The requirements of [`apply`]: the entry is the object's, and nobody executes or changes its text.
unsafe fn map_thunks_elsewhere(
    bundle: &Bundle,
    base: usize,
    wanted: usize,
    entry: &ObjectRecord,
) -> Result<isize> {
    const STEP: isize = 64 << 20;
    const REACH: isize = 1792 << 20;
    let mut error = lp_abi::Errno::ENOMEM;
    for step in 1..=28 {
        for distance in [-step * STEP, step * STEP] {
            let at = base.wrapping_add_signed(distance);
            if distance.abs() > REACH || at == wanted || at < 1 << 20 || at >> 47 != 0 {
                continue;
            }
            match map_thunks(bundle, at, entry, PROT_READ | PROT_WRITE) {
                Ok(()) => return Ok(at as isize - wanted as isize),
                Err(errno) => error = errno,
            }
        }
    }
    Err(error)
}

/// Corrects the offsets between text and thunks that lie `moved` bytes above their intended address.
///
/// # Safety
/// The entry must be that of the object, and its pages must be mapped writable.
unsafe fn correct(
    bundle: &Bundle,
    object: &Object<'_>,
    thunks: usize,
    moved: isize,
    entry: &ObjectRecord,
) -> Result<()> {
    let base = object.base;
    const BATCH: usize = 256;
    let mut done = 0;
    while done < entry.fixups as usize {
        let at = entry.fixups_at as usize + done * size_of::<Fixup>();
        let Some(batch) = bundle.read::<[Fixup; BATCH]>(at) else {
            return Err(lp_abi::Errno::EIO);
        };
        for fixup in &batch[..BATCH.min(entry.fixups as usize - done)] {
            let (at, change) = match fixup.at & Fixup::IN_THUNK {
                0 => (base + fixup.at as usize, moved as i32),
                _ => (thunks + (fixup.at & !Fixup::IN_THUNK) as usize, -(moved as i32)),
            };
            // SAFETY: fixups are places within the entry's pages, which the caller guarantees are writable.
            unsafe {
                let distance = (at as *mut i32).read_unaligned();
                (at as *mut i32).write_unaligned(distance.wrapping_add(change));
            }
        }
        done += BATCH;
    }
    let ranges = entry.ranges.iter().take(entry.range_count as usize);
    let pages = ranges.map(|range| (base + range.at as usize, range.bytes, protection(object, range)));
    for (at, bytes, protection) in pages.chain([(thunks, entry.thunk_bytes, CODE)]) {
        // SAFETY: the pages are complete and become code again.
        unsafe { lp_abi::syscall!(__NR_mprotect, at, bytes, protection) }?;
    }
    Ok(())
}

/// Sends all calls through the table from this point on, because one of the gate's own descriptors is low.
pub(crate) fn take_long_way() {
    // SAFETY: the home is mapped.
    for page in [lp_slots.0.get().cast::<GatePage>(), unsafe { &raw mut (*home()).page }] {
        for index in 0..QUICK_CALLS.len() {
            // SAFETY: the words are aligned; another thread reads either the old value or the new one.
            unsafe {
                (&raw mut (*page).quick[index]).write_volatile(entry());
                (&raw mut (*page).quick_scratch[index]).write_volatile(entry());
            }
        }
    }
}

/// The slots of thunks in a C library that contains the gate ([`lp_abi::image::GatePage`]). Until the gate is
/// attached they lead to the kernel.
#[repr(C)]
pub(crate) struct ThunkSlots(UnsafeCell<[unsafe extern "C" fn(); SLOTS]>);

/// Words of a gate's page.
const SLOTS: usize = size_of::<GatePage>() / size_of::<usize>();

// SAFETY: written before there are other threads, afterwards only by stores of aligned words.
unsafe impl Sync for ThunkSlots {}

/// The merge of the C library and the gate (`lp_sites`) finds it by name.
#[unsafe(no_mangle)]
pub(crate) static lp_slots: ThunkSlots =
    ThunkSlots(UnsafeCell::new([crate::low::arrive::entry_quick::lp_entry_kernel; SLOTS]));

/// Fills the page through which thunks find the gate. `look` is the table that a tracer selects.
pub(crate) fn fill_gate_page(&Calls { table, way, hidden }: &Calls, look: &Table) {
    let [quick, quick_scratch] = quick_entries(way);
    let page = GatePage {
        entry: entry(),
        entry_vector: &raw const crate::low::arrive::entry::lp_entry_vector as usize,
        table: table.address(),
        quick,
        quick_scratch,
        hidden: hidden as usize,
        before_load: nothing(),
    };
    // SAFETY: the home is mapped, and no other thread uses a thunk yet.
    unsafe {
        lp_slots.0.get().cast::<GatePage>().write(page);
        (*home()).page = page;
        (*home()).door = TracerDoor {
            magic: TracerDoor::MAGIC,
            look: look.address(),
            entry: entry(),
            slots: lp_slots.0.get() as usize,
        };
    }
}

/// Changes how calls are answered, while other threads make some.
pub(crate) fn change_calls(&Calls { table, way, hidden }: &Calls) {
    let [quick, quick_scratch] = quick_entries(way);
    // SAFETY: the home is mapped.
    for page in [lp_slots.0.get().cast::<GatePage>(), unsafe { &raw mut (*home()).page }] {
        // SAFETY: the words are aligned; another thread reads either the old value of each or the new one.
        unsafe {
            (&raw mut (*page).table).write_volatile(table.address());
            (&raw mut (*page).hidden).write_volatile(hidden as usize);
            for index in 0..QUICK_CALLS.len() {
                (&raw mut (*page).quick[index]).write_volatile(quick[index]);
                (&raw mut (*page).quick_scratch[index]).write_volatile(quick_scratch[index]);
            }
        }
    }
}

/// Replaces the table through which the entry finds handlers, if it is `from`. Returns whether it was.
pub(crate) fn change_table(from: &Table, to: &Table) -> bool {
    // SAFETY: the home is mapped, and the word is aligned.
    unsafe {
        let table = &raw mut (*home()).page.table;
        let is_it = table.read_volatile() == from.address();
        if is_it {
            table.write_volatile(to.address());
        }
        is_it
    }
}

/// Makes the C library call `told` before it loads an object.
pub(crate) fn tell_of_loads(told: extern "C" fn()) {
    set_before_load(told as *const () as usize);
}

/// Stops those calls: the loader is covered.
pub(crate) fn load_freely() {
    set_before_load(nothing());
}

fn set_before_load(function: usize) {
    // SAFETY: the word is aligned; another thread reads either the old value or the new one.
    unsafe { (&raw mut (*lp_slots.0.get().cast::<GatePage>()).before_load).write_volatile(function) };
}

/// A function that does nothing.
fn nothing() -> usize {
    crate::low::arrive::entry_quick::lp_entry_kernel as *const () as usize
}

fn entry() -> usize {
    &raw const crate::low::arrive::entry::lp_entry as usize
}

fn quick_entries(way: LowFds) -> [[usize; QUICK_CALLS.len()]; 2] {
    match way {
        LowFds::Short => crate::low::arrive::entry_quick::entries(),
        LowFds::Recorded => [crate::low::arrive::entry_quick::recording_entries(); 2],
        LowFds::Long => [[entry(); QUICK_CALLS.len()]; 2],
        LowFds::Apart => {
            let apart = &raw const crate::low::arrive::entry_quick::lp_entry_apart as usize;
            [QUICK_CALLS.map(|call| if call == __NR_newfstatat { entry() } else { apart }); 2]
        }
    }
}
