//! What the sources of tests say: which calls the groups of the conformance program make.

use std::path::{Path, PathBuf};

/// The project's directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the project.
///
/// # Panics
/// If it cannot be read.
pub fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files in a directory of the project whose names end in `suffix`, sorted by name.
///
/// # Panics
/// If there is no such directory.
pub fn files(directory: &str, suffix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(directory)).unwrap();
    let paths = entries.map(|entry| Path::new(directory).join(entry.unwrap().file_name()));
    let mut found: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(suffix)).collect();
    found.sort();
    found
}

/// The names that programs use for a call.
pub fn names(call: &str) -> Vec<String> {
    let others: &[&str] = match call {
        "newfstatat" => &["fstatat", "stat", "lstat", "fstat"],
        "pread64" => &["pread"],
        "pwrite64" => &["pwrite"],
        "preadv2" => &["preadv"],
        "pwritev2" => &["pwritev"],
        "sendfile" => &["sendfile64"],
        "openat" => &["open"],
        "openat2" => &["open_how"],
        "getdents64" => &["readdir", "getdents"],
        "utimensat" => &["futimens"],
        "renameat2" => &["renameat"],
        "faccessat2" => &["faccessat"],
        "fadvise64" => &["posix_fadvise"],
        "wait4" => &["waitpid", "wait"],
        "pselect6" => &["pselect"],
        "prlimit64" => &["prlimit"],
        "exit_group" => &["exit", "_exit"],
        "umount2" => &["umount"],
        _ => &[],
    };
    std::iter::once(call).chain(others.iter().copied()).map(str::to_owned).collect()
}

/// Whether a text makes a call.
pub fn makes(text: &str, name: &str) -> bool {
    times(text, name) > 0
}

/// How often a text makes a call: by its name, or by its number.
pub fn times(text: &str, name: &str) -> usize {
    let called = |(at, _): &(usize, &str)| {
        let at = *at;
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let after = text[at + name.len()..].chars().next().unwrap_or(' ');
        let number = text[..at].ends_with("SYS_") || text[..at].ends_with("__NR_");
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let listed = ["CALL(", "LOOK("].iter().any(|list| text[..at].ends_with(list)) && after == ',';
        listed || number && !word(after) || !word(before) && after == '('
    };
    text.match_indices(name).filter(called).count()
}

/// The groups of the conformance program, each with its text and that of the functions that it uses from its
/// file.
pub fn groups() -> Vec<(String, String)> {
    let mut groups = Vec::new();
    for path in files("tests/programs/conform", ".c") {
        let text = read(&path);
        let parts: Vec<&str> = text.split("\n}\n").collect();
        for (index, part) in parts.iter().enumerate() {
            let Some((_, rest)) = part.split_once("GROUP(") else { continue };
            let Some((head, body)) = rest.split_once(')') else { continue };
            let name = head.replace(", ", ".");
            let mut whole = body.to_owned();
            // Helpers precede the groups that use them.
            for helper in parts[..index].iter().rev().filter(|part| !part.contains("GROUP(")) {
                let defined = helper.lines().find(|line| line.starts_with("static") && line.contains('('));
                let helper_name = defined.and_then(|line| line.split('(').next()?.rsplit([' ', '*']).next());
                if helper_name.is_some_and(|name| makes(&whole, name) || whole.contains(name)) {
                    whole.push_str(helper);
                }
            }
            groups.push((name, whole));
        }
    }
    groups
}

/// The name of a file without its ending.
pub fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
