//! Known damage to the chains of lanes, what goes with them, shared content, and the header: the checker names
//! each, and a repair mends it.

use lp_abi::Fd;
use lp_fsck::Severity;
use lp_region::custody::{CLAIMED, HUSK, LISTED};
use lp_region::lane::Lane;
use lp_region::records::{Inode, OpenFile, inode_flags};
use lp_region::slab::{Retired, Slot};
use lp_region::sync::{AtomicU32, Ordering::Relaxed};
use lp_region::{InodeId, InodeRef, LaneId, PageId, ProcessId, Region};

use crate::mutate::Image;

/// What is damaged, and what the checker says of it.
struct Damage {
    what: &'static str,
    severity: Severity,
    finding: &'static str,
    apply: fn(Region<'static>),
}

const DAMAGES: [Damage; 16] = [
    Damage {
        what: "a chain that leads past the slab",
        severity: Severity::Structure,
        finding: "past the last",
        apply: |region| first::<OpenFile>(region).link().store(0x7fff_ffff, Relaxed),
    },
    Damage {
        what: "a ring",
        severity: Severity::Structure,
        finding: "a second time",
        apply: |region| first::<Inode>(region).link().store(head::<Inode>(region), Relaxed),
    },
    Damage {
        what: "a record that another lane keeps",
        severity: Severity::Inconsistent,
        finding: "which it does not keep",
        apply: |region| set::<Inode>(region, |word| word ^ 1 << 5),
    },
    Damage {
        what: "a record in a chain that is not listed",
        severity: Severity::Inconsistent,
        finding: "which it does not keep",
        apply: |region| set::<OpenFile>(region, |word| word & !LISTED),
    },
    Damage {
        what: "listed records without their chain",
        severity: Severity::Inconsistent,
        finding: "is not in its chain",
        apply: |region| lane::<Inode>(region).chains[Inode::SLAB].store(0, Relaxed),
    },
    Damage {
        what: "a husk with content",
        severity: Severity::Inconsistent,
        finding: "is freed and has content",
        apply: |region| set::<OpenFile>(region, |word| word | HUSK),
    },
    Damage {
        what: "a claim that nobody makes",
        severity: Severity::Inconsistent,
        finding: "which does not free it",
        apply: |region| set::<Inode>(region, |word| word | CLAIMED | 9 << 18),
    },
    Damage {
        what: "a free slot in custody",
        severity: Severity::Inconsistent,
        finding: "is free and in custody",
        apply: |region| {
            let free = region.header().slabs[Inode::SLAB].last() + 1;
            word_of(region.slot::<Inode>(free)).store(LISTED, Relaxed);
        },
    },
    Damage {
        what: "a claim past the slab",
        severity: Severity::Structure,
        finding: "in hand, past the last",
        apply: |region| lane::<Inode>(region).claims[Inode::SLAB].store(0x7fff_ffff, Relaxed),
    },
    Damage {
        what: "content of an inode that is no common one",
        severity: Severity::Structure,
        finding: "which is no common one",
        apply: |region| sharing(region, inode_flags::SHARES).tail.store(1, Relaxed),
    },
    Damage {
        what: "another map than that of the common inode",
        severity: Severity::Structure,
        finding: "whose content it has",
        apply: |region| sharing(region, inode_flags::SHARES).map.store(0, Relaxed),
    },
    Damage {
        what: "a borrowed page at another place",
        severity: Severity::Structure,
        finding: "which was taken for another place",
        apply: |region| {
            let inode = sharing(region, inode_flags::BORROWS);
            let words = region.page_words(PageId(inode.map.load(Relaxed) as u32));
            words[2].store(words[3].load(Relaxed), Relaxed);
        },
    },
    Damage {
        what: "a file that has the content of another and borrows it",
        severity: Severity::Structure,
        finding: "and borrows it",
        apply: |region| {
            let flags = &sharing(region, inode_flags::BORROWS).flags;
            flags.store(flags.load(Relaxed) | inode_flags::SHARES, Relaxed);
        },
    },
    Damage {
        what: "a count of files that share content",
        severity: Severity::Inconsistent,
        finding: "its count says 9",
        apply: |region| {
            let common = InodeRef::from_word(sharing(region, inode_flags::SHARES).tail.load(Relaxed));
            region.members(common.id).reset(9);
        },
    },
    Damage {
        what: "a wait for what is no lock",
        severity: Severity::Structure,
        finding: "where none is",
        apply: |region| lane::<Inode>(region).waits_for.store(64, Relaxed),
    },
    Damage {
        what: "more mounts than there can be",
        severity: Severity::Structure,
        finding: "4294967295 mounts of at most",
        apply: |region| region.header().mount_limit.store(u32::MAX, Relaxed),
    },
];

/// Applies each to a copy of the template.
pub fn known(image: &Image) {
    for damage in &DAMAGES {
        let fd = crate::memory();
        image.put(fd);
        let region = Region::open(Fd::new(fd)).expect("the template");
        (damage.apply)(region);
        let report = lp_fsck::check(region, ProcessId::NONE);
        let names = |found: &lp_fsck::Finding| {
            found.severity == damage.severity && found.what.contains(damage.finding)
        };
        assert!(report.findings.iter().any(names), "{} is not found: {report}", damage.what);
        let repaired = lp_fsck::repair(region).expect("a repair");
        assert!(repaired.after.is_sound(), "{} is not mended: {}", damage.what, repaired.after);
        // SAFETY: nothing uses the region any more, and the descriptors are ours.
        unsafe {
            region.unmap();
            libc::close(fd);
            libc::close(region.life_fd().raw());
        }
    }
}

/// The lane of the template that has something in its chain.
fn lane<T: Retired>(region: Region<'static>) -> &'static Lane {
    let lanes = (1..region.header().lane_limit.load(Relaxed)).map(|index| region.lane(LaneId(index)));
    lanes.into_iter().find(|lane| lane.chains[T::SLAB].load(Relaxed) != 0).expect("a chain")
}

/// A file of the template with a flag of those that share content.
fn sharing(region: Region<'static>, flag: u32) -> &'static Inode {
    let all = (1..Inode::SLOTS as u32).map(|index| region.inode(InodeId(index)));
    all.into_iter().find(|inode| inode.flags.load(Relaxed) & flag != 0).expect("a shared file")
}

fn head<T: Retired>(region: Region<'static>) -> u32 {
    lane::<T>(region).chains[T::SLAB].load(Relaxed)
}

/// The first record of that chain.
fn first<T: Retired + 'static>(region: Region<'static>) -> &'static T {
    region.slot(head::<T>(region))
}

/// Changes that record's custody.
fn set<T: Retired + 'static>(region: Region<'static>, change: fn(u32) -> u32) {
    let word = word_of(first::<T>(region));
    word.store(change(word.load(Relaxed)), Relaxed);
}

fn word_of<T: Retired>(record: &T) -> &AtomicU32 {
    let word: *const _ = record.custody();
    // SAFETY: custody is one atomic word.
    unsafe { &*word.cast() }
}
