//! What a flush costs in the log: a golden table. `BLESS=1` prints the new one.

use mangrove_pool::{Create, Medium, PoolOptions};
use std::fmt::Write;

/// Flushes (offset, length) of one drain; log bytes up to the end of the last record; bytes written to
/// the disk; durable writes.
const GOLDEN: &str = "\
8 B at 0: 50 of log, 512 written, 1 sync
8 B at 16384: 52 of log, 512 written, 1 sync
64 B at 1000000: 108 of log, 512 written, 1 sync
8 B at 0, 8 B at 64: 60 of log, 512 written, 1 sync
64 B at 0, 64 B at 4096, 100 B at 8192: 276 of log, 512 written, 1 sync
460 B at 128: 504 of log, 512 written, 1 sync
470 B at 128: 514 of log, 1024 written, 1 sync
4096 B at 4096: 4140 of log, 4608 written, 1 sync
300000 B at 0: 300578 of log, 301056 written, 1 sync
no flush: 0 of log, 0 written, 0 sync
";

#[test]
fn a_flush_costs_what_the_table_says() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let pool = PoolOptions::new()
        .create(Create::New)
        .medium(Medium::File)
        .capacity(4 << 20)
        .log_bytes(1 << 20)
        .log_bytes_first(1 << 20)
        .background(false)
        .open(dir.path().join("p"))
        .unwrap();
    let region = pool.region();
    region.grow(4 << 20).unwrap();
    let cases: &[&[(u64, usize)]] = &[
        &[(0, 8)],
        &[(16384, 8)],
        &[(1_000_000, 64)],
        &[(0, 8), (64, 8)],
        &[(0, 64), (4096, 64), (8192, 100)],
        &[(128, 460)],
        &[(128, 470)],
        &[(4096, 4096)],
        &[(0, 300_000)],
        &[],
    ];
    let mut table = String::new();
    for flushes in cases {
        pool.checkpoint().unwrap();
        let before = pool.stat();
        for &(offset, len) in *flushes {
            region.flush(offset, len);
            region.fence();
        }
        let record_end = region.appended();
        region.drain().unwrap();
        let after = pool.stat();
        let names: Vec<_> = flushes.iter().map(|(offset, len)| format!("{len} B at {offset}")).collect();
        let name = if names.is_empty() { "no flush".to_owned() } else { names.join(", ") };
        let log = record_end - before.appended;
        let written = after.log_written - before.log_written;
        writeln!(table, "{name}: {log} of log, {written} written, {} sync", after.syncs - before.syncs)
            .unwrap();
    }
    if std::env::var_os("BLESS").is_some() {
        println!("{table}");
    }
    assert_eq!(table, GOLDEN);
}
