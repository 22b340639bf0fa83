//! docs/format/arena.md and the code say the same.

use crate::bytes::class::CLASS_BYTES;
use crate::bytes::layout::{Head, PageGroup, SLAB_SLOTS_MAX, Shard, Span};
use std::mem::offset_of;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/arena.md");
    std::fs::read_to_string(path).unwrap()
}

/// Offsets and sizes of the rows of the first table after `from`.
fn table(page: &str, from: &str) -> Vec<(usize, usize)> {
    let text = &page[page.find(from).unwrap_or_else(|| panic!("the page does not say {from:?}"))..];
    let rows = text.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.split('|').skip(1).map(|cell| cell.trim().parse().unwrap());
            (cells.next().unwrap(), cells.next().unwrap())
        })
        .collect()
}

#[test]
fn the_page_lists_the_fields_of_each_part() {
    let page = page();
    let head = [
        (offset_of!(Head, pages), 8),
        (offset_of!(Head, groups_max), 8),
        (offset_of!(Head, bins_used), 32),
        (offset_of!(Head, lists), 8 * CLASS_BYTES.len()),
        (offset_of!(Head, bins), 2048),
        (offset_of!(Head, shards), 8),
        (offset_of!(Head, shard_count), 8),
    ];
    assert_eq!(table(&page, "At offset 4096:"), head);
    let group = [
        (offset_of!(PageGroup, starts), 128),
        (offset_of!(PageGroup, touched), 128),
        (offset_of!(PageGroup, free_ends), 128),
        (offset_of!(PageGroup, spans), 1024 * size_of::<Span>()),
    ];
    assert_eq!(table(&page, "A group's description,"), group);
    let entry = [(0, 1), (1, 1), (2, 6), (8, 8), (16, 8), (24, 8), (offset_of!(Span, free), 32)];
    assert_eq!(table(&page, "An entry:"), entry);
    let shard =
        [(0, 8 * CLASS_BYTES.len()), (offset_of!(Shard, reserve), 8), (296, size_of::<Shard>() - 296)];
    assert_eq!(table(&page, "Shards: "), shard);
}

#[test]
fn the_page_lists_the_classes() {
    let page = page().split_whitespace().collect::<Vec<_>>().join(" ");
    let classes = CLASS_BYTES.map(|bytes| bytes.to_string()).join(", ");
    assert!(page.contains(&format!("Classes, bytes of a block: {classes}. A slab")), "{classes}");
    assert!(page.contains(&format!("at most {SLAB_SLOTS_MAX} blocks")));
    assert!(page.contains("A group's description, 65,920 bytes") && size_of::<PageGroup>() == 65_920);
}
