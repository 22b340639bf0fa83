//! A slice of the crash campaign on the map, a few silenced sites that it must catch, and a little
//! fuzzing: the long forms are `cargo xtask crash` and `cargo xtask fuzz`.

use mangrove_crashlab::{
    Campaign, CrashDomain, EngineKind, FEW_IMAGES, Limits, SiteKey, SiteKind, Sites, Violation, discover,
    domains_of, fuzz, mix,
};
use std::sync::Arc;

const SEED: u64 = 20;

fn campaign(domain: CrashDomain, images: u64) -> Campaign {
    let limits = Limits { cut_images: 6, again_every: 24, again_images: 8, extra_every: 8, images };
    Campaign { runs_max: 44, ..Campaign::new(domain, SEED, limits) }
}

fn no_violation(domain: CrashDomain) {
    match campaign(domain, 1500).sweep(&mut |_| {}) {
        Ok(tally) => assert!(tally.images() >= 1500, "{domain:?}: {} images", tally.images()),
        Err(v) => panic!("{}\n replay: cargo xtask crash --replay {}", v.message, v.token),
    }
}

#[test]
fn the_map_survives_adr_crashes() {
    no_violation(CrashDomain::Adr);
}

#[test]
fn the_map_survives_eadr_crashes() {
    no_violation(CrashDomain::Eadr);
}

#[test]
fn the_map_survives_crashes_on_disks() {
    no_violation(CrashDomain::File);
}

fn caught(site: &SiteKey) -> Option<Box<Violation>> {
    domains_of(site.kind).iter().find_map(|domain| {
        let campaign = Campaign { sites: Arc::new(Sites::without(site.clone())), ..campaign(*domain, 3000) };
        campaign.sweep(&mut |_| {}).err()
    })
}

/// The most-called flush and fence: a simulator that misses these faults is blind. (`cargo xtask crash --planted`
/// silences every call site of each kind.)
#[test]
fn the_busiest_flush_and_fence_are_caught_when_silenced() {
    let sites =
        discover(EngineKind::Map, SEED, false, FEW_IMAGES).expect("no violation without a planted bug");
    assert!(sites.len() > 20, "only {} sites reached", sites.len());
    for kind in [SiteKind::Flush, SiteKind::Fence] {
        let busiest = sites
            .iter()
            .filter(|(s, _)| s.kind == kind && is_foreground(s))
            .max_by_key(|(_, calls)| calls.total());
        let (site, _) = busiest.unwrap_or_else(|| panic!("no {kind} reached"));
        let violation = caught(site).unwrap_or_else(|| panic!("{site} silenced, and nothing noticed"));
        // The token names the image: replayed, it fails with the fault and passes without.
        let with_fault =
            Campaign { sites: Arc::new(Sites::without(site.clone())), ..campaign(CrashDomain::Adr, 1) };
        assert!(
            with_fault.replay(&violation.token).is_err(),
            "{} passes with {site} silenced",
            violation.token
        );
        match campaign(CrashDomain::Adr, 1).replay(&violation.token) {
            // Other events come then, and the second crash may lie behind the last one.
            Err(other) if !other.message.ends_with("no such event") => {
                panic!("{} fails without a fault: {}", violation.token, other.message)
            }
            _ => {}
        }
    }
}

/// Faults in allocation and in opening show late; faults at the call sites of the operations show at once.
fn is_foreground(site: &SiteKey) -> bool {
    !["alloc", "pool.rs", "recover.rs", "finish_recovery.rs"].iter().any(|part| site.file.contains(part))
}

/// One generator serves the fuzzers and this test: seeds, and mutations of them.
fn fuzz_a_little(seeds: &[Vec<u8>], inputs: u64, target: fn(&[u8]) -> Result<(), String>) {
    for count in 0..inputs {
        let random = mix(SEED, count);
        let mut input = seeds[(count % seeds.len() as u64) as usize].clone();
        for round in 0..random % 4 {
            let at = mix(random, round) as usize % input.len();
            input[at] = mix(random, round ^ 99) as u8;
        }
        if let Err(finding) = target(&input) {
            panic!("input {input:02x?}: {finding}");
        }
    }
}

#[test]
fn operations_with_crashes_agree_with_the_reference() {
    fuzz_a_little(&fuzz::operations_seeds(), 150, fuzz::operations);
}

#[test]
fn damaged_pools_are_refused_or_right() {
    fuzz_a_little(&fuzz::pool_seeds(), 600, fuzz::pool_opening);
}

#[test]
fn hostile_logs_do_no_harm() {
    fuzz_a_little(&fuzz::log_seeds(), 600, fuzz::log_parsing);
}
