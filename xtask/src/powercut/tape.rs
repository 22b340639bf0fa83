//! The tape: what the guests on one disk reported, kept so that a failure can be judged again.
//!
//! One line each: `w LINE` of a writer, `c LINE` of a completed check.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use mangrove_crashlab::history::{History, HistoryVerdict};

const FILE: &str = "stream.txt";

/// A history, and the lines from which it was made.
#[derive(Default)]
pub(super) struct Tape {
    pub(super) history: History,
    words: Vec<String>,
}

impl Tape {
    /// Takes a writer's line.
    pub(super) fn writer(&mut self, line: &str) -> Result<()> {
        self.words.push(format!("w {line}"));
        self.history.line(line).map_err(anyhow::Error::msg)
    }

    /// Judges a completed check, and adds it to the tape only if it was clean: a tape ends before the failure.
    pub(super) fn check(&mut self, lines: &[String]) -> Result<HistoryVerdict> {
        let verdict = self.history.check(lines.iter().map(String::as_str)).map_err(anyhow::Error::msg)?;
        if verdict.is_clean() {
            self.words.extend(lines.iter().map(|line| format!("c {line}")));
        }
        Ok(verdict)
    }

    /// Writes the tape into `folder`.
    pub(super) fn keep(&self, folder: &Path) -> Result<()> {
        Ok(fs::write(folder.join(FILE), self.words.join("\n"))?)
    }

    /// Plays a kept tape: the history as it was before the check that failed.
    pub(super) fn play(folder: &Path) -> Result<Self> {
        let file = folder.join(FILE);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut tape = Self::default();
        let mut check: Vec<String> = Vec::new();
        for word in text.lines() {
            match word.split_once(' ') {
                Some(("c", line)) => {
                    check.push(line.to_owned());
                    if line.starts_with(". ") {
                        tape.check(&std::mem::take(&mut check))?;
                    }
                }
                Some(("w", line)) => tape.writer(line)?,
                _ => anyhow::bail!("{} holds the line {word:?}", file.display()),
            }
        }
        Ok(tape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_tape_judges_as_the_first_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut tape = Tape::default();
        let check = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        tape.writer("> a 1 p k").unwrap();
        assert!(tape.check(&check(&["= k a 1", ". 1"])).unwrap().is_clean());
        tape.writer("> b 1 p k").unwrap();
        tape.writer("< b 1").unwrap();
        tape.keep(folder.path()).unwrap();
        let stale = check(&["= k a 1", ". 1"]);
        assert_eq!(tape.check(&stale).unwrap().lost.len(), 1);
        assert_eq!(Tape::play(folder.path()).unwrap().check(&stale).unwrap().lost.len(), 1);
        assert!(Tape::play(folder.path()).unwrap().check(&check(&["= k b 1", ". 1"])).unwrap().is_clean());
    }
}
