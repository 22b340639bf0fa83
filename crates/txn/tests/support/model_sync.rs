//! What the crate's files find as `crate::sync` in a model: shuttle's threads, locks and atomics.

pub(crate) use mangrove_sys::{AbortStatus, xabort, xbegin, xend};
pub(crate) use mangrove_testkit::shuttle::{AsymmetricBarrier, EventCount, Mutex, MutexGuard};
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Also on a machine with RTM: all threads of a model are one of the machine's, which hardware isolates from none.
pub(crate) struct NoHardware;

impl NoHardware {
    pub(crate) fn commits(self) -> bool {
        false
    }
}

/// A model has no code of its own to touch.
pub(crate) fn touch_module(_: usize) {}

pub(crate) fn rtm() -> NoHardware {
    NoHardware
}

#[derive(Debug)]
pub(crate) struct Table(Vec<AtomicU64>);

impl Table {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

pub(crate) fn pause(_round: u32) {
    shuttle::thread::yield_now();
}

/// Time that goes on by any length at each look.
pub(crate) fn microseconds() -> u64 {
    use shuttle::rand::Rng;
    static TIME: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    TIME.fetch_add(shuttle::rand::thread_rng().r#gen::<u16>().into(), Ordering::Relaxed)
}

/// Time that goes on by one at each look.
pub(crate) fn time_stamp() -> u64 {
    static TIME: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    TIME.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn processors() -> usize {
    1
}

pub(crate) fn run_once(body: fn()) {
    mangrove_testkit::shuttle::check_random(body, 1);
}

pub(crate) type Limit = std::time::Duration;

pub(crate) const fn limit(milliseconds: u64) -> Limit {
    Limit::from_millis(milliseconds)
}

macro_rules! accesses {
    ($($load:ident $store:ident $value:ty;)*) => {$(
        /// # Safety
        /// `at` is valid.
        pub(crate) unsafe fn $load(at: *mut $value) -> $value {
            shuttle::thread::yield_now();
            // SAFETY: shuttle runs one thread at a time, and the caller's address is valid.
            unsafe { at.read() }
        }

        /// # Safety
        /// `at` is valid.
        pub(crate) unsafe fn $store(at: *mut $value, value: $value) {
            shuttle::thread::yield_now();
            // SAFETY: as above.
            unsafe { at.write(value) }
        }
    )*};
}

accesses! {
    load_u8 store_u8 u8;
    load_u16 store_u16 u16;
    load_u32 store_u32 u32;
    load_u64 store_u64 u64;
}
