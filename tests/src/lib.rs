//! The suites that hold Lightpath against the kernel.
//!
//! Everything here is a *session*: a shell script, or a program of `tests/programs`, that is run twice in a
//! directory of the same name, first on a tmpfs of the host and then on a Lightpath mount (`lightpath run
//! --at DIR`). Output, exit status and the tree that is left must be the same: Linux is the specification, so
//! no expected results are written down anywhere.
//!
//! - [`door`]: the two file systems a session is run on.
//! - [`session`]: one session and its two runs. [`outcome`]: what a run left, and the comparison.
//! - [`suite`]: reads `tests/sessions/NAME.sh` and hands its sessions to the test runner.
//! - [`binary`]: the `lightpath` under test. [`compile`]: the C programs of `tests/programs`.
//! - [`host`]: commands that see the host read-only. [`copy`]: copies of its trees.
//! - [`process`]: children with a time limit, and what they left running. [`program`]: what must be
//!   installed.
//! - [`sources`]: which calls the tests make, for the documents that are made from them.
//!
//! With `LP_TESTS_DOOR=tmpfs` both runs are made on tmpfs: a session that differs from itself is not a test.
//! With `LP_TESTS_DOOR=over` the second is made over an empty directory of the host (`lightpath run --over`).
#![forbid(unsafe_code)]

pub mod binary;
pub mod compile;
pub mod copy;
pub mod door;
pub mod host;
pub mod outcome;
pub mod process;
pub mod program;
pub mod session;
pub mod sources;
pub mod suite;
