//! What `redis-soak` measures, and what must be bounded.

use super::resp::RespConnection;
use anyhow::{Context, Result};
use std::collections::HashMap;

/// The arena may hold so much beyond `maxmemory`: what comes between two evictions, and what the server itself keeps.
pub(super) const ARENA_SLACK_BYTES: u64 = 8 << 20;
/// An empty server holds so much more than at its first time at most: tables and the list of the functions vary.
pub(super) const EMPTY_SLACK_BYTES: u64 = 256 << 10;
/// The peak of the resident memory in the second half of the cycles, of that in the first, in percent.
pub(super) const RESIDENT_PERCENT_MAX: u64 = 115;
/// The load must log so many times what the log holds, or nothing is shown about the log.
pub(super) const LOGGED_LOGS_MIN: u64 = 4;

/// The server at one instant, or the highest values of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) arena: u64,
    pub(super) used: u64,
    pub(super) resident: u64,
    pub(super) log_used: u64,
    pub(super) log: u64,
    pub(super) logged: u64,
    pub(super) grave: u64,
    pub(super) checkpoint_age_ms: u64,
    pub(super) evicted: u64,
    pub(super) expired: u64,
}

impl Sample {
    /// Asks INFO.
    pub(super) fn take(connection: &mut RespConnection) -> Result<Self> {
        let text = connection.ask(&["INFO", "everything"])?.string()?;
        let fields: HashMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
        let number = |name: &str| -> Result<u64> {
            let value = fields.get(name).with_context(|| format!("INFO has no {name}"))?;
            value.trim().parse().with_context(|| format!("{name} is {value}"))
        };
        Ok(Self {
            arena: number("mangrove_arena_bytes")?,
            used: number("used_memory")?,
            resident: number("used_memory_rss")?,
            log_used: number("mangrove_log_used_bytes")?,
            log: number("mangrove_log_bytes")?,
            logged: number("mangrove_logged_bytes")?,
            grave: number("mangrove_grave_objects")?,
            checkpoint_age_ms: number("mangrove_checkpoint_age_ms")?,
            evicted: number("evicted_keys")?,
            expired: number("expired_keys")?,
        })
    }

    /// Takes the higher of both values in each field.
    pub(super) fn raise(&mut self, other: &Self) {
        let fields = [
            (&mut self.arena, other.arena),
            (&mut self.used, other.used),
            (&mut self.resident, other.resident),
            (&mut self.log_used, other.log_used),
            (&mut self.log, other.log),
            (&mut self.logged, other.logged),
            (&mut self.grave, other.grave),
            (&mut self.checkpoint_age_ms, other.checkpoint_age_ms),
            (&mut self.evicted, other.evicted),
            (&mut self.expired, other.expired),
        ];
        fields.into_iter().for_each(|(mine, theirs)| *mine = theirs.max(*mine));
    }
}

/// Load, and then an empty server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    pub(super) operations: u64,
    /// The highest values under load.
    pub(super) peak: Sample,
    /// After FLUSHALL ASYNC and all frees.
    pub(super) empty: Sample,
}

/// Everything that is not bounded.
pub(super) fn judge(cycles: &[Cycle], limit: u64) -> Vec<String> {
    let mut findings = Vec::new();
    let (Some(first), Some(last)) = (cycles.first(), cycles.last()) else { return findings };
    for (number, cycle) in cycles.iter().enumerate() {
        let Cycle { peak, empty, .. } = cycle;
        if peak.log_used > peak.log {
            findings.push(format!("cycle {number}: the log of {} bytes holds {}", peak.log, peak.log_used));
        }
        if peak.arena > limit + ARENA_SLACK_BYTES {
            findings.push(format!(
                "cycle {number}: the arena holds {} bytes under a limit of {limit}",
                peak.arena
            ));
        }
        if empty.arena > first.empty.arena + EMPTY_SLACK_BYTES {
            findings.push(format!(
                "cycle {number}: the empty arena holds {} bytes; after the first cycle it held {}",
                empty.arena, first.empty.arena
            ));
        }
    }
    let (early, late) = cycles.split_at(cycles.len().div_ceil(2));
    let resident = |of: &[Cycle]| of.iter().map(|cycle| cycle.peak.resident).max().unwrap_or(0);
    if resident(late) > resident(early) * RESIDENT_PERCENT_MAX / 100 {
        findings.push(format!(
            "the resident memory grows: at most {} bytes in the first half, {} in the second",
            resident(early),
            resident(late)
        ));
    }
    if last.empty.logged < LOGGED_LOGS_MIN * last.empty.log {
        findings.push(format!(
            "only {} bytes were logged, too little to fill a log of {} bytes {LOGGED_LOGS_MIN} times",
            last.empty.logged, last.empty.log
        ));
    }
    if last.empty.evicted == 0 || last.empty.expired == 0 {
        findings.push(format!(
            "{} keys were evicted and {} expired: the load lacks one of them",
            last.empty.evicted, last.empty.expired
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 64 << 20;

    fn cycle() -> Cycle {
        let peak = Sample {
            arena: LIMIT,
            resident: 100 << 20,
            log_used: 3 << 20,
            log: 4 << 20,
            ..Sample::default()
        };
        let empty = Sample {
            arena: 1 << 20,
            logged: 100 << 20,
            log: 4 << 20,
            evicted: 9,
            expired: 9,
            ..Sample::default()
        };
        Cycle { operations: 1, peak, empty }
    }

    #[test]
    fn a_steady_server_passes_and_each_growth_is_found() {
        assert_eq!(judge(&[cycle(); 8], LIMIT), Vec::<String>::new());
        type Growth = fn(&mut Cycle);
        let growths: [(Growth, &str); 6] = [
            (|cycle| cycle.peak.log_used = 5 << 20, "the log of"),
            (|cycle| cycle.peak.arena = 80 << 20, "the arena holds"),
            (|cycle| cycle.empty.arena = 2 << 20, "the empty arena"),
            (|cycle| cycle.peak.resident = 120 << 20, "the resident memory grows"),
            (|cycle| cycle.empty.logged = 1 << 20, "only"),
            (|cycle| cycle.empty.evicted = 0, "keys were evicted"),
        ];
        for (grow, what) in growths {
            let mut cycles = [cycle(); 8];
            grow(&mut cycles[7]);
            let findings = judge(&cycles, LIMIT);
            assert_eq!(findings.len(), 1, "{what}: {findings:?}");
            assert!(findings[0].contains(what), "{what}: {findings:?}");
        }
    }
}
