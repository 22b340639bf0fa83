//! How a server is reached: noted in its directory for programs that want to ask it. The server writes the note when it
//! has opened its state: a second one that finds the state in use must not replace the note of the first.

use crate::request::Request;
use std::path::Path;
use std::process::Command;

/// The note, one directive a line.
pub(crate) const FILE: &str = "state.address";

/// Lets the server note how it is reached by this request.
pub(crate) fn ask_for(server: &mut Command, request: &Request, dir: &Path) {
    let mut text = String::new();
    for name in ["port", "tls-port", "unixsocket", "bind"] {
        let default = if name == "port" { Some("6379") } else { None };
        if let Some(value) = request.last(name).or(default) {
            text += &format!("{name} {value}\n");
        }
    }
    server.env("MANGROVE_REDIS_ADDRESS", text).env("MANGROVE_REDIS_ADDRESS_FILE", dir.join(FILE));
}

/// The host to connect to, by the value of `bind`; none where that is every address of the machine.
pub(crate) fn host(bind: &str) -> Option<&str> {
    let first = bind.split_whitespace().next()?.trim_start_matches('-');
    (!matches!(first, "*" | "0.0.0.0" | "::" | "::*")).then_some(first)
}
