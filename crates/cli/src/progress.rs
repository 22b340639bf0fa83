//! Progress bars of long work, on standard error and only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar over `total` records (0: not known), with rate and time left.
pub(crate) fn records(what: &'static str, total: u64) -> ProgressBar {
    styled(what, total, "{human_pos}/{human_len}", "{human_pos}", "{per_sec} {eta} left")
}

/// A bar over `total` bytes (0: not known).
pub(crate) fn bytes(what: &'static str, total: u64) -> ProgressBar {
    styled(what, total, "{bytes}/{total_bytes}", "{bytes}", "{msg} {eta} left")
}

fn styled(what: &'static str, total: u64, of: &str, open: &str, rate: &str) -> ProgressBar {
    let template = if total > 0 {
        format!("{{prefix:<8}} [{{bar:32}}] {{percent:>3}}% {of} {rate}")
    } else {
        format!("{{prefix:<8}} {{spinner}} {open} {{msg}} {{elapsed}}")
    };
    let bar = if total > 0 { ProgressBar::new(total) } else { ProgressBar::no_length() };
    let is_seen = std::io::stderr().is_terminal();
    bar.set_draw_target(if is_seen {
        ProgressDrawTarget::stderr_with_hz(8)
    } else {
        ProgressDrawTarget::hidden()
    });
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(what);
    if is_seen {
        // Starts a thread, and panics where there is none to be had.
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}
