//! A map and its backup stay where they were when the process changes its working directory. A test program of its
//! own, because the working directory belongs to the whole process.

use mangrove::Map;
use std::ops::ControlFlow;
use std::path::Path;

const RECORDS: u32 = 2000;

fn put_all(map: &Map, value: &[u8]) {
    for n in 0..RECORDS {
        map.put_nowait(n.to_be_bytes(), value).unwrap();
    }
    map.sync().unwrap();
}

/// What the map at `path` holds is what `put_all` put there.
fn holds(path: &Path, value: &[u8]) {
    let map = Map::open(path).unwrap();
    let records: Vec<_> = map.iter().unwrap().map(Result::unwrap).collect();
    assert_eq!(records.len(), RECORDS as usize, "{}", path.display());
    assert!(records.iter().all(|(_, found)| found[..] == *value), "{}", path.display());
    assert_eq!(map.check().unwrap().problems.len(), 0);
    map.close().unwrap();
}

#[test]
fn a_map_and_its_backup_stay_with_their_directories() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("elsewhere")).unwrap();
    std::env::set_current_dir(&root).unwrap();
    let map = Map::options().log_bytes(64 << 10).open("st").unwrap();
    put_all(&map, &[1; 40]);
    let go_elsewhere = |_| {
        std::env::set_current_dir(root.join("elsewhere")).unwrap();
        ControlFlow::Continue(())
    };
    map.backup("copy", go_elsewhere).unwrap();
    // The log wraps several times, so checkpoints run.
    put_all(&map, &[2; 40]);
    std::fs::rename(root.join("st"), root.join("st2")).unwrap();
    put_all(&map, &[3; 40]);
    map.checkpoint().unwrap();
    map.close().unwrap();
    assert_eq!(std::fs::read_dir(root.join("elsewhere")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 3, "elsewhere, copy and st2");
    holds(&root.join("copy"), &[1; 40]);
    holds(&root.join("st2"), &[3; 40]);
}
