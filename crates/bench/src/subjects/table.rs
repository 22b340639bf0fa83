//! The structures under test: their names, and how each is made and recovered.

use super::{blart_index, btree, mangrove_index, skiplist};
use crate::baselines::{ArtCow, FpTree, HartPaper, PArt, VolatileArt, Woart};
use crate::harness::index::BenchIndex;
use crate::report::report::OURS;
use mangrove_pool::Region;

/// The paper's own structure, as its algorithms are printed.
pub(crate) const HART_PAPER: &str = "HART-paper";
/// The volatile bound that the goals name.
pub(crate) const VOLATILE_ART: &str = "ART (volatile)";

/// Mangrove with the paper's lock for each tree: what its locks for single nodes are compared with.
pub(crate) const TREE_LOCKS: &str = "Mangrove (lock per tree)";

/// A volatile ART by another author.
pub(crate) const BLART: &str = "blart (volatile)";

/// Makes an index in a region.
pub(crate) type Make = fn(Region) -> anyhow::Result<Box<dyn BenchIndex>>;

/// A structure under test.
pub(crate) struct IndexKind {
    pub(crate) name: &'static str,
    /// Makes it in a fresh region; volatile ones ignore the region.
    pub(crate) create: Make,
    /// Recovers it from its region; `None` for volatile ones.
    pub(crate) recover: Option<Make>,
}

impl IndexKind {
    pub(crate) fn is_durable(&self) -> bool {
        self.recover.is_some()
    }

    /// True if recovery has to rebuild something before the structure is usable.
    pub(crate) fn rebuilds(&self) -> bool {
        matches!(self.name, OURS | HART_PAPER | "FPTree")
    }
}

/// Subjects that only the section `threads` measures, besides all others.
pub(crate) fn of_threads() -> Vec<IndexKind> {
    vec![IndexKind {
        name: TREE_LOCKS,
        create: mangrove_index::create_with_tree_locks,
        recover: Some(mangrove_index::recover),
    }]
}

/// All other subjects, Mangrove first.
pub(crate) fn all() -> Vec<IndexKind> {
    vec![
        IndexKind { name: OURS, create: mangrove_index::create, recover: Some(mangrove_index::recover) },
        IndexKind {
            name: HART_PAPER,
            create: |r| Ok(Box::new(HartPaper::create(r))),
            recover: Some(|r| Ok(Box::new(HartPaper::recover(r)))),
        },
        IndexKind {
            name: "WOART",
            create: |r| Ok(Box::new(Woart::create(r))),
            recover: Some(|r| Ok(Box::new(Woart::open(r)))),
        },
        IndexKind {
            name: "ART+CoW",
            create: |r| Ok(Box::new(ArtCow::create(r))),
            recover: Some(|r| Ok(Box::new(ArtCow::open(r)))),
        },
        IndexKind {
            name: "FPTree",
            create: |r| Ok(Box::new(FpTree::create(r))),
            recover: Some(|r| Ok(Box::new(FpTree::recover(r)))),
        },
        IndexKind {
            name: "P-ART",
            create: |r| Ok(Box::new(PArt::create(r))),
            recover: Some(|r| Ok(Box::new(PArt::open(r)))),
        },
        IndexKind { name: VOLATILE_ART, create: |_| Ok(Box::new(VolatileArt::new())), recover: None },
        IndexKind { name: BLART, create: |_| Ok(Box::new(blart_index::Blart::default())), recover: None },
        IndexKind { name: "BTreeMap", create: |_| Ok(Box::new(btree::BTree::default())), recover: None },
        IndexKind { name: "SkipMap", create: |_| Ok(Box::new(skiplist::Skip::default())), recover: None },
    ]
}
