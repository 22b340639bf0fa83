//! A chain of crashes: work, crash, recover and continue, crash again. The sweep judges many crashes of one
//! history; a chain follows one history through many crashes.

use crate::engines::subject::Subject;
use crate::machine::lines::ImageChoice;
use crate::machine::site::Sites;
use crate::machine::trace::Promise;
use crate::machine::world::World;
use crate::rng::Rng;
use crate::verdict::judge::{AfterRecovery, Expectation, first_run, judge};
use std::sync::Arc;

/// Operations between two crashes, and the seed of the crash after them.
#[derive(Clone, Debug)]
pub struct Leg<Op> {
    /// The operations.
    pub ops: Vec<Op>,
    /// Chooses the moment of the crash and its image.
    pub seed: u64,
}

/// Runs the legs one after the other, on the two machines in turn.
///
/// # Errors
/// The violation, and after which leg.
pub fn chain<S: Subject, W: World>(machines: &mut [W; 2], legs: &[Leg<S::Op>]) -> Result<(), String> {
    let sites = Arc::new(Sites::new());
    let Some(first) = legs.first() else { return Ok(()) };
    let mut expect = Expectation::<S>::fresh(&first.ops);
    let (answer, mut recording) =
        machines[0].boot(None, &sites, |machine| first_run::<S>(machine, &first.ops, &expect));
    answer.map_err(|e| format!("leg 0: {e}"))?;
    let mut start = machines[0].start(&recording, None);
    for (n, leg) in legs.iter().enumerate() {
        let (at, overlay, promise) = crash::<W>(start, &recording, leg.seed);
        let mut at = at;
        let next = legs.get(n + 1).map(|l| l.ops.clone()).unwrap_or_default();
        let close = leg.seed % 3 == 0;
        let machine = &mut machines[(n + 1) % 2];
        let (answer, again) = machine.boot(Some((&mut at, &overlay)), &sites, |machine| {
            judge::<S>(machine, &expect, promise, false, |_| AfterRecovery { ops: next, close })
        });
        // Creation had not finished: there is nothing to continue with.
        let Some(found) = answer.map_err(|e| format!("crash {n}: {e}"))? else { return Ok(()) };
        start = machine.start(&again, Some((&at, &overlay)));
        (expect, recording) = (found, again);
    }
    Ok(())
}

/// Goes to a random crash point and picks an image there.
fn crash<W: World>(
    mut at: W::Cursor,
    recording: &W::Recording,
    seed: u64,
) -> (W::Cursor, W::Overlay, Promise) {
    let mut rng = Rng::new(seed);
    let count = W::event_count(recording) as u64;
    // A third of the crashes come at the end, when every promise holds.
    let least = if rng.one_in(3) { count } else { rng.below(count + 1) };
    let mut promise = Promise::default();
    let mut event = 0;
    while event < count as usize && !(event as u64 >= least && W::is_cut(&at, recording, event)) {
        if let Some(mark) = W::mark_at(recording, event) {
            promise.advance(mark);
        }
        W::step(&mut at, recording, event);
        event += 1;
    }
    let overlay = W::pick(&at, recording, event, ImageChoice::Seed(rng.next()));
    (at, overlay, promise)
}
