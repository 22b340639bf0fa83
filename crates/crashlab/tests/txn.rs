//! Steps of the commit protocols, left out one at a time: each is caught, also one without which a commit waits for
//! what no thread will do. The long form is `cargo xtask crash --engine txn --planted`.

use mangrove_crashlab::{Campaign, CrashDomain, EngineKind, Limits, SiteKey, SiteKind, Sites, discover};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SEED: u64 = 1;

/// Which step is left out is one for the whole process: one test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn each_step_of_spht_is_caught_when_it_is_left_out() {
    let _turn = turn();
    let sites =
        discover(EngineKind::Txn, SEED, true, u64::MAX).expect("no violation without an injected fault");
    let steps: Vec<_> =
        sites.keys().filter(|site| site.kind == SiteKind::Step && site.file.ends_with("spht.rs")).collect();
    assert!(steps.len() >= 3, "{steps:?}");
    let mut in_vain = 0;
    for site in steps {
        let campaign = Campaign {
            engine: EngineKind::Txn,
            sites: Arc::new(Sites::without(site.clone())),
            ..Campaign::new(CrashDomain::Adr, SEED, Limits { images: 20_000, ..Limits::default() })
        };
        let caught = campaign.sweep(&mut |_| {}).expect_err(&format!("{site} left out, and nothing noticed"));
        in_vain += u32::from(caught.message.contains("waits for what no thread will do"));
    }
    // Without the marker (l.31 to l.40) a commit's wait for it never ends.
    assert!(in_vain > 0);
}

/// With volatile caches a commit in hardware seals its unit behind XEND. What stands between the number, which it draws
/// before, and the acknowledgement is caught on that path alone, without the campaigns of the other executors.
#[test]
fn each_step_behind_a_hardware_commit_is_caught_when_it_is_left_out() {
    let _turn = turn();
    let campaign = |sites: Sites, images| Campaign {
        engine: EngineKind::Txn,
        form: Some("txn-other".to_owned()),
        sites: Arc::new(sites),
        ..Campaign::new(CrashDomain::Adr, SEED, Limits { images, ..Limits::default() })
    };
    let without_fault = campaign(Sites::new(), 2_000);
    without_fault.sweep(&mut |_| {}).expect("no violation without an injected fault");
    let is_commit = |site: &SiteKey| {
        let orders = matches!(site.kind, SiteKind::Flush | SiteKind::Fence | SiteKind::Step);
        orders && ["txn/src/", "shadow/src/log/commit.rs"].iter().any(|part| site.file.contains(part))
    };
    let sites: Vec<_> = without_fault.sites.reached().into_keys().filter(is_commit).collect();
    let count =
        |kind, file| sites.iter().filter(|site| site.kind == kind && site.file.ends_with(file)).count();
    assert_eq!(
        count(SiteKind::Step, "executor/model.rs"),
        2,
        "the number inside, the seal behind: {sites:?}"
    );
    assert_eq!(count(SiteKind::Step, "one_fence.rs"), 2, "a commit's wait, a reader's: {sites:?}");
    assert!(count(SiteKind::Flush, "commit.rs") > 0 && count(SiteKind::Fence, "commit.rs") > 0, "{sites:?}");
    for site in sites {
        campaign(Sites::without(site.clone()), 20_000)
            .sweep(&mut |_| {})
            .expect_err(&format!("{site} left out, and nothing noticed"));
    }
}

/// By interval a commit is not waited for, but the creation of a heap is. A crash behind it finds a heap, not nothing
/// that recovery makes a heap of.
#[test]
fn a_heap_that_was_created_is_there() {
    let _turn = turn();
    let campaign = |sites: Sites, images| Campaign {
        engine: EngineKind::Txn,
        form: Some("txn-collections-other".to_owned()),
        sites: Arc::new(sites),
        runs_max: 2,
        ..Campaign::new(CrashDomain::File, SEED, Limits { images, ..Limits::default() })
    };
    let without_fault = campaign(Sites::new(), 300);
    without_fault.sweep(&mut |_| {}).expect("no violation without an injected fault");
    let is_sync = |site: &SiteKey| site.kind == SiteKind::Wait && site.file.ends_with("shadow/src/shadow.rs");
    let syncs: Vec<_> = without_fault.sites.reached().into_keys().filter(is_sync).collect();
    let found =
        syncs.into_iter().filter_map(|site| campaign(Sites::without(site), 300).sweep(&mut |_| {}).err());
    let found: Vec<String> = found.map(|violation| violation.message).collect();
    assert!(found.iter().any(|message| message.contains("recovery made it anew")), "{found:?}");
}

/// SPHT has flushes, fences and steps without which a crash loses commits on ADR. With persistent caches SPHT-eADR,
/// without and with flushes, loses none: it does not reach them, or does not need them.
#[test]
fn what_spht_needs_on_adr_is_harmless_to_spht_eadr_on_eadr() {
    let _turn = turn();
    const FORMS: [&str; 2] = ["txn-stamps", "txn-stamps-too"];
    let campaign = |domain, form: &str, sites: Sites, images| Campaign {
        engine: EngineKind::Txn,
        form: Some(form.to_owned()),
        sites: Arc::new(sites),
        ..Campaign::new(domain, SEED, Limits { images, ..Limits::default() })
    };
    let reached = |domain, form: &str| {
        let without_fault = campaign(domain, form, Sites::new(), 1_000);
        without_fault.sweep(&mut |_| {}).expect("no violation without an injected fault");
        let mut reached = without_fault.sites.reached();
        reached.retain(|site, _| {
            let orders = matches!(site.kind, SiteKind::Flush | SiteKind::Fence | SiteKind::Step);
            orders && ["txn/src/", "shadow/src/"].iter().any(|part| site.file.contains(part))
        });
        reached
    };
    let mut sites = reached(CrashDomain::Adr, FORMS[0]);
    sites.append(&mut reached(CrashDomain::Adr, FORMS[1]));
    let count = |kind| sites.keys().filter(|site| site.kind == kind).count();
    assert!(count(SiteKind::Flush) > 5 && count(SiteKind::Fence) > 5, "{sites:?}");
    assert_eq!(count(SiteKind::Step), 3, "a commit's wait, the marker, a reader's wait: {sites:?}");
    let mut needless = 0;
    for form in FORMS {
        let there = reached(CrashDomain::Eadr, form);
        assert!(there.keys().all(|site| site.kind != SiteKind::Step), "nothing is waited for: {there:?}");
        for site in sites.keys().filter(|site| there.contains_key(site)) {
            let without = campaign(CrashDomain::Eadr, form, Sites::without(site.clone()), 200);
            let tally = without
                .sweep(&mut |_| {})
                .unwrap_or_else(|violation| panic!("{form} without {site}: {}", violation.message));
            assert!(tally.images() >= 200, "{form} without {site}: {} images", tally.images());
            needless += 1;
        }
    }
    assert!(needless > 10, "{needless}");
    // On ADR none of these is needless: what a commit writes back and fences, and the marker.
    let commits =
        |site: &&SiteKey| ["log/commit.rs", "log/complete.rs"].iter().any(|f| site.file.ends_with(f));
    for site in sites.keys().filter(commits) {
        let caught = FORMS.iter().any(|form| {
            campaign(CrashDomain::Adr, form, Sites::without(site.clone()), 20_000).sweep(&mut |_| {}).is_err()
        });
        assert!(caught, "{site} left out on ADR, and nothing noticed");
    }
}

/// Each pair of executor and protocol that a heap may have on a medium is crashed, also where the large forms do not
/// have it; and where its commits and its readers wait, it is caught when they do not.
#[test]
fn the_other_pairs_of_executor_and_protocol_are_crashed() {
    use CrashDomain::{Adr, Eadr, File};
    let _turn = turn();
    for (form, domain, waits_in) in [
        ("txn-lock", Adr, Some("one_fence.rs")),
        ("txn-lock", Eadr, None),
        ("txn-lock", File, Some("group.rs")),
        ("txn-lock-stamps", Eadr, None),
        ("txn-lock-flush", Eadr, None),
        ("txn-model", File, Some("group.rs")),
    ] {
        // A tenth of the images goes to each of these forms.
        let campaign = |sites: Sites, images: u64| Campaign {
            engine: EngineKind::Txn,
            form: Some(form.to_owned()),
            sites: Arc::new(sites),
            ..Campaign::new(domain, SEED, Limits { images: 10 * images, ..Limits::default() })
        };
        let without_fault = campaign(Sites::new(), 500);
        let tally = without_fault
            .sweep(&mut |_| {})
            .unwrap_or_else(|v| panic!("{form} on {domain:?}: {}", v.message));
        assert!(tally.images() >= 500, "{form} on {domain:?}: {} images", tally.images());
        let Some(file) = waits_in else { continue };
        let reached = without_fault.sites.reached().into_keys();
        let waits: Vec<_> =
            reached.filter(|site| site.kind == SiteKind::Step && site.file.ends_with(file)).collect();
        assert_eq!(waits.len(), 2, "{form} on {domain:?}: a commit's wait, a reader's: {waits:?}");
        for site in waits {
            campaign(Sites::without(site.clone()), 10_000)
                .sweep(&mut |_| {})
                .expect_err(&format!("{form} on {domain:?}: {site} left out, and nothing noticed"));
        }
    }
}
