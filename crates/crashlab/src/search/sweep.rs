//! The sweep: runs workloads, visits every crash point, judges the images.
//!
//! It visits a crash point with few images exhaustively, and one with many by seeded samples. It crashes some
//! images again, during or after their recovery.

use crate::engines::subject::Subject;
use crate::machine::cursor::CrashDomain;
use crate::machine::lines::ImageChoice;
use crate::machine::site::Sites;
use crate::machine::trace::Promise;
use crate::machine::world::World;
use crate::rng::{Rng, mix};
use crate::search::token::{Crash, Token};
use crate::verdict::judge::{AfterRecovery, Expectation, first_run, judge};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How many extraordinary faults are tried on a closed pool.
const EXTRA_CLOSED: u64 = 8;
/// How many are tried at each crash point of closing.
const EXTRA_CLOSING: u64 = 2;

/// How much of each run is judged.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Images of one crash point; a point with no more than these is visited exhaustively.
    pub cut_images: u64,
    /// One image in this many is crashed a second time.
    pub again_every: u64,
    /// Second crashes of such an image.
    pub again_images: u64,
    /// One crash point in this many gets an extraordinary fault.
    pub extra_every: u64,
    /// Stop when this many distinct images were judged.
    pub images: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cut_images: 24, again_every: 24, again_images: 24, extra_every: 4, images: 100_000 }
    }
}

/// What a sweep has judged.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Workload runs.
    pub runs: u64,
    /// Recoveries judged. (An image is judged again when it comes with another promise.)
    pub judged: u64,
    /// Of these, images of a second crash, in or after a recovery.
    pub second: u64,
    /// Crash points of which every image was judged, and those that were sampled.
    pub exhaustive: u64,
    /// See `exhaustive`.
    pub sampled: u64,
    /// Identities of the distinct images.
    pub distinct: HashSet<u64>,
    /// New images by scenario.
    pub by_scenario: BTreeMap<&'static str, u64>,
    seen: HashSet<u64>,
}

impl Tally {
    /// Distinct images so far.
    #[must_use]
    pub fn images(&self) -> u64 {
        self.distinct.len() as u64
    }
}

/// An image that the engine failed on.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Names the image, and replays it.
    pub token: Token,
    /// The scenario of the run.
    pub scenario: &'static str,
    /// What is wrong.
    pub message: String,
}

/// What is being judged now, for a watchdog.
#[derive(Clone, Default)]
pub struct SweepWatch(Arc<Mutex<Option<(Token, Instant)>>>);

impl SweepWatch {
    fn set(&self, token: Token) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((token, Instant::now()));
    }

    /// Notes that nothing is being judged.
    pub(crate) fn rest(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The image that is being judged, and since when.
    #[must_use]
    pub fn now(&self) -> Option<(Token, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sweeps one subject in one world.
pub struct Sweep<W: World> {
    domain: CrashDomain,
    seed: u64,
    limits: Limits,
    sites: Arc<Sites>,
    /// One machine for the runs, one for first recoveries, one for second ones.
    machines: [W; 3],
    watch: SweepWatch,
}

/// The recording of a recovery, and what it promised.
struct Recovered<S: Subject, W: World> {
    recording: W::Recording,
    expect: Option<Expectation<S>>,
}

impl<W: World> Sweep<W> {
    /// A sweep on machines made by `machine`.
    pub fn new(
        domain: CrashDomain,
        seed: u64,
        limits: Limits,
        sites: Arc<Sites>,
        machine: impl Fn() -> W,
    ) -> Self {
        let machines = [machine(), machine(), machine()];
        Self { domain, seed, limits, sites, machines, watch: SweepWatch::default() }
    }

    /// Tells `watch` what is being judged.
    #[must_use]
    pub fn watched_by(mut self, watch: SweepWatch) -> Self {
        self.watch = watch;
        self
    }

    fn token<S: Subject>(&self, run: u64, crashes: Vec<Crash>) -> Token {
        Token { engine: S::NAME.to_owned(), domain: self.domain, seed: self.seed, run, crashes }
    }

    fn violation<S: Subject>(&self, run: u64, crashes: Vec<Crash>, message: String) -> Box<Violation> {
        Box::new(Violation { token: self.token::<S>(run, crashes), scenario: scenario::<S>(run).1, message })
    }

    /// Runs workload `run` and judges its crashes.
    ///
    /// # Errors
    /// The first violation.
    pub fn run<S: Subject>(&mut self, run: u64, tally: &mut Tally) -> Result<(), Box<Violation>> {
        let (expect, recording) = self.record::<S>(run)?;
        tally.runs += 1;
        let mut at = self.machines[0].start(&recording, None);
        let mut promise = Promise::default();
        let mut rng = Rng::new(mix(self.seed, run ^ 0x5eed));
        for event in 0..=W::event_count(&recording) {
            if W::is_cut(&at, &recording, event) {
                let count = W::combinations(&at, &recording, event);
                let exhaustive = count <= self.limits.cut_images;
                *(if exhaustive { &mut tally.exhaustive } else { &mut tally.sampled }) += 1;
                let extra = match promise.closed {
                    _ if !W::HAS_EXTRAS => 0,
                    true => EXTRA_CLOSED,
                    false if promise.closing => EXTRA_CLOSING,
                    false => u64::from(rng.one_in(self.limits.extra_every.max(1))),
                };
                for n in 0..count.min(self.limits.cut_images) + extra {
                    let choice = match n {
                        n if n >= count.min(self.limits.cut_images) => ImageChoice::Extra(rng.next()),
                        n if exhaustive => ImageChoice::Index(n),
                        _ => ImageChoice::Seed(rng.next()),
                    };
                    let crash = Crash { cut: event as u64, choice };
                    let overlay = W::pick(&at, &recording, event, choice);
                    let identity = W::identity(&at, &overlay);
                    if !note(tally, identity, W::fault(&overlay), promise, scenario::<S>(run).1) {
                        continue;
                    }
                    let result = self.judge_first::<S>(run, crash, (&mut at, &overlay), &expect, promise)?;
                    tally.judged += 1;
                    // What an extraordinary fault breaks shows mostly at the next crash.
                    let every = if W::fault(&overlay) != 0 { 2 } else { self.limits.again_every };
                    if self.limits.again_images > 0 && rng.one_in(every.max(1)) {
                        self.crash_again(run, crash, (&at, &overlay), &result, &mut rng, tally)?;
                    }
                    if tally.images() >= self.limits.images {
                        return Ok(());
                    }
                }
            }
            if event < W::event_count(&recording) {
                if let Some(mark) = W::mark_at(&recording, event) {
                    promise.advance(mark);
                }
                W::step(&mut at, &recording, event);
            }
        }
        Ok(())
    }

    /// Runs workload `run` and judges no crash of it. Returns whether it reached the call site of the injected fault.
    ///
    /// # Errors
    /// A violation that needs no crash.
    pub fn reaches_fault<S: Subject>(&mut self, run: u64) -> Result<bool, Box<Violation>> {
        let before = self.sites.injections();
        self.record::<S>(run)?;
        Ok(self.sites.injections() > before)
    }

    fn record<S: Subject>(&mut self, run: u64) -> Result<(Expectation<S>, W::Recording), Box<Violation>> {
        let ops = operations::<S>(self.seed, run);
        let expect = Expectation::<S>::fresh(&ops);
        self.watch.set(self.token::<S>(run, Vec::new()));
        let sites = self.sites.clone();
        let (answer, recording) =
            self.machines[0].boot(None, &sites, |machine| first_run::<S>(machine, &ops, &expect));
        match answer {
            Ok(()) => Ok((expect, recording)),
            Err(message) => Err(self.violation::<S>(run, Vec::new(), message)),
        }
    }

    fn judge_first<S: Subject>(
        &mut self,
        run: u64,
        crash: Crash,
        image: (&mut W::Cursor, &W::Overlay),
        expect: &Expectation<S>,
        promise: Promise,
    ) -> Result<Recovered<S, W>, Box<Violation>> {
        self.watch.set(self.token::<S>(run, vec![crash]));
        let sites = self.sites.clone();
        let seed = image_seed(self.seed, run, crash);
        let refuse = W::may_refuse(image.1) && !promise.closed;
        let promise = Promise { keeps_returned: W::keeps_returned(image.1), ..promise };
        // A process that was killed while it closed may have left a closed pool, which the next one only closes.
        let may_idle = promise.closing && W::fault(image.1) != 0;
        let (answer, recording) = self.machines[1].boot(Some(image), &sites, |machine| {
            judge::<S>(machine, expect, promise, refuse, |model| AfterRecovery::seeded(seed, model, may_idle))
        });
        match answer {
            Ok(expect) => Ok(Recovered { recording, expect }),
            Err(message) => Err(self.violation::<S>(run, vec![crash], message)),
        }
    }

    /// Samples crashes of a recovery and of the operations after it.
    fn crash_again<S: Subject>(
        &mut self,
        run: u64,
        first: Crash,
        image: (&W::Cursor, &W::Overlay),
        recovered: &Recovered<S, W>,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<(), Box<Violation>> {
        let Some(expect) = &recovered.expect else { return Ok(()) };
        let recording = &recovered.recording;
        let count = W::event_count(recording) as u64;
        let mut cuts: Vec<u64> = (1..self.limits.again_images).map(|_| rng.below(count + 1)).collect();
        cuts.sort_unstable();
        // At the end every promise holds.
        cuts.push(count);
        let mut cuts = cuts.into_iter().peekable();
        let mut at = self.machines[1].start(recording, Some(image));
        let mut promise = Promise::default();
        for event in 0..=count as usize {
            while cuts.peek().is_some_and(|c| *c <= event as u64) && W::is_cut(&at, recording, event) {
                cuts.next();
                let crash = Crash { cut: event as u64, choice: ImageChoice::Seed(rng.next()) };
                let overlay = W::pick(&at, recording, event, crash.choice);
                let identity = W::identity(&at, &overlay);
                if !note(tally, identity, W::fault(&overlay), promise, scenario::<S>(run).1) {
                    continue;
                }
                self.judge_second::<S>(run, first, crash, (&mut at, &overlay), expect, promise)?;
                tally.judged += 1;
                tally.second += 1;
            }
            if event < count as usize {
                if let Some(mark) = W::mark_at(recording, event) {
                    promise.advance(mark);
                }
                W::step(&mut at, recording, event);
            }
        }
        Ok(())
    }

    fn judge_second<S: Subject>(
        &mut self,
        run: u64,
        first: Crash,
        second: Crash,
        image: (&mut W::Cursor, &W::Overlay),
        expect: &Expectation<S>,
        promise: Promise,
    ) -> Result<(), Box<Violation>> {
        self.watch.set(self.token::<S>(run, vec![first, second]));
        let sites = self.sites.clone();
        let seed = image_seed(self.seed, run, second);
        let refuse = W::may_refuse(image.1) && !promise.closed;
        let (answer, _) = self.machines[2].boot(Some(image), &sites, |machine| {
            judge::<S>(machine, expect, promise, refuse, |model| AfterRecovery::seeded(seed, model, false))
        });
        answer.map(drop).map_err(|message| self.violation::<S>(run, vec![first, second], message))
    }

    /// Judges exactly the image that a token names.
    ///
    /// # Errors
    /// Its violation; or, as a violation too, that the token names no image of this program.
    pub fn replay<S: Subject>(&mut self, token: &Token) -> Result<String, Box<Violation>> {
        self.seed = token.seed;
        let run = token.run;
        let ops = operations::<S>(self.seed, run);
        let (expect, recording) = self.record::<S>(run)?;
        let mut said = format!("run {run}: {} operations, {}", ops.len(), scenario::<S>(run).1);
        let Some(&first) = token.crashes.first() else { return Ok(said) };
        let Some((mut at, promise)) = self.walk(0, &recording, None, first.cut) else {
            return Err(self.violation::<S>(run, vec![first], "the run has no such event".to_owned()));
        };
        let overlay = W::pick(&at, &recording, first.cut as usize, first.choice);
        said += &format!("; crash with {promise:?}; operations around it: ");
        let around = promise.low.saturating_sub(2) as usize..(promise.high as usize + 1).min(ops.len());
        said += &format!("{:?}", &ops[around]);
        let result = self.judge_first::<S>(run, first, (&mut at, &overlay), &expect, promise);
        let result =
            result.map_err(|v| Box::new(Violation { message: format!("{said}; {}", v.message), ..*v }))?;
        let (Some(&second), Some(inner)) = (token.crashes.get(1), &result.expect) else { return Ok(said) };
        let walked = self.walk(1, &result.recording, Some((&at, &overlay)), second.cut);
        let Some((mut inner_at, inner_promise)) = walked else {
            return Err(self.violation::<S>(run, vec![first, second], "no such event".to_owned()));
        };
        let inner_overlay = W::pick(&inner_at, &result.recording, second.cut as usize, second.choice);
        said += &format!("; second crash with {inner_promise:?}");
        self.judge_second::<S>(run, first, second, (&mut inner_at, &inner_overlay), inner, inner_promise)
            .map_err(|v| Box::new(Violation { message: format!("{said}; {}", v.message), ..*v }))?;
        Ok(said)
    }

    fn walk(
        &self,
        machine: usize,
        recording: &W::Recording,
        image: Option<(&W::Cursor, &W::Overlay)>,
        cut: u64,
    ) -> Option<(W::Cursor, Promise)> {
        let mut at = self.machines[machine].start(recording, image);
        let mut promise = Promise::default();
        if cut > W::event_count(recording) as u64 {
            return None;
        }
        for event in 0..cut as usize {
            if let Some(mark) = W::mark_at(recording, event) {
                promise.advance(mark);
            }
            W::step(&mut at, recording, event);
        }
        Some((at, promise))
    }
}

fn operations<S: Subject>(seed: u64, run: u64) -> Vec<S::Op> {
    S::workload(scenario::<S>(run).0, &mut Rng::new(mix(seed, run)))
}

fn scenario<S: Subject>(run: u64) -> (u32, &'static str) {
    let n = (run % u64::from(S::scenario_count())) as u32;
    (n, S::scenario_name(n))
}

fn image_seed(seed: u64, run: u64, crash: Crash) -> u64 {
    let n = match crash.choice {
        ImageChoice::Index(n) => n << 1,
        ImageChoice::Seed(n) | ImageChoice::Extra(n) => n << 1 | 1,
    };
    mix(mix(seed, run), mix(crash.cut, n))
}

/// True when this image has not been judged with this promise.
fn note(tally: &mut Tally, identity: u64, fault: u64, promise: Promise, scenario: &'static str) -> bool {
    if tally.distinct.insert(identity) {
        *tally.by_scenario.entry(scenario).or_insert(0) += 1;
    }
    let Promise { ready, opened, closing, closed, inner, outer, busy, .. } = promise;
    let flags = [ready, opened, closing, closed, inner, outer, busy];
    let flags = flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag));
    let promise = mix(u64::from(promise.low) << 32 | u64::from(promise.high), flags);
    tally.seen.insert(mix(identity, mix(promise, fault)))
}
