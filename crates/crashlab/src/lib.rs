//! The crash simulator.
//!
//! An engine runs on a machine whose every store, flush, fence, file write and sync is written down.
//! From the recording come the images that a crash may leave, under the fault model of
//! `docs/fault-model.md`; each is recovered and judged against a reference model. A planted bug (one
//! call site whose calls do nothing) must be caught.

mod campaign;
mod chain;
mod cursor;
mod disk;
mod durable;
mod durable_state;
mod durable_workload;
mod file_world;
mod filter;
pub mod fuzz;
mod interrupt;
mod judge;
pub mod linear;
mod lines;
mod map;
mod map_workload;
mod medium;
mod quiet;
mod rng;
mod shadow;
mod site;
mod store_world;
mod subject;
mod sweep;
mod token;
mod toy;
mod trace;
mod world;

pub use campaign::{Campaign, Engine, discover, domains_of};
pub use chain::chain;
pub use cursor::Domain;
pub use disk::{Disk, Node, Tree};
pub use durable::DurableSubject;
pub use durable_workload::{DurableCommand, DurableInner, DurableModel, DurableOp};
pub use file_world::{FilePlan, FileWorld};
pub use judge::Expect;
pub use lines::Choice;
pub use map::{MapModel, MapOp, MapSubject};
pub use map_workload::SCENARIOS;
pub use quiet::quietly;
pub use rng::{Rng, mix};
pub use shadow::{ShadowModel, ShadowOp, ShadowSubject};
pub use site::{SiteKey, SiteKind, Sites};
pub use store_world::StoreWorld;
pub use subject::{Promised, Subject};
pub use sweep::{Limits, Sweep, Tally, Violation, Watch};
pub use token::{Crash, Token};
pub use toy::{Cell, CellBug};
pub use trace::Mark;
pub use world::{Machine, World};
