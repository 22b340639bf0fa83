//! How a server is reached: noted in its directory for programs that want to ask it.

use crate::request::Request;
use anyhow::{Context, Result};
use std::path::Path;

/// The note, one directive a line.
pub(crate) const FILE: &str = "state.address";

/// Notes how the server of this request is reached.
pub(crate) fn write(request: &Request, dir: &Path) -> Result<()> {
    let mut text = String::new();
    for name in ["port", "tls-port", "unixsocket", "bind"] {
        let default = if name == "port" { Some("6379") } else { None };
        if let Some(value) = request.last(name).or(default) {
            text += &format!("{name} {value}\n");
        }
    }
    let file = dir.join(FILE);
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The host to connect to, by the value of `bind`; none where that is every address of the machine.
pub(crate) fn host(bind: &str) -> Option<&str> {
    let first = bind.split_whitespace().next()?.trim_start_matches('-');
    (!matches!(first, "*" | "0.0.0.0" | "::" | "::*")).then_some(first)
}
