//! A map and a heap are read while another process writes to them: each look is one durable instant, in both
//! durabilities, when the writer is killed, when a reader stands still, and while checkpoints run one after another.

use mangrove::{Durability, Heap, Map};
use mangrove_pool::Pool;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = "MANGROVE_TEST_FOLDER";
const DURABILITY: &str = "MANGROVE_TEST_DURABILITY";
/// Step i of a writer gives key i % KEYS the value i.
const KEYS: u64 = 400;
const LOG_BYTES: u64 = 128 << 10;
const ACCOUNTS: usize = 40_000;
/// What takes longer never comes.
const HANG: Duration = Duration::from_secs(120);

fn given() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Starts this program again, for the test `name` alone.
fn start(name: &str, folder: &Path, durability: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .envs([(FOLDER, folder.as_os_str()), (DURABILITY, durability.as_ref())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a line of the child.
fn wait_for(child: &mut Child, line: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|said| said.unwrap() == line), "the child did not say {line:?}");
}

/// Ends the child and the test when it has taken too long since `begun`.
fn must_not_hang(child: &mut Child, begun: Instant, what: &str) {
    if begun.elapsed() > HANG {
        child.kill().unwrap();
        panic!("{what}: not within {HANG:?}");
    }
}

fn acknowledged(folder: &Path) -> u64 {
    let mut bytes = [0; 8];
    File::open(folder.join("acknowledged")).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    u64::from_le_bytes(bytes)
}

/// The last step that the map has. All steps up to it are in it, and none after it.
fn step_of(map: &Map) -> u64 {
    let values: Vec<(u64, u64)> = map
        .iter()
        .unwrap()
        .map(|record| {
            let (key, value) = record.unwrap();
            let word = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
            (word(&key), word(&value))
        })
        .collect();
    let last = values.iter().map(|&(_, value)| value).max().unwrap_or(0);
    assert_eq!(values.len() as u64, last.min(KEYS), "records after step {last}");
    for (key, value) in values {
        let back = (last % KEYS + KEYS - key) % KEYS;
        assert_eq!(value, last - back, "key {key} after step {last}");
    }
    last
}

fn look(folder: &Path) -> u64 {
    step_of(&Map::options().read_only(true).open(folder.join("pool")).unwrap())
}

/// Steps without end; says "writes" when the first lap is done.
fn write_without_end(folder: &Path) {
    let durability: Durability = std::env::var(DURABILITY).unwrap().parse().unwrap();
    let options = Map::options().durability(durability).log_bytes(LOG_BYTES);
    let map = options.open(folder.join("pool")).unwrap();
    let acknowledged = File::options().write(true).open(folder.join("acknowledged")).unwrap();
    let first = step_of(&map) + 1;
    for step in first.. {
        let mut value = vec![step as u8; 200];
        value[..8].copy_from_slice(&step.to_be_bytes());
        map.put((step % KEYS).to_be_bytes(), value).unwrap();
        if durability == Durability::Sync {
            acknowledged.write_all_at(&step.to_le_bytes(), 0).unwrap();
        }
        if step == first + KEYS {
            println!("\nwrites");
        }
    }
}

#[test]
fn each_look_is_a_durable_instant_of_a_writer_that_is_killed() {
    let name = "each_look_is_a_durable_instant_of_a_writer_that_is_killed";
    if let Some(folder) = given() {
        return write_without_end(&folder);
    }
    for durability in ["sync", "interval=3"] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::write(dir.path().join("acknowledged"), [0; 8]).unwrap();
        let mut last = 0;
        for _ in 0..3 {
            let mut child = start(name, dir.path(), durability);
            wait_for(&mut child, "writes");
            let from = Pool::inspect(dir.path().join("pool")).unwrap().tail;
            let (mut looks, begun) = (0, Instant::now());
            // Through several laps of the log, which end only when the checkpoints go on.
            while looks < 10 || Pool::inspect(dir.path().join("pool")).unwrap().tail < from + 4 * LOG_BYTES {
                must_not_hang(&mut child, begun, "ten looks and four laps of the log");
                let least = acknowledged(dir.path()).max(last);
                last = look(dir.path());
                assert!(last >= least, "{durability}: step {least} was seen or acknowledged, now {last}");
                looks += 1;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let least = acknowledged(dir.path()).max(last);
            last = look(dir.path());
            assert!(last >= least, "{durability}: after SIGKILL {last}, before {least}");
        }
        assert_eq!(step_of(&Map::open(dir.path().join("pool")).unwrap()), last, "{durability}");
    }
}

/// Readers are stopped by SIGSTOP wherever they are; the writer goes on and closes, and a reader that may run again
/// either has an instant or looks again.
#[test]
fn readers_that_are_stopped_hold_nobody_up_for_long() {
    let name = "readers_that_are_stopped_hold_nobody_up_for_long";
    if let Some(folder) = given() {
        let (ended, mut last) = (std::sync::atomic::AtomicBool::new(false), 0);
        return std::thread::scope(|scope| {
            scope.spawn(|| {
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
                ended.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            println!("\nlooks");
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                let now = look(&folder);
                assert!(now >= last);
                last = now;
            }
        });
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let map = Map::options().log_bytes(LOG_BYTES).open(dir.path().join("pool")).unwrap();
    let mut step = 0;
    let mut write = |steps: u64| {
        for _ in 0..steps {
            step += 1;
            let mut value = vec![step as u8; 200];
            value[..8].copy_from_slice(&u64::to_be_bytes(step));
            map.put((step % KEYS).to_be_bytes(), value).unwrap();
        }
    };
    write(1);
    let mut children: Vec<Child> = (0..3).map(|_| start(name, dir.path(), "sync")).collect();
    for child in &mut children {
        wait_for(child, "looks");
    }
    let signal = |child: &Child, name: &str| {
        let kill = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
    };
    for _ in 0..4 {
        children.iter().for_each(|child| signal(child, "-STOP"));
        write(600);
        children.iter().for_each(|child| signal(child, "-CONT"));
        write(50);
    }
    children.iter().for_each(|child| signal(child, "-STOP"));
    map.close().unwrap();
    children.iter().for_each(|child| signal(child, "-CONT"));
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "a reader");
    }
    assert_eq!(look(dir.path()), step);
}

/// The sum over all accounts of a heap stays; each transaction writes all of them, more than half the log holds.
#[test]
fn a_heap_is_read_beside_its_writer() {
    let name = "a_heap_is_read_beside_its_writer";
    if let Some(folder) = given() {
        let mut last = 0;
        for _ in 0..8 {
            let heap = Heap::options().read_only(true).open(folder.join("heap")).unwrap();
            let accounts: Vec<u64> = heap
                .read(|tx| {
                    let base = tx.root::<[u64; ACCOUNTS]>("accounts")?.expect("made first").address();
                    let mut bytes = vec![0; 8 * ACCOUNTS];
                    tx.read_bytes(base, &mut bytes)?;
                    Ok(bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect())
                })
                .unwrap();
            assert!(accounts.iter().all(|&value| value == accounts[0]), "no instant");
            assert!(accounts[0] >= last);
            last = accounts[0];
        }
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let heap = Heap::options().log_bytes(LOG_BYTES).open(dir.path().join("heap")).unwrap();
    let accounts = heap
        .transaction(|tx| {
            let address = tx.alloc_bytes(8 * ACCOUNTS, 8)?;
            tx.set_root("accounts", mangrove::heap::Ptr::<[u64; ACCOUNTS]>::at(address))?;
            tx.write_bytes(address, &[0; 8 * ACCOUNTS])?;
            Ok(address)
        })
        .unwrap();
    let mut child = start(name, dir.path(), "sync");
    let begun = Instant::now();
    for value in 1u64.. {
        must_not_hang(&mut child, begun, "the end of eight readings");
        let bytes: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), ACCOUNTS).flatten().collect();
        heap.transaction(|tx| tx.write_bytes(accounts, &bytes)).unwrap();
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            assert!(status.success(), "{said}");
            break;
        }
    }
    heap.close().unwrap();
}
