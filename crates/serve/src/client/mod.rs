//! One client: its socket, what it sent, and the answers for it.

pub(crate) mod connection;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod stream;
