//! Floor 2: a working copy in DRAM whose commits survive.
//!
//! A [`Shadow`] is one durable region that a program uses as plain memory, always at the same address: pointers
//! into it stay right across restarts. Stores go to DRAM and mean nothing to a crash. [`Shadow::commit`] takes
//! the present bytes of some ranges into a redo log as one unit, which a crash keeps or loses whole;
//! [`Shadow::wait`] returns when a unit, and every one before it, is durable. Behind, committed units are applied
//! to the image, and their log space is used again.
//!
//! ```
//! use mangrove_shadow::{CreateMode, Options};
//!
//! # fn main() -> mangrove_shadow::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("state");
//! let options = Options::new().create(CreateMode::CreateIfMissing).capacity(1 << 30);
//! let shadow = options.open(&path)?;
//! shadow.grow(4096)?; // the first page, all zero, may be used
//! let counter: *mut u64 = shadow.base().cast();
//! // SAFETY: inside what was grown, aligned, and nobody else uses it.
//! unsafe { *counter += 41 };
//! let ticket = shadow.commit(0, &[(counter as usize, 8)])?;
//! shadow.wait(ticket)?; // durable now
//! drop(shadow); // a crash, as far as the data can tell
//!
//! let shadow = options.open(&path)?;
//! assert_eq!(shadow.base() as usize, counter as usize); // at its address again
//! // SAFETY: as above.
//! assert_eq!(unsafe { *counter }, 41);
//! shadow.close()
//! # }
//! ```
//!
//! The bytes: docs/format/shadow.md. What was chosen and why: docs/decisions/shadow.md. Source: the Mangosteen
//! paper (USENIX ATC 2024), section 4.3, figures 3 and 4.

mod check;
mod handover;
mod layout;
mod lines;
mod options;
mod recover;
mod replay;
mod ring;
mod shadow;
mod stat;
mod sync;
mod working;

pub use mangrove_pmem::{
    AddressChoice, CheckReport, CreateMode, Domain, DomainChoice, Durability, Error, FlushInstruction,
    Latency, MediumChoice, MediumKind, Region, Result, Start, Storage,
};
pub use options::{CAPACITY_BYTES_DEFAULT, CAPACITY_BYTES_MAX, LOG_COUNT_MAX, Options};
pub use shadow::{Shadow, Ticket};
pub use stat::{Report, Stat};
