//! Size of the index: nodes by layout, bytes.

use super::leaf::KeySource;
use super::tree::Index;
use super::word::NodeKind;

/// Nodes and bytes of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Nodes in use, by layout: 4, 10, 16, 48 and 256 children.
    pub(crate) nodes: [u64; NodeKind::COUNT],
    /// Bytes of nodes in use and of the directory.
    pub(crate) bytes_used: u64,
    /// Bytes taken from the system for nodes and directory.
    pub(crate) bytes_reserved: u64,
}

impl<K: KeySource> Index<K> {
    /// Counts nodes and bytes; exact when no thread writes.
    pub(crate) fn stats(&self) -> Stats {
        let nodes = self.arena.live();
        let directory = self.directory.bytes();
        let bytes: u64 = NodeKind::ALL.iter().zip(nodes).map(|(kind, len)| kind.bytes() as u64 * len).sum();
        Stats {
            nodes,
            bytes_used: directory + bytes,
            bytes_reserved: directory + self.arena.reserved_bytes(),
        }
    }
}
