//! RPC mode: the runtime owns the sockets. Event loops take requests apart by the application's own
//! callbacks, run reads at once and writes in batches, and give answers when they are durable.

mod accept;
mod address;
mod connection;
mod input;
mod options;
mod output;
mod server;
mod service;
mod stream;
mod syncer;
mod worker;

#[cfg(test)]
mod tests;

pub use options::ServerOptions;
pub use server::{Server, ServerStat, Stopper};
pub use service::{Answer, Context, Frame, Service};
