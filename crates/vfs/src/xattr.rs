//! Extended attributes: setxattr(2), getxattr(2), listxattr(2), removexattr(2) and their kin, as tmpfs has them.
//!
//! An inode's attributes are one blob: records of a header, a name and a value, by name from the last to the first, as
//! tmpfs lists them. ACLs have blobs of their own; see [`crate::acl`].

use lp_abi::linux::{AT_SYMLINK_NOFOLLOW, S_IFDIR, S_IFMT, S_IFREG, S_ISVTX, XATTR_CREATE, XATTR_REPLACE};
use lp_abi::{Errno, Result};
use lp_region::process::caps;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, ucopy};

use crate::acl;
use crate::blob::{self, Draft, View, Which};
use crate::inode;
use crate::task::{Place, Task};
use crate::watch::{self, Touched};
use crate::{permission, target, tree, writer};

/// `XATTR_NAME_MAX` and a NUL.
const NAME_ROOM: usize = 256;
/// `XATTR_SIZE_MAX`, also of a list.
const VALUE_MAX: usize = 65536;
/// Bytes of a record's header: length of the name, length of the value.
const HEADER: u64 = 8;
/// The attribute that a write takes away.
const CAPABILITY: &[u8] = b"security.capability";

/// The program's value and how it is to be set.
#[derive(Clone, Copy)]
pub struct Value {
    /// Where it lies.
    pub at: *const u8,
    /// Its bytes.
    pub size: usize,
    /// `XATTR_CREATE`, `XATTR_REPLACE` or 0.
    pub flags: u32,
}

/// The program's buffer for a value or a list.
#[derive(Clone, Copy)]
pub struct Room {
    /// Where it lies.
    pub at: *mut u8,
    /// Its bytes; 0 asks for how many it takes.
    pub size: usize,
}

/// Sets an attribute of what a path names; `AT_SYMLINK_NOFOLLOW` in `at_flags` is lsetxattr(2).
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for unknown flags or a name without its second part; `ERANGE` for a name that
/// is empty or too long; `E2BIG`; `EOPNOTSUPP` for a namespace that tmpfs has not; `EPERM`, `EACCES`; `EEXIST`, `ENODATA`;
/// `ENOSPC`; `EROFS`.
pub fn setxattr(
    task: &Task,
    dirfd: i32,
    path: *const u8,
    at_flags: u32,
    name: *const u8,
    value: Value,
) -> Result<Place<()>> {
    let name = checked(name, &value)?;
    target::at(task, dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW, |id, inode| {
        set(task, id, inode, &name, value)
    })
}

/// Sets an attribute of an open file.
///
/// # Errors
/// As [`setxattr`]; `EBADF`.
pub fn fsetxattr(task: &Task, fd: i32, name: *const u8, value: Value) -> Result<()> {
    let held = target::open(task, fd)?;
    set(task, held.inode_id(), held.inode, &checked(name, &value)?, value)
}

/// Reads an attribute of what a path names; gives its size.
///
/// # Errors
/// Those of path_resolution(7); `ENODATA`; `ERANGE` when it does not fit; `EOPNOTSUPP`; `EACCES`.
pub fn getxattr(
    task: &Task,
    dirfd: i32,
    path: *const u8,
    at_flags: u32,
    name: *const u8,
    to: Room,
) -> Result<Place<usize>> {
    let name = Name::import(name)?;
    target::at(task, dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW, |id, inode| get(task, id, inode, &name, to))
}

/// Reads an attribute of an open file; gives its size.
///
/// # Errors
/// As [`getxattr`]; `EBADF`.
pub fn fgetxattr(task: &Task, fd: i32, name: *const u8, to: Room) -> Result<usize> {
    let held = target::open(task, fd)?;
    get(task, held.inode_id(), held.inode, &Name::import(name)?, to)
}

/// Lists the names of the attributes of what a path names; gives the size of the list.
///
/// # Errors
/// Those of path_resolution(7); `ERANGE` when it does not fit.
pub fn listxattr(task: &Task, dirfd: i32, path: *const u8, at_flags: u32, to: Room) -> Result<Place<usize>> {
    target::at(task, dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW, |id, inode| list(task, id, inode, to))
}

/// Lists the names of the attributes of an open file; gives the size of the list.
///
/// # Errors
/// As [`listxattr`]; `EBADF`.
pub fn flistxattr(task: &Task, fd: i32, to: Room) -> Result<usize> {
    let held = target::open(task, fd)?;
    list(task, held.inode_id(), held.inode, to)
}

/// Removes an attribute of what a path names.
///
/// # Errors
/// As [`setxattr`]; `ENODATA` when it has none of this name.
pub fn removexattr(
    task: &Task,
    dirfd: i32,
    path: *const u8,
    at_flags: u32,
    name: *const u8,
) -> Result<Place<()>> {
    let name = Name::import(name)?;
    target::at(task, dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW, |id, inode| remove(task, id, inode, &name))
}

/// Removes an attribute of an open file.
///
/// # Errors
/// As [`removexattr`]; `EBADF`.
pub fn fremovexattr(task: &Task, fd: i32, name: *const u8) -> Result<()> {
    let held = target::open(task, fd)?;
    remove(task, held.inode_id(), held.inode, &Name::import(name)?)
}

/// An attribute's name, copied.
struct Name {
    bytes: [u8; NAME_ROOM],
    len: usize,
}

impl Name {
    fn import(from: *const u8) -> Result<Name> {
        let mut bytes = [0; NAME_ROOM];
        // SAFETY: the program's memory.
        let len = match unsafe { ucopy::string(&mut bytes, from) } {
            Ok(0) | Err(Errno::ENAMETOOLONG) => return Err(Errno::ERANGE),
            other => other?,
        };
        Ok(Name { bytes, len })
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Which part of the attributes a name belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
    Acl(Which),
    /// Another one of `system.`.
    System,
    Unknown,
}

fn space(name: &[u8]) -> Space {
    match name {
        acl::ACCESS_NAME => Space::Acl(Which::Acl),
        acl::DEFAULT_NAME => Space::Acl(Which::DefaultAcl),
        _ if name.starts_with(b"user.") => Space::User,
        _ if name.starts_with(b"trusted.") => Space::Trusted,
        _ if name.starts_with(b"security.") => Space::Security,
        _ if name.starts_with(b"system.") => Space::System,
        _ => Space::Unknown,
    }
}

fn checked(name: *const u8, value: &Value) -> Result<Name> {
    if value.flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    let name = Name::import(name)?;
    if value.size > VALUE_MAX { Err(Errno::E2BIG) } else { Ok(name) }
}

/// What a call does with an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// xattr_permission.
fn may(task: &Task, inode: &Inode, space: Space, access: Access) -> Result<()> {
    let mode = inode.mode.load(Relaxed); // Relaxed, here and below: one word each, used as seen.
    if access == Access::Write
        && inode.flags.load(Relaxed) & (inode_flags::IMMUTABLE | inode_flags::APPEND) != 0
    {
        return Err(Errno::EPERM);
    }
    let refused = |write: Errno| if access == Access::Write { write } else { Errno::ENODATA };
    match space {
        Space::Security | Space::System | Space::Acl(_) => return Ok(()),
        Space::Trusted if !permission::capable(task, caps::SYS_ADMIN) => return Err(refused(Errno::EPERM)),
        Space::Trusted => return Ok(()),
        Space::User => {
            let kind = mode & S_IFMT;
            if kind != S_IFREG && kind != S_IFDIR {
                return Err(refused(Errno::EPERM));
            }
            let sticky = kind == S_IFDIR && mode & S_ISVTX != 0;
            if sticky && access == Access::Write && !permission::owns(task, inode) {
                return Err(Errno::EPERM);
            }
        }
        Space::Unknown => {}
    }
    let want = if access == Access::Write { permission::WRITE } else { permission::READ };
    permission::check(task, inode, want)
}

/// Whether tmpfs keeps attributes of this name, as `xattr_resolve_name`.
fn resolve(name: &[u8], space: Space) -> Result<()> {
    match space {
        Space::System | Space::Unknown => Err(Errno::EOPNOTSUPP),
        Space::Acl(_) => Ok(()),
        _ if name.ends_with(b".") && name.iter().filter(|byte| **byte == b'.').count() == 1 => {
            Err(Errno::EINVAL)
        }
        _ => Ok(()),
    }
}

fn set(task: &Task, id: InodeId, inode: &Inode, name: &Name, value: Value) -> Result<()> {
    set_value(task, id, inode, name, value)?;
    watch::touched(task, id, inode, Touched::Attributes);
    Ok(())
}

fn set_value(task: &Task, id: InodeId, inode: &Inode, name: &Name, value: Value) -> Result<()> {
    let _writing = writer::begin(task, inode)?;
    let name = name.get();
    let space = space(name);
    let limits = space == Space::Acl(Which::Acl) && inode::is_dir(inode);
    let _locked = inode::lock(task, id);
    let _shift = limits.then(|| tree::shift(task));
    if let Space::Acl(which) = space {
        return acl::set(task, id, inode, which, value.at, value.size);
    }
    may(task, inode, space, Access::Write)?;
    if space == Space::Security {
        may_secure(task, name, &value)?;
    }
    resolve(name, space)?;
    replace(task, id, inode, name, Some(value))
}

/// cap_inode_setxattr: `security.` is for the administrator; file capabilities have to be such.
fn may_secure(task: &Task, name: &[u8], value: &Value) -> Result<()> {
    if name == CAPABILITY {
        // SAFETY: the program's memory.
        let magic = if value.size >= 4 { unsafe { ucopy::get(value.at.cast::<u32>()) }? } else { 0 };
        let is_valid = matches!((value.size, magic >> 24), (0, _) | (20, 2) | (24, 3));
        if !is_valid {
            return Err(Errno::EINVAL);
        }
    }
    if permission::capable(task, caps::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

fn remove(task: &Task, id: InodeId, inode: &Inode, name: &Name) -> Result<()> {
    remove_value(task, id, inode, name)?;
    watch::touched(task, id, inode, Touched::Attributes);
    Ok(())
}

fn remove_value(task: &Task, id: InodeId, inode: &Inode, name: &Name) -> Result<()> {
    let _writing = writer::begin(task, inode)?;
    let name = name.get();
    let space = space(name);
    let _locked = inode::lock(task, id);
    if let Space::Acl(which) = space {
        return acl::remove(task, id, inode, which);
    }
    may(task, inode, space, Access::Write)?;
    if space == Space::Security && !permission::capable(task, caps::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    resolve(name, space)?;
    replace(task, id, inode, name, None)
}

fn get(task: &Task, id: InodeId, inode: &Inode, name: &Name, to: Room) -> Result<usize> {
    let name = name.get();
    let space = space(name);
    if let Space::Acl(which) = space {
        return acl::get(task, id, inode, which, to.at, to.size);
    }
    may(task, inode, space, Access::Read)?;
    resolve(name, space)?;
    let _locked = inode::lock(task, id);
    let view = blob::of(task, inode, Which::Xattr).ok_or(Errno::ENODATA)?;
    let record = records(view).find(|record| compare(view, record, name).is_eq()).ok_or(Errno::ENODATA)?;
    let size = record.value_len as usize;
    // cap_inode_getsecurity.
    if name == CAPABILITY && size == 0 {
        return Err(Errno::EINVAL);
    }
    if to.size == 0 {
        return Ok(size);
    }
    if to.size < size {
        return Err(Errno::ERANGE);
    }
    view.read(to.at, size, record.value_at())
}

fn list(task: &Task, id: InodeId, inode: &Inode, to: Room) -> Result<usize> {
    let _locked = inode::lock(task, id);
    let mut total = 0;
    each_name(task, inode, |len, _| {
        total += len + 1;
        Ok(())
    })?;
    if to.size == 0 {
        return Ok(total);
    }
    if to.size.min(VALUE_MAX) < total {
        return Err(Errno::ERANGE);
    }
    let mut at = to.at;
    each_name(task, inode, |len, copy| {
        copy(at)?;
        // SAFETY: the program's memory.
        unsafe { ucopy::put(at.wrapping_add(len), &0u8) }?;
        at = at.wrapping_add(len + 1);
        Ok(())
    })?;
    Ok(total)
}

/// Calls `visit` with the length of each name that the process may see, and with what copies the name out.
fn each_name(
    task: &Task,
    inode: &Inode,
    mut visit: impl FnMut(usize, &dyn Fn(*mut u8) -> Result<()>) -> Result<()>,
) -> Result<()> {
    for (which, name) in [(Which::Acl, acl::ACCESS_NAME), (Which::DefaultAcl, acl::DEFAULT_NAME)] {
        if blob::of(task, inode, which).is_some() {
            // SAFETY: the program's memory.
            visit(name.len(), &|to| unsafe { ucopy::copy(to, name.as_ptr(), name.len()) })?;
        }
    }
    let Some(view) = blob::of(task, inode, Which::Xattr) else { return Ok(()) };
    let trusted = permission::capable(task, caps::SYS_ADMIN);
    for record in records(view) {
        if &view.bytes::<8>(record.name_at()) == b"trusted." && !trusted {
            continue;
        }
        let len = record.name_len as usize;
        visit(len, &|to| view.read(to, len, record.name_at()).map(drop))?;
    }
    Ok(())
}

/// Where a record lies.
#[derive(Clone, Copy)]
struct Record {
    at: u64,
    name_len: u32,
    value_len: u32,
}

impl Record {
    fn name_at(&self) -> u64 {
        self.at + HEADER
    }

    fn value_at(&self) -> u64 {
        self.name_at() + u64::from(self.name_len)
    }

    fn end(&self) -> u64 {
        self.value_at() + u64::from(self.value_len)
    }
}

fn records<'r>(view: View<'r>) -> impl Iterator<Item = Record> + use<'r> {
    let mut at = 0;
    core::iter::from_fn(move || {
        if at >= view.len() {
            return None;
        }
        let [n0, n1, n2, n3, v0, v1, v2, v3] = view.bytes(at);
        let (name_len, value_len) =
            (u32::from_ne_bytes([n0, n1, n2, n3]), u32::from_ne_bytes([v0, v1, v2, v3]));
        let record = Record { at, name_len, value_len };
        at = record.end();
        Some(record)
    })
}

/// How a record's name compares with `name`.
fn compare(view: View, record: &Record, name: &[u8]) -> core::cmp::Ordering {
    let mut bytes = [0u8; NAME_ROOM];
    let len = (record.name_len as usize).min(NAME_ROOM);
    // A fault is impossible.
    let _ = view.read(bytes.as_mut_ptr(), len, record.name_at());
    bytes[..len].cmp(name)
}

/// Sets or removes an attribute, and `ctime`. The caller holds the inode's lock.
fn replace(task: &Task, id: InodeId, inode: &Inode, name: &[u8], value: Option<Value>) -> Result<()> {
    let old = blob::of(task, inode, Which::Xattr);
    let existing = old.and_then(|view| records(view).find(|record| compare(view, record, name).is_eq()));
    match (&existing, value) {
        (None, None) => return Err(Errno::ENODATA),
        (None, Some(value)) if value.flags & XATTR_REPLACE != 0 => return Err(Errno::ENODATA),
        (Some(_), Some(value)) if value.flags & XATTR_CREATE != 0 => return Err(Errno::EEXIST),
        _ => {}
    }
    let draft = Draft::new(task, inode.root.load(Relaxed))?;
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
        let header = (name.len() as u64 | (value.size as u64) << 32).to_ne_bytes();
        draft.append(header.as_ptr(), header.len())?;
        draft.append(name.as_ptr(), name.len())?;
        draft.append(value.at, value.size)?;
    }
    if let Some(view) = old {
        copy(&draft, view, rest, view.len())?;
    }
    let draft = (!draft.view().is_empty()).then_some(draft);
    blob::swap(task, id, Which::Xattr, draft, inode.mode.load(Relaxed)); // Relaxed: under the lock.
    Ok(())
}

fn copy(draft: &Draft, from: View, start: u64, end: u64) -> Result<()> {
    let mut at = start;
    while at < end {
        let mut bytes = [0u8; 512];
        let len = (end - at).min(512) as usize;
        let got = from.read(bytes.as_mut_ptr(), len, at)?;
        if got == 0 {
            break;
        }
        draft.append(bytes.as_ptr(), got)?;
        at += got as u64;
    }
    Ok(())
}

/// Gives an inode an attribute that it has in the layer below. The caller holds its lock.
///
/// # Errors
/// `ENOSPC`.
pub fn put(task: &Task, id: InodeId, inode: &Inode, name: &[u8], value: &[u8]) -> Result<()> {
    match space(name) {
        Space::Acl(_) | Space::System | Space::Unknown => Ok(()),
        _ => replace(task, id, inode, name, Some(Value { at: value.as_ptr(), size: value.len(), flags: 0 })),
    }
}

/// Gives an inode an ACL that it has in the layer below, unless it has one. The caller holds its lock.
///
/// # Errors
/// `ENOSPC`.
pub fn put_acl(task: &Task, inode: &Inode, which: Which, value: &[u8]) -> Result<()> {
    if which.handle(inode) != 0 {
        return Ok(());
    }
    let draft = Draft::new(task, inode.root.load(Relaxed))?; // Relaxed: immutable.
    draft.append(value.as_ptr(), value.len())?;
    draft.attach(which.word(inode));
    task.region.settle::<Inode>(task.lane);
    Ok(())
}


/// Takes the file capabilities away: the content changes. The caller holds the inode's lock.
#[cold]
pub fn drop_capability(task: &Task, id: InodeId, inode: &Inode) {
    // Without memory for the shorter list it goes as a whole rather than keep capabilities for other content.
    match replace(task, id, inode, CAPABILITY, None) {
        Ok(()) | Err(Errno::ENODATA) => {}
        // Relaxed: under the lock.
        Err(_) => blob::swap(task, id, Which::Xattr, None, inode.mode.load(Relaxed)),
    }
}
