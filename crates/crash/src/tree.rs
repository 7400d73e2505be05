//! What a file system holds, so that two moments can be compared.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;

use lp_abi::linux::{
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_DIRECTORY, O_RDONLY, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, stat,
};
use lp_abi::{Errno, Result};
use lp_vfs::Task;

use crate::sandbox::{IsDirectory, inside, open, path, remove};

/// One name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Type and permissions.
    pub mode: u32,
    /// Links.
    pub links: u64,
    /// Bytes.
    pub size: i64,
    /// Content of a file, target of a link.
    pub content: Vec<u8>,
}

/// All names below the mount, with what they lead to.
pub type Tree = BTreeMap<String, Node>;

/// Walks everything below `/light`; each name found by readdir must be found by lookup too.
pub fn read(task: &Task) -> Result<Tree> {
    let mut tree = Tree::new();
    walk(task, "/light", &mut tree)?;
    Ok(tree)
}

fn walk(task: &Task, name: &str, tree: &mut Tree) -> Result<()> {
    let attributes = attributes(task, name)?;
    let kind = attributes.st_mode & S_IFMT;
    let content = match kind {
        S_IFREG => content(task, name, attributes.st_size as usize)?,
        S_IFLNK => target(task, name)?,
        _ => Vec::new(),
    };
    let node =
        Node { mode: attributes.st_mode, links: attributes.st_nlink, size: attributes.st_size, content };
    assert!(tree.insert(name.to_owned(), node).is_none(), "{name} is listed twice");
    if kind == S_IFDIR {
        for child in names(task, name)? {
            walk(task, &format!("{name}/{child}"), tree)?;
        }
    }
    Ok(())
}

fn attributes(task: &Task, name: &str) -> Result<stat> {
    let mut to = MaybeUninit::<stat>::uninit();
    let name = path(name);
    inside(lp_vfs::stat::fstatat(
        task,
        AT_FDCWD,
        name.as_ptr().cast(),
        to.as_mut_ptr(),
        AT_SYMLINK_NOFOLLOW,
    ))?;
    // SAFETY: a successful call has filled it in.
    Ok(unsafe { to.assume_init() })
}

fn content(task: &Task, name: &str, size: usize) -> Result<Vec<u8>> {
    let fd = open(task, &path(name), O_RDONLY)?;
    let mut bytes = vec![0; size];
    let mut done = 0;
    while done < size {
        match lp_vfs::read::pread(task, fd, bytes[done..].as_mut_ptr(), size - done, done as i64)? {
            0 => return Err(Errno::EIO),
            got => done += got,
        }
    }
    lp_vfs::close::close(task, fd)?;
    Ok(bytes)
}

fn target(task: &Task, name: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    let got =
        lp_vfs::readlink::readlinkat(task, AT_FDCWD, path(name).as_ptr().cast(), bytes.as_mut_ptr(), 4096);
    bytes.truncate(inside(got)?);
    Ok(bytes)
}

/// Names in a directory but for `.` and `..`.
pub fn names(task: &Task, name: &str) -> Result<Vec<String>> {
    let fd = open(task, &path(name), O_RDONLY | O_DIRECTORY)?;
    let mut buffer = vec![0u8; 32768];
    let mut found = Vec::new();
    loop {
        let got = lp_vfs::getdents::getdents64(task, fd, buffer.as_mut_ptr(), buffer.len())?;
        if got == 0 {
            break;
        }
        let mut at = 0;
        while at < got {
            // struct linux_dirent64: inode, offset, length at 16, type, name at 19.
            let length = usize::from(u16::from_le_bytes([buffer[at + 16], buffer[at + 17]]));
            let bytes = &buffer[at + 19..at + length];
            let end = bytes.iter().position(|byte| *byte == 0).expect("a NUL");
            let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
            if text != "." && text != ".." {
                found.push(text);
            }
            at += length;
        }
    }
    lp_vfs::close::close(task, fd)?;
    Ok(found)
}

/// Removes everything below the mount.
pub fn clear(task: &Task) -> Result<()> {
    let tree = read(task)?;
    // Children sort behind their parents.
    for (name, node) in tree.iter().rev().filter(|(name, _)| *name != "/light") {
        let is_directory = if node.mode & S_IFMT == S_IFDIR { IsDirectory::Yes } else { IsDirectory::No };
        remove(task, name, is_directory)?;
    }
    Ok(())
}
