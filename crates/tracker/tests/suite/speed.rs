//! How much slower a tracked call is: native and tracked runs alternate, and the median of their ratios counts.

use super::library::{Function, Library};
use mangrove_tracker::{Recompiler, Tracker, WriteSet};
use std::ffi::c_void;
use std::time::Instant;

/// A timed workload: calls of one function, each of `units` units of work.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) symbol: &'static str,
    pub(crate) arg: usize,
    pub(crate) calls: usize,
    pub(crate) units: usize,
    /// The most that the tracked run may take, as a multiple of native; 0: no goal.
    pub(crate) goal: f64,
    /// Called before every run, natively.
    pub(crate) prepare: Option<(&'static str, usize)>,
}

const fn load(
    name: &'static str,
    symbol: &'static str,
    arg: usize,
    calls: usize,
    units: usize,
    goal: f64,
) -> Load {
    Load { name, symbol, arg, calls, units, goal, prepare: None }
}

/// Workloads of maps.cc.
pub(crate) const MAPS: &[Load] = &[
    load("empty call", "nothing", 0, 200_000, 1, 0.0),
    load("hash map, 100 B values, 1,000 puts a call", "hash_map_puts", 1000, 200, 1000, 2.0),
    load("hash map, 100 B values, 100 puts a call", "hash_map_puts", 100, 1000, 100, 0.0),
    load("hash map, 100 B values, 1 put a call", "hash_map_puts", 1, 100_000, 1, 0.0),
    load("std::map, 1,000 puts a call", "plain_map_puts", 1000, 100, 1000, 1.2),
    load("std::map, 1 put a call", "plain_map_puts", 1, 50_000, 1, 0.0),
    load("std::map of strings, 100 puts a call", "map_puts", 100, 500, 100, 0.0),
    load("std::unordered_map of strings, 100 puts a call", "unordered_puts", 100, 500, 100, 0.0),
    Load { prepare: Some(("sort_fill", 1_000_000)), ..load("qsort of 1M ints", "sort_ints", 0, 1, 1, 1.5) },
    Load {
        prepare: Some(("copy_open", 0)),
        ..load("memcpy of 4 KB, 64 a call", "copy_many", 4096, 400, 64, 1.1)
    },
    load("memcpy of 64 KB, 64 a call", "copy_many", 65536, 40, 64, 1.1),
    load("memcpy of 1 MB, 64 a call", "copy_many", 1 << 20, 2, 64, 1.1),
    load("memcpy of 4 KB, 1 a call", "copy", 4096, 20_000, 1, 0.0),
];
/// Workloads of zlib.c.
pub(crate) const ZLIB: &[Load] = &[load("zlib deflate of 1 MB", "zlib_deflate", 1 << 20, 1, 1, 1.25)];
/// Workloads of sqlite.c.
pub(crate) const SQLITE: &[Load] = &[
    load("SQLite, 100 inserts a call", "sqlite_insert", 100, 100, 100, 1.6),
    load("SQLite, 1 insert a call", "sqlite_insert", 1, 5000, 1, 2.0),
];

/// Workloads of redis.c.
pub(crate) const REDIS: &[Load] = &[
    load("Redis, 100 SETs of 100 B a call", "redis_sets", 100, 300, 100, 0.0),
    load("Redis, 1 SET of 100 B a call", "redis_sets", 1, 10_000, 1, 0.0),
    load("Redis, six kinds of commands, 100 a call", "redis_mixed", 100, 300, 100, 0.0),
];

/// Nanoseconds a unit natively and tracked, and the median of the ratios.
pub(crate) struct Times {
    pub(crate) native: f64,
    pub(crate) tracked: f64,
    pub(crate) ratio: f64,
}

/// Measures one workload.
pub(crate) fn measure(load: &Load, library: &Library, tracker: &Recompiler, rounds: usize) -> Times {
    let function = library.function(load.symbol);
    let mut writes = WriteSet::new(32).expect("a block size");
    let (mut natives, mut trackeds, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut run = |tracked: bool| {
        if let Some((symbol, arg)) = load.prepare {
            // SAFETY: a test program's function with its argument.
            unsafe { library.function(symbol)(std::ptr::without_provenance_mut(arg)) };
        }
        let start = Instant::now();
        for _ in 0..load.calls {
            call(tracker, &mut writes, function, load.arg, tracked);
        }
        start.elapsed().as_nanos() as f64 / (load.calls * load.units) as f64
    };
    run(true);
    for _ in 0..rounds {
        let (native, tracked) = (run(false), run(true));
        natives.push(native);
        trackeds.push(tracked);
        ratios.push(tracked / native);
    }
    Times { native: median(natives), tracked: median(trackeds), ratio: median(ratios) }
}

fn call(tracker: &Recompiler, writes: &mut WriteSet, function: Function, arg: usize, tracked: bool) {
    let arg = std::ptr::without_provenance_mut::<c_void>(arg);
    // SAFETY: a test program's function with its argument.
    unsafe {
        if tracked {
            writes.clear();
            tracker.call(writes, function, arg).expect("the workload can be tracked");
        } else {
            function(arg);
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
