//! The store-level simulator on a subject small enough to check by eye: no false alarm, every injected fault
//! caught, and the fault model itself.

use mangrove_crashlab::{
    Cell, CellFault, CrashDomain, Limits, Sites, StoreWorld, Subject, Sweep, Tally, Violation,
};
use std::sync::Arc;

fn sweep(domain: CrashDomain, sites: &Arc<Sites>) -> (Tally, Result<(), Box<Violation>>) {
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

#[test]
fn a_right_cell_passes_and_each_injected_fault_is_caught() {
    let sites = Arc::new(Sites::new());
    for domain in [CrashDomain::Adr, CrashDomain::Eadr] {
        let (tally, result) = sweep(domain, &sites);
        assert!(result.is_ok(), "{domain:?}: {result:?}");
        assert!(tally.distinct.len() > 100, "{domain:?}: {} images only", tally.distinct.len());
        assert!(tally.second > 20, "{domain:?}: {} second crashes only", tally.second);
    }
    let adr = [
        CellFault::SlotFlush,
        CellFault::WordFlush,
        CellFault::MiddleFence,
        CellFault::LastFence,
        CellFault::WordFirst,
    ];
    for (domain, faults) in [(CrashDomain::Adr, &adr[..]), (CrashDomain::Eadr, &adr[4..])] {
        for &fault in faults {
            Cell::inject(fault);
            let (_, result) = sweep(domain, &Arc::new(Sites::new()));
            let violation = result.expect_err(&format!("{fault:?} survived under {domain:?}"));
            // The token names the image: replaying it fails again, and passes without the fault.
            let machine = || StoreWorld::new(domain, Cell::REGION_BYTES);
            let mut again = Sweep::new(domain, 0, Limits::default(), Arc::new(Sites::new()), machine);
            assert!(again.replay::<Cell>(&violation.token).is_err(), "{fault:?}: {} passes", violation.token);
            Cell::inject(CellFault::None);
            match again.replay::<Cell>(&violation.token) {
                // Other events come then, and the second crash may lie behind the last one.
                Err(other) if !other.message.ends_with("no such event") => {
                    panic!("without {fault:?}: {other:?}")
                }
                _ => {}
            }
        }
    }
    // Flushes and fences that eADR does not need may be left out there.
    for fault in &adr[..4] {
        Cell::inject(*fault);
        let (_, result) = sweep(CrashDomain::Eadr, &sites);
        assert!(result.is_ok(), "{fault:?} is no fault under eADR: {result:?}");
    }
    Cell::inject(CellFault::None);

    // The same by suppressing call sites that the simulator found by itself.
    let reached = sites.reached();
    let toy: Vec<_> = reached.keys().filter(|s| s.file.ends_with("toy.rs")).collect();
    assert!(toy.len() == 8, "{toy:?}");
    for site in toy {
        let (_, result) = sweep(CrashDomain::Adr, &Arc::new(Sites::without(site.clone())));
        let wait = site.kind == mangrove_crashlab::SiteKind::Wait;
        // Suppressing a wait changes nothing on this medium: a fence makes bytes durable.
        assert_eq!(result.is_ok(), wait, "{site}: {result:?}");
    }
}
