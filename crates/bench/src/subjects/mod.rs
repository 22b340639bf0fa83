//! Whom the sections on emulated memory compare.

mod blart_index;
mod btree;
mod mangrove_index;
mod mangrove_store;
mod skiplist;

pub(crate) use mangrove_store::MangroveStore;

use crate::baselines::{ArtCow, FpTree, HartPaper, PArt, VolatileArt, Woart};
use crate::index::Index;
use crate::report::OURS;
use mangrove_pmem::Region;

/// The paper's own structure, as its algorithms are printed.
pub(crate) const HART_PAPER: &str = "HART-paper";
/// The volatile bound that the goals name.
pub(crate) const VOLATILE_ART: &str = "ART (volatile)";

/// A volatile ART of somebody else.
pub(crate) const BLART: &str = "blart (volatile)";

/// Makes an index in a region.
pub(crate) type Make = fn(Region) -> anyhow::Result<Box<dyn Index>>;

/// A structure under test.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// Makes it in a fresh region; volatile ones ignore the region.
    pub(crate) create: Make,
    /// Takes it up again from its region; none for volatile ones.
    pub(crate) recover: Option<Make>,
}

impl Subject {
    pub(crate) fn is_durable(&self) -> bool {
        self.recover.is_some()
    }

    /// Not one that is usable at once after a crash: recovery has something to do.
    pub(crate) fn rebuilds(&self) -> bool {
        matches!(self.name, OURS | HART_PAPER | "FPTree")
    }
}

/// All of them, Mangrove first.
pub(crate) fn all() -> Vec<Subject> {
    vec![
        Subject { name: OURS, create: mangrove_index::create, recover: Some(mangrove_index::recover) },
        Subject {
            name: HART_PAPER,
            create: |r| Ok(Box::new(HartPaper::create(r))),
            recover: Some(|r| Ok(Box::new(HartPaper::recover(r)))),
        },
        Subject {
            name: "WOART",
            create: |r| Ok(Box::new(Woart::create(r))),
            recover: Some(|r| Ok(Box::new(Woart::open(r)))),
        },
        Subject {
            name: "ART+CoW",
            create: |r| Ok(Box::new(ArtCow::create(r))),
            recover: Some(|r| Ok(Box::new(ArtCow::open(r)))),
        },
        Subject {
            name: "FPTree",
            create: |r| Ok(Box::new(FpTree::create(r))),
            recover: Some(|r| Ok(Box::new(FpTree::recover(r)))),
        },
        Subject {
            name: "P-ART",
            create: |r| Ok(Box::new(PArt::create(r))),
            recover: Some(|r| Ok(Box::new(PArt::open(r)))),
        },
        Subject { name: VOLATILE_ART, create: |_| Ok(Box::new(VolatileArt::new())), recover: None },
        Subject { name: BLART, create: |_| Ok(Box::new(blart_index::Blart::default())), recover: None },
        Subject { name: "BTreeMap", create: |_| Ok(Box::new(btree::BTree::default())), recover: None },
        Subject { name: "SkipMap", create: |_| Ok(Box::new(skiplist::Skip::default())), recover: None },
    ]
}
