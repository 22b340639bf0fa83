//! Values that a child of fork neither uses nor drops.

use super::process::ProcessMark;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A value that is dropped only in the process that made it. In a child of fork its locks may be held by threads that
/// the child does not have.
#[derive(Debug)]
pub struct LeftInChild<T> {
    process: ProcessMark,
    value: ManuallyDrop<T>,
}

impl<T> LeftInChild<T> {
    /// Of the calling process.
    pub fn new(value: T) -> Self {
        Self { process: ProcessMark::here(), value: ManuallyDrop::new(value) }
    }

    /// Whether the calling process made it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.process.is_here()
    }
}

impl<T> Deref for LeftInChild<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for LeftInChild<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for LeftInChild<T> {
    fn drop(&mut self) {
        if self.process.is_here() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::in_child::in_child;

    struct Ends(i32);

    impl Drop for Ends {
        fn drop(&mut self) {
            // SAFETY: ends a child.
            unsafe { libc::_exit(self.0) };
        }
    }

    #[test]
    fn only_the_process_that_made_a_value_drops_it() {
        let dropped = |value: ManuallyDrop<LeftInChild<Ends>>| {
            drop(ManuallyDrop::into_inner(value));
            1
        };
        assert_eq!(in_child(|| dropped(ManuallyDrop::new(LeftInChild::new(Ends(2))))), 2);
        let of_parent = ManuallyDrop::new(LeftInChild::new(Ends(2)));
        assert_eq!(in_child(|| dropped(of_parent)), 1);
    }
}
