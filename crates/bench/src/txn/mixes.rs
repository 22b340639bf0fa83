//! The six mixes of the dissertation, with every executor, on each medium: throughput, commits by path, attempts that
//! came to nothing, and bytes to the medium.

use super::context::TxnBench;
use super::in_place;
use super::mix::{MIXES, Mix, MixAnswer, MixJob};
use super::peer::TxnDomain;
use super::place::{LOG_BYTES, PlaceOptions, WordPool, latency};
use super::ways::Way;
use crate::report::report::FigureUnit;
use anyhow::bail;
use mangrove_shadow::FlushInstruction;
use mangrove_txn::Protocol;
use std::time::Duration;

pub(super) const MIXES_SECTION: &str = "mixes";

/// What became of the transactions on the first medium of each domain; of the others, in the JSON file only.
pub(super) const PATHS_SECTION: &str = "paths";
const MORE_PATHS_SECTION: &str = "more paths";

/// What the rows of the protocols with time stamps are.
const STAMPS_NOTE: &str = "Rows with SPHT use the protocols with time stamps: 'RTM' ran in hardware, 'model' on a \
     model of it, which tells nothing about its speed, and 'one lock' one transaction at a time.";

/// Of the log, as much may be in use when nothing replays it.
pub(super) const FULL_PERCENT: u64 = 75;

/// A medium, as a line of the report names it.
struct MixMedium {
    name: String,
    options: PlaceOptions,
}

/// The media that were asked for. On eADR nothing is flushed, so that latencies and instructions make no difference.
fn media(b: &TxnBench<'_>) -> anyhow::Result<Vec<MixMedium>> {
    let mut media = Vec::new();
    for replay in &b.args.replay {
        let replay = match replay.trim() {
            "on" => true,
            "off" => false,
            other => bail!("--replay takes on and off, not '{other}'"),
        };
        let log_bytes = if replay { LOG_BYTES } else { b.args.log_mib << 20 };
        let replayed = if replay { "replay on" } else { "replay off" };
        for name in &b.args.latencies {
            let latency = latency(name, b.args.line_ns)?;
            for flush in flushes(&b.args.flush)? {
                let options = PlaceOptions {
                    flush: Some(flush),
                    latency,
                    replay,
                    log_bytes,
                    ..PlaceOptions::new(TxnDomain::Adr)
                };
                media.push(MixMedium { name: format!("ADR {} {flush}, {replayed}", name.trim()), options });
            }
        }
        let options = PlaceOptions { replay, log_bytes, ..PlaceOptions::new(TxnDomain::Eadr) };
        media.push(MixMedium { name: format!("eADR, {replayed}"), options });
    }
    Ok(media)
}

/// Those of the instructions that this CPU has.
fn flushes(names: &[String]) -> anyhow::Result<Vec<FlushInstruction>> {
    let all = [FlushInstruction::Clwb, FlushInstruction::Clflushopt, FlushInstruction::Clflush];
    let mut found = Vec::new();
    for name in names {
        match all.into_iter().find(|instruction| instruction.to_string() == name.trim()) {
            Some(instruction) if instruction.is_available() => found.push(instruction),
            Some(_) => {}
            None => bail!("--flush takes clwb, clflushopt and clflush, not '{name}'"),
        }
    }
    Ok(found)
}

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let (in_place, ways): (Vec<_>, Vec<_>) =
        b.ways()?.into_iter().partition(|way| way.protocol() == Protocol::HtmSgl);
    if ways.iter().any(|way| way.protocol().is_stamped()) {
        b.report.note(STAMPS_NOTE.to_owned());
    }
    let bytes = if b.args.run.quick { 4 << 20 } else { b.args.heap_mib << 20 };
    let mut shown = Vec::new();
    for medium in media(b)? {
        let options = PlaceOptions { log_bytes: b.quick_log(medium.options.log_bytes), ..medium.options };
        let mut place = WordPool::new(&b.args.dir, &options, bytes)?;
        place.touch()?;
        let paths = if shown.contains(&(options.domain, options.replay)) {
            MORE_PATHS_SECTION
        } else {
            PATHS_SECTION
        };
        shown.push((options.domain, options.replay));
        for mix in MIXES {
            b.progress.step(format!("{} {}", medium.name, mix.name()));
            for threads in b.args.threads.clone() {
                for &way in ways.iter().filter(|way| way.fits(options.domain)) {
                    place = place.opened_for(way.protocol())?;
                    measure(b, &place, &medium.name, paths, mix, threads, way, &options)?;
                }
            }
        }
    }
    if in_place.is_empty() {
        return Ok(());
    }
    in_place::run(b, bytes, &in_place, [MIXES_SECTION, PATHS_SECTION])
}

#[expect(clippy::too_many_arguments, reason = "the coordinates of a cell")]
fn measure(
    b: &mut TxnBench<'_>,
    place: &WordPool,
    medium: &str,
    paths: &'static str,
    mix: Mix,
    threads: usize,
    way: Way,
    options: &PlaceOptions,
) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(b.seconds());
    let log_bytes_max = (!options.replay).then_some(options.log_bytes * FULL_PERCENT / 100);
    let before = place.shadow().stat();
    let answer: MixAnswer = way.run(place, &MixJob { mix, threads, place, time, log_bytes_max })?;
    // What is still in the logs goes to the durable copy, so that each transaction's bytes are counted.
    place.shadow().checkpoint()?;
    let after = place.shadow().stat();
    let count = answer.transactions() as f64;
    let rate = count / answer.seconds;
    b.add(MIXES_SECTION, medium, "", &mix.name(), threads, way.subject(), FigureUnit::PerSecond, rate);
    let mut add = |what: &str, value: f64| {
        b.add(paths, medium, &mix.name(), what, threads, way.subject(), FigureUnit::Count, value);
    };
    let all = way.paths(&answer.counts);
    for (what, number) in all.each() {
        add(&format!("{what}, of 100 commits"), number as f64 * 100.0 / count.max(1.0));
    }
    add("log bytes a transaction", (after.log_written - before.log_written) as f64 / count.max(1.0));
    add("image bytes a transaction", (after.image_written - before.image_written) as f64 / count.max(1.0));
    Ok(())
}
