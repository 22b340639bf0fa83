//! Durable linearizability of one crash image: recover, check, find the state among those that the history allows,
//! continue working.

use crate::engines::subject::{Promised, Subject};
use crate::machine::trace::{Mark, Promise};
use crate::machine::world::Machine;
use crate::rng::Rng;

/// What the history up to a crash allows.
pub struct Expectation<S: Subject> {
    /// The states allowed before the run was ready; `None`: the structure was being created, and may be absent, or
    /// empty.
    pub unready: Option<Vec<S::Model>>,
    /// An earlier history promised that the pool exists, whatever this one promises.
    pub pool_promised: bool,
    /// ... and the structure in it. A process that died while it created the structure promised nothing, even if
    /// the next process found it finished: it read the page cache, and a power cut may still undo it.
    pub structure_promised: bool,
    /// The state before each operation, and after the last.
    pub models: Vec<S::Model>,
    /// The operations.
    pub ops: Vec<S::Op>,
}

impl<S: Subject> Expectation<S> {
    /// For a first run of `ops` on nothing.
    #[must_use]
    pub fn fresh(ops: &[S::Op]) -> Self {
        let models = states::<S>(S::Model::default(), ops);
        Self { unready: None, pool_promised: false, structure_promised: false, models, ops: ops.to_vec() }
    }

    /// The states that a crash with this promise may leave.
    fn allowed(&self, promise: Promise) -> Vec<S::Model> {
        match &self.unready {
            _ if promise.ready => {
                let (low, high) = (promise.low as usize, promise.high as usize);
                if promise.inner && promise.busy {
                    let n = high - 1;
                    return S::between(&self.models[n], n as u32, &self.ops[n], true);
                }
                if promise.outer && promise.busy {
                    let n = high - 1;
                    return S::after_outer(&self.models[n], n as u32, &self.ops[n]);
                }
                // The latest state stays last, because it is compared first. An operation that returned and
                // promised nothing may survive in part too, if another one ran inside it.
                let mut all = Vec::new();
                for n in low..high {
                    all.push(self.models[n].clone());
                    all.extend(S::between(&self.models[n], n as u32, &self.ops[n], false));
                }
                all.push(self.models[high].clone());
                all
            }
            Some(states) => states.clone(),
            None => self.models[..1].to_vec(),
        }
    }
}

fn states<S: Subject>(start: S::Model, ops: &[S::Op]) -> Vec<S::Model> {
    let mut models = vec![start];
    for (index, op) in ops.iter().enumerate() {
        let mut next = models[index].clone();
        S::advance(&mut next, index as u32, op);
        models.push(next);
    }
    models
}

/// Runs operations and marks the history.
fn drive<S: Subject>(
    machine: &dyn Machine,
    subject: &mut S,
    ops: &[S::Op],
    first: usize,
    models: &[S::Model],
) -> Result<(), String> {
    for (index, op) in ops.iter().enumerate() {
        let index = (first + index) as u32;
        machine.mark(Mark::Begin(index));
        let promised = subject
            .apply(index, op, &models[index as usize])
            .map_err(|e| format!("operation {index}, {op:?}: {e}"))?;
        let durable = match promised {
            Promised::Nothing => 0,
            Promised::All => index + 1,
            Promised::First(n) => n,
        };
        machine.mark(Mark::End { durable });
    }
    Ok(())
}

/// The first run: create, work, close, open, work, close.
///
/// # Errors
/// A wrong answer or an error of the engine.
pub(crate) fn first_run<S: Subject>(
    machine: &dyn Machine,
    ops: &[S::Op],
    expect: &Expectation<S>,
) -> Result<(), String> {
    let region = machine.open(true).map_err(|e| format!("creating the pool: {e}"))?;
    machine.mark(Mark::Opened);
    let mut subject = S::create(region).map_err(|e| format!("creating the structure: {e}"))?;
    machine.mark(Mark::Ready);
    let (before, after) = ops.split_at(ops.len() / 2);
    drive(machine, &mut subject, before, 0, &expect.models)?;
    drop(subject);
    machine.mark(Mark::Closing);
    machine.close().map_err(|e| format!("closing: {e}"))?;
    machine.mark(Mark::Closed);
    let region = machine.open(false).map_err(|e| format!("opening a closed pool: {e}"))?;
    if machine.was_clean() == Some(false) {
        return Err("the pool was closed in order and does not say so".to_owned());
    }
    let mut subject = S::recover(region).map_err(|e| format!("opening a closed pool: {e}"))?;
    drive(machine, &mut subject, after, before.len(), &expect.models)?;
    settle(&subject, &expect.models)?;
    drop(subject);
    machine.mark(Mark::Closing);
    machine.close().map_err(|e| format!("closing: {e}"))?;
    machine.mark(Mark::Closed);
    Ok(())
}

fn settle<S: Subject>(subject: &S, models: &[S::Model]) -> Result<(), String> {
    let Some(last) = models.last() else { return Ok(()) };
    if !subject.holds(last)? {
        return Err(format!("without any further crash, {}", subject.difference(last)));
    }
    subject.check().map_err(|e| format!("without any further crash, check: {e}"))
}

/// What happens after a recovery.
pub(crate) struct AfterRecovery<S: Subject> {
    /// Operations to continue with.
    pub ops: Vec<S::Op>,
    /// Close the pool in order afterwards.
    pub close: bool,
}

impl<S: Subject> AfterRecovery<S> {
    /// A few operations of the subject's choice; none, but a close, for every other seed if `may_idle`.
    pub(crate) fn seeded(seed: u64, model: &S::Model, may_idle: bool) -> Self {
        let mut rng = Rng::new(seed);
        if may_idle && rng.one_in(2) {
            return Self { ops: Vec::new(), close: true };
        }
        let ops = S::follow_up(&mut rng, model);
        Self { ops, close: rng.one_in(4) }
    }
}

/// Judges one image. On success it returns the history of the recovery itself, for a second crash during it; `None`
/// when creation had not finished and no structure exists.
///
/// # Errors
/// The violation, as a message.
pub(crate) fn judge<S: Subject>(
    machine: &dyn Machine,
    expect: &Expectation<S>,
    promise: Promise,
    may_refuse: bool,
    then: impl FnOnce(&S::Model) -> AfterRecovery<S>,
) -> Result<Option<Expectation<S>>, String> {
    let pool_promised = expect.pool_promised || promise.opened;
    let structure_promised = expect.structure_promised || promise.ready;
    let region = match machine.open(false) {
        Ok(region) => region,
        Err(_) if may_refuse || !pool_promised => return Ok(None),
        Err(e) => return Err(format!("the pool does not open: {e}")),
    };
    if promise.closed && !may_refuse && machine.was_clean() == Some(false) {
        return Err("the pool was closed in order and does not say so".to_owned());
    }
    let may_be_absent = !structure_promised && S::is_unfinished(&region);
    let mut subject = match S::recover(region) {
        Ok(subject) => subject,
        Err(_) if may_refuse || may_be_absent => return Ok(None),
        Err(e) => return Err(format!("recovery failed: {e}")),
    };
    if structure_promised && !may_refuse && !subject.was_there() {
        return Err("the structure is gone whose creation was acknowledged: recovery made it anew".to_owned());
    }
    subject.check().map_err(|e| format!("check after recovery: {e}"))?;
    let allowed = expect.allowed(promise.at_first());
    let mut found = None;
    // The latest state first: it is the likeliest.
    for model in allowed.iter().rev() {
        if subject.holds(model)? {
            found = Some(model.clone());
            break;
        }
    }
    let Some(mut model) = found else {
        let differences: Vec<String> = allowed.iter().rev().take(3).map(|m| subject.difference(m)).collect();
        return Err(format!(
            "the recovered state is none of the {} that the history allows (operations {}..={}): {}",
            allowed.len(),
            promise.at_first().low,
            promise.high,
            differences.join("; or: ")
        ));
    };
    if may_refuse && S::COPY_ON_WRITE {
        // A pool opened copy on write compares pages with their checksums later, and refuses them then.
        return Ok(None);
    }
    let allowed = expect.allowed(promise);
    S::rebase(&mut model);
    machine.mark(Mark::Ready);
    let AfterRecovery { ops, close } = then(&model);
    let models = states::<S>(model, &ops);
    drive(machine, &mut subject, &ops, 0, &models).map_err(|e| format!("after recovery, {e}"))?;
    settle(&subject, &models).map_err(|e| format!("after recovery, {e}"))?;
    drop(subject);
    if close {
        machine.mark(Mark::Closing);
        machine.close().map_err(|e| format!("closing after recovery: {e}"))?;
        machine.mark(Mark::Closed);
    }
    Ok(Some(Expectation { unready: Some(allowed), pool_promised, structure_promised, models, ops }))
}
