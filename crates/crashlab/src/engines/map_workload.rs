//! The map's workloads: each scenario drives one part of the engine hard, on few keys.

use crate::engines::map_model::{Bytes, MapModel, MapOp};
use crate::rng::Rng;
use mangrove_hart::WriteMode::{self, Buffered, Durable};

/// The scenarios, by name.
pub const SCENARIOS: [&str; 14] = [
    "insert and update in place",
    "update across classes",
    "update in another slot",
    "delete and insert again",
    "batch",
    "range delete",
    "chunk allocation and recycle",
    "segments change hands",
    "extents",
    "extents grow together",
    "buffered writes and reads",
    "checkpoint and log wrap",
    "everything",
    "one put inside another",
];

/// The scenario of a map that grows.
pub(crate) const GROWTH: &str = "growth";
/// The scenario of a map that gives space back.
pub(crate) const COMPACTION: &str = "compaction";

/// Generates operations and keeps the model, so that comparisons succeed when they should.
struct Writer<'a> {
    rng: &'a mut Rng,
    model: MapModel,
    ops: Vec<MapOp>,
    mode: WriteMode,
    keys: u64,
    /// Value lengths to choose from.
    lengths: &'static [u64],
}

const INLINE: &[u64] = &[0, 1, 7, 8];
const SMALL: &[u64] = &[0, 3, 8, 9, 20, 40];
const CLASSES: &[u64] = &[0, 8, 9, 24, 60, 100, 200, 300, 700, 1100];
const SLOTS: &[u64] = &[9, 30, 100, 101, 300, 440];
const EXTENTS: &[u64] = &[8, 3000, 4096, 5000, 9000];

impl Writer<'_> {
    fn push(&mut self, op: MapOp) {
        self.model.advance(self.ops.len() as u32, &op);
        self.ops.push(op);
    }

    /// A key of a small key space, with neighbours, prefixes of each other, zero bytes, the empty key and long
    /// keys.
    fn key(&mut self) -> Bytes {
        let n = self.rng.below(self.keys);
        key(n)
    }

    fn value(&mut self) -> Bytes {
        let bound = self.lengths[self.rng.below(self.lengths.len() as u64) as usize];
        let len = if self.rng.one_in(2) { bound } else { self.rng.below(bound + 1) };
        // Half of the values are one repeated byte: checksums must distinguish those too.
        if self.rng.one_in(2) {
            vec![self.rng.next() as u8; len as usize]
        } else {
            self.rng.bytes(len as usize)
        }
        .into()
    }

    fn mode(&mut self) -> WriteMode {
        self.mode
    }

    fn put(&mut self) {
        let op = MapOp::Put(self.key(), self.value(), self.mode());
        self.push(op);
    }

    /// Puts two keys of one class, one inside the other: one allocates the space that the other uses.
    fn during(&mut self, n: u64) {
        // Small leaves share a segment, and so do small blocks, which only values of long keys have; now and then a
        // length is the first of its class.
        let step = n as usize * 7 % 40;
        let (rest, len) = if self.rng.one_in(2) { (0, 9 + 16 * step) } else { (500, 9 + 16 * (step % 4)) };
        let key = |who: u64| -> Bytes {
            let start = format!("{:02}{who}", (n / 2 + who) % 14);
            [start.into_bytes(), vec![b'd'; rest]].concat().into()
        };
        let (outer, inner) = (key(0), key(1));
        let (outer_value, inner_value) = (self.rng.bytes(len).into(), self.rng.bytes(len).into());
        let at = self.rng.below(14) as u32;
        self.push(MapOp::During((outer, Some(outer_value)), at, (inner, inner_value)));
        if self.rng.one_in(6) {
            let (start, end): (Bytes, Bytes) = (b"0".to_vec().into(), b"9".to_vec().into());
            self.push(MapOp::DeleteRange(start, end, Durable));
        }
    }

    fn delete(&mut self) {
        let op = MapOp::Delete(self.key(), self.mode());
        self.push(op);
    }

    fn update(&mut self) {
        if let Some(key) = self.present() {
            let op = MapOp::Put(key, self.value(), self.mode());
            self.push(op);
        } else {
            self.put();
        }
    }

    fn present(&mut self) -> Option<Bytes> {
        let n = self.model.records.len() as u64;
        (n > 0).then(|| self.rng.below(n)).and_then(|n| self.model.records.keys().nth(n as usize).cloned())
    }

    fn compare(&mut self) {
        let key = self.key();
        let old = if self.rng.one_in(4) { Some(self.value()) } else { self.model.records.get(&key).cloned() };
        let new = (!self.rng.one_in(3)).then(|| self.value());
        let op = MapOp::CompareAndSet(key, old, new, self.mode());
        self.push(op);
    }

    fn insert_new(&mut self) {
        let op = MapOp::InsertNew(self.key(), self.value(), self.mode());
        self.push(op);
    }

    fn batch(&mut self, most: u64) {
        let n = 1 + self.rng.below(most);
        let ops = (0..n).map(|_| (self.key(), (!self.rng.one_in(3)).then(|| self.value()))).collect();
        let op = MapOp::Batch(ops, self.mode());
        self.push(op);
    }

    fn delete_range(&mut self) {
        let (a, b) = (self.key(), self.key());
        let op = MapOp::DeleteRange(a.clone().min(b.clone()), a.max(b), self.mode());
        self.push(op);
    }

    fn read(&mut self) {
        let op = if self.rng.one_in(6) { MapOp::Scan } else { MapOp::Get(self.key()) };
        self.push(op);
    }

    fn any(&mut self) {
        match self.rng.below(16) {
            0..=3 => self.put(),
            4..=5 => self.update(),
            6..=7 => self.delete(),
            8 => self.compare(),
            9 => self.insert_new(),
            10..=11 => self.batch(6),
            12 => self.delete_range(),
            13 => self.read(),
            14 => self.push(MapOp::Checkpoint),
            _ => self.push(MapOp::Sync),
        }
    }
}

/// Key number `n`.
fn key(n: u64) -> Bytes {
    let bytes = match n % 8 {
        0 => format!("k{n:03}").into_bytes(),
        1 => format!("key-{n:04}-with-a-longer-tail").into_bytes(),
        2 => vec![0; (n / 8) as usize],
        3 => vec![b'a'; 1 + (n / 8) as usize],
        4 => format!("ab{n}").into_bytes(),
        5 => [b"ab".to_vec(), vec![0xff; (n / 8) as usize]].concat(),
        6 => [n.to_be_bytes().to_vec(), vec![b'x'; 40 + (n % 64) as usize]].concat(),
        // Long ones are rare: their slots fill segments quickly.
        _ if n % 32 == 7 => vec![b'L'; 1024 - (n / 32) as usize % 900],
        _ => n.to_le_bytes().to_vec(),
    };
    bytes.into()
}

/// The operations of one run.
pub(crate) fn workload(scenario: &str, rng: &mut Rng, interval: bool) -> Vec<MapOp> {
    let mut w =
        Writer { rng, model: MapModel::default(), ops: Vec::new(), mode: Durable, keys: 24, lengths: SMALL };
    match scenario {
        "insert and update in place" => {
            w.lengths = INLINE;
            w.keys = 40;
            for _ in 0..25 {
                w.put();
            }
            for _ in 0..35 {
                w.update();
            }
        }
        "update across classes" => {
            w.lengths = CLASSES;
            w.keys = 6;
            (0..50).for_each(|_| w.put());
        }
        "update in another slot" => another_slot(&mut w),
        "delete and insert again" => {
            w.keys = 12;
            for _ in 0..70 {
                match w.rng.below(4) {
                    0 => w.put(),
                    1 => w.insert_new(),
                    2 => w.delete(),
                    _ => w.compare(),
                }
            }
        }
        "batch" => {
            w.lengths = CLASSES;
            for _ in 0..6 {
                w.put();
            }
            for n in 0..16 {
                w.batch(if n % 4 == 3 { 40 } else { 5 });
            }
        }
        "range delete" => {
            w.keys = 60;
            for _ in 0..10 {
                w.batch(20);
                w.put();
                w.delete_range();
            }
        }
        GROWTH => grow(&mut w),
        "chunk allocation and recycle" => recycle(&mut w),
        "segments change hands" => change_hands(&mut w),
        "extents grow together" => grow_together(&mut w),
        "extents" => {
            w.lengths = EXTENTS;
            w.keys = 6;
            for _ in 0..24 {
                if w.rng.one_in(4) { w.delete() } else { w.put() }
            }
            w.batch(4);
            w.delete_range();
        }
        "buffered writes and reads" => buffered(&mut w),
        COMPACTION => compaction(&mut w),
        "one put inside another" => {
            w.lengths = CLASSES;
            for n in 0..50 {
                w.during(n);
            }
        }
        "checkpoint and log wrap" => {
            w.lengths = CLASSES;
            w.keys = 10;
            for n in 0..80 {
                if n % 11 == 10 { w.push(MapOp::Checkpoint) } else { w.any() }
            }
        }
        _ => {
            w.lengths = CLASSES;
            w.keys = 64;
            (0..70).for_each(|_| w.any());
        }
    }
    if interval { add_syncs(w.ops, w.rng) } else { w.ops }
}

/// Writes a few records again and again, alone and in batches, mostly with values that lie behind their keys. A crash
/// finds the old leaf, both, or the new one; the slots go round, so a leaf that was not removed durably, or that was
/// removed too early, shows.
fn another_slot(w: &mut Writer<'_>) {
    w.keys = 1 + w.rng.below(5);
    for _ in 0..60 {
        w.lengths = [SLOTS, SLOTS, SLOTS, CLASSES][w.rng.below(4) as usize];
        match w.rng.below(12) {
            0 => w.delete(),
            1 => w.compare(),
            2 => w.batch(3),
            3 => w.insert_new(),
            _ => w.put(),
        }
    }
}

/// Fills a part of a small map, or most of it, then opens the map in a larger region and continues there. That moves
/// the directory into the segment after the last one in use.
fn grow(w: &mut Writer<'_>) {
    w.lengths = CLASSES;
    for _ in 0..w.rng.below(12) {
        w.any();
    }
    w.push(MapOp::Grow);
    let large = |n: u64| -> Bytes { format!("large{n}").into_bytes().into() };
    for n in 0..20 {
        if w.rng.one_in(3) {
            w.any();
        }
        // Together about what the small part has.
        let value = w.rng.bytes(9000).into();
        w.push(MapOp::Put(large(n), value, Durable));
    }
    (0..8).for_each(|_| w.any());
    if w.rng.one_in(2) {
        w.push(MapOp::Grow);
    }
    (0..8).for_each(|_| w.any());
}

/// Fills several chunks of one class, empties them in some order, and fills another class: segments change from one
/// class to the other.
fn recycle(w: &mut Writer<'_>) {
    w.lengths = INLINE;
    let total = 130 + w.rng.below(60);
    let wide = |n: u64| -> Bytes { format!("{n:03}").into_bytes().into() };
    let long = |n: u64| -> Bytes { format!("{n:03}-{}", "w".repeat(70)).into_bytes().into() };
    for part in 0..total / 20 {
        let ops = (part * 20..part * 20 + 20).map(|n| (wide(n), Some(w.value()))).collect();
        w.push(MapOp::Batch(ops, Durable));
    }
    let one = w.rng.below(total);
    for n in 0..20 {
        w.push(MapOp::Delete(wide((one + n) % total), Durable));
    }
    let (start, end) = (w.rng.below(10), total - w.rng.below(10));
    w.push(MapOp::DeleteRange(wide(start), wide(end), Durable));
    w.push(MapOp::Quiesce);
    for n in 0..30 {
        let op = MapOp::Put(long(n), w.value(), Durable);
        w.push(op);
    }
    for n in 0..30 {
        w.push(MapOp::Delete(long(n), Durable));
    }
    for n in 0..10 {
        let op = MapOp::Put(wide(n), w.value(), Durable);
        w.push(op);
    }
}

/// Puts keys and values so long that a few fill a segment: one class frees segments and another allocates them.
fn change_hands(w: &mut Writer<'_>) {
    // Key bytes, value bytes, and how many of them fill more segments than caches and hysteresis keep.
    const SHAPES: [(usize, usize, u64); 7] =
        [(900, 4, 14), (400, 4, 30), (200, 4, 60), (900, 4, 14), (3, 1100, 12), (3, 1900, 9), (3, 4500, 4)];
    let mut shape = w.rng.below(7);
    for _ in 0..6 {
        shape = (shape + 1 + w.rng.below(6)) % 7;
        let (key_len, value_len, most) = SHAPES[shape as usize];
        let key = |n: u64| -> Bytes { [format!("{n:02}").into_bytes(), vec![b'h'; key_len]].concat().into() };
        let count = most - w.rng.below(3);
        let puts: Vec<_> = (0..count).map(|n| (key(n), Some(w.rng.bytes(value_len).into()))).collect();
        for part in puts.chunks(8) {
            w.push(MapOp::Batch(part.to_vec(), Durable));
        }
        if w.rng.one_in(2) {
            w.push(MapOp::DeleteRange(key(0), key(99), Durable));
        } else {
            (0..count).for_each(|n| w.push(MapOp::Delete(key(n), Durable)));
        }
        w.push(MapOp::Quiesce);
    }
}

/// Frees small extents, which become one large extent whose directory entry does not mention them. Sometimes
/// another thread already waits for the space of the last one.
fn grow_together(w: &mut Writer<'_>) {
    let small = |n: u64| -> Bytes { format!("small{n}").into_bytes().into() };
    let large = |n: u64| -> Bytes { format!("large{n}").into_bytes().into() };
    for round in 0..4 {
        let count = 5 + w.rng.below(4);
        for n in 0..count {
            let value = w.rng.bytes(4500).into();
            w.push(MapOp::Put(small(n), value, Durable));
        }
        for n in 0..count - 1 {
            w.push(MapOp::Delete(small(n), Durable));
        }
        let value: Bytes = w.rng.bytes(8000 * count as usize).into();
        if w.rng.one_in(3) {
            w.push(MapOp::Delete(small(count - 1), Durable));
            w.push(MapOp::Put(large(round), value, Durable));
        } else {
            let at = w.rng.below(6) as u32;
            w.push(MapOp::During((small(count - 1), None), at, (large(round), value)));
        }
        if w.rng.one_in(2) {
            w.push(MapOp::Delete(large(round), Durable));
        }
    }
}

/// Fills some segments of a few classes, removes most of it, moves the rest together, and uses what that freed.
fn compaction(w: &mut Writer<'_>) {
    // Key bytes, value bytes, and records of a round: a few segments each.
    const SHAPES: [(usize, usize, u64); 5] =
        [(3, 4, 150), (90, 7, 60), (3, 60, 120), (3, 700, 16), (400, 300, 24)];
    let key =
        |n: u64, len: usize| -> Bytes { [format!("{n:03}").into_bytes(), vec![b'c'; len]].concat().into() };
    for _ in 0..3 {
        let (key_len, value_len, count) = SHAPES[w.rng.below(5) as usize];
        let puts: Vec<_> =
            (0..count).map(|n| (key(n, key_len), Some(w.rng.bytes(value_len).into()))).collect();
        for part in puts.chunks(30) {
            w.push(MapOp::Batch(part.to_vec(), Durable));
        }
        let stays = 3 + w.rng.below(12);
        let gone: Vec<_> = (0..count).filter(|n| n % stays != 0).map(|n| (key(n, key_len), None)).collect();
        w.push(MapOp::Batch(gone, Durable));
        if w.rng.one_in(2) {
            w.push(MapOp::Checkpoint);
        }
        w.push(MapOp::Compact);
        let again = w.rng.below(12);
        for n in 0..again {
            let op = MapOp::Put(key(n, key_len), w.rng.bytes(value_len).into(), Durable);
            w.push(op);
        }
        if w.rng.one_in(3) {
            w.push(MapOp::Compact);
        }
    }
}

/// Generates writes that promise nothing, between reads and durable writes that promise what they saw.
fn buffered(w: &mut Writer<'_>) {
    w.keys = 12;
    w.lengths = SMALL;
    for _ in 0..80 {
        w.mode = if w.rng.one_in(8) { Durable } else { Buffered };
        match w.rng.below(10) {
            0..=3 => w.put(),
            4 => w.delete(),
            5 => w.batch(4),
            6 => w.delete_range(),
            7 => w.compare(),
            8 => w.read(),
            _ if w.rng.one_in(6) => w.push(MapOp::Sync),
            _ => {
                // Reads the latest write, which must then be durable.
                if let Some(MapOp::Put(key, ..)) = w.ops.last() {
                    let key = key.clone();
                    w.push(MapOp::Get(key));
                } else {
                    w.update();
                }
            }
        }
    }
}

fn add_syncs(ops: Vec<MapOp>, rng: &mut Rng) -> Vec<MapOp> {
    let mut out = Vec::with_capacity(ops.len() * 2);
    for op in ops {
        out.push(op);
        if rng.one_in(7) {
            out.push(MapOp::Sync);
        }
    }
    out
}

/// A few operations on what a recovery found: update, delete, insert, batch.
pub(crate) fn follow_up(rng: &mut Rng, recovered: &MapModel) -> Vec<MapOp> {
    let mut w =
        Writer { rng, model: recovered.clone(), ops: Vec::new(), mode: Durable, keys: 30, lengths: SMALL };
    // A recovery must have found the free space: use it, for any class.
    w.lengths = [SMALL, SMALL, CLASSES, EXTENTS][w.rng.below(4) as usize];
    if w.rng.one_in(4)
        && let Some(key) = w.present()
    {
        // What the recovery wrote must be durable before another thread relies on it.
        let (outer, inner) = (b"while it waits".to_vec().into(), w.rng.bytes(100).into());
        let (at, value) = (w.rng.below(2) as u32, w.rng.bytes(4).into());
        w.push(MapOp::During((outer, Some(value)), at, (key, inner)));
    }
    for _ in 0..3 {
        match w.rng.below(8) {
            0..=1 => w.update(),
            2..=3 => w.put(),
            4..=5 => {
                if let Some(key) = w.present() {
                    w.push(MapOp::Delete(key, Durable));
                }
            }
            6 => w.batch(4),
            _ => w.delete_range(),
        }
    }
    w.ops
}
