//! The store-level simulator on a subject small enough to check by eye: no false alarm, every planted
//! bug caught, and the fault model itself.

use mangrove_crashlab::{Cell, CellBug, Domain, Limits, Sites, StoreWorld, Subject, Sweep, Tally, Violation};
use std::sync::Arc;

fn sweep(domain: Domain, sites: &Arc<Sites>) -> (Tally, Result<(), Box<Violation>>) {
    let limits = Limits { cut_images: 64, again_every: 4, again_images: 8, extra_every: 1, images: 100_000 };
    let machine = || StoreWorld::new(domain, Cell::REGION_BYTES);
    let mut sweep = Sweep::new(domain, 1, limits, sites.clone(), machine);
    let mut tally = Tally::default();
    for run in 0..8 {
        if let Err(violation) = sweep.run::<Cell>(run, &mut tally) {
            return (tally, Err(violation));
        }
    }
    (tally, Ok(()))
}

/// One test, because the planted bug is a global of the process.
#[test]
fn a_right_cell_passes_and_each_planted_bug_is_caught() {
    let sites = Arc::new(Sites::new());
    for domain in [Domain::Adr, Domain::Eadr] {
        let (tally, result) = sweep(domain, &sites);
        assert!(result.is_ok(), "{domain:?}: {result:?}");
        assert!(tally.distinct.len() > 100, "{domain:?}: {} images only", tally.distinct.len());
        assert!(tally.second > 20, "{domain:?}: {} second crashes only", tally.second);
    }
    let adr = [
        CellBug::SlotFlush,
        CellBug::WordFlush,
        CellBug::MiddleFence,
        CellBug::LastFence,
        CellBug::WordFirst,
    ];
    for (domain, bugs) in [(Domain::Adr, &adr[..]), (Domain::Eadr, &adr[4..])] {
        for &bug in bugs {
            Cell::plant(bug);
            let (_, result) = sweep(domain, &Arc::new(Sites::new()));
            let violation = result.expect_err(&format!("{bug:?} survived under {domain:?}"));
            // The token names the image: replaying it fails again, and passes without the bug.
            let machine = || StoreWorld::new(domain, Cell::REGION_BYTES);
            let mut again = Sweep::new(domain, 0, Limits::default(), Arc::new(Sites::new()), machine);
            assert!(again.replay::<Cell>(&violation.token).is_err(), "{bug:?}: {} passes", violation.token);
            Cell::plant(CellBug::None);
        }
    }
    // Flushes and fences that eADR does not need are no bugs there.
    for bug in &adr[..4] {
        Cell::plant(*bug);
        let (_, result) = sweep(Domain::Eadr, &sites);
        assert!(result.is_ok(), "{bug:?} is no bug under eADR: {result:?}");
    }
    Cell::plant(CellBug::None);

    // The same by silencing call sites that the simulator found by itself.
    let reached = sites.reached();
    let toy: Vec<_> = reached.keys().filter(|s| s.file.ends_with("toy.rs")).collect();
    assert!(toy.len() == 8, "{toy:?}");
    for site in toy {
        let (_, result) = sweep(Domain::Adr, &Arc::new(Sites::without(site.clone())));
        let wait = site.kind == mangrove_crashlab::SiteKind::Wait;
        // A wait is nothing on this medium: a fence is what makes bytes durable.
        assert_eq!(result.is_ok(), wait, "{site}: {result:?}");
    }
}
