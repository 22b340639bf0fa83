//! A slice of the crash campaign on the shadow, and a few faults that it must catch; the long forms are `cargo
//! xtask crash --engine shadow` and the same with `--planted`.

use mangrove_crashlab::{
    Campaign, CrashDomain, EngineKind, Limits, SiteKey, SiteKind, Sites, Violation, discover, domains_of,
};
use std::sync::Arc;

const SEED: u64 = 20;

fn campaign(domain: CrashDomain, images: u64) -> Campaign {
    let limits = Limits { cut_images: 6, again_every: 24, again_images: 8, extra_every: 8, images };
    Campaign { engine: EngineKind::Shadow, runs_max: 60, ..Campaign::new(domain, SEED, limits) }
}

fn no_violation(domain: CrashDomain) {
    match campaign(domain, 2000).sweep(&mut |_| {}) {
        Ok(tally) => assert!(tally.images() >= 2000, "{domain:?}: {} images", tally.images()),
        Err(v) => panic!("{}\n replay: cargo xtask crash --replay {}", v.message, v.token),
    }
}

#[test]
fn the_shadow_survives_adr_crashes() {
    no_violation(CrashDomain::Adr);
}

#[test]
fn the_shadow_survives_eadr_crashes() {
    no_violation(CrashDomain::Eadr);
}

#[test]
fn the_shadow_survives_crashes_on_disks() {
    no_violation(CrashDomain::File);
}

fn caught(site: &SiteKey) -> Option<Box<Violation>> {
    domains_of(site.kind).iter().find_map(|domain| {
        let campaign = Campaign { sites: Arc::new(Sites::without(site.clone())), ..campaign(*domain, 6000) };
        campaign.sweep(&mut |_| {}).err()
    })
}

/// The most-called site of each kind in the engine's own sources.
#[test]
fn the_busiest_site_of_each_kind_is_caught_when_silenced() {
    let sites =
        discover(EngineKind::Shadow, SEED, true, u64::MAX).expect("no violation without a planted bug");
    for kind in [SiteKind::Flush, SiteKind::Fence, SiteKind::Wait] {
        let ours = sites.iter().filter(|(s, _)| s.kind == kind && s.file.contains("shadow/src/"));
        let (site, _) =
            ours.max_by_key(|(_, calls)| calls.total()).unwrap_or_else(|| panic!("no {kind} reached"));
        assert!(caught(site).is_some(), "{site} silenced, and nothing noticed");
    }
}
