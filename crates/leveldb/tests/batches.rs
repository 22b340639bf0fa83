//! What a record costs in batches of a thousand to a million records, in processor time: a batch's time grows as its
//! length does.

mod common;

use common::{ENGINES, Whose, build, has_leveldb, run, under_leveldbs_names};

const RECORDS: &str = "1000000";
/// The goal is 2, and docs/bench/leveldb.md tells what is measured. Other programs take their share of the processor's
/// caches, so this test allows more; a time that grows with the square of the length is a hundred times the least.
const RATIO_MAX: f64 = 5.0;

/// `cargo test --release -p mangrove-leveldb --test batches -- --ignored --nocapture` prints the figures of
/// docs/bench/leveldb.md.
#[test]
#[ignore = "half a minute"]
fn a_record_costs_the_same_in_a_batch_of_any_length() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("batches", parent.path());
    let folder = under_leveldbs_names(parent.path());
    for whose in [Whose::LevelDb].into_iter().chain(ENGINES.map(|engine| Whose::Ours(&folder, engine))) {
        let costs = ["1000", "10000", "100000", "1000000"].map(|length| {
            let data = parent.path().join("data");
            let said = run(whose.command(&program).arg(&data).args([length, RECORDS])).stdout;
            std::fs::remove_dir_all(&data).expect("remove");
            let said = String::from_utf8(said).expect("UTF-8");
            let cost: f64 = said.split(' ').next().expect("a number").parse().expect("a number");
            eprintln!("{whose:?}: batches of {length}: {cost} ns a record");
            cost
        });
        let (least, most) = costs.iter().fold((f64::MAX, 0.0_f64), |(a, b), c| (a.min(*c), b.max(*c)));
        let is_ours = matches!(whose, Whose::Ours(..));
        assert!(!is_ours || most <= RATIO_MAX * least, "{whose:?}: from {least} to {most} ns a record");
    }
}
