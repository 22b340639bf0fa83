//! Handles that several files of the API use.

use crate::api::fork_guard::OwnedByProcess;
use crate::engine::engine::ReadView;
use std::sync::Arc;

/// An instant of a database.
pub struct leveldb_snapshot_t {
    pub(super) view: OwnedByProcess<Arc<dyn ReadView>>,
}
