//! Floors: what no transaction of one line, and no log, can beat.

use super::context::TxnBench;
use crate::report::report::FigureUnit;
use crate::sections::floors::persist_cost;
use std::hint::black_box;
use std::time::Instant;

/// Bytes of a log unit of so many swaps: 24, and 16 for each of two words a swap.
fn unit_bytes(swaps: u32) -> usize {
    24 + 32 * swaps as usize
}

pub(super) const FLOORS: &str = "floors";
/// F of the goals.
pub(super) const LINE: &str = "F: one line stored, flushed, fenced, lines in order";
pub(super) const FLOOR: &str = "floor";

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    b.progress.step(FLOORS);
    for (line, ns) in measure(b.args.run.quick, &b.args.swaps.clone())? {
        b.add(FLOORS, "", "", &line, 1, FLOOR, FigureUnit::Nanoseconds, ns);
    }
    Ok(())
}

/// Lines of the table, with nanoseconds.
fn measure(quick: bool, swaps: &[u32]) -> anyhow::Result<Vec<(String, f64)>> {
    let repeats: u64 = if quick { 1_000 } else { 1_000_000 };
    let [near, far] = persist_cost(repeats)?;
    let mut lines = vec![
        (LINE.to_owned(), near),
        ("F: one line stored, flushed, fenced, lines far apart".to_owned(), far),
    ];
    for &count in swaps {
        let bytes = unit_bytes(count);
        let (from, mut to) = (vec![1u8; bytes], vec![0u8; 1 << 20]);
        let begun = Instant::now();
        for i in 0..repeats as usize {
            let at = i * bytes.next_multiple_of(64) % (to.len() - bytes);
            to[at..at + bytes].copy_from_slice(black_box(&from));
        }
        black_box(&to);
        let each = begun.elapsed().as_secs_f64() * 1e9 / repeats as f64;
        lines.push((format!("memcpy of {bytes} bytes, the log unit of {count} swaps"), each));
    }
    Ok(lines)
}
