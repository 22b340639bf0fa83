//! Words of the state that point into modules which the next start would have elsewhere.

use crate::image::layout::StateHeader;
use crate::image::modules::{Gone, find_pointer};
use crate::{Error, Result};
use mangrove_arena::ArenaHeap;

/// Refuses to commit what the next start would refuse to open.
///
/// # Errors
/// `Moved`: a word of the ranges points to a module that moves.
pub(super) fn points_nowhere(ranges: &[(usize, usize)], movable: &[Gone]) -> Result<()> {
    if movable.is_empty() {
        return Ok(());
    }
    for &(from, len) in ranges {
        let (first, end) = (from.next_multiple_of(8), (from + len) & !7);
        // SAFETY: aligned words in the region, which no command writes now.
        let words =
            unsafe { std::slice::from_raw_parts(first as *const usize, end.saturating_sub(first) / 8) };
        if let Some((at, which)) = find_pointer(words, movable) {
            let (at, word, why) = (first + at * 8, words[at], &movable[which].why);
            let what = format!(
                "a command made the state point at {at:#x} to {word:#x}, and {why}; nothing of its batch is durable"
            );
            return Err(Error::Moved { what });
        }
    }
    Ok(())
}

/// Why the state cannot live without the modules of `gone`, if it points into one.
///
/// # Errors
/// A message, when the arena's description is damaged.
pub(super) fn points_there(
    heap: &ArenaHeap,
    head: &StateHeader,
    gone: &[Gone],
) -> std::result::Result<Option<String>, String> {
    if gone.is_empty() {
        return Ok(None);
    }
    let say = |at: usize, word: usize, which: usize| {
        format!("the durable state at {at:#x} points to {word:#x}, and {}", gone[which].why)
    };
    if let Some((at, which)) = find_pointer(&head.roots, gone) {
        return Ok(Some(say((&raw const head.roots[at]) as usize, head.roots[at], which)));
    }
    let destructors = head.keys.map(|key| key.destructor);
    if let Some((at, which)) = find_pointer(&destructors, gone) {
        return Ok(Some(say((&raw const head.keys[at].destructor) as usize, destructors[at], which)));
    }
    for live in heap.live() {
        let (from, len) = live?;
        if from as u64 == head.modules {
            continue;
        }
        // SAFETY: a block in use or a mapping, in the region, aligned to 16; no command writes during opening.
        let words = unsafe { std::slice::from_raw_parts(from as *const usize, len / size_of::<usize>()) };
        if let Some((at, which)) = find_pointer(words, gone) {
            return Ok(Some(say(from + at * 8, words[at], which)));
        }
    }
    Ok(None)
}
