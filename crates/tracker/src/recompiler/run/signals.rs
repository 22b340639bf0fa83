//! Signals while translated code runs.
//!
//! Asynchronous signals are delivered natively. Their handlers are no part of the call, so what they write is not
//! recorded, just as it would not be a moment before or after the call. A handler that jumps into the call
//! (siglongjmp) is noticed when the function returns natively: the call has escaped.
//!
//! The program's handlers see synchronous faults of translated code with the original pc. If the program has no
//! handler, the faulting instruction is executed once more, natively, so that the process dies as it would without
//! a tracker.

use super::context::context;
use super::dispatch::state;
use crate::active::in_tracked_call;
use crate::recompiler::run::stubs;
use std::ffi::c_void;
use std::sync::Once;

const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];

/// The actions that were installed before, by signal number.
static mut FORMER: [Option<libc::sigaction>; 32] = [const { None }; 32];

/// Installs handlers of faults in front of the program's. If the program installs its own later, they replace
/// these, and then see addresses of the code cache.
pub(in crate::recompiler) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for signal in FAULTS {
            // SAFETY: sigaction with our own structures; the former action is stored before translated code first
            // runs, so before any fault of it.
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
    // SAFETY: only the thread that has the turn uses the state, and it is interrupted.
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
        // The handler removed the cause: try again.
        registers[rip] = at as i64;
        return;
    }
    // The handler changed the pc: continue there, translated. SAFETY: the context is mapped, and its owner is
    // interrupted.
    unsafe {
        (*context()).branch_target = registers[rip] as u64;
        (*context()).branch_rcx = registers[libc::REG_RCX as usize] as u64;
    }
    registers[rip] = stubs::mangrove_tracker_branch_miss as *const () as i64;
}

/// Does what the former action would have done.
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
            // The default action, which takes effect when the instruction is executed again. SAFETY: resets the
            // action of this signal.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
            }
            // A signal that a process sent does not come again by itself. SAFETY: reads the kernel's siginfo.
            if unsafe { (*info).si_code } <= 0 {
                // SAFETY: sends it again.
                unsafe { libc::raise(signal) };
            }
        }
    }
}
