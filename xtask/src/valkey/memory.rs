//! `cargo xtask redis-memory`: the durable server at its maxmemory.

use super::counters::wait_until;
use super::resp::{Reply, RespConnection, words};
use super::server::{self, Programs, ServerKind, Setup, ValkeyServer};
use crate::tree;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// In the place of the durable server
    #[arg(long, value_enum, default_value_t = ServerKind::Durable)]
    kind: ServerKind,
    #[command(flatten)]
    programs: Programs,
}

/// A case: its name, and what finds an error. It may end with an instant at which a SIGKILL must change nothing.
type Case = (&'static str, fn(&mut RespConnection) -> Result<Then>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Done,
    Kill,
}

const CASES: [Case; 5] = [
    ("a write after FLUSHALL ASYNC", after_flush),
    ("a write after UNLINK", after_unlink),
    ("the time of exceeded memory", exceeded_time),
    ("eviction of large values", large_values),
    ("eviction that CONFIG SET begins", config_set),
];

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let folder = tree::RunFolder::of(None, "redis-memory")?;
    let dir = folder.path.canonicalize()?.join("server");
    let mut setup = Setup::new(args.kind, &args.programs, dir, server::socket("memory"))?;
    setup.medium = server::medium("emulated")?;
    let mut wrong = Vec::new();
    for (name, case) in CASES {
        setup.forget()?;
        let (server, mut connection) = setup.start()?;
        let result = case(&mut connection).and_then(|then| match then {
            Then::Done => Ok(()),
            Then::Kill => kill(&setup, server, &mut connection),
        });
        match result {
            Ok(()) => println!("redis-memory: {name}: right"),
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
    }
    setup.forget()?;
    ensure!(wrong.is_empty(), "{}; repeat with: cargo xtask redis-memory", wrong.join("; "));
    Ok(())
}

/// SIGKILL, and the same keys after it.
fn kill(setup: &Setup, mut server: ValkeyServer, connection: &mut RespConnection) -> Result<()> {
    let sum = |connection: &mut RespConnection| connection.ask(&["DEBUG", "DIGEST"])?.string();
    let before = sum(connection)?;
    server.kill()?;
    let (_server, mut connection) = setup.start()?;
    let after = sum(&mut connection)?;
    ensure!(before == after, "DEBUG DIGEST is {before} before a kill and {after} after it");
    Ok(())
}

/// Sets maxmemory to what is used and `more`, which may be less.
fn limit(connection: &mut RespConnection, policy: &str, more: i64) -> Result<()> {
    let used: i64 = connection.info("memory", "used_memory")?.parse().context("used_memory")?;
    connection.ask(&["CONFIG", "SET", "maxmemory-policy", policy])?;
    connection.ask(&["CONFIG", "SET", "maxmemory", &(used + more).to_string()])?;
    Ok(())
}

/// Two commands in one pipeline; an error among the replies is one of this call.
fn both(connection: &mut RespConnection, first: &[&str], second: &[&str]) -> Result<Then> {
    connection.ask_all(&[words(first), words(second)])?;
    Ok(Then::Done)
}

/// Nothing can be evicted, and what was just deleted is more than what is missing.
fn after_flush(connection: &mut RespConnection) -> Result<Then> {
    connection.ask(&["DEBUG", "POPULATE", "200000", "key", "100"])?;
    limit(connection, "volatile-lru", -(10 << 20))?;
    both(connection, &["FLUSHALL", "ASYNC"], &["SET", "a", "1"])
}

fn after_unlink(connection: &mut RespConnection) -> Result<Then> {
    let mut fill = words(&["HSET", "h"]);
    for number in 0..100_000 {
        fill.extend([number.to_string().into_bytes(), vec![b'v'; 50]]);
    }
    connection.ask_words(&fill)?;
    limit(connection, "volatile-lru", -(4 << 20))?;
    both(connection, &["UNLINK", "h"], &["SET", "a", "1"])
}

/// The statistics end with the state that they measure.
fn exceeded_time(connection: &mut RespConnection) -> Result<Then> {
    let exceeded = |connection: &mut RespConnection| -> Result<bool> {
        connection.ask(&["SET", "b", "1"]).ok();
        // In milliseconds: asked for until there is one.
        for _ in 0..1000 {
            if connection.info("stats", "current_eviction_exceeded_time")? != "0" {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(false)
    };
    connection.ask(&["SET", "a", &"a".repeat(1 << 20)])?;
    limit(connection, "noeviction", -(1 << 18))?;
    ensure!(exceeded(connection)?, "memory is exceeded, and current_eviction_exceeded_time is 0");
    limit(connection, "noeviction", 1 << 20)?;
    connection.ask(&["SET", "c", "1"])?;
    let left = connection.info("stats", "current_eviction_exceeded_time")?;
    ensure!(left == "0", "memory suffices, and current_eviction_exceeded_time is {left}");
    // What the grave gave back ends it, too.
    connection.ask(&["DEBUG", "POPULATE", "100000", "key", "100"])?;
    limit(connection, "volatile-lru", -(1 << 20))?;
    ensure!(exceeded(connection)?, "memory is exceeded again, and current_eviction_exceeded_time is 0");
    both(connection, &["FLUSHALL", "ASYNC"], &["SET", "a", "1"])?;
    let left = connection.info("stats", "current_eviction_exceeded_time")?;
    ensure!(left == "0", "memory suffices again, and current_eviction_exceeded_time is {left}");
    Ok(Then::Done)
}

/// Hashes of [`large_values`], their fields, and the bytes of a field's value.
const HASH_COUNT: usize = 1_000;
const FIELD_COUNT: usize = 400;
const FIELD_BYTES: usize = 100;

/// Values that are freed lazily are no reason to evict further keys.
fn large_values(connection: &mut RespConnection) -> Result<Then> {
    for hash in 0..HASH_COUNT {
        let mut fill = words(&["HSET", &format!("h:{hash}")]);
        for field in 0..FIELD_COUNT {
            fill.extend([field.to_string().into_bytes(), vec![b'v'; FIELD_BYTES]]);
        }
        connection.ask_words(&fill)?;
    }
    // One cycle may take as long as it needs.
    connection.ask(&["CONFIG", "SET", "maxmemory-eviction-tenacity", "100"])?;
    connection.ask(&["CONFIG", "SET", "lazyfree-lazy-eviction", "yes"])?;
    limit(connection, "allkeys-random", -(1 << 20))?;
    let set = connection.ask(&["SET", "a", "1"])?;
    ensure!(set == Reply::Text(b"OK".to_vec()), "SET answers {set:?}");
    let evicted: usize =
        connection.info("stats", "evicted_keys")?.parse().context("evicted_keys is a number")?;
    // The server looks at the memory in use after each 16th key.
    let due = (1 << 20) / (FIELD_COUNT * FIELD_BYTES) + 16;
    ensure!(
        evicted > 0 && evicted <= due,
        "for 1 MiB the server evicted {evicted} hashes of {} KiB; {due} suffice",
        FIELD_COUNT * FIELD_BYTES / 1024
    );
    Ok(Then::Kill)
}

/// No command evicts here, but the timer that the new limit starts.
fn config_set(connection: &mut RespConnection) -> Result<Then> {
    connection.ask(&["DEBUG", "POPULATE", "100000", "key", "100"])?;
    limit(connection, "allkeys-random", -(4 << 20))?;
    let mut last = String::new();
    // Each question is one turn of the loop at least, and each turn runs the timer until memory suffices.
    wait_until("the server evicts, and no more", Duration::from_secs(300), || {
        let before = std::mem::replace(&mut last, connection.info("stats", "evicted_keys")?);
        Ok(last != "0" && last == before)
    })?;
    Ok(Then::Kill)
}
