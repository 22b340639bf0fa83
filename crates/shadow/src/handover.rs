//! How committed units pass from the fronts of several logs to the replayer, and space back.
//!
//! Every unit has a number, drawn from one counter. A unit is *published* when it is durable. The *watermark* is the greatest number up to which every unit has been published: units up to it
//! are acknowledged and applied, none beyond it is. (Several fronts publish in any order; a unit whose
//! predecessor a crash took may hold what depends on it.)
//!
//! Invariants:
//! 1. A front announces itself before it draws a number, and is gone only after it has published: so who reads
//!    the counter first and the announcements after it misses no unit under way.
//! 2. `head <= tail <= head + ring` for each log; the front alone moves `tail`, the replayer alone `head`.
//! 3. Nobody waits for space while it is announced: the replayer, who frees space, waits for the announced.

use crate::sync::{AtomicBool, AtomicU64, Gate, Ordering};

/// No unit is under way.
const NONE: u64 = u64::MAX;

/// One log's share, on lines of its own: fronts of other logs do not disturb it.
#[repr(align(128))]
struct Hand {
    /// At most the number of the unit under way, or `NONE`.
    announced: AtomicU64,
    /// Everything before is published.
    tail: AtomicU64,
    /// Everything before has been applied, durably.
    head: AtomicU64,
}

/// Numbers, tails and heads of all logs.
pub(crate) struct Handover {
    /// The number of the next unit.
    next: AtomicU64,
    hands: Box<[Hand]>,
    /// Opened when space was freed, or never will be.
    pub(crate) space: Gate,
    /// Opened when the replayer has work, or shall end.
    pub(crate) work: Gate,
    /// The replayer has nothing to do and sleeps.
    idle: AtomicBool,
    /// The replayer has been told that somebody needs space, or soon will.
    pressed: AtomicBool,
}

impl Handover {
    /// Empty logs: `next` is the number of the next unit, `positions` where each log stands.
    pub(crate) fn new(next: u64, positions: &[u64]) -> Self {
        let hand = |&position: &u64| Hand {
            announced: AtomicU64::new(NONE),
            tail: AtomicU64::new(position),
            head: AtomicU64::new(position),
        };
        Self {
            next: AtomicU64::new(next),
            hands: positions.iter().map(hand).collect(),
            space: Gate::new(),
            work: Gate::new(),
            idle: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
        }
    }

    /// Draws the number of a unit that the front of `log` will publish.
    #[inline]
    pub(crate) fn begin(&self, log: usize) -> u64 {
        let hand = &self.hands[log];
        // Relaxed: ordered by the Release of the addition, which pairs with the Acquire in `watermark`.
        hand.announced.store(self.next.load(Ordering::Relaxed), Ordering::Relaxed);
        self.next.fetch_add(1, Ordering::AcqRel)
    }

    /// The unit, and everything before `tail` of this log, is durable.
    #[inline]
    pub(crate) fn publish(&self, log: usize, tail: u64) {
        let hand = &self.hands[log];
        // Relaxed: whoever reads it has seen the announcement withdrawn first.
        hand.tail.store(tail, Ordering::Relaxed);
        // Release pairs with the Acquire in `watermark`: the unit's bytes come before.
        hand.announced.store(NONE, Ordering::Release);
    }

    /// The number up to which every unit is published.
    #[inline]
    pub(crate) fn watermark(&self) -> u64 {
        // Acquire pairs with the addition in `begin`: the announcements of all numbers drawn are visible.
        let next = self.next.load(Ordering::Acquire);
        // Acquire pairs with the Release in `publish`.
        self.hands.iter().fold(next, |least, hand| least.min(hand.announced.load(Ordering::Acquire))) - 1
    }

    /// The number of the last unit begun.
    #[inline]
    pub(crate) fn begun(&self) -> u64 {
        self.next.load(Ordering::Acquire) - 1
    }

    /// Everything of the log before this position is published. Units up to a watermark taken before lie before it.
    #[inline]
    pub(crate) fn tail(&self, log: usize) -> u64 {
        self.hands[log].tail.load(Ordering::Acquire)
    }

    /// Everything of the log before this position may be overwritten.
    #[inline]
    pub(crate) fn head(&self, log: usize) -> u64 {
        // Acquire pairs with the Release in `free`: the replayer has read what stood there.
        self.hands[log].head.load(Ordering::Acquire)
    }

    /// The replayer has applied everything before `head`, durably.
    pub(crate) fn free(&self, log: usize, head: u64) {
        // Release pairs with the Acquire in `head`.
        self.hands[log].head.store(head, Ordering::Release);
    }

    /// Asks the replayer for space now; one wake-up for each of its rounds.
    #[inline]
    pub(crate) fn press(&self) {
        // AcqRel pairs with `heed`: whoever finds it pressed knows that the round that follows sees its unit.
        if !self.pressed.swap(true, Ordering::AcqRel) {
            self.work.open();
        }
    }

    /// Whether somebody has pressed since the last round began.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Acquire)
    }

    /// The replayer begins a round.
    pub(crate) fn heed(&self) {
        self.pressed.swap(false, Ordering::AcqRel);
    }

    /// The replayer says that it found nothing to do and goes to sleep.
    pub(crate) fn rest(&self) {
        self.idle.store(true, Ordering::Relaxed);
    }

    /// Wakes a replayer that found nothing to do. One that is about to say so may miss it: then what was published
    /// waits for the next unit, or for whoever needs space, who asks until there is some.
    #[inline]
    pub(crate) fn nudge(&self) {
        if self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::Relaxed) {
            self.work.open();
        }
    }
}
