//! The entries of a block. Each has the length of what its key shares with the one before it, the length of the rest of
//! the key, the length of the value; then the rest, and the value. The places where nothing is shared follow, 4 bytes
//! each, and how many there are (LevelDB's doc/table_format.md).

use std::ops::Range;

/// A place among the entries of a block, whose bytes the caller keeps.
#[derive(Default)]
pub(super) struct BlockCursor {
    at: usize,
    /// Where the entries end.
    end: usize,
    key: Vec<u8>,
    value: Range<usize>,
}

impl BlockCursor {
    /// Goes before the first entry of another block. `None`: damaged.
    pub(super) fn begin(&mut self, block: &[u8]) -> Option<()> {
        let (rest, count) = block.split_last_chunk::<4>()?;
        let places = usize::try_from(u32::from_le_bytes(*count)).ok()?.checked_mul(4)?;
        self.end = rest.len().checked_sub(places)?;
        self.at = 0;
        self.key.clear();
        Some(())
    }

    /// Goes to the next entry of the block. `None`: damaged; false: there is none.
    #[inline]
    pub(super) fn next(&mut self, block: &[u8]) -> Option<bool> {
        if self.at >= self.end {
            return Some(false);
        }
        let entry = block.get(self.at..self.end)?;
        let (shared, rest, value, mut at);
        match entry.first_chunk::<3>() {
            Some(&[a, b, c]) if (a | b | c) < 0x80 => {
                (shared, rest, value) = (usize::from(a), usize::from(b), usize::from(c));
                at = 3;
            }
            _ => {
                let mut left = entry;
                (shared, rest, value) = (length(&mut left)?, length(&mut left)?, length(&mut left)?);
                at = entry.len() - left.len();
            }
        }
        let rest = entry.get(at..at.checked_add(rest)?)?;
        if shared > self.key.len() {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        at += rest.len();
        let end = at.checked_add(value).filter(|end| *end <= entry.len())?;
        self.value = self.at + at..self.at + end;
        self.at += end;
        Some(true)
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Where in the block the value is.
    #[inline]
    pub(super) fn value(&self) -> Range<usize> {
        self.value.clone()
    }
}

/// A length of 32 bits, 7 in each byte, the lowest first.
fn length(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0_u64;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return usize::try_from(value).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(block: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let (mut cursor, mut found) = (BlockCursor::default(), Vec::new());
        cursor.begin(block)?;
        while cursor.next(block)? {
            found.push((cursor.key().to_vec(), block[cursor.value()].to_vec()));
        }
        Some(found)
    }

    #[test]
    fn keys_are_put_together_and_damage_is_told() {
        let long = [b'v'; 300];
        let mut block = b"\x00\x04\x01root1\x02\x02\x00of\x00\x01\xac\x02s".to_vec();
        block.extend_from_slice(&long);
        block.extend_from_slice(&[0, 0, 0, 0, 14, 0, 0, 0, 2, 0, 0, 0]);
        let expected = [(&b"root"[..], &b"1"[..]), (b"roof", b""), (b"s", &long)];
        let expected: Vec<_> = expected.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        assert_eq!(all(&block), Some(expected));
        assert_eq!(all(b"\0\0\0\0"), Some(Vec::new()));
        for damaged in
            [&b""[..], b"\x01\0\0\0", b"\x01\x01\0k\0\0\0\0", b"\0\x09\0k\0\0\0\0", b"\0\x01\x09k\0\0\0\0"]
        {
            assert_eq!(all(damaged), None, "{damaged:?}");
        }
        // Any byte may be another one: an answer, and never a panic.
        for at in 0..block.len() {
            for bit in 0..8 {
                let mut changed = block.clone();
                changed[at] ^= 1 << bit;
                let _ = all(&changed);
            }
            let _ = all(&block[..at]);
        }
    }
}
