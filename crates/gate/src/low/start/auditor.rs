//! The gate as an auditor of the GNU C library's loader: rtld-audit(7).
//!
//! An auditor is loaded before the loader looks for any library of the program. So where that search leads into a mount
//! the gate comes this way, covers the loader, and the loader finds and maps what lies in the mount by itself. Else it
//! is preloaded, which costs less.
//!
//! One thing the loader does before: it asks /proc/self/exe for `$ORIGIN` of a program that has a search path. A program
//! in a mount is executed from a memfd, whose name is the program's path, so that the link reads
//! `/memfd:PATH (deleted)`: what the loader makes of that leads to where PATH does.

use crate::High;
use crate::low::above::Above;
use crate::low::object::objects::LinkMap;
use crate::low::tools::{names, report};

/// `la_version`: the interface's version that the loader offers will do, whatever it is.
pub extern "C" fn version(offered: u32) -> u32 {
    offered
}

/// `la_objopen`: an object was loaded; its name for dladdr(3) and the like is put right. None of its symbols is audited.
///
/// # Safety
/// `map` is the loader's entry for the object, whose name nobody else uses now.
pub unsafe extern "C" fn open(map: *mut LinkMap, _namespace: isize, _cookie: *const usize) -> u32 {
    // SAFETY: `map` is the loader's entry for the object, whose name nobody else uses now, by this function's
    // contract; what is moved is the end of a string, with its NUL, to its start.
    unsafe {
        let name = (*map).name.cast_mut();
        let path = if name.is_null() { b"" } else { report::c_bytes(name) };
        if let Some(path) = path.strip_prefix(names::MEMFD).filter(|path| High::holds(path)) {
            name.copy_from(name.add(names::MEMFD.len()), path.len() + 1);
        }
    }
    0
}
