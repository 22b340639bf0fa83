//! Durable linearizability of one crash image: recover, check, find the state among those that the
//! history allows, go on working.

use crate::rng::Rng;
use crate::subject::{Promised, Subject};
use crate::trace::{Mark, Promise};
use crate::world::Machine;

/// What the history up to a crash allows.
pub struct Expect<S: Subject> {
    /// The states allowed before the run was ready; `None`: the structure was being created, and may be
    /// absent, or empty.
    pub unready: Option<Vec<S::Model>>,
    /// An earlier history promised that the pool is there, whatever this one comes to.
    pub pool_promised: bool,
    /// ... and the structure in it. A process that died while it made the structure promised nothing,
    /// even if the next one found it finished: that was the page cache, and a power cut may still undo it.
    pub structure_promised: bool,
    /// The state before each operation, and after the last.
    pub models: Vec<S::Model>,
    /// The operations.
    pub ops: Vec<S::Op>,
}

impl<S: Subject> Expect<S> {
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
                // The latest state stays last: it is looked at first. Returned operations that promised
                // nothing may survive in part too, where one of them ran inside another.
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
    expect: &Expect<S>,
) -> Result<(), String> {
    let region = machine.open(true).map_err(|e| format!("creating the pool: {e}"))?;
    machine.mark(Mark::Opened);
    let mut subject = S::create(region).map_err(|e| format!("creating the structure: {e}"))?;
    machine.mark(Mark::Ready);
    let (before, after) = ops.split_at(ops.len() / 2);
    drive(machine, &mut subject, before, 0, &expect.models)?;
    drop(subject);
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
pub(crate) struct Then<S: Subject> {
    /// Operations to go on with.
    pub ops: Vec<S::Op>,
    /// Close the pool in order afterwards.
    pub close: bool,
}

impl<S: Subject> Then<S> {
    /// A few operations of the subject's choice.
    pub(crate) fn seeded(seed: u64, model: &S::Model) -> Self {
        let mut rng = Rng::new(seed);
        let ops = S::follow_up(&mut rng, model);
        Self { ops, close: rng.one_in(4) }
    }
}

/// Judges one image. On success the history of the recovery itself, for a second crash during it; `None`
/// when creation had not finished and nothing is there.
///
/// # Errors
/// The violation, as a sentence.
pub(crate) fn judge<S: Subject>(
    machine: &dyn Machine,
    expect: &Expect<S>,
    promise: Promise,
    may_refuse: bool,
    then: impl FnOnce(&S::Model) -> Then<S>,
) -> Result<Option<Expect<S>>, String> {
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
    let mut subject = match S::recover(region) {
        Ok(subject) => subject,
        Err(_) if may_refuse || !structure_promised => return Ok(None),
        Err(e) => return Err(format!("recovery failed: {e}")),
    };
    subject.check().map_err(|e| format!("check after recovery: {e}"))?;
    let allowed = expect.allowed(promise);
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
            promise.low,
            promise.high,
            differences.join("; or: ")
        ));
    };
    if may_refuse && S::COPY_ON_WRITE {
        // Pages are compared with their sums later, and refused then.
        return Ok(None);
    }
    S::rebase(&mut model);
    machine.mark(Mark::Ready);
    let Then { ops, close } = then(&model);
    let models = states::<S>(model, &ops);
    drive(machine, &mut subject, &ops, 0, &models).map_err(|e| format!("after recovery, {e}"))?;
    settle(&subject, &models).map_err(|e| format!("after recovery, {e}"))?;
    drop(subject);
    if close {
        machine.close().map_err(|e| format!("closing after recovery: {e}"))?;
        machine.mark(Mark::Closed);
    }
    Ok(Some(Expect { unready: Some(allowed), pool_promised, structure_promised, models, ops }))
}
