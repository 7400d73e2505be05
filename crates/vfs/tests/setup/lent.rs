//! Lends memory of a test to calls: `lp_abi::lent`, and strings that include their NUL.

use lp_abi::UserPtr;
pub use lp_abi::lent::*;

/// A path or a name that includes its NUL.
pub fn text(of: &str) -> UserPtr {
    assert!(of.ends_with('\0'));
    bytes(of).start()
}
