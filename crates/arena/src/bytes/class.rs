//! Size classes of small blocks: four to a doubling, at most a fifth of a block unused.

use crate::bytes::layout::{CLASS_COUNT, PAGE_BYTES, SLAB_SLOTS_MAX};

/// Bytes of the largest block that shares its pages with others.
pub const SMALL_BYTES_MAX: usize = 16_384;

/// Every block starts at a multiple of this, as malloc(3) promises for any type.
pub(crate) const ALIGN_MIN: usize = 16;

const SLAB_PAGES_MAX: usize = 16;

/// Bytes of a block of each class. docs/format/arena.md repeats the table; a test compares them.
pub(crate) const CLASS_BYTES: [u32; CLASS_COUNT] = [
    16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280,
    1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10_240, 12_288, 14_336, 16_384,
];

/// What a slab of one class looks like.
#[derive(Clone, Copy)]
pub(crate) struct SlabShape {
    /// Bytes of a block.
    pub(crate) bytes: u32,
    /// Pages of a slab.
    pub(crate) pages: u32,
    /// Blocks of a slab.
    pub(crate) slots: u32,
    /// `ceil(2^32 / bytes)`: an offset within a slab times this, shifted down by 32, is its block's number.
    reciprocal: u32,
    /// The bitmap of a slab with nothing in use.
    pub(crate) all_free: [u64; 4],
}

impl SlabShape {
    /// The block that holds byte `offset` of a slab.
    #[inline]
    pub(crate) fn slot_of(&self, offset: usize) -> usize {
        ((offset as u64 * u64::from(self.reciprocal)) >> 32) as usize
    }

    const fn new(bytes: u32) -> Self {
        let (mut pages, mut best_waste) = (0, usize::MAX);
        let mut p = 1;
        while p <= SLAB_PAGES_MAX {
            let slots = p * PAGE_BYTES / bytes as usize;
            if slots >= 1 && slots <= SLAB_SLOTS_MAX {
                // Thousandths of the slab that no block covers; of two equal slabs the larger one.
                let waste = (p * PAGE_BYTES - slots * bytes as usize) * 1000 / (p * PAGE_BYTES);
                if waste <= best_waste {
                    (pages, best_waste) = (p, waste);
                }
            }
            p += 1;
        }
        let slots = pages * PAGE_BYTES / bytes as usize;
        let mut all_free = [0; 4];
        let mut i = 0;
        while i < slots {
            all_free[i / 64] |= 1 << (i % 64);
            i += 1;
        }
        let reciprocal = (1u64 << 32).div_ceil(bytes as u64) as u32;
        Self { bytes, pages: pages as u32, slots: slots as u32, reciprocal, all_free }
    }
}

pub(crate) static CLASSES: [SlabShape; CLASS_COUNT] = {
    let mut all = [SlabShape::new(16); CLASS_COUNT];
    let mut i = 0;
    while i < CLASS_COUNT {
        all[i] = SlabShape::new(CLASS_BYTES[i]);
        i += 1;
    }
    all
};

static CLASS_OF: [u8; SMALL_BYTES_MAX / ALIGN_MIN + 1] = {
    let mut table = [0; SMALL_BYTES_MAX / ALIGN_MIN + 1];
    let (mut unit, mut class) = (0, 0);
    while unit < table.len() {
        while (CLASS_BYTES[class] as usize) < unit * ALIGN_MIN {
            class += 1;
        }
        table[unit] = class as u8;
        unit += 1;
    }
    table
};

/// The class of blocks for `bytes`, which is at most [`SMALL_BYTES_MAX`].
#[inline]
pub(crate) fn class_of(bytes: usize) -> usize {
    CLASS_OF[bytes.div_ceil(ALIGN_MIN)] as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for bytes in 0..=SMALL_BYTES_MAX {
            let class = class_of(bytes);
            assert!(CLASS_BYTES[class] as usize >= bytes);
            assert!(class == 0 || (CLASS_BYTES[class - 1] as usize) < bytes);
        }
    }

    #[test]
    fn slabs_waste_less_than_three_hundredths_and_division_is_exact() {
        for class in &CLASSES {
            let all = class.pages as usize * PAGE_BYTES;
            let used = (class.slots * class.bytes) as usize;
            assert!(class.slots >= 4 && used <= all && (all - used) * 100 / all < 3, "{}", class.bytes);
            assert_eq!(class.all_free.iter().map(|w| w.count_ones()).sum::<u32>(), class.slots);
            for offset in 0..all {
                assert_eq!(class.slot_of(offset), offset / class.bytes as usize);
            }
        }
    }
}
