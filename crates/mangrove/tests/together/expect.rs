//! A batch that expects records: all of it or nothing, also beside other writers.

use mangrove::{Batch, Error, Map};
use std::sync::atomic::{AtomicU64, Ordering};

const ACCOUNTS: u64 = 5;
const TRANSFERS: u64 = 300;

fn key(account: u64) -> String {
    format!("account {account}")
}

#[test]
fn transfers_between_keys_need_no_lock() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let map = Map::options().log_bytes(1 << 20).open(dir.path().join("bank")).unwrap();
    (0..ACCOUNTS).for_each(|account| map.put(key(account), "1000").unwrap());
    let retries = AtomicU64::new(0);
    let transfer = |from: u64, to: u64| {
        loop {
            let balances = [from, to].map(|account| map.get(key(account)).unwrap().unwrap());
            let [out, into] =
                [0, 1].map(|i| std::str::from_utf8(&balances[i]).unwrap().parse::<i64>().unwrap());
            let mut batch = Batch::new();
            batch.expect(key(from), Some(&balances[0])).expect(key(to), Some(&balances[1]));
            batch.put(key(from), (out - 1).to_string()).put(key(to), (into + 1).to_string());
            match map.write(batch) {
                Ok(()) => return,
                Err(Error::Mismatch { .. }) => retries.fetch_add(1, Ordering::Relaxed),
                Err(e) => panic!("{e}"),
            };
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let transfer = &transfer;
            scope.spawn(move || {
                (0..TRANSFERS)
                    .for_each(|n| transfer((n + thread) % ACCOUNTS, (n + thread + 1 + n % 3) % ACCOUNTS));
            });
        }
        scope.spawn(|| {
            for _ in 0..200 {
                let snapshot = map.snapshot().unwrap();
                let sum: i64 = snapshot
                    .iter()
                    .unwrap()
                    .map(|record| String::from_utf8(record.unwrap().1).unwrap().parse::<i64>().unwrap())
                    .sum();
                assert_eq!(sum, 1000 * ACCOUNTS as i64);
            }
        });
    });
    assert!(map.check().unwrap().is_sound());
}

#[test]
fn one_condition_that_is_not_met_stops_the_whole_batch() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let map = Map::options().log_bytes(1 << 20).open(dir.path().join("pool")).unwrap();
    map.put("there", "1").unwrap();
    map.put("long", vec![7; 5000]).unwrap();
    let nothing: Option<&[u8]> = None;
    let try_it = |conditions: &[(&str, Option<&[u8]>)]| {
        let mut batch = Batch::new();
        conditions.iter().for_each(|(key, value)| {
            batch.expect(key, *value);
        });
        batch.put("new", vec![9; 5000]).delete("there");
        map.write(batch)
    };
    let long = vec![7; 5000];
    for bad in [
        &[("there", Some(&b"2"[..]))][..],
        &[("there", Some(b"1")), ("gone", Some(b""))],
        &[("there", nothing)],
        &[("long", Some(&long[1..]))],
        &[("there", Some(b"1")), ("there", nothing)],
    ] {
        let refused = try_it(bad).unwrap_err();
        assert!(matches!(&refused, Error::Mismatch { .. }), "{refused}");
        assert!(refused.to_string().contains("is not as the batch expects"), "{refused}");
        assert!(map.contains("there").unwrap() && !map.contains("new").unwrap());
    }
    // What was not written has left no block behind.
    assert!(map.check().unwrap().is_sound());
    // Conditions alone: a check of several keys at one instant.
    let mut only = Batch::new();
    only.expect("there", Some(b"1")).expect("gone", nothing);
    map.write(only).unwrap();
    try_it(&[("there", Some(b"1")), ("gone", nothing), ("long", Some(&long))]).unwrap();
    assert!(!map.contains("there").unwrap() && map.get("new").unwrap().unwrap().len() == 5000);
    assert!(map.check().unwrap().is_sound());
}
