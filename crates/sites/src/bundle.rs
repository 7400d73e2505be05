//! The bundle: one file with the images of all objects seen so far.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::mem::{offset_of, size_of};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fmt, ptr, slice};

use lp_abi::gated::GATED_SET;
use lp_abi::image::{
    self, BundleHeader, ENTRIES, ENTRIES_AT, MAGIC, ObjectRecord, PAGES_AT, PROBES, TextRange, VERSION,
    first_probe, state,
};

use crate::elf::Elf;
use crate::image::{Analysis, ObjectRefusal, analyse};

/// What is known about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has no site that needs patching.
    NoSites,
    /// It is patched at this number of sites.
    Patched(u32),
    /// It is not patched, and the calls of a process with it are trapped.
    Trapped(String),
    /// It cannot be covered.
    Refused(String),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::NoSites => f.write_str("no system calls of its own"),
            Status::Patched(1) => f.write_str("1 site"),
            Status::Patched(sites) => write!(f, "{sites} sites"),
            Status::Trapped(why) => write!(f, "cannot be patched: {why}"),
            Status::Refused(why) => write!(f, "cannot be covered: {why}"),
        }
    }
}

/// An open bundle. Several processes may use it; one adds at a time.
pub struct Bundle {
    file: File,
    path: PathBuf,
}

impl Bundle {
    /// File name of the bundles that this version can use. Another version, or another set of gated calls,
    /// uses a different file.
    pub fn file_name() -> String {
        format!("sites-{VERSION}-{GATED_SET:08x}")
    }

    /// Opens or creates the bundle at `path`.
    ///
    /// # Errors
    /// Those of the file system; a file that is not a bundle.
    pub fn open(path: &Path) -> io::Result<Bundle> {
        let bundle = Bundle { file: open(path)?, path: path.to_owned() };
        let locked = bundle.lock()?;
        let header = BundleHeader { magic: MAGIC, version: VERSION, gated_set: GATED_SET };
        let mut found = vec![0; size_of::<BundleHeader>()];
        let length = bundle.file.metadata()?.len();
        if length >= found.len() as u64 {
            bundle.file.read_exact_at(&mut found, 0)?;
        }
        // A builder may have run out of space, or died, before it wrote the header.
        if found.iter().all(|byte| *byte == 0) && length <= PAGES_AT as u64 {
            bundle.file.set_len(PAGES_AT as u64)?;
            bundle.file.write_all_at(bytes_of(&header), 0)?;
        } else if found != bytes_of(&header) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a bundle"));
        }
        drop(locked);
        Ok(bundle)
    }

    /// Path of the bundle.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The status of the object at `path`; analyses the object if necessary.
    ///
    /// # Errors
    /// Those of the file system. An object that cannot be covered is not an error but a [`Status`].
    pub fn add(&self, path: &Path) -> io::Result<Status> {
        let contents = std::fs::read(path)?;
        let elf = match Elf::parse(&contents) {
            Ok(elf) => elf,
            Err(why) => return Ok(Status::Refused(why.to_string())),
        };
        let key = key(&elf, path)?;
        if let (_, Some(entry)) = self.find(key)? {
            return Ok(status_of(&entry));
        }
        let analysis = analyse(&elf);
        let _locked = self.lock()?;
        if !self.is_current() {
            return Bundle::open(&self.path)?.add(path);
        }
        match self.find(key)? {
            (_, Some(entry)) => Ok(status_of(&entry)),
            (Some(slot), None) => self.store(slot, key, &elf, analysis),
            (None, None) => self.begin_again(key, &elf, analysis),
        }
    }

    /// Whether it is still the file at its path: a full one is replaced.
    pub fn is_current(&self) -> bool {
        let is_it =
            |own: fs::Metadata, found: fs::Metadata| (own.dev(), own.ino()) == (found.dev(), found.ino());
        self.file.metadata().is_ok_and(|own| fs::metadata(&self.path).is_ok_and(|found| is_it(own, found)))
    }

    /// Replaces the bundle, which is full and locked, by one with this entry alone. Processes go on with the
    /// pages that they have mapped of the old one. Most of its objects are no longer there, as a rule, or
    /// will be added again when a process meets them.
    fn begin_again(
        &self,
        key: [u64; 2],
        elf: &Elf<'_>,
        analysis: Result<Analysis, ObjectRefusal>,
    ) -> io::Result<Status> {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(name);
        let stored = Bundle::open(&beside).and_then(|fresh| match fresh.find(key)? {
            (Some(slot), None) => fresh.store(slot, key, elf, analysis),
            _ => Err(io::Error::other(format!("{}: in use", beside.display()))),
        });
        let done = stored.and_then(|status| fs::rename(&beside, &self.path).map(|()| status));
        if done.is_err() {
            let _ = fs::remove_file(&beside);
        }
        done
    }

    /// The status of the object at `path`, without analysing it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn look(&self, path: &Path) -> io::Result<Option<Status>> {
        let contents = std::fs::read(path)?;
        let Ok(elf) = Elf::parse(&contents) else { return Ok(None) };
        Ok(self.find(key(&elf, path)?)?.1.map(|entry| status_of(&entry)))
    }

    fn lock(&self) -> io::Result<Locked<'_>> {
        self.file.lock()?;
        Ok(Locked(&self.file))
    }

    /// The entry for `key`, or the free slot for it.
    fn find(&self, key: [u64; 2]) -> io::Result<(Option<usize>, Option<ObjectRecord>)> {
        for probe in 0..PROBES {
            let slot = (first_probe(key) + probe) % ENTRIES;
            let mut entry = ObjectRecord::EMPTY;
            self.file.read_exact_at(bytes_of_mut(&mut entry), entry_at(slot))?;
            if entry.state == state::EMPTY {
                return Ok((Some(slot), None));
            }
            if entry.key == key {
                return Ok((None, Some(entry)));
            }
        }
        Ok((None, None))
    }

    fn store(
        &self,
        slot: usize,
        key: [u64; 2],
        elf: &Elf<'_>,
        analysis: Result<Analysis, ObjectRefusal>,
    ) -> io::Result<Status> {
        let text = &elf.text;
        let mut entry = ObjectRecord {
            key,
            text_at: text.address,
            text_bytes: text.bytes.len() as u64,
            ..ObjectRecord::EMPTY
        };
        let status = match analysis.and_then(|analysis| self.fill(&mut entry, elf, &analysis)) {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => return Err(error),
            Err(refusal) => Status::Trapped(refusal.to_string()),
        };
        let final_state = match &status {
            Status::NoSites => state::NO_SITES,
            Status::Patched(_) => state::IMAGE,
            Status::Trapped(_) | Status::Refused(_) => state::TRAPPED,
        };
        // After a power failure no entry names pages that are not there.
        self.file.sync_data()?;
        // The state is written last, in a write of its own: readers take no lock.
        self.file.write_all_at(bytes_of(&entry), entry_at(slot))?;
        self.file.write_all_at(
            &final_state.to_le_bytes(),
            entry_at(slot) + offset_of!(ObjectRecord, state) as u64,
        )?;
        Ok(status)
    }

    /// Appends an image's pages and fills in its entry.
    fn fill(
        &self,
        entry: &mut ObjectRecord,
        elf: &Elf<'_>,
        analysis: &Analysis,
    ) -> Result<io::Result<Status>, ObjectRefusal> {
        if let Some(site) = analysis.unpatchable() {
            return Err(ObjectRefusal::Site(site));
        }
        if analysis.patches.is_empty() {
            return Ok(Ok(Status::NoSites));
        }
        let pages = analysis.pages(elf)?;
        Ok(self.append(entry, analysis, &pages))
    }

    fn append(
        &self,
        entry: &mut ObjectRecord,
        analysis: &Analysis,
        pages: &[(u64, Vec<u8>)],
    ) -> io::Result<Status> {
        entry.sites = analysis.patched_sites() as u32;
        entry.thunk_delta = analysis.place.delta;
        entry.thunk_bytes = analysis.thunks.len() as u64;
        entry.thunk_at = self.append_pages(&analysis.thunks)?;
        for ((at, bytes), range) in pages.iter().zip(&mut entry.ranges) {
            *range = TextRange { at: *at, from: self.append_pages(bytes)?, bytes: bytes.len() as u64 };
        }
        entry.range_count = pages.len() as u32;
        let fixups: Vec<u8> = analysis.fixups.iter().flat_map(|fixup| fixup.at.to_le_bytes()).collect();
        entry.fixups = analysis.fixups.len() as u32;
        entry.fixups_at = self.append_pages(&fixups)?;
        Ok(Status::Patched(entry.sites))
    }

    /// Appends `bytes` and returns their offset, a multiple of the page size.
    fn append_pages(&self, bytes: &[u8]) -> io::Result<u64> {
        let at = self.file.metadata()?.len().next_multiple_of(4096);
        self.file.write_all_at(bytes, at)?;
        self.file.set_len((at + bytes.len() as u64).next_multiple_of(4096))?;
        (&self.file).flush()?;
        Ok(at)
    }
}

/// Opens the file at `path`, or creates it. Whatever the umask, its owner may write to it, and others may
/// read: the directory's mode decides who may enter.
fn open(path: &Path) -> io::Result<File> {
    const MODE: u32 = 0o644;
    let try_open =
        || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(path);
    let file = try_open().or_else(|denied| {
        fs::set_permissions(path, Permissions::from_mode(MODE)).map_err(|_| denied)?;
        try_open()
    })?;
    if file.metadata()?.mode() & MODE != MODE {
        // Another user's cannot be changed, and need not be.
        let _ = file.set_permissions(Permissions::from_mode(MODE));
    }
    Ok(file)
}

/// The lock on a bundle, released when dropped.
struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing the file releases it anyway.
        let _ = self.0.unlock();
    }
}

/// The key under which the gate will look up the object.
fn key(elf: &Elf<'_>, path: &Path) -> io::Result<[u64; 2]> {
    if let Some(id) = &elf.build_id {
        return Ok(image::key_of_build_id(id));
    }
    let stat = std::fs::metadata(path)?;
    let modified = ((stat.mtime() as u64) << 30) ^ stat.mtime_nsec() as u64;
    let first = elf.segments.first().map(|segment| segment.bytes).unwrap_or_default();
    let page = &first[..first.len().min(4096)];
    if path.starts_with("/proc") {
        return Ok(image::key_of_content(page, elf.text.bytes));
    }
    Ok(image::key_of_bytes(page, [stat.dev(), stat.ino(), stat.size(), modified]))
}

fn status_of(entry: &ObjectRecord) -> Status {
    match entry.state {
        state::NO_SITES => Status::NoSites,
        state::IMAGE => Status::Patched(entry.sites),
        _ => Status::Trapped("found out before; `lightpath sites` says why".into()),
    }
}

fn entry_at(slot: usize) -> u64 {
    (ENTRIES_AT + slot * size_of::<ObjectRecord>()) as u64
}

/// A record of integers without padding.
trait Record: Copy {}
impl Record for BundleHeader {}
impl Record for ObjectRecord {}

fn bytes_of<T: Record>(record: &T) -> &[u8] {
    // SAFETY: the record has no padding.
    unsafe { slice::from_raw_parts(ptr::from_ref(record).cast(), size_of::<T>()) }
}

fn bytes_of_mut<T: Record>(record: &mut T) -> &mut [u8] {
    // SAFETY: the record has no padding, and every bit pattern is one.
    unsafe { slice::from_raw_parts_mut(ptr::from_mut(record).cast(), size_of::<T>()) }
}
