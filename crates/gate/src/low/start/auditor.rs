//! The gate as an auditor of the GNU C library's loader: rtld-audit(7).
//!
//! The loader loads auditors before it looks for any library of the program. If that search leads into a
//! mount, the gate is therefore loaded as an auditor and covers the loader, which then finds and maps what
//! lies in the mount by itself. Otherwise the gate is preloaded, which costs less.
//!
//! The loader does one thing earlier: for the `$ORIGIN` of a program that has a search path it reads
//! /proc/self/exe. A program in a mount is executed from a memfd named after the program's path, so the link
//! reads `/memfd:PATH (deleted)`, and what the loader derives from that leads to where PATH does.

use crate::High;
use crate::low::above::Above;
use crate::low::object::objects::LinkMap;
use crate::low::tools::{names, report};

/// `la_version`: accepts whichever version of the interface the loader offers.
pub extern "C" fn version(offered: u32) -> u32 {
    offered
}

/// `la_objopen`: an object was loaded. Corrects its name for dladdr(3) and the like. No symbols are audited.
///
/// # Safety
/// `map` must be the loader's entry for the object, and nobody else may use its name meanwhile.
pub unsafe extern "C" fn open(map: *mut LinkMap, _namespace: isize, _cookie: *const usize) -> u32 {
    // SAFETY: the caller guarantees the entry and exclusive use of its name; the copy moves the end of a
    // string, with its NUL, to the string's start.
    unsafe {
        let name = (*map).name.cast_mut();
        let path = if name.is_null() { b"" } else { report::c_bytes(name) };
        if let Some(path) = path.strip_prefix(names::MEMFD).filter(|path| High::holds(path)) {
            name.copy_from(name.add(names::MEMFD.len()), path.len() + 1);
        }
    }
    0
}
