//! Extended attributes: setxattr(2), getxattr(2), listxattr(2), removexattr(2) and related calls, as on
//! tmpfs.
//!
//! An inode's attributes are one blob of records, each a header, a name and a value, sorted by name in
//! descending order, as tmpfs lists them. ACLs have blobs of their own; see [`crate::rights::acl`].

use lp_abi::linux::{AT_SYMLINK_NOFOLLOW, S_IFDIR, S_IFMT, S_IFREG, S_ISVTX, XATTR_CREATE, XATTR_REPLACE};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr, UserSlice};
use lp_region::process::caps;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, MountId, ucopy};

use crate::caller::below;
use crate::caller::event::Touched;
use crate::caller::task::{Place, Task};
use crate::calls::target;
use crate::inodes::blob::{self, BlobKind, View};
use crate::inodes::xattrs::{self, CAPABILITY, NAME_ROOM, XattrValue};
use crate::inodes::{inode, watched};
use crate::lane::writer;
use crate::life::{mount_owner, reclaim};
use crate::names::tree;
use crate::rights::file_capabilities::{self, FileCapabilities};
use crate::rights::{acl, credentials, permission};

/// `XATTR_SIZE_MAX`, also the limit of a list.
const VALUE_MAX: usize = 65536;

/// Sets an attribute of what a path names; `AT_SYMLINK_NOFOLLOW` in `at_flags` is lsetxattr(2).
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for unknown flags or a name without its second part; `ERANGE` for a
/// name that is empty or too long; `E2BIG`; `EOPNOTSUPP` for a namespace that tmpfs does not support;
/// `EPERM`, `EACCES`; `EEXIST`, `ENODATA`; `ENOSPC`; `EROFS`.
pub fn setxattr(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    at_flags: u32,
    name: UserPtr,
    value: XattrValue,
) -> Result<Place<()>> {
    let name = checked(name, &value)?;
    target::at(task, dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW, |id, inode, mount| {
        set(task, (id, inode, mount), &name, value)
    })
}

/// Sets an attribute of an open file.
///
/// # Errors
/// Those of [`setxattr`]; `EBADF`.
pub fn fsetxattr(task: &Task, fd: Fd, name: UserPtr, value: XattrValue) -> Result<()> {
    let name = checked(name, &value)?;
    let held = task.fget_no_path(fd)?;
    set(task, (held.inode_id(), held.inode, held.mount()), &name, value)
}

/// Reads an attribute of what a path names and returns its size.
///
/// # Errors
/// Those of path_resolution(7); `ENODATA`; `ERANGE` if it does not fit; `EOPNOTSUPP`; `EACCES`.
pub fn getxattr(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    at_flags: u32,
    name: UserPtr,
    to: UserSlice,
) -> Result<Place<usize>> {
    let name = Name::import(name)?;
    target::at(task, dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW, |_, inode, _| get(task, inode, &name, to))
}

/// Reads an attribute of an open file and returns its size.
///
/// # Errors
/// Those of [`getxattr`]; `EBADF`.
pub fn fgetxattr(task: &Task, fd: Fd, name: UserPtr, to: UserSlice) -> Result<usize> {
    let name = Name::import(name)?;
    let held = task.fget_no_path(fd)?;
    get(task, held.inode, &name, to)
}

/// [`getxattr`] of an inode that nobody removes.
///
/// # Errors
/// Those of [`fgetxattr`].
pub fn getxattr_of(task: &Task, of: InodeId, name: UserPtr, to: UserSlice) -> Result<usize> {
    get(task, task.region.inode(of), &Name::import(name)?, to)
}

/// Lists the attribute names of what a path names and returns the size of the list.
///
/// # Errors
/// Those of path_resolution(7); `ERANGE` if it does not fit; `E2BIG` for a list that no room is enough for.
pub fn listxattr(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    at_flags: u32,
    to: UserSlice,
) -> Result<Place<usize>> {
    target::at(task, dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW, |_, inode, _| list(task, inode, to))
}

/// Lists the attribute names of an open file and returns the size of the list.
///
/// # Errors
/// Those of [`listxattr`]; `EBADF`.
pub fn flistxattr(task: &Task, fd: Fd, to: UserSlice) -> Result<usize> {
    let held = task.fget_no_path(fd)?;
    list(task, held.inode, to)
}

/// [`listxattr`] of an inode that nobody removes.
///
/// # Errors
/// Those of [`flistxattr`].
pub fn listxattr_of(task: &Task, of: InodeId, to: UserSlice) -> Result<usize> {
    list(task, task.region.inode(of), to)
}

/// Removes an attribute of what a path names.
///
/// # Errors
/// Those of [`setxattr`]; `ENODATA` if it has no attribute of this name.
pub fn removexattr(task: &Task, dirfd: Fd, path: UserPtr, at_flags: u32, name: UserPtr) -> Result<Place<()>> {
    let name = Name::import(name)?;
    target::at(task, dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW, |id, inode, mount| {
        remove(task, (id, inode, mount), &name)
    })
}

/// Removes an attribute of an open file.
///
/// # Errors
/// Those of [`removexattr`]; `EBADF`.
pub fn fremovexattr(task: &Task, fd: Fd, name: UserPtr) -> Result<()> {
    let name = Name::import(name)?;
    let held = task.fget_no_path(fd)?;
    remove(task, (held.inode_id(), held.inode, held.mount()), &name)
}

/// An attribute's name, copied.
struct Name {
    bytes: [u8; NAME_ROOM],
    len: usize,
}

impl Name {
    fn import(from: UserPtr) -> Result<Name> {
        let mut bytes = [0; NAME_ROOM];
        // SAFETY: the copy routine handles bad pointers.
        let len = match unsafe { ucopy::string(&mut bytes, from.as_ptr()) } {
            Ok(0) | Err(Errno::ENAMETOOLONG) => return Err(Errno::ERANGE),
            other => other?,
        };
        Ok(Name { bytes, len })
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The namespace of an attribute's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
    Acl(BlobKind),
    /// Another one in `system.`.
    System,
    Unknown,
}

fn space(name: &[u8]) -> Space {
    match name {
        acl::ACCESS_NAME => Space::Acl(BlobKind::Acl),
        acl::DEFAULT_NAME => Space::Acl(BlobKind::DefaultAcl),
        _ if name.starts_with(b"user.") => Space::User,
        _ if name.starts_with(b"trusted.") => Space::Trusted,
        _ if name.starts_with(b"security.") => Space::Security,
        _ if name.starts_with(b"system.") => Space::System,
        _ => Space::Unknown,
    }
}

fn checked(name: UserPtr, value: &XattrValue) -> Result<Name> {
    if value.flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    let name = Name::import(name)?;
    if value.bytes.len() > VALUE_MAX {
        return Err(Errno::E2BIG);
    }
    // The kernel copies the value before it looks at the path.
    for at in (0..value.bytes.len()).step_by(PAGE_SIZE).chain(value.bytes.len().checked_sub(1)) {
        // SAFETY: the copy routine handles bad pointers.
        unsafe { ucopy::get(value.bytes.skip(at).start().as_ptr()) }?;
    }
    Ok(name)
}

/// How a call uses an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// The kernel's xattr_permission.
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
        Space::Trusted if !credentials::capable_initially(task, caps::SYS_ADMIN) => {
            return Err(refused(Errno::EPERM));
        }
        Space::Trusted => return Ok(()),
        Space::User => {
            let kind = mode & S_IFMT;
            if kind != S_IFREG && kind != S_IFDIR {
                return Err(refused(Errno::EPERM));
            }
            let sticky = kind == S_IFDIR && mode & S_ISVTX != 0;
            if sticky && access == Access::Write && !credentials::owns(task, inode) {
                return Err(Errno::EPERM);
            }
        }
        Space::Unknown => {}
    }
    let want = if access == Access::Write { permission::WRITE } else { permission::READ };
    permission::check_known(task, inode, want)
}

/// Checks that tmpfs supports attributes of this name, like `xattr_resolve_name`.
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

/// The target of a call, and the mount through which it was reached.
type On<'a> = (InodeId, &'a Inode, MountId);

fn set(task: &Task, of: On, name: &Name, value: XattrValue) -> Result<()> {
    reclaim::once_more(task, || set_value(task, of, name, value))?;
    watched::touched(task, of.0, of.1, Touched::Attributes);
    Ok(())
}

fn set_value(task: &Task, (id, inode, mount): On, name: &Name, mut value: XattrValue) -> Result<()> {
    below::complete_attributes(task, inode)?;
    let _writing = writer::begin(task, mount)?;
    let name = name.get();
    let space = space(name);
    let mut room = [0; file_capabilities::ROOM];
    // The kernel looks at capabilities only if there are some.
    if name == CAPABILITY && !value.bytes.is_empty() {
        value.bytes = capabilities_to_store(task, inode, value.bytes, &mut room)?;
    }
    let limits = space == Space::Acl(BlobKind::Acl) && inode.is_dir();
    let _locked = inode::lock(task, id);
    let _shift = limits.then(|| tree::shift(task));
    if let Space::Acl(which) = space {
        return acl::set(task, id, inode, which, value.bytes);
    }
    may(task, inode, space, Access::Write)?;
    if space == Space::Security && name != CAPABILITY {
        may_administer(task, inode, name)?;
    }
    resolve(name, space)?;
    xattrs::replace(task, (id, inode), name, Some(value), task.now())
}

/// The capabilities that a caller gives, for an inode, in `room`: the kernel's cap_convert_nscap.
///
/// # Errors
/// `EINVAL` if they are not valid, `EPERM`.
fn capabilities_to_store(
    task: &Task,
    inode: &Inode,
    given: UserSlice,
    room: &mut [u8; file_capabilities::ROOM],
) -> Result<UserSlice> {
    let copy = room.get_mut(..given.len()).ok_or(Errno::EINVAL)?;
    // SAFETY: the copy routine handles bad pointers, and `copy` has room for all of it.
    unsafe { ucopy::copy(copy.as_mut_ptr(), given.start().as_ptr(), copy.len()) }?;
    let capabilities = FileCapabilities::parse(copy)?;
    may_administer(task, inode, CAPABILITY)?;
    let length = capabilities.in_run(task.process)?.write(room);
    // SAFETY: `length` bytes of `room`, which the caller keeps.
    Ok(unsafe { UserSlice::new(room.as_ptr(), length) })
}

/// Checks that the caller may change an attribute in `security.`: in a user namespace a file's capabilities,
/// and others on a file system that was made there.
fn may_administer(task: &Task, inode: &Inode, name: &[u8]) -> Result<()> {
    let root = inode.root.load(Relaxed); // Relaxed: immutable.
    let may = match name == CAPABILITY {
        true => credentials::capable_over(task, inode, caps::SETFCAP),
        false => {
            credentials::capable(task, caps::SYS_ADMIN) && mount_owner::may_reconfigure(task, root).is_ok()
        }
    };
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

fn remove(task: &Task, of: On, name: &Name) -> Result<()> {
    reclaim::once_more(task, || remove_value(task, of, name))?;
    watched::touched(task, of.0, of.1, Touched::Attributes);
    Ok(())
}

fn remove_value(task: &Task, (id, inode, mount): On, name: &Name) -> Result<()> {
    below::complete_attributes(task, inode)?;
    let _writing = writer::begin(task, mount)?;
    let name = name.get();
    let space = space(name);
    let _locked = inode::lock(task, id);
    if let Space::Acl(which) = space {
        return acl::remove(task, id, inode, which);
    }
    may(task, inode, space, Access::Write)?;
    if space == Space::Security {
        may_administer(task, inode, name)?;
    }
    resolve(name, space)?;
    xattrs::replace(task, (id, inode), name, None, task.now())
}

fn get(task: &Task, inode: &Inode, name: &Name, to: UserSlice) -> Result<usize> {
    let name = name.get();
    let space = space(name);
    if let Space::Acl(which) = space {
        below::acl(task, inode)?;
        return acl::get(task, inode, which, to);
    }
    below::acl(task, inode)?;
    may(task, inode, space, Access::Read)?;
    resolve(name, space)?;
    below::complete_attributes(task, inode)?;
    // Without a lock, so that nobody waits for a writer that is stopped.
    blob::peek(task.region, inode, BlobKind::Xattr, |view| get_from(task, view, name, to))
        .unwrap_or(Err(Errno::ENODATA))
}

fn get_from(task: &Task, view: View, name: &[u8], to: UserSlice) -> Result<usize> {
    let record = xattrs::records(view)
        .find(|record| xattrs::compare(view, record, name).is_eq())
        .ok_or(Errno::ENODATA)?;
    let size = record.value_len as usize;
    if name == CAPABILITY {
        let mut room = [0; file_capabilities::ROOM];
        let stored = room.get_mut(..size).ok_or(Errno::EINVAL)?;
        view.read(stored, record.value_at())?;
        let length = FileCapabilities::parse(stored)?.shown(task.process)?.write(&mut room);
        // SAFETY: the copy routine handles bad pointers; `room` has the bytes.
        let copy = |to: UserSlice| unsafe { ucopy::copy(to.start().as_ptr(), room.as_ptr(), length) };
        return fill(to, length, |to| copy(to).map(|()| length));
    }
    fill(to, size, |to| view.give(to, record.value_at()))
}

/// Has `copy` copy a value of `size` bytes out. Without any room the size is all that the caller wants.
fn fill(to: UserSlice, size: usize, copy: impl FnOnce(UserSlice) -> Result<usize>) -> Result<usize> {
    match to.len() {
        0 => Ok(size),
        room if room < size => Err(Errno::ERANGE),
        _ => copy(to.first(size)),
    }
}

fn list(task: &Task, inode: &Inode, to: UserSlice) -> Result<usize> {
    below::complete_attributes(task, inode)?;
    // Each is looked at once, as in the kernel's simple_xattr_list.
    let acls = [(BlobKind::Acl, acl::ACCESS_NAME), (BlobKind::DefaultAcl, acl::DEFAULT_NAME)]
        .map(|(kind, name)| if kind.handle(inode) == 0 { None } else { Some(name) });
    blob::peek(task.region, inode, BlobKind::Xattr, |view| list_names(task, (acls, Some(view)), to))
        .unwrap_or_else(|| list_names(task, (acls, None), to))
}

/// The names of ACLs, and the other attributes.
type Names<'r> = ([Option<&'static [u8]>; 2], Option<View<'r>>);

fn list_names(task: &Task, names: Names, to: UserSlice) -> Result<usize> {
    let mut total = 0;
    each_name(task, names, |len, _| {
        total += len + 1;
        Ok(())
    })?;
    if to.is_empty() {
        return Ok(total);
    }
    if to.len().min(VALUE_MAX) < total {
        return Err(if to.len() < VALUE_MAX { Errno::ERANGE } else { Errno::E2BIG });
    }
    let mut left = to;
    each_name(task, names, |len, copy| {
        copy(left.first(len))?;
        // SAFETY: the copy routine handles bad pointers.
        unsafe { ucopy::put(left.skip(len).start().as_ptr(), &0u8) }?;
        left = left.skip(len + 1);
        Ok(())
    })?;
    Ok(total)
}

/// Calls `visit` with the length of each name that the process may see, and with a function that copies the
/// name out.
fn each_name(
    task: &Task,
    (acls, view): Names,
    mut visit: impl FnMut(usize, &dyn Fn(UserSlice) -> Result<()>) -> Result<()>,
) -> Result<()> {
    for name in acls.into_iter().flatten() {
        // SAFETY: the copy routine handles bad pointers.
        visit(name.len(), &|to| unsafe { ucopy::copy(to.start().as_ptr(), name.as_ptr(), name.len()) })?;
    }
    let Some(view) = view else { return Ok(()) };
    let mut trusted = None;
    for record in xattrs::records(view) {
        let mut may_see =
            || *trusted.get_or_insert_with(|| credentials::capable_initially(task, caps::SYS_ADMIN));
        if &view.bytes::<8>(record.name_at()) == b"trusted." && !may_see() {
            continue;
        }
        let len = record.name_len as usize;
        visit(len, &|to| view.give(to, record.name_at()).map(drop))?;
    }
    Ok(())
}
