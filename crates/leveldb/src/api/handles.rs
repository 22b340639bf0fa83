//! Handles that several files of the API use.

use crate::api::fork_guard::OwnedByProcess;
use crate::engine::engine::ReadView;
use crate::status::{Failure, Result};
use std::sync::Arc;

/// An instant of a database.
pub struct leveldb_snapshot_t {
    /// Or why it could not be taken. Programs do not look whether a snapshot is NULL, and NULL in read options means
    /// "now".
    view: Result<OwnedByProcess<Arc<dyn ReadView>>>,
}

impl leveldb_snapshot_t {
    pub(super) fn of(view: Result<Arc<dyn ReadView>>) -> Self {
        Self { view: view.map(OwnedByProcess::new) }
    }

    /// The instant; fails if there is none, or in a child of the process that took it.
    pub(super) fn view(&self) -> Result<&Arc<dyn ReadView>> {
        self.view.as_ref().map_err(Failure::clone)?.get()
    }
}
