//! What the dynamic linker does by itself: where it looks for libraries, and which it must load before all
//! others.

use core::ffi::CStr;

/// Directories where the GNU loader looks for libraries by itself, or by the usual ld.so.conf.
pub const DEFAULTS: [&CStr; 8] = [
    c"/lib/x86_64-linux-gnu",
    c"/usr/lib/x86_64-linux-gnu",
    c"/lib64",
    c"/usr/lib64",
    c"/usr/local/lib",
    c"/usr/local/lib/x86_64-linux-gnu",
    c"/lib",
    c"/usr/lib",
];

/// Whether a library, given by its name or path, checks that it is the first one that the dynamic linker
/// loaded: the runtime of AddressSanitizer (`AsanCheckDynamicRTPrereqs` in LLVM's `compiler-rt/lib/asan`).
pub fn comes_first(library: &[u8]) -> bool {
    let name = library.rsplit(|byte| *byte == b'/').next().unwrap_or(library);
    [&b"libasan.so"[..], b"libclang_rt.asan"].iter().any(|start| name.starts_with(start))
}

/// The first library of an LD_PRELOAD (ld.so(8)); empty if there is none.
pub fn first_of(preload: &[u8]) -> &[u8] {
    preload.split(|byte| b": ".contains(byte)).find(|entry| !entry.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_known_by_name_and_path() {
        for (preload, first) in [
            (&b"libasan.so.8"[..], true),
            (b" :/usr/lib/gcc/x86_64-linux-gnu/12/libasan.so:/x.so", true),
            (b"/usr/lib/libclang_rt.asan-x86_64.so", true),
            (b"/libasan.so/x.so libasan.so.8", false),
            (b"", false),
        ] {
            assert_eq!(comes_first(first_of(preload)), first, "{}", preload.escape_ascii());
        }
    }
}
