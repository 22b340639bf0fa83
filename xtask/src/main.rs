//! The chores of this repository: `cargo xtask NAME`.
fn main() {}
