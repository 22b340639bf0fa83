//! `mangrove-stress check`: prints what survived.

use crate::value::{WriterOperation, decode};
use crate::write::GROUP_KEYS;
use mangrove::Map;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Read everything and print what is there. Exit code 1 when the map is not sound.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Open for writing and close in order, so that the next round starts from a clean pool
    #[arg(long)]
    pub(crate) close: bool,
}

/// Prints the records of the map; whether it is sound.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let map = if args.close {
        Map::options().open(&args.pool)?
    } else {
        Map::options().read_only(true).open(&args.pool)?
    };
    let mut out = BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    let mut groups: BTreeMap<String, Vec<Result<WriterOperation, String>>> = BTreeMap::new();
    let mut count = 0;
    for record in map.iter()? {
        let (key, value) = record?;
        let found = decode(&value, &key);
        let key = String::from_utf8_lossy(&key).into_owned();
        // A walk and a get must agree.
        let got = map.get(&key)?;
        let found = if got.as_deref() == Some(&value[..]) {
            found
        } else {
            Err(format!("a walk shows {} bytes, a get {:?}", value.len(), got.map(|v| v.len())))
        };
        if let Some((group, _)) = key.split_once('.') {
            groups.entry(group.to_owned()).or_default().push(found);
            continue;
        }
        count += 1;
        say(&mut out, &key, &found)?;
    }
    for (group, members) in groups {
        count += 1;
        let whole = members.len() == GROUP_KEYS && members.iter().all(|m| *m == members[0]);
        let torn = || Err(format!("the batch is there in part: {members:?}"));
        say(&mut out, &group, &if whole { members[0].clone() } else { torn() })?;
    }
    writeln!(out, ". {count}")?;
    out.flush()?;
    let report = map.check()?;
    for problem in &report.problems {
        eprintln!("mangrove: {problem}");
    }
    if args.close {
        map.close()?;
    }
    Ok(report.is_sound())
}

fn say(out: &mut impl Write, key: &str, found: &Result<WriterOperation, String>) -> std::io::Result<()> {
    match found {
        Ok(operation) => writeln!(out, "= {key} {operation}"),
        Err(why) => writeln!(out, "! {key} {why}"),
    }
}
