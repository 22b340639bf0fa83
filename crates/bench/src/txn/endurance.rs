//! How often the medium is written: lines of the durable copy for each word that was committed.

use super::context::TxnBench;
use super::load::TxnWork;
use super::peer::TxnDomain;
use super::place::WordPool;
use super::swaps::{SwapJob, fill, verify};
use super::ways::Way;
use crate::report::report::{FigureUnit, OURS};
use std::time::Duration;

pub(super) const ENDURANCE: &str = "endurance";

/// Bytes that the swaps are spread over: what the goal is for.
const BYTES: usize = 8 << 20;
const LINE_BYTES: f64 = 64.0;
const WORD_BYTES: f64 = 8.0;

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    for swaps in b.args.swaps.clone() {
        let work = TxnWork::Swaps(swaps);
        b.progress.step(work.operation());
        let place = WordPool::new(&b.args.dir, &b.place(TxnDomain::Adr), b.quick_bytes(BYTES))?;
        fill(&place)?;
        let before = place.shadow().stat();
        let time = Duration::from_secs_f64(b.seconds());
        let words = place.words();
        let job = SwapJob { swaps, threads: 1, words, place: &place, time, log_bytes_max: None };
        Way::Records.run(&place, &job)?;
        place.shadow().checkpoint()?;
        verify(&place)?;
        let after = place.shadow().stat();
        let words = (after.applied_bytes - before.applied_bytes) as f64 / WORD_BYTES;
        let image = (after.image_written - before.image_written) as f64 / LINE_BYTES / words;
        let log = (after.log_written - before.log_written) as f64 / words;
        let mut add = |what: &str, unit, value| {
            b.add(ENDURANCE, TxnDomain::Adr.name(), &work.operation(), what, 1, OURS, unit, value);
        };
        add("lines of the durable copy a word", FigureUnit::Count, image);
        add("log bytes a word", FigureUnit::Count, log);
    }
    Ok(())
}
