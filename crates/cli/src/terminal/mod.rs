//! What every command writes and reads: output, messages, progress, sizes, escaped text, signals and exit codes.

pub(super) mod exit;
pub(super) mod interrupt;
pub(super) mod output;
pub(super) mod progress;
pub(super) mod size;
pub(super) mod stderr;
pub(super) mod text;
