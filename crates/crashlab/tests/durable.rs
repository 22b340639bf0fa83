//! A slice of the crash campaign on the runtime of durable applications; the long form is `cargo xtask crash
//! --engine durable`. (Only `--planted` injects faults into it, in processes of their own, because an arena that
//! finds itself damaged aborts its program.)

use mangrove_crashlab::{Campaign, CrashDomain, EngineKind, Limits};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SEED: u64 = 30;

/// The state has one address, so one image is open at a time.
static ONE: Mutex<()> = Mutex::new(());

fn one() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn campaign(domain: CrashDomain, images: u64) -> Campaign {
    let limits = Limits { cut_images: 4, again_every: 24, again_images: 8, extra_every: 8, images };
    Campaign { engine: EngineKind::Durable, runs_max: 60, ..Campaign::new(domain, SEED, limits) }
}

fn no_violation(domain: CrashDomain, images: u64) {
    let _one = one();
    match campaign(domain, images).sweep(&mut |_| {}) {
        Ok(tally) => assert!(tally.images() >= images, "{domain:?}: {} images", tally.images()),
        Err(v) => panic!("{}\n replay: cargo xtask crash --replay {}", v.message, v.token),
    }
}

#[test]
fn the_runtime_survives_adr_crashes() {
    no_violation(CrashDomain::Adr, 1000);
}

#[test]
fn the_runtime_survives_eadr_crashes() {
    no_violation(CrashDomain::Eadr, 1000);
}

#[test]
fn the_runtime_survives_crashes_on_disks() {
    no_violation(CrashDomain::File, 600);
}
