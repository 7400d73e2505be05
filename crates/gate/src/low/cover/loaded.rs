//! Mapped objects: which of them are patched, and how.

use core::cell::Cell;

use lp_abi::image::{ObjectRecord, state};
use lp_abi::refusal::Refusal;

use crate::low::cover::build::{self, BATCH, Ended, Source, build};
use crate::low::cover::patch;
use crate::low::cover::patch::Bundle;
use crate::low::live::trap;
use crate::low::object::objects::Object;
use crate::low::thread::home;
use crate::low::thread::home::Rest;
use crate::low::tools::{names, report};

/// Texts up to this size are searched here for `syscall` instructions instead of being disassembled by the
/// builder, because a compiler's output often runs only once. System objects run again and again, so they are
/// looked up in the bundle instead.
const SMALL_TEXT: usize = 64 << 10;

/// Patches what was left: the loader, and what it has mapped meanwhile for the C library's own purposes. The
/// C library calls this before it asks the loader to load something for the program, and the gate before
/// something that would make it impossible. Where it is impossible already, the loader stays as it is: in
/// another root directory, say, or without a free descriptor, which the loader would need, too.
///
/// A child of vfork that is killed here leaves the rest to its parent, which may map some of it again.
#[cold]
pub(crate) extern "C" fn cover_rest() {
    let Some(Rest { auxiliary, known }) = rest() else { return };
    // SAFETY: the settings' strings are NUL-terminated.
    let Some(bundle) = (unsafe { Bundle::open(home::settings().bundle.pointer()) }) else { return };
    let waiting = |(index, object): &(usize, Object<'_>)| *index >= known || object.base == auxiliary.linker;
    // SAFETY: the loader's list is consistent between its calls, and while it opens a file. The objects are
    // mapped, and nothing executes the loader's text at a patched place, because it has called out.
    unsafe {
        if let Some(objects) = auxiliary.objects() {
            cover_by(Some(&bundle), objects.enumerate().filter(waiting).map(|(_, object)| object));
        }
    }
    forget_rest();
}

/// [`cover_rest`] before the first thread is made, or never: others may execute the loader's text from then
/// on.
#[cold]
pub(crate) fn cover_rest_now() {
    cover_rest();
    forget_rest();
}

/// What waits to be patched.
fn rest() -> Option<Rest> {
    // SAFETY: the home is mapped, and only a process with one thread has something left and changes that.
    unsafe { (*home::home()).rest }
}

/// Nothing waits any more.
fn forget_rest() {
    if rest().is_some() {
        patch::load_freely();
        // SAFETY: the process has one thread, and no reference to the home's `rest` exists.
        unsafe { (*home::home()).rest = None };
    }
}

/// Patches the loaded objects.
///
/// # Safety
/// They must be mapped, and their initialisers must not have run.
pub(crate) unsafe fn cover<'o>(objects: impl Iterator<Item = Object<'o>>) {
    // SAFETY: the settings' strings are NUL-terminated, and the caller guarantees the rest.
    unsafe { cover_by(Bundle::open(home::settings().bundle.pointer()).as_ref(), objects) }
}

/// [`cover`] with an open bundle.
///
/// # Safety
/// As for [`cover`].
unsafe fn cover_by<'o>(bundle: Option<&Bundle>, objects: impl Iterator<Item = Object<'o>>) {
    let entry = &raw const crate::low::arrive::entry::lp_entry as usize;
    let own = Cell::new(None);
    let mut objects = objects.filter(|object| {
        let is_own = object.contains(entry);
        if is_own {
            own.set(Some(object.code_range()));
        }
        !is_own
    });
    let mut trapped = None;
    while let Some(object) = objects.next() {
        // SAFETY: the caller guarantees that the objects are mapped and that their initialisers have not run.
        let outcome = unsafe {
            match cover_one(bundle, &object) {
                Outcome::Unknown => cover_unknown(bundle, object, &mut objects),
                outcome => outcome,
            }
        };
        if matches!(outcome, Outcome::Trapped) {
            trapped = Some(object);
        }
    }
    // SAFETY: objects are covered by lists while the process has one thread.
    if let Some(object) = trapped.filter(|_| !unsafe { trap::start(own.take()) }) {
        refuse(object.name, Refusal::Unpatchable.why());
    }
}

/// Patches `rest`, and builds images for `first` and all others that the bundle did not know; or for as many
/// of them as the builder takes at once. Returns the outcome for any that is trapped, or for none.
///
/// # Safety
/// They must be mapped, and their initialisers must not have run.
#[cold]
#[inline(never)]
unsafe fn cover_unknown<'o>(
    bundle: Option<&Bundle>,
    first: Object<'o>,
    rest: &mut dyn Iterator<Item = Object<'o>>,
) -> Outcome {
    let mut objects = [None; BATCH];
    objects[0] = Some(first);
    let mut all = Outcome::Covered;
    // SAFETY: the caller guarantees that the objects are mapped and that their initialisers have not run.
    let mut unknown = rest.filter(|object| match unsafe { cover_one(bundle, object) } {
        Outcome::Unknown => true,
        Outcome::Trapped => {
            all = Outcome::Trapped;
            false
        }
        Outcome::Covered => false,
    });
    for slot in &mut objects[1..] {
        *slot = unknown.next();
        if slot.is_none() {
            break;
        }
    }
    let objects = objects.iter().flatten();
    let (mut built, mut ended) = (0, Ended::NoneNeeded);
    while built < objects.clone().count() {
        let more = build(objects.clone().skip(built).map(|object| Source::Path(object.name)));
        built += more.given;
        ended = if more.ended == Ended::NoneNeeded { ended } else { more.ended };
    }
    // SAFETY: the settings' strings are NUL-terminated.
    let bundle = unsafe { Bundle::open(home::settings().bundle.pointer()) };
    for object in objects {
        // SAFETY: the caller guarantees that the objects are mapped and that their initialisers have not run.
        match unsafe { cover_one(bundle.as_ref(), object) } {
            Outcome::Unknown if ended != Ended::NoneNeeded => {
                build::refuse(names::shown(object.name, &mut [0; names::ROOM]), ended);
            }
            Outcome::Trapped => all = Outcome::Trapped,
            _ => {}
        }
    }
    all
}

/// Result for one object.
pub(crate) enum Outcome {
    /// It is patched, or has nothing to patch.
    Covered,
    /// The bundle has no entry for it.
    Unknown,
    /// It is not patched: its calls must be trapped ([`trap`]).
    Trapped,
}

/// Looks `object` up and patches it. An object that cannot be covered ends the process.
///
/// # Safety
/// The object must be mapped, and nobody may execute or change its text meanwhile.
unsafe fn cover_one(bundle: Option<&Bundle>, object: &Object<'_>) -> Outcome {
    // SAFETY: the caller guarantees that the object is mapped and that nobody executes or changes its text.
    unsafe { cover_mapped(bundle, object, object.name, Some(object.key())) }
}

/// [`cover_one`] for an object of which possibly only the executable segment is mapped. `key` is that of its
/// build-id, or `None` to compute it from the mapped object. `shown` is the name for messages.
///
/// # Safety
/// The object must be mapped, and nobody may execute or change its text meanwhile.
pub(crate) unsafe fn cover_mapped(
    bundle: Option<&Bundle>,
    object: &Object<'_>,
    shown: &[u8],
    key: Option<[u64; 2]>,
) -> Outcome {
    if object.code().next().is_none() {
        return Outcome::Covered;
    }
    // SAFETY: the caller guarantees that the object is mapped and that nobody changes its text.
    let key = key.unwrap_or_else(|| unsafe { object.key() });
    let entry = bundle.and_then(|bundle| Some((bundle, bundle.find(key)?)));
    let Some((bundle, entry)) = entry else {
        let is_listed =
            || object.code().any(|code| code.file_bytes as usize > SMALL_TEXT) || is_system(object.name);
        // Without a bundle there is no builder either: both are out of reach, as in another root directory.
        if bundle.is_some() && is_listed() {
            return Outcome::Unknown;
        }
        // SAFETY: the caller guarantees that the object is mapped.
        let none = object.code().all(|code| !has_syscall(unsafe { object.bytes_of(code) }));
        return if none { Outcome::Covered } else { Outcome::Unknown };
    };
    match entry.state {
        state::NO_SITES => Outcome::Covered,
        state::IMAGE if fits(&entry, object) => {
            // SAFETY: the caller guarantees that nobody executes or changes the object's text; the entry has
            // its key.
            if unsafe { patch::apply(bundle, object, &entry) }.is_err() {
                refuse(shown, "its site image cannot be mapped");
            }
            Outcome::Covered
        }
        state::IMAGE => refuse(shown, "its site image does not fit it"),
        _ => Outcome::Trapped,
    }
}

/// Ends the process because the object with this name cannot be covered.
#[cold]
pub(crate) fn refuse(name: &[u8], why: &str) -> ! {
    report::refuse(&[names::shown(name, &mut [0; names::ROOM]), b": ", why.as_bytes()])
}

fn fits(entry: &ObjectRecord, object: &Object<'_>) -> bool {
    object.text().is_some_and(|text| entry.text_at == text.address && entry.text_bytes == text.file_bytes)
}

/// Whether a name in the dynamic linker's list is that of a system file. The main program, which has no name
/// there, is judged by the path of its executable.
#[cold]
#[inline(never)]
fn is_system(name: &[u8]) -> bool {
    let mut room = [0; names::ROOM];
    let name = if name.is_empty() { names::of_program(&mut room) } else { name };
    [&b"/usr/"[..], b"/bin/", b"/lib"].iter().any(|root| name.starts_with(root))
}

/// Whether the bytes of a `syscall` instruction occur anywhere, also across instruction boundaries.
fn has_syscall(text: &[u8]) -> bool {
    use core::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    let mut at = 0;
    while at + 17 <= text.len() {
        // SAFETY: SSE2 is part of x86-64, and the 17 bytes from `at` are within the text.
        let hits = unsafe {
            let first = _mm_loadu_si128(text.as_ptr().add(at).cast());
            let second = _mm_loadu_si128(text.as_ptr().add(at + 1).cast());
            let first = _mm_cmpeq_epi8(first, _mm_set1_epi8(0x0f));
            _mm_movemask_epi8(_mm_and_si128(first, _mm_cmpeq_epi8(second, _mm_set1_epi8(0x05))))
        };
        if hits != 0 {
            return true;
        }
        at += 16;
    }
    text[at..].windows(2).any(|pair| *pair == [0x0f, 0x05])
}
