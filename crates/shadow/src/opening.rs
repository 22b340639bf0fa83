//! From options to the pool below, and to the header of a new shadow.

use crate::layout::{
    AT_RINGS, PAGE_BYTES, RING_BYTES_DEFAULT, RING_BYTES_MAX, RING_BYTES_MIN, ShadowLayout, VERSION,
};
use crate::{Error, Options, Result, Shadow};
use mangrove_pool::{AddressChoice, Medium, MediumKind, Pool, PoolConfig, PoolInfo, Region};
use std::path::Path;

impl Options {
    /// Opens or creates the shadow in the directory `path`.
    ///
    /// # Errors
    /// See [`crate::Error`]; `AddressTaken` when this process has something else at the recorded address.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Shadow> {
        Shadow::open(path, self)
    }

    /// The medium of the shadow at `path`, or the one that it would get if it were created now. Neither locks nor
    /// changes anything.
    #[must_use]
    pub fn medium_at(&self, path: impl AsRef<Path>) -> MediumKind {
        let mut pool = self.pool.clone().config(self.config.clone());
        match pool.inspect(&path) {
            Ok(info) => info.medium,
            Err(_) if !pool.settle_medium(&path) => MediumKind::File,
            Err(_) if matches!(self.config.medium, Medium::Emulated(_)) => MediumKind::Emulated,
            Err(_) => MediumKind::Dax,
        }
    }

    /// The pool at `path`. On dax and emulated its region holds the logs and the durable copy, and has space for
    /// spilled atomic groups.
    pub(crate) fn pool(&self, path: &Path) -> Result<Pool> {
        // The pool below would grow; what lies in it cannot: see `refuse_other_sizes`.
        let config = PoolConfig { capacity: None, ..self.config.clone() };
        let mut pool = self.pool.clone().config(config).background(self.background);
        let ringed = match pool.inspect(path) {
            Ok(info) => info.medium != MediumKind::File,
            // There is no pool, or opening will report the error.
            Err(_) => pool.settle_medium(path),
        };
        if !ringed {
            return pool.new_capacity(self.capacity_bytes()).address(self.address).open(path);
        }
        // The logs lie in the region; the pool itself has none. Those of a closed shadow are empty.
        let pool = pool
            .log_bytes(mangrove_pool::LOG_BYTES_DEFAULT)
            .unread_when_closed(AT_RINGS, ShadowLayout::rings);
        pool.new_capacity(self.ringed_capacity()).open(path)
    }

    /// The capacity of a new pool whose region holds the logs.
    fn ringed_capacity(&self) -> u64 {
        let layout = self.layout(0);
        let capacity = (layout.image_start() + layout.capacity).saturating_add(layout.capacity);
        capacity.min(mangrove_pool::CAPACITY_BYTES_MAX)
    }

    /// Refuses sizes other than those of an existing shadow. It lies at one address in every process, with others
    /// behind it, and its owner's structures are laid out for the capacity; rings are where atomic groups lie.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn refuse_other_sizes(&self, shadow: &Shadow, info: &PoolInfo) -> Result<()> {
        let refuse =
            |what: String| Err(Error::Unsupported { what: format!("{}: {what}", info.path.display()) });
        let is_ringed = info.medium != MediumKind::File;
        if let Some(wanted) = self.config.capacity.map(|bytes| bytes.next_multiple_of(PAGE_BYTES)) {
            let now = if is_ringed { shadow.capacity() } else { info.capacity };
            // It got less than it was made with where there was no more address space, or no larger device.
            let is_as_made = is_ringed && (info.capacity == self.ringed_capacity() || info.devdax.is_some());
            if wanted != now && !(is_as_made && wanted > now) {
                return refuse(format!(
                    "its capacity is {now} bytes, which cannot be changed to {wanted}; open it without a capacity, \
                     or with this one"
                ));
            }
        }
        if let Some(now) = shadow.ring_bytes() {
            let wanted = self.layout(0).ring_bytes;
            if self.config.log_bytes.is_some() && wanted != now {
                return refuse(format!(
                    "each of its logs has {now} bytes, which cannot be changed to {wanted}; open it without a size of \
                     the log"
                ));
            }
        }
        Ok(())
    }

    /// A region that the caller keeps has the domain that the options name.
    pub(crate) fn validate_for(&self, region: &Region) -> Result<()> {
        let logs = region.medium().capabilities().has_units;
        let domain = mangrove_pool::PersistenceDomain::resolve(self.config.domain, None)?;
        self.order.validate((!logs).then_some(domain.eadr))
    }

    pub(crate) fn layout(&self, address: u64) -> ShadowLayout {
        ShadowLayout {
            version: VERSION,
            address,
            capacity: self.capacity_bytes().next_multiple_of(PAGE_BYTES),
            ring_bytes: self
                .config
                .log_bytes
                .unwrap_or(RING_BYTES_DEFAULT)
                .next_multiple_of(PAGE_BYTES)
                .clamp(RING_BYTES_MIN, RING_BYTES_MAX),
            log_count: self.log_count as u64,
            nonce: 0,
        }
    }

    /// Creates a shadow in a region that is all zero.
    pub(crate) fn make(&self, region: &Region) -> Result<ShadowLayout> {
        let nonce = self.pool.random();
        let layout = self.layout(0);
        let room = region.len().saturating_sub(layout.image_start());
        if room == 0 {
            return Err(Error::Unsupported {
                what: format!("{} bytes hold no shadow of {} logs", region.len(), self.log_count),
            });
        }
        // Half of the space is for spilled atomic groups.
        let capacity =
            layout.capacity.min((room / 2).next_multiple_of(PAGE_BYTES)).min(room & !(PAGE_BYTES - 1));
        let address = match self.address {
            AddressChoice::Anywhere => 0,
            AddressChoice::At(address) => address,
            _ => mangrove_pool::choose_address(capacity, nonce)?,
        };
        let layout = ShadowLayout { address, capacity, nonce, ..layout };
        layout.write(region)?;
        Ok(layout)
    }
}
