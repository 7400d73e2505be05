//! Extended attributes, ACLs among them. Those of directories are taken with their names: walks check them.
//! So are those of what else has few. Those of regular files wait until something needs them, because most
//! programs never ask: then those of all files of the directory are taken, each once its origin was compared,
//! and in the directories to which the process comes next with the names.
//!
//! A file that lacks them is marked ([`inode_flags::XATTRS_BELOW`]), and [`NO_ACL_YET`] in place of its ACL
//! ends the quick check of its permissions. What changes attributes, or content by which attributes change,
//! takes them first.

use lp_abi::linux::{S_IFLNK, S_IFMT, S_IFREG};
use lp_abi::{Errno, NAME_MAX, Result, UserSlice};
use lp_region::process::caps;
use lp_region::records::{COVERED, Inode, NO_ACL_YET, inode_flags};
use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, InodeRef};

use crate::below::host::HostTree;
use crate::below::list::{self, NameRoom, Record, RecordAt};
use crate::below::{Dir, Layer, Seen, Use, lock, may_call, spot};
use crate::caller::below::lacks_attributes;
use crate::caller::task::{SLACK, Task};
use crate::inodes::blob::{self, BlobDraft, BlobKind};
use crate::inodes::inode;
use crate::inodes::xattrs::{self, XattrValue};
use crate::life::reclaim;
use crate::rights::acl;

/// How the names of extended attributes begin that are taken, besides the ACLs. The others of the namespace
/// `security` are the labels of the host's security modules.
const TAKEN: [&[u8]; 3] = [b"user.", b"security.capability", b"trusted."];

/// Takes the attributes that a regular file lacks, and those of the other files of its directory.
///
/// # Errors
/// Those of [`super::take`]; `EIO` if the file has changed.
#[cold]
pub(super) fn take(task: &Task<'_>, of: InodeRef) -> Result<()> {
    match take_once(task, of) {
        Err(Errno::ENOSPC) => {
            reclaim::all(task);
            take_once(task, of)
        }
        done => done,
    }
}

fn take_once(task: &Task<'_>, of: InodeRef) -> Result<()> {
    let (region, inode) = (task.region, task.region.inode(of.id));
    let trusted = sees_trusted(task);
    let lacks = |inode: &Inode| lacks_attributes(inode) || trusted && lacks_trusted(inode);
    if !lacks(inode) {
        return Ok(());
    }
    let at = spot(inode).ok_or(Errno::EIO)?;
    let above = list::up(&list::head(region, at.list)?).ok_or(Errno::EIO)?;
    may_call()?;
    task.habit.has_asked();
    let dir = HostTree.dir(task, above, Use::Search)?;
    list::each(region, at.list, list::FIRST, |here, seen| {
        let target = seen.target();
        let record = region.inode(target.id);
        if target.id.is_some() && lacks(record) && spot(record) == Some(here) {
            match take_one(task, &dir, (here, seen), target, trusted) {
                Err(errno) if here == at || errno == Errno::ENOSPC => return Err(errno),
                _ => {}
            }
        }
        Ok(true)
    })?;
    if lacks(inode) { Err(Errno::EIO) } else { Ok(()) }
}

/// Whether the process sees attributes of the namespace `trusted`, if any process of the run does.
fn sees_trusted(task: &Task<'_>) -> bool {
    let held = task.credentials.get().caps.load(Relaxed); // Relaxed: the thread's own.
    held & (caps::SYS_ADMIN | caps::IN_NAMESPACE) == caps::SYS_ADMIN
}

fn lacks_trusted(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::TRUSTED_BELOW != 0 // Relaxed: checked again under the lock.
}

/// Takes the attributes of one file, whose record is at `at`, unless it has changed. `trusted`: see
/// [`sees_trusted`].
fn take_one(
    task: &Task<'_>,
    from: &impl Dir,
    (at, seen): (RecordAt, &Record),
    target: InodeRef,
    trusted: bool,
) -> Result<()> {
    let inode = task.region.inode(target.id);
    let mut room: NameRoom = [0; NAME_MAX + 1 + SLACK];
    let name = list::name(task.region, at, seen, &mut room)?;
    let _locked = lock(task, target)?;
    if !(lacks_attributes(inode) || trusted && lacks_trusted(inode)) {
        return Ok(());
    }
    let all = put(task, from, name, target.id)?;
    let of = |record: &Record| (record.dev, record.ino, record.seconds[2], record.nanoseconds[2]);
    if from.look(task, name)?.is_none_or(|now| of(&now) != of(seen)) {
        let (mode, ctime) = (inode.mode.load(Relaxed), inode::attributes_locked(inode).ctime);
        blob::swap(task, target.id, BlobKind::Acl, None, (mode, ctime));
        return Err(Errno::EIO);
    }
    settle(inode, all, trusted);
    if all == Seen::All { Ok(()) } else { Err(Errno::EACCES) }
}

/// Records that a file has its ACL and, if `all` attributes were read, those, but for those of the namespace
/// `trusted` if the process does not see them. The caller must hold the lock.
fn settle(inode: &Inode, all: Seen, trusted: bool) {
    // Relaxed, all loads: under the lock.
    if inode.acl.load(Relaxed) & !COVERED == NO_ACL_YET {
        inode.acl.fetch_and(COVERED, Release); // Release: as below.
    }
    if all == Seen::All {
        let flags = inode.flags.load(Relaxed) & !(inode_flags::XATTRS_BELOW | inode_flags::TRUSTED_BELOW);
        let left = if trusted { 0 } else { inode_flags::TRUSTED_BELOW };
        // Release: the ACL is there. PAIRS: the load in `lacks_attributes`.
        inode.flags.store(flags | left, Release);
    }
}

/// Takes the attributes of what a name, which a NUL follows, denotes and `seen` describes.
pub(super) fn take_with_name(
    task: &Task<'_>,
    from: &impl Dir,
    name: &[u8],
    id: InodeId,
    seen: &Record,
) -> Result<()> {
    if seen.mode & S_IFMT == S_IFLNK {
        return Ok(());
    }
    let _locked = inode::lock(task, id);
    let all = put(task, from, name, id)?;
    if seen.mode & S_IFMT == S_IFREG {
        settle(task.region.inode(id), all, sees_trusted(task));
    }
    Ok(())
}

/// Takes the attributes of a directory anew, whose record is at `at`, in place of all it has. If the process
/// may not look at them it keeps what it has.
pub(super) fn take_again(task: &Task<'_>, at: RecordAt, id: InodeId) -> Result<()> {
    let (from, here) = (HostTree.dir(task, at, Use::Search)?, &b".\0"[..1]);
    match from.attributes(here, &mut |_, _| Ok(())) {
        Err(Errno::EACCES) | Ok(Seen::Some) => return Ok(()),
        looked => looked?,
    };
    let inode = task.region.inode(id);
    let _locked = inode::lock(task, id);
    // Relaxed: under the lock.
    let kept = (inode.mode.load(Relaxed), inode::attributes_locked(inode).ctime);
    for which in [BlobKind::Acl, BlobKind::DefaultAcl, BlobKind::Xattr] {
        blob::swap(task, id, which, None, kept);
    }
    put(task, &from, here, id).map(|_| ())
}

/// Gives an inode the attributes of what a name denotes, or those of the namespace `trusted` if it lacks no
/// others. The change time stays. The caller must hold the inode's lock.
fn put(task: &Task<'_>, from: &impl Dir, name: &[u8], id: InodeId) -> Result<Seen> {
    let inode = task.region.inode(id);
    let has_others = lacks_trusted(inode) && !lacks_attributes(inode);
    from.attributes(name, &mut |name, value| match name {
        name if has_others && !name.starts_with(b"trusted.") => Ok(()),
        acl::ACCESS_NAME => put_acl(task, inode, BlobKind::Acl, value),
        acl::DEFAULT_NAME => put_acl(task, inode, BlobKind::DefaultAcl, value),
        name if TAKEN.iter().any(|space| name.starts_with(space)) => {
            // SAFETY: the layer's bytes outlive the call, which only reads them.
            let bytes = unsafe { UserSlice::new(value.as_ptr(), value.len()) };
            let value = XattrValue { bytes, flags: 0 };
            let time = inode::attributes_locked(inode).ctime;
            xattrs::replace(task, (id, inode), name, Some(value), time)
        }
        _ => Ok(()),
    })
}

/// Gives an inode the ACL that it has in the layer below, unless it has one. The caller must hold its lock.
fn put_acl(task: &Task<'_>, inode: &Inode, which: BlobKind, value: &[u8]) -> Result<()> {
    if which.handle(inode) != 0 {
        return Ok(());
    }
    let draft = BlobDraft::new(task, inode.root.load(Relaxed))?; // Relaxed: immutable.
    draft.append(value)?;
    draft.attach(which.word(inode));
    task.region.settle::<Inode>(task.lane);
    Ok(())
}
