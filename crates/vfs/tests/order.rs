//! Locks taken out of order must be detected: debug builds, and `--features order`.

#![cfg(any(debug_assertions, feature = "order"))]

use lp_abi::linux::O_RDWR;
use lp_region::order::{self, Rank};
use lp_vfs::inode;

mod setup;
use setup::Fixture;

/// Two files' inodes, the lower number first.
fn two_files(fixture: &Fixture) -> [lp_region::InodeId; 2] {
    let mut ids = [0, 1].map(|_| fixture.inode_id(fixture.file(O_RDWR)));
    ids.sort();
    ids
}

#[test]
fn the_order_of_the_document_is_kept() {
    let fixture = Fixture::private(4 << 20);
    let [low, high] = two_files(&fixture);
    for _ in 0..3 {
        let _dir = inode::enter(&fixture.task, fixture.root());
        let _low = inode::lock(&fixture.task, low);
        let _high = inode::lock(&fixture.task, high);
    }
    // By try, any order is allowed, because nobody waits.
    let _high = inode::lock(&fixture.task, high);
    assert!(inode::lock_unless_held(&fixture.task, low).is_some());
    assert!(inode::lock_unless_held(&fixture.task, fixture.root()).is_some());
}

#[test]
#[should_panic(expected = "lock order: LockRef { rank: Directory")]
fn a_directory_after_a_file() {
    let fixture = Fixture::private(4 << 20);
    let _file = inode::lock(&fixture.task, two_files(&fixture)[0]);
    drop(inode::lock(&fixture.task, fixture.root()));
}

#[test]
#[should_panic(expected = "lock order: LockRef { rank: Inode")]
fn the_higher_of_two_files_first() {
    let fixture = Fixture::private(4 << 20);
    let [low, high] = two_files(&fixture);
    let _high = inode::lock(&fixture.task, high);
    drop(inode::lock(&fixture.task, low));
}

#[test]
#[should_panic(expected = "lock order")]
fn one_lock_twice() {
    let fixture = Fixture::private(4 << 20);
    let _root = inode::enter(&fixture.task, fixture.root());
    drop(inode::enter(&fixture.task, fixture.root()));
}

#[test]
#[should_panic(expected = "lock order: a wait")]
fn a_wait_for_others_with_a_lock_held() {
    let fixture = Fixture::private(4 << 20);
    let _file = inode::lock(&fixture.task, two_files(&fixture)[0]);
    order::idle(order::of(&fixture.task.lane.holding));
}

#[test]
#[should_panic(expected = "tests/order.rs")]
fn both_places_are_named() {
    let fixture = Fixture::private(4 << 20);
    let of = order::of(&fixture.task.lane.holding);
    order::took(of, order::what(Rank::Table, &fixture.task.process.table_lock));
    drop(inode::lock(&fixture.task, fixture.root()));
}
