//! INFO as Prometheus text: every field that is a number. Fields of ours keep their names; the server's begin with
//! `valkey_`; those of a database have its number as a label.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What our fields mean.
const OURS: [(&str, &str); 20] = [
    ("mangrove_interval_ms", "Milliseconds between two syncs; 0 where each reply waits for its write"),
    ("mangrove_durable", "Newest durable batch"),
    ("mangrove_committed", "Newest committed batch"),
    ("mangrove_batches", "Batches committed since the start"),
    ("mangrove_commands", "Tracked calls in them"),
    ("mangrove_commands_per_batch", "Tracked calls a batch"),
    ("mangrove_parked_clients", "Clients whose replies wait for durability"),
    ("mangrove_waits_in_loop", "Times that the event loop itself waited for the medium"),
    ("mangrove_held_writes", "Writes to clients that were held until their batch was durable"),
    ("mangrove_reads_on_io_threads", "Reads that I/O threads executed"),
    ("mangrove_reads_on_io_threads_dropped", "Reads that I/O threads executed and the main thread again"),
    ("mangrove_slow_batches", "Batches that took longer than --slow-batch-ms"),
    ("mangrove_grave_objects", "Values that wait to be freed"),
    ("mangrove_logged_bytes", "Bytes that went to the redo log"),
    ("mangrove_logged_bytes_per_command", "Bytes logged a tracked call"),
    ("mangrove_log_used_bytes", "Bytes of the redo log in use"),
    ("mangrove_log_bytes", "Bytes of the redo log"),
    ("mangrove_checkpoint_age_ms", "Milliseconds since the last checkpoint"),
    ("mangrove_arena_bytes", "Bytes of the state in use"),
    ("mangrove_waiting_frees", "Blocks that wait for the next batch to be free"),
];
/// Fields that only grow while the server runs, and the beginnings of the names of others.
const COUNTERS: [&str; 27] = [
    "mangrove_batches",
    "mangrove_commands",
    "mangrove_committed",
    "mangrove_durable",
    "mangrove_held_writes",
    "mangrove_hook_",
    "mangrove_logged_bytes",
    "mangrove_logged_ranges",
    "mangrove_passed_reads",
    "mangrove_reads_on_io_threads",
    "mangrove_reads_on_io_threads_dropped",
    "mangrove_slow_batches",
    "mangrove_waits_in_loop",
    "valkey_acl_access_denied_",
    "valkey_client_query_buffer_limit_disconnections",
    "valkey_client_output_buffer_limit_disconnections",
    "valkey_evicted_",
    "valkey_expired_keys",
    "valkey_keyspace_hits",
    "valkey_keyspace_misses",
    "valkey_lazyfreed_objects",
    "valkey_rejected_connections",
    "valkey_sync_",
    "valkey_total_",
    "valkey_unexpected_error_replies",
    "valkey_uptime_in_seconds",
    "valkey_used_cpu_",
];
/// Others that begin as counters do.
const GAUGES: [&str; 4] = [
    "valkey_total_blocking_keys",
    "valkey_total_blocking_keys_on_nokey",
    "valkey_total_system_memory",
    "valkey_total_watched_keys",
];
/// Names, though they may consist of digits.
const NAMES: [&str; 5] = ["redis_git_sha1", "redis_build_id", "run_id", "master_replid", "master_replid2"];

/// The whole answer to a scrape.
pub(super) fn of_info(info: &str) -> String {
    let mut out = String::new();
    let mut seen = BTreeSet::new();
    // All values of a metric stand together.
    let mut databases = BTreeMap::<String, String>::new();
    let mut section = "";
    for line in info.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            section = name;
            continue;
        }
        let Some((field, value)) = line.split_once(':') else { continue };
        match field.strip_prefix("db").filter(|number| is_number(number)) {
            Some(number) => of_database(number, value, &mut databases),
            None if NAMES.contains(&field) => {}
            None if is_number(value) => {
                let ours = field.starts_with("mangrove_");
                let name = if ours { field.to_owned() } else { format!("valkey_{field}") };
                let meaning =
                    OURS.iter().find(|(of, _)| *of == field).map(|(_, meaning)| (*meaning).to_owned());
                let help = meaning.unwrap_or_else(|| format!("{field} of INFO, section {section}"));
                if head(&name, &help, &mut seen, &mut out) {
                    let _ = writeln!(out, "{name} {value}");
                }
            }
            None => {}
        }
    }
    for (field, values) in databases {
        let help = format!("{field} of each database, section Keyspace of INFO");
        if head(&format!("valkey_db_{field}"), &help, &mut seen, &mut out) {
            out += &values;
        }
    }
    out
}

/// `db0:keys=1,expires=0,avg_ttl=0`.
fn of_database(number: &str, values: &str, to: &mut BTreeMap<String, String>) {
    for (field, value) in values.split(',').filter_map(|part| part.split_once('=')) {
        if is_number(value) {
            let lines = to.entry(field.to_owned()).or_default();
            let _ = writeln!(lines, "valkey_db_{field}{{db=\"{number}\"}} {value}");
        }
    }
}

/// The lines before a metric's first value; false when it was there already.
fn head(name: &str, help: &str, seen: &mut BTreeSet<String>, out: &mut String) -> bool {
    if !seen.insert(name.to_owned()) {
        return false;
    }
    let is_counter = COUNTERS.iter().any(|counter| match counter.strip_suffix('_') {
        Some(_) => name.starts_with(counter),
        None => name == *counter,
    });
    let kind = if is_counter && !GAUGES.contains(&name) { "counter" } else { "gauge" };
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    true
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    all_digits(whole) && all_digits(part)
}

#[cfg(test)]
mod tests {
    use super::of_info;

    #[test]
    fn what_may_fall_is_a_gauge() {
        let info = "total_system_memory:9\r\ntotal_watched_keys:1\r\ntotal_blocking_keys:1\r\n\
                    total_blocking_keys_on_nokey:1\r\ntotal_forks:1\r\nmangrove_passed_reads:1\r\n";
        let out = of_info(info);
        let kinds: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let wanted = [
            "valkey_total_system_memory gauge",
            "valkey_total_watched_keys gauge",
            "valkey_total_blocking_keys gauge",
            "valkey_total_blocking_keys_on_nokey gauge",
            "valkey_total_forks counter",
            "mangrove_passed_reads counter",
        ];
        assert_eq!(kinds, wanted);
    }

    #[test]
    fn numbers_become_metrics_and_the_rest_does_not() {
        let info = "# Server\r\nredis_version:7.2.4\r\nredis_git_sha1:00000000\r\nuptime_in_seconds:12\r\n\r\n\
                    # Clients\r\nconnected_clients:3\r\nused_memory_human:1.2M\r\nmem_fragmentation_ratio:0.95\r\n\
                    # Mangrove\r\nmangrove_medium:file\r\nmangrove_batches:7\r\nmangrove_commands_per_batch:2.00\r\n\
                    mangrove_hook_free:9\r\n# Keyspace\r\ndb0:keys=4,expires=1,avg_ttl=0\r\ndb3:keys=2,expires=0\r\n\
                    # Again\r\nconnected_clients:5\r\n";
        let wanted = "\
# HELP valkey_uptime_in_seconds uptime_in_seconds of INFO, section Server
# TYPE valkey_uptime_in_seconds counter
valkey_uptime_in_seconds 12
# HELP valkey_connected_clients connected_clients of INFO, section Clients
# TYPE valkey_connected_clients gauge
valkey_connected_clients 3
# HELP valkey_mem_fragmentation_ratio mem_fragmentation_ratio of INFO, section Clients
# TYPE valkey_mem_fragmentation_ratio gauge
valkey_mem_fragmentation_ratio 0.95
# HELP mangrove_batches Batches committed since the start
# TYPE mangrove_batches counter
mangrove_batches 7
# HELP mangrove_commands_per_batch Tracked calls a batch
# TYPE mangrove_commands_per_batch gauge
mangrove_commands_per_batch 2.00
# HELP mangrove_hook_free mangrove_hook_free of INFO, section Mangrove
# TYPE mangrove_hook_free counter
mangrove_hook_free 9
# HELP valkey_db_avg_ttl avg_ttl of each database, section Keyspace of INFO
# TYPE valkey_db_avg_ttl gauge
valkey_db_avg_ttl{db=\"0\"} 0
# HELP valkey_db_expires expires of each database, section Keyspace of INFO
# TYPE valkey_db_expires gauge
valkey_db_expires{db=\"0\"} 1
valkey_db_expires{db=\"3\"} 0
# HELP valkey_db_keys keys of each database, section Keyspace of INFO
# TYPE valkey_db_keys gauge
valkey_db_keys{db=\"0\"} 4
valkey_db_keys{db=\"3\"} 2
";
        assert_eq!(of_info(info), wanted);
    }
}
