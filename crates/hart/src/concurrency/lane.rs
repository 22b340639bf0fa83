//! Lanes: a number for each running thread, so that threads need not share a cache line.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lanes that belong to one thread at a time.
pub(crate) const OWN_LANES_MAX: usize = 64;

thread_local! {
    static OWN: OwnLane = OwnLane::claim();
}

/// The lane that no other living thread has; none when there are too many threads.
#[inline]
pub(crate) fn own_lane() -> Option<usize> {
    // A thread that is ending has returned its lane.
    OWN.try_with(|own| own.0).ok().flatten()
}

/// How many lanes any thread has ever had: the first ones. It only goes up.
static EVER_OWNED: AtomicUsize = AtomicUsize::new(0);

/// Number of the first lanes that include each [`own_lane`] of a thread that the caller is ordered after.
#[inline]
pub(crate) fn lanes_ever_owned() -> usize {
    // Relaxed: what orders the caller after the thread, a barrier or the return of its write, orders this load, too.
    EVER_OWNED.load(Ordering::Relaxed)
}

/// Lanes that threads have returned. The lock orders what a thread did in its lane before what the lane's next owner
/// does, and guards changes of [`EVER_OWNED`].
static RETURNED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

struct OwnLane(Option<usize>);

impl OwnLane {
    fn claim() -> Self {
        let mut returned = RETURNED.lock();
        if let Some(lane) = returned.pop() {
            return Self(Some(lane));
        }
        let fresh = EVER_OWNED.load(Ordering::Relaxed);
        if fresh == OWN_LANES_MAX {
            return Self(None);
        }
        EVER_OWNED.store(fresh + 1, Ordering::Relaxed);
        Self(Some(fresh))
    }
}

impl Drop for OwnLane {
    fn drop(&mut self) {
        if let Some(lane) = self.0 {
            RETURNED.lock().push(lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OWN_LANES_MAX, own_lane};
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn living_threads_have_lanes_of_their_own_and_give_them_back() {
        for _ in 0..3 {
            let barrier = Barrier::new(OWN_LANES_MAX + 8);
            let lanes: Vec<Option<usize>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..OWN_LANES_MAX + 8)
                    .map(|_| {
                        scope.spawn(|| {
                            let lane = own_lane();
                            barrier.wait();
                            lane
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().expect("no panic")).collect()
            });
            let own: Vec<usize> = lanes.into_iter().flatten().collect();
            assert!(own.len() <= OWN_LANES_MAX && !own.is_empty());
            assert_eq!(own.iter().collect::<HashSet<_>>().len(), own.len(), "a lane twice: {own:?}");
        }
    }
}
