//! `mangrove leveldb import` and `export`, with databases that LevelDB itself makes and reads: the tests build a
//! program with Debian's libleveldb-dev, and do nothing without it.

use crate::support::{HEEDING, Mount, SMALL_FILES, Yard, end_of, finish, signal, spawn};
use mangrove_testkit::c_library::CLibrary;
use mangrove_testkit::command::said;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const COUNT: &str = "30000";

/// This library itself, for C programs.
static OURS: CLibrary = CLibrary::new(
    [
        "mangrove-leveldb",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../leveldb"),
        env!("CARGO_TARGET_TMPDIR"),
        env!("CARGO"),
    ],
    "libmangrove_leveldb.so",
    None,
);

/// A place with LevelDB's own program (crates/leveldb/tests/cpp/records.cc) in it; `None` without LevelDB.
struct Sources {
    yard: Yard,
    program: PathBuf,
}

impl Sources {
    fn new() -> Option<Self> {
        let yard = Yard::new();
        let program = yard.path("records");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../leveldb/tests/cpp/records.cc");
        let built = Command::new("c++")
            .args(["-std=c++17", "-O1"])
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg("-lleveldb")
            .output();
        if !built.is_ok_and(|o| o.status.success()) {
            eprintln!(
                "LevelDB or a C++ compiler is not here (Debian: libleveldb-dev, g++): nothing is tested"
            );
            return None;
        }
        Some(Self { yard, program })
    }

    fn run(&self, what: &str, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(what).arg(self.yard.path(name));
        command
    }

    /// A LevelDB database of that name.
    fn fill(&self, name: &str, count: &str) {
        said(self.run("fill", name).arg(count));
    }

    fn dump(&self, name: &str) -> String {
        said(&mut self.run("dump", name))
    }

    /// Every file below a name, with its bytes.
    fn bytes(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(self.yard.path(name)).expect("the directory");
        let files = entries.map(|e| e.expect("an entry").path());
        files.map(|f| (f.clone(), std::fs::read(f).expect("a file"))).collect()
    }

    /// Nothing of `new` is there, nor of the work on it.
    #[track_caller]
    fn nothing_of(&self, new: &str) {
        let names = self.yard.names();
        assert!(!names.iter().any(|name| name.starts_with(new)), "{names:?}");
    }
}

#[test]
fn what_is_imported_and_exported_is_every_record_in_order() {
    let Some(sources) = Sources::new() else { return };
    let yard = &sources.yard;
    sources.fill("source", COUNT);
    let before = sources.bytes("source");
    for (engine, source, count) in [
        ("durable", "source", COUNT),
        ("map", "source", COUNT),
        ("durable", "empty", "0"),
        ("map", "empty", "0"),
    ] {
        if source == "empty" && engine == "durable" {
            sources.fill(source, count);
        }
        let mut import = yard.command(&["leveldb", "import", source, "new", "--json"]);
        import.env("MANGROVE_LEVELDB_ENGINE", engine);
        let told = finish(import);
        assert_eq!(told.code, 0, "{}", told.err);
        let told: serde_json::Value = serde_json::from_slice(&told.out).expect("JSON");
        let line = sources.dump("source");
        if source == "source" {
            assert_eq!(told["records"].to_string(), line.split(' ').next().expect("a count"));
        }
        let catalog =
            std::fs::read_to_string(yard.path("new/MANGROVE")).expect("the file that names the engine");
        assert!(catalog.contains(engine), "{engine}: {catalog}");
        let text = yard.ok(&["leveldb", "export", "new", "back"]);
        assert!(text.contains("records"), "{text}");
        assert_eq!(sources.dump("back"), sources.dump(source), "{engine}");
        for name in ["new", "back"] {
            std::fs::remove_dir_all(yard.path(name)).expect("remove");
        }
    }
    sources.nothing_of("new");
    sources.nothing_of("back");
    // `dump` has opened `source` with LevelDB, which begins new files then. So a second database, which only the import
    // opens, shows that the import leaves its source as it is.
    sources.fill("again", COUNT);
    let untouched = sources.bytes("again");
    yard.ok(&["leveldb", "import", "again", "new"]);
    assert!(sources.bytes("again") == untouched, "the import changed its source");
    assert!(!before.is_empty());
}

#[test]
fn a_source_that_cannot_be_imported_gets_a_sentence_and_stays() {
    let Some(sources) = Sources::new() else { return };
    let yard = &sources.yard;
    let refused = |source: &str, sentence: &str| {
        yard.fails(&["leveldb", "import", source, "new"], 3, sentence);
        sources.nothing_of("new");
    };
    refused("absent", "absent: holds no LevelDB database");
    std::fs::create_dir(yard.path("folder")).expect("a directory");
    refused("folder", "folder: holds no LevelDB database (it has no file CURRENT)");
    refused("records", "records: holds no LevelDB database");
    said(&mut sources.run("order", "ordered"));
    refused("ordered", "the order of the comparator tests.Backwards");
    sources.fill("source", COUNT);
    // A program has the source open.
    let mut holder =
        sources.run("hold", "source").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    refused("source", "source: a program has the database open; close it there first");
    drop(holder.stdin.take());
    holder.wait().expect("its end");
    // Damage in the middle of each file that holds records, and of those that name them.
    for (path, bytes) in sources.bytes("source") {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if bytes.len() < 8 || name.starts_with("LOG") {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 0x40;
        std::fs::write(&path, &damaged).expect("write");
        let told = yard.run(&["leveldb", "import", "source", "new"]);
        assert!(told.code == 3 && told.err.contains("source"), "{name}: {}", told.err);
        assert_eq!(std::fs::read(&path).expect("read"), damaged, "{name} was changed");
        sources.nothing_of("new");
        std::fs::write(&path, &bytes).expect("write");
    }
    // What is Mangrove's already, and names that are taken.
    yard.ok(&["leveldb", "import", "source", "ours"]);
    refused("ours", "ours: is a database of Mangrove's already");
    yard.fails(&["leveldb", "import", "source", "ours"], 3, "ours: exists; choose a new name");
    yard.fails(&["leveldb", "export", "ours", "source"], 3, "source: exists; choose a new name");
    yard.fails(&["leveldb", "export", "source", "back"], 3, "source: holds no database of Mangrove's");
    yard.fails(&["leveldb", "import", "source", "folder/absent/new"], 3, "cannot create");
    std::fs::create_dir(yard.path("mine.partial")).expect("a directory");
    std::fs::write(yard.path("mine.partial/diary"), "mine").expect("write");
    yard.fails(&["leveldb", "import", "source", "mine"], 3, "no import or export made it");
    // LevelDB does not begin a database among our files, and says whose they are.
    let theirs = sources.run("fill", "ours").arg("1").output().expect("run");
    let told = String::from_utf8_lossy(&theirs.stderr).into_owned();
    assert!(!theirs.status.success() && told.contains("this-is-a-Mangrove-database"), "{told}");
    yard.ok(&["leveldb", "export", "ours", "back"]);
    assert_eq!(sources.dump("back"), sources.dump("source"));
}

#[test]
fn a_library_that_is_not_leveldb_is_refused() {
    let Some(sources) = Sources::new() else { return };
    let yard = &sources.yard;
    sources.fill("source", "10");
    let refused = |library: &str, sentence: &str| {
        yard.fails(&["leveldb", "import", "source", "new", "--library", library], 3, sentence);
        sources.nothing_of("new");
    };
    refused("absent.so", "absent.so");
    std::fs::write(yard.path("text"), "a text file\n").expect("write");
    refused("text", "cannot load LevelDB's library");
    let libc = said(
        Command::new("sh")
            .args(["-c", "ls /lib/*-linux-gnu/libm.so.6 /lib64/libm.so.6 2>/dev/null | head -1"]),
    );
    refused(&libc, "is not LevelDB's library: it has no function leveldb_");
    refused(&OURS.shared().display().to_string(), "is Mangrove's own library");
    // All of its functions, of another version; and one that says that it is Mangrove's.
    let names = said(Command::new("sh").arg("-c").arg(
        "nm -D --defined-only $(ldd ./records | awk '/libleveldb/ { print $3 }') | awk '$3 ~ /^leveldb_/ { print $3 }'",
    ).current_dir(yard.path("")));
    for (name, more, sentence) in [
        (
            "two.so",
            "int leveldb_major_version(void) { return 2; }",
            "is LevelDB 2, and only LevelDB 1 is known",
        ),
        (
            "ours.so",
            "int mangrove_leveldb_version; int leveldb_major_version(void) { return 1; }",
            "is Mangrove's own library",
        ),
    ] {
        let functions = names.lines().filter(|line| *line != "leveldb_major_version");
        let text: String = functions.map(|line| format!("void {line}(void) {{}}\n")).collect();
        std::fs::write(yard.path("library.c"), text + more).expect("write");
        said(
            Command::new("cc").args(["-shared", "-fPIC", "library.c", "-o", name]).current_dir(yard.path("")),
        );
        refused(name, sentence);
    }
}

#[test]
fn an_import_that_is_killed_leaves_no_half_database() {
    let Some(sources) = Sources::new() else { return };
    let yard = &sources.yard;
    sources.fill("source", "200000");
    // LevelDB changes files when it opens a database: before their bytes are taken.
    let records = sources.dump("source");
    let whole = sources.bytes("source");
    let import = ["leveldb", "import", "source", "new"];
    for milliseconds in [5, 40, 90, 160, 250] {
        let mut child = spawn(&mut yard.command(&import));
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        // It may have come after the last step, on a machine as fast as that.
        if yard.path("new").exists() {
            yard.ok(&["leveldb", "export", "new", "back"]);
            assert_eq!(sources.dump("back"), records, "half a database is there");
            std::fs::remove_dir_all(yard.path("back")).expect("remove");
        }
        assert!(sources.bytes("source") == whole, "the source was changed");
        let _ = std::fs::remove_dir_all(yard.path("new"));
    }
    // Ctrl-C ends it in order; then nothing is left, or it was done before.
    let mut child = spawn(&mut yard.command_behind(&HEEDING, &import));
    std::thread::sleep(std::time::Duration::from_millis(60));
    signal(&child, "INT");
    match end_of(&mut child) {
        Some(0) => std::fs::remove_dir_all(yard.path("new")).expect("remove"),
        _ => assert!(!yard.path("new").exists()),
    }
    yard.ok(&import);
    assert!(!yard.path("new.partial").exists());
    let export = ["leveldb", "export", "new", "back"];
    for milliseconds in [5, 30, 70, 120, 250] {
        let mut child = spawn(&mut yard.command(&export));
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        if yard.path("back").exists() {
            assert_eq!(sources.dump("back"), records, "half a database is there");
        }
        let _ = std::fs::remove_dir_all(yard.path("back"));
    }
    yard.ok(&export);
    assert_eq!(sources.dump("back"), records);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written_and_a_full_disk_leaves_nothing() {
    let Some(sources) = Sources::new() else { return };
    let yard = &sources.yard;
    sources.fill("source", COUNT);
    let whole = sources.bytes("source");
    // No file may grow beyond a few MiB: LevelDB's are smaller, ours not.
    let told = finish(yard.command_behind(&SMALL_FILES, &["leveldb", "import", "source", "new"]));
    told.is(3, "new", "a file size limit");
    sources.nothing_of("new");
    for bytes in [1 << 20, 12 << 20] {
        let mount = match Mount::tmpfs(&yard.path("small"), bytes) {
            Ok(mount) => mount,
            Err(why) => return eprintln!("no small disk here ({why}): nothing is tested with one"),
        };
        let told = yard.run(&["leveldb", "import", "source", "small/new"]);
        told.is(3, "it will not fit: it takes about", "a small disk");
        assert!(told.err.matches("MiB").count() == 4 && told.err.contains("--force"), "{}", told.err);
        assert_eq!(std::fs::read_dir(yard.path("small")).expect("the directory").count(), 0);
        let told = yard.run(&["leveldb", "import", "source", "small/new", "--force"]);
        if told.code != 0 {
            told.is(3, "small/new", "a full disk");
            assert_eq!(std::fs::read_dir(yard.path("small")).expect("the directory").count(), 0);
        }
        drop(mount);
    }
    assert!(sources.bytes("source") == whole, "the source was changed");
    // The same the other way.
    yard.ok(&["leveldb", "import", "source", "new"]);
    // LevelDB compresses the records, but not its log.
    for bytes in [1 << 20, 3 << 20] {
        let mount = Mount::tmpfs(&yard.path("small"), bytes).expect("a small disk, as before");
        let told = yard.run(&["leveldb", "export", "new", "small/back"]);
        told.is(3, "it will not fit: it takes about", "a small disk");
        assert!(told.err.matches("MiB").count() == 4 && told.err.contains("--force"), "{}", told.err);
        assert_eq!(std::fs::read_dir(yard.path("small")).expect("the directory").count(), 0);
        let told = yard.run(&["leveldb", "export", "new", "small/back", "--force"]);
        told.is(3, "small/back", "a full disk");
        assert_eq!(std::fs::read_dir(yard.path("small")).expect("the directory").count(), 0);
        drop(mount);
    }
    yard.ok(&["leveldb", "export", "new", "back"]);
    assert_eq!(sources.dump("back"), sources.dump("source"), "a failed export changed what it read");
}
