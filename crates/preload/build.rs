//! How the preload library is linked: nothing that costs the dynamic linker time, nothing needed, nothing
//! exported but what it asks of auditors.

fn main() {
    for argument in [
        "-nostdlib",
        "-nostartfiles",
        "-Wl,--hash-style=gnu",
        "-Wl,--build-id=none",
        "-Wl,-Bsymbolic",
        "-Wl,-z,norelro",
        // One segment of code and constants, one of data: a mapping less for each.
        "-Wl,-z,noseparate-code",
        "-Wl,--no-rosegment",
        "-Wl,-z,max-page-size=4096",
        // The data starts with a page, and all of it fits one: a fault less.
        "-Wl,-z,separate-loadable-segments",
        // Before the initialisers of all other objects: they make file calls.
        "-Wl,-z,initfirst",
        "-Wl,-z,nodelete",
        "-Wl,-init,lp_init",
        // Where the kernel enters it when it starts a static program.
        "-Wl,-e,lp_standalone",
        "-Wl,--no-undefined",
        "-Wl,--eh-frame-hdr",
    ] {
        println!("cargo::rustc-link-arg-cdylib={argument}");
    }
    let here = std::path::PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap());
    for script in ["order.ld", "rare.ld", "unwind.ld"] {
        println!("cargo::rustc-link-arg-cdylib=-Wl,-T,{}", here.join(script).display());
        println!("cargo::rerun-if-changed={script}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
