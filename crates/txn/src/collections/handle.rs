//! What the handles of all collections have in common: an address, and a head that says what lies there.

use crate::heap::{HeapError, Ptr, Stop, Tx};

/// Offset of the word in each head that tells the collection's kind, format and types.
pub(super) const AT_SHAPE: usize = 0;
/// The format of all collections that this code writes.
pub(super) const VERSION: u64 = 1;
/// Kinds of collections.
pub(super) const KIND_VECTOR: u64 = 1;
pub(super) const KIND_MAP: u64 = 2;
pub(super) const KIND_ORDERED: u64 = 3;
pub(super) const KIND_QUEUE: u64 = 4;

/// Bytes of a type that a shape tells apart.
const TYPE_BYTES_MAX: u64 = (1 << 24) - 1;

/// The first word of a head: kind, format version, and the bytes of keys and values.
pub(super) const fn shape(kind: u64, key_bytes: usize, value_bytes: usize) -> u64 {
    const fn capped(bytes: usize) -> u64 {
        if bytes as u64 > TYPE_BYTES_MAX { TYPE_BYTES_MAX } else { bytes as u64 }
    }
    kind | VERSION << 8 | capped(key_bytes) << 16 | capped(value_bytes) << 40
}

/// Bytes of the root of a collection, whatever its kind: that of its first word.
const ROOT_TYPE_BYTES: u64 = 8;

/// The address of the head at the root `name`; `create` makes one if there is no such root.
pub(super) fn at_root(
    tx: &mut Tx<'_>,
    name: &str,
    shape: u64,
    create: impl FnOnce(&mut Tx<'_>) -> Result<usize, Stop>,
) -> Result<usize, Stop> {
    if let Some(head) = tx.root_bytes(name, ROOT_TYPE_BYTES)? {
        if head == 0 {
            let what = format!("the root {name:?} points to nothing; remove it, or set it to a collection");
            return Err(HeapError::Root { what }.into());
        }
        let found: u64 = tx.read(Ptr::at(head + AT_SHAPE))?;
        if found == shape {
            return Ok(head);
        }
        let what = format!(
            "the root {name:?} points to another kind of collection, or one of other types ({found:#x}, not \
             {shape:#x}); use the program that made it"
        );
        return Err(HeapError::Root { what }.into());
    }
    tx.whole(|tx| {
        let head = create(tx)?;
        tx.set_root_bytes(name, head, ROOT_TYPE_BYTES)?;
        Ok(head)
    })
}

/// Makes an iterator of what walks by steps; it ends with the first error.
pub(super) fn steps<'t, R, W: 't, T, E>(
    reads: &'t mut R,
    mut walk: W,
    mut step: impl FnMut(&mut W, &mut R) -> Result<Option<T>, E> + 't,
) -> impl Iterator<Item = Result<T, E>> + 't {
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let item = step(&mut walk, reads).transpose();
        is_over = !matches!(item, Some(Ok(_)));
        item
    })
}

/// A handle: the address of a head, as plain data that may itself be stored in the heap.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident<$($of:ident),+>, $shape:expr) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name<$($of),+> {
            head: u64,
            of: ::std::marker::PhantomData<fn() -> ($($of,)+)>,
        }

        impl<$($of),+> Clone for $name<$($of),+> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($of),+> Copy for $name<$($of),+> {}

        impl<$($of),+> PartialEq for $name<$($of),+> {
            fn eq(&self, other: &Self) -> bool {
                self.head == other.head
            }
        }

        impl<$($of),+> Eq for $name<$($of),+> {}

        impl<$($of),+> ::std::fmt::Debug for $name<$($of),+> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.head)
            }
        }

        // SAFETY: a transparent wrapper of a u64, of which zero is a value.
        unsafe impl<$($of),+> ::bytemuck::Zeroable for $name<$($of),+> {}
        // SAFETY: as above; every bit pattern is a value, and there is no padding.
        unsafe impl<$($of: 'static),+> ::bytemuck::Pod for $name<$($of),+> {}

        impl<$($of),+> $name<$($of),+> {
            const SHAPE: u64 = $shape;

            const fn of_head(head: usize) -> Self {
                Self { head: head as u64, of: ::std::marker::PhantomData }
            }

            /// The address of its head, in every process. A field of a zeroed struct has none: 0.
            #[must_use]
            pub const fn address(self) -> usize {
                self.head as usize
            }
        }
    };
}

pub(super) use handle;
