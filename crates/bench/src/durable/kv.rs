//! The paper's key-value store (Listing 2, examples/kv) as a subject: an array of values, two requests.

use super::media::Place;
use mangrove_durable::{Answer, Client, Context, Frame, Options, Runtime, Service};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Arc;

pub(super) const SLOT_COUNT: usize = 1 << 16;
pub(super) const VALUE_BYTES: usize = 100;

/// One request, as it comes over the wire too.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Request {
    pub(super) writes: u32,
    pub(super) slot: u32,
    pub(super) value: [u8; VALUE_BYTES],
}

pub(super) const REQUEST_BYTES: usize = size_of::<Request>();

/// Who asks, what, and the answer.
#[repr(C)]
pub(super) struct Asker {
    store: *mut u8,
    pub(super) request: Request,
    pub(super) answer: [u8; VALUE_BYTES],
}

impl Asker {
    pub(super) fn new(store: *mut u8) -> Self {
        let request = Request { writes: 0, slot: 0, value: [0; VALUE_BYTES] };
        Self { store, request, answer: [0; VALUE_BYTES] }
    }

    /// Draws the next request.
    pub(super) fn draw(&mut self, dice: &mut Dice, writes_percent: u32) {
        let noise = dice.next();
        self.request.writes = u32::from((noise >> 32) as u32 % 100 < writes_percent);
        self.request.slot = noise as u32 % SLOT_COUNT as u32;
        self.request.value[..8].copy_from_slice(&noise.to_le_bytes());
    }
}

/// A small generator: the clock should see the subjects.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Processes a request.
///
/// # Safety
/// `arg` is an `Asker` whose store has `SLOT_COUNT` values; a write is alone.
pub(super) unsafe extern "C" fn process(arg: *mut c_void) {
    // SAFETY: by contract.
    unsafe {
        let asker = &mut *arg.cast::<Asker>();
        let slot = asker.store.add(asker.request.slot as usize % SLOT_COUNT * VALUE_BYTES);
        if asker.request.writes != 0 {
            std::ptr::copy_nonoverlapping(asker.request.value.as_ptr(), slot, VALUE_BYTES);
        } else {
            std::ptr::copy_nonoverlapping(slot, asker.answer.as_mut_ptr(), VALUE_BYTES);
        }
    }
}

/// Makes the array; `arg` leads to where its address is wanted.
unsafe extern "C" fn make(arg: *mut c_void) -> c_int {
    // SAFETY: inside a command; the argument is a pointer variable.
    unsafe {
        let store = mangrove_durable::route::mangrove_arena_alloc_zeroed(SLOT_COUNT * VALUE_BYTES, 64);
        arg.cast::<*mut u8>().write(store);
        c_int::from(store.is_null())
    }
}

/// A store, open.
pub(super) struct Kv {
    pub(super) runtime: Arc<Runtime>,
    store: *mut u8,
}

// SAFETY: the store is only followed by commands and reads.
unsafe impl Sync for Kv {}

impl Kv {
    pub(super) fn open(path: &Path, options: &Options) -> anyhow::Result<Self> {
        let mut store: *mut u8 = std::ptr::null_mut();
        // SAFETY: `make` is sound with a pointer variable.
        let runtime = unsafe { Runtime::open(path, options, Some((make, (&raw mut store).cast()))) }?;
        Ok(Self { runtime, store })
    }

    pub(super) fn on(place: &Place) -> anyhow::Result<Self> {
        Self::open(&place.fresh()?, &place.options())
    }

    pub(super) fn asker(&self) -> Asker {
        Asker::new(self.store)
    }

    /// Has the asker's request processed, and waits for its answer.
    pub(super) fn ask(client: &mut Client, asker: &mut Asker) -> anyhow::Result<()> {
        let arg = std::ptr::from_mut(asker).cast::<c_void>();
        if asker.request.writes == 0 {
            // SAFETY: the asker is ours; reads may run beside each other.
            client.read_durable(|| unsafe { process(arg) })?;
        } else {
            // SAFETY: as above; writes are alone.
            unsafe { client.write_durable(process, &[arg]) }?;
        }
        Ok(())
    }
}

/// The store behind sockets.
pub(super) struct KvService(pub(super) usize);

impl KvService {
    pub(super) fn of(kv: &Kv) -> Self {
        Self(kv.store.expose_provenance())
    }
}

/// The context of a connection.
///
/// # Safety
/// `client` is one of `connect`'s.
unsafe fn asker<'a>(client: Context) -> &'a mut Asker {
    // SAFETY: by contract.
    unsafe { &mut *client.0.cast() }
}

// SAFETY: `process` is sound with the askers that `connect` makes.
unsafe impl Service for KvService {
    fn connect(&self, _: u64) -> Option<Context> {
        let store = std::ptr::with_exposed_provenance_mut(self.0);
        Some(Context(Box::into_raw(Box::new(Asker::new(store))).cast()))
    }

    fn disconnect(&self, client: Context) {
        // SAFETY: made by `connect`, ended once.
        drop(unsafe { Box::from_raw(client.0.cast::<Asker>()) });
    }

    fn deserialize(&self, client: Context, input: &[u8]) -> Frame {
        if input.len() < REQUEST_BYTES {
            return Frame::Incomplete;
        }
        // SAFETY: one of ours; any bytes are a request, and there are enough.
        unsafe { asker(client).request = input.as_ptr().cast::<Request>().read_unaligned() };
        Frame::Request(REQUEST_BYTES)
    }

    fn is_read_only(&self, client: Context) -> bool {
        // SAFETY: one of ours.
        unsafe { asker(client) }.request.writes == 0
    }

    fn command(&self) -> mangrove_durable::Command {
        process
    }

    fn answer(&self, client: Context) -> Answer<'_> {
        // SAFETY: one of ours, which outlives the answer's use.
        Answer { bytes: unsafe { &asker(client).answer }, close: false }
    }

    fn failed(&self, _: Context, _: &mangrove_durable::Error) -> bool {
        false
    }
}
