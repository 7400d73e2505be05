//! Numbers, names and texts as people read them.

use std::path::{Display, Path};

/// A size in bytes with a unit, formatted like `du -h`: one decimal below ten, rounded up.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut scale = 1u64;
    while bytes / scale >= 1024 && unit + 1 < UNITS.len() {
        scale <<= 10;
        unit += 1;
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(scale));
    match tenths {
        0..100 if unit > 0 => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]),
        _ => format!("{} {}", tenths.div_ceil(10), UNITS[unit]),
    }
}

/// A number with its digits grouped by three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and what it counts.
pub(crate) fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// `text` with a question mark for each control character.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A path below a directory; that of the directory itself is empty.
pub(crate) fn below(path: &Path) -> Display<'_> {
    if path.as_os_str().is_empty() { Path::new(".").display() } else { path.display() }
}

/// The name of a user, or the number without one.
pub(crate) fn user(uid: u32) -> String {
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    };
    known.lines().find_map(of).unwrap_or_else(|| format!("user {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_never_say_less_than_there_is() {
        let sizes = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1025, "1.1 KiB"),
            (10 << 10, "10 KiB"),
            (10_241, "11 KiB"),
            (3 << 30, "3.0 GiB"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(human(bytes), text);
        }
    }
    #[test]
    fn digits_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_048_576, "1,048,576")] {
            assert_eq!(grouped(number), text);
        }
    }
}
