//! Sorting of many numbers by their upper bits, without comparisons.

const DIGIT_BITS: u32 = 11;
/// A shorter list is sorted by comparisons, which is as fast.
const MANY: usize = 512;
/// A longer one is, too: a second list of that length would be too much memory.
const TOO_MANY: usize = 4 << 20;

/// Sorts a list by the bits from `from_bit` on. Numbers that agree in these keep their order if `list` is in order of
/// the lower bits among them; so the result is the sorted list if it is, or if no two agree. `spare` is memory to sort
/// with, whose content does not matter; it grows to the length of the list, at most 32 MiB. O(n) for each 11 bits that
/// are not 0 in all, O(n log n) for a longer list.
pub fn sort_by_upper_bits(list: &mut Vec<u64>, spare: &mut Vec<u64>, from_bit: u32) {
    let short = list.len() < MANY || list.len() > TOO_MANY;
    if short || spare.try_reserve(list.len().saturating_sub(spare.len())).is_err() {
        return list.sort_unstable();
    }
    spare.resize(list.len(), 0);
    let all = list.iter().fold(0, |all, number| all | number) >> from_bit;
    let mut done = 0;
    while done < u64::BITS - from_bit && all >> done != 0 {
        let digit = |number: u64| (number >> (from_bit + done)) as usize & ((1 << DIGIT_BITS) - 1);
        let mut places = [0u32; 1 << DIGIT_BITS];
        for &number in list.iter() {
            places[digit(number)] += 1;
        }
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for &number in list.iter() {
            let place = &mut places[digit(number)];
            spare[*place as usize] = number;
            *place += 1;
        }
        std::mem::swap(list, spare);
        done += DIGIT_BITS;
    }
}

#[cfg(test)]
mod tests {
    use super::sort_by_upper_bits;

    /// Lists of every kind of length, with numbers of few and of many bits.
    #[test]
    fn it_sorts_as_a_sort_by_comparisons_does() {
        let mut dice = 0x2545_f491_4f6c_dd1d_u64;
        let mut spare = Vec::new();
        for len in [0, 1, 2, 100, 511, 512, 513, 5000] {
            for upper_bits in [1, 10, 11, 12, 23, 34] {
                let mut list: Vec<u64> = (0..len)
                    .map(|at| {
                        dice ^= dice << 13;
                        dice ^= dice >> 7;
                        dice ^= dice << 17;
                        dice >> (64 - upper_bits) << 30 | at
                    })
                    .collect();
                let mut expected = list.clone();
                expected.sort_unstable();
                sort_by_upper_bits(&mut list, &mut spare, 30);
                assert_eq!(list, expected, "{len} numbers, {upper_bits} bits");
            }
        }
    }
}
