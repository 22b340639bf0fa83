//! Shared libraries of test code, compiled when the test runs.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A function that trackers can call.
pub(crate) type Function = unsafe extern "C" fn(*mut c_void);

/// A loaded library.
pub(crate) struct Library {
    handle: *mut c_void,
    /// Its file, for people.
    pub(crate) path: PathBuf,
}

/// Where compiled test code goes.
pub(crate) fn scratch() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("mangrove-tracker-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary directory can be written");
    dir
}

/// The directory of test programs.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Compiles `source` into a shared library, or returns the compiler's output.
pub(crate) fn compile(compiler: &str, source: &Path, flags: &[&str]) -> Result<Library, String> {
    let name = source.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let out = scratch().join(format!("lib{name}.so"));
    let mut command = Command::new(compiler);
    // Each library binds its own symbols first: several libraries are built from one source.
    command.args(["-shared", "-fPIC", "-g", "-Wl,-Bsymbolic", "-o"]).arg(&out).arg(source).args(flags);
    let output = command.output().map_err(|error| format!("{compiler}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{compiler} {}: {}", source.display(), String::from_utf8_lossy(&output.stderr)));
    }
    Library::open(&out)
}

impl Library {
    /// Loads a library by path or name.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.to_string_lossy().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: runs the library's constructors, which is what the test wants.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            // SAFETY: a C string of the dynamic linker, valid until the next call.
            let why = unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) };
            return Err(why.to_string_lossy().into_owned());
        }
        Ok(Self { handle, path: path.into() })
    }

    /// Address of a symbol.
    pub(crate) fn address(&self, name: &str) -> *mut c_void {
        let symbol = CString::new(name).expect("a symbol has no zero byte");
        // SAFETY: a valid handle and a C string.
        let found = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        assert!(!found.is_null(), "{} has {name}", self.path.display());
        found
    }

    /// A function of the library.
    pub(crate) fn function(&self, name: &str) -> Function {
        // SAFETY: the test programs' functions have this type.
        unsafe { std::mem::transmute::<*mut c_void, Function>(self.address(name)) }
    }
}
