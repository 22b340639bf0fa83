//! What a run found: tables, figures, and goals against measurements.

pub(super) mod figures;
pub(super) mod goals;
pub(super) mod render;
pub(super) mod report;
pub(super) mod save;
pub(super) mod say;
