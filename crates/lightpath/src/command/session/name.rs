//! Names of sessions.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use lp_abi::fnv::fnv1a;

use crate::command::output::failure::{Failure, USAGE};

/// Longest name of a session.
const LONGEST: usize = 200;

/// A name that the user has chosen, if it is one.
pub(crate) fn checked(name: &str) -> Result<OsString, Failure> {
    let fits = !name.is_empty() && name.len() <= LONGEST && !name.starts_with('.') && !name.contains('/');
    match fits {
        true => Ok(name.into()),
        false => {
            let line =
                format!("'{name}' is no name for a session: no slash, no dot first, at most {LONGEST} bytes");
            Err(Failure::new(USAGE, line))
        }
    }
}

/// The name of the session of directories: their paths with a plus sign for each slash, and two for each plus
/// sign; commas between them.
pub(crate) fn name_of(over: &[PathBuf]) -> OsString {
    let mut name = Vec::new();
    for path in over {
        if !name.is_empty() {
            name.push(b',');
        }
        for byte in path.as_os_str().as_bytes().iter().skip(1) {
            match byte {
                b'/' => name.push(b'+'),
                b'+' => name.extend(b"++"),
                byte => name.push(*byte),
            }
        }
    }
    if name.len() > LONGEST {
        // A hash of what does not fit.
        let paths: Vec<&[u8]> = over.iter().map(|path| path.as_os_str().as_bytes()).collect();
        let hash = fnv1a(&paths.join(&0));
        name.truncate(LONGEST - 17);
        name.extend(format!("+{hash:016x}").bytes());
    }
    if matches!(name.first(), None | Some(b'.')) {
        name.insert(0, b'+');
    }
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_directories_apart() {
        let name = |path: &str| name_of(&[path.into()]).into_string().unwrap();
        assert_eq!(name("/home/me/src"), "home+me+src");
        assert_eq!(name_of(&["/usr".into(), "/etc".into()]), "usr,etc");
        assert_ne!(name("/a/b+c"), name("/a+b/c"));
        assert!(name("/.x").starts_with('+'));
        assert_eq!(name("/"), "+");
        assert_ne!(name("/+"), "+");
        let long = |end: &str| name(&format!("/{}/{end}", "x".repeat(300)));
        assert!(long("a").len() <= LONGEST && long("a") != long("b"));
    }
}
