//! Every interleaving of small protocols over the index's version lock, by loom.
//!
//! The lock is the file that the index itself uses, with loom's atomics in place of those of `sync`. The model
//! reduces what the index does with the lock to the order of its steps: a child word is exchanged under the lock of
//! the node that holds it; a node that leaves the tree is retired and at once used for another place; a reader
//! validates version after version. Two tests, whose names end in `_is_caught`, leave out one step each: the model
//! must find the fault.

#[path = "../src/index/lock.rs"]
mod lock;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    pub(super) fn relax(_rounds: &mut u32) {
        loom::thread::yield_now();
    }
}

use lock::{Retry, VersionLock};
use loom::sync::Arc;
use loom::thread;
use sync::{AtomicU64, Ordering};

/// A node: its identity (`path`) never changes in one life; its content is two words that agree.
struct Node {
    lock: VersionLock,
    path: AtomicU64,
    content: [AtomicU64; 2],
}

impl Node {
    fn new(path: u64, content: u64) -> Self {
        Self {
            lock: VersionLock::new(),
            path: AtomicU64::new(path),
            content: [content, content].map(AtomicU64::new),
        }
    }

    fn write(&self, content: u64) {
        for word in &self.content {
            word.store(content, Ordering::Relaxed);
        }
    }

    fn read(&self) -> [u64; 2] {
        [0, 1].map(|word| self.content[word].load(Ordering::Relaxed))
    }
}

/// A root slot with its lock, and a pool of nodes.
struct Tree {
    lock: VersionLock,
    slot: AtomicU64,
    nodes: [Node; 2],
}

const PATH: u64 = 7;
const OTHER_PATH: u64 = 9;

impl Tree {
    fn new() -> Self {
        Self {
            lock: VersionLock::new(),
            slot: AtomicU64::new(0),
            nodes: [Node::new(PATH, 1), Node::new(0, 0)],
        }
    }

    /// Goes down as `Index::get` does: returns the path and content below the root slot.
    fn read(&self, couple: bool) -> Result<(u64, [u64; 2]), Retry> {
        let root_version = self.lock.read()?;
        let node = &self.nodes[self.slot.load(Ordering::Acquire) as usize];
        let version = node.lock.read()?;
        if couple {
            self.lock.validate(root_version)?;
        }
        let seen = (node.path.load(Ordering::Relaxed), node.read());
        node.lock.validate(version)?;
        Ok(seen)
    }

    /// Replaces node 0 by node 1 with the same path, as growing does; then node 0 begins another life.
    fn replace(&self) {
        let fresh = self.nodes[1].lock.revive();
        self.nodes[1].path.store(PATH, Ordering::Relaxed);
        self.nodes[1].write(2);
        let root = self.lock.read().and_then(|version| self.lock.try_lock(version)).expect("one writer");
        let old = &self.nodes[0];
        let old_locked = old.lock.read().and_then(|version| old.lock.try_lock(version)).expect("one writer");
        self.slot.store(1, Ordering::Release);
        old_locked.retire();
        drop(root);
        drop(fresh);
        let again = old.lock.revive();
        old.path.store(OTHER_PATH, Ordering::Relaxed);
        old.write(3);
        drop(again);
    }
}

#[test]
fn readers_never_see_half_a_change() {
    loom::model(|| {
        let node = Arc::new(Node::new(PATH, 1));
        let writer = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                let locked =
                    node.lock.read().and_then(|version| node.lock.try_lock(version)).expect("one writer");
                node.write(2);
                drop(locked);
            }
        });
        if let Ok(version) = node.lock.read() {
            let [one, other] = node.read();
            if node.lock.is_still(version) {
                assert_eq!(one, other);
            }
        }
        writer.join().expect("the writer ends");
        assert_eq!(node.read(), [2, 2]);
    });
}

#[test]
fn one_of_two_writers_wins_and_the_other_sees_it() {
    loom::model(|| {
        let node = Arc::new(Node::new(PATH, 0));
        let increment = |node: &Node| loop {
            let Ok(version) = node.lock.read() else { continue };
            let [one, _] = node.read();
            // The change was computed before the lock: taking the lock proves that nothing changed since.
            if let Ok(locked) = node.lock.try_lock(version) {
                node.write(one + 1);
                drop(locked);
                return;
            }
            thread::yield_now();
        };
        let other = thread::spawn({
            let node = Arc::clone(&node);
            move || increment(&node)
        });
        increment(&node);
        other.join().expect("the other writer ends");
        assert_eq!(node.read(), [2, 2]);
    });
}

#[test]
fn an_unchanged_unlock_disturbs_nobody_and_hides_nothing() {
    loom::model(|| {
        let node = Arc::new(Node::new(PATH, 1));
        let version = node.lock.read().expect("alive");
        let other = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                if let Ok(locked) = node.lock.read().and_then(|version| node.lock.try_lock(version)) {
                    locked.unlock_unchanged();
                }
            }
        });
        other.join().expect("the other ends");
        assert!(node.lock.is_still(version));
    });
}

fn replace_while_reading(couple: bool) {
    loom::model(move || {
        let tree = Arc::new(Tree::new());
        let writer = thread::spawn({
            let tree = Arc::clone(&tree);
            move || tree.replace()
        });
        if let Ok((path, content)) = tree.read(couple) {
            assert_eq!(path, PATH, "a reader is never led to another place");
            assert!(content == [1, 1] || content == [2, 2], "{content:?}");
        }
        writer.join().expect("the writer ends");
        let (path, content) = tree.read(true).expect("nobody writes");
        assert_eq!((path, content), (PATH, [2, 2]));
    });
}

#[test]
fn a_reader_survives_replacement_and_reuse_of_its_node() {
    replace_while_reading(true);
}

#[test]
#[should_panic(expected = "a reader is never led to another place")]
fn a_reader_that_does_not_validate_the_parent_is_caught() {
    replace_while_reading(false);
}

/// What a cursor does: it remembers a node and a version, and comes back.
fn return_to_a_node(check_life: bool) {
    loom::model(move || {
        let tree = Arc::new(Tree::new());
        let cursor = thread::spawn({
            let tree = Arc::clone(&tree);
            move || {
                let node = &tree.nodes[0];
                let Ok(remembered) = node.lock.read() else { return };
                let first = node.path.load(Ordering::Relaxed);
                if !node.lock.is_still(remembered) || first != PATH {
                    return;
                }
                let Ok(version) = node.lock.read() else { return };
                if check_life && !version.same_life(remembered) {
                    return;
                }
                let path = node.path.load(Ordering::Relaxed);
                if node.lock.is_still(version) {
                    assert_eq!(path, PATH, "the cursor is where it was");
                }
            }
        });
        tree.replace();
        cursor.join().expect("the cursor ends");
    });
}

#[test]
fn a_cursor_knows_a_node_in_another_life() {
    return_to_a_node(true);
}

#[test]
#[should_panic(expected = "the cursor is where it was")]
fn a_cursor_that_ignores_lives_is_caught() {
    return_to_a_node(false);
}
