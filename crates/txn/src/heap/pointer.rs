//! Typed addresses in a heap.

use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::marker::PhantomData;

/// The address of a `T` in a heap; null is none. It may be stored in the heap: the heap comes back at its address.
///
/// It is an address and nothing more: reading through it after the block was freed gives bytes of the block's next
/// owner, and one that does not lie in the heap makes the access panic, which undoes the transaction.
#[repr(transparent)]
pub struct Ptr<T> {
    address: u64,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ptr({:#x})", self.address)
    }
}

// SAFETY: a transparent wrapper of a u64, of which zero is a value.
unsafe impl<T> Zeroable for Ptr<T> {}
// SAFETY: as above; every bit pattern is a value, and there is no padding.
unsafe impl<T: 'static> Pod for Ptr<T> {}

impl<T> Ptr<T> {
    /// The pointer to nothing.
    pub const NULL: Self = Self { address: 0, of: PhantomData };

    /// The pointer to `address`.
    #[inline(always)]
    #[must_use]
    pub const fn at(address: usize) -> Self {
        Self { address: address as u64, of: PhantomData }
    }

    /// The address.
    #[inline(always)]
    #[must_use]
    pub const fn address(self) -> usize {
        self.address as usize
    }

    /// Whether it points to nothing.
    #[inline(always)]
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// None for the pointer to nothing.
    #[inline(always)]
    #[must_use]
    pub fn some(self) -> Option<Self> {
        (!self.is_null()).then_some(self)
    }

    /// The pointer to the `index`-th `T` of the array that begins here.
    #[inline(always)]
    #[must_use]
    pub const fn add(self, index: usize) -> Self {
        Self::at(self.address().wrapping_add(index.wrapping_mul(size_of::<T>())))
    }

    /// The pointer to a field: `offset` is what `offset_of!` says, and the function only names the field's type. The
    /// macro [`field!`](crate::field) writes both.
    #[inline(always)]
    #[must_use]
    pub const fn field<F>(self, offset: usize, _type: fn(&T) -> &F) -> Ptr<F> {
        Ptr::at(self.address().wrapping_add(offset))
    }

    /// The same address as a pointer to another type.
    #[inline(always)]
    #[must_use]
    pub const fn cast<U>(self) -> Ptr<U> {
        Ptr::at(self.address())
    }
}

/// The pointer to a field of what a [`Ptr`](crate::Ptr) points to: `field!(node, Node, next)`.
#[macro_export]
macro_rules! field {
    ($pointer:expr, $type:ty, $field:ident) => {
        $pointer.field(::core::mem::offset_of!($type, $field), |of: &$type| &of.$field)
    };
}
