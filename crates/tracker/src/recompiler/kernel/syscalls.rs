//! System calls of tracked code: the recompiler makes them, and records afterwards what they wrote.

use super::syscall_table::{FORKS, Out, STARTS, Size, SyscallPlan, ioctl_bytes, plan};
use crate::recompiler::run::context::{R8, R10, R11, RAX, RCX, RDI, RDX, RSI, context};
use crate::recompiler::run::raw_syscall::{failed, syscall};
use crate::recompiler::state::{CallFailure, RecompilerState};
use crate::tracker::Decision;
use crate::write_set::write_set::Event;
use std::mem::offset_of;

const R9: u8 = 9;
/// Messages of one recvmmsg whose space for a name is remembered.
const MESSAGES_MAX: usize = 1024;

/// Lengths of socket addresses and options before a call: the kernel writes no more than that, though it may say more
/// afterwards.
struct LengthsBefore {
    by_argument: [usize; 6],
    /// Of the sender's name of each message of recvmmsg. A name has fewer than 255 bytes.
    names: Option<[u8; MESSAGES_MAX]>,
}

impl LengthsBefore {
    /// The most bytes that the kernel writes of the name in a message.
    fn of_name(&self, message: usize) -> usize {
        let names = self.names.as_ref();
        names.and_then(|names| names.get(message)).map_or(usize::MAX, |&bytes| usize::from(bytes))
    }
}

impl RecompilerState {
    /// Makes the system call that the program's registers describe; it returns to `next`.
    pub(crate) fn system_call(&mut self, next: usize) -> Result<(), CallFailure> {
        let number = self.register(RAX) as i64;
        let args = [RDI, RSI, RDX, R10, R8, R9].map(|reg| self.register(reg));
        let result = self.make(number, args)?;
        // SAFETY: the context is mapped, and holds the program's registers until the program continues.
        unsafe {
            let context = &mut *context();
            context.regs[usize::from(RAX)] = result as u64;
            // The kernel leaves the return address in rcx and the flags in r11.
            context.regs[usize::from(RCX)] = next as u64;
            context.regs[usize::from(R11)] = context.flags;
        }
        Ok(())
    }

    fn make(&mut self, number: i64, args: [u64; 6]) -> Result<i64, CallFailure> {
        if number == libc::SYS_getsockopt && option_has_pointers(args[1], args[2]) {
            return Err(CallFailure::Refused(
                "it asks for a socket option by getsockopt that makes the kernel write elsewhere, too",
            ));
        }
        match plan(number) {
            SyscallPlan::Writes(outs) => Ok(self.make_plain(number, args, outs, &[])),
            SyscallPlan::WritesAlways(outs) => Ok(self.make_plain(number, args, outs, outs)),
            SyscallPlan::WritesOr(outs, otherwise) => Ok(self.make_plain(number, args, outs, otherwise)),
            SyscallPlan::Mapping => self.make_mapping(number, args),
            SyscallPlan::Depends => self.make_dependent(number, args),
            // SAFETY: the program's own request. The batch is not committed.
            SyscallPlan::Exit => Ok(unsafe { syscall(number, args) }),
            SyscallPlan::Denied(why) => Ok(self.deny(why)),
            SyscallPlan::Refused(why) => Err(CallFailure::Refused(why)),
            SyscallPlan::Unknown => Err(CallFailure::Syscall(number)),
        }
    }

    /// Makes the call. It writes `outs`, or `otherwise` if it fails.
    fn make_plain(&mut self, number: i64, args: [u64; 6], outs: &[Out], otherwise: &[Out]) -> i64 {
        let mut before = LengthsBefore { by_argument: [0; 6], names: None };
        for out in outs {
            let (from, offset) = match out.1 {
                Size::Socket(at) | Size::SocketOption(at) => (usize::from(at), 0),
                Size::Message => (usize::from(out.0), offset_of!(libc::msghdr, msg_namelen) as u64),
                Size::Messages if args[usize::from(out.0)] != 0 => {
                    let at = usize::from(out.0);
                    before.names = Some(name_lengths(args[at], args[at + 1] as u32 as usize));
                    continue;
                }
                _ => continue,
            };
            if args[from] != 0 {
                before.by_argument[from] = read_u32(args[from] + offset);
            }
        }
        // SAFETY: the program's own call with its own arguments.
        let result = unsafe { syscall(number, args) };
        // The kernel does not look at an array whose length it refuses.
        let refused = |out: &Out| result == -i64::from(libc::EINVAL) && matches!(out.1, Size::Polled(_));
        let written = if failed(result) { otherwise } else { outs };
        for out in written.iter().filter(|out| args[usize::from(out.0)] != 0 && !refused(out)) {
            self.record_out(*out, &args, result, &before);
        }
        result
    }

    fn record_out(&mut self, out: Out, args: &[u64; 6], result: i64, before: &LengthsBefore) {
        let addr = args[usize::from(out.0)] as usize;
        let arg = |at: u8| args[usize::from(at)] as usize;
        let got = result.max(0) as usize;
        let len = match out.1 {
            Size::Fixed(bytes) => bytes as usize,
            // recv with MSG_TRUNC returns more than fits; getxattr with size 0 writes nothing.
            Size::Result => got.min(args.get(usize::from(out.0) + 1).map_or(got, |len| *len as usize)),
            Size::Results(bytes) => got * bytes as usize,
            Size::Arg(at) => arg(at),
            Size::Polled(at) => {
                for idx in 0..arg(at) as u32 as usize {
                    let entry = addr + idx * size_of::<libc::pollfd>();
                    self.record(entry + offset_of!(libc::pollfd, revents), 2);
                }
                return;
            }
            Size::Bits(at) => ((arg(at) as i32).max(0) as usize).div_ceil(64) * 8,
            Size::Pages(at) => arg(at).div_ceil(4096),
            Size::Socket(at) => read_u32(args[usize::from(at)]).min(before.by_argument[usize::from(at)]),
            Size::SocketOption(at) => {
                read_u32(args[usize::from(at)]).min(before.by_argument[usize::from(at)])
                    * socket_option_unit(arg(1), arg(2))
            }
            Size::Vector(at) => return self.record_vector(addr, arg(at), got),
            Size::Message => {
                return self.record_message(addr, got, before.by_argument[usize::from(out.0)]);
            }
            Size::Messages | Size::MessageLengths => {
                for idx in 0..got {
                    let header = addr + idx * size_of::<libc::mmsghdr>();
                    let length = header + offset_of!(libc::mmsghdr, msg_len);
                    if out.1 == Size::Messages {
                        self.record_message(header, read_u32(length as u64), before.of_name(idx));
                    }
                    self.record(length, 4);
                }
                return;
            }
        };
        self.record(addr, len);
    }

    fn record_vector(&mut self, vector: usize, count: usize, mut left: usize) {
        for idx in 0..count {
            // SAFETY: the kernel has just read this array.
            let part = unsafe { std::ptr::with_exposed_provenance::<libc::iovec>(vector).add(idx).read() };
            let len = part.iov_len.min(left);
            self.record(part.iov_base.addr(), len);
            left -= len;
            if left == 0 {
                break;
            }
        }
    }

    /// A message of `got` bytes, with space for so many bytes of its sender's name.
    fn record_message(&mut self, header: usize, got: usize, name_bytes_max: usize) {
        // SAFETY: the kernel has just used this header.
        let message = unsafe { std::ptr::with_exposed_provenance::<libc::msghdr>(header).read() };
        self.record_vector(message.msg_iov.addr(), message.msg_iovlen, got);
        if !message.msg_name.is_null() {
            self.record(message.msg_name.addr(), (message.msg_namelen as usize).min(name_bytes_max));
            self.record(header + offset_of!(libc::msghdr, msg_namelen), 4);
        }
        if !message.msg_control.is_null() {
            self.record(message.msg_control.addr(), message.msg_controllen);
        }
        // The pointers stay as they are.
        self.record(header + offset_of!(libc::msghdr, msg_controllen), 8);
        self.record(header + offset_of!(libc::msghdr, msg_flags), 4);
    }

    /// Returns ENOSYS, and notes why the tracked call will fail.
    fn deny(&mut self, why: &'static str) -> i64 {
        self.denied.get_or_insert(why);
        i64::from(-libc::ENOSYS)
    }

    /// Calls whose writes depend on an argument.
    fn make_dependent(&mut self, number: i64, args: [u64; 6]) -> Result<i64, CallFailure> {
        let outs: &[Out] = match number {
            libc::SYS_clone | libc::SYS_clone3 => {
                // clone has its flags in a register, clone3 in the first word of its structure.
                let flags = if number == libc::SYS_clone { args[0] as usize } else { read_u32(args[0]) };
                let thread = flags & libc::CLONE_THREAD as usize != 0;
                return Ok(self.deny(if thread { STARTS } else { FORKS }));
            }
            // Into the writing end of a pipe vmsplice takes bytes and writes none.
            libc::SYS_vmsplice if writes_to_pipe(args[0]) => &[],
            libc::SYS_vmsplice => &[Out(1, Size::Vector(2))],
            libc::SYS_fcntl => match args[1] as i32 {
                libc::F_GETLK | libc::F_OFD_GETLK => &[Out(2, Size::Fixed(32))],
                // F_GETOWN_EX, F_GETOWNER_UIDS, F_GET_RW_HINT, F_GET_FILE_RW_HINT, F_GETDELEG
                16 | 17 | 1035 | 1037 | 1039 => &[Out(2, Size::Fixed(8))],
                // F_DUPFD to F_SETLKW without F_GETLK, F_SETOWN to F_SETOWN_EX, locks of open files, F_SETLEASE to
                // F_GET_SEALS, and the calls that set a hint or a delegation.
                0..=15 | 37 | 38 | 1024..=1034 | 1036 | 1038 | 1040 => &[],
                _ => {
                    return Err(CallFailure::Refused(
                        "it uses an fcntl command that the recompiler does not know",
                    ));
                }
            },
            libc::SYS_futex => match args[1] as i32 & 0x7f {
                libc::FUTEX_WAKE_OP => &[Out(4, Size::Fixed(4))],
                libc::FUTEX_LOCK_PI | libc::FUTEX_UNLOCK_PI | libc::FUTEX_TRYLOCK_PI => {
                    &[Out(0, Size::Fixed(4))]
                }
                libc::FUTEX_WAIT
                | libc::FUTEX_WAKE
                | libc::FUTEX_WAIT_BITSET
                | libc::FUTEX_WAKE_BITSET
                | libc::FUTEX_REQUEUE
                | libc::FUTEX_CMP_REQUEUE => &[],
                _ => {
                    return Err(CallFailure::Refused(
                        "it uses a futex operation that the recompiler does not know",
                    ));
                }
            },
            libc::SYS_prctl => match args[0] as i32 {
                libc::PR_GET_NAME => &[Out(1, Size::Fixed(16))],
                libc::PR_GET_PDEATHSIG | libc::PR_GET_TSC | libc::PR_GET_CHILD_SUBREAPER => {
                    &[Out(1, Size::Fixed(4))]
                }
                libc::PR_SET_NAME
                | libc::PR_SET_VMA
                | libc::PR_GET_DUMPABLE
                | libc::PR_SET_DUMPABLE
                | libc::PR_SET_PDEATHSIG
                | libc::PR_CAPBSET_READ
                | libc::PR_GET_NO_NEW_PRIVS
                | libc::PR_SET_TIMERSLACK
                | libc::PR_GET_TIMERSLACK
                | libc::PR_SET_THP_DISABLE
                | libc::PR_GET_THP_DISABLE
                | libc::PR_GET_SECCOMP
                | libc::PR_GET_KEEPCAPS => &[],
                _ => {
                    return Err(CallFailure::Refused(
                        "it uses a prctl operation that the recompiler does not know",
                    ));
                }
            },
            libc::SYS_arch_prctl => match args[0] {
                0x1003 | 0x1004 => &[Out(1, Size::Fixed(8))], // ARCH_GET_FS, ARCH_GET_GS
                0x1001 => &[],                                // ARCH_SET_GS
                _ => {
                    return Err(CallFailure::Refused(
                        "it changes the thread pointer or the CPU's features (arch_prctl)",
                    ));
                }
            },
            _ => return self.make_ioctl(args),
        };
        // A futex call that then fails may have marked the word as waited for.
        let otherwise = if number == libc::SYS_futex { outs } else { &[] };
        Ok(self.make_plain(number, args, outs, otherwise))
    }

    fn make_ioctl(&mut self, args: [u64; 6]) -> Result<i64, CallFailure> {
        let Some(bytes) = ioctl_bytes(args[1] as u32) else {
            return Err(CallFailure::Refused("it uses an ioctl whose writes the recompiler does not know"));
        };
        // SAFETY: the program's own call.
        let result = unsafe { syscall(libc::SYS_ioctl, args) };
        if !failed(result) {
            self.record(args[2] as usize, bytes);
        }
        Ok(result)
    }

    /// Makes a call that changes the address space, after asking the hook.
    fn make_mapping(&mut self, number: i64, args: [u64; 6]) -> Result<i64, CallFailure> {
        const GUARD_INSTALL: i32 = 102;
        const DONTNEED_LOCKED: i32 = 24;
        if number == libc::SYS_madvise && matches!(args[2] as i32, GUARD_INSTALL | DONTNEED_LOCKED) {
            // These advices discard contents in ways that the hook does not handle. The program gets the answer of
            // a kernel that does not know them.
            return Ok(i64::from(-libc::EINVAL));
        }
        if let Some(hook) = self.hook {
            match hook.before(number, &args, self.writes()) {
                Decision::Native => {}
                Decision::Return(result) => {
                    // Without an address mmap replaces nothing.
                    if args[0] != 0 {
                        self.forget_code(args[0] as usize, args[1] as usize);
                    }
                    return Ok(result);
                }
                Decision::Refuse(why) => return Err(CallFailure::Refused(why)),
            }
        }
        if number == libc::SYS_brk && self.heap_end == 0 {
            // SAFETY: asks where the break is.
            self.heap_end = unsafe { syscall(libc::SYS_brk, [0; 6]) } as usize;
        }
        // SAFETY: the program's own call.
        let result = unsafe { syscall(number, args) };
        if !failed(result) {
            self.note_mapping(number, &args, result as usize);
        }
        Ok(result)
    }

    fn note_mapping(&mut self, number: i64, args: &[u64; 6], result: usize) {
        let (addr, len) = (args[0] as usize, (args[1] as usize).next_multiple_of(4096));
        let event = match number {
            libc::SYS_mmap => {
                self.forget_code(result, len);
                let (prot, flags) = (args[2] as i32, args[3] as i32);
                Event::Map { addr: result, len, prot, flags, fd: args[4] as i32, offset: args[5] as i64 }
            }
            libc::SYS_munmap => {
                self.forget_code(addr, len);
                Event::Unmap { addr, len }
            }
            libc::SYS_mprotect => {
                self.forget_code(addr, len);
                Event::Protect { addr, len, prot: args[2] as i32 }
            }
            libc::SYS_mremap => {
                let new_len = (args[2] as usize).next_multiple_of(4096);
                self.forget_code(addr, len);
                self.forget_code(result, new_len);
                if result != addr {
                    // The kernel moved the contents without a store.
                    self.record(result, len.min(new_len));
                }
                Event::Remap { old: addr, old_len: len, addr: result, len: new_len }
            }
            libc::SYS_brk => {
                let old = std::mem::replace(&mut self.heap_end, result);
                if old == result {
                    return;
                }
                Event::Break { old: old.next_multiple_of(4096), new: result.next_multiple_of(4096) }
            }
            _ => match args[2] as i32 {
                libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE => {
                    // Zeros, or a file's bytes, have come without a store.
                    self.record(addr, len);
                    Event::Discard { addr, len }
                }
                _ => return,
            },
        };
        self.writes().record_event(event);
    }

    /// Discards the translations of code in a mapping that has changed.
    pub(crate) fn forget_code(&mut self, addr: usize, len: usize) {
        let end = addr.saturating_add(len);
        if self.maps.all().iter().any(|mapping| mapping.execute && mapping.lo < end && addr < mapping.hi) {
            let _ = self.maps.refresh();
        }
        if self.sources.iter().any(|source| source.0 < end && addr < source.1) {
            let mut kept = 0;
            for idx in 0..self.sources.len() {
                let source = self.sources[idx];
                if source.0 < end && addr < source.1 {
                    self.pinned -= usize::from(idx < self.pinned);
                    continue;
                }
                self.sources[kept] = source;
                kept += 1;
            }
            self.sources.truncate(kept);
            self.flush();
        }
    }
}

/// The space for a name in each of the first of `count` mmsghdr at `headers`.
fn name_lengths(headers: u64, count: usize) -> [u8; MESSAGES_MAX] {
    let mut lengths = [0; MESSAGES_MAX];
    let at = |message: usize| message * size_of::<libc::mmsghdr>() + offset_of!(libc::msghdr, msg_namelen);
    for (message, length) in lengths.iter_mut().enumerate().take(count) {
        *length = read_u32(headers + at(message) as u64).min(255) as u8;
    }
    lengths
}

/// Whether a descriptor is open for writing; true if the kernel does not say.
fn writes_to_pipe(fd: u64) -> bool {
    // SAFETY: only asks.
    let flags = unsafe { syscall(libc::SYS_fcntl, [fd, libc::F_GETFL as u64, 0, 0, 0, 0]) };
    failed(flags) || flags as i32 & libc::O_ACCMODE != libc::O_RDONLY
}

/// Whether a socket option holds pointers through which the kernel writes: TCP_ZEROCOPY_RECEIVE, and the tables of
/// ebtables.
fn option_has_pointers(level: u64, option: u64) -> bool {
    matches!((level as i32, option as i32), (libc::IPPROTO_TCP, 35) | (libc::IPPROTO_IP, 128..=131))
}

/// Bytes of one thing that the length of a socket option counts.
fn socket_option_unit(level: usize, option: usize) -> usize {
    let is = |it: usize, one: i32| it as i32 == one;
    // The length of a filter counts instructions.
    if is(level, libc::SOL_SOCKET) && is(option, libc::SO_GET_FILTER) { 8 } else { 1 }
}

fn read_u32(addr: u64) -> usize {
    if addr == 0 {
        return 0;
    }
    // SAFETY: a pointer that the program passes to the kernel to be read. A bad one faults here, as it would if the
    // program read it.
    unsafe { std::ptr::with_exposed_provenance::<u32>(addr as usize).read_unaligned() as usize }
}
