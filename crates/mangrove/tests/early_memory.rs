//! Gets of a map that is being recovered hold one value at a time, and closing needs no deep stack.

use mangrove::{Durability, Map, MapOptions, Medium};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The longest value here.
const VALUE_BYTES: usize = 1 << 20;

thread_local! {
    /// Bytes that this thread has allocated and not freed, and the most that there were.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// The system's allocator; it counts what the calling thread holds.
struct CountingAllocator;

fn count(bytes: usize, sign: isize) {
    // A thread that ends counts no more.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = now + sign * bytes as isize;
        held.set((now, most.max(now)));
    });
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Each map is recovered in the background.
fn options() -> MapOptions {
    Map::options().medium(Medium::File).durability(Durability::interval_ms(100)).background_recovery_from(0)
}

/// The most bytes that this thread held during the call, beyond those that it held before.
fn most_held(call: impl FnOnce()) -> usize {
    let before = HELD.get().0;
    HELD.set((before, before));
    call();
    usize::try_from(HELD.get().1 - before).unwrap()
}

#[test]
fn early_gets_hold_one_value_at_a_time() {
    let dir = folder();
    let path = dir.path().join("p");
    let mut keys: Vec<u32> = (0..48).collect();
    let map = options().open(&path).unwrap();
    for key in &keys {
        map.put(key.to_be_bytes(), vec![*key as u8; VALUE_BYTES]).unwrap();
    }
    map.close().unwrap();
    // Absent: the map must be recovered before the call can return.
    keys.push(1000);
    let keys: Vec<_> = keys.iter().map(|key| key.to_be_bytes()).collect();
    for _ in 0..3 {
        let map = options().open(&path).unwrap();
        let mut next = 0;
        let held = most_held(|| {
            let read = |number: usize, value: Option<&[u8]>| {
                assert_eq!(number, next, "each key once, in order");
                next += 1;
                let stored = (number < 48).then(|| vec![number as u8; VALUE_BYTES]);
                assert_eq!(value, stored.as_deref());
            };
            map.get_many_with(&keys, read).unwrap();
        });
        assert_eq!(next, keys.len());
        assert!(held < 4 * VALUE_BYTES, "get_many_with: {held} bytes");
        drop(map);
        let map = options().open(&path).unwrap();
        let mut value = Vec::new();
        let held = most_held(|| assert!(map.get_into(keys[7], &mut value).unwrap()));
        assert_eq!(value, [7; VALUE_BYTES]);
        assert!(held < VALUE_BYTES * 3 / 2, "get_into: {held} bytes");
    }
}

#[test]
fn a_thread_with_a_small_stack_gets_early_and_closes() {
    let dir = folder();
    let path = dir.path().join("p");
    // Each is a prefix of the next: a node for each.
    let keys: Vec<_> = (0..=mangrove::KEY_BYTES_MAX).map(|len| vec![b'a'; len]).collect();
    let map = options().open(&path).unwrap();
    for key in &keys {
        map.put(key, key).unwrap();
    }
    let close = |map: Map| {
        // As small as docs/c-api.md allows.
        std::thread::Builder::new().stack_size(32 << 10).spawn(move || {
            assert_eq!(map.get(vec![b'a'; 300]).unwrap(), Some(vec![b'a'; 300]));
            map.close()
        })
    };
    close(map).unwrap().join().unwrap().unwrap();
    assert!(path.join("index").exists());
    let map = options().open(&path).unwrap();
    close(map).unwrap().join().unwrap().unwrap();
    let map = options().open(&path).unwrap();
    assert_eq!(map.iter().unwrap().map(|record| record.unwrap().0).collect::<Vec<_>>(), keys);
}
