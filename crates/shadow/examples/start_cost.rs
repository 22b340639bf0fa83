//! The time until a shadow of some size may be used: `start_cost DIRECTORY MIB [file]`.

use mangrove_shadow::{Create, Latency, Medium, Options, Start};
use std::time::Instant;

fn main() -> mangrove_shadow::Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| "/dev/shm".into());
    let mib: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(1024);
    let medium = match args.next().as_deref() {
        Some("file") => Medium::File,
        _ => Medium::Emulated(Latency::default()),
    };
    let path = std::path::Path::new(&folder).join(format!("mangrove-start-cost-{}", std::process::id()));
    let options = || Options::new().create(Create::IfMissing).medium(medium).capacity(64 << 30);
    let len = mib << 20;
    let shadow = options().open(&path)?;
    shadow.grow(len as u64)?;
    let base = shadow.base();
    let begun = Instant::now();
    const STEP: usize = 16 << 20;
    for at in (0..len).step_by(STEP) {
        for word in (at..(at + STEP).min(len)).step_by(8) {
            // SAFETY: inside what was grown, aligned, and no other thread uses it.
            unsafe { *base.add(word).cast::<u64>() = word as u64 | 1 };
        }
        shadow.commit(0, &[(base as usize + at, STEP.min(len - at))])?;
    }
    shadow.sync()?;
    println!("{mib} MiB written and committed in {:.2} s", begun.elapsed().as_secs_f64());
    shadow.close()?;
    for (name, start, close) in [
        ("read, closed before", Start::Read, true),
        ("copy on write, closed before", Start::CopyOnWrite, true),
        ("copy on write, not closed before", Start::CopyOnWrite, false),
        ("read, not closed before", Start::Read, false),
        ("read, not closed before", Start::Read, true),
    ] {
        let begun = Instant::now();
        let shadow = options().start(start).open(&path)?;
        let ready = begun.elapsed().as_secs_f64();
        let base = shadow.base();
        let at = len / 2 / 4096 * 4096;
        // SAFETY: inside what was grown.
        let word = unsafe { *base.add(at).cast::<u64>() };
        assert_eq!(word, at as u64 | 1);
        let ticket = shadow.commit(0, &[(base as usize + at, 8)])?;
        shadow.wait(ticket)?;
        let answered = begun.elapsed().as_secs_f64();
        println!(
            "{name:>34}: ready in {ready:.3} s ({:.1} GB/s), first commit at {answered:.3} s",
            len as f64 / ready / 1e9
        );
        if close { shadow.close()? } else { drop(shadow) }
    }
    std::fs::remove_dir_all(&path).map_err(|e| mangrove_shadow::Error::Unsupported { what: e.to_string() })
}
