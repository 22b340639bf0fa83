//! Signals while translated code runs.
//!
//! Asynchronous ones are delivered natively: their handlers are no part of the call, and what they write is
//! not recorded, as it would not be a moment before or after the call. A handler that jumps into the call
//! (siglongjmp) is found out when the function returns natively: the call has escaped.
//!
//! Synchronous faults of translated code are shown with the original pc. Without a handler of the program the
//! faulting instruction is executed once more, natively, so that the process dies as it always would.

use super::context::context;
use super::dispatch::state;
use super::gate;
use crate::active::in_tracked_call;
use std::ffi::c_void;
use std::sync::Once;

const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];

/// What was installed before, by signal number.
static mut FORMER: [Option<libc::sigaction>; 32] = [const { None }; 32];

/// Stands in front of the program's handlers of faults. Handlers that it installs later replace ours; they
/// then see addresses of the code cache.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for signal in FAULTS {
            // SAFETY: sigaction with our own structures; the former action is stored before any fault of
            // translated code, which runs only later.
            unsafe {
                let mut former: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &raw mut former);
                (&raw mut FORMER[signal as usize]).write(Some(former));
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_fault as *const () as usize;
                action.sa_mask = former.sa_mask;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | former.sa_flags & libc::SA_NODEFER;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    });
}

unsafe extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, user: *mut c_void) {
    // SAFETY: the kernel's own context of the interrupted thread.
    let registers = unsafe { &mut (*user.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let rip = libc::REG_RIP as usize;
    let at = registers[rip] as usize;
    // SAFETY: only the thread that has the turn looks into the state, and it is interrupted.
    let origin = unsafe {
        let state = state();
        let inside =
            !state.is_null() && in_tracked_call() && (*state).cache.all().any(|arena| arena.contains(at));
        if inside { (*state).origin(at) } else { None }
    };
    let Some(origin) = origin else {
        // SAFETY: passes on what the kernel gave.
        return unsafe { chain(signal, info, user) };
    };
    registers[rip] = origin as i64;
    // SAFETY: as above.
    unsafe { chain(signal, info, user) };
    // SAFETY: as at the start; the former handler may have changed the registers.
    let registers = unsafe { &mut (*user.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    // SAFETY: written once, before.
    let handled =
        unsafe { (&raw const FORMER[signal as usize]).read() }.is_some_and(|former| former.sa_sigaction > 1);
    if !handled {
        return;
    }
    if registers[rip] as usize == origin {
        // It mended the cause: try again.
        registers[rip] = at as i64;
        return;
    }
    // It goes on elsewhere: translated.
    // SAFETY: the context is mapped, and its owner is interrupted.
    unsafe {
        (*context()).branch_target = registers[rip] as u64;
        (*context()).branch_rcx = registers[libc::REG_RCX as usize] as u64;
    }
    registers[rip] = gate::mangrove_tracker_branch_miss as *const () as i64;
}

/// Does what would have been done without us.
unsafe fn chain(signal: i32, info: *mut libc::siginfo_t, user: *mut c_void) {
    // SAFETY: written once, before any fault comes here.
    let former = unsafe { (&raw const FORMER[signal as usize]).read() };
    match former {
        Some(former) if former.sa_sigaction > 1 => {
            let handler = former.sa_sigaction;
            // SAFETY: the program's own handler, of the type that its flags say.
            unsafe {
                if former.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                        std::mem::transmute(handler);
                    handler(signal, info, user);
                } else {
                    let handler: unsafe extern "C" fn(i32) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
        _ => {
            // The default action, when the instruction is executed again.
            // SAFETY: resets the action of this signal.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
            }
            // A signal that somebody sent does not come again by itself.
            // SAFETY: reads the kernel's siginfo.
            if unsafe { (*info).si_code } <= 0 {
                // SAFETY: sends it again.
                unsafe { libc::raise(signal) };
            }
        }
    }
}
