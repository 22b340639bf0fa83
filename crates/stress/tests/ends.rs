//! A writer of which one thread has found a contradiction ends at once, whatever its other threads do.

use mangrove::Create;
use mangrove::heap::{Heap, Ptr};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SIGABRT: i32 = 6;
/// A writer that has not ended then works on.
const HANG: Duration = Duration::from_secs(300);

/// Transfers between 50 accounts for so many seconds.
fn writer(pool: &Path, seconds: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mangrove-stress"));
    command.args(["txn", "write"]).arg(pool).args(["--medium", "emulated=0/0", "--keys", "50"]);
    command.args(["--threads", "1", "--seconds", seconds, "--close"]).stdout(Stdio::null());
    command
}

#[test]
fn a_thread_that_sees_money_that_is_not_there_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("heap");
    assert!(writer(&pool, "0").status().unwrap().success());
    let heap = Heap::options().create(Create::Never).open(&pool).unwrap();
    heap.transaction(|tx| {
        // The first word of the bank leads to its accounts, the first word of an account is its balance.
        let bank = tx.root::<[u64; 3]>("bank")?.expect("the bank");
        let [accounts, ..] = tx.read(bank)?;
        let balance = Ptr::<u64>::at(accounts as usize);
        let has = tx.read(balance)?;
        tx.write(balance, has + 1)
    })
    .unwrap();
    heap.close().unwrap();
    let mut child = writer(&pool, "3600").stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > HANG {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the other threads work on");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.signal(), Some(SIGABRT), "{said}");
    assert!(said.contains("a transaction saw 50001 in all accounts, not 50000"), "{said}");
}
