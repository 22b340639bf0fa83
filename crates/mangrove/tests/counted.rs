//! What `len` has told survives SIGKILL.

use mangrove::Map;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const ROLE: &str = "MANGROVE_TEST_FOLDER";

/// Puts records without waiting for them, and prints how many are there, until it is killed.
fn count_for_ever(pool: &std::path::Path) -> ! {
    let map = Map::open(pool).unwrap();
    for n in map.len().unwrap().. {
        map.put_nowait(n.to_be_bytes(), [7; 20]).unwrap();
        if n % 100 == 99 {
            println!("\nthere: {}", map.len().unwrap());
        }
    }
    unreachable!("it was not killed");
}

#[test]
fn what_len_told_of_survives_sigkill() {
    if let Some(pool) = std::env::var_os(ROLE) {
        count_for_ever(pool.as_ref());
    }
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("p");
    for round in 1..=8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "what_len_told_of_survives_sigkill", "--nocapture"])
            .env(ROLE, &pool)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut told = lines.filter_map(|line| line.strip_prefix("there: ")?.parse::<u64>().ok());
        let told = told.nth(round).expect("it counts");
        child.kill().unwrap();
        child.wait().unwrap();
        let map = Map::options().read_only(true).open(&pool).unwrap();
        assert!(map.len().unwrap() >= told, "round {round}: {told} told, {} there", map.len().unwrap());
    }
}
