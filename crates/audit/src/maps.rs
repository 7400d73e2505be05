//! The mappings of a traced process: proc_pid_maps(5).

use anyhow::{Context, Result};
use nix::unistd::Pid;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Offset in the mapped file, in bytes.
    pub(crate) offset: u64,
    /// The file's path, or a name such as "[stack]"; empty for anonymous memory.
    pub(crate) name: String,
}

/// A process's mappings, in order of address.
#[derive(Debug, Default)]
pub(crate) struct Maps(Vec<Mapping>);

impl Maps {
    pub(crate) fn of(pid: Pid) -> Result<Self> {
        let file = format!("/proc/{pid}/maps");
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        Ok(Self(text.lines().filter_map(parse).collect()))
    }

    /// The mapping that holds `address`.
    pub(crate) fn at(&self, address: u64) -> Option<&Mapping> {
        let index = self.0.partition_point(|mapping| mapping.end <= address);
        self.0.get(index).filter(|mapping| mapping.start <= address)
    }
}

/// `start-end perms offset dev inode   name`
fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = fields.nth(1)?;
    let name = fields.nth(2).unwrap_or("").trim_start();
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, name: name.to_owned() })
}

impl Mapping {
    /// Whether this maps the region: the memfd that a run creates.
    pub(crate) fn is_region(&self) -> bool {
        self.name.starts_with("/memfd:lightpath")
    }

    /// A short name: the file's last component, or "[anonymous]".
    pub(crate) fn short_name(&self) -> &str {
        match self.name.rsplit('/').next() {
            Some("") | None => "[anonymous]",
            Some(last) => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_and_without_a_name() {
        let named = parse("7f10-7f20 r-xp 00001000 fe:00 1234   /usr/lib/a b.so").unwrap();
        assert_eq!(
            (named.start, named.end, named.offset, named.short_name()),
            (0x7f10, 0x7f20, 0x1000, "a b.so")
        );
        let anonymous = parse("7f20-7f30 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(anonymous.short_name(), "[anonymous]");
        let maps = Maps(vec![named, anonymous]);
        assert_eq!(maps.at(0x7f1f).map(|mapping| mapping.end), Some(0x7f20));
        assert_eq!(maps.at(0x7f20).map(|mapping| mapping.end), Some(0x7f30));
        assert_eq!((maps.at(0x7f0f), maps.at(0x7f30)), (None, None));
    }
}
