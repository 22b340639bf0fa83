//! Floor 2: a working copy in DRAM whose commits survive.
//!
//! A [`Shadow`] is one durable region that a program uses as plain memory, always at the same address: pointers
//! into it stay right across restarts. Stores go to DRAM and do not survive a crash by themselves.
//! [`Shadow::commit`] copies the present bytes of some ranges into a redo log as one atomic group, which a crash
//! keeps or loses whole; [`Shadow::wait`] returns when an atomic group, and every one before it, is durable. In the
//! background, committed atomic groups are applied to the durable copy (on the file medium, the data file), and
//! their log space is freed.
//!
//! ```
//! use mangrove_shadow::{Create, Options};
//!
//! # fn main() -> mangrove_shadow::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("state");
//! let options = Options::new().create(Create::IfMissing).capacity(1 << 30);
//! let shadow = options.open(&path)?;
//! shadow.grow(4096)?; // the first page, all zero, may be used
//! let counter: *mut u64 = shadow.base().cast();
//! // SAFETY: inside what was grown, aligned, and no other thread uses it.
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
//! A transaction that knows its words commits by value, in steps: see [`LogLease`].
//!
//! The bytes: docs/format/shadow.md. The design and its reasons: docs/decisions/shadow.md. Source: the Mangosteen
//! paper (USENIX ATC 2024), section 4.3, figures 3 and 4.

mod check;
mod copy;
mod homes;
mod layout;
mod log;
mod log_backing;
mod opening;
mod options;
mod order;
mod recovery;
mod replay;
mod ring;
mod shadow;
mod stat;
mod sync;
mod ticket;

pub use copy::copy::ShadowCopy;
pub use log::lease::LogLease;
pub use mangrove_pool::{
    AddressChoice, CheckReport, Create, Domain, Durability, Error, FlushCost, FlushInstruction, Latency,
    Medium, MediumKind, PoolConfig, Region, Result, Start, Storage, pool_config_setters,
};
pub use options::{CAPACITY_BYTES_DEFAULT, CAPACITY_BYTES_MAX, LOG_COUNT_MAX, Options};
pub use order::Order;
pub use recovery::threads::REPLAYER_COUNT_MAX;
pub use shadow::Shadow;
pub use stat::{LastOpening, RecoveryReport, Stat};
pub use ticket::Ticket;
