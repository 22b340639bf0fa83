//! A collection beside its model: seeded operations in transactions that commit, abort, are nested, and survive a
//! crash; in the end the collection is freed, and no block is left.

use crate::ways::on_each_way;
use mangrove_txn::{Cancel, Heap, HeapOptions, Latency, Medium, Stop, Tx};
use std::path::Path;

/// xorshift64 (Marsaglia, 2003).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 32) as usize * bound) >> 32
    }
}

pub(crate) fn options() -> HeapOptions {
    sized(Heap::options().medium(Medium::Emulated(Latency::new(0, 0))))
}

pub(crate) fn sized(options: HeapOptions) -> HeapOptions {
    options.capacity(1 << 30).log_bytes(1 << 20)
}

/// A collection at the root "it", and what it should hold.
pub(crate) trait Subject: Copy {
    type Model: Default + Clone;

    fn open(tx: &mut Tx<'_>) -> Result<Self, Stop>;

    /// One random operation on both, with the same answer.
    fn step(self, tx: &mut Tx<'_>, model: &mut Self::Model, random: &mut Random) -> Result<(), Stop>;

    /// All that the collection holds is what the model holds.
    fn compare(self, tx: &mut Tx<'_>, model: &Self::Model) -> Result<(), Stop>;

    fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop>;
}

/// Operations of one transaction: some of them in a nested one, which is undone or not.
pub(crate) fn steps<S: Subject>(
    tx: &mut Tx<'_>,
    model: &mut S::Model,
    random: &mut Random,
) -> Result<(), Stop> {
    let it = S::open(tx)?;
    for _ in 0..random.below(20) + 1 {
        if random.below(8) != 0 {
            it.step(tx, model, random)?;
            continue;
        }
        let (before, keeps) = (model.clone(), random.below(2) == 0);
        let nested = tx.nested(|tx| -> Result<(), Cancel<()>> {
            for _ in 0..random.below(10) {
                it.step(tx, model, random)?;
            }
            if keeps { Ok(()) } else { Err(Cancel::Abort(())) }
        });
        match nested {
            Ok(()) => {}
            Err(Cancel::Abort(())) => *model = before,
            Err(Cancel::Stop(stop)) => return Err(stop),
        }
    }
    Ok(())
}

pub(crate) fn no_block_is_left(heap: &Heap) {
    assert_eq!(heap.check().unwrap(), Vec::<String>::new());
    let mut left = 0;
    heap.for_each_block(|_, bytes| left += bytes).unwrap();
    assert_eq!(left, 0, "bytes in blocks that nobody reaches");
}

/// Some rounds with the default executor, and some with each of the others.
pub(crate) fn like_its_model<S: Subject>() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        runs_like_its_model::<S>(&options(), &folder.path().join("heap"), seed, 200);
    }
    on_each_way(|options, path| runs_like_its_model::<S>(&sized(options), path, 4, 60));
}

fn runs_like_its_model<S: Subject>(options: &HeapOptions, path: &Path, seed: u64, rounds: usize) {
    let mut heap = options.open(path).unwrap();
    let mut random = Random::new(seed);
    let mut model = S::Model::default();
    for round in 0..rounds {
        let aborts = random.below(6) == 0;
        let seed = random.next();
        let mut next = S::Model::default();
        let answer = heap.try_transaction(|tx| {
            next = model.clone();
            steps::<S>(tx, &mut next, &mut Random::new(seed))?;
            if aborts { Err(Cancel::Abort(())) } else { Ok(()) }
        });
        match answer.unwrap() {
            Ok(()) => model = next,
            Err(()) => assert!(aborts),
        }
        let reopens = random.below(40) == 0;
        if reopens {
            drop(heap);
            heap = options.open(path).unwrap();
        }
        if reopens || round % 16 == 0 || round + 1 == rounds {
            heap.transaction(|tx| S::open(tx)?.compare(tx, &model)).unwrap();
        }
    }
    heap.transaction(|tx| {
        S::open(tx)?.free(tx)?;
        tx.remove_root("it").map(drop)
    })
    .unwrap();
    no_block_is_left(&heap);
}
