//! An open pool stays with its directory when the process changes its working directory or root, when the directory
//! is renamed, and when its path comes to mean another one. Each test runs itself again as a child process, because
//! the working directory belongs to a whole process.

use mangrove_pool::{ByteRange, Create, Error, Medium, Pool, PoolOptions};
use mangrove_testkit::sandbox::may_chroot;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROLE: &str = "MANGROVE_TEST_FOLDER";
/// Longer than half the log, so that it needs a spill file.
const LONG: u64 = 64 << 10;
/// Where the pools are made, below the directory of the test.
const PLACE: &str = "place";
/// The pools: one is closed, the other is as after a crash.
const POOLS: [&str; 2] = ["closed", "crashed"];
/// What a child prints where the system does not let it change its root.
const REFUSED: &str = "this system does not let a test change its root";

fn options() -> PoolOptions {
    PoolOptions::new()
        .create(Create::IfMissing)
        .medium(Medium::File)
        .capacity(1 << 20)
        .log_bytes(16 << 10)
        .background(false)
}

/// Makes `value` durable in the whole region, by one atomic group that is longer than half the log.
fn fill(pool: &Pool, value: u8) -> Result<(), Error> {
    pool.region().write(0, &[value; LONG as usize]);
    pool.region().flush_unit(&[ByteRange { offset: 0, len: LONG }])?;
    pool.region().drain()
}

/// Every byte of the region, if they are equal.
fn filled(pool: &Pool) -> Option<u8> {
    // SAFETY: inside the region, and no thread writes meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(pool.region().at(0), LONG as usize) };
    bytes.iter().all(|&byte| byte == bytes[0]).then_some(bytes[0])
}

/// Spill files below `directory`, those in `except` left out.
fn spill_files(directory: &Path, except: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() && path != except {
            found.append(&mut spill_files(&path, except));
        } else if entry.file_name().to_string_lossy().starts_with("unit-") {
            found.push(path);
        }
    }
    found
}

/// In the child: opens the pools in `given`, calls `change`, and then makes two long commits, with a checkpoint
/// between them. In the parent: expects all of that in the pools in `found`. Both get the directory of the test.
fn stays(
    test: &str,
    wrapper: &[&str],
    given: fn(&Path) -> PathBuf,
    change: fn(&Path),
    found: fn(&Path) -> PathBuf,
) {
    if let Some(root) = std::env::var_os(ROLE) {
        let root = PathBuf::from(root);
        std::env::set_current_dir(&root).unwrap();
        let place = given(&root);
        let [closed, crashed] = POOLS.map(|name| {
            let pool = options().open(place.join(name)).unwrap();
            pool.region().grow(LONG).unwrap();
            fill(&pool, 1).unwrap();
            pool
        });
        change(&root);
        for pool in [&closed, &crashed] {
            fill(pool, 2).unwrap();
            pool.checkpoint().unwrap();
            fill(pool, 3).unwrap();
        }
        closed.close().unwrap();
        drop(crashed);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in [PLACE, "elsewhere", "elsewhere/place", "elsewhere/place/closed", "elsewhere/place/crashed"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(PLACE, root.join("link")).unwrap();
    let me = std::env::current_exe().unwrap();
    let mut words = wrapper.iter().map(AsRef::as_ref).chain([me.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).args(["--exact", test, "--nocapture"]).env(ROLE, root).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if text.contains(REFUSED) || text.contains("unshare:") {
        eprintln!("{test} was not tried: {text}");
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    let found = found(root);
    for name in POOLS {
        let path = found.join(name);
        assert_eq!(spill_files(&path, &path).len(), usize::from(name == "crashed"), "{name}");
        assert_eq!(Pool::check(&path).unwrap().damage, [], "{name}");
        let pool = options().create(Create::Never).open(&path).unwrap();
        assert_eq!((pool.was_clean(), filled(&pool)), (name == "closed", Some(3)), "{name}");
        pool.close().unwrap();
    }
    assert_eq!(spill_files(root, &found), [] as [PathBuf; 0], "they lie in no other directory");
}

#[test]
fn when_the_working_directory_changes() {
    let change = |root: &Path| std::env::set_current_dir(root.join("elsewhere")).unwrap();
    let test = "when_the_working_directory_changes";
    stays(test, &[], |_| PLACE.into(), change, |root| root.join(PLACE));
}

#[test]
fn when_the_directory_is_renamed() {
    let change = |root: &Path| {
        for name in POOLS {
            std::fs::rename(root.join(PLACE).join(name), root.join("elsewhere").join(name)).unwrap();
        }
    };
    stays(
        "when_the_directory_is_renamed",
        &[],
        |root| root.join(PLACE),
        change,
        |root| root.join("elsewhere"),
    );
}

#[test]
fn when_another_pool_takes_its_path() {
    let change = |root: &Path| {
        std::fs::rename(root.join(PLACE), root.join("moved")).unwrap();
        std::fs::create_dir(root.join(PLACE)).unwrap();
        for name in POOLS {
            let pool = options().open(root.join(PLACE).join(name)).unwrap();
            pool.region().grow(LONG).unwrap();
            fill(&pool, 7).unwrap();
            pool.close().unwrap();
        }
    };
    let test = "when_another_pool_takes_its_path";
    stays(test, &[], |root| root.join(PLACE), change, |root| root.join("moved"));
}

#[test]
fn when_a_link_in_its_path_changes() {
    let change = |root: &Path| {
        std::fs::remove_file(root.join("link")).unwrap();
        std::os::unix::fs::symlink("elsewhere/place", root.join("link")).unwrap();
    };
    stays("when_a_link_in_its_path_changes", &[], |_| "link".into(), change, |root| root.join(PLACE));
}

#[test]
fn when_the_root_changes() {
    let change = |root: &Path| {
        let refused = |e: std::io::Error| -> ! { panic!("{REFUSED}: {e}") };
        std::os::unix::fs::chroot(root.join("elsewhere")).unwrap_or_else(|e| refused(e));
        std::env::set_current_dir("/").unwrap();
    };
    let wrapper = if may_chroot() { &[][..] } else { &["unshare", "--user", "--map-root-user"] };
    stays("when_the_root_changes", wrapper, |root| root.join(PLACE), change, |root| root.join(PLACE));
}
