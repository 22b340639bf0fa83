//! What a command of a durable application costs: flushes, cache lines, fences and waits on a medium that is memory;
//! log bytes on both media. The table is a golden: `BLESS=1 cargo test -p mangrove-durable --test costs` renews it.

#[path = "../../hart/tests/support/counting.rs"]
#[allow(dead_code, unreachable_pub, reason = "the costs need a part of it")]
mod counting;

use counting::{Cost, Counting};
use mangrove_durable::{Client, Create, Medium, Options, Runtime, TrackerChoice, lab, will_write};
use mangrove_shadow::{AddressChoice, Shadow};
use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/costs.golden");
const BLOCK_BYTES: usize = 128 << 10;

/// A row: its name, and the bytes that each command of its batch puts.
type Row = (&'static str, &'static [usize]);

const ROWS: [Row; 5] = [
    ("a command that writes nothing", &[0]),
    ("PUT of 100 B", &[100]),
    ("PUT of 1 KB", &[1000]),
    ("PUT of 100 KB", &[100_000]),
    ("16 PUTs of 100 B in one batch", &[100; 16]),
];

/// What a command puts: so many bytes at the place.
struct Put {
    at: *mut u8,
    bytes: usize,
    value: u8,
}

unsafe extern "C" fn put(arg: *mut c_void) {
    // SAFETY: a `Put` into the state's block, which no other thread uses.
    unsafe {
        let put = &*arg.cast::<Put>();
        if put.bytes > 0 {
            will_write(put.at, put.bytes);
            put.at.write_bytes(put.value, put.bytes);
        }
    }
}

/// Makes the state: one block.
unsafe extern "C" fn make(arg: *mut c_void) -> c_int {
    // SAFETY: the argument is the place of a pointer.
    unsafe { *arg.cast::<*mut u8>() = lab::alloc_zeroed(BLOCK_BYTES) };
    0
}

/// A state with one block, and a client.
struct State {
    runtime: Arc<Runtime>,
    client: Client,
    block: *mut u8,
}

impl State {
    fn over(shadow: Shadow) -> Self {
        let options = Options::new().tracker(TrackerChoice::Explicit).self_contained(true);
        let mut block: *mut u8 = null_mut();
        // SAFETY: `make` takes the place of a pointer.
        let runtime =
            unsafe { lab::open(shadow, &options, Some((make, (&raw mut block).cast())), |_| ()) }.unwrap();
        let client = runtime.client().unwrap();
        Self { runtime, client, block }
    }

    /// Runs commands that put so many bytes each as one batch, and waits for it.
    fn run(&mut self, puts: &[usize]) {
        let at = |index: usize| self.block.wrapping_add(index * 4096);
        let mut puts: Vec<_> =
            puts.iter().enumerate().map(|(i, &bytes)| Put { at: at(i), bytes, value: 7 }).collect();
        let args: Vec<*mut c_void> = puts.iter_mut().map(|put| std::ptr::from_mut(put).cast()).collect();
        // SAFETY: each command gets a `Put` into the block.
        unsafe { self.client.write_durable(put, &args) }.unwrap();
    }

    fn log_used(&self) -> u64 {
        self.runtime.stat().state.log_used
    }

    /// How many bytes of log `work` took; nothing is applied meanwhile.
    fn log_bytes(&mut self, work: impl FnOnce(&mut Self)) -> u64 {
        let before = self.log_used();
        work(self);
        self.log_used() - before
    }
}

fn shadow_options() -> mangrove_shadow::Options {
    let options = mangrove_shadow::Options::new().create(Create::IfMissing).address(AddressChoice::Anywhere);
    options.background(false).capacity(4 << 20).log_bytes(1 << 20).log_count(1)
}

fn on_file(folder: &Path) -> State {
    State::over(shadow_options().medium(Medium::File).open(folder.join("state")).unwrap())
}

#[test]
fn commands_cost_what_the_table_says() {
    let mut text = format!("{:<30} flushes  lines  fences  waits  log bytes  log bytes (file)\n", "");
    let (region, medium) = Counting::region(16 << 20, false);
    let mut memory = State::over(Shadow::on_region(region, &shadow_options()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut file = on_file(folder.path());
    for (name, puts) in ROWS {
        let mut cost = Cost::default();
        let bytes = memory.log_bytes(|state| cost = medium.cost_of(|| state.run(puts)));
        let file_bytes = file.log_bytes(|state| state.run(puts));
        let Cost { flushes, lines, fences, waits, .. } = cost;
        assert!(fences <= 1, "{name}: {cost:?}");
        writeln!(
            text,
            "{name:<30} {flushes:>7} {lines:>6} {fences:>7} {waits:>6} {bytes:>10} {file_bytes:>17}"
        )
        .unwrap();
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert!(golden == text, "costs changed (BLESS=1 renews the table):\n{text}\nwas:\n{golden}");
}
