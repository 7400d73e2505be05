//! The system's C library with the gate merged in (`lp_sites::merge`), and beside it the system's dynamic
//! linker for outlines (`lp_sites::linker`). Created once and kept in the cache directory.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lp_abi::outline::FOR_HOST;
use lp_sites::{linker, merge};
use object::Endianness;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use super::{directory, files, identity, preload, processor};
use crate::command::output::failure::reason;

/// The loader of the System V ABI for x86-64; the system's C library is beside it.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Its soname and file name.
const C_LIBRARY: &str = "libc.so.6";
/// The file that notes the linker's number, and what it was made for.
const NOTE: &str = "linker";

/// What programs with the system's dynamic linker get.
pub(crate) struct Library {
    /// The directory of the C library that contains the gate.
    pub(crate) directory: PathBuf,
    /// The number in the name of the dynamic linker for outlines in it, with [`FOR_HOST`]; 0 if there is
    /// none.
    pub(crate) linker: u64,
}

/// Writes the system's C library, with the gate merged in, and the linker to a directory of their own in
/// `cache` unless they are there. If there is no such library, says why: then the gate is preloaded
/// everywhere.
pub(crate) fn place(cache: &Path, outlines: Outlines) -> Result<Library, String> {
    let directory = place_library(cache)?;
    let number = place_linker(&directory);
    let linker = match outlines {
        _ if number == 0 => 0,
        Outlines::Always => number | FOR_HOST,
        Outlines::Never => number & !FOR_HOST,
        Outlines::IfFaster => number,
    };
    Ok(Library { directory, linker })
}

/// Which programs of the host are executed by outlines.
#[derive(Clone, Copy)]
pub(crate) enum Outlines {
    /// All that can be.
    Always,
    /// None.
    Never,
    /// All, where that is faster.
    IfFaster,
}

impl Outlines {
    /// What the environment says.
    ///
    /// # Errors
    /// The line that says what it may say.
    pub(crate) fn from_environment() -> Result<Self, String> {
        const NAME: &str = "LIGHTPATH_OUTLINES";
        match std::env::var_os(NAME) {
            None => Ok(Outlines::IfFaster),
            Some(value) if value == "always" => Ok(Outlines::Always),
            Some(value) if value == "never" => Ok(Outlines::Never),
            Some(value) => Err(format!("{NAME} is {}: it may be always, never or unset", value.display())),
        }
    }
}

fn place_library(cache: &Path) -> Result<PathBuf, String> {
    let system = system_library()?;
    let fail = |e: &std::io::Error| format!("{}: {}", system.display(), reason(e));
    let id = build_id(&system).ok_or_else(|| format!("{}: it has no build-id", system.display()))?;
    let short = &id[..id.len().min(16)];
    let directory =
        cache.join(format!("{}-{}-{short}", preload::NAME.trim_end_matches(".so"), merge::VERSION));
    let best = directory.join("glibc-hwcaps").join(processor());
    let path = best.join(C_LIBRARY);
    if path.exists() {
        // Evicted pages come back in small pieces, and every program pays to map those: it takes 30 us longer
        // to start than when the file is in memory as it was written.
        if !is_resident(&path).unwrap_or(true) {
            let bytes = std::fs::read(&path).map_err(|e| format!("{}: {}", path.display(), reason(&e)))?;
            files::replace(&best, OsStr::new(C_LIBRARY), &bytes)?;
        }
        return Ok(directory);
    }
    let library = std::fs::read(&system).map_err(|e| fail(&e))?;
    let mut merged =
        merge::merge(&library, preload::LIBRARY).map_err(|why| format!("{}: {why}", system.display()))?;
    identity::replace_build_id(&mut merged);
    for place in [&directory, &best] {
        directory::prepare(place)?;
        files::place(place, OsStr::new(C_LIBRARY), &merged)?;
        identity::link_debug_information(place, &merged, &id);
    }
    Ok(directory)
}

/// Writes the linker to `directory` unless it is there, and returns its number. The number is noted for as
/// long as the processor is the same: asking it everything takes longer than a tenth of a start.
fn place_linker(directory: &Path) -> u64 {
    let id = build_id(Path::new(LOADER));
    let mark =
        id.as_ref().zip(processor::mark()).map(|(id, mark)| format!("{} {id} {mark}", linker::VERSION));
    let noted = mark.as_deref().and_then(|mark| noted_number(directory, mark));
    if let Some(number) = noted {
        return number;
    }
    let made = make_linker(directory, &id.unwrap_or_default());
    if let (Some(number), Some(mark)) = (made, mark) {
        // A note that is missing costs time only.
        let _ = files::replace(directory, OsStr::new(NOTE), format!("{number:x} {mark}").as_bytes());
    }
    made.unwrap_or(0)
}

/// The number noted under `mark`, if its linker is there.
fn noted_number(directory: &Path, mark: &str) -> Option<u64> {
    let note = std::fs::read_to_string(directory.join(NOTE)).ok()?;
    let number = note.strip_suffix(mark)?.trim_end();
    let number = u64::from_str_radix(number, 16).ok()?;
    (number == 0 || linker_at(directory, number).exists()).then_some(number)
}

/// Writes the linker to `directory` unless it is there, and returns its number. `None` if it cannot be made.
fn make_linker(directory: &Path, id: &str) -> Option<u64> {
    let answers = processor::answers();
    let mut hasher = DefaultHasher::new();
    (linker::VERSION, id, &answers).hash(&mut hasher);
    let own = (hasher.finish() & !FOR_HOST).max(FOR_HOST << 1);
    let number = if processor::is_slow() { own | FOR_HOST } else { own };
    let at = linker_at(directory, number);
    if !at.exists() {
        let made = linker::linker(&std::fs::read(LOADER).ok()?, &answers).ok()?;
        files::place(directory, at.file_name()?, &made).ok()?;
    }
    Some(number)
}

fn linker_at(directory: &Path, number: u64) -> PathBuf {
    directory.join(OsStr::from_bytes(&lp_abi::outline::linker_name(number)))
}

/// Whether all pages of a file are in memory.
fn is_resident(path: &Path) -> std::io::Result<bool> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len() as usize;
    let mut pages = vec![0u8; bytes.div_ceil(4096)];
    // SAFETY: a new mapping, which nobody reads; the vector has one byte for each of its pages.
    unsafe {
        let flags = libc::MAP_PRIVATE;
        let at = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let asked = libc::mincore(at, bytes, pages.as_mut_ptr());
        libc::munmap(at, bytes);
        if asked != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(pages.iter().all(|page| page & 1 != 0))
}

/// The build-id of the object at `path`, in hexadecimal.
pub(crate) fn build_id(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let cache = ReadCache::new(file);
    // `object::File` would read all symbols.
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, &cache).ok()? {
        let Some(mut notes) = segment.notes(endian, &cache).ok()? else { continue };
        while let Some(note) = notes.next().ok()? {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Some(note.desc().iter().map(|byte| format!("{byte:02x}")).collect());
            }
        }
    }
    None
}

/// The C library beside the system's loader.
pub(super) fn system_library() -> Result<PathBuf, String> {
    let loader = std::fs::canonicalize(LOADER).map_err(|e| format!("{LOADER}: {}", reason(&e)))?;
    Ok(loader.with_file_name(C_LIBRARY))
}

/// The directory that the loader searches first for libraries for this processor (ld.so(8), `glibc-hwcaps`).
/// It searches others later.
fn processor() -> &'static str {
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
        "x86-64-v4"
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
        "x86-64-v3"
    } else {
        "x86-64-v2"
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_linker_of_another_processor_or_loader_is_not_taken() {
        let cache = tempfile::tempdir().unwrap();
        let number = super::place_linker(cache.path());
        let at = cache.path().join(super::NOTE);
        let note = std::fs::read_to_string(&at).unwrap();
        assert!(note.starts_with(&format!("{number:x} ")), "{note}");
        assert_eq!(super::noted_number(cache.path(), &note[note.find(' ').unwrap() + 1..]), Some(number));
        assert_eq!(super::noted_number(cache.path(), "another"), None);
        // Whatever is noted, the processor's own linker is returned, and noted again.
        for wrong in ["", "x", "7 another mark", &note.replacen(' ', "1 ", 1)] {
            std::fs::write(&at, wrong).unwrap();
            assert_eq!(super::place_linker(cache.path()), number, "{wrong}");
            assert_eq!(std::fs::read_to_string(&at).unwrap(), note, "{wrong}");
        }
    }

    #[test]
    fn the_c_library_with_the_gate_in_it_is_one_for_programs_outside_of_runs_too() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::PermissionsExt;

        let cache = tempfile::tempdir().unwrap();
        std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let directory = super::place(cache.path(), super::Outlines::IfFaster).unwrap().directory;
        let best = directory.join("glibc-hwcaps").join(super::processor()).join(super::C_LIBRARY);
        let file = std::fs::File::open(&best).unwrap();
        file.sync_all().unwrap();
        // SAFETY: the descriptor is open; dropped pages can be read again.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(super::place(cache.path(), super::Outlines::IfFaster).unwrap().directory, directory);
        assert!(super::is_resident(&best).unwrap());
        assert_ne!(super::build_id(&best), super::build_id(&super::system_library().unwrap()));
        let script = "grep -q $LD_LIBRARY_PATH /proc/self/maps && echo found; echo $((1 + 1)) | (read x; cd /; pwd; echo $x)";
        let run = std::process::Command::new("/bin/bash")
            .args(["-c", script])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LD_LIBRARY_PATH", &directory)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&run.stdout), "found\n/\n2\n", "{run:?}");
        assert!(run.stderr.is_empty() && run.status.success(), "{run:?}");
    }
}
