//! What tools know the C library with the gate in it by.
//!
//! perf(1) keeps a copy of each object that it has sampled, under the object's build-id, and names functions
//! and unwinds from the copy. With the id of the system's library, one would be taken for the other. A
//! debugger that knows no such id looks for the debug information under the name in `.gnu_debuglink`, which
//! is the system's, in `.debug` beside the library.

use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

use object::{Object, ObjectSection};

use super::preload;

/// The section of the build-id, a note.
const NOTE: &str = ".note.gnu.build-id";
/// Bytes of the note before the id: three numbers and the name `GNU`.
const BEFORE: usize = 16;

/// Gives `library` a build-id of its own, made from the system's and from what the gate is. Without a
/// build-id nothing changes.
pub(super) fn replace_build_id(library: &mut [u8]) {
    let note = object::File::parse(&*library).ok().and_then(|object| {
        let section = object.section_by_name(NOTE)?;
        let (start, bytes) = section.file_range()?;
        Some(start as usize + BEFORE..(start + bytes) as usize)
    });
    let Some(id) = note.and_then(|range| library.get_mut(range)) else { return };
    for (byte, of_gate) in id.iter_mut().zip(preload::hash()) {
        *byte ^= of_gate;
    }
}

/// Makes a debugger find the debug information of the system's library, whose build-id is `system_id`, for
/// `library` in `directory`. What it explains has the same addresses in both. Only debuggers miss the link,
/// so errors are ignored.
pub(super) fn link_debug_information(directory: &Path, library: &[u8], system_id: &str) {
    let Ok(object) = object::File::parse(library) else { return };
    let (Ok(Some((name, _))), Some((first, rest))) = (object.gnu_debuglink(), system_id.split_at_checked(2))
    else {
        return;
    };
    let links = directory.join(".debug");
    let _ = std::fs::DirBuilder::new().mode(0o755).create(&links);
    let target = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug");
    let _ = symlink(target, links.join(String::from_utf8_lossy(name).as_ref()));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::command::cache::within;

    #[test]
    fn the_build_id_is_another_and_nothing_else_changes() {
        let path = Path::new("/proc/self/exe");
        let program = std::fs::read(path).unwrap();
        let mut other = program.clone();
        super::replace_build_id(&mut other);
        let changed: Vec<usize> = (0..program.len()).filter(|at| program[*at] != other[*at]).collect();
        if within::build_id(path).is_some() {
            assert!((1..=16).contains(&changed.len()), "{changed:?}");
            assert!(changed[changed.len() - 1] - changed[0] < 16, "{changed:?}");
        }
        super::replace_build_id(&mut other);
        assert_eq!(program, other, "the same gate gives the same id");
    }

    #[test]
    fn a_debugger_finds_the_debug_information_of_the_system() {
        let library = std::fs::read(within::system_library().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        super::link_debug_information(directory.path(), &library, "0123456789abcdef");
        let links: Vec<_> = std::fs::read_dir(directory.path().join(".debug"))
            .map(|links| links.map(|link| std::fs::read_link(link.unwrap().path()).unwrap()).collect())
            .unwrap_or_default();
        let names_one =
            matches!(object::Object::gnu_debuglink(&object::File::parse(&*library).unwrap()), Ok(Some(_)));
        assert_eq!(links.len(), usize::from(names_one));
        assert!(
            links.iter().all(|link| link == Path::new("/usr/lib/debug/.build-id/01/23456789abcdef.debug"))
        );
    }
}
