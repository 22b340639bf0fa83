//! A call that cannot be tracked is refused with a message; a call that crashes dies as it would natively.

use super::differential::in_child;
use super::library::Library;
use mangrove_tracker::{Error, Recompiler, Tracker, WriteSet};
use std::ffi::c_void;

/// (function, part of the error's text)
pub(crate) const REFUSED: [(&str, &str); 20] = [
    ("refused_fork", "makes a process"),
    ("refused_vfork", "makes a process"),
    ("refused_system", "makes a process"),
    ("refused_spawn", "makes a process"),
    ("refused_popen", "makes a process"),
    ("refused_thread", "starts a thread"),
    ("refused_jit", "made at run time"),
    ("refused_jit_readonly", "made at run time"),
    ("refused_jit_shared", "made at run time"),
    ("refused_fiemap", "ioctl"),
    ("refused_pthread_exit", "ends a thread"),
    ("refused_thrd_exit", "ends a thread"),
    ("refused_unknown", "does not know"),
    ("refused_padlock", "does not know"),
    ("refused_fcntl", "fcntl"),
    ("refused_zerocopy", "getsockopt"),
    ("refused_syscall", "system call 9999"),
    ("refused_exec", "process"),
    ("refused_longjmp", "longjmp"),
    ("refused_exit_thread", "thread"),
];

/// (function, the signal that ends it)
pub(crate) const CRASHES: [(&str, i32); 5] = [
    ("crash_null", libc::SIGSEGV),
    ("crash_abort", libc::SIGABRT),
    ("crash_illegal", libc::SIGILL),
    ("crash_wild", libc::SIGSEGV),
    ("crash_divide", libc::SIGFPE),
];

struct Call<'a> {
    tracker: &'a Recompiler,
    writes: WriteSet,
    function: super::library::Function,
    result: Option<Result<(), Error>>,
}

unsafe extern "C" fn make_call(arg: *mut c_void) -> i32 {
    // SAFETY: the pointer that `refusal` passes on.
    let call = unsafe { &mut *arg.cast::<Call<'_>>() };
    // SAFETY: a test program's function.
    call.result = Some(unsafe { call.tracker.call(&mut call.writes, call.function, std::ptr::null_mut()) });
    0
}

/// Makes each call in a child of its own, because an abandoned call cannot be resumed; returns what went wrong.
pub(crate) fn check(library: &Library, tracker: &Recompiler) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, says) in REFUSED {
        let status = in_child(|| {
            let call_with_setjmp: unsafe extern "C" fn(
                unsafe extern "C" fn(*mut c_void) -> i32,
                *mut c_void,
            ) -> i32 =
                // SAFETY: the function's type in libc.c.
                unsafe { std::mem::transmute(library.address("call_with_setjmp")) };
            let writes = WriteSet::new(32).expect("a block size");
            let mut call = Call { tracker, writes, function: library.function(name), result: None };
            // SAFETY: as its type says.
            let jumped = unsafe { call_with_setjmp(make_call, std::ptr::from_mut(&mut call).cast()) };
            let Some(Err(error)) = call.result.take() else { return 10 + jumped };
            if !error.to_string().contains(says) || !error.is_fatal() {
                println!("    {name}: {error}");
                return 2;
            }
            // The tracker still works.
            call.function = library.function("libc_locks");
            // SAFETY: as above.
            unsafe { make_call(std::ptr::from_mut(&mut call).cast()) };
            i32::from(call.result != Some(Ok(())))
        });
        if status != 0 {
            wrong.push(format!("{name}: status {status:#x}"));
        }
    }
    for (name, signal) in CRASHES {
        let status = in_child(|| {
            let mut writes = WriteSet::new(32).expect("a block size");
            // SAFETY: it dies.
            let result = unsafe { tracker.call(&mut writes, library.function(name), std::ptr::null_mut()) };
            println!("    {name} came back: {result:?}");
            0
        });
        if status & 0x7f != signal {
            wrong.push(format!("{name}: status {status:#x}, not signal {signal}"));
        }
    }
    let status = in_child(|| {
        let mut writes = WriteSet::new(32).expect("a block size");
        // SAFETY: it exits.
        let _ = unsafe { tracker.call(&mut writes, library.function("calls_exit"), std::ptr::null_mut()) };
        0
    });
    if status != 7 << 8 {
        wrong.push(format!("calls_exit: status {status:#x}"));
    }
    wrong
}
