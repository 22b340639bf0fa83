//! What a commit costs: flushes, cache lines, fences and waits on a medium that is memory; log bytes on both media.
//! The table is a golden: `BLESS=1 cargo test -p mangrove-shadow --test costs` renews it.

#[path = "../../hart/tests/support/counting.rs"]
#[allow(dead_code, unreachable_pub, reason = "the costs need a part of it")]
mod counting;

use counting::{Cost, Counting};
use mangrove_shadow::{AddressChoice, Create, Domain, Medium, Options, Order, Shadow};
use std::fmt::Write;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/costs.golden");

/// A row: its name, and the ranges (offset, length) of the commit.
type Row = (&'static str, &'static [(usize, usize)]);

const ROWS: [Row; 11] = [
    ("nothing", &[]),
    ("8 bytes", &[(0, 8)]),
    ("32 bytes", &[(64, 32)]),
    ("2 ranges of 8 bytes", &[(0, 8), (4096, 8)]),
    ("3 ranges of 32 bytes", &[(0, 32), (4096, 32), (8192, 32)]),
    ("100 bytes", &[(100, 100)]),
    ("1 KiB", &[(0, 1024)]),
    ("8 KiB", &[(0, 8192)]),
    (
        "20 ranges of 5 bytes",
        &[
            (0, 5),
            (64, 5),
            (128, 5),
            (192, 5),
            (256, 5),
            (320, 5),
            (384, 5),
            (448, 5),
            (512, 5),
            (576, 5),
            (640, 5),
            (704, 5),
            (768, 5),
            (832, 5),
            (896, 5),
            (960, 5),
            (1024, 5),
            (1088, 5),
            (1152, 5),
            (1216, 5),
        ],
    ),
    ("500 ranges of 32 bytes", &FIVE_HUNDRED),
    ("100 KiB, longer than half the log", &[(0, 100 << 10)]),
];

const FIVE_HUNDRED: [(usize, usize); 500] = {
    let mut ranges = [(0, 32); 500];
    let mut at = 0;
    while at < 500 {
        ranges[at].0 = at * 64;
        at += 1;
    }
    ranges
};

fn options() -> Options {
    Options::new().create(Create::IfMissing).address(AddressChoice::Anywhere).background(false)
}

fn commit(shadow: &Shadow, ranges: &[(usize, usize)]) {
    let base = shadow.base() as usize;
    let ranges: Vec<_> = ranges.iter().map(|&(at, len)| (base + at, len)).collect();
    let ticket = shadow.commit(0, &ranges).unwrap();
    shadow.wait(ticket).unwrap();
}

fn log_written(shadow: &Shadow, work: impl FnOnce()) -> u64 {
    let before = shadow.stat().log_written;
    work();
    shadow.stat().log_written - before
}

#[test]
fn commits_cost_what_the_table_says() {
    let mut text =
        format!("{:<36} flushes  lines  fences  waits  log bytes  log bytes (file)\n", "commit of");
    let (region, medium) = Counting::region(4 << 20, false);
    let shadow = Shadow::on_region(region, &options().capacity(1 << 20).log_bytes(128 << 10)).unwrap();
    shadow.grow(256 << 10).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = options().medium(Medium::File).capacity(1 << 20).log_bytes(1 << 20);
    let file = file.open(directory.path().join("s")).unwrap();
    file.grow(256 << 10).unwrap();
    for (name, ranges) in ROWS {
        shadow.checkpoint().unwrap();
        let mut cost = Cost::default();
        let bytes = log_written(&shadow, || cost = medium.cost_of(|| commit(&shadow, ranges)));
        let file_bytes = log_written(&file, || commit(&file, ranges));
        let Cost { flushes, lines, fences, waits, .. } = cost;
        assert!(fences <= 2, "{name}: {cost:?}");
        writeln!(
            text,
            "{name:<36} {flushes:>7} {lines:>6} {fences:>7} {waits:>6} {bytes:>10} {file_bytes:>17}"
        )
        .unwrap();
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert!(golden == text, "costs changed (BLESS=1 renews the table):\n{text}\nwas:\n{golden}");
}

/// Where caches are persistent and gaps allowed, a commit that does not spill flushes nothing and has no fence.
#[test]
fn with_gaps_a_commit_flushes_nothing() {
    let (region, medium) = Counting::region(4 << 20, false);
    let options = options().domain(Domain::Eadr).order(Order::Gaps);
    let shadow = Shadow::on_region(region, &options.capacity(1 << 20).log_bytes(128 << 10)).unwrap();
    shadow.grow(256 << 10).unwrap();
    for (name, ranges) in &ROWS[..9] {
        let Cost { flushes, fences, .. } = medium.cost_of(|| commit(&shadow, ranges));
        assert_eq!((flushes, fences), (0, 0), "{name}");
    }
}
