//! docs/format/collections.md tells what the code does.

use super::{bytes, counter, handle, hash, map, map_table, node, order, ordered, queue, vector};

const PAGE: &str = include_str!("../../../../docs/format/collections.md");

/// The named rows of a section: offset, bytes, field.
fn rows(title: &str) -> Vec<(usize, Option<usize>, &str)> {
    let section =
        PAGE.split("\n## ").find(|section| section.starts_with(title)).expect("a section of this title");
    let cells = section.lines().filter(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        (cells.next(), cells.next(), cells.next())
    });
    cells
        .filter_map(|(offset, bytes, field)| {
            let field = field?.strip_prefix('`')?.strip_suffix('`')?;
            Some((offset?.parse().ok()?, bytes?.parse().ok(), field))
        })
        .collect()
}

#[test]
fn the_page_about_collections_tells_the_same() {
    let count = Some(counter::BYTES);
    assert_eq!(
        rows("Vector"),
        [
            (handle::AT_SHAPE, Some(8), "shape"),
            (vector::AT_LEN, Some(8), "length"),
            (vector::AT_SEGMENTS, Some(8 * vector::SEGMENT_COUNT), "segments"),
        ]
    );
    assert_eq!(
        rows("Hash map"),
        [
            (handle::AT_SHAPE, Some(8), "shape"),
            (map::AT_SEED, Some(8), "seed"),
            (map::AT_TABLE, Some(8), "table"),
            (map::AT_COUNTER, count, "count"),
            (0, Some(map_table::BUCKET_KEYS), "tags"),
            (map_table::BUCKET_KEYS, Some(1), "depth"),
            (map_table::AT_NEXT, Some(8), "next"),
            (map_table::AT_ENTRIES, None, "entries"),
        ]
    );
    assert_eq!(
        rows("Ordered map"),
        [
            (handle::AT_SHAPE, Some(8), "shape"),
            (ordered::AT_TREE, Some(8), "tree"),
            (ordered::AT_COUNTER, count, "count"),
            (node::AT_ORDER, Some(8), "order"),
            (node::AT_LINK, Some(8), "link"),
            (node::AT_KEYS, None, "keys"),
        ]
    );
    assert_eq!(
        rows("Queue"),
        [
            (handle::AT_SHAPE, Some(8), "shape"),
            (queue::AT_FIRST, Some(8), "first"),
            (queue::AT_POPPED, Some(8), "popped"),
            (queue::AT_LAST, Some(8), "last"),
            (queue::AT_PUSHED, Some(8), "pushed"),
            (queue::AT_FILLED, Some(8), "filled"),
            (queue::AT_NEXT, Some(8), "next"),
            (queue::AT_ELEMENTS, None, "elements"),
        ]
    );
    assert_eq!(rows("Byte strings"), [(0, Some(4), "length"), (4, Some(4), "prefix"), (8, Some(8), "rest")]);
}

#[test]
fn the_page_about_collections_tells_the_same_numbers() {
    let shape = handle::shape(handle::KIND_MAP, 8, 16);
    assert_eq!(shape, 0x0000_1000_0008_0102);
    assert_eq!(handle::shape(4, 1 << 30, 1 << 30) >> 16, (1 << 48) - 1);
    let kinds = [handle::KIND_VECTOR, handle::KIND_MAP, handle::KIND_ORDERED, handle::KIND_QUEUE];
    assert_eq!(kinds, [1, 2, 3, 4]);
    let numbers = [
        format!("{} words, one at every {} bytes", counter::PART_COUNT, counter::BYTES / counter::PART_COUNT),
        format!("{} addresses: segment `n` has room for {} *", vector::SEGMENT_COUNT, vector::FIRST),
        format!("Up to level {} they", map_table::PAGE_BITS),
        format!("the lower {} bits, its level", map_table::LEVEL_SHIFT),
        format!("{} times key and value", map_table::BUCKET_KEYS),
        format!("{} keys, then {} values", order::WIDTH, order::WIDTH),
        format!("height in the lowest {} bits", ordered::HEIGHT_MASK.count_ones()),
        format!("{} bytes of elements, but for 1 to {} ", queue::SEGMENT_BYTES, queue::SEGMENT_ELEMENTS_MAX),
        format!("Up to {} bytes of a string", bytes::INLINE_BYTES_MAX),
        format!("from seed ^ {:#X} on", hash::MIX[0]).replace("0X", "0x"),
        format!("fold(state ^ length, {:#X})", hash::MIX[1]).replace("0X", "0x"),
    ];
    for number in numbers {
        assert!(PAGE.contains(&number), "the page does not say {number:?}");
    }
    assert_eq!(size_of::<super::HeapBytes>(), 16);
}
