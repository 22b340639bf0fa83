//! How a server is reached: noted in its directory for programs that want to ask it. The server writes the note when it
//! has opened its state (a second one that finds the state in use must not replace the note of the first), and again
//! when it serves.

use crate::request::Request;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The note, one directive a line.
pub(crate) const FILE: &str = "state.address";

/// The environment tells the name of the start, for the note.
pub(crate) const START: &str = "MANGROVE_REDIS_START";

/// Lets the server note how it is reached by this request.
pub(crate) fn ask_for(server: &mut Command, request: &Request, dir: &Path) {
    let mut text = String::new();
    for name in ["port", "tls-port", "unixsocket", "bind"] {
        let default = if name == "port" { Some("6379") } else { None };
        if let Some(value) = request.last(name).or(default) {
            text += &format!("{name} {value}\n");
        }
    }
    if let Ok(start) = std::env::var(START) {
        text += &format!("start {start}\n");
    }
    server.env("MANGROVE_REDIS_ADDRESS", text).env("MANGROVE_REDIS_ADDRESS_FILE", dir.join(FILE));
}

/// A name for the start that the caller is about to ask for: no other has it.
pub(crate) fn name_of_start() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_nanos())
}

/// Whether the note in the directory is of the start with this name, and says that the server serves. One of a build
/// that notes nothing about this writes the note once, with its state open.
pub(crate) fn serves(dir: &Path, start: &str) -> bool {
    std::fs::read_to_string(dir.join(FILE)).is_ok_and(|text| says_serving(&text, start))
}

fn says_serving(text: &str, start: &str) -> bool {
    text.lines().any(|line| line.strip_prefix("start ") == Some(start))
        && !text.lines().any(|l| l == "starting")
}

/// The host to connect to, by the value of `bind`; none where that is every address of the machine.
pub(crate) fn host(bind: &str) -> Option<&str> {
    let first = bind.split_whitespace().next()?.trim_start_matches('-');
    (!matches!(first, "*" | "0.0.0.0" | "::" | "::*")).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::says_serving;

    #[test]
    fn a_note_says_of_its_own_start_that_the_server_serves() {
        assert!(says_serving("port 1\nstart 7-1\n", "7-1"));
        assert!(!says_serving("port 1\nstart 7-1\nstarting\n", "7-1"));
        assert!(!says_serving("port 1\nstart 7-1\n", "7-12") && !says_serving("port 1\n", "7-1"));
    }
}
