//! Names in slots that are not beside the inodes: a region that has had more than four million names.

use std::ffi::CString;

use lp_abi::Fd;
use lp_region::layout::DIRENT_SLAB;
use lp_region::records::Dirent;
use lp_region::slab::Slot;
use lp_vfs::{boot, mkdir};

mod setup;
use setup::{death, fsck, lent};

#[test]
fn the_checker_and_a_rebuild_know_them() {
    let task = death::task();
    let near = DIRENT_SLAB.all().len() / size_of::<Dirent>();
    // As if all that are near had been handed out.
    task.region.header().slabs[Dirent::SLAB].fresh.reset(near as u64 - 1);
    let names: Vec<CString> = (0..100).map(|n| CString::new(format!("/light/{n}")).unwrap()).collect();
    for name in &names {
        mkdir::mkdirat(&task, Fd::CWD, lent::path(name), 0o755).expect("a directory");
    }
    let root = boot::root(&task, 0).expect("root").id;
    let before = fsck::check(&task, root);
    assert_eq!(before.tree.len(), names.len());
    boot::exit(&task);
    lp_fsck::rebuild(task.region).expect("a rebuild");
    assert_eq!(lp_fsck::tree(task.region, root), before.tree);
}
