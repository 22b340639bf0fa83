//! The application as the event loops see it: the callbacks of the paper's Listing 1, with frames and answers.

use mangrove_durable::{Command, Error};
use std::ffi::c_void;

/// A client as the application knows it: the pointer that [`Service::connect`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Context(pub *mut c_void);

// SAFETY: the pointer is only carried; the service follows it, and its contract says on which threads.
unsafe impl Send for Context {}

impl Context {
    /// The pointers of several contexts, as arguments of a command.
    pub(crate) fn args(contexts: &[Self]) -> &[*mut c_void] {
        // SAFETY: a context is its pointer (repr(transparent)).
        unsafe { std::slice::from_raw_parts(contexts.as_ptr().cast(), contexts.len()) }
    }
}

/// What [`Service::deserialize`] found at the start of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One whole request of so many bytes, which the context holds from now on. At least 1, at most the bytes given.
    Request(usize),
    /// The request is not there in full.
    Incomplete,
    /// This is no request: the client is cut off after the answers to its earlier requests.
    Malformed,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer<'a> {
    /// The bytes to send; copied before the next callback on this client. May be empty.
    pub bytes: &'a [u8],
    /// True to close the connection once everything is sent.
    pub close: bool,
}

/// An application that serves clients over sockets.
///
/// All callbacks of one client run one after another, on the event loop that the client belongs to, except the
/// command itself, which runs on the event loop that combines. Different clients' callbacks run at the same time,
/// except commands of writes, which run alone.
///
/// # Safety
/// [`Service::command`] must be sound to call with any context that `connect` made and `disconnect` has not ended,
/// on any thread of the process: beside other reads if `is_read_only` returned true, otherwise alone.
pub unsafe trait Service: Send + Sync {
    /// A client connected. `None` refuses it. Native: what it allocates is not persistent.
    fn connect(&self, id: u64) -> Option<Context>;

    /// The client is gone, and no command of it is under way.
    fn disconnect(&self, client: Context);

    /// Looks for one request at the start of `input`. The bytes stay where they are until the answer to the request
    /// was taken, so the context may keep their address. Called again with more bytes after `Incomplete`.
    fn deserialize(&self, client: Context, input: &[u8]) -> Frame;

    /// True when the request that the context holds changes nothing that is persistent.
    fn is_read_only(&self, client: Context) -> bool;

    /// Processes the request that a context holds; its argument is the context's pointer.
    fn command(&self) -> Command;

    /// The answer to the request that was processed. The answer to a read may lie in the state: no write runs before
    /// it was copied. The answer to a write may not.
    fn answer(&self, client: Context) -> Answer<'_>;

    /// The write that the context holds was not and will not be made durable. Returns true when `answer` has
    /// something to send about it; false closes the connection.
    fn failed(&self, client: Context, error: &Error) -> bool;
}
