//! How a shadow is opened or created.

use crate::order::Order;
use crate::recovery::threads::{REPLAYER_COUNT_MAX, replayers_of_machine};
use crate::{Error, Result};
use mangrove_pool::{AddressChoice, Create, FlushInstruction, PoolConfig, PoolOptions, Start, Storage};
use std::sync::Arc;

/// Address space of a new shadow unless asked otherwise: 256 GiB.
pub const CAPACITY_BYTES_DEFAULT: u64 = 256 << 30;
/// Greatest address space of a shadow in bytes.
pub const CAPACITY_BYTES_MAX: u64 = 1 << 44;
/// Greatest number of logs of a shadow.
pub const LOG_COUNT_MAX: usize = 64;

/// How a shadow is opened or created.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) config: PoolConfig,
    pub(crate) pool: PoolOptions,
    pub(crate) address: AddressChoice,
    pub(crate) log_count: usize,
    pub(crate) background: bool,
    pub(crate) replayers: Option<usize>,
    pub(crate) start: Start,
    pub(crate) order: Order,
    pub(crate) order_by_domain: bool,
    pub(crate) stamped: bool,
    new_capacity: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: PoolConfig { create: Create::Never, ..PoolConfig::default() },
            pool: PoolOptions::new(),
            address: AddressChoice::Chosen,
            log_count: 1,
            background: true,
            replayers: None,
            start: Start::Read,
            order: Order::Dense,
            order_by_domain: false,
            stamped: false,
            new_capacity: CAPACITY_BYTES_DEFAULT,
        }
    }
}

impl Options {
    /// Open an existing shadow, durable at each acknowledgement. Unlike the doors' options, these do not create one
    /// unless asked to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, change: impl FnOnce(PoolOptions) -> PoolOptions) -> Self {
        self.pool = change(self.pool);
        self
    }

    mangrove_pool::pool_config_setters! { config:
        config, create, read_only, medium, devdax, durability,
        capacity("Up to 16 TiB. Default: 256 GiB. Another one than an existing shadow has is refused."),
        log_bytes, domain,
    }

    /// The capacity of a shadow that is created, where [`capacity`](Options::capacity) asks for none; an existing one
    /// keeps its own. Default: 256 GiB.
    #[must_use]
    pub fn new_capacity(mut self, bytes: u64) -> Self {
        self.new_capacity = bytes;
        self
    }

    /// Which instruction flushes a line (dax and emulated).
    #[must_use]
    pub fn flush_instruction(self, instruction: FlushInstruction) -> Self {
        self.with(|p| p.flush_instruction(instruction))
    }

    /// The engine that owns the bytes, up to 16 bytes: recorded in a new shadow, compared in an existing one.
    #[must_use]
    pub fn kind(self, kind: &str) -> Self {
        self.with(|p| p.kind(kind))
    }

    /// Where a new shadow shall lie in every process. An existing one keeps its address. `Chosen` by default;
    /// `Anywhere` is for owners that hold offsets instead of pointers.
    #[must_use]
    pub fn address(mut self, address: AddressChoice) -> Self {
        self.address = address;
        self
    }

    /// Number of logs of a new shadow, at most [`LOG_COUNT_MAX`]: so many threads can commit at the same time. On
    /// the file medium all of them share one.
    #[must_use]
    pub fn log_count(mut self, count: usize) -> Self {
        self.log_count = count;
        self
    }

    /// How the durable copy is loaded into the working copy. `Read`: all processors read it (on the file medium,
    /// and in a closed pool, they compare it with its page checksums). `CopyOnWrite`: it is mapped, which takes no
    /// time; its pages are verified later or, on dax and emulated, not at all.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self.with(|p| p.start(start))
    }

    /// Which atomic groups of this opening survive a crash; see [`Order`]. `Dense` by default.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self.order_by_domain = false;
        self
    }

    /// `Gaps` where the persistence domain of the opened pool holds the caches (eADR), `Dense` elsewhere. For an owner
    /// whose commits are what [`Order::Gaps`] asks for.
    #[must_use]
    pub fn order_by_domain(mut self) -> Self {
        self.order_by_domain = true;
        self
    }

    /// True: the caller numbers its atomic groups, by time stamps: [`LogLease::number_as`](crate::LogLease::number_as)
    /// instead of `number`. No counter is shared then. With [`Order::Gaps`]; [`Order::Marker`] implies it;
    /// [`Order::Dense`] excludes it. False by default.
    #[must_use]
    pub fn stamped(mut self, yes: bool) -> Self {
        self.stamped = yes;
        self
    }

    /// Whether the caller numbers the atomic groups.
    pub(crate) fn is_stamped(&self) -> bool {
        self.stamped || self.order == Order::Marker
    }

    /// False: no background thread; a thread that finds a log full applies it. Deterministic; for tests.
    #[must_use]
    pub fn background(mut self, yes: bool) -> Self {
        self.background = yes;
        self
    }

    /// Threads that apply the logs to the durable copy, each in its own stripes of it: a power of two, at most
    /// [`REPLAYER_COUNT_MAX`]. Default: a quarter of the processors; without a background thread, 1. On the file medium
    /// the checkpoint does it, on one thread.
    #[must_use]
    pub fn replayers(mut self, count: usize) -> Self {
        self.replayers = Some(count);
        self
    }

    /// The threads that shall replay.
    pub(crate) fn replayer_count(&self) -> usize {
        self.replayers.unwrap_or_else(|| if self.background { replayers_of_machine() } else { 1 })
    }

    /// Where the files live, instead of the operating system's file systems.
    #[must_use]
    pub fn storage(self, storage: Arc<dyn Storage>) -> Self {
        self.with(|p| p.storage(storage))
    }

    /// Whether nothing is to be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.config.read_only
    }

    /// The options for an opened pool, which may have persistent caches; none on the file medium.
    pub(crate) fn for_domain(&self, caches_are_persistent: Option<bool>) -> Result<Self> {
        let mut options = self.clone();
        if self.order_by_domain {
            options.order = if caches_are_persistent == Some(true) { Order::Gaps } else { Order::Dense };
        }
        options.order.validate(caches_are_persistent)?;
        Ok(options)
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.config.capacity.unwrap_or(self.new_capacity)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let unsupported = |what| Err(Error::Unsupported { what });
        if self.config.read_only && self.config.create == Create::New {
            return unsupported("nothing can be created read-only; open it for writing first".into());
        }
        if !(1..=LOG_COUNT_MAX).contains(&self.log_count) {
            return unsupported(format!("a pool has 1 to {LOG_COUNT_MAX} logs, not {}", self.log_count));
        }
        if self.capacity_bytes() == 0 || self.capacity_bytes() > CAPACITY_BYTES_MAX {
            return unsupported(format!(
                "a pool's capacity is {} to {CAPACITY_BYTES_MAX} bytes, not {}",
                mangrove_pool::CAPACITY_BYTES_MIN,
                self.capacity_bytes()
            ));
        }
        if let Some(count) = self.replayers
            && !(count.is_power_of_two() && count <= REPLAYER_COUNT_MAX)
        {
            return unsupported(format!("1, 2, 4 or {REPLAYER_COUNT_MAX} threads can replay, not {count}"));
        }
        if self.stamped && self.order == Order::Dense {
            return unsupported(
                "time stamps are not dense numbers; use Order::Marker, or Order::Gaps on eADR".into(),
            );
        }
        if let AddressChoice::At(address) = self.address
            && (address == 0 || !address.is_multiple_of(4096) || address > 1 << 56)
        {
            return unsupported(format!("a pool cannot lie at address {address:#x}: it is not a page's"));
        }
        Ok(())
    }
}
