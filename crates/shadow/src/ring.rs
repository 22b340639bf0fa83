//! The rings of a shadow on a medium that has no log (dax, emulated), and their replayer's thread. `commit.rs` has
//! the steps of a commit, `spill.rs` the space for those that are too long for a ring.
//!
//! Invariant: a thread takes in this order: a log writer, the spill area, the replayer.

use crate::copy::working::WorkingCopy;
use crate::homes::Homes;
use crate::layout::ShadowLayout;
use crate::log::leases::Leases;
use crate::log::log_writer::LogWriter;
use crate::log::spill_area::SpillArea;
use crate::log::stamps::Stamps;
use crate::order::Order;
use crate::recovery::recover::RecoveredLogs;
use crate::replay::crew::Crew;
use crate::replay::handover::Handover;
use crate::replay::replay::{Aim, ReplayStep, Replayer};
use crate::sync::pause;
use crate::{Error, Result, Stat};
use mangrove_pool::Region;
use mangrove_sys::ProcessMark;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long the replayer waits for more atomic groups: bytes that several of them change are then written once. Where
/// few come in that time, it empties the logs.
#[cfg(not(test))]
const GATHER: Duration = Duration::from_millis(10);
/// In a test of this crate that waits for it, the wait is endless.
#[cfg(test)]
const GATHER: Duration = Duration::from_secs(3600);
/// In a time of `GATHER` few atomic groups came: less than one part in so many of a ring.
const FEW: u64 = 256;

/// What a log's writer has written, for `Stat`. Only the owner of the writer changes it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct LogWritten {
    pub(crate) units: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// Rings, working copy, replayer.
pub(crate) struct Rings {
    pub(crate) region: Region,
    pub(crate) layout: ShadowLayout,
    pub(crate) working: WorkingCopy,
    pub(crate) homes: Homes,
    pub(crate) handover: Handover,
    pub(crate) writers: Leases<Box<LogWriter>>,
    pub(crate) written: Box<[LogWritten]>,
    pub(crate) spill_area: SpillArea,
    pub(crate) replayer: Mutex<Replayer>,
    /// The threads that apply.
    replayers: usize,
    /// A background thread replays; otherwise a thread that finds a ring full does.
    pub(crate) background: bool,
    /// `Order::Gaps`: what is sealed is durable.
    pub(crate) gaps: bool,
    /// With numbers that the callers give.
    pub(crate) stamps: Option<Stamps>,
    stop: AtomicBool,
    panicked: AtomicBool,
    pub(crate) len: AtomicU64,
    pub(crate) full_waits: AtomicU64,
    /// The one that opened them.
    pub(crate) process: ProcessMark,
}

impl Rings {
    pub(crate) fn new(
        region: Region,
        layout: ShadowLayout,
        working: WorkingCopy,
        start: &RecoveredLogs,
        options: &crate::Options,
        homes: Homes,
    ) -> Self {
        let writer = |(log, &position): (usize, &u64)| {
            let seed = layout.seed(log, start.generation);
            let mut writer = LogWriter::new(&layout, log, position, seed, start.seq);
            if !options.is_stamped() {
                writer.allow_one_pass();
            }
            Box::new(writer)
        };
        let mut replayer = Replayer::new(start.positions.clone(), start.seq, options.is_stamped());
        let count = options.replayer_count();
        if count > 1 {
            replayer.set_crew(Crew::new(&region, &layout, &homes, count, !options.background));
        }
        for log in 0..layout.log_count as usize {
            homes.place_ring(log, region.at(layout.ring(log, 0)), layout.ring_bytes as usize);
        }
        Self {
            handover: Handover::new(start.seq + 1, &start.positions),
            writers: Leases::new(start.positions.iter().enumerate().map(writer)),
            written: start.positions.iter().map(|_| LogWritten::default()).collect(),
            replayer: Mutex::new(replayer),
            stamps: options.is_stamped().then(|| Stamps::new(options.order, start.seq)),
            spill_area: SpillArea::default(),
            region,
            layout,
            working,
            homes,
            replayers: count,
            background: options.background,
            gaps: options.order == Order::Gaps,
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            len: AtomicU64::new(start.len),
            full_waits: AtomicU64::new(0),
            process: ProcessMark::here(),
        }
    }

    /// Takes a log's writer for a lease: one whose ring is near while there are some; waits while there is none.
    pub(crate) fn take_writer(&self) -> Box<LogWriter> {
        self.writers.take(self.homes.near_rings())
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        // Acquire pairs with the Release in `grow`.
        self.len.load(Ordering::Acquire)
    }

    /// Waits until the atomic group `seq` is durable and, except with `Order::Gaps`, every one before it.
    #[inline(always)]
    pub(crate) fn wait(&self, seq: u64) -> Result<()> {
        if self.gaps { self.alive() } else { self.wait_published(seq) }
    }

    /// Whether `wait` would not wait.
    #[inline(always)]
    pub(crate) fn is_durable(&self, seq: u64) -> bool {
        self.gaps || self.handover.covers(seq)
    }

    /// Waits until every atomic group up to `seq` is published.
    #[inline]
    pub(crate) fn wait_published(&self, seq: u64) -> Result<()> {
        let mut round = 0;
        while !self.handover.covers(seq) {
            self.alive()?;
            self.complete_deferred(seq)?;
            self.ask_watermark();
            pause(round);
            round = round.saturating_add(1);
        }
        Ok(())
    }

    /// Waits until the atomic group `seq` is in the durable copy.
    pub(crate) fn wait_applied(&self, seq: u64) -> Result<()> {
        self.wait_published(seq)?;
        while self.replayer.lock().applied() < seq {
            self.alive()?;
            self.replay_step(Aim::Empty);
        }
        Ok(())
    }

    /// Applies everything published to the durable copy.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.refuse_child()?;
        self.wait_applied(self.begun())
    }

    /// Before the pool is closed. With `Order::Gaps` commits flush nothing, and the pool computes page checksums anew
    /// only where something was flushed: tells it which parts of the logs were written.
    pub(crate) fn flush_written(&self) {
        if !self.gaps {
            return;
        }
        for (log, written) in self.written.iter().enumerate() {
            // Relaxed: the owners of the writers have ended.
            let bytes = written.bytes.load(Ordering::Relaxed).min(self.layout.ring_bytes);
            let from = self.handover.tail(log).saturating_sub(bytes);
            let first = (self.layout.ring_bytes - from % self.layout.ring_bytes).min(bytes);
            self.region.flush(self.layout.ring(log, from), first as usize);
            self.region.flush(self.layout.ring(log, from + first), (bytes - first) as usize);
        }
    }

    /// Runs one step of the replayer.
    pub(crate) fn replay_step(&self, aim: Aim) -> ReplayStep {
        self.ask_watermark();
        // An error has poisoned the medium: the log stays open, and nothing in it is applied.
        let _ = self.complete_deferred(u64::MAX - 1);
        let step = self.replayer.lock().step(&self.region, &self.layout, &self.handover, aim);
        if step == ReplayStep::Share {
            self.handover.space.notify_all();
        }
        step
    }

    /// Applies a share of what was published or, where all of it is applied, makes it durable in the durable copy and
    /// frees the logs; false when there was nothing to do.
    pub(crate) fn replay_once(&self) -> bool {
        self.process.is_here()
            && (self.replay_step(Aim::Space) != ReplayStep::Nothing
                || self.replay_step(Aim::Empty) != ReplayStep::Nothing)
    }

    /// Whether the replayer has nothing to do until something is published. With time stamps the watermark may also
    /// grow, which wakes no thread: the replayer looks for it from time to time.
    fn is_settled(&self) -> bool {
        let replayer = self.replayer.lock();
        replayer.is_settled()
            && !self.handover.is_any_open()
            && (self.stamps.is_none() || !replayer.is_behind(&self.handover))
    }

    pub(crate) fn alive(&self) -> Result<()> {
        self.poisoned().map_or_else(|| self.region.drain(), Err)
    }

    /// Why the medium has not taken an atomic group.
    #[cold]
    #[inline(never)]
    pub(crate) fn failure(&self) -> Result<bool> {
        self.alive().map(|()| false)
    }

    /// An error in a child of fork, before it stores to its parent's logs or takes a lock that a thread of the parent
    /// may hold.
    #[inline]
    pub(crate) fn refuse_child(&self) -> Result<()> {
        if self.process.is_here() { Ok(()) } else { Err(Error::forked(Path::new("the shadow"))) }
    }

    pub(crate) fn poisoned(&self) -> Option<Error> {
        if let Err(forked) = self.refuse_child() {
            return Some(forked);
        }
        // Relaxed: a flag that nothing else depends on.
        let panicked = self.panicked.load(Ordering::Relaxed);
        panicked.then(|| Error::Poisoned { first: "the replayer panicked".into() })
    }

    /// Counters.
    pub(crate) fn count(&self, stat: &mut Stat) {
        let logs = self.layout.log_count as usize;
        stat.log_bytes = self.layout.log_count * self.layout.ring_bytes;
        stat.log_used = (0..logs).map(|log| self.handover.used(log)).sum();
        for written in &self.written {
            // Relaxed: counters.
            stat.units += written.units.load(Ordering::Relaxed);
            stat.log_written += written.bytes.load(Ordering::Relaxed);
        }
        // Relaxed: a counter.
        stat.full_waits = self.full_waits.load(Ordering::Relaxed);
        if !self.process.is_here() {
            // A thread of the parent may hold the lock.
            return;
        }
        let replayer = self.replayer.lock();
        stat.applied_units = replayer.units;
        stat.applied_bytes = replayer.bytes;
        stat.batches = replayer.batches;
        stat.image_written = replayer.flushed_bytes;
    }

    /// The replayer's thread (Fig. 4).
    pub(crate) fn replay_loop(&self) {
        let guarded = std::panic::AssertUnwindSafe(|| self.replay_until_stopped());
        if std::panic::catch_unwind(guarded).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
            self.handover.space.notify_all();
        }
    }

    fn replay_until_stopped(&self) {
        self.homes.settle_replayer(0, self.replayers);
        // Acquire pairs with the Release in `stop`.
        let stopped = || self.stop.load(Ordering::Acquire);
        let (mut seen, mut waited) = (self.handover.published_bytes(), true);
        loop {
            let ticket = self.handover.work.ticket();
            if stopped() {
                return;
            }
            let requested = self.handover.begin_round();
            let mut step = self.replay_step(Aim::Space);
            while step == ReplayStep::Share && !stopped() {
                step = self.replay_step(Aim::Space);
            }
            let published = self.handover.published_bytes();
            let few = published - std::mem::replace(&mut seen, published) < self.layout.ring_bytes / FEW;
            // A request between two rounds may belong to what the first has applied.
            let rests = waited && few && !requested;
            waited = true;
            if !self.is_settled() {
                if rests {
                    self.replay_step(Aim::Empty);
                    waited = false;
                } else {
                    self.handover.work.wait_for(ticket, GATHER);
                }
            } else {
                self.handover.go_idle();
                // A thread that deferred a commit just now may not have seen it, and be unseen here. After this time
                // both see each other. During a wait without limit no other thread would make that commit durable.
                if !self.handover.work.wait_for(ticket, GATHER) && self.handover.is_any_open() {
                    continue;
                }
                self.handover.work.wait(ticket);
                let ticket = self.handover.work.ticket();
                // After the ticket: a later request wakes the replayer, and an earlier one keeps it from waiting.
                if !stopped() && !self.handover.is_space_requested() {
                    self.handover.work.wait_for(ticket, GATHER);
                }
            }
        }
    }

    /// After `stop`, when that thread has ended: ends the others that apply. A lease that is out may apply by itself.
    pub(crate) fn stop_crew(&self) {
        self.replayer.lock().stop_crew();
    }

    /// Ends `replay_loop`; the caller joins its thread.
    pub(crate) fn stop(&self) {
        // Release pairs with the Acquire in `replay_loop`.
        self.stop.store(true, Ordering::Release);
        self.handover.work.notify_all();
    }
}
