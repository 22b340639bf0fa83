//! Is this memory sound? While no transaction runs, the header is whole and no undo entry counts.

use super::layout::{AT_LOG, InPlaceLayout};
use super::memory::InPlaceMemory;
use super::recover::read;
use mangrove_pool::{Error, Result};

impl InPlaceMemory {
    /// Compares header and undo log with their rules, while no transaction runs. What the data mean, only the program
    /// knows. O(entries of the log).
    ///
    /// # Errors
    /// `Corrupt`, with the offset.
    pub fn check(&self) -> Result<()> {
        let corrupt = |offset, what: &str| {
            Err(Error::Corrupt { path: self.path().join("image"), offset, what: what.to_owned() })
        };
        let undo = self.undo();
        if InPlaceLayout::read(&undo.region, self.path())? != Some(undo.layout) {
            return corrupt(0, "the header is not the one that was read at opening");
        }
        let found = read(&undo.region, &undo.layout, self.path())?;
        if !found.entries.is_empty() || found.cleared != undo.cleared() {
            return corrupt(AT_LOG, "the undo log is not empty, and no transaction runs");
        }
        Ok(())
    }
}
