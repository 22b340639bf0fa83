//! What a command costs, in nanoseconds: `command_cost [DIRECTORY]`. By default the directory is made on tmpfs, with
//! emulated persistent memory at zero latency, so that the figures show the runtime's own cost.

use mangrove_durable::{Latency, Medium, Options, Runtime};
use std::ffi::c_void;
use std::hint::black_box;
use std::time::Instant;

const VALUE_BYTES: usize = 100;
const SLOT_COUNT: usize = 1 << 12;

/// A store of fixed slots, as the paper's example.
struct Store {
    slots: *mut [u8; VALUE_BYTES],
    index: usize,
    value: [u8; VALUE_BYTES],
}

unsafe extern "C" fn nothing(arg: *mut c_void) {
    black_box(arg);
}

unsafe extern "C" fn get(arg: *mut c_void) {
    // SAFETY: a Store that no other thread uses.
    unsafe {
        let store = &mut *arg.cast::<Store>();
        store.value = *store.slots.add(store.index % SLOT_COUNT);
    }
}

unsafe extern "C" fn put(arg: *mut c_void) {
    // SAFETY: a Store that no other thread uses.
    unsafe {
        let store = &*arg.cast::<Store>();
        *store.slots.add(store.index % SLOT_COUNT) = store.value;
    }
}

/// Nanoseconds of one call: the best of seven rounds.
fn best(name: &str, count: u32, mut call: impl FnMut()) -> f64 {
    let round = |call: &mut dyn FnMut()| {
        let begun = Instant::now();
        for _ in 0..count {
            call();
        }
        begun.elapsed().as_nanos() as f64 / f64::from(count)
    };
    let least = (0..7).map(|_| round(&mut call)).fold(f64::INFINITY, f64::min);
    println!("{name:44} {least:9.1} ns");
    least
}

fn main() -> mangrove_durable::Result<()> {
    mangrove_durable::settle_addresses();
    let folder = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm/mangrove-command-cost".into());
    let _ = std::fs::remove_dir_all(&folder);
    let latency = Latency::default();
    let options = Options::new().medium(Medium::Emulated(latency)).capacity(1 << 30).log_bytes(16 << 20);
    // The slots are memory that a command maps.
    unsafe extern "C" fn make(arg: *mut c_void) -> i32 {
        // SAFETY: an anonymous mapping; the argument is the place of a pointer.
        unsafe {
            let bytes = SLOT_COUNT * VALUE_BYTES;
            let (read_write, private) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(std::ptr::null_mut(), bytes, read_write, private, -1, 0);
            *arg.cast::<*mut c_void>() = at;
            i32::from(at == libc::MAP_FAILED)
        }
    }
    let mut slots: *mut c_void = std::ptr::null_mut();
    // SAFETY: `make` takes the place of a pointer.
    let runtime = unsafe { Runtime::open(&folder, &options, Some((make, (&raw mut slots).cast()))) }?;
    let mut client = runtime.client()?;
    let mut store = Store { slots: slots.cast(), index: 0, value: [7; VALUE_BYTES] };
    let arg: *mut c_void = (&raw mut store).cast();
    let step = |arg: *mut c_void| {
        // SAFETY: the store of this function.
        unsafe { (*arg.cast::<Store>()).index += 1 }
        arg
    };
    // SAFETY: each command gets the store.
    unsafe {
        let native =
            best("native get of 100 B", 2_000_000, || black_box(get as unsafe extern "C" fn(_))(step(arg)));
        let read = best("read command: get of 100 B", 2_000_000, || {
            client.read_durable(|| black_box(get as unsafe extern "C" fn(_))(step(arg))).expect("reads");
        });
        println!("{:44} {:9.1} ns", "  the lock's own cost", read - native);
        best("write command that does nothing", 500_000, || {
            client.write_durable(nothing, &[arg]).expect("durable");
        });
        let native =
            best("native put of 100 B", 2_000_000, || black_box(put as unsafe extern "C" fn(_))(step(arg)));
        let durable = best("write command: put of 100 B", 500_000, || {
            client.write_durable(put, &[step(arg)]).expect("durable");
        });
        println!("{:44} {:9.1} ns", "  durable over native", durable - native);
        let args = [arg; 16];
        let batch = best("16 puts in one batch, each", 50_000, || {
            step(arg);
            client.write_durable(put, &args).expect("durable");
        });
        println!("{:44} {:9.1} ns", "  a put of the batch", batch / 16.0);
    }
    drop(client);
    runtime.close()?;
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
