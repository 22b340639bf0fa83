//! Batches: puts and deletes that take effect together.

/// Puts and deletes that take effect all or none, if the records that it expects are there. For a key that occurs
/// several times the last entry counts, but every expectation.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    ops: Vec<OpPlace>,
    expected: Vec<OpPlace>,
}

/// Where an operation's key begins; its value follows it.
#[derive(Clone, Copy, Debug)]
struct OpPlace {
    at: usize,
    key_len: usize,
    /// None for a delete, and for a key that is expected to be absent.
    value_len: Option<usize>,
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<'a> {
    pub(crate) key: &'a [u8],
    /// None for a delete, and for a key that is expected to be absent.
    pub(crate) value: Option<&'a [u8]>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let place = self.place(key.as_ref(), Some(value.as_ref()));
        self.ops.push(place);
        self
    }

    /// Removes `key`, if it is there.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let place = self.place(key.as_ref(), None);
        self.ops.push(place);
        self
    }

    /// The batch takes effect only if `key` has this value then; none: if it is absent.
    pub fn expect(&mut self, key: impl AsRef<[u8]>, value: Option<&[u8]>) -> &mut Self {
        let place = self.place(key.as_ref(), value);
        self.expected.push(place);
        self
    }

    fn place(&mut self, key: &[u8], value: Option<&[u8]>) -> OpPlace {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        OpPlace { at, key_len: key.len(), value_len: value.map(<[u8]>::len) }
    }

    /// Operations in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// True when the batch holds no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Forgets all operations and expectations.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ops.clear();
        self.expected.clear();
    }

    fn at(&self, place: &OpPlace) -> Op<'_> {
        let (key, rest) = self.bytes[place.at..].split_at(place.key_len);
        Op { key, value: place.value_len.map(|len| &rest[..len]) }
    }

    /// The operations in the order in which they were added.
    pub(crate) fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        self.ops.iter().map(|place| self.at(place))
    }

    /// What the batch expects of keys.
    pub(crate) fn expected(&self) -> impl Iterator<Item = Op<'_>> {
        self.expected.iter().map(|place| self.at(place))
    }

    /// The operations that count, in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<Op<'_>> {
        let ops: Vec<Op<'_>> = self.ops().collect();
        // The first bytes of a key in one word decide most comparisons without reading the key.
        let mut order: Vec<(u64, u32)> = ops.iter().zip(0..).map(|(op, n)| (head_of(op.key), n)).collect();
        order.sort_unstable_by(|a, b| {
            let keys = || ops[a.1 as usize].key.cmp(ops[b.1 as usize].key);
            a.0.cmp(&b.0).then_with(keys).then_with(|| a.1.cmp(&b.1))
        });
        let mut sorted: Vec<Op<'_>> = Vec::with_capacity(ops.len());
        for (_, n) in order {
            let op = ops[n as usize];
            match sorted.last_mut() {
                Some(before) if before.key == op.key => *before = op,
                _ => sorted.push(op),
            }
        }
        sorted
    }
}

/// The first eight bytes of a key, the first one highest. These words are ordered as the keys are; keys that agree in
/// them are equal here.
fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(8);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use super::Batch;

    #[test]
    fn the_last_operation_on_a_key_counts_and_keys_are_in_order() {
        let keys: [&[u8]; 9] = [
            b"",
            b"a",
            b"a\0",
            b"a\0\0\0\0\0\0\0",
            b"a\0\0\0\0\0\0\0\0",
            b"aaaaaaaab",
            b"aaaaaaaa",
            b"\xff",
            b"b",
        ];
        let mut batch = Batch::new();
        for (n, key) in keys.iter().enumerate().rev() {
            batch.put(key, [0]);
            batch.delete(key);
            if n % 3 != 0 {
                batch.put(key, [n as u8; 3]);
            }
        }
        let mut expected: Vec<_> = keys.iter().enumerate().collect();
        expected.sort_by_key(|(_, key)| **key);
        let sorted = batch.sorted();
        assert_eq!(sorted.len(), keys.len());
        for (op, (n, key)) in sorted.iter().zip(expected) {
            assert_eq!(op.key, *key);
            assert_eq!(op.value, (n % 3 != 0).then_some(&[n as u8; 3][..]));
        }
        batch.clear();
        assert!(batch.is_empty() && batch.sorted().is_empty());
    }
}
