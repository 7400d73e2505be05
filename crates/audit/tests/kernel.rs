//! The audit of the kernel's own calls, which are known: libc makes one system call for each.

use lp_audit::{CALLS, Descriptors, Ground, Probe};

fn syscalls_of(call: &str) -> usize {
    match call {
        "open_close" | "host_open_close" | "rename" | "getdents" => 2,
        "create_unlink" | "unlink_open" | "rename_over" => 3,
        _ => 1,
    }
}

#[test]
fn each_call_makes_its_system_calls_and_no_others() {
    let probe = Probe::new(Ground::Directory(std::env::temp_dir()), Descriptors::Own).unwrap();
    for call in CALLS {
        let audit = probe.audit(call).unwrap();
        assert_eq!(audit.count.syscalls.len(), syscalls_of(call), "{call}: {:?}", audit.count.syscalls);
        assert!(audit.is_steady(), "{call}: {:?}", audit.totals);
        assert!(audit.count.total() > audit.count.syscalls.len(), "{call}");
        assert!(audit.count.lines_read.is_empty() && audit.count.lines_written.is_empty(), "{call}");
    }
}

#[test]
fn the_number_of_the_system_call_is_seen() {
    let probe = Probe::new(Ground::Directory(std::env::temp_dir()), Descriptors::Own).unwrap();
    let [seek, read] = probe.audit_pair("lseek", "pread_1").unwrap();
    assert_eq!((seek.count.syscalls, read.count.syscalls), (vec![8], vec![17]));
}

#[test]
fn a_call_that_is_not_known_is_an_error() {
    let probe = Probe::new(Ground::Directory(std::env::temp_dir()), Descriptors::Own).unwrap();
    let error = probe.audit("nosuch").unwrap_err().to_string();
    assert!(error.contains("nosuch"), "{error}");
}
