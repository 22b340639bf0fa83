//! How a command ends: the exit code and the last message.

use crate::terminal::{output, stderr};
use std::io;
use std::process::ExitCode;

/// Answers that are not errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok,
    /// The key is not there, or a check found something.
    No,
    /// Stopped by Ctrl-C or SIGTERM, in order.
    Interrupted,
}

/// A request that cannot be honoured however often it is repeated: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prints the error, if any, and chooses the exit code.
pub(crate) fn code(result: anyhow::Result<Exit>) -> ExitCode {
    let error = match result {
        Ok(Exit::Ok) => return ExitCode::SUCCESS,
        Ok(Exit::No) => return ExitCode::from(1),
        Ok(Exit::Interrupted) => return ExitCode::from(130),
        Err(error) => error,
    };
    if error.chain().any(is_output_unread) {
        // The reader of our output has seen enough (`mangrove map scan | head`): no error.
        return ExitCode::SUCCESS;
    }
    stderr::line(format_args!("mangrove: {error:#}"));
    ExitCode::from(if is_refused(&error) { 2 } else { 3 })
}

/// Whether the same request fails however often it is repeated.
pub(crate) fn is_refused(error: &anyhow::Error) -> bool {
    error.chain().any(is_usage)
}

fn is_output_unread(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(output::is_unread)
}

fn is_usage(cause: &(dyn std::error::Error + 'static)) -> bool {
    use mangrove::Error;
    cause.is::<Usage>()
        || matches!(
            cause.downcast_ref::<Error>(),
            Some(Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::Unsupported { .. })
        )
}
