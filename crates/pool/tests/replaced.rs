//! The file `pool` is replaced while a process has the pool open, as editors and rsync do it: a new file is renamed to
//! the name. The lock on the old file does not exclude a process that locks the new one.

use mangrove_pool::{
    Create, Error, Fault, FaultKind, Faulty, FaultyOperation, Latency, Medium, OsStorage, Pool, PoolOptions,
};
use mangrove_sys::file::try_lock;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const ROLE: &str = "MANGROVE_TEST_FOLDER";

fn options(medium: Medium) -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(medium)
        .capacity(1 << 20)
        .log_bytes(64 << 10)
        .background(false)
}

fn media() -> [Medium; 2] {
    [Medium::File, Medium::Emulated(Latency::default())]
}

fn fill(pool: &Pool, value: u8) -> Result<(), Error> {
    pool.region().write(0, &[value; 4096]);
    pool.region().flush(0, 4096);
    pool.region().drain()
}

fn is_filled(pool: &Pool, value: u8) -> bool {
    // SAFETY: inside the region, and no thread writes meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(pool.region().at(0), 4096) };
    bytes.iter().all(|&byte| byte == value)
}

/// Puts a copy of the file in its place.
fn replace(file: &Path) {
    let new = file.with_extension("new");
    std::fs::copy(file, &new).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// In another process: which of the ways to open the pool find it busy.
fn busy_in_another_process(pool: &Path, test: &str) -> String {
    let me = std::env::current_exe().unwrap();
    let output = Command::new(me).args(["--exact", test, "--nocapture"]).env(ROLE, pool).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    text.lines()
        .filter_map(|line| line.split_once("busy: "))
        .map(|(_, what)| what)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The other process.
fn tell_what_is_busy(path: &Path) {
    let is_busy = |result: Result<Pool, Error>| matches!(result, Err(Error::Busy { .. }));
    let options = options(Medium::Auto).create(Create::Never);
    let checked = Pool::check(path);
    for (what, busy) in [
        ("writer", is_busy(options.open(path))),
        ("reader", is_busy(options.clone().read_only(true).open(path))),
        ("check", matches!(checked, Err(Error::Busy { .. }))),
        ("probe", Pool::is_busy(path)),
    ] {
        if busy {
            println!("\nbusy: {what}");
        }
    }
}

#[test]
fn no_second_writer_comes_in() {
    let test = "no_second_writer_comes_in";
    if let Some(path) = std::env::var_os(ROLE) {
        return tell_what_is_busy(Path::new(&path));
    }
    for medium in media() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        let pool = options(medium).open(&path).unwrap();
        pool.region().grow(4096).unwrap();
        fill(&pool, 1).unwrap();
        replace(&path.join("pool"));
        // A file pool is read beside its writer.
        let shut = if medium == Medium::File { "writer check probe" } else { "writer reader check probe" };
        assert_eq!(busy_in_another_process(&path, test), shut, "{medium:?}");
        drop(pool);
        assert_eq!(busy_in_another_process(&path, test), "", "{medium:?}");
        let reader = options(medium).read_only(true).open(&path).unwrap();
        replace(&path.join("pool"));
        // A reader of a file pool has no lock any more when it has read it.
        let kept_out = if medium == Medium::File { "" } else { "writer" };
        assert_eq!(busy_in_another_process(&path, test), kept_out);
        drop(reader);
    }
}

/// Programs of earlier versions lock the file alone.
#[test]
fn the_file_is_locked_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p");
    let pool = options(Medium::File).open(&path).unwrap();
    let file = std::fs::File::open(path.join("pool")).unwrap();
    assert!(!try_lock(&file, false).unwrap());
    drop(pool);
    assert!(try_lock(&file, false).unwrap());
    assert!(matches!(options(Medium::File).open(&path), Err(Error::Busy { .. })));
    let reader = options(Medium::File).read_only(true).open(&path).unwrap();
    drop(reader);
}

/// As for a directory that may be searched but not read.
#[test]
fn where_the_directory_cannot_be_locked_the_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p");
    options(Medium::File).open(&path).unwrap().close().unwrap();
    let storage = Faulty::new(Arc::new(OsStorage));
    let (operations, kind) = (vec![FaultyOperation::Open], FaultKind::Errno(13));
    storage.plant(Fault { file: Some("p".into()), operations, nth: 0, kind });
    let pool = options(Medium::File).storage(Arc::new(storage.clone())).open(&path).unwrap();
    assert!(storage.struck());
    assert!(matches!(options(Medium::File).open(&path), Err(Error::Busy { .. })));
    pool.region().grow(4096).unwrap();
    fill(&pool, 1).unwrap();
    replace(&path.join("pool"));
    assert!(pool.checkpoint().unwrap_err().to_string().contains("replaced"));
}

/// The superblock would go to a file without a name, and the log would lose what the file of that name still needs.
#[test]
fn the_writer_notices_before_anything_is_lost() {
    for medium in media() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        let is_file = matches!(medium, Medium::File);
        let pool = options(medium).open(&path).unwrap();
        pool.region().grow(4096).unwrap();
        fill(&pool, 1).unwrap();
        pool.checkpoint().unwrap();
        fill(&pool, 2).unwrap();
        replace(&path.join("pool"));
        fill(&pool, 3).unwrap();
        if is_file {
            let text = pool.checkpoint().unwrap_err().to_string();
            assert!(
                text.contains("replaced") && text.contains(path.join("pool").to_str().unwrap()),
                "{text}"
            );
            assert!(matches!(fill(&pool, 4), Err(Error::Poisoned { .. })));
        }
        pool.close().unwrap_err();
        let pool = options(medium).create(Create::Never).open(&path).unwrap();
        assert!(!pool.was_clean() && is_filled(&pool, 3), "{medium:?}");
        pool.close().unwrap();
        assert_eq!(Pool::check(&path).unwrap().damage, []);
    }
}
