//! `mangrove map apply`.

use super::input::{Lines, NextLine};
use crate::open_args::OpenArgs;
use crate::terminal::exit::{Exit, Usage};
use crate::terminal::size::count;
use crate::terminal::text::Spelling;
use crate::terminal::{interrupt, output, stderr};
use anyhow::Context;
use mangrove::{Batch, Durability, Map};
use serde_json::json;
use std::path::PathBuf;

/// Apply puts and deletes, one a line, as one atomic batch: all of them or none.
///
/// A line is `put`, tab, key, tab, value, or `del`, tab, key. Keys and values have escapes
/// (\t \n \r \\ \xHH), or are in hexadecimal with --hex. With --batch the lines are applied in batches
/// of so many, each of them whole or not at all. When the command returns 0 everything is durable (with
/// --durability sync, the default, each batch is durable before the next one is applied).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  printf 'put\\tto\\t30\\ndel\\tfrom\\n' | mangrove map apply accounts.pool
  mangrove map apply words.pool changes.tsv --batch 1000 --json")]
pub(crate) struct Args {
    /// The pool; created when it is not there
    pool: PathBuf,
    /// The file of changes; - is standard input
    #[arg(default_value = "-")]
    input: PathBuf,
    /// Apply the lines in batches of so many; without it, as one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: Option<u32>,
    /// Keys and values are in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print a JSON object at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// What was applied so far.
#[derive(Default)]
struct Applied {
    puts: u64,
    deletes: u64,
    batches: u64,
}

/// A batch that is being read, and which lines are in it.
#[derive(Default)]
struct Pending {
    batch: Batch,
    applied: Applied,
    lines: Option<(u64, u64)>,
}

impl Pending {
    fn len(&self) -> u64 {
        self.applied.puts + self.applied.deletes
    }

    /// Takes the change that the line asks for.
    fn take(&mut self, number: u64, line: &[u8], spelling: Spelling) -> anyhow::Result<()> {
        let mut fields = line.split(|&b| b == b'\t');
        let (kind, key, value, more) = (fields.next(), fields.next(), fields.next(), fields.next());
        match (kind, key, value, more) {
            (Some(b"put"), Some(key), Some(value), None) => {
                self.batch.put(&spelling.bytes(key)?, &spelling.bytes(value)?);
                self.applied.puts += 1;
            }
            (Some(b"del"), Some(key), None, None) => {
                self.batch.delete(&spelling.bytes(key)?);
                self.applied.deletes += 1;
            }
            _ => {
                let sentence = "a line is 'put', tab, key, tab, value, or 'del', tab, key";
                return Err(Usage(sentence.into()).into());
            }
        }
        self.lines = Some((self.lines.map_or(number, |(first, _)| first), number));
        Ok(())
    }

    fn apply(self, map: &Map, all: &mut Applied) -> anyhow::Result<()> {
        let Some((first, last)) = self.lines else { return Ok(()) };
        map.write(self.batch).with_context(|| format!("lines {first} to {last}"))?;
        all.puts += self.applied.puts;
        all.deletes += self.applied.deletes;
        all.batches += 1;
        Ok(())
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut lines = Lines::open(&args.input)?;
    let mut all = Applied::default();
    // One batch is read to its end first: a line that is none creates no pool.
    let mut map = None;
    let result = apply_lines(args, &mut lines, &mut map, &mut all);
    let closed = map.map_or(Ok(()), |map: Map| map.sync().and_then(|()| map.close()));
    if !matches!(result, Ok(true)) && all.batches > 0 {
        let stays = what_stays(&all, args.opening.durability, closed.is_ok());
        stderr::line(format_args!("mangrove: stopped; {stays}"));
    }
    let is_whole = result?;
    closed?;
    if args.json {
        let (puts, deletes, batches) = (all.puts, all.deletes, all.batches);
        output::json(&json!({ "puts": puts, "deletes": deletes, "batches": batches, "complete": is_whole }))?;
    } else if is_whole {
        stderr::line(format_args!("{} put, {} deleted", count(all.puts), count(all.deletes)));
    }
    Ok(if is_whole { Exit::Ok } else { Exit::Interrupted })
}

/// What to say of the batches that were applied before the stop. `is_synced`: all of them were then made durable.
fn what_stays(all: &Applied, durability: Durability, is_synced: bool) -> String {
    let stay = match is_synced || durability == Durability::Sync {
        true => "were applied and stay",
        false => "were applied, and the newest may be lost",
    };
    let (batches, puts, deletes) = (count(all.batches), count(all.puts), count(all.deletes));
    format!("{batches} batches ({puts} put, {deletes} deleted) {stay}")
}

/// Applies all lines; false when it was interrupted before the end.
fn apply_lines(
    args: &Args,
    lines: &mut Lines,
    map: &mut Option<Map>,
    all: &mut Applied,
) -> anyhow::Result<bool> {
    let spelling = Spelling { hex: args.hex, escape: !args.hex };
    let most = args.batch.map_or(u64::MAX, u64::from);
    let mut pending = Pending::default();
    loop {
        if interrupt::asked() {
            return Ok(false);
        }
        let is_end = match lines.next()? {
            NextLine::Line(line) => {
                let number = lines.number();
                pending.take(number, &line, spelling).with_context(|| format!("line {number}"))?;
                false
            }
            NextLine::Pause => continue,
            NextLine::End => true,
        };
        if is_end || pending.len() >= most {
            if map.is_none() {
                // Until then there is nothing to end in order, and a signal ends also the wait for another process.
                *map = Some(args.opening.create(&args.pool)?);
                interrupt::catch()?;
            }
            if let Some(map) = map {
                std::mem::take(&mut pending).apply(map, all)?;
            }
        }
        if is_end {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_were_not_made_durable_are_not_said_to_stay() {
        let all = Applied { puts: 3, deletes: 1, batches: 2 };
        for (durability, is_synced, stay) in [
            (Durability::Sync, true, true),
            (Durability::Sync, false, true),
            (Durability::interval_ms(10), true, true),
            (Durability::interval_ms(10), false, false),
        ] {
            let said = what_stays(&all, durability, is_synced);
            assert_eq!(said.ends_with("were applied and stay"), stay, "{said}");
            assert_eq!(said.ends_with("the newest may be lost"), !stay, "{said}");
        }
    }
}
