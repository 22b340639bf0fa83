//! The mixes on HTM+SGL, with persistent caches: transactions store to the medium itself, so there is neither log nor
//! working copy nor replay.

use super::context::TxnBench;
use super::mix::{MIXES, MixAnswer, MixJob, WordPlace};
use super::place::Folder;
use super::ways::{ExecutorJob, RETRIES, Stamped, Way};
use crate::report::report::FigureUnit;
use mangrove_txn::{Domain, HardwareLimits, HtmSgl, InPlaceMemory, InPlaceOptions, Latency, Medium};
use std::sync::Arc;
use std::time::Duration;

/// The medium, as a line of the report names it.
const MEDIUM: &str = "eADR, in place";

struct InPlace(Arc<InPlaceMemory>);

impl WordPlace for InPlace {
    fn base(&self) -> usize {
        self.0.base().expose_provenance()
    }

    fn count(&self) -> usize {
        self.0.bytes() as usize / 8
    }

    fn look_at(&self, at: usize) -> u64 {
        assert!(at < self.count(), "the word lies in the memory");
        // SAFETY: inside the data; no thread writes it.
        unsafe { self.0.base().cast::<u64>().add(at).read() }
    }

    fn log_bytes_used(&self) -> u64 {
        0
    }
}

/// Measures all mixes in memory of so many bytes. The sections are that of throughput, and that of what became of the
/// transactions.
pub(super) fn run(
    b: &mut TxnBench<'_>,
    bytes: usize,
    ways: &[Way],
    [mixes, paths]: [&'static str; 2],
) -> anyhow::Result<()> {
    let folder = Folder::new(&b.args.dir)?;
    let options = InPlaceOptions::new().medium(Medium::Emulated(Latency::default())).domain(Domain::Eadr);
    let place = InPlace(Arc::new(options.bytes(bytes as u64).open(folder.path())?));
    // SAFETY: the data, which no other thread uses yet. Each page is touched, so that no measurement takes its fault.
    unsafe { place.0.base().write_bytes(0, bytes) };
    for mix in MIXES {
        b.progress.step(format!("{MEDIUM} {}", mix.name()));
        for threads in b.args.threads.clone() {
            for &way in ways {
                let time = Duration::from_secs_f64(b.seconds());
                let job = MixJob { mix, threads, place: &place, time, log_bytes_max: None };
                let memory = Arc::clone(&place.0);
                let answer: MixAnswer = match way {
                    Way::InPlace(Stamped::Rtm) => job.run(&HtmSgl::rtm(memory)?.with_retries(RETRIES))?,
                    Way::InPlace(Stamped::Model) => {
                        job.run(&HtmSgl::modelled(memory, HardwareLimits::default())?.with_retries(RETRIES))?
                    }
                    _ => job.run(&HtmSgl::one_lock(memory)?)?,
                };
                let (name, count) = (mix.name(), answer.transactions() as f64);
                let rate = count / answer.seconds;
                b.add(mixes, MEDIUM, "", &name, threads, way.subject(), FigureUnit::PerSecond, rate);
                for (what, number) in way.paths(&answer.counts).each() {
                    let what = format!("{what}, of 100 commits");
                    let share = number as f64 * 100.0 / count.max(1.0);
                    b.add(paths, MEDIUM, &name, &what, threads, way.subject(), FigureUnit::Count, share);
                }
            }
        }
    }
    Ok(())
}
