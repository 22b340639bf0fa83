//! What the index costs: nodes by layout, bytes.

use super::leaf::KeySource;
use super::tree::Index;
use super::word::Kind;

/// Nodes and bytes of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Nodes in use, by layout: 4, 10, 16, 48 and 256 children.
    pub(crate) nodes: [u64; Kind::COUNT],
    /// Bytes of nodes in use, the directory included.
    pub(crate) bytes_used: u64,
    /// Bytes taken from the system, the directory included.
    pub(crate) bytes_reserved: u64,
}

impl<K: KeySource> Index<K> {
    /// Counts nodes and bytes; exact when nobody writes.
    pub(crate) fn stats(&self) -> Stats {
        let nodes = self.arena.live();
        let directory = self.directory.bytes();
        let bytes: u64 = Kind::ALL.iter().zip(nodes).map(|(kind, len)| kind.bytes() as u64 * len).sum();
        Stats {
            nodes,
            bytes_used: directory + bytes,
            bytes_reserved: directory + self.arena.reserved_bytes(),
        }
    }
}
