//! Every peer does what the bench relies on: records that were put can be read, in order, and after reopening too.

use mangrove_bench::SyncMode;

#[test]
fn puts_batches_deletes_scans_and_reopens() -> anyhow::Result<()> {
    for kind in mangrove_peers::all() {
        let dir = tempfile::tempdir()?;
        for mode in [SyncMode::Sync, SyncMode::Async] {
            let store = kind.open(dir.path(), mode)?;
            store.put(b"b", b"two")?;
            store.batch(&[(b"a", b"one"), (b"c", b"three")])?;
            store.put(b"d", b"gone")?;
            store.delete(b"d")?;
            store.sync()?;
            store.close()?;
            let store = kind.open(dir.path(), mode)?;
            let mut value = vec![9];
            assert!(store.get(b"c", &mut value)?, "{}", kind.name());
            assert_eq!(value, b"three", "{}", kind.name());
            assert!(!store.get(b"d", &mut value)?, "{}", kind.name());
            let mut seen = Vec::new();
            let count = store.scan(&mut |k, v| seen.push((k.to_vec(), v.to_vec())))?;
            assert_eq!(count, 3, "{}", kind.name());
            assert!(seen.is_sorted(), "{}", kind.name());
            assert_eq!(seen[1], (b"b".to_vec(), b"two".to_vec()), "{}", kind.name());
            let mut from = |key: &[u8], count| {
                seen.clear();
                let visited = store.scan_from(key, count, &mut |k, _| seen.push((k.to_vec(), Vec::new())))?;
                assert_eq!(visited, seen.len(), "{}", kind.name());
                anyhow::Ok(seen.iter().map(|(k, _)| k[0]).collect::<Vec<u8>>())
            };
            assert_eq!(from(b"aa", 1)?, b"b", "{}", kind.name());
            assert_eq!(from(b"b", 9)?, b"bc", "{}", kind.name());
            assert_eq!(from(b"d", 9)?, b"", "{}", kind.name());
            store.close()?;
        }
    }
    Ok(())
}
