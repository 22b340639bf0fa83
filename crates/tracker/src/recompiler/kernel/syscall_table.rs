//! What the kernel writes into user memory, for every system call that tracked code may make.
//!
//! Source: the Linux manual pages, section 2, and the kernel's own structures for x86-64. A call that is not in
//! this table is refused by number: an unknown one may write anywhere.

/// How many bytes the kernel writes at a pointer argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Fixed(u32),
    /// As many as the call returned.
    Result,
    /// The result times this.
    Results(u32),
    /// An argument's value.
    Arg(u8),
    /// The field `revents` of each pollfd in an array, of as many entries as this argument says.
    Polled(u8),
    /// An argument's value in bits, as fd_set; an int.
    Bits(u8),
    /// A socket address: the length that the socklen_t at this argument had before the call or has after it,
    /// whichever is smaller.
    Socket(u8),
    /// As `Socket`, for an option of a socket, whose length may count larger things than bytes.
    SocketOption(u8),
    /// The call's result, spread over the iovec array here, of as many entries as this argument says.
    Vector(u8),
    /// One byte for each page of an argument's bytes.
    Pages(u8),
    /// What was received, described by a msghdr.
    Message,
    /// The same, described by as many mmsghdr as the call returned.
    Messages,
    /// The field `msg_len` alone, in as many mmsghdr.
    MessageLengths,
}

/// A pointer argument that is written through (if it is not null).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Out(pub(crate) u8, pub(crate) Size);

/// What the recompiler does with a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyscallPlan {
    /// It makes the call, which writes these.
    Writes(&'static [Out]),
    /// It makes the call, which writes these even if it fails.
    WritesAlways(&'static [Out]),
    /// It makes the call, which writes the first if it succeeds and the second if it fails.
    WritesOr(&'static [Out], &'static [Out]),
    /// Changes mappings.
    Mapping,
    /// ioctl, fcntl, prctl, arch_prctl, futex, vmsplice: depends on an argument.
    Depends,
    /// Ends the process.
    Exit,
    /// It does not make the call: the program sees ENOSYS and continues, and the tracked call ends with this
    /// message when it returns. For calls that libc makes with its locks held: if the tracked call were abandoned
    /// there, they would stay locked.
    Denied(&'static str),
    /// It abandons the tracked call at once.
    Refused(&'static str),
    Unknown,
}

/// Why tracked code may neither make a process nor start or end a thread.
pub(crate) const FORKS: &str = "it makes a process (fork, vfork, clone): do that outside of write commands";
pub(crate) const STARTS: &str = "it starts a thread: do that outside of write commands";
pub(crate) const ENDS: &str = "it ends a thread: do that outside of write commands";

const NONE: SyscallPlan = SyscallPlan::Writes(&[]);

/// The plan for a system call by number.
pub(crate) fn plan(number: i64) -> SyscallPlan {
    use Size::{
        Arg, Bits, Fixed, Message, MessageLengths, Messages, Polled, Result, Results, Socket, SocketOption,
        Vector,
    };
    const EXEC: &str = "it replaces the process (exec)";
    const ASYNC: &str =
        "it starts asynchronous input or output (aio, io_uring), whose writes come later and unseen";
    const SHARED: &str = "it attaches System V shared memory";
    const ROOT: &str = "it changes the process's root, namespaces or tracing";
    match number {
        libc::SYS_read | libc::SYS_pread64 => SyscallPlan::Writes(&[Out(1, Result)]),
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => SyscallPlan::Writes(&[Out(1, Vector(2))]),
        libc::SYS_process_vm_readv => SyscallPlan::Writes(&[Out(1, Vector(2))]),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            NONE
        }
        libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_creat | libc::SYS_close => NONE,
        libc::SYS_close_range | libc::SYS_dup | libc::SYS_dup2 | libc::SYS_dup3 | libc::SYS_lseek => NONE,
        libc::SYS_stat | libc::SYS_fstat | libc::SYS_lstat => SyscallPlan::Writes(&[Out(1, Fixed(144))]),
        libc::SYS_newfstatat => SyscallPlan::Writes(&[Out(2, Fixed(144))]),
        libc::SYS_statx => SyscallPlan::Writes(&[Out(4, Fixed(256))]),
        libc::SYS_statfs | libc::SYS_fstatfs => SyscallPlan::Writes(&[Out(1, Fixed(120))]),
        libc::SYS_access | libc::SYS_faccessat | libc::SYS_faccessat2 => NONE,
        libc::SYS_pipe | libc::SYS_pipe2 => SyscallPlan::Writes(&[Out(0, Fixed(8))]),
        libc::SYS_getdents | libc::SYS_getdents64 => SyscallPlan::Writes(&[Out(1, Result)]),
        libc::SYS_getcwd => SyscallPlan::Writes(&[Out(0, Result)]),
        libc::SYS_readlink => SyscallPlan::Writes(&[Out(1, Result)]),
        libc::SYS_readlinkat => SyscallPlan::Writes(&[Out(2, Result)]),
        libc::SYS_chdir | libc::SYS_fchdir | libc::SYS_mkdir | libc::SYS_mkdirat | libc::SYS_rmdir => NONE,
        libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_rename
        | libc::SYS_renameat
        | libc::SYS_renameat2 => NONE,
        libc::SYS_link | libc::SYS_linkat | libc::SYS_symlink | libc::SYS_symlinkat | libc::SYS_mknod => NONE,
        libc::SYS_chmod | libc::SYS_fchmod | libc::SYS_fchmodat | libc::SYS_chown | libc::SYS_fchown => NONE,
        libc::SYS_lchown
        | libc::SYS_fchownat
        | libc::SYS_umask
        | libc::SYS_utimensat
        | libc::SYS_futimesat => NONE,
        libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_truncate
        | libc::SYS_ftruncate
        | libc::SYS_fallocate => NONE,
        libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync
        | libc::SYS_syncfs
        | libc::SYS_sync_file_range => NONE,
        libc::SYS_flock | libc::SYS_fadvise64 | libc::SYS_readahead | libc::SYS_memfd_create => NONE,
        libc::SYS_sendfile => SyscallPlan::Writes(&[Out(2, Fixed(8))]),
        libc::SYS_copy_file_range | libc::SYS_splice => {
            SyscallPlan::Writes(&[Out(1, Fixed(8)), Out(3, Fixed(8))])
        }
        libc::SYS_tee => NONE,
        libc::SYS_getxattr | libc::SYS_lgetxattr | libc::SYS_fgetxattr => {
            SyscallPlan::Writes(&[Out(2, Result)])
        }
        libc::SYS_listxattr | libc::SYS_llistxattr | libc::SYS_flistxattr => {
            SyscallPlan::Writes(&[Out(1, Result)])
        }
        libc::SYS_setxattr | libc::SYS_lsetxattr | libc::SYS_fsetxattr | libc::SYS_removexattr => NONE,
        libc::SYS_poll => SyscallPlan::WritesAlways(&[Out(0, Polled(1))]),
        libc::SYS_ppoll => SyscallPlan::WritesAlways(&[Out(0, Polled(1)), Out(2, Fixed(16))]),
        libc::SYS_select | libc::SYS_pselect6 => SyscallPlan::WritesOr(
            &[Out(1, Bits(0)), Out(2, Bits(0)), Out(3, Bits(0)), Out(4, Fixed(16))],
            &[Out(4, Fixed(16))],
        ),
        libc::SYS_epoll_create | libc::SYS_epoll_create1 | libc::SYS_epoll_ctl => NONE,
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            SyscallPlan::Writes(&[Out(1, Results(12))])
        }
        libc::SYS_eventfd | libc::SYS_eventfd2 | libc::SYS_signalfd | libc::SYS_signalfd4 => NONE,
        libc::SYS_inotify_init | libc::SYS_inotify_init1 | libc::SYS_inotify_add_watch => NONE,
        libc::SYS_inotify_rm_watch => NONE,
        libc::SYS_socket | libc::SYS_bind | libc::SYS_connect | libc::SYS_listen | libc::SYS_shutdown => NONE,
        libc::SYS_setsockopt | libc::SYS_sendto | libc::SYS_sendmsg => NONE,
        libc::SYS_sendmmsg => SyscallPlan::Writes(&[Out(1, MessageLengths)]),
        libc::SYS_socketpair => SyscallPlan::WritesAlways(&[Out(3, Fixed(8))]),
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_getsockname | libc::SYS_getpeername => {
            SyscallPlan::Writes(&[Out(1, Socket(2)), Out(2, Fixed(4))])
        }
        // When the option's value does not fit, the call fails and still writes the length.
        libc::SYS_getsockopt => {
            SyscallPlan::WritesOr(&[Out(3, SocketOption(4)), Out(4, Fixed(4))], &[Out(4, Fixed(4))])
        }
        libc::SYS_recvfrom => SyscallPlan::Writes(&[Out(1, Result), Out(4, Socket(5)), Out(5, Fixed(4))]),
        libc::SYS_recvmsg => SyscallPlan::Writes(&[Out(1, Message)]),
        libc::SYS_recvmmsg => SyscallPlan::Writes(&[Out(1, Messages), Out(4, Fixed(16))]),
        libc::SYS_getrandom => SyscallPlan::Writes(&[Out(0, Result)]),
        libc::SYS_clock_gettime | libc::SYS_clock_getres => SyscallPlan::Writes(&[Out(1, Fixed(16))]),
        libc::SYS_gettimeofday => SyscallPlan::Writes(&[Out(0, Fixed(16)), Out(1, Fixed(8))]),
        libc::SYS_time => SyscallPlan::Writes(&[Out(0, Fixed(8))]),
        libc::SYS_times => SyscallPlan::Writes(&[Out(0, Fixed(32))]),
        libc::SYS_nanosleep => SyscallPlan::WritesAlways(&[Out(1, Fixed(16))]),
        libc::SYS_clock_nanosleep => SyscallPlan::WritesAlways(&[Out(3, Fixed(16))]),
        libc::SYS_getitimer => SyscallPlan::Writes(&[Out(1, Fixed(32))]),
        libc::SYS_setitimer => SyscallPlan::Writes(&[Out(2, Fixed(32))]),
        libc::SYS_alarm | libc::SYS_pause => NONE,
        libc::SYS_timer_create => SyscallPlan::Writes(&[Out(2, Fixed(4))]),
        libc::SYS_timer_gettime => SyscallPlan::Writes(&[Out(1, Fixed(32))]),
        libc::SYS_timer_settime => SyscallPlan::Writes(&[Out(3, Fixed(32))]),
        libc::SYS_timer_delete | libc::SYS_timer_getoverrun => NONE,
        libc::SYS_timerfd_create => NONE,
        libc::SYS_timerfd_gettime => SyscallPlan::Writes(&[Out(1, Fixed(32))]),
        libc::SYS_timerfd_settime => SyscallPlan::Writes(&[Out(3, Fixed(32))]),
        libc::SYS_getrusage => SyscallPlan::Writes(&[Out(1, Fixed(144))]),
        libc::SYS_sysinfo => SyscallPlan::Writes(&[Out(0, Fixed(112))]),
        libc::SYS_uname => SyscallPlan::Writes(&[Out(0, Fixed(390))]),
        libc::SYS_getrlimit => SyscallPlan::Writes(&[Out(1, Fixed(16))]),
        libc::SYS_prlimit64 => SyscallPlan::Writes(&[Out(3, Fixed(16))]),
        libc::SYS_setrlimit | libc::SYS_getpriority | libc::SYS_setpriority => NONE,
        libc::SYS_getpid | libc::SYS_getppid | libc::SYS_gettid | libc::SYS_getuid | libc::SYS_geteuid => {
            NONE
        }
        libc::SYS_getgid | libc::SYS_getegid | libc::SYS_getpgrp | libc::SYS_getpgid | libc::SYS_getsid => {
            NONE
        }
        libc::SYS_getresuid | libc::SYS_getresgid => {
            SyscallPlan::Writes(&[Out(0, Fixed(4)), Out(1, Fixed(4)), Out(2, Fixed(4))])
        }
        libc::SYS_getgroups => SyscallPlan::Writes(&[Out(1, Results(4))]),
        libc::SYS_getcpu => SyscallPlan::Writes(&[Out(0, Fixed(4)), Out(1, Fixed(4))]),
        libc::SYS_sched_yield | libc::SYS_sched_setaffinity | libc::SYS_sched_setscheduler => NONE,
        libc::SYS_sched_getscheduler
        | libc::SYS_sched_get_priority_max
        | libc::SYS_sched_get_priority_min => NONE,
        libc::SYS_sched_getaffinity => SyscallPlan::Writes(&[Out(2, Results(1))]),
        libc::SYS_sched_getparam => SyscallPlan::Writes(&[Out(1, Fixed(4))]),
        libc::SYS_sched_rr_get_interval => SyscallPlan::Writes(&[Out(1, Fixed(16))]),
        libc::SYS_rt_sigaction => SyscallPlan::Writes(&[Out(2, Fixed(32))]),
        libc::SYS_rt_sigprocmask => SyscallPlan::Writes(&[Out(2, Arg(3))]),
        libc::SYS_rt_sigpending => SyscallPlan::Writes(&[Out(0, Arg(1))]),
        libc::SYS_rt_sigtimedwait => SyscallPlan::Writes(&[Out(1, Fixed(128))]),
        libc::SYS_rt_sigsuspend | libc::SYS_kill | libc::SYS_tgkill | libc::SYS_tkill => NONE,
        libc::SYS_rt_sigqueueinfo | libc::SYS_rt_tgsigqueueinfo => NONE,
        libc::SYS_sigaltstack => SyscallPlan::Writes(&[Out(1, Fixed(24))]),
        libc::SYS_wait4 => SyscallPlan::Writes(&[Out(1, Fixed(4)), Out(3, Fixed(144))]),
        // The first also when it fails.
        libc::SYS_waitid => {
            SyscallPlan::WritesOr(&[Out(2, Fixed(128)), Out(4, Fixed(144))], &[Out(2, Fixed(128))])
        }
        libc::SYS_set_robust_list | libc::SYS_membarrier | libc::SYS_restart_syscall => NONE,
        libc::SYS_mlock
        | libc::SYS_mlock2
        | libc::SYS_munlock
        | libc::SYS_mlockall
        | libc::SYS_munlockall => NONE,
        libc::SYS_msync | libc::SYS_mbind | libc::SYS_set_mempolicy => NONE,
        libc::SYS_mincore => SyscallPlan::Writes(&[Out(2, Size::Pages(1))]),
        libc::SYS_ioctl | libc::SYS_fcntl | libc::SYS_prctl | libc::SYS_arch_prctl | libc::SYS_futex => {
            SyscallPlan::Depends
        }
        libc::SYS_vmsplice => SyscallPlan::Depends,
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_mremap => SyscallPlan::Mapping,
        libc::SYS_brk | libc::SYS_madvise => SyscallPlan::Mapping,
        libc::SYS_exit_group => SyscallPlan::Exit,
        libc::SYS_fork | libc::SYS_vfork => SyscallPlan::Denied(FORKS),
        libc::SYS_execve | libc::SYS_execveat => SyscallPlan::Refused(EXEC),
        libc::SYS_clone | libc::SYS_clone3 => SyscallPlan::Depends,
        libc::SYS_exit => SyscallPlan::Refused(ENDS),
        libc::SYS_io_setup
        | libc::SYS_io_submit
        | libc::SYS_io_getevents
        | libc::SYS_io_uring_setup
        | libc::SYS_io_uring_enter
        | libc::SYS_io_uring_register => SyscallPlan::Refused(ASYNC),
        libc::SYS_shmat | libc::SYS_shmdt => SyscallPlan::Refused(SHARED),
        libc::SYS_ptrace | libc::SYS_unshare | libc::SYS_setns | libc::SYS_chroot | libc::SYS_pivot_root => {
            SyscallPlan::Refused(ROOT)
        }
        libc::SYS_rt_sigreturn => {
            SyscallPlan::Refused("it returns from a signal handler that it did not enter")
        }
        libc::SYS_rseq => SyscallPlan::Refused("it registers restartable sequences"),
        libc::SYS_pkey_mprotect | libc::SYS_remap_file_pages => {
            SyscallPlan::Refused("it changes mappings in a rare way")
        }
        libc::SYS_userfaultfd => SyscallPlan::Refused("it opens a userfaultfd"),
        _ => SyscallPlan::Unknown,
    }
}

/// How many bytes an ioctl that succeeds writes at its argument; `None` if that is not known. The size in a
/// request's number does not do: it is too small where arrays follow (FS_IOC_FIEMAP), or wrong (TUNSETIFF).
pub(crate) fn ioctl_bytes(request: u32) -> Option<usize> {
    Some(match request {
        // Terminals: TCGETS, TCGETS2, TIOCGWINSZ, TIOCGPGRP, TIOCOUTQ, TIOCGSID, TIOCGPTN, TIOCGPKT, TIOCGPTLCK,
        // TIOCGEXCL
        0x5401 => 36,
        0x802c_542a => 44,
        0x5413 => 8,
        0x540f | 0x5411 | 0x5429 => 4,
        0x8004_5430 | 0x8004_5438 | 0x8004_5439 | 0x8004_5440 => 4,
        // TCSETS*, TCSETS*2, TIOCSPGRP, TIOCSWINSZ, TIOCSPTLCK
        0x5402..=0x5404 | 0x402c_542b..=0x402c_542d | 0x5410 | 0x5414 | 0x4004_5431 => 0,
        // Descriptors: FIONREAD; FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC
        0x541b => 4,
        0x5421 | 0x5450 | 0x5451 | 0x5452 => 0,
        // Files: FS_IOC_GETFLAGS and FS_IOC_GETVERSION, which say 8, FS_IOC_FSGETXATTR, FS_IOC_GETFSLABEL
        0x8008_6601 | 0x8008_7601 => 4,
        0x801c_581f => 28,
        0x8100_9431 => 256,
        // FS_IOC_SETFLAGS, FS_IOC_SETVERSION, FS_IOC_FSSETXATTR, FS_IOC_SETFSLABEL, FICLONE, FICLONERANGE,
        // FS_IOC_RESVSP
        0x4008_6602 | 0x4008_7602 | 0x401c_5820 | 0x4100_9432 => 0,
        0x4004_9409 | 0x4020_940d | 0x4030_5828 => 0,
        // FITRIM
        0xc018_5879 => 24,
        // Disks: BLKGETSIZE64; BLKBSZGET, which says 8; BLKBSZSET
        0x8008_1272 => 8,
        0x8008_1270 => 4,
        0x4008_1271 => 0,
        // TUNGETFEATURES, TUNGETSNDBUF, TUNGETVNETHDRSZ; TUNSETIFF and TUNGETIFF fill a whole ifreq
        0x8004_54cf | 0x8004_54d3 | 0x8004_54d7 => 4,
        0x4004_54ca | 0x8004_54d2 => 40,
        // TUNSETNOCSUM, TUNSETPERSIST, TUNSETOWNER, TUNSETGROUP, TUNSETOFFLOAD, TUNSETSNDBUF, TUNSETVNETHDRSZ,
        // TUNSETQUEUE
        0x4004_54c8 | 0x4004_54cb | 0x4004_54cc | 0x4004_54ce => 0,
        0x4004_54d0 | 0x4004_54d4 | 0x4004_54d8 | 0x4004_54d9 => 0,
        // RNDGETENTCNT; RNDADDTOENTCNT, RNDADDENTROPY; PERF_EVENT_IOC_ID; TFD_IOC_SET_TICKS
        0x8004_5200 => 4,
        0x4004_5201 | 0x4008_5203 => 0,
        0x8008_2407 => 8,
        0x4008_5400 => 0,
        _ => return None,
    })
}
