//! A slice of the crash campaign on the runtime of durable applications, and a few silenced sites that it must catch:
//! the long forms are `cargo xtask crash --engine durable` and the same with `--planted`.

use mangrove_crashlab::{
    Campaign, Domain, Engine, Limits, SiteKey, SiteKind, Sites, Violation, discover, domains_of,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SEED: u64 = 30;

/// The state has one address: one image is open at a time.
static ONE: Mutex<()> = Mutex::new(());

fn one() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn campaign(domain: Domain, images: u64) -> Campaign {
    let limits = Limits { cut_images: 4, again_every: 24, again_images: 8, extra_every: 8, images };
    Campaign { engine: Engine::Durable, runs_max: 60, ..Campaign::new(domain, SEED, limits) }
}

fn no_violation(domain: Domain, images: u64) {
    let _one = one();
    match campaign(domain, images).sweep(&mut |_| {}) {
        Ok(tally) => assert!(tally.images() >= images, "{domain:?}: {} images", tally.images()),
        Err(v) => panic!("{}\n replay: cargo xtask crash --replay {}", v.message, v.token),
    }
}

#[test]
fn the_runtime_survives_adr_crashes() {
    no_violation(Domain::Adr, 1000);
}

#[test]
fn the_runtime_survives_eadr_crashes() {
    no_violation(Domain::Eadr, 1000);
}

#[test]
fn the_runtime_survives_crashes_on_disks() {
    no_violation(Domain::File, 600);
}

fn caught(site: &SiteKey) -> Option<Box<Violation>> {
    domains_of(site.kind).iter().find_map(|domain| {
        let campaign = Campaign { sites: Arc::new(Sites::without(site.clone())), ..campaign(*domain, 4000) };
        campaign.sweep(&mut |_| {}).err()
    })
}

/// The most-called report of the arena, of the variables and of the image.
#[test]
fn the_busiest_reports_are_caught_when_silenced() {
    let _one = one();
    let sites = discover(Engine::Durable, SEED).expect("no violation without a planted bug");
    for part in ["durable/src/arena/", "durable/src/globals.rs", "durable/src/image.rs"] {
        let ours = sites.iter().filter(|(s, _)| s.kind == SiteKind::Report && s.file.contains(part));
        let (site, _) = ours.max_by_key(|(_, n)| **n).unwrap_or_else(|| panic!("no report in {part}"));
        assert!(caught(site).is_some(), "{site} silenced, and nothing noticed");
    }
}
