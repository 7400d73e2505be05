//! [`Size`]: the argument of `--size`.

use std::str::FromStr;

/// The largest file system in bytes: one mapping of the region must fit the address space with room to spare.
const MOST: u64 = 1 << 46;
/// The smallest, in bytes.
const LEAST: u64 = 1 << 20;

/// A size limit, written as in tmpfs(5) and coreutils: bytes, a number with a unit, or a percentage of
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the machine's memory.
    Percent(u64),
}

impl Size {
    /// Half of the memory, as in tmpfs.
    pub(crate) const DEFAULT: Size = Size::Percent(50);

    /// The limit in bytes on a machine with `memory` bytes, in whole pages.
    pub(crate) fn bytes(self, memory: u64) -> u64 {
        let exact = match self {
            Size::Bytes(bytes) => bytes,
            Size::Percent(percent) => (u128::from(memory) * u128::from(percent) / 100) as u64,
        };
        exact.clamp(LEAST, MOST).next_multiple_of(4096)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str =
            "use bytes (1048576), a number with a unit (512M, 2GiB, 10GB) or a percentage of memory (50%)";
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(FORMS.to_owned());
        }
        let number: u64 = number.parse().map_err(|_| "too large".to_owned())?;
        if unit == "%" {
            return match number {
                1..=100 => Ok(Size::Percent(number)),
                _ => Err("a percentage of memory must be from 1% to 100%".to_owned()),
            };
        }
        let scale = unit_bytes(unit).ok_or_else(|| FORMS.to_owned())?;
        let bytes = number.checked_mul(scale).filter(|bytes| *bytes <= MOST);
        let bytes = bytes.ok_or_else(|| "too large: the maximum is 64T".to_owned())?;
        if bytes < LEAST {
            return Err("too small: the minimum is 1M".to_owned());
        }
        Ok(Size::Bytes(bytes))
    }
}

/// Bytes of a unit: `K` and `KiB` are 1024, `KB` is 1000, as in coreutils; lower case as in tmpfs.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let power = 1 + "KMGTPE".find(unit.get(..1)?)? as u32;
    match &unit[1..] {
        "" | "IB" => 1024u64.checked_pow(power),
        "B" => 1000u64.checked_pow(power),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_in_tmpfs_and_coreutils() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("1024K", 1 << 20),
            ("2m", 2 << 20),
            ("2MiB", 2 << 20),
            ("2MB", 2_000_000),
            ("3g", 3 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size::Bytes(bytes)), "{text}");
        }
        assert_eq!("25%".parse(), Ok(Size::Percent(25)));
        assert_eq!("25%".parse::<Size>().unwrap().bytes(8 << 30), 2 << 30);
    }

    #[test]
    fn what_is_no_size_says_what_to_write() {
        for text in ["", "x", "K", "-1", "1.5G", "10X", "1 G", "0x10", "1KiBs", "50%%", "é"] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.starts_with("use bytes"), "{text}: {error}");
        }
        assert!("0".parse::<Size>().unwrap_err().contains("too small"));
        assert!("4095".parse::<Size>().unwrap_err().contains("too small"));
        assert!("16E".parse::<Size>().unwrap_err().contains("too large"));
        assert!("99999999999999999999999".parse::<Size>().unwrap_err().contains("too large"));
        assert!("0%".parse::<Size>().unwrap_err().contains("1%"));
        assert!("101%".parse::<Size>().unwrap_err().contains("100%"));
    }

    #[test]
    fn sizes_are_whole_pages() {
        assert_eq!("1048577".parse::<Size>().unwrap().bytes(0), (1 << 20) + 4096);
    }
}
