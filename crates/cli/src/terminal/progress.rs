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
        format!("{{prefix:<8}} [{{wide_bar}}] {{percent:>3}}% {of} {rate}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal of 80 columns, which keeps what is written to it.
    #[derive(Clone, Debug, Default)]
    struct Columns(Arc<Mutex<String>>);

    impl TermLike for Columns {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bar_fits_eighty_columns_to_its_last_word() {
        for (bar, at) in [
            (records("salvage", 4_000_000_000), 3_999_999_999),
            (records("export", 2), 1),
            (bytes("load", 900 << 30), 899 << 30),
        ] {
            let columns = Columns::default();
            bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(columns.clone())));
            bar.set_message("123,456,789 records/s");
            bar.set_position(at);
            bar.force_draw();
            let line = columns.0.lock().unwrap().trim_end().to_owned();
            assert!(line.ends_with("left") && line.chars().count() <= 80, "{line:?}");
        }
    }
}
