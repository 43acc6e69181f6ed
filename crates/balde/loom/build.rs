//! Switches the memory store to loom's atomics. A flag for the whole build would do the same and
//! rebuild everything twice.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=balde_loom");
}
