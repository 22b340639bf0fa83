//! Space that is given back on disks: a region whose contents are compared byte by byte, and the faults around a hole
//! that it must catch. The maps that compact are in the campaign of `cargo xtask crash`.

use mangrove_crashlab::{Campaign, CrashDomain, Limits, SiteKey, SiteKind, Sites, Violation};
use std::sync::Arc;

const SEED: u64 = 7;

fn campaign(form: &str, images: u64) -> Campaign {
    let limits = Limits { cut_images: 6, again_every: 24, again_images: 8, extra_every: 8, images };
    let form = Some(form.to_owned());
    Campaign { runs_max: 200, form, ..Campaign::new(CrashDomain::File, SEED, limits) }
}

#[test]
fn what_was_given_back_survives_crashes() {
    for form in ["map-space", "map-space-interval", "map-compacts", "map-compacts-interval"] {
        // A form in a tenth of the images of a campaign on maps.
        match campaign(form, 15_000).sweep(&mut |_| {}) {
            Ok(tally) => assert!(tally.images() >= 1500, "{form}: {} images", tally.images()),
            Err(v) => panic!("{}\n replay: cargo xtask crash --replay {}", v.message, v.token),
        }
    }
}

fn violation_without(site: &SiteKey) -> Option<Box<Violation>> {
    let campaign =
        Campaign { sites: Arc::new(Sites::without(site.clone())), ..campaign("map-space", 40_000) };
    campaign.sweep(&mut |_| {}).err()
}

/// The record of what is given back, and all that orders it, the checksums and the holes.
#[test]
fn each_fault_around_a_hole_is_caught() {
    let clean = campaign("map-space", 5_000);
    clean.sweep(&mut |_| {}).expect("no violation without a fault");
    let reached = clean.sites.reached();
    let of = |file: &str, kind| -> Vec<SiteKey> {
        let sites = reached.keys().filter(|site| site.file.ends_with(file) && site.kind == kind);
        let sites: Vec<_> = sites.cloned().collect();
        assert!(!sites.is_empty(), "no {kind} in {file} was reached");
        sites
    };
    let sites = [
        of("engines/space.rs", SiteKind::GiveBack),
        of("file/checkpoint.rs", SiteKind::LateWrite),
        of("file/checkpoint.rs", SiteKind::Sync),
    ]
    .concat();
    // Checksums, holes, zeros, pages; the syncs of checksums, pages, and both superblocks.
    assert!(sites.len() >= 8, "{sites:?}");
    for site in sites {
        assert!(violation_without(&site).is_some(), "{site} silenced, and nothing noticed");
    }
}
