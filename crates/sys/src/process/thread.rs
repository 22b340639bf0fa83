//! Threads, their signals, and what the process was started with: addresses, stack limit, environment, arguments.

use std::io;

/// A number that no other living thread of this process has, never 0 and a multiple of 8. Unlike a thread-local
/// variable it costs one load and never allocates, so that a `malloc` may call this.
#[inline]
#[must_use]
pub fn thread_mark() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let mark: usize;
        // SAFETY: the first word of the thread control block is its own address (System V ABI, TLS variant II).
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) mark, options(nostack, readonly, preserves_flags, pure));
        }
        mark
    }
    #[cfg(target_arch = "aarch64")]
    {
        let mark: usize;
        // SAFETY: reads a register.
        unsafe {
            std::arch::asm!("mrs {}, tpidr_el0", out(reg) mark, options(nostack, nomem, preserves_flags, pure))
        };
        mark
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        std::thread_local! { static MARK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) }; }
        MARK.with(|mark| std::ptr::from_ref(mark) as usize)
    }
}

/// Threads of this process.
///
/// # Errors
/// When /proc cannot be read.
pub fn thread_count() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Lets pthread_cancel end the calling thread, or makes it wait; returns which of the two it was. Code that no
/// unwinding may leave, and that reads or writes files, makes it wait.
pub fn set_cancelable(cancelable: bool) -> bool {
    // glibc's and musl's numbers.
    const ENABLE: i32 = 0;
    const DISABLE: i32 = 1;
    unsafe extern "C" {
        fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
    }
    let mut before = ENABLE;
    // SAFETY: `before` is writable; both states exist.
    unsafe { pthread_setcancelstate(if cancelable { ENABLE } else { DISABLE }, &raw mut before) };
    before == ENABLE
}

/// Runs `work` with the signals blocked: one that comes meanwhile waits until `work` has returned, and the threads that
/// `work` starts never take a signal that was sent to the process, since those are for the program's own threads. The
/// signals that a thread raises itself (SIGSEGV and its like) and a profiler's clock (SIGPROF) are not blocked.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    /// Restores the mask of the calling thread, also after a panic.
    struct Restore(libc::sigset_t);

    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: reads the set, which the system filled.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
        }
    }

    const KEPT: [libc::c_int; 8] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGABRT,
        libc::SIGPROF,
    ];
    let mut blocked = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: the first call fills the set that the others change, and the last one fills `before` if it returns 0.
    let restore = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in KEPT {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        // Added to the blocked set: if the caller has blocked one of the kept signals, it stays blocked.
        let done = libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr()) == 0;
        done.then(|| Restore(before.assume_init()))
    };
    let answer = work();
    drop(restore);
    answer
}

/// Runs `write`, which may make a file longer than the process may have it (RLIMIT_FSIZE). The system then fails the
/// call with EFBIG, and sends SIGXFSZ to the calling thread, which ends the process by default. The error alone is
/// enough. Where the process has no such limit, which is asked each time, this is one system call beside those of
/// `write`; a limit that another process sets at that instant is not noticed.
///
/// # Errors
/// Those of `write`.
pub fn without_size_signal<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if !has_file_size_limit() { write() } else { while_size_signal_is_blocked(write) }
}

/// Whether RLIMIT_FSIZE limits this process; also where it cannot be read.
fn has_file_size_limit() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    !known || limit.rlim_cur != libc::RLIM_INFINITY
}

fn while_size_signal_is_blocked<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut signal = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: the first two calls fill the set, and the last one fills `before` if it returns 0.
    let blocked = unsafe {
        libc::sigemptyset(signal.as_mut_ptr());
        libc::sigaddset(signal.as_mut_ptr(), libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, signal.as_ptr(), before.as_mut_ptr()) == 0
    };
    if !blocked {
        return write();
    }
    // SAFETY: filled above.
    let (signal, before) = unsafe { (signal.assume_init(), before.assume_init()) };
    let is_pending = || {
        let mut pending = std::mem::MaybeUninit::uninit();
        // SAFETY: the first call fills the set that the second one reads.
        unsafe {
            libc::sigpending(pending.as_mut_ptr()) == 0
                && libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1
        }
    };
    let was_pending = is_pending();
    let answer = write();
    if answer.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EFBIG)) && !was_pending && is_pending() {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: takes the pending signal; both arguments live.
        unsafe { libc::sigtimedwait(&raw const signal, std::ptr::null_mut(), &raw const now) };
    }
    // SAFETY: the mask of before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    answer
}

/// Whether programs that this process starts get random addresses, as far as the process decides.
///
/// # Errors
/// A sandbox forbids the call.
pub fn addresses_are_random() -> io::Result<bool> {
    // SAFETY: this argument only reads the setting.
    let now = unsafe { libc::personality(0xffff_ffff) };
    if now == -1 { Err(io::Error::last_os_error()) } else { Ok(now & libc::ADDR_NO_RANDOMIZE == 0) }
}

/// Decides whether programs that this process starts, or becomes, get random addresses.
///
/// # Errors
/// A sandbox forbids it.
pub fn set_random_addresses(random: bool) -> io::Result<()> {
    // SAFETY: this argument only reads the setting.
    let now = unsafe { libc::personality(0xffff_ffff) };
    if now == -1 {
        return Err(io::Error::last_os_error());
    }
    let wanted = if random { now & !libc::ADDR_NO_RANDOMIZE } else { now | libc::ADDR_NO_RANDOMIZE };
    // SAFETY: changes how addresses are chosen by the next exec, nothing in this process.
    if unsafe { libc::personality(wanted as libc::c_ulong) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The soft limit of the main thread's stack in bytes, before this call sets it to `set`, if given (no more than
/// the hard limit). `u64::MAX` is unlimited.
///
/// # Errors
/// The error of setrlimit(2).
pub fn stack_limit(set: Option<u64>) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the struct.
    if unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let before = limit.rlim_cur;
    if let Some(bytes) = set {
        limit.rlim_cur = bytes.min(limit.rlim_max);
        // SAFETY: reads the struct.
        if unsafe { libc::setrlimit(libc::RLIMIT_STACK, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(before)
}

/// The addresses of the calling thread's own stack, as far as it may grow; empty where the system does not tell. For
/// the main thread it reads /proc/self/maps.
#[must_use]
pub fn thread_stack() -> std::ops::Range<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: fills the struct when it answers 0.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return 0..0;
    }
    let (mut low, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: filled above; used once, and destroyed.
    let answer = unsafe {
        let answer = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        answer
    };
    if answer == 0 { low.addr()..low.addr().saturating_add(bytes) } else { 0..0 }
}

/// Removes a variable from the environment that programs started from here get. Works on the environment itself,
/// because some programs (bash) have an unsetenv of their own.
///
/// # Safety
/// No other thread reads or changes the environment meanwhile.
pub unsafe fn forget_variable(name: &str) {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: a null-terminated array of NUL-terminated strings, or null; no other thread uses it (the caller's
    // promise).
    unsafe {
        let mut from = environ;
        let mut to = from;
        while !from.is_null() && !(*from).is_null() {
            let entry = std::ffi::CStr::from_ptr(*from).to_bytes();
            let is_it = entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='));
            if !is_it {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        if !to.is_null() {
            *to = std::ptr::null_mut();
        }
    }
}

/// Replaces this process by a new start of its program, with the arguments it was started with, its present
/// environment, and `variables` ("NAME=VALUE") in place of those of their names. Returns only if that fails.
#[must_use]
pub fn run_again(variables: &[&str]) -> io::Error {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStringExt;

    let strings = || -> io::Result<(CString, Vec<CString>, Vec<CString>)> {
        // SAFETY: only reads a number.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return Err(io::Error::other("it runs with the privileges of its file's owner"));
        }
        // The path that the program was started by, so that its name stays as it was; if that no longer exists, the
        // file itself.
        let path = std::fs::read_link("/proc/self/exe")?;
        let path = if path.exists() { path } else { "/proc/self/exe".into() };
        let path = CString::new(path.into_os_string().into_vec())?;
        let all = |bytes: Vec<u8>| -> io::Result<Vec<CString>> {
            let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
            Ok(text.split(|&b| b == 0).map(CString::new).collect::<Result<_, _>>()?)
        };
        let arguments = all(std::fs::read("/proc/self/cmdline")?)?;
        let is_named = |entry: &[u8]| {
            let names = variables.iter().map(|text| text.split_inclusive('=').next().unwrap_or(text));
            names.into_iter().any(|name| entry.starts_with(name.as_bytes()))
        };
        let mut environment = Vec::new();
        for (key, value) in std::env::vars_os() {
            let entry = [key.into_vec(), b"=".to_vec(), value.into_vec()].concat();
            if !is_named(&entry) {
                environment.push(CString::new(entry)?);
            }
        }
        for variable in variables {
            environment.push(CString::new(*variable)?);
        }
        Ok((path, arguments, environment))
    };
    let (path, arguments, environment) = match strings() {
        Ok(strings) => strings,
        Err(e) => return e,
    };
    let pointers = |all: &[CString]| {
        all.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<*const libc::c_char>>()
    };
    let (arguments_ptr, environment_ptr) = (pointers(&arguments), pointers(&environment));
    // SAFETY: NUL-terminated strings in null-terminated arrays, all alive.
    unsafe { libc::execve(path.as_ptr(), arguments_ptr.as_ptr(), environment_ptr.as_ptr()) };
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_different_marks() {
        let mine = thread_mark();
        assert!(mine != 0 && mine.is_multiple_of(8) && mine == thread_mark());
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            tell.send(thread_mark()).unwrap();
            let _ = stopped.recv();
        });
        assert_ne!(told.recv().unwrap(), mine);
        assert!(thread_count().unwrap() >= 2);
        drop(stop);
        other.join().unwrap();
    }

    /// The numbers of the signals that the calling thread has blocked.
    fn blocked() -> Vec<libc::c_int> {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: the call fills the set that the others read.
        unsafe {
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr()), 0);
            (1..=31).filter(|&signal| libc::sigismember(set.as_ptr(), signal) == 1).collect()
        }
    }

    /// A write without a limit changes no mask; one with a limit has the signal blocked meanwhile.
    #[test]
    fn the_size_signal_is_blocked_where_there_is_a_limit() {
        let is_blocked = || {
            let mut now = std::mem::MaybeUninit::uninit();
            // SAFETY: the first call fills the set that the second one reads.
            let blocked = unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
                libc::sigismember(now.as_ptr(), libc::SIGXFSZ) == 1
            };
            Ok(blocked)
        };
        assert_eq!(without_size_signal(is_blocked).unwrap(), has_file_size_limit());
        assert!(while_size_signal_is_blocked(is_blocked).unwrap());
        assert!(!is_blocked().unwrap());
    }

    #[test]
    fn threads_without_signals_have_all_blocked_but_their_own_faults() {
        let mine = blocked();
        let theirs = without_signals(|| std::thread::spawn(blocked)).join().unwrap();
        assert_eq!(blocked(), mine, "the caller's mask is what it was");
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
        let open = |signal: &libc::c_int| {
            !theirs.contains(signal) && ![libc::SIGKILL, libc::SIGSTOP].contains(signal)
        };
        let mut expected = [&faults[..], &[libc::SIGABRT, libc::SIGPROF]].concat();
        expected.sort_unstable();
        assert_eq!((1..=31).filter(open).collect::<Vec<_>>(), expected);
        let panicked = std::panic::catch_unwind(|| without_signals(|| panic!("no thread")));
        assert!(panicked.is_err() && blocked() == mine);
    }
}
