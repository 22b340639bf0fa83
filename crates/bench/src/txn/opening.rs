//! Opening a heap that was closed: mapped copy on write, and read and verified; and the first allocation.

use super::context::TxnBench;
use super::place::Folder;
use crate::report::report::{FigureUnit, OURS};
use anyhow::ensure;
use mangrove_sys::Reservation;
use mangrove_txn::{Create, HeapOptions, Latency, Medium, Start};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

pub(super) const OPENING: &str = "opening";

/// Large blocks fill the heap; each has small ones beside it.
const BLOCK_BYTES: usize = 64 << 10;
const SMALL_BYTES: usize = 48;
const SMALL_EACH: usize = 16;
/// Blocks of one transaction.
const BATCH: usize = 16;

fn options(medium: Medium, bytes: u64) -> HeapOptions {
    let capacity = bytes * 2 + (64 << 20);
    HeapOptions::new().create(Create::IfMissing).medium(medium).capacity(capacity)
}

/// A closed heap that holds about so many bytes.
fn make(path: &Path, medium: Medium, bytes: usize) -> anyhow::Result<()> {
    let heap = options(medium, bytes as u64).open(path)?;
    let mut block = vec![0u8; BLOCK_BYTES];
    for batch in 0..bytes.div_ceil(BLOCK_BYTES * BATCH) {
        heap.transaction(|tx| {
            for number in 0..BATCH {
                // No two blocks are the same, and none is of zeros.
                block[..8].copy_from_slice(&((batch * BATCH + number + 1) as u64).to_le_bytes());
                block[8..].fill(number as u8 + 1);
                let at = tx.alloc_bytes(BLOCK_BYTES, 16)?;
                tx.write_bytes(at, &block)?;
                for _ in 0..SMALL_EACH {
                    let small = tx.alloc_bytes(SMALL_BYTES, 16)?;
                    tx.write_bytes(small, &block[..SMALL_BYTES])?;
                }
            }
            Ok(())
        })?;
    }
    Ok(heap.close()?)
}

/// Milliseconds of opening and of the first allocation.
fn open(path: &Path, medium: Medium, bytes: usize, start: Start) -> anyhow::Result<[f64; 2]> {
    let begun = Instant::now();
    let heap = options(medium, bytes as u64).start(start).open(path)?;
    let opened = begun.elapsed();
    let begun = Instant::now();
    let block = heap.transaction(|tx| tx.alloc(1u64))?;
    let allocated = begun.elapsed();
    ensure!(!heap.was_created(), "the heap was made anew");
    heap.transaction(|tx| tx.free(block))?;
    heap.close()?;
    Ok([opened, allocated].map(|time| time.as_secs_f64() * 1e3))
}

/// Milliseconds of copying so many bytes on one thread, to memory that is used already, and to memory that the system
/// has yet to give. A read start cannot beat the second by more than the number of CPUs.
fn copy(bytes: usize) -> anyhow::Result<[f64; 2]> {
    let (from, mut used) = (vec![1u8; bytes], vec![2u8; bytes]);
    let begun = Instant::now();
    black_box(&mut used).copy_from_slice(black_box(&from));
    let to_used = begun.elapsed();
    drop(used);
    let fresh = Reservation::anonymous(bytes)?;
    fresh.advise_huge(0, bytes);
    let begun = Instant::now();
    // SAFETY: as many bytes, which nothing else refers to.
    unsafe { fresh.base().as_ptr().copy_from_nonoverlapping(from.as_ptr(), bytes) };
    Ok([to_used, begun.elapsed()].map(|time| time.as_secs_f64() * 1e3))
}

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let bytes = if b.args.run.quick { 4 << 20 } else { b.args.heap_mib << 20 };
    let held = format!("{} MiB", bytes >> 20);
    for (medium, name) in [(Medium::Emulated(Latency::new(0, 0)), "ADR"), (Medium::File, "file")] {
        b.progress.step(name);
        let folder = Folder::new(&b.args.dir)?;
        make(folder.path(), medium, bytes)?;
        for (start, how) in [(Start::CopyOnWrite, "copy on write"), (Start::Read, "read and verified")] {
            let [opened, allocated] = open(folder.path(), medium, bytes, start)?;
            let mut add = |what: &str, value| {
                b.add(
                    OPENING,
                    name,
                    &held,
                    &format!("{how}: {what}"),
                    0,
                    OURS,
                    FigureUnit::Milliseconds,
                    value,
                );
            };
            add("opening", opened);
            add("first allocation", allocated);
        }
    }
    let [used, fresh] = copy(bytes)?;
    for (what, floor) in [("memcpy on one thread", used), ("memcpy to fresh memory on one thread", fresh)] {
        b.add(OPENING, "", &held, what, 0, "floor", FigureUnit::Milliseconds, floor);
    }
    Ok(())
}
