//! Stored extended attributes of an inode: one blob of records, each a header, a name and a value.

use lp_abi::linux::{XATTR_CREATE, XATTR_REPLACE};
use lp_abi::{Errno, Result, UserSlice};
use lp_region::InodeId;
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;

use crate::caller::task::{Task, Time};
use crate::inodes::blob::{self, BlobDraft, BlobKind, View};

/// `XATTR_NAME_MAX` and a NUL.
pub(crate) const NAME_ROOM: usize = 256;

/// Bytes of a record's header: length of the name, length of the value.
const HEADER: u64 = 8;
/// The attribute that a write removes.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// The program's value and how to set it.
#[derive(Clone, Copy)]
pub struct XattrValue {
    /// Its length in bytes.
    pub bytes: UserSlice,
    /// `XATTR_CREATE`, `XATTR_REPLACE` or 0.
    pub flags: u32,
}

/// Location of a record.
#[derive(Clone, Copy)]
pub(crate) struct XattrRecord {
    at: u64,
    pub(crate) name_len: u32,
    pub(crate) value_len: u32,
}

impl XattrRecord {
    pub(crate) fn name_at(&self) -> u64 {
        self.at + HEADER
    }

    pub(crate) fn value_at(&self) -> u64 {
        self.name_at() + u64::from(self.name_len)
    }

    fn end(&self) -> u64 {
        self.value_at() + u64::from(self.value_len)
    }
}

pub(crate) fn records<'r>(view: View<'r>) -> impl Iterator<Item = XattrRecord> + use<'r> {
    let mut at = 0;
    core::iter::from_fn(move || {
        if at >= view.len() {
            return None;
        }
        let [n0, n1, n2, n3, v0, v1, v2, v3] = view.bytes(at);
        let (name_len, value_len) =
            (u32::from_ne_bytes([n0, n1, n2, n3]), u32::from_ne_bytes([v0, v1, v2, v3]));
        let record = XattrRecord { at, name_len, value_len };
        at = record.end();
        Some(record)
    })
}

/// Compares a record's name with `name`.
pub(crate) fn compare(view: View, record: &XattrRecord, name: &[u8]) -> core::cmp::Ordering {
    let mut bytes = [0u8; NAME_ROOM];
    let len = (record.name_len as usize).min(NAME_ROOM);
    // A fault is impossible.
    let _ = view.read(&mut bytes[..len], record.name_at());
    bytes[..len].cmp(name)
}

/// Sets or removes an attribute, and sets `ctime`. The caller must hold the inode's lock.
pub(crate) fn replace(
    task: &Task,
    (id, inode): (InodeId, &Inode),
    name: &[u8],
    value: Option<XattrValue>,
    ctime: Time,
) -> Result<()> {
    let old = blob::of(task, inode, BlobKind::Xattr);
    let existing = old.and_then(|view| records(view).find(|record| compare(view, record, name).is_eq()));
    match (&existing, value) {
        (None, None) => return Err(Errno::ENODATA),
        (None, Some(value)) if value.flags & XATTR_REPLACE != 0 => return Err(Errno::ENODATA),
        (Some(_), Some(value)) if value.flags & XATTR_CREATE != 0 => return Err(Errno::EEXIST),
        _ => {}
    }
    let draft = BlobDraft::new(task, inode.root.load(Relaxed))?;
    let mut rest = 0;
    if let Some(view) = old {
        // What sorts before the name is kept as it is.
        let end = records(view)
            .find(|record| compare(view, record, name).is_le())
            .map_or(view.len(), |record| record.at);
        copy(&draft, view, 0, end)?;
        rest = existing.map_or(end, |record| record.end());
    }
    if let Some(value) = value {
        let header = (name.len() as u64 | (value.bytes.len() as u64) << 32).to_ne_bytes();
        draft.append(&header)?;
        draft.append(name)?;
        draft.append_given(value.bytes)?;
    }
    if let Some(view) = old {
        copy(&draft, view, rest, view.len())?;
    }
    let draft = (!draft.view().is_empty()).then_some(draft);
    // Relaxed: under the lock.
    blob::swap(task, id, BlobKind::Xattr, draft, (inode.mode.load(Relaxed), ctime));
    Ok(())
}

fn copy(draft: &BlobDraft, from: View, start: u64, end: u64) -> Result<()> {
    let mut at = start;
    while at < end {
        let mut bytes = [0u8; 512];
        let len = (end - at).min(512) as usize;
        let got = from.read(&mut bytes[..len], at)?;
        if got == 0 {
            break;
        }
        draft.append(&bytes[..got])?;
        at += got as u64;
    }
    Ok(())
}

/// Removes the file capabilities, because the content changes. The caller must hold the inode's lock.
#[cold]
pub(crate) fn drop_capability(task: &Task, id: InodeId, inode: &Inode) {
    // Without memory for the shorter list, remove the whole list rather than keep capabilities for other
    // content.
    match replace(task, (id, inode), CAPABILITY, None, task.now()) {
        Ok(()) | Err(Errno::ENODATA) => {}
        // Relaxed: under the lock.
        Err(_) => blob::swap(task, id, BlobKind::Xattr, None, (inode.mode.load(Relaxed), task.now())),
    }
}
