//! The bodies of the functions that set an option.

/// The body of a C function that sets an option: calls a method of a builder that is a field of the options object,
/// or sets a field. `$guard` is the door's: it runs a closure that returns `Result<(), Failure>`, where the door's
/// `Failure` is `From<BadArgument>`. NULL options are its error, as is what the value returns by `?`; the options are
/// then as they were.
///
/// Only for an `unsafe` function whose contract says: NULL, or a live object that no other thread uses now. The
/// signature stays outside of the macro, where cbindgen reads it.
///
/// ```
/// use mangrove_cabi::{BadArgument, set_option, stop_panics};
///
/// #[derive(Clone)]
/// struct Builder(u64);
///
/// impl Builder {
///     fn capacity(self, bytes: u64) -> Self {
///         Self(bytes)
///     }
/// }
///
/// struct Options {
///     all: Builder,
///     create: bool,
/// }
///
/// fn guard(body: impl FnOnce() -> Result<(), BadArgument>) -> bool {
///     stop_panics(body).is_ok_and(|set| set.is_ok())
/// }
///
/// unsafe extern "C" fn set_capacity(options: *mut Options, bytes: u64) -> bool {
///     set_option!(guard, options.all.capacity(bytes))
/// }
///
/// unsafe extern "C" fn set_create(options: *mut Options, create: bool) -> bool {
///     set_option!(guard, options.create = create)
/// }
///
/// let mut options = Options { all: Builder(0), create: false };
/// // SAFETY: a live object.
/// assert!(unsafe { set_capacity(&raw mut options, 7) && set_create(&raw mut options, true) });
/// assert_eq!((options.all.0, options.create), (7, true));
/// // SAFETY: NULL.
/// assert!(unsafe { !set_capacity(std::ptr::null_mut(), 7) });
/// ```
#[macro_export]
macro_rules! set_option {
    ($guard:path, $options:ident.$builder:ident.$method:ident($($value:expr),*)) => {
        $crate::set_option!(@ $guard, $options, $options.$builder = $options.$builder.clone().$method($($value),*))
    };
    ($guard:path, $options:ident.$field:ident = $value:expr) => {
        $crate::set_option!(@ $guard, $options, $options.$field = $value)
    };
    (@ $guard:path, $options:ident, $change:expr) => {
        $guard(|| {
            // SAFETY: the contract of the function that this is the body of.
            let $options = unsafe { $crate::handle_mut($options, stringify!($options)) }?;
            $change;
            Ok(())
        })
    };
}

/// The Rust value that a number of a C enum stands for.
///
/// ```
/// use mangrove_cabi::{BadArgument, Problem, from_c_enum};
///
/// #[allow(non_camel_case_types)]
/// #[repr(i32)]
/// enum fruit {
///     APPLE = 0,
///     PEAR = 1,
/// }
///
/// let name = |number| from_c_enum!(number, fruit { APPLE => "apple", PEAR => "pear" });
/// assert_eq!(name(1), Ok("pear"));
/// assert_eq!(name(7), Err(BadArgument { what: "fruit", problem: Problem::NoSuchNumber(7) }));
/// ```
#[macro_export]
macro_rules! from_c_enum {
    ($number:expr, $type:ident { $($name:ident => $value:expr),+ $(,)? }) => {
        match $number {
            $(number if number == $type::$name as i32 => Ok($value),)+
            number => Err($crate::BadArgument {
                what: stringify!($type),
                problem: $crate::Problem::NoSuchNumber(number),
            }),
        }
    };
}
