//! The steps of the protocols with time stamps, left out one at a time: each is caught, also one without which a commit
//! waits for what no thread will do. The long form is `cargo xtask crash --engine txn --planted`.

use mangrove_crashlab::{Campaign, CrashDomain, EngineKind, Limits, SiteKind, Sites, discover};
use std::sync::Arc;

const SEED: u64 = 1;

#[test]
fn each_step_of_spht_is_caught_when_it_is_left_out() {
    let sites = discover(EngineKind::Txn, SEED, true).expect("no violation without an injected fault");
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
