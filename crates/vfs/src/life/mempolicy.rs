//! `mpol=` of a tmpfs: a policy of set_mempolicy(2) as text. Pages of a region are placed by the policies of
//! the threads that touch them, so it is only kept to be shown.

use lp_abi::linux::__NR_get_mempolicy;
use lp_abi::text::Writer;
use lp_region::sync::Ordering;

use crate::caller::task::Task;

/// Words of the node mask that get_mempolicy(2) fills in.
const WORDS: usize = 16;
/// `MPOL_F_MEMS_ALLOWED`.
const MEMS_ALLOWED: usize = 4;
/// Bits of [`Policy::to_bits`] for the mode.
const MODE_BITS: u32 = 7;
/// Bit for `=static`.
const STATIC: u32 = 8;
/// Bit for `=relative`.
const RELATIVE: u32 = 16;
/// The bits of [`Policy::to_bits`].
pub(crate) const BITS: u32 = MODE_BITS | STATIC | RELATIVE;

/// The kernel's policy_modes: a name at the place of its number.
const MODES: [&[u8]; 7] =
    [b"default", b"prefer", b"bind", b"interleave", b"local", b"prefer (many)", b"weighted interleave"];
const DEFAULT: u32 = 0;
const PREFER: u32 = 1;
const INTERLEAVE: u32 = 3;
const LOCAL: u32 = 4;
const WEIGHTED: u32 = 6;

/// A policy, like `struct mempolicy`; that of zeros is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Policy {
    mode: u32,
    flags: u32,
    nodes: u32,
}

impl Policy {
    /// The kernel's mpol_parse_str. `None` for a text that is no policy, or has nodes without memory.
    pub(crate) fn parse(task: &Task<'_>, text: &[u8]) -> Option<Policy> {
        // A list and a flag may stand in either order.
        let is_mark = |byte: &&u8| matches!(byte, b':' | b'=');
        let name = &text[..text.len() - text.iter().skip_while(|byte| !is_mark(byte)).count()];
        let behind = |mark, other| split(text, mark).1.map(|rest| split(rest, other).0);
        let list = behind(b':', b'=');
        let flags = behind(b'=', b':');
        let nodes = match list {
            Some(list) => nodes(list).filter(|nodes| nodes & !with_memory(task) == 0)?,
            None => 0,
        };
        let mode = MODES.iter().position(|mode| *mode == name)? as u32;
        if mode == DEFAULT {
            return list.is_none().then_some(Policy::default());
        }
        let flags = match flags {
            None => 0,
            Some(b"static") => STATIC,
            Some(b"relative") => RELATIVE,
            Some(_) => return None,
        };
        match (mode, list) {
            (PREFER | LOCAL, None) => (flags == 0).then_some(Policy { mode: LOCAL, flags, nodes }),
            (LOCAL, Some(_)) => None,
            (PREFER, Some(list)) if !list.iter().all(u8::is_ascii_digit) => None,
            (INTERLEAVE | WEIGHTED, None) => Some(Policy { mode, flags, nodes: with_memory(task) }),
            _ => (nodes != 0).then_some(Policy { mode, flags, nodes }),
        }
    }

    /// Whether it is none, which changes and shows nothing.
    pub(crate) fn is_default(self) -> bool {
        self.mode == DEFAULT
    }

    /// Mode and flags, and the nodes.
    pub(crate) fn to_bits(self) -> (u32, u32) {
        (self.mode | self.flags, self.nodes)
    }

    /// The reverse of [`Policy::to_bits`].
    pub(crate) fn from_bits(bits: u32, nodes: u32) -> Policy {
        Policy { mode: bits & MODE_BITS, flags: bits & (STATIC | RELATIVE), nodes }
    }

    /// Appends it as the kernel's mpol_to_str does.
    pub(crate) fn show(self, to: &mut Writer<'_>) {
        to.push(MODES.get(self.mode as usize).unwrap_or(&MODES[0]));
        match self.flags {
            STATIC => to.push(b"=static"),
            RELATIVE => to.push(b"=relative"),
            _ => {}
        }
        let is_set = |node: u32| node < u32::BITS && self.nodes & 1 << node != 0;
        let mut separator: &[u8] = b":";
        let mut node = 0;
        while node < u32::BITS {
            let first = node;
            while is_set(node) {
                node += 1;
            }
            if node > first {
                to.push(separator);
                to.push_decimal(first.into());
                separator = b",";
            }
            if node > first + 1 {
                to.push(b"-");
                to.push_decimal((node - 1).into());
            }
            node += 1;
        }
    }
}

/// What is before and behind the first `mark`.
fn split(text: &[u8], mark: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == mark) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// A list such as `0-2,5`, as a mask. Nodes from 32 on are none.
fn nodes(list: &[u8]) -> Option<u32> {
    let node = |text: &[u8]| lp_abi::text::number(text).filter(|node| *node < u32::BITS as usize);
    let mut mask = 0u32;
    for part in list.split(|byte| *byte == b',').filter(|part| !part.is_empty()) {
        let (first, last) = split(part, b'-');
        let first = node(first)?;
        let last = last.map_or(Some(first), node)?;
        if first > last {
            return None;
        }
        mask |= (first..=last).fold(0, |all, node| all | 1 << node);
    }
    Some(mask)
}

/// The nodes that the caller may have memory of.
fn with_memory(task: &Task<'_>) -> u32 {
    let mut mask = [0u64; WORDS];
    // Relaxed: changes only in its own process, which sees no call that it has not made.
    if task.process.limited.load(Ordering::Relaxed) == 0 {
        let bits = WORDS * u64::BITS as usize;
        // SAFETY: the kernel writes within the mask.
        let asked = unsafe {
            lp_abi::syscall!(__NR_get_mempolicy, 0usize, mask.as_mut_ptr(), bits, 0usize, MEMS_ALLOWED)
        };
        if asked.is_ok() {
            return mask[0] as u32;
        }
    }
    1
}
