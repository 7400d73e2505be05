//! Builds the preload library and hands it to the command, which carries it inside.
//!
//! The library is a `no_std` cdylib with a profile of its own, so a nested cargo builds it, in a target
//! directory of its own below `OUT_DIR`. What the outer build was told about flags, wrappers and targets must
//! not reach it: a sanitizer or a coverage flag meant for the command would put calls to libc into the gate.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources of the preload library, relative to this crate: a change in one builds it anew.
const SOURCES: &[&str] = &["../preload", "../gate", "../vfs", "../region", "../abi"];

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    for source in SOURCES {
        for part in ["Cargo.toml", "build.rs", "order.ld", "rare.ld", "unwind.ld", "src"] {
            let path = here.join(source).join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    println!("cargo::rerun-if-changed=build.rs");

    let manifest = here.join("../preload/Cargo.toml");
    let target_dir = PathBuf::from(variable("OUT_DIR")).join("preload");
    let host = variable("HOST");
    // The crates it needs are the outer build's too, so they are on this machine already; the network is the
    // second choice, for a cargo home that was cleaned in between.
    if !build(&manifest, &target_dir, &host, Network::Offline)
        && !build(&manifest, &target_dir, &host, Network::Allowed)
    {
        panic!("building the preload library failed; cargo's own messages are above");
    }

    let built = target_dir.join(&host).join("gate").join("liblp_preload.so");
    let bytes = std::fs::read(&built).unwrap_or_else(|e| panic!("reading {}: {e}", built.display()));
    println!("cargo::rustc-env=LIGHTPATH_PRELOAD={}", built.display());
    println!("cargo::rustc-env=LIGHTPATH_PRELOAD_HASH={:032x}", fnv1a128(&bytes));
}

#[derive(Clone, Copy, PartialEq)]
enum Network {
    Offline,
    Allowed,
}

fn build(manifest: &Path, target_dir: &Path, host: &str, network: Network) -> bool {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.arg("build").args(["--profile", "gate", "--target", host]);
    cargo.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target_dir);
    if network == Network::Offline {
        cargo.arg("--offline");
    }
    for (name, _) in env::vars_os() {
        if belongs_to_the_outer_build(&name) {
            cargo.env_remove(&name);
        }
    }
    // Functions start on cache lines: what a call costs does not hang on where the last change of another one
    // put it. Nor on where in 32 bytes its branches are: Intel's processors from Skylake to Cascade Lake
    // decode those anew each time that cross or touch such a boundary's end (Intel, "Mitigations for Jump
    // Conditional Code Erratum", 2019). As advised there, up to five prefixes of instructions move the
    // branches, so that few instructions are executed for it alone.
    let options =
        ["-align-all-functions=6", "-x86-branches-within-32B-boundaries", "-x86-pad-max-prefix-size=5"];
    cargo.env("RUSTFLAGS", options.map(|option| format!("-Cllvm-args={option}")).join(" "));
    cargo.status().is_ok_and(|status| status.success())
}

fn belongs_to_the_outer_build(name: &OsStr) -> bool {
    const KEPT: &[&str] = &[
        "CARGO",
        "CARGO_HOME",
        "CARGO_MAKEFLAGS",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTRIES_",
        "CARGO_SOURCE_",
    ];
    let name = name.to_string_lossy();
    if name.starts_with("CARGO") {
        return !KEPT
            .iter()
            .any(|kept| if kept.ends_with('_') { name.starts_with(kept) } else { name == *kept });
    }
    name.starts_with("RUSTC_") || name == "RUSTFLAGS" || name == "CLIPPY_ARGS" || name == "TARGET"
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The 128-bit FNV-1a hash: names the extracted file. It tells builds apart; it is no defence, and needs to
/// be none.
fn fnv1a128(bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}
