//! Prints the cost of the file medium beside the raw speed of the disk that it runs on.
//!
//! `cargo run --release -p mangrove-pool --example group_commit -- [DIR]`

use mangrove_pool::{Create, Durability, Medium, OpenHow, OsStorage, Pool, PoolOptions, Storage, here};
use std::path::Path;
use std::time::Instant;

const RECORD_BYTES: usize = 170;

fn open(path: &Path, durability: Durability) -> Pool {
    let options = PoolOptions::new().create(Create::IfMissing).medium(Medium::File);
    let pool = options.durability(durability).open(path).expect("open the pool");
    pool.region().grow(256 << 20).expect("grow");
    pool
}

/// Rate of 512-byte durable writes to the bare disk, per second, and the rate of one thread that flushes and
/// drains; in turns of a few writes each, so that other work of the machine slows both alike.
fn floor_and_one_thread(dir: &Path) -> (f64, f64) {
    let pool = open(&dir.join("one"), Durability::Sync);
    let path = dir.join("floor");
    let file = OsStorage.open(&path, OpenHow::Create, here()).expect("create");
    file.write_at(0, &vec![0u8; 8 << 20], here()).expect("fill");
    file.sync(here()).expect("sync");
    let memory = vec![7u8; 1024 + 512];
    let aligned = memory.as_ptr().align_offset(512);
    let (mut raw, mut ours, mut turns) = (0.0, 0.0, 0u64);
    let per_turn = 20;
    while raw + ours < 5.0 {
        let begun = Instant::now();
        for i in turns * per_turn..(turns + 1) * per_turn {
            file.write_durable(i * 512 % (8 << 20), &memory[aligned..aligned + 512], here()).expect("write");
        }
        raw += begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        for i in turns * per_turn..(turns + 1) * per_turn {
            pool.region().flush(scattered(i), RECORD_BYTES);
            pool.region().drain().expect("durable");
        }
        ours += begun.elapsed().as_secs_f64();
        turns += 1;
    }
    OsStorage.remove(&path, here()).expect("remove");
    ((turns * per_turn) as f64 / raw, (turns * per_turn) as f64 / ours)
}

fn scattered(i: u64) -> u64 {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % ((128 << 20) - RECORD_BYTES as u64)
}

fn sync_rate(dir: &Path, threads: u64, seconds: f64) -> (f64, f64) {
    let path = dir.join(format!("sync{threads}"));
    let pool = open(&path, Durability::Sync);
    let before = pool.stat();
    let begun = Instant::now();
    let total: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let region = pool.region();
                scope.spawn(move || {
                    let mut count = 0;
                    while begun.elapsed().as_secs_f64() < seconds {
                        region.flush(scattered(thread << 32 | count), RECORD_BYTES);
                        region.drain().expect("durable");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("worker")).sum()
    });
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    let after = pool.stat();
    pool.close().expect("close");
    (rate, (after.log_written - before.log_written) as f64 / total as f64)
}

/// CPU time of this thread: on a machine with other work, it is more precise than the clock.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn append_ns(dir: &Path, len: usize) -> f64 {
    let pool = open(&dir.join(format!("append{len}")), Durability::interval_ms(1000));
    let region = pool.region();
    // First a whole lap, so that the ring's memory is allocated; then less than starts the checkpointer.
    let lap = (64 << 20) / (len as u64 + 6);
    for i in 0..lap {
        region.flush(scattered(i), len);
    }
    pool.checkpoint().expect("checkpoint");
    let count = lap / 4;
    let begun = cpu_seconds();
    for i in 0..count {
        region.flush(i * 64 % (1 << 20), len);
    }
    (cpu_seconds() - begun) * 1e9 / count as f64
}

fn sustained(dir: &Path, count: u64) -> (f64, u64) {
    let pool = open(&dir.join("sustained"), Durability::interval_ms(100));
    let region = pool.region();
    let begun = Instant::now();
    for i in 0..count {
        region.flush(scattered(i), 64);
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    let checkpoints = pool.stat().checkpoints;
    pool.close().expect("close");
    (rate, checkpoints)
}

fn open_seconds(dir: &Path, mib: u64) -> (f64, f64) {
    let path = dir.join("image");
    let pool = open(&path, Durability::Sync);
    let region = pool.region();
    let block: Vec<u8> = (0..1 << 20).map(|i| (i * 31) as u8 | 1).collect();
    for i in 0..mib {
        region.write(i << 20, &block);
        region.flush(i << 20, 1 << 20);
    }
    region.drain().expect("durable");
    pool.close().expect("close");
    let begun = Instant::now();
    let pool = open(&path, Durability::Sync);
    let clean = begun.elapsed().as_secs_f64();
    for i in 0..200_000 {
        pool.region().flush(scattered(i), 64);
    }
    pool.region().drain().expect("durable");
    drop(pool);
    let begun = Instant::now();
    let pool = open(&path, Durability::Sync);
    let dirty = begun.elapsed().as_secs_f64();
    drop(pool);
    (clean, dirty)
}

fn main() {
    let dir = std::env::args()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("mangrove-group-commit"), Into::into);
    std::fs::create_dir_all(&dir).expect("make the directory");
    let (raw, one) = floor_and_one_thread(&dir);
    println!("raw durable 512 B writes           {raw:>12.0} /s");
    println!(" 1 thread,  flush {RECORD_BYTES} B + drain    {one:>12.0} /s   {:.2} of the floor", one / raw);
    for threads in [2, 8, 32] {
        let (rate, bytes) = sync_rate(&dir, threads, 2.0);
        println!(
            "{threads:>2} threads, flush {RECORD_BYTES} B + drain    {rate:>12.0} /s   {:.2} of the floor, {bytes:.0} log bytes each",
            rate / raw
        );
    }
    for len in [40, 64, 150] {
        println!("append of {len:>3} B                    {:>12.1} ns of CPU", append_ns(&dir, len));
    }
    let (rate, checkpoints) = sustained(&dir, 10_000_000);
    println!("10M appends of 64 B, interval      {rate:>12.0} /s   with {checkpoints} checkpoints");
    let (clean, dirty) = open_seconds(&dir, 150);
    println!("open 150 MiB, closed               {:>12.1} ms", clean * 1e3);
    println!("open 150 MiB, 200k records in log  {:>12.1} ms", dirty * 1e3);
    std::fs::remove_dir_all(&dir).expect("remove the directory");
}
