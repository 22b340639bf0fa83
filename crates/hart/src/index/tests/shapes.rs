//! Every layout, growing and shrinking, and the trees that recovery builds.

use std::cell::Cell;
use std::ops::Bound;

use super::super::arena::CHUNKS_LIVE;
use super::super::{BuildItem, Direction, DuplicateKey, Index, Intent, LeafChange, entry_of};
use super::audit::audit;
use super::heap::Heap;
use super::model::{delete, get, put, scan};

fn head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let rest = key.get(2..).unwrap_or(&[]);
    let len = rest.len().min(8);
    head[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(head)
}

/// A fixed order of 0..256 that is neither ascending nor descending.
fn shuffled() -> impl DoubleEndedIterator<Item = u8> {
    (0..=255_u8).map(|byte| byte.wrapping_mul(167).wrapping_add(13))
}

#[test]
fn a_node_grows_through_all_layouts_and_back() {
    for stem in [b"xy".to_vec(), vec![b'z'; 40], vec![0; 1000]] {
        let index = Index::new(Heap::new(300, 1024));
        let key = |byte: u8| [stem.as_slice(), &[byte]].concat();
        put(&index, &stem, 1000);
        for byte in shuffled() {
            put(&index, &key(byte), u64::from(byte));
            assert_eq!(get(&index, &stem), Some(1000));
            if byte % 8 == 0 {
                audit(&index);
            }
        }
        assert_eq!(index.stats().nodes, [0, 0, 0, 0, 1]);
        for byte in shuffled().rev() {
            assert_eq!(get(&index, &key(byte)), Some(u64::from(byte)));
            assert_eq!(delete(&index, &key(byte)), Some(u64::from(byte)));
            assert_eq!(get(&index, &key(byte)), None);
            if byte % 8 == 0 {
                audit(&index);
            }
        }
        assert_eq!(index.stats().nodes, [0; 5], "one key needs no node");
        assert_eq!(scan(&index, Bound::Unbounded, Direction::Forward), [(stem.clone(), 1000)]);
    }
}

#[test]
fn prefixes_of_each_other_and_zero_bytes_are_ordinary_keys() {
    let index = Index::new(Heap::new(2100, 1024));
    let mut keys: Vec<Vec<u8>> = (0..=1024).flat_map(|len| [vec![0; len], vec![b'k'; len]]).collect();
    keys.sort();
    keys.dedup();
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(put(&index, key, number as u64), None);
    }
    assert_eq!(audit(&index).len(), keys.len());
    let forward = scan(&index, Bound::Unbounded, Direction::Forward);
    assert!(forward.iter().map(|pair| &pair.0).eq(&keys));
    let backward = scan(&index, Bound::Unbounded, Direction::Backward);
    assert!(backward.iter().rev().eq(&forward));
    for key in &keys {
        assert!(delete(&index, key).is_some());
    }
    assert!(audit(&index).is_empty());
}

#[test]
fn a_walk_in_order_needs_no_deep_stack() {
    // A node for each level, keys of zeros beside keys of other bytes, and every layout.
    let index = Index::new(Heap::new(4096, 1024));
    let mut keys: Vec<Vec<u8>> = (0..=1024).flat_map(|len| [vec![0; len], vec![b'k'; len]]).collect();
    for many in [3, 10, 16, 48, 256] {
        keys.extend((0..many).map(|n: u32| [&[b'x', b'y', many as u8][..], &[n as u8, b'z']].concat()));
    }
    keys.sort();
    keys.dedup();
    for (number, key) in keys.iter().enumerate() {
        put(&index, key, number as u64);
    }
    // As small as docs/c-api.md allows.
    let values = std::thread::scope(|threads| {
        let walk = || {
            let mut values = Vec::new();
            index.in_order(|leaf| values.push(index.keys.value(leaf).unwrap()));
            values
        };
        std::thread::Builder::new().stack_size(32 << 10).spawn_scoped(threads, walk).unwrap().join().unwrap()
    });
    assert!(values.into_iter().eq(0..keys.len() as u64));
}

#[test]
fn a_path_collapses_although_the_node_above_changes_meanwhile() {
    // One more child changes the node above in place, four make it grow out of its layout and away.
    for added in [1, 4] {
        let index = Index::new(Heap::new(16, 16));
        for key in ["abX1", "abX2", "abY"] {
            put(&index, key.as_bytes(), 1);
        }
        index.modify(b"abX1", Intent::Existing, |_| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..added).for_each(|byte| assert_eq!(put(&index, &[b'a', b'b', byte], 2), None))
                });
            });
            (LeafChange::Remove, ())
        });
        assert_eq!(audit(&index).len(), 2 + usize::from(added));
        assert_eq!(index.stats().nodes.iter().sum::<u64>(), 1, "only the node above is left");
        assert_eq!(get(&index, b"abX2"), Some(1));
        assert_eq!(get(&index, b"abX1"), None);
    }
}

#[test]
fn a_built_tree_is_the_inserted_one() {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for a in 0..=255_u8 {
        for len in 0..4 {
            keys.push([b"ab".as_slice(), &vec![0; len], &[a]].concat());
        }
        keys.push([b"ab".as_slice(), &[b'x'; 300], &[a, a]].concat());
        keys.push([b"ab".as_slice(), &vec![b'y'; usize::from(a)]].concat());
        keys.push([b"ab".as_slice(), &vec![0; usize::from(a)]].concat());
    }
    keys.sort();
    keys.dedup();
    let (built, inserted) = (Index::new(Heap::new(3000, 1024)), Index::new(Heap::new(3000, 1024)));
    let mut items = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        put(&inserted, key, number as u64);
        items.push(BuildItem { head: head(key), leaf: built.keys.put(key, number as u64) });
    }
    items.reverse();
    let len = items.len();
    items.swap(3, len / 2);
    built.build_entry(entry_of(b"ab"), &mut items).expect("all keys differ");
    assert_eq!(audit(&built).len(), keys.len());
    let all = |index| scan(index, Bound::Unbounded, Direction::Forward);
    assert_eq!(all(&built), all(&inserted));
    for key in &keys {
        assert_eq!(get(&built, key), get(&inserted, key));
        assert!(delete(&built, key).is_some());
    }
    assert!(audit(&built).is_empty());
}

#[test]
fn two_leaves_of_one_key_are_refused() {
    for key in [b"ab".as_slice(), b"abc", b"ab\0", &[b'l'; 200]] {
        let index = Index::new(Heap::new(8, 1024));
        let leaves = [index.keys.put(key, 1), index.keys.put(key, 2)];
        let mut items = leaves.map(|leaf| BuildItem { head: head(key), leaf });
        let Err(DuplicateKey(one, other)) = index.build_entry(entry_of(key), &mut items) else {
            panic!("{key:?} was accepted twice");
        };
        assert!(leaves.contains(&one) && leaves.contains(&other) && one != other);
        assert!(audit(&index).is_empty());
    }
}

#[test]
fn short_keys_are_built_too() {
    for key in [b"".as_slice(), b"q", b"qr"] {
        let index = Index::new(Heap::new(8, 16));
        let leaf = index.keys.put(key, 7);
        index.build_entry(entry_of(key), &mut [BuildItem { head: head(key), leaf }]).expect("one key");
        assert_eq!(get(&index, key), Some(7));
        assert_eq!(audit(&index), [leaf]);
    }
}

#[test]
fn a_dropped_index_gives_its_memory_back() {
    let live = || CHUNKS_LIVE.with(Cell::get);
    let before = live();
    let index = Index::new(Heap::new(100_000, 16));
    for number in 0..100_000_u64 {
        put(&index, &(number * 0x1_0000_0001).to_be_bytes(), number);
    }
    assert!(live() > before + 1, "so many keys need more than one chunk");
    drop(index);
    assert_eq!(live(), before);
}

#[test]
fn freed_nodes_are_used_again() {
    let index = Index::new(Heap::new(70_000, 16));
    let fill = |from: u32| {
        for number in from..from + 60_000 {
            put(&index, format!("key{number:08}").as_bytes(), 1);
        }
    };
    fill(0);
    let reserved = index.stats().bytes_reserved;
    for round in 0..5 {
        for number in 0..60_000_u32 {
            let key = format!("key{:08}", number + round * 100_000);
            assert!(delete(&index, key.as_bytes()).is_some());
        }
        assert_eq!(index.stats().nodes, [0; 5]);
        fill((round + 1) * 100_000);
    }
    assert_eq!(index.stats().bytes_reserved, reserved);
}
