//! `mangrove-redis`: starts the durable Valkey that `crates/redis/scripts` built, on the state of its directory and
//! with the build that made that state. The server itself is C: `crates/redis/glue` and Valkey's own objects.
//!
//! Exit codes: those of `mangrove`, and once the server runs its own.

#![forbid(unsafe_code)]

mod address;
mod beneath;
mod builds;
mod daemon;
mod detached;
mod lock;
mod metrics;
mod pattern;
mod request;
mod said;
mod start;
mod stat;
mod state;
mod update;

use std::process::ExitCode;

const HELP: &str = "\
Valkey whose every acknowledged write survives SIGKILL and power cuts

Usage: mangrove redis [VALKEY.CONF] [OPTIONS] [--DIRECTIVE VALUE..]
       mangrove redis stat [--builds DIR] DIR      what the server on DIR says of itself
       mangrove redis update [VALKEY.CONF] --dir DIR
                                                   brings the state in DIR to the newest build

Options:
  --port N              the port [default: 6379]
  --dir D               the directory of the state and of dump files [default: .]
  --durability HOW      sync: a reply waits until its write is durable [default];
                        interval=MS: a crash loses the last MS milliseconds at most
  --medium WHAT         of a new state: auto [default], file, dax, or emulated=WRITE-NS/READ-NS for tests
  --log-bytes N         what the redo log may grow to, 16kb to 1gb [default: 1gb]
  --slow-batch-ms N     log each batch that takes longer until it is durable; 0: none [default: 100]
  --metrics-port N      answer scrapes of Prometheus at http://127.0.0.1:N/metrics
  --metrics-bind ADDR   at another address of this machine
  --builds DIR          where the builds are [default: found beside this program]

Every other --DIRECTIVE is one of valkey.conf. `save` is \"\" unless it is set: the state needs no dump file.";

fn main() -> ExitCode {
    let arguments: Vec<String> = match std::env::args_os().skip(1).map(|a| a.into_string()).collect() {
        Ok(arguments) => arguments,
        Err(wrong) => return fail(&anyhow::anyhow!("{} is no text", wrong.display()), 2),
    };
    if asks_for_help(&arguments) {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let done = match arguments.first().map(String::as_str) {
        Some("stat") => stat::run(&arguments[1..]),
        Some(metrics::COMMAND) => metrics::run(&arguments[1..]),
        Some(beneath::COMMAND) => beneath::run(&arguments[1..]),
        Some("update") => update::run(&arguments[1..]),
        _ => start::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<request::Usage>() => fail(&error, 2),
        Err(error) => fail(&error, 3),
    }
}

/// First, or first behind a command's name. Elsewhere the word may be the value of a directive.
fn asks_for_help(arguments: &[String]) -> bool {
    let of_command = match arguments {
        [command, rest @ ..] if matches!(command.as_str(), "stat" | "update") => rest,
        _ => arguments,
    };
    matches!(of_command.first().map(String::as_str), Some("--help" | "-h" | "help"))
}

fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("mangrove-redis: {error:#}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::asks_for_help;

    #[test]
    fn help_is_asked_for_first_or_behind_a_commands_name() {
        let asks = |line: &str| asks_for_help(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(asks("--help") && asks("-h") && asks("stat --help") && asks("update -h x"));
        assert!(!asks("stat ./help") && !asks("--requirepass help") && !asks("v.conf --help"));
    }
}
