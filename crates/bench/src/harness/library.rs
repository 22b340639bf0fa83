//! Functions of shared libraries, loaded at run time: this program links none of them.

use anyhow::bail;
use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A pointer to something of the library.
pub(crate) type Object = *mut c_void;

/// A shared library; never closed, since its threads may outlive any use.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    handle: Object,
    pub(crate) prefix: &'static str,
}

impl Library {
    /// Loads `file`, whose functions begin with `prefix`.
    pub(crate) fn open(file: &Path, prefix: &'static str) -> anyhow::Result<Self> {
        let name = CString::new(file.as_os_str().as_bytes())?;
        // SAFETY: a NUL-terminated name; a library that is loaded may do anything in its constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure dlerror returns a C string that belongs to this thread.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            bail!("cannot load {}: {why}", file.display());
        }
        Ok(Self { handle, prefix })
    }

    /// The function `prefix_name`.
    ///
    /// # Safety
    /// `F` is the type of a pointer to that very function.
    pub(crate) unsafe fn get<F: Copy>(self, name: &str) -> anyhow::Result<F> {
        const { assert!(size_of::<F>() == size_of::<Object>()) };
        let name = CString::new(format!("{}_{name}", self.prefix))?;
        // SAFETY: an open library and a NUL-terminated name.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if found.is_null() {
            bail!("the library has no {}", name.to_string_lossy());
        }
        // SAFETY: a pointer to a function, of the caller's type.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }
}

/// Declares `Functions`, a table of functions of a library, and how to fill it. The types must be those of the
/// library's header.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions that the bench calls.
        #[derive(Clone, Copy)]
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Functions {
            fn of(library: Library) -> anyhow::Result<Self> {
                // SAFETY: the types are those of the library's header.
                Ok(unsafe { Self { $($name: library.get(stringify!($name))?,)* } })
            }
        }
    };
}

pub(crate) use functions;
