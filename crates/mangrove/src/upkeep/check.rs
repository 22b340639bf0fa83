//! The report of a check.

/// What [`crate::Map::check`] found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Records whose key, value and checksums were read and found right.
    pub records: u64,
    /// Bytes of values read.
    pub value_bytes: u64,
    /// One message for each thing that is wrong; empty when the map is sound.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// True when nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    pub(crate) fn new(report: &mangrove_hart::CheckReport) -> Self {
        Self {
            records: report.records,
            value_bytes: report.value_bytes,
            problems: report.damage.iter().map(ToString::to_string).collect(),
        }
    }
}
