//! One call: native, tracked, durable; and a durable PUT by size, compared with two copies of the same bytes.

use super::context::DurableBench;
use super::kv::Kv;
use super::media::StatePlace;
use crate::report::report::FigureUnit;
use anyhow::ensure;
use mangrove_durable::{Command, Runtime};
use mangrove_tracker::{Recompiler, Tracker, WriteSet};
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

pub(super) const CALLS: &str = "calls";
pub(super) const PUTS: &str = "puts";

pub(super) const TRACKED: &str = "tracked, does nothing";
pub(super) const NATIVE_READ: &str = "read of 100 bytes, unwrapped";
pub(super) const READ: &str = "read of 100 bytes, durable";
pub(super) const COPIES: &str = "two memcpys";

/// Sizes of values, in bytes.
const SIZES: [usize; 5] = [64, 100, 1_000, 10_000, 100_000];

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// The fastest of several slices, in nanoseconds a call, because interrupts only ever add time.
fn time(calls: usize, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    const SLICES: usize = 20;
    let per_slice = (calls / SLICES).max(1);
    let mut best = f64::MAX;
    for _ in 0..SLICES {
        let begin = Instant::now();
        for _ in 0..per_slice {
            call()?;
        }
        best = best.min(begin.elapsed().as_secs_f64() * 1e9 / per_slice as f64);
    }
    Ok(best)
}

pub(super) fn run(b: &mut DurableBench) -> anyhow::Result<()> {
    let calls = b.size(2_000_000, 2_000);
    let function: unsafe extern "C" fn(*mut c_void) = black_box(nothing);
    let native = time(calls, || {
        // SAFETY: it does nothing.
        unsafe { function(black_box(std::ptr::null_mut())) };
        Ok(())
    })?;
    b.add(CALLS, "", "", "native, does nothing", 1, FigureUnit::Nanoseconds, native);
    let tracker = Recompiler::new()?;
    let mut writes = Box::new(WriteSet::new(32)?);
    let tracked = time(calls, || {
        // SAFETY: as above.
        unsafe { tracker.call(&mut writes, function, std::ptr::null_mut()) }?;
        Ok(())
    })?;
    b.add(CALLS, "", "", TRACKED, 1, FigureUnit::Nanoseconds, tracked);
    run_stores(b, &tracker)?;
    let place = StatePlace::new("zero", &b.args.dir)?;
    let kv = Kv::on(&place)?;
    let (mut client, mut call) = (kv.runtime.client()?, kv.call());
    let arg = std::ptr::from_mut(&mut call).cast::<c_void>();
    let process: Command = black_box(super::kv::process);
    let unwrapped = time(calls, || {
        // SAFETY: a call of ours, whose request is a read.
        unsafe { process(black_box(arg)) };
        Ok(())
    })?;
    b.add(CALLS, "zero", "", NATIVE_READ, 1, FigureUnit::Nanoseconds, unwrapped);
    let read = time(calls, || {
        // SAFETY: as above.
        client.read_durable(|| unsafe { process(black_box(arg)) })?;
        Ok(())
    })?;
    b.add(CALLS, "zero", "", READ, 1, FigureUnit::Nanoseconds, read);
    let empty = time(calls, || {
        // SAFETY: it does nothing.
        unsafe { client.write_durable(nothing, &[std::ptr::null_mut()]) }?;
        Ok(())
    })?;
    b.add(CALLS, "zero", "", "durable, does nothing", 1, FigureUnit::Nanoseconds, empty);
    for others in [b.size(10_000, 100), b.size(100_000, 200)] {
        let crowd = (0..others).map(|_| kv.runtime.client()).collect::<Result<Vec<_>, _>>()?;
        let beside = time(calls / 10, || {
            // SAFETY: it does nothing.
            unsafe { client.write_durable(nothing, &[std::ptr::null_mut()]) }?;
            Ok(())
        })?;
        drop(crowd);
        let what = format!("durable, does nothing, beside {others} idle clients");
        b.add(CALLS, "zero", "", &what, 1, FigureUnit::Nanoseconds, beside);
    }
    drop(client);
    kv.runtime.close()?;
    place.clear()
}

/// Words that a call of `run_stores` writes, one after the other.
const STORES: usize = 1 << 16;
/// Bytes of a copy, and how far copies are from each other.
const COPY_BYTES: usize = 200;
const COPY_STEP: usize = 208;

static VARIABLES: [AtomicU64; STORES] = [const { AtomicU64::new(0) }; STORES];

/// Stores of type T to all of the memory at `arg`, one by one.
unsafe extern "C" fn store_each<T: From<u8>>(arg: *mut c_void) {
    let to = arg.cast::<T>();
    let mut at = 0;
    while at < STORES * 8 / size_of::<T>() {
        // Several stores of one round would be recorded together.
        let place = black_box(to).wrapping_add(at);
        // SAFETY: the caller's words.
        unsafe { place.write_volatile(T::from(at as u8)) };
        at += 1;
    }
}

/// A struct of 48 bytes.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "it is only written")]
struct Record([u64; 6]);

impl From<u8> for Record {
    fn from(byte: u8) -> Self {
        Self([byte.into(); 6])
    }
}

/// Copies by libc, one after the other.
unsafe extern "C" fn copy_each(arg: *mut c_void) {
    let from = [7u8; COPY_BYTES];
    for at in (0..STORES * 8 - COPY_BYTES).step_by(COPY_STEP) {
        // SAFETY: as above.
        unsafe { arg.cast::<u8>().add(at).copy_from_nonoverlapping(from.as_ptr(), black_box(COPY_BYTES)) };
    }
}

/// What a store costs in a tracked call: to a static variable, of which each byte is noted, and to the heap, of which
/// blocks are. Each call is a batch.
fn run_stores(b: &mut DurableBench, tracker: &Recompiler) -> anyhow::Result<()> {
    let variables = VARIABLES.as_ptr().cast_mut().cast::<c_void>();
    let mut heap = vec![0u64; STORES];
    let mut writes = Box::new(WriteSet::new(32)?);
    writes.set_exact(&[(variables.addr(), STORES * 8)]);
    let calls = b.size(400, 20);
    let kinds: [(&str, Command, usize); 4] = [
        ("store of 1 byte", store_each::<u8>, STORES * 8),
        ("store of 8 bytes", store_each::<u64>, STORES),
        ("store of a struct of 48 bytes", store_each::<Record>, STORES * 8 / 48),
        ("copy of 200 bytes", copy_each, (STORES * 8 - COPY_BYTES).div_ceil(COPY_STEP)),
    ];
    for (what, store, count) in kinds {
        for (place, words) in [("a static variable", variables), ("the heap", heap.as_mut_ptr().cast())] {
            let all = time(calls, || {
                writes.clear();
                // SAFETY: the function writes to so many words, which are there.
                unsafe { tracker.call(&mut writes, store, words) }?;
                Ok(())
            })?;
            let what = format!("{what} to {place}, tracked");
            b.add(CALLS, "", "", &what, 1, FigureUnit::Nanoseconds, all / count as f64);
        }
    }
    Ok(())
}

/// A value on its way into its slot.
#[repr(C)]
struct Put {
    from: *const u8,
    to: *mut u8,
    len: usize,
}

unsafe extern "C" fn put(arg: *mut c_void) {
    // SAFETY: a `Put` whose pointers have `len` bytes.
    unsafe {
        let put = &*arg.cast::<Put>();
        std::ptr::copy_nonoverlapping(put.from, put.to, put.len);
    }
}

unsafe extern "C" fn allocate_slots(arg: *mut c_void) {
    // SAFETY: inside a command; the argument is a `Put`.
    unsafe {
        let put = &mut *arg.cast::<Put>();
        put.to = mangrove_durable::route::mangrove_arena_alloc_zeroed(put.len, 64);
    }
}

/// Slots of each size. For the large sizes they exceed the caches.
const SLOTS: usize = 256;

pub(super) fn run_puts(b: &mut DurableBench) -> anyhow::Result<()> {
    let place = StatePlace::new("zero", &b.args.dir)?;
    for len in SIZES {
        // SAFETY: there is no initialisation.
        let runtime = unsafe { Runtime::open(place.fresh()?, &place.options(), None) }?;
        let mut client = runtime.client()?;
        let from = vec![7u8; len];
        let mut slots = Put { from: from.as_ptr(), to: std::ptr::null_mut(), len: len * SLOTS };
        let arg = (&raw mut slots).cast();
        // SAFETY: the argument is a `Put`.
        unsafe { client.write_durable(allocate_slots, &[arg]) }?;
        ensure!(!slots.to.is_null(), "no room for the values");
        let calls = b.size(400_000_000 / (len + 1_000), 200);
        let mut at = 0;
        let ours = time(calls, || {
            at = (at + 1) % SLOTS;
            let mut put_one = Put { from: from.as_ptr(), to: slots.to.wrapping_add(at * len), len };
            // SAFETY: the slot has `len` bytes.
            unsafe { client.write_durable(put, &[(&raw mut put_one).cast()]) }?;
            Ok(())
        })?;
        b.add(PUTS, "zero", &format!("{len} bytes"), "put", 1, FigureUnit::Nanoseconds, ours);
        let (mut one, mut two) = (vec![0u8; len * SLOTS], vec![0u8; len * SLOTS]);
        let floor = time(calls, || {
            at = (at + 1) % SLOTS;
            one[at * len..][..len].copy_from_slice(black_box(&from));
            two[at * len..][..len].copy_from_slice(black_box(&one[at * len..][..len]));
            black_box((&mut one, &mut two));
            Ok(())
        })?;
        b.add_floor(PUTS, "zero", &format!("{len} bytes"), "put", COPIES, FigureUnit::Nanoseconds, floor);
        drop(client);
        runtime.close()?;
    }
    place.clear()
}
