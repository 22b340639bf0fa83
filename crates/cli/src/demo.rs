//! `mangrove demo`: a real data set, a real SIGKILL, and the books balanced afterwards.

use crate::machine::disk_floor::{self, Floor};
use crate::map::input::{Format, Input, NextInput, Record};
use crate::terminal::exit::{Exit, Usage};
use crate::terminal::size::{count, human};
use crate::terminal::{interrupt, output, progress};
use anyhow::{Context, bail};
use mangrove::{Create, Map};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Prints a line.
macro_rules! say {
    ($($line:tt)*) => { $crate::terminal::output::lines([format!($($line)*)])? };
}

mod bank;
mod pools;
mod sqlite;

pub(crate) use bank::{BankArgs, transfer};

/// Load a dictionary into a map on this disk, kill the loading process at a random point, show that
/// every acknowledged word is there, finish the load, walk ranges, and print a table. Then the same with
/// transactions: transfers between a million accounts, a kill, and the books balanced. Then with SQLite, whose
/// `:memory:` database is made durable.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove demo
  mangrove demo --dir /mnt/disk --threads 64")]
pub(crate) struct Args {
    /// Directory for the pools; they end up in DIR/demo.pool, DIR/demo.heap and DIR/demo.sqlite, in the place of an
    /// earlier demo's; any others are left alone
    #[arg(long, default_value = "data")]
    dir: PathBuf,
    /// File of words, one a line; the largest English list in /usr/share/dict when left out
    #[arg(long)]
    words: Option<PathBuf>,
    /// Threads that put, and that transfer
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Chooses the instant of the kill; the clock does when left out
    #[arg(long)]
    seed: Option<u64>,
    /// The program of examples/sqlite [default: the one beside this program, if it is there]
    #[arg(long, value_name = "FILE")]
    sqlite: Option<PathBuf>,
}

/// Word lists, the best first.
const WORD_LISTS: [&str; 4] = [
    "/usr/share/dict/american-english-insane",
    "/usr/share/dict/american-english-huge",
    "/usr/share/dict/american-english",
    "/usr/share/dict/words",
];
/// Where in the load the kill may fall, in percent of the words.
const KILL_PERCENT: Range<u64> = 10..90;

pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    let words_file = word_list(args.words.as_deref())?;
    let words = read_words(&words_file)?;
    interrupt::catch()?;
    say!("{} words from {}", count(words.len() as u64), words_file.display());
    let [pool, heap, database] = pools::clear(&args.dir)?;
    let Some(floor) = disk_floor::measure(&args.dir, Duration::from_secs(2))? else {
        return interrupted();
    };
    say!("this disk, 512 bytes made durable one after the other: {}", floor.best());

    let seed = args.seed.unwrap_or_else(rand::random);
    pools::begin(&pool)?;
    let goal = StdRng::seed_from_u64(seed).random_range(KILL_PERCENT) * words.len() as u64 / 100;
    let Some(killed) = load_and_kill(&args, &pool, &words_file, words.len() as u64, goal.max(1))? else {
        return interrupted();
    };
    say!(
        "killed the loading process (SIGKILL, seed {seed}) after {} acknowledged words, {} a second",
        count(killed.lines.len() as u64),
        count(killed.rate as u64)
    );

    let map = Map::options().create(Create::Never).open(&pool)?;
    let recovery = map.recovery();
    say!(
        "reopened in {:.0} ms: {} words there, {} log groups replayed",
        recovery.seconds * 1e3,
        count(map.len()?),
        count(recovery.log_groups)
    );
    let proof = prove(&map, &words, &killed.lines, usize::from(args.threads))?;
    say!("every one of the {} acknowledged words is there and correct", count(proof.acknowledged));
    say!(
        "{} more were being written when the process died, and are whole; 0 phantom, 0 torn",
        count(proof.in_flight)
    );

    let Some(finish) = finish(&map, &words, usize::from(args.threads))? else {
        map.close()?;
        return interrupted();
    };
    check_finished(&map, &words)?;
    walk(&map)?;
    map.checkpoint()?;
    let stat = map.stat();
    map.close()?;
    let start = Instant::now();
    let reopened = Map::options().read_only(true).open(&pool)?;
    let clean_open = start.elapsed();
    let there = reopened.len()?;
    if there != words.len() as u64 {
        bail!("{there} words in the map after the end, {} in the list", words.len());
    }
    let written = stat.log_bytes_written + stat.image_bytes_written;
    table(&Figures {
        floor,
        killed: &killed,
        recovery_s: recovery.seconds,
        finish,
        written,
        clean_open,
        stat: &stat,
    })?;
    if bank::run(&heap, args.threads, seed)? == Exit::Interrupted
        || sqlite::run(args.sqlite.as_deref(), &database, &words, seed)? == Exit::Interrupted
    {
        return interrupted();
    }
    Ok(Exit::Ok)
}

fn interrupted() -> anyhow::Result<Exit> {
    say!("interrupted; run `mangrove demo` again to see the end");
    Ok(Exit::Interrupted)
}

fn word_list(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    WORD_LISTS.iter().map(PathBuf::from).find(|p| p.exists()).ok_or_else(|| {
        Usage("no dictionary in /usr/share/dict; `apt install wamerican-insane`, or give --words FILE".into())
            .into()
    })
}

/// The words, in the order of the file. Word `i` stands on line `i + 1` and gets that number as its value.
fn read_words(path: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut input = Input::open(path, Format::Lines)?;
    let (mut words, mut record) = (Vec::new(), Record::default());
    loop {
        match input.next(&mut record)? {
            NextInput::Record => words.push(std::mem::take(&mut record.key)),
            NextInput::Pause => {}
            NextInput::End => break,
        }
    }
    let mut sorted: Vec<&Vec<u8>> = words.iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != words.len() || words.is_empty() {
        return Err(Usage(format!("{} is empty or holds a word twice", path.display())).into());
    }
    Ok(words)
}

struct Killed {
    /// Lines whose word was acknowledged.
    lines: Vec<u64>,
    rate: f64,
}

/// Loads in a child process and kills it once `goal` words were acknowledged; `None` when it was interrupted first.
fn load_and_kill(
    args: &Args,
    pool: &Path,
    words: &Path,
    total: u64,
    goal: u64,
) -> anyhow::Result<Option<Killed>> {
    let mut child = Command::new(std::env::current_exe().context("where is this program?")?)
        .args(["map", "load", "--format", "lines", "--report", "--threads", &args.threads.to_string()])
        .arg(pool)
        .arg(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the loading process")?;
    let mut pipe = child.stdout.take().context("no pipe to the loading process")?;
    let bar = progress::records("load", total);
    let mut bytes = Vec::new();
    let mut buffer = [0; 1 << 14];
    let mut alive = true;
    let mut first = None;
    let mut seconds = 0.0;
    loop {
        let read = pipe.read(&mut buffer).context("cannot read from the loading process")?;
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..read]);
        let acknowledged = bytes.len() as u64 / 8;
        bar.set_position(acknowledged);
        let start = *first.get_or_insert_with(Instant::now);
        if alive && (acknowledged >= goal || interrupt::asked()) {
            child.kill().context("cannot kill the loading process")?;
            seconds = start.elapsed().as_secs_f64();
            alive = false;
        }
    }
    let status = child.wait().context("cannot wait for the loading process")?;
    bar.abandon();
    if alive && interrupt::asked() {
        // Ctrl-C goes to both, and before its first word the child does not catch it.
        return Ok(None);
    }
    if alive {
        let mut complaint = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut complaint)?;
        }
        bail!("the loading process ended by itself ({status}): {}", complaint.trim());
    }
    let lines: Vec<u64> =
        bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())).collect();
    let rate = lines.len() as f64 / f64::max(seconds, 1e-9);
    Ok(Some(Killed { lines, rate }))
}

struct Proof {
    acknowledged: u64,
    in_flight: u64,
}

/// Every acknowledged word is there with its number; everything else that is there is a word with
/// its number, and was being written.
fn prove(map: &Map, words: &[Vec<u8>], lines: &[u64], threads: usize) -> anyhow::Result<Proof> {
    let mut acknowledged = vec![false; words.len()];
    for &line in lines {
        let index = usize::try_from(line).ok().and_then(|l| l.checked_sub(1)).filter(|&i| i < words.len());
        acknowledged[index.context("the loading process acknowledged a line that is not there")?] = true;
    }
    let mut value = Vec::new();
    let mut lost = Vec::new();
    let mut in_flight = 0;
    for (i, word) in words.iter().enumerate() {
        if map.get_into(word, &mut value)? {
            if value != (i + 1).to_string().as_bytes() {
                bail!("{} has the value {}", String::from_utf8_lossy(word), String::from_utf8_lossy(&value));
            }
            in_flight += u64::from(!acknowledged[i]);
        } else if acknowledged[i] {
            lost.push(String::from_utf8_lossy(word).into_owned());
        }
    }
    if !lost.is_empty() {
        bail!(
            "{} acknowledged words are lost, among them {}",
            lost.len(),
            lost[..lost.len().min(5)].join(", ")
        );
    }
    let sure = acknowledged.iter().filter(|&&a| a).count() as u64;
    let there = map.len()?;
    if there != sure + in_flight {
        bail!("{there} records in the map, but only {} words of the list", sure + in_flight);
    }
    if in_flight > threads as u64 {
        bail!("{in_flight} unacknowledged words are there, but only {threads} threads were writing");
    }
    Ok(Proof { acknowledged: sure, in_flight })
}

struct Finish {
    words: u64,
    seconds: f64,
}

/// Puts the words that are missing; `None` when interrupted.
fn finish(map: &Map, words: &[Vec<u8>], threads: usize) -> anyhow::Result<Option<Finish>> {
    let mut missing = Vec::new();
    for (i, word) in words.iter().enumerate() {
        if !map.contains(word)? {
            missing.push((i + 1, word));
        }
    }
    let bar = progress::records("finish", missing.len() as u64);
    let start = Instant::now();
    let results: Vec<mangrove::Result<()>> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..threads)
            .map(|lane| {
                let (bar, missing) = (&bar, &missing);
                scope.spawn(move || {
                    for (line, word) in missing.iter().skip(lane).step_by(threads) {
                        if interrupt::asked() {
                            break;
                        }
                        map.put(word, line.to_string())?;
                        bar.inc(1);
                    }
                    Ok(())
                })
            })
            .collect();
        lanes.into_iter().map(|l| l.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    results.into_iter().collect::<mangrove::Result<()>>()?;
    if interrupt::asked() {
        return Ok(None);
    }
    let words = missing.len() as u64;
    say!("finished: {} words in {seconds:.1} s", count(words));
    Ok(Some(Finish { words, seconds }))
}

fn check_finished(map: &Map, words: &[Vec<u8>]) -> anyhow::Result<()> {
    let there = map.len()?;
    if there != words.len() as u64 {
        bail!("{there} words in the map, {} in the list", words.len());
    }
    let report = map.check()?;
    if let Some(problem) = report.problems.first() {
        bail!("the check found: {problem}");
    }
    Ok(())
}

/// A few ranges, for the eye, and a full walk against the clock.
fn walk(map: &Map) -> anyhow::Result<()> {
    let show = |records: Vec<(Vec<u8>, Vec<u8>)>| {
        let words: Vec<_> = records.iter().map(|(k, _)| String::from_utf8_lossy(k).into_owned()).collect();
        words.join(" ")
    };
    let first: Result<Vec<_>, _> = map.prefix("mangrove")?.take(5).collect();
    say!("words that begin with mangrove: {}", show(first?));
    let last: Result<Vec<_>, _> = map.range("a".."b")?.rev().take(3).collect();
    say!("the last before b, backwards:   {}", show(last?));
    let start = Instant::now();
    let mut previous: Option<Vec<u8>> = None;
    let mut records = 0u64;
    for record in map.iter()? {
        let (key, _) = record?;
        if previous.as_ref().is_some_and(|p| *p >= key) {
            bail!("the walk is out of order at {}", String::from_utf8_lossy(&key));
        }
        previous = Some(key);
        records += 1;
    }
    let rate = records as f64 / start.elapsed().as_secs_f64();
    say!("a walk over all {} in order: {} a second", count(records), count(rate as u64));
    Ok(())
}

struct Figures<'a> {
    floor: Floor,
    killed: &'a Killed,
    recovery_s: f64,
    finish: Finish,
    /// Bytes that this process wrote to the device: the second half of the load and its checkpoint.
    written: u64,
    clean_open: Duration,
    stat: &'a mangrove::Stat,
}

fn table(figures: &Figures<'_>) -> anyhow::Result<()> {
    let Figures { floor, killed, recovery_s, finish, written, clean_open, stat } = figures;
    let rate = finish.words as f64 / finish.seconds.max(1e-9);
    let per_put = *written as f64 / finish.words.max(1) as f64;
    let floor_rate = floor.best().per_second;
    let direct = floor.direct.map_or_else(|| "not possible here".to_owned(), |rate| rate.to_string());
    say!("");
    output::table(&[
        ("floor: write and fdatasync", floor.fdatasync.to_string()),
        ("floor: direct durable write", direct),
        (
            "durable puts, before the kill",
            format!(
                "{} a second, {:.1} times the floor",
                count(killed.rate as u64),
                killed.rate / floor_rate
            ),
        ),
        (
            "durable puts, after it",
            format!("{} a second, {:.1} times the floor", count(rate as u64), rate / floor_rate),
        ),
        ("recovery after the kill", format!("{:.0} ms", recovery_s * 1e3)),
        ("opening after a close", format!("{:.0} ms", clean_open.as_secs_f64() * 1e3)),
        (
            "bytes written a put",
            format!(
                "{per_put:.0} ({:.1} puts share a device write)",
                finish.words as f64 / stat.group_commits.max(1) as f64
            ),
        ),
        (
            "in DRAM a word",
            format!("{:.0} B", (stat.index_bytes + stat.allocator_bytes) as f64 / stat.records.max(1) as f64),
        ),
        (
            "durable a word",
            format!(
                "{:.0} B, {} in all",
                stat.durable_bytes as f64 / stat.records.max(1) as f64,
                human(stat.durable_bytes)
            ),
        ),
        ("acknowledged and lost", "0".to_owned()),
    ])?;
    Ok(())
}
