//! Extended attributes: xattr(7).

use std::path::Path;

use lp_abi::{Result, UserSlice, lent};
use lp_vfs::xattr::{self, XattrValue};

use crate::task::{c_name, with_path};
use crate::{Fd, Task};

/// Longest value and longest list of names, in bytes (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const LONGEST: usize = 65536;

impl Task<'_> {
    /// Sets an extended attribute of the file at a path: setxattr(2).
    ///
    /// # Errors
    /// Those of setxattr(2).
    pub fn setxattr(&self, path: impl AsRef<Path>, name: &str, value: &[u8], flags: u32) -> Result<()> {
        let name = c_name(name)?;
        let value = XattrValue { bytes: lent::bytes(value), flags };
        with_path(path, |path| xattr::setxattr(self.inner(), Fd::CWD, path, 0, lent::path(&name), value))
    }

    /// The value of an extended attribute: getxattr(2).
    ///
    /// # Errors
    /// Those of getxattr(2).
    pub fn getxattr(&self, path: impl AsRef<Path>, name: &str) -> Result<Vec<u8>> {
        let name = c_name(name)?;
        filled(|room| {
            with_path(path, |path| xattr::getxattr(self.inner(), Fd::CWD, path, 0, lent::path(&name), room))
        })
    }

    /// The names of all extended attributes: listxattr(2).
    ///
    /// # Errors
    /// Those of listxattr(2).
    pub fn listxattr(&self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let list =
            filled(|room| with_path(path, |path| xattr::listxattr(self.inner(), Fd::CWD, path, 0, room)))?;
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// Removes an extended attribute: removexattr(2).
    ///
    /// # Errors
    /// Those of removexattr(2).
    pub fn removexattr(&self, path: impl AsRef<Path>, name: &str) -> Result<()> {
        let name = c_name(name)?;
        with_path(path, |path| xattr::removexattr(self.inner(), Fd::CWD, path, 0, lent::path(&name)))
    }
}

/// The result of a call that fills a buffer and returns the number of bytes written.
fn filled(call: impl FnOnce(UserSlice) -> Result<usize>) -> Result<Vec<u8>> {
    let mut buffer = vec![0; LONGEST];
    let length = call(lent::room(&mut buffer))?;
    buffer.truncate(length);
    Ok(buffer)
}
