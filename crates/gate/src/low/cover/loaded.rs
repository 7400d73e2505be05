//! Objects that are mapped: which of them are patched, and how.

use lp_abi::image::{Entry, state};
use lp_abi::refusal::Refusal;

use crate::low::cover::build::{UNKNOWN, build, name_of};
use crate::low::cover::patch;
use crate::low::cover::patch::Bundle;
use crate::low::object::objects::Object;
use crate::low::thread::home;
use crate::low::thread::home::Rest;
use crate::low::tools::{names, report};

/// Texts up to this size are searched here for `syscall` instructions, rather than disassembled by the
/// builder: the output of a compiler is often run once. Not those of the system, which are run again and
/// again and are better looked up.
const SMALL_TEXT: usize = 64 << 10;

/// Patches what has waited: the loader, and what it has mapped for the C library's own purposes meanwhile.
/// The C library calls it before it has the loader load something for the program.
#[cold]
pub(crate) extern "C" fn cover_rest() {
    // SAFETY: one thread.
    let Some(Rest { auxiliary, known }) = (unsafe { (*home::home()).rest.take() }) else { return };
    // SAFETY: the loader's list is in order between its calls, and while it opens a file.
    let Some(objects) = (unsafe { auxiliary.objects() }) else { return };
    let waiting = |(index, object): &(usize, Object<'_>)| *index >= known || object.base == auxiliary.linker;
    // SAFETY: the loader's list is in order between its calls, and while it opens a file.
    unsafe { cover(objects.enumerate().filter(waiting).map(|(_, object)| object)) };
    patch::load_freely();
}

/// Patches the loaded objects.
///
/// # Safety
/// They are mapped, and their initialisers have not run.
pub(crate) unsafe fn cover<'o>(objects: impl Iterator<Item = Object<'o>>) {
    let own = &raw const crate::low::arrive::entry::lp_entry as usize;
    // SAFETY: the settings' strings are NUL-terminated.
    let bundle = unsafe { Bundle::open(home::settings().bundle.pointer()) };
    let (mut unknown, mut count) = ([None; UNKNOWN], 0);
    for object in objects.filter(|object| !object.contains(own)) {
        // SAFETY: they are mapped, and their initialisers have not run, by this function's contract.
        if matches!(unsafe { cover_one(bundle.as_ref(), &object) }, Outcome::Unknown) {
            match unknown.get_mut(count) {
                Some(slot) => *slot = Some(object),
                None => report::refuse(&[b"too many objects without a site image"]),
            }
            count += 1;
        }
    }
    if count != 0 {
        // SAFETY: they are mapped, and their initialisers have not run, by this function's contract.
        unsafe { cover_unknown(&unknown[..count]) };
    }
}

/// Has images built for objects that the bundle did not know, and patches them.
///
/// # Safety
/// As [`cover`].
#[cold]
#[inline(never)]
unsafe fn cover_unknown(objects: &[Option<Object<'_>>]) {
    build(objects.iter().flatten().map(|object| object.name));
    // SAFETY: the settings' strings are NUL-terminated.
    let Some(bundle) = (unsafe { Bundle::open(home::settings().bundle.pointer()) }) else {
        report::refuse(&[b"no site images at ", home::settings().bundle.get()]);
    };
    for object in objects.iter().flatten() {
        // SAFETY: the objects are mapped, and their initialisers have not run, as for [`cover`].
        if matches!(unsafe { cover_one(Some(&bundle), object) }, Outcome::Unknown) {
            report::refuse(&[b"no site image for ", name_of(object.name)]);
        }
    }
}

/// What became of an object.
pub(crate) enum Outcome {
    /// It is patched, or has nothing to patch.
    Covered,
    /// The bundle does not know it.
    Unknown,
}

/// Looks `object` up and patches it. An object that cannot be covered ends the process.
///
/// # Safety
/// The object is mapped, and nobody executes or changes its text meanwhile.
unsafe fn cover_one(bundle: Option<&Bundle>, object: &Object<'_>) -> Outcome {
    // SAFETY: the object is mapped, and nobody executes or changes its text meanwhile, by this function's
    // contract.
    unsafe { cover_mapped(bundle, object, Some(object.key())) }
}

/// [`cover_one`] for an object of which perhaps the executable segment alone is mapped; `key` is its
/// build-id's, or it is that of its file.
///
/// # Safety
/// As [`cover_one`].
#[unsafe(link_section = ".text.startup.lp")]
pub(crate) unsafe fn cover_mapped(
    bundle: Option<&Bundle>,
    object: &Object<'_>,
    key: Option<[u64; 2]>,
) -> Outcome {
    if object.code().next().is_none() {
        return Outcome::Covered;
    }
    // SAFETY: the object is mapped, and nobody changes its text meanwhile, as for [`cover_one`].
    let key = key.unwrap_or_else(|| unsafe { object.key() });
    let entry = bundle.and_then(|bundle| Some((bundle, bundle.find(key)?)));
    let Some((bundle, entry)) = entry else {
        if object.code().any(|code| code.file_bytes as usize > SMALL_TEXT) || is_system(object.name) {
            return Outcome::Unknown;
        }
        // SAFETY: the object is mapped.
        let none = object.code().all(|code| !has_syscall(unsafe { object.bytes_of(code) }));
        return if none { Outcome::Covered } else { Outcome::Unknown };
    };
    match entry.state {
        state::NO_SITES => Outcome::Covered,
        state::IMAGE if fits(&entry, object) => {
            // SAFETY: nobody executes or changes the object's text meanwhile, and the entry is the object's.
            if unsafe { patch::apply(bundle, object.base, &entry) }.is_err() {
                report::refuse(&[name_of(object.name), b": its site image cannot be mapped"]);
            }
            Outcome::Covered
        }
        state::IMAGE => report::refuse(&[name_of(object.name), b": its site image does not fit it"]),
        _ => report::refuse(&[name_of(object.name), b": ", Refusal::Unpatchable.why().as_bytes()]),
    }
}

fn fits(entry: &Entry, object: &Object<'_>) -> bool {
    object.text().is_some_and(|text| entry.text_at == text.address && entry.text_bytes == text.file_bytes)
}

/// Whether a name in the dynamic linker's list is that of a file of the system. The main program is told by
/// its execution's name.
#[cold]
#[inline(never)]
fn is_system(name: &[u8]) -> bool {
    let mut room = [0; names::ROOM];
    let name = if name.is_empty() { names::of_program(&mut room) } else { name };
    [&b"/usr/"[..], b"/bin/", b"/lib"].iter().any(|root| name.starts_with(root))
}

/// Whether the bytes of a `syscall` instruction occur, at any place.
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
