//! The names of the report's lines.

pub(super) const THROUGHPUT: &str = "commands";
pub(super) const P50: &str = "p50";
pub(super) const P99: &str = "p99";
pub(super) const P999: &str = "p99.9";
pub(super) const CPU: &str = "server's CPU a command";
pub(super) const CPU_MAIN: &str = "main thread's CPU a command";
pub(super) const LOGGED: &str = "bytes logged a command";
pub(super) const START: &str = "restart";
/// The floor of a write with one client.
pub(super) const DIRECT_WRITE: &str = "direct synchronous write of 4 KB";
