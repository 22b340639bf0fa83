//! Which protocol makes a commit durable, and where each one is right.

use super::heap_log::{HeapLog, StampedLog};
use super::spht::Spht;
use super::spht_eadr::SphtEadr;
use super::spht_eadr_flush::SphtEadrFlush;
use mangrove_shadow::{Error, MediumKind, Order, Result, Shadow};
use std::fmt;
use std::sync::Arc;

/// How a commit becomes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// By the medium: [`Protocol::OneFence`] on dax and emulated (a heap on RTM or its model takes one of the protocols
    /// SPHT); on the file medium one device write for many commits.
    #[default]
    Automatic,
    /// Dense numbers, one fence. On dax and emulated.
    OneFence,
    /// SPHT (Algorithm 2 of the SPHT-eADR dissertation): time stamps, and a durable marker. On dax and emulated, with
    /// an executor that isolates by hardware or by one lock.
    Spht,
    /// SPHT-eADR (Algorithm 3): time stamps, neither flush nor fence nor wait. As `Spht`, with persistent caches only.
    SphtEadr,
    /// SPHT-eADR with flushes (Algorithm 4): as `SphtEadr`, and log lines leave the caches early.
    SphtEadrFlush,
    /// HTM+SGL (Algorithm 1): in place, without a working copy. No heap has it: [`HtmSgl`](crate::HtmSgl) runs it on
    /// [`InPlaceMemory`](crate::InPlaceMemory).
    HtmSgl,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Automatic => "automatic",
            Self::OneFence => "one fence",
            Self::Spht => "SPHT",
            Self::SphtEadr => "SPHT-eADR",
            Self::SphtEadrFlush => "SPHT-eADR with flushes",
            Self::HtmSgl => "HTM+SGL",
        })
    }
}

impl Protocol {
    /// Whether commits are ordered by time stamps. Then the executor must be one whose commits have the order of the
    /// stamps: hardware, its model, or one lock; not ownership records.
    #[must_use]
    pub fn is_stamped(self) -> bool {
        matches!(self, Self::Spht | Self::SphtEadr | Self::SphtEadrFlush)
    }

    /// The order with which the shadow must be opened for it; `None`: any that has no stamps.
    #[must_use]
    pub fn order(self) -> Option<Order> {
        match self {
            Self::Spht => Some(Order::Marker),
            Self::SphtEadr | Self::SphtEadrFlush => Some(Order::Gaps),
            Self::Automatic | Self::OneFence | Self::HtmSgl => None,
        }
    }

    /// What it does at a commit in a heap on this medium, with this order, for users to read.
    pub(crate) fn tells(self, medium: MediumKind, order: Order) -> &'static str {
        match (medium, self, order) {
            (MediumKind::File, ..) => HeapLog::GROUP,
            (_, Self::SphtEadr, _) => HeapLog::STAMPS,
            (_, Self::SphtEadrFlush, _) => HeapLog::STAMPS_FLUSHED,
            (_, _, Order::Gaps) => HeapLog::NO_FENCE,
            (_, _, Order::Marker) => HeapLog::MARKER,
            _ => HeapLog::ONE_FENCE,
        }
    }

    /// The redo log of this protocol in `shadow`.
    ///
    /// # Errors
    /// `Unsupported`, with what would work, where it would not be right.
    pub fn log(self, shadow: Arc<Shadow>) -> Result<HeapLog> {
        let is_file = shadow.medium() == MediumKind::File;
        let what = match self {
            Self::Automatic | Self::OneFence if shadow.is_stamped() => {
                Some("a pool that was opened for time stamps needs one of the protocols SPHT".to_owned())
            }
            Self::Automatic => None,
            _ if is_file => Some(format!(
                "the protocol {self} is for the media dax and emulated; on the file medium use the automatic one"
            )),
            Self::HtmSgl => Some(format!(
                "the protocol {self} works in place, without the working copy of a heap; use InPlaceMemory, or another protocol"
            )),
            Self::OneFence => None,
            _ if self.order() != Some(shadow.order()) || !shadow.is_stamped() => Some(format!(
                "the protocol {self} needs a pool that was opened for time stamps with Order::{:?}",
                self.order().unwrap_or_default()
            )),
            _ => mangrove_sys::tsc().unusable.as_ref().map(|why| {
                format!(
                    "the protocol {self} orders commits by the time stamp counter, which cannot be used here: {why}; use the protocol one fence"
                )
            }),
        };
        if let Some(what) = what {
            return Err(Error::Unsupported { what });
        }
        Ok(match self {
            // HTM+SGL is refused above.
            Self::Automatic | Self::OneFence | Self::HtmSgl => HeapLog::new(shadow),
            Self::Spht => HeapLog::Stamped(StampedLog::Spht(Box::new(Spht::new(shadow)))),
            Self::SphtEadr => HeapLog::Stamped(StampedLog::SphtEadr(SphtEadr::new(shadow))),
            Self::SphtEadrFlush => HeapLog::Stamped(StampedLog::SphtEadrFlush(SphtEadrFlush::new(shadow))),
        })
    }
}
