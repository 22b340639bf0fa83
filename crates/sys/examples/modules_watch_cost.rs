//! What a look for loaded and unloaded modules costs when there are none: durable applications take one before each
//! batch. `cargo run --release -p mangrove-sys --example modules_watch_cost`.

use mangrove_sys::ModulesWatch;
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let watch = ModulesWatch::begin();
    for _ in 0..5 {
        let begun = Instant::now();
        for _ in 0..1_000_000 {
            assert!(!black_box(&watch).has_changed());
        }
        println!("{:?} a thousand", begun.elapsed() / 1000);
    }
}
