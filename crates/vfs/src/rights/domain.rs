//! Landlock domains, landlock(7): what a thread has restricted itself to.
//!
//! A domain belongs to a thread's credentials, as in Linux: [`Process::domain`](lp_region::process::Process)
//! of its record names an inode without a name, whose content is the domain and does not change. A further
//! restriction makes another one with a layer more. Process slots keep their domain's inode as they keep
//! their working directory's, so it is shared by all that inherit it and goes with the last of them.
//!
//! The content is a list of entries of two words, a key and rights ([`right`]). An entry with the key
//! [`LAYER`] begins a layer and has the rights that it handles; those that follow are its rules. A rule
//! grants rights below an inode, or below a directory of the host that has mounts of the run below it.

use lp_abi::Result;
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef, Region, Spot};

use crate::caller::task::Task;
use crate::content::snapshot;

/// Rights to files, `LANDLOCK_ACCESS_FS_*` of linux/landlock.h.
pub mod right {
    /// Execute a file.
    pub const EXECUTE: u32 = 1;
    /// Open a file for writing.
    pub const WRITE_FILE: u32 = 1 << 1;
    /// Open a file for reading.
    pub const READ_FILE: u32 = 1 << 2;
    /// Open a directory, or list its names.
    pub const READ_DIR: u32 = 1 << 3;
    /// Remove or rename an empty directory.
    pub const REMOVE_DIR: u32 = 1 << 4;
    /// Remove or rename anything else.
    pub const REMOVE_FILE: u32 = 1 << 5;
    /// Create, rename or link a character device.
    pub const MAKE_CHAR: u32 = 1 << 6;
    /// Create or rename a directory.
    pub const MAKE_DIR: u32 = 1 << 7;
    /// Create, rename or link a regular file.
    pub const MAKE_REG: u32 = 1 << 8;
    /// Create, rename or link a Unix socket.
    pub const MAKE_SOCK: u32 = 1 << 9;
    /// Create, rename or link a FIFO.
    pub const MAKE_FIFO: u32 = 1 << 10;
    /// Create, rename or link a block device.
    pub const MAKE_BLOCK: u32 = 1 << 11;
    /// Create, rename or link a symbolic link.
    pub const MAKE_SYM: u32 = 1 << 12;
    /// Link or rename to another directory.
    pub const REFER: u32 = 1 << 13;
    /// Truncate a file.
    pub const TRUNCATE: u32 = 1 << 14;
    /// ioctl(2) on a device.
    pub const IOCTL_DEV: u32 = 1 << 15;
    /// All of them.
    pub const ALL: u32 = (IOCTL_DEV << 1) - 1;
    /// Those to a file that is no directory: the kernel's `ACCESS_FILE`.
    pub const OF_FILE: u32 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
}

/// Layers of a domain at most: `LANDLOCK_MAX_NUM_LAYERS`.
pub(crate) const LAYERS: usize = 16;

/// Key of an entry that begins a layer.
const LAYER: u64 = u64::MAX;
/// Key of a rule on the host's root directory.
const ROOT: u64 = 1 << 63;
/// Bytes of an entry.
const ENTRY: usize = 16;
/// Entries that are read at a time.
const AT_ONCE: usize = 16;

/// An entry of a domain: key and rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub key: u64,
    pub rights: u32,
}

impl Entry {
    /// Begins a layer that handles `rights`. As in the kernel, such a layer also denies
    /// [`right::REFER`] unless a rule grants it.
    pub fn layer(rights: u32) -> Entry {
        Entry { key: LAYER, rights: rights | right::REFER }
    }

    /// The key of a rule on an inode.
    pub fn key_of(inode: InodeRef) -> u64 {
        inode.to_word()
    }

    /// The key of a rule on the host's root directory (`is_root`) or on another host directory with these
    /// mounts of the run below it, a bit for each.
    pub fn key_above(mounts: u16, is_root: bool) -> u64 {
        if is_root { ROOT } else { u64::from(mounts) << 32 }
    }

    pub(crate) fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let (key, rights) = bytes.split_at_mut(8);
        key.copy_from_slice(&self.key.to_le_bytes());
        rights.copy_from_slice(&u64::from(self.rights).to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Entry {
        let word = |at: usize| {
            let mut word = [0; 8];
            if let Some(from) = bytes.get(at..at + 8) {
                word.copy_from_slice(from);
            }
            u64::from_le_bytes(word)
        };
        Entry { key: word(0), rights: word(8) as u32 }
    }
}

/// A step of the way from a file up to the host's root directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// An inode of ours.
    Inode(InodeRef),
    /// The host's directories above mount `n` of the run, without the root directory.
    Above(u32),
    /// The host's root directory.
    Root,
}

impl Level {
    fn is_of(self, key: u64) -> bool {
        match self {
            Level::Inode(inode) => key == inode.to_word(),
            Level::Above(mount) => key as u32 == 0 && key & ROOT == 0 && key >> 32 & 1 << mount != 0,
            Level::Root => key == ROOT,
        }
    }
}

/// A thread's domain.
#[derive(Clone, Copy)]
pub(crate) struct Domain<'r> {
    region: Region<'r>,
    inode: InodeId,
}

/// The calling thread's domain, if it has restricted itself.
#[inline]
pub(crate) fn of<'r>(task: &Task<'r>) -> Option<Domain<'r>> {
    // Relaxed: the thread's own word.
    let word = task.credentials.get().domain.load(Ordering::Relaxed);
    (word != 0).then(|| Domain { region: task.region, inode: Spot::from_word(word).inode.id })
}

/// Whether the calling thread has restricted itself.
#[inline]
pub fn is_held(task: &Task<'_>) -> bool {
    task.credentials.get().domain.load(Ordering::Relaxed) != 0 // Relaxed: the thread's own word.
}

impl Domain<'_> {
    /// Calls `visit` with the bytes of the entries, some at a time.
    ///
    /// # Errors
    /// Those of `visit`; none of its own in a sound region.
    pub(crate) fn pieces(&self, mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let inode = self.region.inode(self.inode);
        let size = inode.size.load(Ordering::Relaxed); // Relaxed: it does not change.
        let (mut at, mut room) = (0, [0; ENTRY * AT_ONCE]);
        while at < size {
            let length = (size - at).min(room.len() as u64) as usize;
            let got = snapshot::into(self.region, inode, &mut room[..length], at)?;
            visit(&room[..got])?;
            at += got.max(ENTRY) as u64;
        }
        Ok(())
    }

    fn each(&self, mut visit: impl FnMut(Entry)) {
        // An entry that cannot be read grants nothing.
        let _ = self.pieces(|piece| {
            piece.chunks_exact(ENTRY).for_each(|bytes| visit(Entry::from_bytes(bytes)));
            Ok(())
        });
    }
}

/// Of some rights, those that each layer has not granted yet: the kernel's layer masks.
#[derive(Clone, Copy)]
pub(crate) struct Denied {
    layers: [u32; LAYERS],
}

impl Denied {
    /// Before any rule was looked at.
    pub(crate) fn all(domain: Domain<'_>, rights: u32) -> Denied {
        let mut denied = Denied { layers: [0; LAYERS] };
        let mut layers = denied.layers.iter_mut();
        domain.each(|entry| {
            if entry.key == LAYER
                && let Some(layer) = layers.next()
            {
                *layer = entry.rights & rights;
            }
        });
        denied
    }

    /// Takes off what the rules on `level` grant.
    pub(crate) fn pass(&mut self, domain: Domain<'_>, level: Level) {
        let mut layer = None;
        let layers = &mut self.layers;
        domain.each(|entry| match entry.key {
            LAYER => layer = Some(layer.map_or(0, |layer: usize| layer + 1)),
            key if level.is_of(key) => {
                if let Some(denied) = layer.and_then(|layer| layers.get_mut(layer)) {
                    *denied &= !entry.rights;
                }
            }
            _ => {}
        });
    }

    /// The rights that some layer denies.
    pub(crate) fn rights(&self) -> u32 {
        self.layers.iter().fold(0, |all, layer| all | layer)
    }

    /// Forgets all but some rights.
    pub(crate) fn narrow(&mut self, rights: u32) {
        self.layers.iter_mut().for_each(|layer| *layer &= rights);
    }

    /// Whether each of these rights that is denied here, and to the file itself, is denied in `there` by the
    /// same layer: what moves from here to there gains nothing.
    pub(crate) fn stays_within(&self, file: &Denied, there: &Denied, rights: u32) -> bool {
        let layers = self.layers.iter().zip(&file.layers).zip(&there.layers);
        layers.into_iter().all(|((here, file), there)| here & file & !there & rights == 0)
    }
}
