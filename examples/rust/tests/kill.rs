//! The notes, killed after so many: what was printed is there, and whole.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_notes");

fn run(folder: &Path, args: &[&str]) -> (bool, String) {
    let output = Command::new(PROGRAM).arg(folder).args(args).output().expect("runs");
    assert_ne!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.success(), String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn notes_are_kept() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path().join("notes");
    assert!(run(&folder, &["put", "tide", "high", "at", "noon"]).0);
    assert!(run(&folder, &["put", "mud", "deep"]).0);
    assert_eq!(run(&folder, &["get", "tide"]), (true, "high at noon\n".into()));
    assert!(run(&folder, &["drop", "mud"]).0);
    assert_eq!(run(&folder, &["get", "mud"]), (false, String::new()));
    assert_eq!(run(&folder, &["list"]), (true, "tide 12\n".into()));
}

#[test]
fn notes_survive_kills() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path().join("notes");
    let mut last = 0;
    for round in 0..6u64 {
        let mut child = Command::new(PROGRAM)
            .arg(&folder)
            .arg("fill")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let lines = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            let lines = lines.inspect(|_| {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            // The last line may be half a one, and then reads as a smaller number.
            lines.filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0)
        });
        // The first round is killed while it makes the pool.
        let begun = Instant::now();
        while if round == 0 { !folder.exists() } else { lines.load(Ordering::Relaxed) < 30 * round } {
            assert!(begun.elapsed() < Duration::from_secs(120), "round {round}: it hangs");
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().expect("SIGKILL");
        let output = child.wait_with_output().expect("ends");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let told = reader.join().expect("reads").max(last);
        let (_, list) = run(&folder, &["list"]);
        let mut numbers = Vec::new();
        for line in list.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number: u64 = words[1].parse().expect("a number");
            assert_eq!(words[2].parse(), Ok(17 * (1 + number as usize % 40)), "{line}");
            numbers.push(number);
        }
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap: {numbers:?}");
        let found = numbers.last().copied().unwrap_or(0);
        assert!(found == told || found == told + 1, "round {round}: {found} notes, {told} told");
        last = found;
    }
    let name = format!("note {last:012}");
    let (_, text) = run(&folder, &["get", &name]);
    assert_eq!(text.trim_end(), name.repeat(1 + last as usize % 40));
}
