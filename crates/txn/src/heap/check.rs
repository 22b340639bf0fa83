//! Is a heap sound? Its first page, its roots and what they point to, and its allocator.
//!
//! A heap that is not open is opened read-only for that: the check sees what the next opening will recover, and writes
//! nothing.

use super::error::{HeapError, HeapResult};
use super::heap::{Heap, verify};
use super::layout::{AT_CRC, ROOT_COUNT_MAX, is_blank_line, page};
use super::options::HeapOptions;
use super::roots::{Root, parse};
use super::thread::Thread;
use mangrove_arena::ArenaHeap;
use mangrove_shadow::{Error, Shadow};
use std::path::Path;

impl Heap {
    /// Compares the roots, what they point to, and every structure of the allocator with their rules; one message
    /// for each contradiction. O(pages and blocks); no transaction runs meanwhile.
    ///
    /// # Errors
    /// `Nested` inside a transaction, `Forked` in a child.
    pub fn check(&self) -> HeapResult<Vec<String>> {
        let mut thread = self.thread()?;
        let Thread { handle, arena, .. } = &mut *thread;
        Ok(handle.alone(|| {
            let mut problems = arena.check();
            if let Err(error) = verify(self.shadow()) {
                problems.push(error.to_string());
            }
            check_first_page(self.shadow(), arena, &mut problems);
            problems
        }))
    }

    /// Checks the heap at `path`, which no process has open for writing: every byte of its pool against its
    /// checksums, its logs, and then all that [`Heap::check`] compares. One message for each damaged place. Nothing
    /// is changed.
    ///
    /// # Errors
    /// When there is no heap at `path`, a process has it open for writing, or a file cannot be read; `AddressTaken`
    /// when this process has something else at the heap's address.
    pub fn check_path(path: impl AsRef<Path>) -> HeapResult<Vec<String>> {
        let path = path.as_ref();
        let report = match Shadow::check(path) {
            Err(damaged @ Error::Corrupt { .. }) => return Ok(vec![damaged.to_string()]),
            report => report?,
        };
        if !report.damage.is_empty() {
            return Ok(report.damage.iter().map(ToString::to_string).collect());
        }
        match HeapOptions::new().read_only(true).open(path) {
            Ok(heap) => heap.check(),
            Err(damaged @ (HeapError::Damaged { .. } | HeapError::Pool(Error::Corrupt { .. }))) => {
                Ok(vec![damaged.to_string()])
            }
            Err(error) => Err(error),
        }
    }
}

/// Adds what is wrong with the first page, and with the roots' targets. No transaction runs.
fn check_first_page(shadow: &Shadow, arena: &ArenaHeap, problems: &mut Vec<String>) {
    // SAFETY: the heap is open, so its first page is usable; no transaction writes it now.
    let page = unsafe { page(shadow) };
    if !is_blank_line(page) {
        problems
            .push(format!("bytes behind the checksum of the heap's first line, at {AT_CRC}, are not zero"));
    }
    let is_sound = problems.is_empty();
    let mut roots: Vec<Root> = Vec::with_capacity(ROOT_COUNT_MAX);
    for found in parse(page) {
        match found {
            Ok(root) if roots.iter().any(|other| other.name == root.name) => {
                problems.push(format!("two roots have the name {:?}", root.name));
            }
            Ok(root) => roots.push(root),
            Err(problem) => problems.push(problem),
        }
    }
    roots.retain(|root| root.address != 0);
    // An arena that contradicts itself would name blocks that are none.
    if is_sound {
        for block in arena.live() {
            match block {
                Ok((at, bytes)) => roots.retain(|root| !root.lies_in(at, bytes)),
                Err(problem) => return problems.push(problem),
            }
        }
        problems.extend(roots.iter().map(|root| {
            format!(
                "the root {:?} points to {} bytes at {:#x}, which do not lie in a block in use",
                root.name, root.bytes, root.address
            )
        }));
    }
}
