//! Size classes of leaf slots and value blocks, and how a segment of each class is cut into chunks.

use crate::format::layout::{CHUNK_HEADER_BYTES, CHUNK_SLOTS, Geometry, VALUE_HEADER_BYTES};

/// Bytes of a leaf slot by class, from class 1 on. Multiples of 16, so that meta and word share a cache line.
pub(crate) const LEAF_BYTES: [u32; 9] = [32, 48, 64, 96, 128, 192, 256, 512, 1040];
/// The classes of leaves that version 5 has added, from class [`FIRST_ADDED_CLASS`] on.
pub(crate) const ADDED_LEAF_BYTES: [u32; 8] = [80, 112, 144, 160, 224, 320, 384, 448];
/// Leaves of up to so many bytes are those of [`SMALL_LEAVES`].
const SMALL_LEAF_BYTES_MAX: usize = 512;
/// Sizes of value blocks grow by 16 bytes up to here, then in four classes per doubling.
const VALUE_STEP_BYTES_MAX: u64 = 256;

/// A class number: 1 to 9 and those from 128 on are leaves, the others values. Zero is none.
pub(crate) type Class = u8;

const FIRST_VALUE_CLASS: Class = LEAF_BYTES.len() as Class + 1;
/// A map has fewer classes of values than there are numbers before this one.
pub(crate) const FIRST_ADDED_CLASS: Class = 128;

/// The class of leaves of so many times 16 bytes, rounded up.
const SMALL_LEAVES: [Class; SMALL_LEAF_BYTES_MAX / 16 + 1] = {
    let mut classes = [1; SMALL_LEAF_BYTES_MAX / 16 + 1];
    let mut units = 0;
    while units < classes.len() {
        let (mut best, mut index) = (u32::MAX, 0);
        while index < LEAF_BYTES.len() + ADDED_LEAF_BYTES.len() {
            let (bytes, class) = if index < LEAF_BYTES.len() {
                (LEAF_BYTES[index], 1 + index as Class)
            } else {
                let added = index - LEAF_BYTES.len();
                (ADDED_LEAF_BYTES[added], FIRST_ADDED_CLASS + added as Class)
            };
            if bytes as usize >= units * 16 && bytes < best {
                (best, classes[units]) = (bytes, class);
            }
            index += 1;
        }
        units += 1;
    }
    classes
};

/// How a segment of one class is cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut {
    /// Bytes of a slot.
    pub(crate) slot_bytes: u32,
    /// Bytes of a chunk's header.
    pub(crate) header_bytes: u32,
    /// Bytes of a whole chunk.
    pub(crate) chunk_bytes: u32,
    /// Chunks of a segment.
    pub(crate) chunk_count: u32,
    /// Slots of the last chunk, which may be shorter than the others.
    pub(crate) last_slots: u32,
}

impl Cut {
    fn new(segment_bytes: u32, slot_bytes: u32, header_bytes: u32) -> Self {
        let chunk_bytes = header_bytes + CHUNK_SLOTS * slot_bytes;
        let whole = segment_bytes / chunk_bytes;
        let rest = (segment_bytes % chunk_bytes).saturating_sub(header_bytes) / slot_bytes;
        let (chunk_count, last_slots) = if rest > 0 { (whole + 1, rest) } else { (whole, CHUNK_SLOTS) };
        Self { slot_bytes, header_bytes, chunk_bytes, chunk_count, last_slots }
    }

    /// Slots of the chunk.
    #[inline]
    pub(crate) fn slots(&self, chunk: u32) -> u32 {
        if chunk + 1 == self.chunk_count { self.last_slots } else { CHUNK_SLOTS }
    }

    /// A bit for each slot of the chunk.
    #[inline]
    pub(crate) fn full_mask(&self, chunk: u32) -> u64 {
        (1 << self.slots(chunk)) - 1
    }

    /// The chunk and slot at `place` of a segment, if a slot begins there.
    #[inline]
    pub(crate) fn slot_at(&self, place: u32) -> Option<(u32, u32)> {
        let chunk = place / self.chunk_bytes;
        let within = (place % self.chunk_bytes).checked_sub(self.header_bytes)?;
        let slot = within / self.slot_bytes;
        (within % self.slot_bytes == 0 && chunk < self.chunk_count && slot < self.slots(chunk))
            .then_some((chunk, slot))
    }
}

/// All classes of a map; they depend on its segment size.
#[derive(Debug)]
pub(crate) struct Classes {
    cuts: Vec<Cut>,
    value_block_bytes_max: u64,
}

impl Classes {
    /// The classes for segments of this geometry.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let segment_bytes = geometry.segment_bytes() as u32;
        let mut cuts = vec![Cut::default()];
        cuts.extend(LEAF_BYTES.map(|bytes| Cut::new(segment_bytes, bytes, CHUNK_HEADER_BYTES)));
        let value_block_bytes_max = geometry.segment_bytes() / 2;
        let mut block = 0;
        while block < value_block_bytes_max {
            block = value_block_bytes(block + 1);
            cuts.push(Cut::new(segment_bytes, block as u32, 0));
        }
        assert!(cuts.len() <= usize::from(FIRST_ADDED_CLASS), "classes of values come before those added");
        cuts.resize(usize::from(FIRST_ADDED_CLASS), Cut::default());
        cuts.extend(ADDED_LEAF_BYTES.map(|bytes| Cut::new(segment_bytes, bytes, CHUNK_HEADER_BYTES)));
        Self { cuts, value_block_bytes_max }
    }

    /// One more than the greatest class number.
    pub(crate) fn count(&self) -> usize {
        self.cuts.len()
    }

    /// All classes.
    pub(crate) fn all(&self) -> impl Iterator<Item = Class> + Clone + '_ {
        (1..self.cuts.len() as Class).filter(|class| self.cut(*class).slot_bytes != 0)
    }

    /// How segments of the class are cut.
    #[inline]
    pub(crate) fn cut(&self, class: Class) -> &Cut {
        &self.cuts[usize::from(class)]
    }

    /// The cut of a class number read from the medium.
    pub(crate) fn checked(&self, class: Class, leaves: bool) -> Option<&Cut> {
        let cut = (is_leaf_class(class) == leaves).then(|| self.cuts.get(usize::from(class)))?;
        cut.filter(|cut| cut.slot_bytes != 0)
    }

    /// The class of leaves of so many bytes.
    #[inline]
    pub(crate) fn of_leaf(&self, bytes: usize) -> Class {
        match SMALL_LEAVES.get(bytes.div_ceil(16)) {
            Some(class) => *class,
            None => LEAF_BYTES.len() as Class,
        }
    }

    /// The class of blocks for values of `len` bytes; none when the value needs an extent.
    #[inline]
    pub(crate) fn of_value(&self, len: usize) -> Option<Class> {
        let bytes = VALUE_HEADER_BYTES + len as u64;
        (bytes <= self.value_block_bytes_max).then(|| FIRST_VALUE_CLASS + value_class_index(bytes) as Class)
    }
}

/// True for classes of leaves.
#[inline]
pub(crate) fn is_leaf_class(class: Class) -> bool {
    class != 0 && !(FIRST_VALUE_CLASS..FIRST_ADDED_CLASS).contains(&class)
}

#[inline]
fn value_class_index(bytes: u64) -> u64 {
    if bytes <= VALUE_STEP_BYTES_MAX {
        return bytes.div_ceil(16).max(1) - 1;
    }
    let below = bytes - 1;
    let exponent = below.ilog2();
    16 + u64::from(exponent - 8) * 4 + (below >> (exponent - 2) & 3)
}

fn value_block_bytes(bytes: u64) -> u64 {
    if bytes <= VALUE_STEP_BYTES_MAX {
        return bytes.next_multiple_of(16);
    }
    let step = (bytes - 1).ilog2() - 2;
    (((bytes - 1) >> step) + 1) << step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::LEAF_KEY;

    fn classes(shift: u32) -> Classes {
        Classes::new(&Geometry { data_start: 8192, shift, segment_count: 4, directory: 4096 })
    }

    #[test]
    fn every_length_gets_the_tightest_class() {
        for shift in [12, 18, 24] {
            let all = classes(shift);
            for len in (0..70_000).chain([(1 << (shift - 1)) - 8, (1 << (shift - 1)) - 7]) {
                match all.of_value(len) {
                    Some(class) => {
                        let bytes = len as u32 + 8;
                        assert!(all.cut(class).slot_bytes >= bytes);
                        assert!(class == FIRST_VALUE_CLASS || all.cut(class - 1).slot_bytes < bytes);
                    }
                    None => assert!(len + 8 > 1 << (shift - 1)),
                }
            }
            for key_len in 0..=crate::KEY_BYTES_MAX {
                let class = all.of_leaf(LEAF_KEY as usize + key_len);
                let bytes = all.cut(class).slot_bytes;
                assert!(bytes as usize >= key_len + 16 && is_leaf_class(class));
                let tighter = |c: Class| {
                    let other = all.cut(c).slot_bytes;
                    is_leaf_class(c) && other < bytes && other as usize >= key_len + 16
                };
                assert!(!all.all().any(tighter), "{key_len}");
            }
        }
    }

    #[test]
    fn slots_tile_the_segment() {
        for shift in [12, 18] {
            let all = classes(shift);
            for class in all.all() {
                let cut = all.cut(class);
                assert_eq!(cut.slot_bytes % 16, 0);
                let mut slots = 0;
                for chunk in 0..cut.chunk_count {
                    for slot in 0..cut.slots(chunk) {
                        let place = chunk * cut.chunk_bytes + cut.header_bytes + slot * cut.slot_bytes;
                        assert!(place + cut.slot_bytes <= 1 << shift);
                        assert_eq!(cut.slot_at(place), Some((chunk, slot)));
                        assert_eq!(cut.slot_at(place + 8), None);
                        slots += 1;
                    }
                }
                assert!(slots >= 2, "class {class} of shift {shift}");
            }
        }
    }
}
