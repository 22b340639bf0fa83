//! The crash simulator.
//!
//! An engine runs on a machine whose every store, flush, fence, file write and sync is written down.
//! From the recording come the images that a crash may leave, under the fault model of
//! `docs/fault-model.md`; each is recovered and judged against a reference model. A planted bug (one
//! call site whose calls do nothing) must be caught.

#[path = "search/campaign.rs"]
mod campaign;
#[path = "search/chain.rs"]
mod chain;
#[path = "machine/cursor.rs"]
mod cursor;
#[path = "machine/disk.rs"]
mod disk;
#[path = "engines/durable.rs"]
mod durable;
#[path = "engines/durable_state.rs"]
mod durable_state;
#[path = "engines/durable_workload.rs"]
mod durable_workload;
#[path = "machine/file_world.rs"]
mod file_world;
#[path = "machine/filter.rs"]
mod filter;
pub mod fuzz;
#[path = "machine/interrupt.rs"]
mod interrupt;
#[path = "verdict/judge.rs"]
mod judge;
#[path = "verdict/linear.rs"]
pub mod linear;
#[path = "machine/lines.rs"]
mod lines;
#[path = "engines/map.rs"]
mod map;
#[path = "engines/map_workload.rs"]
mod map_workload;
#[path = "machine/medium.rs"]
mod medium;
mod quiet;
mod rng;
#[path = "engines/shadow.rs"]
mod shadow;
#[path = "machine/site.rs"]
mod site;
#[path = "machine/store_world.rs"]
mod store_world;
#[path = "engines/subject.rs"]
mod subject;
#[path = "search/sweep.rs"]
mod sweep;
#[path = "search/token.rs"]
mod token;
#[path = "engines/toy.rs"]
mod toy;
#[path = "machine/trace.rs"]
mod trace;
#[path = "machine/world.rs"]
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
