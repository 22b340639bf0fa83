//! The paper's key-value store (Listing 2, examples/kv) as a subject: an array of values, two requests.

use super::media::StatePlace;
use mangrove_durable::{Client, Options, Runtime};
use mangrove_serve::{Answer, Context, Frame, Service};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Arc;

pub(super) const SLOT_COUNT: usize = 1 << 16;
pub(super) const VALUE_BYTES: usize = 100;

/// One request, as it comes over the wire too.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct KvRequest {
    pub(super) writes: u32,
    pub(super) slot: u32,
    pub(super) value: [u8; VALUE_BYTES],
}

pub(super) const REQUEST_BYTES: usize = size_of::<KvRequest>();

/// One call of the store: its address, the request, and the answer.
#[repr(C)]
pub(super) struct KvCall {
    store: *mut u8,
    pub(super) request: KvRequest,
    pub(super) answer: [u8; VALUE_BYTES],
}

impl KvCall {
    pub(super) fn new(store: *mut u8) -> Self {
        let request = KvRequest { writes: 0, slot: 0, value: [0; VALUE_BYTES] };
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

/// A small generator, so that the clock measures the subjects and not the generator.
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
/// `arg` is a `KvCall` whose store has `SLOT_COUNT` values; nothing else uses the store during a write.
pub(super) unsafe extern "C" fn process(arg: *mut c_void) {
    // SAFETY: by contract.
    unsafe {
        let call = &mut *arg.cast::<KvCall>();
        let slot = call.store.add(call.request.slot as usize % SLOT_COUNT * VALUE_BYTES);
        if call.request.writes != 0 {
            std::ptr::copy_nonoverlapping(call.request.value.as_ptr(), slot, VALUE_BYTES);
        } else {
            std::ptr::copy_nonoverlapping(slot, call.answer.as_mut_ptr(), VALUE_BYTES);
        }
    }
}

/// Makes the array; `arg` points to the variable for its address.
unsafe extern "C" fn make(arg: *mut c_void) -> c_int {
    // SAFETY: inside a command; the argument is a pointer variable.
    unsafe {
        let store = mangrove_durable::route::mangrove_arena_alloc_zeroed(SLOT_COUNT * VALUE_BYTES, 64);
        arg.cast::<*mut u8>().write(store);
        c_int::from(store.is_null())
    }
}

/// An open store.
pub(super) struct Kv {
    pub(super) runtime: Arc<Runtime>,
    store: *mut u8,
}

// SAFETY: only commands and reads dereference the store.
unsafe impl Sync for Kv {}

impl Kv {
    pub(super) fn open(path: &Path, options: &Options) -> anyhow::Result<Self> {
        let mut store: *mut u8 = std::ptr::null_mut();
        // SAFETY: `make` is sound with a pointer variable.
        let runtime = unsafe { Runtime::open(path, options, Some((make, (&raw mut store).cast()))) }?;
        Ok(Self { runtime, store })
    }

    pub(super) fn on(place: &StatePlace) -> anyhow::Result<Self> {
        Self::open(&place.fresh()?, &place.options())
    }

    pub(super) fn call(&self) -> KvCall {
        KvCall::new(self.store)
    }

    /// Processes the call's request and waits for its answer.
    pub(super) fn ask(client: &mut Client, call: &mut KvCall) -> anyhow::Result<()> {
        let arg = std::ptr::from_mut(call).cast::<c_void>();
        if call.request.writes == 0 {
            // SAFETY: the call is ours; reads may run concurrently.
            client.read_durable(|| unsafe { process(arg) })?;
        } else {
            // SAFETY: as above; the runtime runs a write alone.
            unsafe { client.write_durable(process, &[arg]) }?;
        }
        Ok(())
    }
}

/// The store as a service of the RPC server.
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
unsafe fn call_of<'a>(client: Context) -> &'a mut KvCall {
    // SAFETY: by contract.
    unsafe { &mut *client.0.cast() }
}

// SAFETY: `process` is sound with the calls that `connect` makes.
unsafe impl Service for KvService {
    fn connect(&self, _: u64) -> Option<Context> {
        let store = std::ptr::with_exposed_provenance_mut(self.0);
        Some(Context(Box::into_raw(Box::new(KvCall::new(store))).cast()))
    }

    fn disconnect(&self, client: Context) {
        // SAFETY: made by `connect`, ended once.
        drop(unsafe { Box::from_raw(client.0.cast::<KvCall>()) });
    }

    fn deserialize(&self, client: Context, input: &[u8]) -> Frame {
        if input.len() < REQUEST_BYTES {
            return Frame::Incomplete;
        }
        // SAFETY: one of ours; any bytes are a request, and there are enough.
        unsafe { call_of(client).request = input.as_ptr().cast::<KvRequest>().read_unaligned() };
        Frame::Request(REQUEST_BYTES)
    }

    fn is_read_only(&self, client: Context) -> bool {
        // SAFETY: one of ours.
        unsafe { call_of(client) }.request.writes == 0
    }

    fn command(&self) -> mangrove_durable::Command {
        process
    }

    fn answer(&self, client: Context) -> Answer<'_> {
        // SAFETY: one of ours, which outlives the answer's use.
        Answer { bytes: unsafe { &call_of(client).answer }, close: false }
    }

    fn failed(&self, _: Context, _: &mangrove_durable::Error) -> bool {
        false
    }
}
