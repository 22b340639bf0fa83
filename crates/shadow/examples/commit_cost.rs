//! The time of a commit for its caller, compared with two copies of the same bytes.

use mangrove_shadow::{AddressChoice, Create, Latency, Medium, Options};
use std::time::Instant;

fn main() -> mangrove_shadow::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let file = std::env::args().nth(2).is_some_and(|a| a == "file");
    let path = std::path::Path::new(&folder).join(format!("mangrove-commit-cost-{}", std::process::id()));
    let medium = if file { Medium::File } else { Medium::Emulated(Latency::default()) };
    let options = Options::new().create(Create::New).medium(medium).capacity(1 << 30);
    let shadow = options.log_bytes(64 << 20).address(AddressChoice::Chosen).open(&path)?;
    shadow.grow(64 << 20)?;
    let base = shadow.base() as usize;
    // SAFETY: inside what was grown, and no other thread uses it.
    unsafe { std::ptr::write_bytes(shadow.base(), 1, 64 << 20) };
    let mut aside = vec![0u8; 1 << 20];
    // First a whole lap: rings and durable copy are then mapped.
    for _ in 0..200 {
        shadow.commit(0, &[(base, 1 << 20)])?;
    }
    shadow.checkpoint()?;
    println!("{:>8} {:>10} {:>10} {:>12} {:>6}", "bytes", "ns/commit", "best", "2 memcpy ns", "ratio");
    for len in [8usize, 64, 100, 256, 1 << 10, 4 << 10, 16 << 10, 100 << 10, 1 << 20] {
        let rounds = (200_000_000 / (len + 2000)).min(100_000);
        // In the cache, like bytes that a program has just written.
        let places = 16;
        let (mut total, mut best) = (0.0f64, f64::MAX);
        for part in 0..10 {
            let begun = Instant::now();
            for n in 0..rounds / 10 {
                let at = base + (n + part) % places * len.next_multiple_of(64).max(4096);
                shadow.commit(0, &[(at, len)])?;
            }
            let ns = begun.elapsed().as_nanos() as f64 / (rounds / 10) as f64;
            total += ns;
            best = best.min(ns);
            shadow.checkpoint()?;
        }
        let begun = Instant::now();
        for n in 0..rounds {
            let at = (base + n % places * len.next_multiple_of(64).max(4096)) as *const u8;
            for _ in 0..2 {
                // SAFETY: inside what was grown, and inside the buffer.
                unsafe { std::ptr::copy_nonoverlapping(at, aside.as_mut_ptr(), len) };
                std::hint::black_box(&mut aside);
            }
        }
        let copies = begun.elapsed().as_nanos() as f64 / rounds as f64;
        println!("{len:>8} {:>10.0} {best:>10.0} {copies:>12.0} {:>6.1}", total / 10.0, best / copies);
    }
    let stat = shadow.stat();
    println!(
        "{} units, {} waits for space, {} batches, image {} MB, log {} MB",
        stat.units,
        stat.full_waits,
        stat.batches,
        stat.image_written >> 20,
        stat.log_written >> 20
    );
    shadow.close()?;
    std::fs::remove_dir_all(&path).map_err(|e| mangrove_shadow::Error::Unsupported { what: e.to_string() })
}
