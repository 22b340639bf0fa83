//! Who is running, and how the process was laid out in memory.

use std::io;

/// A number that no other living thread of this process has, never 0 and a multiple of 8. Unlike a thread-local variable it
/// costs one load, and never allocates: a `malloc` may ask.
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

/// Whether programs that this process starts get random addresses, as far as the process decides.
///
/// # Errors
/// A sandbox forbids the call.
pub fn addresses_are_random() -> io::Result<bool> {
    // SAFETY: this argument only asks.
    let now = unsafe { libc::personality(0xffff_ffff) };
    if now == -1 { Err(io::Error::last_os_error()) } else { Ok(now & libc::ADDR_NO_RANDOMIZE == 0) }
}

/// Decides whether programs that this process starts, or becomes, get random addresses.
///
/// # Errors
/// A sandbox forbids it.
pub fn set_random_addresses(random: bool) -> io::Result<()> {
    // SAFETY: this argument only asks.
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
}
