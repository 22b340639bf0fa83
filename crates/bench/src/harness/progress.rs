//! Reports on standard error how far a long run is.

use crate::report::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar over the steps of one section. Where standard error is not a terminal, it prints one line a section
/// instead.
pub(crate) struct SectionProgress {
    bar: ProgressBar,
}

impl SectionProgress {
    pub(crate) fn new(section: &str, steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{prefix:>12} [{bar:30}] {pos}/{len} {msg} (ETA {eta})");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_prefix(section.to_owned());
        if bar.is_hidden() {
            say::note(format_args!("{section}: {steps} measurements"));
        } else {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Self { bar }
    }

    pub(crate) fn step(&self, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.bar.set_message(what);
    }

    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }
}

impl Drop for SectionProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
