//! Real limits of a real system: little address space, a full file system. Each test runs itself again as a child
//! process under the limit, because a limit holds for a whole process.

use mangrove_pool::{
    Create, Error, Medium, OpenHow, OsStorage, Pool, PoolOptions, SECTOR_BYTES, Storage, StorageFile, here,
};
use std::path::Path;
use std::process::Command;

const ROLE: &str = "MANGROVE_LIMITS_FOLDER";

/// The directory given to a child; `None` in the parent.
fn role() -> Option<std::path::PathBuf> {
    std::env::var_os(ROLE).map(Into::into)
}

/// Runs `test` of this binary again through `sh -c script`, where `"$@"` is the command.
fn child(test: &str, folder: &Path, wrapper: &[&str], script: &str) -> (bool, String) {
    let me = std::env::current_exe().unwrap();
    let mut words = wrapper.iter().copied().chain(["sh", "-c", script, "sh"]);
    let output = Command::new(words.next().unwrap())
        .args(words)
        .arg(me)
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, folder)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn options() -> PoolOptions {
    PoolOptions::new().create(Create::IfMissing).medium(Medium::File).log_bytes(1 << 20)
}

fn fill(pool: &Pool, from: u64, to: u64) -> Result<(), Error> {
    for at in (from..to).step_by(4096) {
        pool.region().grow(at + 4096)?;
        pool.region().write(at, &[at as u8 | 1; 4096]);
        pool.region().flush(at, 4096);
    }
    pool.region().drain()
}

fn holds(pool: &Pool, to: u64) -> bool {
    (0..to).step_by(4096).all(|at| pool.region().word(at).load(std::sync::atomic::Ordering::Relaxed) & 1 == 1)
}

#[test]
fn little_address_space_gets_a_smaller_region() {
    if let Some(folder) = role() {
        let pool = options().open(folder.join("p")).unwrap();
        let stat = pool.stat();
        assert_eq!(stat.capacity, 1 << 40, "the pool keeps the capacity that it was made with");
        assert!(stat.reserved < 2 << 30 && stat.reserved >= 256 << 20, "{}", stat.reserved);
        fill(&pool, 4096 * 100, 4096 * 200).unwrap();
        assert!(holds(&pool, 4096 * 200));
        assert!(matches!(pool.region().grow(4 << 30), Err(Error::NoSpace { .. })));
        pool.close().unwrap();
        let emulated = options().medium(Medium::Emulated(mangrove_pool::Latency::default()));
        let pool = emulated.open(folder.join("e")).unwrap();
        assert!(pool.stat().reserved < 2 << 30);
        fill(&pool, 0, 4096 * 100).unwrap();
        pool.close().unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let pool = options().open(dir.path().join("p")).unwrap();
    assert_eq!(pool.stat().reserved, 1 << 40);
    fill(&pool, 0, 4096 * 100).unwrap();
    drop(pool);
    let test = "little_address_space_gets_a_smaller_region";
    let (ok, text) = child(test, dir.path(), &[], "ulimit -v 2000000 && exec \"$@\"");
    assert!(ok && text.contains("1 passed"), "{text}");
    let pool = options().open(dir.path().join("p")).unwrap();
    assert!(pool.was_clean() && holds(&pool, 4096 * 200));
}

#[test]
fn a_checkpoint_needs_no_memory_that_the_process_may_not_have() {
    if let Some(folder) = role() {
        let pool = options().log_bytes(16 << 20).background(false).open(folder.join("p")).unwrap();
        fill(&pool, 0, 12 << 20).unwrap();
        assert_eq!(pool.stat().image_written, 0);
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        let most = Some(pages * 4096 + (2 << 20));
        let limit = rustix::process::Rlimit { current: most, maximum: most };
        rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
        pool.checkpoint().unwrap();
        assert!(pool.stat().image_written >= 12 << 20);
        pool.close().unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let test = "a_checkpoint_needs_no_memory_that_the_process_may_not_have";
    // So that the allocator has no room of its own: one heap, and a mapping for everything long.
    let script = "MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072 exec \"$@\"";
    let (ok, text) = child(test, dir.path(), &[], script);
    assert!(ok && text.contains("1 passed"), "{text}");
    let pool = options().log_bytes(16 << 20).open(dir.path().join("p")).unwrap();
    assert!(holds(&pool, 12 << 20));
}

fn take_every_descriptor() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

#[test]
fn a_process_without_descriptors_writes_past_the_page_cache_all_the_same() {
    if let Some(folder) = role() {
        let expected = options().open(folder.join("p")).unwrap().stat().log_direct;
        let pool = options().open(folder.join("p")).unwrap();
        let files = take_every_descriptor();
        fill(&pool, 0, 4096).unwrap();
        drop(files);
        fill(&pool, 0, 4096).unwrap();
        assert_eq!(pool.stat().log_direct, expected);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let test = "a_process_without_descriptors_writes_past_the_page_cache_all_the_same";
    let (ok, text) = child(test, dir.path(), &[], "ulimit -n 64 && exec \"$@\"");
    assert!(ok && text.contains("1 passed"), "{text}");
}

/// Writes past the page cache and through it at the same time could lose each other's bytes.
#[test]
fn how_a_file_is_written_is_decided_once() {
    if let Some(folder) = role() {
        let memory = vec![7u8; 1024];
        let write = |file: &dyn StorageFile| {
            let start = memory.as_ptr().align_offset(SECTOR_BYTES);
            file.write_durable(0, &memory[start..start + SECTOR_BYTES], here()).unwrap();
        };
        let open = |name| {
            let file = OsStorage.open(&folder.join(name), OpenHow::Create, here()).unwrap();
            file.write_at(0, &[1; 4096], here()).unwrap();
            file
        };
        let (asked, written, fresh) = (open("asked"), open("written"), open("fresh"));
        let files = take_every_descriptor();
        let error = asked.prepare_durable().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(24), "{error}");
        write(&*written);
        drop(files);
        for file in [&asked, &written, &fresh] {
            file.prepare_durable().unwrap();
            write(&**file);
        }
        assert!(!written.is_direct());
        assert_eq!(asked.is_direct(), fresh.is_direct(), "whoever was refused may ask again");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let test = "how_a_file_is_written_is_decided_once";
    let (ok, text) = child(test, dir.path(), &[], "ulimit -n 64 && exec \"$@\"");
    assert!(ok && text.contains("1 passed"), "{text}");
}

#[test]
fn a_full_file_system_refuses_growth_and_loses_nothing() {
    if let Some(folder) = role() {
        let path = folder.join("p");
        // A log that finds no space to grow to stays as it is.
        let big = options().log_bytes(64 << 20).open(folder.join("big")).unwrap();
        (0..20).for_each(|_| fill(&big, 0, 1 << 20).unwrap());
        assert!((512 << 10..8 << 20).contains(&big.stat().log_bytes), "{}", big.stat().log_bytes);
        drop(big);
        let big = options().log_bytes(64 << 20).open(folder.join("big")).unwrap();
        assert!(holds(&big, 1 << 20));
        big.close().unwrap();
        std::fs::remove_dir_all(folder.join("big")).unwrap();
        let pool = options().open(&path).unwrap();
        let mut at = 0;
        let error = loop {
            match fill(&pool, at, at + 65536) {
                Ok(()) => at += 65536,
                Err(e) => break e,
            }
        };
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert!(at > 1 << 20, "{at} bytes fit");
        // The disk is full to the last page; the pool continues with what it has.
        std::fs::write(folder.join("filler"), vec![1u8; 8 << 20]).unwrap_err();
        for _ in 0..20 {
            fill(&pool, 0, at).unwrap();
        }
        pool.checkpoint().unwrap();
        pool.close().unwrap();
        let pool = options().open(&path).unwrap();
        assert!(pool.was_clean() && holds(&pool, at));
        drop(pool);
        assert_eq!(Pool::check(&path).unwrap().damage, []);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let test = "a_full_file_system_refuses_growth_and_loses_nothing";
    let script = format!("mount -t tmpfs -o size=6m none \"${ROLE}\" && exec \"$@\"");
    // A mount namespace of its own: nothing to clean up, and no privileges needed. Some systems refuse namespaces of
    // users, which root can do without.
    let as_root = ["unshare", "--mount"];
    let as_user = ["unshare", "--user", "--map-root-user", "--mount"];
    let mut ways = vec![as_user.as_slice()];
    if rustix::process::geteuid().is_root() {
        ways.insert(0, &as_root);
    }
    let mut refusals = String::new();
    for way in ways {
        let (ok, text) = child(test, dir.path(), way, &script);
        if text.contains("running 1 test") {
            assert!(ok && text.contains("1 passed"), "{text}");
            return;
        }
        refusals.push_str(&text);
    }
    assert!(refusals.contains("unshare:") || refusals.contains("mount:"), "{refusals}");
    eprintln!("this system allows no mount in a namespace, so a full file system was not tried: {refusals}");
}
