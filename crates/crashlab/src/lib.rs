//! The crash simulator.
//!
//! An engine runs on a machine that records every store, flush, fence, file write and sync. From the recording the
//! simulator builds the images that a crash may leave, under the fault model of `docs/fault-model.md`. It recovers
//! each image and judges the result against a reference model. It must catch every injected fault (one call site
//! whose calls do nothing).

mod engines;
pub mod fuzz;
mod machine;
mod quiet;
mod rng;
mod search;
mod verdict;

pub use engines::durable::DurableSubject;
pub use engines::durable_workload::{DurableCommand, DurableInner, DurableModel, DurableOp};
pub use engines::map::MapSubject;
pub use engines::map_model::{MapModel, MapOp};
pub use engines::map_workload::SCENARIOS;
pub use engines::shadow::{ShadowModel, ShadowOp, ShadowSubject};
pub use engines::subject::{Promised, Subject};
pub use engines::toy::{Cell, CellFault};
pub use machine::cursor::CrashDomain;
pub use machine::disk::{Disk, DiskEvent, DiskNode, DiskRecord, DiskTree};
pub use machine::file_world::{FilePlan, FileWorld};
pub use machine::lines::ImageChoice;
pub use machine::site::{SiteKey, SiteKind, Sites};
pub use machine::store_world::StoreWorld;
pub use machine::trace::Mark;
pub use machine::world::{Machine, World};
pub use quiet::quietly;
pub use rng::{Rng, mix};
pub use search::campaign::{Calls, Campaign, EngineKind, FEW_IMAGES, discover, domains_of};
pub use search::chain::chain;
pub use search::sweep::{Limits, Sweep, SweepWatch, Tally, Violation};
pub use search::token::{Crash, Token};
pub use verdict::judge::Expectation;
pub use verdict::{history, linear};
