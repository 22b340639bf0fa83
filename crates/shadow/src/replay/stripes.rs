//! Which bytes of the durable copy a thread writes when several apply the same atomic groups. The copy is cut into
//! stripes, which are dealt to the threads in turn. So one thread writes all versions of a byte, in their order, and
//! the result is that of one thread.

use mangrove_sys::CACHE_LINE_BYTES;

/// Bytes of a stripe, a power of two: more than most ranges have, and few enough that a busy part of the copy has many.
const STRIPE_BYTES: u64 = 64 << 10;
/// Stripes of each thread at least: those of a small copy are shorter, down to a line.
const STRIPES_MIN: u64 = 16;

/// The stripes of a thread.
pub(crate) trait Stripes: Copy {
    /// Whether they hold the word at `offset`, a multiple of 8.
    fn has_word(self, offset: u64) -> bool;

    /// Passes the parts of a range that they hold to `each`, as offset and length.
    fn each_part(self, offset: u64, len: u64, each: impl FnMut(u64, u64));
}

/// All stripes: those of a thread that is alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllStripes;

impl Stripes for AllStripes {
    #[inline]
    fn has_word(self, _offset: u64) -> bool {
        true
    }

    #[inline]
    fn each_part(self, offset: u64, len: u64, mut each: impl FnMut(u64, u64)) {
        each(offset, len);
    }
}

/// Every so-many-th stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SomeStripes {
    number: u64,
    mask: u64,
    shift: u32,
}

impl SomeStripes {
    /// Those of thread `number` of `threads`, a power of two, in a copy of at most `capacity` bytes.
    pub(crate) fn of(number: usize, threads: usize, capacity: u64) -> Self {
        assert!(threads.is_power_of_two() && number < threads);
        let bytes = (capacity / (threads as u64 * STRIPES_MIN)).clamp(CACHE_LINE_BYTES as u64, STRIPE_BYTES);
        Self { number: number as u64, mask: threads as u64 - 1, shift: bytes.ilog2() }
    }
}

impl Stripes for SomeStripes {
    #[inline]
    fn has_word(self, offset: u64) -> bool {
        (offset >> self.shift) & self.mask == self.number
    }

    fn each_part(self, offset: u64, len: u64, mut each: impl FnMut(u64, u64)) {
        let (mut at, end, stripe) = (offset, offset + len, 1 << self.shift);
        while at < end {
            let next = (at - at % stripe + stripe).min(end);
            if self.has_word(at) {
                each(at, next - at);
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_belongs_to_one_thread() {
        for (threads, capacity) in [(1, 1 << 30), (2, 1 << 30), (8, 1 << 30), (2, 32 << 10), (8, 100), (4, 1)]
        {
            for (offset, len) in [(0, 8), (STRIPE_BYTES - 8, 8), (STRIPE_BYTES - 1, 2), (5, 9 * STRIPE_BYTES)]
            {
                let mut owners = vec![0; len as usize];
                for number in 0..threads {
                    let own = SomeStripes::of(number, threads, capacity);
                    own.each_part(offset, len, |at, count| {
                        assert!((at..at + count).all(|byte| own.has_word(byte)));
                        owners[(at - offset) as usize..][..count as usize].iter_mut().for_each(|n| *n += 1);
                    });
                }
                assert!(
                    owners.iter().all(|&owners| owners == 1),
                    "{threads} threads, {len} bytes at {offset}"
                );
            }
        }
        AllStripes.each_part(7, 1 << 20, |at, count| assert_eq!((at, count), (7, 1 << 20)));
        assert!(AllStripes.has_word(8 << 20));
    }
}
