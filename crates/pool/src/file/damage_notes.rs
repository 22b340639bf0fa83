//! The damage that an opening for a salvage notes and passes over, where any other opening ends with the error.

use crate::Result;
use crate::stat::Damage;
use crate::sync::Mutex;

/// Damage beyond this count is not noted.
const NOTES_MAX: usize = 1000;

/// What an opening does with damage.
pub(crate) struct DamageNotes {
    salvage: bool,
    notes: Mutex<Vec<String>>,
}

impl DamageNotes {
    /// With `salvage` it notes damage, otherwise it refuses it.
    pub(crate) fn new(salvage: bool) -> Self {
        Self { salvage, notes: Mutex::new(Vec::new()) }
    }

    /// The result of a step, or `otherwise` where the step found damage, or what the medium cannot read, and this is a
    /// salvage. Other errors stay.
    pub(crate) fn pass<T>(&self, result: Result<T>, otherwise: impl FnOnce() -> T) -> Result<T> {
        match result {
            Err(error) if self.salvage => {
                let damage = Damage::of(error)?;
                let mut notes = self.notes.lock();
                if notes.len() < NOTES_MAX {
                    notes.push(note(damage));
                }
                Ok(otherwise())
            }
            other => other,
        }
    }

    /// What was noted, and then what is in `more`, as far as there is room.
    pub(crate) fn into_notes(self, more: impl Iterator<Item = Damage>) -> Vec<String> {
        let mut notes = std::mem::take(&mut *self.notes.lock());
        notes.extend(more.take(NOTES_MAX - notes.len()).map(note));
        notes
    }
}

fn note(Damage { path, offset, what }: Damage) -> String {
    format!("{}, byte {offset}: {what}", path.display())
}
