//! Floor 4: RPC mode of durable applications, where the runtime owns the sockets. Event loops take requests apart by
//! the application's own callbacks, run reads at once and writes in batches, and give answers when they are durable.
//!
//! ```no_run
//! use mangrove_durable::{Command, Error, Options, Runtime};
//! use mangrove_serve::{Answer, Context, Frame, Server, ServerOptions, Service};
//! use std::ffi::c_void;
//!
//! /// Answers each byte with the number of bytes that all clients ever sent, a word of the state.
//! struct CountBytes(*mut usize);
//!
//! struct Peer {
//!     count: *mut usize,
//!     answer: [u8; size_of::<usize>()],
//! }
//!
//! unsafe extern "C" fn count_one(peer: *mut c_void) {
//!     // SAFETY: `connect` made the peer, the count is a root of the state, and commands of writes run alone.
//!     unsafe {
//!         let peer = &mut *peer.cast::<Peer>();
//!         *peer.count += 1;
//!         peer.answer = (*peer.count).to_le_bytes();
//!     }
//! }
//!
//! // SAFETY: the root lies in the state, which outlives the server.
//! unsafe impl Send for CountBytes {}
//! // SAFETY: as above.
//! unsafe impl Sync for CountBytes {}
//!
//! // SAFETY: `count_one` takes what `connect` makes.
//! unsafe impl Service for CountBytes {
//!     fn connect(&self, _id: u64) -> Option<Context> {
//!         let peer = Peer { count: self.0, answer: Default::default() };
//!         Some(Context(Box::into_raw(Box::new(peer)).cast()))
//!     }
//!     fn disconnect(&self, client: Context) {
//!         // SAFETY: from `connect`, and ended once.
//!         drop(unsafe { Box::from_raw(client.0.cast::<Peer>()) });
//!     }
//!     fn deserialize(&self, _client: Context, _input: &[u8]) -> Frame {
//!         Frame::Request(1)
//!     }
//!     fn is_read_only(&self, _client: Context) -> bool {
//!         false
//!     }
//!     fn command(&self) -> Command {
//!         count_one
//!     }
//!     fn answer(&self, client: Context) -> Answer<'_> {
//!         // SAFETY: from `connect`.
//!         Answer { bytes: unsafe { &(*client.0.cast::<Peer>()).answer }, close: false }
//!     }
//!     fn failed(&self, _client: Context, _error: &Error) -> bool {
//!         false
//!     }
//! }
//!
//! # fn main() -> mangrove_durable::Result<()> {
//! // SAFETY: there is no initialisation, and the state holds a number only.
//! let runtime = unsafe { Runtime::open("counter", &Options::new(), None) }?;
//! let service = CountBytes(runtime.roots());
//! let mut server = Server::new(runtime, Box::new(service), ServerOptions::new())?;
//! server.listen("127.0.0.1:4000")?;
//! server.serve()?;
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod io_error;
mod options;
mod server;
mod service;
mod shared;
mod sync;
mod threads;

#[cfg(test)]
mod tests;

pub use options::ServerOptions;
pub use server::{Server, ServerStat};
pub use service::{Answer, Context, Frame, Service};
pub use shared::Stopper;
