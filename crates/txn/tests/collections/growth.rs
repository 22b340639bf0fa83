//! Growing, shrinking, types of every size, and what is refused.

use crate::subject::{Random, no_block_is_left, options};
use mangrove_txn::{
    Heap, HeapError, HeapKey, HeapMap, HeapOrderedMap, HeapQueue, HeapVec, Pod, Ptr, Stop, Tx, Zeroable,
};

/// Bytes that the logs of the heap take for one transaction.
fn logged(heap: &Heap, body: impl FnMut(&mut Tx<'_>) -> Result<(), Stop>) -> u64 {
    let before = heap.stat().unwrap().shadow.log_written;
    heap.transaction(body).unwrap();
    heap.stat().unwrap().shadow.log_written - before
}

fn block_count(heap: &Heap) -> usize {
    let mut count = 0;
    heap.for_each_block(|_, _| count += 1).unwrap();
    count
}

/// A table of several pages: doublings are small transactions, and what is removed is used again.
#[test]
fn a_hash_map_grows_by_small_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let heap = options().open(folder.path().join("heap")).unwrap();
    let map = heap.transaction(|tx| HeapMap::<u64, u64>::with_seed(tx, 5)).unwrap();
    const COUNT: u64 = 12_000;
    let longest = (0..COUNT).map(|key| logged(&heap, |tx| map.insert(tx, &key, !key).map(drop))).max();
    // A page of 512 words is the most that any insertion writes.
    assert!(longest.unwrap() < 16 << 10, "{longest:?} bytes");
    let blocks = block_count(&heap);
    assert!(blocks < COUNT as usize / 4, "{blocks} blocks for {COUNT} keys");
    heap.transaction(|tx| {
        for key in 0..COUNT {
            assert_eq!(map.get(tx, &key)?, Some(!key));
            assert_eq!(map.get(tx, &(key + COUNT))?, None);
        }
        assert_eq!(map.len(tx)?, COUNT);
        (0..COUNT).try_for_each(|key| map.remove(tx, &key).map(|old| assert_eq!(old, Some(!key))))?;
        assert_eq!((map.len(tx)?, map.iter(tx).count()), (0, 0));
        (0..COUNT).try_for_each(|key| map.insert(tx, &key, key).map(|old| assert_eq!(old, None)))
    })
    .unwrap();
    assert!(block_count(&heap) <= blocks + blocks / 10, "{} blocks after {blocks}", block_count(&heap));
    heap.transaction(|tx| map.clear(tx)).unwrap();
    assert_eq!(block_count(&heap), 3);
    heap.transaction(|tx| map.free(tx)).unwrap();
    no_block_is_left(&heap);
}

/// Nodes are full when keys come in order, and merge when keys go.
#[test]
fn an_ordered_map_grows_and_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let heap = options().open(folder.path().join("heap")).unwrap();
    let map = heap.transaction(HeapOrderedMap::<u32, u64>::create).unwrap();
    const COUNT: u32 = 12_000;
    heap.transaction(|tx| (0..COUNT).try_for_each(|key| map.insert(tx, &key, key.into()).map(drop))).unwrap();
    let blocks = block_count(&heap);
    assert!(blocks < COUNT as usize / 12, "{blocks} blocks for {COUNT} keys in order");
    let mut random = Random::new(3);
    let mut keys: Vec<u32> = (0..COUNT).collect();
    for last in (1..keys.len()).rev() {
        keys.swap(last, random.below(last + 1));
    }
    heap.transaction(|tx| {
        keys[50..]
            .iter()
            .try_for_each(|key| map.remove(tx, key).map(|old| assert_eq!(old, Some((*key).into()))))
    })
    .unwrap();
    assert!(block_count(&heap) < 40, "{} blocks for 50 keys", block_count(&heap));
    let mut left = keys[..50].to_vec();
    left.sort_unstable();
    heap.transaction(|tx| {
        let found = map.iter(tx).map(|item| item.map(|(key, _)| key)).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(found, left);
        left.iter().rev().try_for_each(|key| {
            assert_eq!(map.last(tx)?.map(|(key, _)| key), Some(*key));
            map.remove(tx, key).map(drop)
        })?;
        assert_eq!((map.first(tx)?, map.last(tx)?, map.len(tx)?), (None, None, 0));
        keys.iter().try_for_each(|key| map.insert(tx, key, 1).map(drop))
    })
    .unwrap();
    assert!(block_count(&heap) < COUNT as usize / 8, "{} blocks for {COUNT} keys", block_count(&heap));
    heap.transaction(|tx| map.free(tx)).unwrap();
    no_block_is_left(&heap);
}

/// Keys and values of every size and alignment keep to themselves.
#[test]
fn types_of_every_size() {
    fn check<
        K: HeapKey<Query = K> + From<u8> + std::fmt::Debug + Ord,
        V: Pod + PartialEq + std::fmt::Debug,
    >(
        tx: &mut Tx<'_>,
        value: impl Fn(u8) -> V,
    ) -> Result<(), Stop> {
        let (map, ordered) = (HeapMap::<K, V>::with_seed(tx, 1)?, HeapOrderedMap::<K, V>::create(tx)?);
        let (vector, queue) = (HeapVec::<V>::create(tx)?, HeapQueue::<V>::create(tx)?);
        for n in 0..=255u8 {
            map.insert(tx, &n.into(), value(n))?;
            ordered.insert(tx, &n.into(), value(n))?;
            vector.push(tx, value(n))?;
            queue.push(tx, value(n))?;
        }
        for n in 0..=255u8 {
            assert_eq!(map.get(tx, &n.into())?, Some(value(n)));
            assert_eq!(ordered.get(tx, &n.into())?, Some(value(n)));
            assert_eq!(vector.get(tx, n.into())?, Some(value(n)));
            assert_eq!(queue.pop(tx)?, Some(value(n)));
        }
        map.free(tx)?;
        ordered.free(tx)?;
        vector.free(tx)?;
        queue.free(tx)
    }
    let folder = tempfile::tempdir().unwrap();
    let heap = options().open(folder.path().join("heap")).unwrap();
    heap.transaction(|tx| {
        check::<u8, ()>(tx, |_| ())?;
        check::<u8, [u8; 3]>(tx, |n| [n; 3])?;
        check::<u16, u64>(tx, u64::from)?;
        check::<u128, u8>(tx, |n| n)?;
        check::<i32, u128>(tx, u128::from)?;
        check::<u64, [u64; 64]>(tx, |n| [n.into(); 64])
    })
    .unwrap();
    no_block_is_left(&heap);
}

fn has_no_space(stop: &Stop) -> bool {
    matches!(stop.error(), Some(HeapError::Full { .. } | HeapError::NoSpace { .. }))
}

/// Takes all that is free. Returns address and bytes of each block.
fn fill(tx: &mut Tx<'_>) -> Result<Vec<(usize, usize)>, Stop> {
    let mut blocks = Vec::new();
    for bytes in [1 << 20, 1 << 16, 20_000, 16_384, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16] {
        loop {
            match tx.alloc_bytes(bytes, 16) {
                Ok(at) => blocks.push((at, bytes)),
                Err(stop) if has_no_space(&stop) => break,
                Err(stop) => return Err(stop),
            }
        }
    }
    Ok(blocks)
}

/// Adds to a collection until a heap that is full but for `left` blocks of `bytes` bytes has no space. The body does
/// not pass that on, so the transaction commits. Returns how often `add` has succeeded.
fn add_until_full(
    heap: &Heap,
    bytes: usize,
    left: usize,
    add: impl Fn(&mut Tx<'_>, u64) -> Result<(), Stop>,
) -> u64 {
    let added = heap.transaction(|tx| {
        let mut wanted = left;
        let (free, taken): (Vec<_>, Vec<_>) = fill(tx)?.into_iter().partition(|block| {
            let is_free = wanted > 0 && block.1 == bytes;
            wanted -= usize::from(is_free);
            is_free
        });
        assert_eq!(free.len(), left, "blocks of {bytes} bytes");
        free.iter().try_for_each(|&(at, _)| tx.free_bytes(at))?;
        let mut count = 0;
        let refused = loop {
            match add(tx, count) {
                Ok(()) => count += 1,
                Err(stop) => break stop,
            }
        };
        if !has_no_space(&refused) {
            return Err(refused);
        }
        taken.iter().try_for_each(|&(at, _)| tx.free_bytes(at))?;
        Ok(count)
    });
    added.unwrap()
}

/// A body that continues after an operation found no space commits a collection that the operation has not changed.
#[test]
fn an_operation_without_space_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let heap = options().capacity(16 << 20).open(folder.path().join("heap")).unwrap();
    let (map, ordered, queue) = heap
        .transaction(|tx| {
            let map = HeapMap::<u64, u64>::with_seed(tx, 5)?;
            Ok((map, HeapOrderedMap::<u64, u64>::create(tx)?, HeapQueue::<u64>::create(tx)?))
        })
        .unwrap();
    let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (mut in_map, mut in_order, mut pushed) = (0, 0, 0);
    // At each number another step of a split, of a bucket or of nodes, has no space.
    for left in 0..5 {
        // Bytes of a bucket, of a node, of a segment.
        let added =
            add_until_full(&heap, 128, left, |tx, n| map.insert(tx, &key(in_map + n), in_map + n).map(drop));
        in_map += added;
        let added = add_until_full(&heap, 256, left, |tx, n| {
            ordered.insert(tx, &key(in_order + n), in_order + n).map(drop)
        });
        in_order += added;
        let added = add_until_full(&heap, 512, left, |tx, n| queue.push(tx, pushed + n));
        pushed += added;
        heap.transaction(|tx| {
            assert_eq!((map.len(tx)?, map.iter(tx).count() as u64), (in_map, in_map), "{left} left");
            assert_eq!(
                (ordered.len(tx)?, ordered.iter(tx).count() as u64),
                (in_order, in_order),
                "{left} left"
            );
            for n in 0..in_map {
                assert_eq!(map.get(tx, &key(n))?, Some(n), "{left} left");
            }
            for n in 0..in_order {
                assert_eq!(ordered.get(tx, &key(n))?, Some(n), "{left} left");
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(heap.check().unwrap(), Vec::<String>::new());
    }
    heap.transaction(|tx| {
        (pushed..pushed + 100).try_for_each(|n| queue.push(tx, n))?;
        for n in 0..pushed + 100 {
            assert_eq!(queue.pop(tx)?, Some(n));
        }
        assert_eq!(queue.pop(tx)?, None);
        map.free(tx)?;
        ordered.free(tx)?;
        queue.free(tx)
    })
    .unwrap();
    no_block_is_left(&heap);
}

#[test]
fn what_is_not_the_collection_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let heap = options().open(folder.path().join("heap")).unwrap();
    heap.transaction(|tx| HeapMap::<u64, u64>::at_root(tx, "map")).unwrap();
    let other_types = heap.transaction(|tx| HeapMap::<u64, u32>::at_root(tx, "map"));
    assert!(matches!(other_types, Err(HeapError::Root { .. })), "{other_types:?}");
    let other_kind = heap.transaction(|tx| HeapOrderedMap::<u64, u64>::at_root(tx, "map"));
    assert!(matches!(other_kind, Err(HeapError::Root { .. })), "{other_kind:?}");
    heap.transaction(|tx| {
        let word = tx.alloc([0u64; 2])?;
        tx.set_root("word", word)
    })
    .unwrap();
    let no_collection = heap.transaction(|tx| HeapVec::<u64>::at_root(tx, "word"));
    assert!(matches!(no_collection, Err(HeapError::Root { .. })), "{no_collection:?}");
    heap.transaction(|tx| tx.set_root("nothing", Ptr::<u64>::NULL)).unwrap();
    let nothing = heap.transaction(|tx| HeapQueue::<u64>::at_root(tx, "nothing"));
    assert!(matches!(nothing, Err(HeapError::Root { .. })), "{nothing:?}");
    let none = HeapVec::<u64>::zeroed();
    let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        heap.transaction(|tx| {
            tx.remove_root("word")?;
            none.push(tx, 1)
        })
    }));
    assert!(used.is_err());
    assert!(heap.read(|tx| tx.root::<[u64; 2]>("word")).unwrap().is_some(), "undone");
    // Handles are data: a vector of queues, at a root of the program's own.
    let queues = heap.transaction(HeapVec::<HeapQueue<u64>>::create).unwrap();
    heap.transaction(|tx| {
        let queue = HeapQueue::create(tx)?;
        queue.push(tx, 7)?;
        queues.push(tx, queue)?;
        tx.set_root("queues", Ptr::<u64>::at(queues.address()))
    })
    .unwrap();
    let front = heap.read(|tx| queues.get(tx, 0)?.unwrap().front(tx)).unwrap();
    assert_eq!(front, Some(7));
}
