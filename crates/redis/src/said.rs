//! What a server writes to its standard output, for the message when it ends too early.

use std::io::Read;
use std::process::ChildStdout;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Of what a server said a message has so many lines, the last ones.
const LINES_MAX: usize = 8;
/// Of what it said so much is kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The end of what a server writes.
pub(crate) struct Said {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Said {
    /// Reads until the server ends; without an output there is nothing to read.
    pub(crate) fn of(stdout: Option<ChildStdout>) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let reader = stdout.map(|stdout| {
            let kept = kept.clone();
            std::thread::spawn(move || keep_end(stdout, &kept))
        });
        Self { kept, reader }
    }

    /// All that is kept of a server that has ended.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.kept.lock().map(|kept| kept.clone()).unwrap_or_default()
    }
}

fn keep_end(mut stdout: ChildStdout, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = stdout.read(&mut piece) {
        let Ok(mut kept) = kept.lock() else { return };
        kept.extend_from_slice(&piece[..len]);
        let over = kept.len().saturating_sub(KEPT_BYTES_MAX);
        kept.drain(..over);
    }
}

/// The last lines, without empty ones.
pub(crate) fn last_lines(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}
