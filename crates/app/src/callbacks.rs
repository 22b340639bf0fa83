//! The application's callbacks: those of the paper's Listing 1, with frames, an initialisation and a recovery.

use crate::status::{Failure, MESSAGE_BYTES_MAX, status_of};
use mangrove_cabi::text_array;
use mangrove_durable::{Command, Error};
use mangrove_serve::{Answer, Context, Frame, Service};
use std::ffi::{c_char, c_int, c_void};

/// A reply to a client. The memory of `data` stays the application's. The library copies it before the next
/// callback on this client. It copies the reply to a read before any write runs, so that reply may point into
/// the state. The reply to a write must not, since other writes may have run by then.
#[repr(C)]
pub struct mangrove_app_response {
    /// First byte; may be NULL when len is 0.
    pub data: *const c_void,
    /// Number of bytes.
    pub len: usize,
    /// Whether the connection is closed once everything is sent.
    pub close: bool,
}

/// What the application does. Set `bytes` to sizeof(mangrove_app_callbacks) and what is not needed to
/// NULL. Local mode needs process; RPC mode also deserialize and get_response.
///
/// Callbacks of one client run one after another on one thread, except process of a write, which runs
/// on the thread that executes the batch. Callbacks of different clients run at the same time. But beside
/// process of a write no other process runs, and no get_response of a read. All other callbacks do, also
/// is_read_only: they must not look at the state, which a write may be changing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_app_callbacks {
    /// sizeof(mangrove_app_callbacks).
    pub bytes: usize,
    /// Handed to init_client, init_state and on_recover.
    pub user: *mut c_void,
    /// RPC mode: a client connected; `id` is its number. Returns the context that the other callbacks
    /// get; NULL refuses the client. When this is NULL the context is NULL.
    pub init_client: Option<unsafe extern "C" fn(id: u64, user: *mut c_void) -> *mut c_void>,
    /// RPC mode: the client is gone.
    pub destroy_client: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    /// RPC mode: looks for one request at the start of `input`. Returns the bytes that it takes (1 to len), 0
    /// when it is not there in full (called again with more), a negative number when this is no request (the
    /// client is disconnected). The bytes stay where they are until get_response was called, so the context may
    /// keep the pointer.
    pub deserialize:
        Option<unsafe extern "C" fn(ctx: *mut c_void, input: *const c_void, len: usize) -> isize>,
    /// True when the request in the context changes nothing that is persistent. When this is NULL every
    /// request is taken for a write.
    pub is_read_only: Option<unsafe extern "C" fn(ctx: *mut c_void) -> bool>,
    /// Processes the request in the context. Reads run natively and in parallel; writes are tracked.
    pub process: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    /// RPC mode: fills in the reply to the request that was processed.
    pub get_response: Option<unsafe extern "C" fn(ctx: *mut c_void, response: *mut mangrove_app_response)>,
    /// RPC mode: the write in the context was not and will not be made durable; `status` and `message` say
    /// why. Returns true when get_response has a reply that reports it. If it returns false, or is NULL, the
    /// connection is closed.
    pub failed: Option<unsafe extern "C" fn(ctx: *mut c_void, status: i32, message: *const c_char) -> bool>,
    /// The state is new: makes it, tracked, as a write command would. Runs once in the state's life;
    /// after a crash before mangrove_app_open returned it runs again, with an empty state. Returns 0,
    /// or another number to refuse.
    pub init_state: Option<unsafe extern "C" fn(user: *mut c_void) -> c_int>,
    /// The state was found: opens again what is transient (files, sockets, threads). Native. Returns 0,
    /// or another number to refuse.
    pub on_recover: Option<unsafe extern "C" fn(user: *mut c_void) -> c_int>,
}

impl mangrove_app_callbacks {
    /// The caller's callbacks, as far as its header knew them.
    ///
    /// # Safety
    /// `from` is NULL or leads to as many bytes as its first word says.
    pub(crate) unsafe fn read(from: *const Self) -> Result<Self, Failure> {
        if from.is_null() {
            return Err(Failure::null("callbacks"));
        }
        // SAFETY: the first word is there in every version.
        let bytes = unsafe { (*from).bytes };
        let word = size_of::<usize>();
        // Everything up to process has been there from the beginning.
        let least = std::mem::offset_of!(Self, get_response);
        if bytes < least || !bytes.is_multiple_of(word) {
            return Err(Failure::invalid(format!(
                "'bytes' of the callbacks is {bytes}; set it to sizeof(mangrove_app_callbacks)"
            )));
        }
        let mut all = Self {
            bytes: size_of::<Self>(),
            user: std::ptr::null_mut(),
            init_client: None,
            destroy_client: None,
            deserialize: None,
            is_read_only: None,
            process: None,
            get_response: None,
            failed: None,
            init_state: None,
            on_recover: None,
        };
        let known = bytes.min(size_of::<Self>());
        // SAFETY: `known` bytes are there on both sides; any pattern of the caller's is a valid callback or NULL.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut all).cast::<u8>(), known) };
        all.bytes = size_of::<Self>();
        if all.process.is_none() {
            return Err(Failure::null("process"));
        }
        Ok(all)
    }
}

/// The callbacks as the event loops' service.
pub(crate) struct CallbackService(pub(crate) mangrove_app_callbacks);

// SAFETY: functions, and a pointer that is only handed back to the application.
unsafe impl Send for CallbackService {}
// SAFETY: as above.
unsafe impl Sync for CallbackService {}

/// Stands for a process callback that is missing; every service that is made has one (`serve.rs`).
unsafe extern "C" fn nothing(_: *mut c_void) {}

// SAFETY: the header's contract says with what and when the callbacks may be called.
unsafe impl Service for CallbackService {
    fn connect(&self, id: u64) -> Option<Context> {
        let Some(init) = self.0.init_client else { return Some(Context(std::ptr::null_mut())) };
        // SAFETY: the application's callback, with its own pointer.
        let context = unsafe { init(id, self.0.user) };
        (!context.is_null()).then_some(Context(context))
    }

    fn disconnect(&self, client: Context) {
        if let Some(destroy) = self.0.destroy_client {
            // SAFETY: the application's callback, with a context that it made.
            unsafe { destroy(client.0) };
        }
    }

    fn deserialize(&self, client: Context, input: &[u8]) -> Frame {
        let Some(deserialize) = self.0.deserialize else { return Frame::Malformed };
        // SAFETY: the application's callback, with a context that it made; the bytes are there.
        match unsafe { deserialize(client.0, input.as_ptr().cast(), input.len()) } {
            0 => Frame::Incomplete,
            count => usize::try_from(count).map_or(Frame::Malformed, Frame::Request),
        }
    }

    fn is_read_only(&self, client: Context) -> bool {
        // SAFETY: as above.
        self.0.is_read_only.is_some_and(|ask| unsafe { ask(client.0) })
    }

    fn command(&self) -> Command {
        self.0.process.unwrap_or(nothing)
    }

    fn answer(&self, client: Context) -> Answer<'_> {
        let mut response = mangrove_app_response { data: std::ptr::null(), len: 0, close: false };
        if let Some(get) = self.0.get_response {
            // SAFETY: as above; the response is this function's and outlives the call.
            unsafe { get(client.0, &raw mut response) };
        }
        let bytes = if response.data.is_null() || response.len == 0 {
            &[][..]
        } else {
            // SAFETY: by contract `len` bytes that stay until the next callback on this client, before which the
            // event loop has copied them.
            unsafe { std::slice::from_raw_parts(response.data.cast(), response.len) }
        };
        Answer { bytes, close: response.close }
    }

    fn failed(&self, client: Context, error: &Error) -> bool {
        let message = text_array::<MESSAGE_BYTES_MAX>(&error.to_string());
        // SAFETY: as above; the message ends with NUL and outlives the call.
        self.0
            .failed
            .is_some_and(|failed| unsafe { failed(client.0, status_of(error) as i32, message.as_ptr()) })
    }
}
