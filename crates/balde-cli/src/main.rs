//! The binary `balde`: arguments, files, wiring. No rule about limits.

fn main() {
    println!("balde {}", env!("CARGO_PKG_VERSION"));
}
