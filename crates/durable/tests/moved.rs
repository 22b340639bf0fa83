//! A state stays with its directory when the process changes its working directory, and when the directory is renamed.
//! A test program of its own, because the working directory belongs to the whole process.

use mangrove_durable::{Allocator, Durable, Medium, Options};
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

/// Longer than half the log, so that a command that writes all of it needs a spill file.
const BYTES: usize = 512 << 10;

fn open(path: &Path) -> Durable<Vec<u8>> {
    let options = Options::new().medium(Medium::File).log_bytes(64 << 10);
    Durable::open_with(path, &options, || vec![0; BYTES]).expect("opens")
}

#[test]
fn a_state_stays_with_its_directory() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let root = scratch.path().canonicalize().expect("a path");
    std::fs::create_dir(root.join("elsewhere")).expect("a directory");
    std::env::set_current_dir(&root).expect("a directory");
    let mut place = PathBuf::from("state");
    for (round, is_closed) in [(1u8, false), (2, true)] {
        let state = open(&place);
        std::env::set_current_dir(root.join("elsewhere")).expect("a directory");
        state.write(|bytes| bytes.fill(round)).expect("written");
        let moved = root.join(format!("moved-{round}"));
        std::fs::rename(root.join(&place), &moved).expect("renamed");
        for value in 10..20 {
            state.write(|bytes| bytes.fill(value + round)).expect("written");
        }
        if is_closed {
            state.close().expect("closes");
        } else {
            drop(state);
        }
        place = moved;
        let state = open(&place);
        let last = state.read(|bytes| bytes.iter().all(|&byte| byte == 19 + round)).expect("read");
        assert!(last, "round {round}");
        state.close().expect("closes");
    }
    assert_eq!(std::fs::read_dir(root.join("elsewhere")).expect("a directory").count(), 0);
    std::env::set_current_dir("/").expect("a directory");
}
