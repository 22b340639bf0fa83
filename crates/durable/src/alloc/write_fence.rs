//! The write fence, for tests of a port: outside commands the state's memory is read-only, and each write there is
//! reported with a backtrace and let through.
//!
//! A write that no tracker sees is lost by the next restart, or survives in part. The fence finds the code that makes
//! it. It is slow (two system calls for each command), and one state of a process has it at a time.
//!
//! Invariants:
//! 1. While the fence is up, a write into `base..base + len` faults, and the handler makes its page writable until the
//!    fence is raised again. So the program runs as without a fence, and of several writers to a page between two
//!    commands one is reported.
//! 2. The handler takes no lock and allocates nothing.

use crate::alloc::stderr_line::StderrLine;
use crate::alloc::symbols::{FUNCTION, push_name};
use crate::image::audit::AuditLevel;
use crate::{Error, Result};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Told of a write into the state outside commands: the address, the addresses in the functions that led to it
/// (innermost first), how many, and the user's own pointer. Runs in a signal handler of the thread that writes.
pub type WriteReport =
    unsafe extern "C" fn(address: *const c_void, frames: *const *mut c_void, count: usize, user: *mut c_void);

/// Where the write fence reports to.
#[derive(Clone, Copy, Debug, Default)]
pub struct FenceReport {
    /// None: a line and the backtrace go to standard error.
    pub call: Option<WriteReport>,
    /// The address that `call` gets as its last argument.
    pub user: usize,
}

const PAGE_BYTES: usize = 4096;
const FRAMES_MAX: usize = 32;
/// Distinct backtraces that are reported.
const REPORTS_MAX: usize = 1024;

/// 0: no state has the fence. All of these are Relaxed: the fence is made before the memory is used, a fault is on
/// the thread that writes, and what it finds is old only while another thread runs a command.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Bytes that are read-only; 0 while the fence is down.
static LEN: AtomicUsize = AtomicUsize::new(0);
static CALL: AtomicUsize = AtomicUsize::new(0);
static USER: AtomicUsize = AtomicUsize::new(0);
/// Hashes of the backtraces that were reported; 0: free.
static REPORTED: [AtomicUsize; REPORTS_MAX] = [const { AtomicUsize::new(0) }; REPORTS_MAX];
/// The handler before ours, and whether it takes three arguments.
static FORMER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FORMER_TAKES_INFO: AtomicBool = AtomicBool::new(false);

/// The fence of a state. Dropping it makes the memory writable.
pub(crate) struct WriteFence(());

impl WriteFence {
    /// A fence, still down, around memory at `base`; None when another state has it.
    pub(crate) fn new(base: usize, report: FenceReport) -> Option<Self> {
        BASE.compare_exchange(0, base, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        CALL.store(report.call.map_or(0, |call| call as usize), Ordering::Relaxed);
        USER.store(report.user, Ordering::Relaxed);
        REPORTED.iter().for_each(|hash| hash.store(0, Ordering::Relaxed));
        // The first call loads a library, which a signal handler must not.
        let _ = backtrace(&mut [std::ptr::null_mut(); FRAMES_MAX]);
        Some(Self(()))
    }

    /// The fence that the program asked for, or that the environment asks for.
    ///
    /// # Errors
    /// The program asked for it, and another state has it.
    pub(crate) fn wanted(base: usize, asked: Option<FenceReport>) -> Result<Option<Self>> {
        if let Some(report) = asked {
            let fence = Self::new(base, report).ok_or_else(|| Error::Invalid {
                what: "another state of this process has the write fence; close it first".into(),
            })?;
            return Ok(Some(fence));
        }
        if !AuditLevel::of_environment().writers {
            return Ok(None);
        }
        let fence = Self::new(base, FenceReport::default());
        if fence.is_none() {
            let mut line = StderrLine::new();
            line.push(
                "another state of this process has the write fence: writers to this one are not reported",
            );
            line.print();
        }
        Ok(fence)
    }

    /// From now on the first `len` bytes are read-only.
    pub(crate) fn raise(&self, len: usize) {
        take_signal();
        LEN.store(len, Ordering::Relaxed);
        protect(BASE.load(Ordering::Relaxed), len, libc::PROT_READ);
    }

    /// From now on they are writable.
    pub(crate) fn lower(&self) {
        let len = LEN.swap(0, Ordering::Relaxed);
        protect(BASE.load(Ordering::Relaxed), len, libc::PROT_READ | libc::PROT_WRITE);
    }
}

impl Drop for WriteFence {
    fn drop(&mut self) {
        self.lower();
        BASE.store(0, Ordering::Relaxed);
    }
}

/// The runtime itself is about to write to the page of `address`, outside a command.
pub(crate) fn let_through(address: usize) {
    if is_fenced(address) {
        open_page(address);
    }
}

fn is_fenced(address: usize) -> bool {
    address.wrapping_sub(BASE.load(Ordering::Relaxed)) < LEN.load(Ordering::Relaxed)
}

fn open_page(address: usize) {
    protect(address & !(PAGE_BYTES - 1), PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE);
}

fn protect(base: usize, len: usize, protection: c_int) {
    if len > 0 {
        // SAFETY: memory of the state, whose content stays; it was readable and writable before the fence. Holes that
        // a command made stop the call early, and then the rest has no fence.
        unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(base), len, protection) };
    }
}

/// Puts our handler in front of the present one, unless it is there: the program may have installed its own since.
fn take_signal() {
    // SAFETY: sigaction with our own structures, which begin as zeros.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut present);
        let ours = on_fault as *const () as usize;
        if present.sa_sigaction == ours {
            return;
        }
        FORMER_TAKES_INFO.store(present.sa_flags & libc::SA_SIGINFO != 0, Ordering::Relaxed);
        FORMER.store(present.sa_sigaction, Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ours;
        // A report may itself write to the state.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    }
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's own structure of a fault.
    let address = unsafe { (*info).si_addr() }.expose_provenance();
    if !is_fenced(address) {
        // SAFETY: passed on.
        return unsafe { chain(signal, info, context) };
    }
    // Before the report, which may write there too.
    open_page(address);
    // SAFETY: as above.
    unsafe { report(address, pc_of(context)) };
}

/// # Safety
/// In the handler of a fault.
unsafe fn report(address: usize, pc: usize) {
    let mut frames = [std::ptr::null_mut(); FRAMES_MAX];
    let count = backtrace(&mut frames);
    // The handler's own frames come first.
    let first = frames[..count].iter().position(|frame| frame.addr() == pc).unwrap_or(0);
    let frames = &frames[first..count];
    if !is_news(frames) {
        return;
    }
    let call = CALL.load(Ordering::Relaxed);
    if call == 0 {
        let mut line = StderrLine::new();
        line.push("write fence: a write outside commands to ");
        line.push_hex(address);
        line.push(", from (if this is a read: it writes, so it must be a write command)");
        line.print();
        return print(frames);
    }
    // SAFETY: a function of this type, or none (see `new`).
    let call = unsafe { std::mem::transmute::<usize, WriteReport>(call) };
    let user = std::ptr::with_exposed_provenance_mut(USER.load(Ordering::Relaxed));
    // SAFETY: the user's function with its own pointer, and frames that outlive the call.
    unsafe { call(std::ptr::with_exposed_provenance(address), frames.as_ptr(), frames.len(), user) };
}

/// Whether this backtrace comes for the first time.
fn is_news(frames: &[*mut c_void]) -> bool {
    let mix = |hash: usize, frame: &*mut c_void| (hash ^ frame.addr()).wrapping_mul(0x0100_0000_01b3);
    let hash = frames.iter().fold(0xcbf2_9ce4_8422_2325, mix) | 1;
    for slot in &REPORTED {
        match slot.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(there) if there == hash => return false,
            Err(_) => {}
        }
    }
    false
}

/// Hands a fault that is not the fence's to the handler before ours.
///
/// # Safety
/// In a signal handler, with its arguments.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let former = FORMER.load(Ordering::Relaxed);
    // SAFETY: a handler that was installed, with what the kernel gave; or the default action, which meets the fault
    // again when this returns.
    unsafe {
        if former == libc::SIG_DFL || former == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
        } else if FORMER_TAKES_INFO.load(Ordering::Relaxed) {
            let handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(former);
            handler(signal, info, context);
        } else {
            let handler: unsafe extern "C" fn(c_int) = std::mem::transmute(former);
            handler(signal);
        }
    }
}

/// The instruction that faulted; 0 where that is not known.
fn pc_of(context: *mut c_void) -> usize {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's own context of the interrupted thread.
    return unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] }
        as usize;
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        0
    }
}

#[cfg(target_env = "gnu")]
fn backtrace(frames: &mut [*mut c_void; FRAMES_MAX]) -> usize {
    // SAFETY: as many words as it says.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as c_int) };
    usize::try_from(count).unwrap_or(0)
}

#[cfg(not(target_env = "gnu"))]
fn backtrace(_: &mut [*mut c_void; FRAMES_MAX]) -> usize {
    0
}

/// A line for each frame. A frame but the first is a return address, behind the call.
fn print(frames: &[*mut c_void]) {
    for (depth, frame) in frames.iter().enumerate() {
        let mut line = StderrLine::new();
        line.push("  ");
        push_name(&mut line, frame.addr() - usize::from(depth > 0), FUNCTION);
        line.print();
    }
}
