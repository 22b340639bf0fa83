//! The calls of the medium that each operation makes: flushes, cache lines, bytes, fences, waits. The table is a
//! golden: `BLESS=1 cargo test -p mangrove-hart --test costs` renews it.

mod support;

use mangrove_hart::{Batch, Hart, Options, WriteMode};
use std::fmt::Write;
use std::ops::Bound;
use support::{Cost, Counting};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/costs.golden");

struct Table {
    text: String,
    medium: std::sync::Arc<Counting>,
}

impl Table {
    fn row(&mut self, name: &str, work: impl FnOnce()) -> Cost {
        let cost = self.medium.cost_of(work);
        let Cost { flushes, lines, bytes, fences, waits } = cost;
        writeln!(self.text, "{name:<44} {flushes:>7} {lines:>6} {bytes:>8} {fences:>7} {waits:>6}").unwrap();
        cost
    }
}

#[test]
fn operations_cost_what_the_table_says() {
    let (region, medium) = Counting::region(64 << 20, false);
    let hart = Hart::create(region, &Options::default()).unwrap();
    let mode = WriteMode::Durable;
    let put = |key: &str, len: usize| hart.put(key.as_bytes(), &vec![b'v'; len], mode).unwrap();
    // Allocates a segment of every class that the rows use.
    for (key, len) in [("warm-1", 8), ("warm-200000000002", 100), ("warm-3", 1000), (&*"w".repeat(100), 8)] {
        put(key, len);
    }
    let header = format!("{:<44} flushes  lines    bytes  fences  waits\n", "operation");
    let mut table = Table { text: header, medium };

    let insert = table.row("insert, 16 B key, 8 B value", || put("key-000000000001", 8));
    assert!(insert.fences <= 2, "{insert:?}");
    let insert = table.row("insert, 16 B key, 100 B value", || put("key-000000000002", 100));
    assert!(insert.fences <= 2, "{insert:?}");
    table.row("insert, 100 B key, 1000 B value", || put(&"k".repeat(100), 1000));
    let update = table.row("update in place, 8 B value", || put("key-000000000001", 8));
    assert!(update.fences <= 1, "{update:?}");
    let update = table.row("update in another slot, 100 B value", || put("key-000000000002", 100));
    assert!(update.fences <= 3, "{update:?}");
    table.row("update in a block, 1000 B value", || put(&"k".repeat(100), 1000));
    let update = table.row("update, 8 B to 100 B", || put("key-000000000001", 100));
    assert!(update.fences <= 3, "{update:?}");
    let update = table.row("update, 100 B to 8 B", || put("key-000000000001", 8));
    assert!(update.fences <= 1, "{update:?}");
    let delete = table.row("delete, 8 B value", || assert!(hart.delete(b"key-000000000001", mode).unwrap()));
    assert!(delete.fences <= 1, "{delete:?}");
    let delete =
        table.row("delete, 100 B value", || assert!(hart.delete(b"key-000000000002", mode).unwrap()));
    assert!(delete.fences <= 1, "{delete:?}");
    let nothing = table.row("delete of an absent key", || assert!(!hart.delete(b"absent", mode).unwrap()));
    assert_eq!(nothing.flushes + nothing.fences, 0);
    let nothing = table.row("get", || assert!(hart.get(b"warm-1").unwrap().is_some()));
    assert_eq!(nothing, Cost::default());
    let nothing = table.row("insert_new of a present key", || {
        assert!(!hart.insert_new(b"warm-1", b"other", mode).unwrap());
    });
    assert_eq!(nothing, Cost::default());
    table.row("compare_and_set, 8 B value", || {
        assert!(hart.compare_and_set(b"warm-1", Some(&[b'v'; 8]), Some(b"otherval"), mode).unwrap());
    });
    table.row("insert, 200 kB value (extent)", || put("large", 200_000));
    table.row("update, 200 kB value (extent)", || put("large", 200_000));
    table.row("delete, 200 kB value (extent)", || assert!(hart.delete(b"large", mode).unwrap()));
    let batch = |count: u32, value: &[u8]| {
        let mut batch = Batch::new();
        (0..count).for_each(|i| {
            batch.put(format!("batch-{i:04}"), value);
        });
        batch
    };
    let small =
        table.row("batch of 10 inserts, 8 B values", || hart.write(batch(10, b"12345678"), mode).unwrap());
    assert!(small.fences <= 4, "{small:?}");
    table.row("batch of 10 updates, 8 B values", || hart.write(batch(10, b"abcdefgh"), mode).unwrap());
    table.row("batch of 1000, 100 B values", || hart.write(batch(1000, &[b'v'; 100]), mode).unwrap());
    let range = table.row("range delete of 1000", || {
        let (start, end) = (Bound::Included(&b"batch-"[..]), Bound::Excluded(&b"batch."[..]));
        assert_eq!(hart.delete_range(start, end, mode).unwrap(), 1000);
    });
    // 4 of its own; the segments that became empty are recycled, with one each.
    assert!(range.fences <= 8, "{range:?}");
    table.row("snapshot and range of everything", || {
        hart.range(Bound::Unbounded, Bound::Unbounded).unwrap().for_each(|record| drop(record.unwrap()));
    });
    let many = table.row("7,896 inserts: a segment of the smallest leaves", || {
        (0..7896).for_each(|i| put(&format!("m{i:08}"), 8));
    });
    // The segment itself: 2 fences, and 1 for the high water when the medium grows.
    assert!(many.fences <= 2 * 7896 + 3, "{many:?}");

    assert!(hart.check().unwrap().is_sound());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(GOLDEN, &table.text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert!(
        golden == table.text,
        "costs changed (BLESS=1 renews the table):\n{}\nwas:\n{golden}",
        table.text
    );
}
