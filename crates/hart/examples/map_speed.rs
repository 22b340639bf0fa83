//! Nanoseconds an operation on the emulated medium, one thread: `map_speed [RECORDS] [VALUE_BYTES] [SEQUENTIAL]`.
//! The first figure is the thread's own CPU time, which other programs on the machine disturb less; recovery's other
//! threads are not in it.

use mangrove_hart::{Hart, Options, WriteMode};
use mangrove_pool::Emulated;
use std::error::Error;
use std::ops::Bound;
use std::time::Instant;

fn keys(count: usize, sequential: bool) -> Vec<Vec<u8>> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut state = 42u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    (0..count)
        .map(|i| {
            if sequential {
                format!("{i:08}").into_bytes()
            } else {
                (0..5 + next() % 12).map(|_| LETTERS[next() % LETTERS.len()]).collect()
            }
        })
        .collect()
}

/// Nanoseconds that this thread has run, where the system reports them.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn timed(
    name: &str,
    count: usize,
    work: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (started, cpu) = (Instant::now(), cpu_ns());
    work()?;
    let (wall, cpu) = (started.elapsed().as_nanos() as f64, (cpu_ns() - cpu) as f64);
    println!(
        "{name:>10} {:8.1} ns cpu {:8.1} ns  {:7.2} ms",
        cpu / count as f64,
        wall / count as f64,
        wall / 1e6
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().map_or(Ok(1_000_000), |a| a.parse())?;
    let value_bytes: usize = args.next().map_or(Ok(8), |a| a.parse())?;
    let keys = keys(count, args.next().is_some());
    let region = Emulated::region(4 << 30)?;
    let options = Options::default();
    let hart = Hart::create(region.clone(), &options)?;
    let (one, two) = (vec![b'1'; value_bytes], vec![b'2'; value_bytes]);
    let mode = WriteMode::Durable;
    timed("insert", count, || Ok(keys.iter().try_for_each(|k| hart.put(k, &one, mode))?))?;
    let mut sum = 0usize;
    for _ in 0..2 {
        timed("delete", count, || {
            for key in &keys {
                hart.delete(key, mode)?;
            }
            Ok(())
        })?;
        timed("again", count, || Ok(keys.iter().try_for_each(|k| hart.put(k, &one, mode))?))?;
    }
    let mut shuffled: Vec<usize> = (0..count).collect();
    let mut state = 7u64;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        shuffled.swap(at, (state >> 33) as usize % (at + 1));
    }
    // In the order of insertion, leaves and values are neighbours in memory; here they are not.
    let shuffled: Vec<Vec<u8>> = shuffled.into_iter().map(|at| keys[at].clone()).collect();
    for (name, keys) in [("get_with", &keys), ("get random", &shuffled)] {
        for _ in 0..3 {
            timed(name, count, || {
                for key in keys {
                    sum += hart.get_with(key, <[u8]>::len)?.unwrap_or(0);
                }
                Ok(())
            })?;
        }
    }
    timed("get", count, || {
        for key in &keys {
            sum += hart.get(key)?.map_or(0, |v| v.len());
        }
        Ok(())
    })?;
    for _ in 0..3 {
        timed("update", count, || Ok(keys.iter().try_for_each(|k| hart.put(k, &two, mode))?))?;
    }
    for _ in 0..3 {
        timed("scan", count, || {
            let mut range = hart.range(Bound::Unbounded, Bound::Unbounded)?;
            Ok(range.for_each_ref(|k, v| {
                sum += k.len() + v.len();
                true
            })?)
        })?;
    }
    timed("scan vec", count, || {
        for record in hart.range(Bound::Unbounded, Bound::Unbounded)? {
            sum += record?.0.len();
        }
        Ok(())
    })?;
    println!("{:#?}", hart.stat());
    drop(hart);
    for _ in 0..2 {
        timed("recover", count, || {
            let (hart, report) = Hart::recover(region.clone(), &options)?;
            println!("{report:?} {}", hart.len());
            std::mem::forget(hart);
            Ok(())
        })?;
    }
    let (hart, _) = Hart::recover(region.clone(), &options)?;
    timed("delete", count, || {
        for key in &keys {
            hart.delete(key, mode)?;
        }
        Ok(())
    })?;
    println!("{sum} {:?}", hart.check()?);
    Ok(())
}
