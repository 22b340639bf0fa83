//! The disk simulator under the real pool code, with a subject small enough to check by eye.

use mangrove_crashlab::{
    Cell, CrashDomain, FilePlan, FileWorld, Limits, SiteKey, Sites, Sweep, Tally, Violation,
};
use std::sync::Arc;

fn sweep(sites: &Arc<Sites>, runs: u64) -> (Tally, Result<(), Box<Violation>>) {
    let limits = Limits { cut_images: 24, again_every: 6, again_images: 12, extra_every: 1, images: 100_000 };
    let plan = FilePlan { capacity: 64 << 10, log_bytes: 16 << 10, ..FilePlan::default() };
    let mut sweep = Sweep::new(CrashDomain::File, 1, limits, sites.clone(), || FileWorld::new(plan));
    let mut tally = Tally::default();
    for run in 0..runs {
        if let Err(violation) = sweep.run::<Cell>(run, &mut tally) {
            return (tally, Err(violation));
        }
    }
    (tally, Ok(()))
}

#[test]
fn a_right_cell_passes_and_lost_syncs_are_caught() {
    let sites = Arc::new(Sites::new());
    let (tally, result) = sweep(&sites, 3);
    assert!(result.is_ok(), "{result:?}");
    assert!(tally.images() > 100 && tally.second > 20, "{} images, {} second", tally.images(), tally.second);
    let reached: Vec<SiteKey> =
        sites.reached().into_keys().filter(|s| s.file.contains("pool/src/")).collect();
    assert!(reached.len() > 3, "{reached:?}");
    let mut survivors = Vec::new();
    for site in reached {
        // The rewrite of a copy that is not durable needs a kill in a close, and a tear after it, which 12 runs have
        // not.
        let (_, result) = sweep(&Arc::new(Sites::without(site.clone())), 60);
        if result.is_ok() {
            survivors.push(site.to_string());
        }
    }
    assert!(survivors.is_empty(), "{survivors:#?}");
}
