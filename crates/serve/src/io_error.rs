//! Errors of the operating system, as the runtime's [`Error`] has them.

use mangrove_durable::Error;

/// The operating system's error while doing something.
pub(crate) fn io_error(doing: impl Into<String>, e: &std::io::Error) -> Error {
    Error::Io { doing: doing.into(), code: e.raw_os_error(), message: e.to_string() }
}
