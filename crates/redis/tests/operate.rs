//! What an operator does with the server: starts it twice, as a daemon, on a full disk; updates it; takes space back.
//! Where `make redis` has not built it there is nothing to run.

mod support;

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{CLUSTER, POLL, POLLS, Server, builds, cluster_node, is_built};

const KEYS: u32 = 2_000;

fn launcher(words: &[&str], builds: &Path, dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mangrove-redis"));
    command.args(words).env("MANGROVE_REDIS_BUILDS", builds).current_dir(dir).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn fill(server: &Server, keys: u32, value: &[u8]) {
    for key in 0..keys {
        let answer = server.ask(&[b"SET", format!("key:{key}").as_bytes(), value]);
        assert_eq!(answer.as_deref(), Some("+OK\r\n"));
    }
}

/// Sets keys until the server is gone; how many it acknowledged.
fn fill_until_it_ends(server: &Server, value: &[u8]) -> u32 {
    (0..100_000)
        .find(|key| {
            let answer = server.ask(&[b"SET", format!("key:{key}").as_bytes(), value]);
            answer.as_deref() != Some("+OK\r\n")
        })
        .expect("the limit is reached")
}

/// A directory with the build that is there and, under another name and as the newest one, a copy of it.
fn two_builds(place: &Path) -> (PathBuf, String) {
    let old = builds().join("current").canonicalize().unwrap();
    let id = old.file_name().unwrap().to_str().unwrap().to_owned();
    let folder = place.join("builds-of-two");
    for name in [id.as_str(), "00000000000000aa"] {
        let copy = folder.join("builds").join(name);
        std::fs::create_dir_all(&copy).unwrap();
        for file in std::fs::read_dir(&old).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    symlink("builds/00000000000000aa", folder.join("current")).unwrap();
    (folder, id)
}

/// A configuration that evicts must not reach the servers that copy the state: they would evict from the old one.
#[test]
fn an_update_keeps_every_key_whatever_the_configuration_evicts_and_the_build_that_others_need() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    let server = Server::serving(&dir, &[]);
    fill(&server, KEYS, &[b'v'; 1_000]);
    drop(server);
    let (folder, id) = two_builds(place.path());
    let conf = place.path().join("v.conf");
    std::fs::write(&conf, "maxmemory 1mb\nmaxmemory-policy allkeys-random\n").unwrap();
    let words = ["update", conf.to_str().unwrap(), "--dir", dir.to_str().unwrap()];
    let output = launcher(&words, &folder, place.path());
    assert!(output.status.success(), "{}", text(&output));
    assert!(folder.join("builds").join(&id).exists(), "another state may need the old build");
    for left in ["update.rdb", "update.sock"] {
        assert!(!dir.join(left).exists(), "{left} is left");
    }
    let entries = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let states: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert_eq!(states, [dir.join("state.00000000000000aa")]);
    let server = Server::serving(&dir, &["--builds", folder.to_str().unwrap()]);
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
    let missing = launcher(&["update", "--dir", "nowhere"], &folder, place.path());
    assert!(!missing.status.success() && !place.path().join("nowhere").exists(), "{}", text(&missing));
}

/// What a server acknowledges while an update copies would be lost with the old state.
#[test]
fn a_server_and_an_update_keep_each_other_out() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    let words = ["--port", "0", "--unixsocket", "s", "--dir", dir.to_str().unwrap()];
    let update = File::open(&dir).unwrap();
    update.try_lock().unwrap();
    let output = launcher(&words, &builds(), place.path());
    assert!(!output.status.success() && text(&output).contains("an update of"), "{}", text(&output));
    drop(update);
    let server = Server::serving(&dir, &[]);
    let output = launcher(&["update", "--dir", dir.to_str().unwrap()], &builds(), place.path());
    assert!(!output.status.success() && text(&output).contains("is at work in"), "{}", text(&output));
    drop(server);
    let output = launcher(&["update", "--dir", dir.to_str().unwrap()], &builds(), place.path());
    assert!(output.status.success() && text(&output).contains("nothing to update"), "{}", text(&output));
}

/// A state that `KEYS` keys are in, and two builds, of which the older one made it.
fn to_be_updated(place: &Path) -> (PathBuf, PathBuf) {
    let dir = place.join("d");
    std::fs::create_dir(&dir).unwrap();
    fill(&Server::serving(&dir, &[]), KEYS, b"v");
    (dir, two_builds(place).0)
}

/// Its log goes nowhere else.
#[test]
fn an_update_whose_server_does_not_start_says_what_the_server_says() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (dir, folder) = to_be_updated(place.path());
    for log in [&["--logfile", "log"][..], &[]] {
        let words = ["update", "--dir", dir.to_str().unwrap(), "--databases", "2000"];
        let output = launcher(&[&words[..], log].concat(), &folder, place.path());
        let said = text(&output);
        let (_, why) = said.split_once(" ended with ").expect(&said);
        assert!(!output.status.success() && why.contains("at most 1024 databases"), "{said}");
    }
}

/// Its servers would hold the state, and nobody would know of them.
#[test]
fn an_update_that_is_killed_takes_its_server_along_and_the_next_one_removes_what_it_left() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (dir, folder) = to_be_updated(place.path());
    let newest = folder.join("current/valkey-server");
    std::fs::rename(&newest, folder.join("kept")).unwrap();
    // A server that never answers.
    std::fs::write(&newest, "#!/bin/sh\necho $$ >number.new\nmv number.new number\nexec sleep 600\n")
        .unwrap();
    std::fs::set_permissions(&newest, PermissionsExt::from_mode(0o755)).unwrap();
    let words = ["update", "--dir", dir.to_str().unwrap()];
    let mut update = Command::new(env!("CARGO_BIN_EXE_mangrove-redis"))
        .args(words)
        .env("MANGROVE_REDIS_BUILDS", &folder)
        .current_dir(place.path())
        .spawn()
        .unwrap();
    let within = |what: &str, is_so: &dyn Fn() -> bool| {
        let comes = (0..POLLS).any(|_| {
            std::thread::sleep(POLL);
            is_so()
        });
        assert!(comes, "{what}");
    };
    let number = place.path().join("number");
    within("the server is started", &|| number.exists());
    update.kill().unwrap();
    update.wait().unwrap();
    let pid = std::fs::read_to_string(&number).unwrap();
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    // Nobody need have reaped it yet.
    within("the server has ended", &|| {
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
    assert!(dir.join("update.rdb").exists());
    // No process has this number.
    std::fs::write(dir.join("temp-999999999.rdb"), "half a dump").unwrap();
    std::fs::write(dir.join("temp-mine.rdb"), "somebody's").unwrap();
    std::fs::rename(folder.join("kept"), &newest).unwrap();
    let output = launcher(&words, &folder, place.path());
    assert!(output.status.success(), "{}", text(&output));
    let names =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut left: Vec<String> =
        names.filter(|name| !name.starts_with("state.") && name != "log" && name != "s").collect();
    left.sort_unstable();
    assert_eq!(left, ["temp-mine.rdb"]);
    let server = Server::serving(&dir, &["--builds", folder.to_str().unwrap()]);
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
}

#[test]
fn an_update_names_what_the_configuration_forbids_it_and_does_without_an_acl_file() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (dir, folder) = to_be_updated(place.path());
    let conf = place.path().join("v.conf");
    let update = |configuration: &str| {
        std::fs::write(&conf, configuration).unwrap();
        // One that waits for ever fails the test.
        let mut command = Command::new("timeout");
        command
            .args(["300", env!("CARGO_BIN_EXE_mangrove-redis"), "update"])
            .arg(&conf)
            .arg("--dir")
            .arg(&dir);
        command.env("MANGROVE_REDIS_BUILDS", &folder).current_dir(place.path()).output().unwrap()
    };
    for (configuration, message) in [
        ("user default off\nuser bob on >pw ~* &* +@all\n", "the update asks as the default user"),
        ("rename-command PING ping2\n", "renames none of them"),
        ("rename-command SAVE save2\n", "renames none of them"),
    ] {
        let output = update(configuration);
        assert_eq!(output.status.code(), Some(3), "{configuration}: {}", text(&output));
        let said = text(&output);
        assert!(said.contains(message) && !said.contains("Is there space"), "{configuration}: {said}");
    }
    let users = place.path().join("users.acl");
    std::fs::write(&users, "user default off\nuser bob on >pw ~* &* +@all\n").unwrap();
    // The new state does not begin with what the old one was made of.
    std::fs::write(dir.join("appendonly.aof"), "").unwrap();
    let output = update(&format!("aclfile {}\nrename-command SHUTDOWN shutdown2\n", users.display()));
    assert!(output.status.success(), "{}", text(&output));
}

/// The update's servers know nothing of the file: the state would count from then on, and be empty.
#[test]
fn an_update_refuses_a_state_whose_import_was_cut_short() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("dump.rdb"), "this is no dump").unwrap();
    assert!(!Server::start(&dir, &[]).child.wait().unwrap().success());
    let (folder, id) = two_builds(place.path());
    let output = launcher(&["update", "--dir", dir.to_str().unwrap()], &folder, place.path());
    assert!(!output.status.success() && text(&output).contains("was cut short"), "{}", text(&output));
    assert!(dir.join(format!("state.{id}")).exists());
    // The import begins again, and ends as before.
    let mut server = Server::start(&dir, &["--builds", folder.to_str().unwrap()]);
    assert!(!server.is_up(), "an empty state counts");
}

/// While it was down another node has taken its slots over; in the cluster it would delete their keys.
#[test]
fn an_update_of_a_cluster_node_stays_out_of_the_cluster_and_keeps_every_key() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    let conf = dir.join("nodes.conf");
    let own = cluster_node("1", "myself,master", 0, "0-16383");
    std::fs::write(&conf, &own).unwrap();
    let server = Server::serving(&dir, &CLUSTER);
    server.awaits_cluster();
    fill(&server, KEYS, b"v");
    drop(server);
    let (folder, _) = two_builds(place.path());
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let port = other.local_addr().unwrap().port();
    let nodes = cluster_node("1", "myself,master", 0, "") + &cluster_node("2", "master", port, "0-16383");
    std::fs::write(&conf, &nodes).unwrap();
    let words = [&["update", "--dir", dir.to_str().unwrap()][..], &CLUSTER].concat();
    let output = launcher(&words, &folder, place.path());
    assert!(output.status.success(), "{}", text(&output));
    assert!(other.accept().is_err(), "the update has talked to the other node");
    assert_eq!(std::fs::read_to_string(&conf).unwrap(), nodes);
    assert!(!dir.join("update.nodes").exists());
    std::fs::write(&conf, own).unwrap();
    let server = Server::serving(&dir, &[&CLUSTER[..], &["--builds", folder.to_str().unwrap()]].concat());
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
}

#[test]
fn a_second_start_leaves_the_address_of_the_server_that_runs() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _first = Server::serving(dir.path(), &[]);
    let note = dir.path().join("state.address");
    let before = std::fs::read_to_string(&note).unwrap();
    assert!(before.contains("unixsocket s"), "{before}");
    let mut second = Server::start(dir.path(), &["--unixsocket", "other"]);
    assert!(!second.child.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(&note).unwrap(), before);
    let stat = launcher(&["stat", dir.path().to_str().unwrap()], &builds(), dir.path());
    assert!(text(&stat).contains("# Mangrove"), "{}", text(&stat));
}

/// The caller learns why there is no daemon, and gets control back when there is one.
#[test]
fn a_daemon_that_cannot_open_its_state_fails_to_start() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let words = ["--port", "0", "--unixsocket", "s", "--daemonize", "yes", "--dir", "."];
    let start = launcher(&words, &builds(), dir.path());
    assert!(start.status.success(), "{}", text(&start));
    let stat = |what: &str| {
        let found = launcher(&["stat", "."], &builds(), dir.path());
        assert!(text(&found).contains("# Mangrove"), "{what}: {}", text(&found));
    };
    assert!(
        UnixStream::connect(dir.path().join("s")).is_ok(),
        "the launcher came back before the server serves"
    );
    stat("the daemon serves");
    for log in [&["--logfile", "log"][..], &[]] {
        let again = launcher(&[&words[..], log].concat(), &builds(), dir.path());
        assert!(!again.status.success() && text(&again).contains("in use by process"), "{}", text(&again));
    }
    assert!(std::fs::read_to_string(dir.path().join("log")).unwrap().contains("in use by process"));
    stat("the daemon serves on");
    let cli = builds().join("current/valkey-cli");
    let end = Command::new(cli).args(["-s", "s", "shutdown", "nosave"]).current_dir(dir.path()).status();
    assert!(end.unwrap().success());
}

/// The next start by the file would stay in the foreground.
#[test]
fn a_rewritten_configuration_asks_for_a_daemon_as_before() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("v.conf");
    std::fs::write(&conf, "port 0\nunixsocket s\ndaemonize yes\n").unwrap();
    let start = launcher(&["v.conf", "--dir", "."], &builds(), dir.path());
    assert!(start.status.success(), "{}", text(&start));
    let ask = |words: &[&str]| {
        let cli = builds().join("current/valkey-cli");
        Command::new(cli).args(["-s", "s"]).args(words).current_dir(dir.path()).output().unwrap()
    };
    let rewritten = ask(&["config", "rewrite"]);
    assert!(ask(&["shutdown", "nosave"]).status.success());
    let after = std::fs::read_to_string(&conf).unwrap();
    assert!(after.lines().any(|line| line == "daemonize yes"), "{}{after}", text(&rewritten));
}

/// Whatever ends the start: the configuration, what it names, or the file to import.
#[test]
fn a_daemon_that_does_not_come_to_serve_fails_with_its_message() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bad.rdb"), "this is no dump").unwrap();
    let words = ["--port", "0", "--unixsocket", "s", "--daemonize", "yes", "--dir", "."];
    for (more, message) in [
        (["--bogus", "1"], "Bad directive"),
        (["--port", "99999"], "argument must be between"),
        (["--databases", "2000"], "at most 1024 databases"),
        (["--unixsocket", "no/such/s"], "Failed opening Unix socket"),
        (["--aclfile", "no-such-file"], "Error loading ACLs"),
        (["--dbfilename", "bad.rdb"], "Wrong signature"),
    ] {
        let start = launcher(&[&words[..], &more].concat(), &builds(), dir.path());
        assert!(!start.status.success() && text(&start).contains(message), "{more:?}: {}", text(&start));
        let said = std::fs::read_to_string(dir.path().join("state.stderr")).unwrap();
        assert!(said.contains(message), "{more:?}: {said}");
    }
}

/// The limit on the size of files stands for a disk that is full.
#[test]
fn a_server_without_space_says_so_and_keeps_what_it_acknowledged() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving(dir.path(), &[]);
    let pid = server.child.id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=20971520"]).status().unwrap();
    assert!(limited.success());
    let acknowledged = fill_until_it_ends(&server, &[b'v'; 20_000]);
    assert_eq!(server.child.wait().unwrap().code(), Some(70), "{}", server.log());
    let log = server.log();
    assert!(log.contains("every acknowledged write is kept") && !log.contains("BUG REPORT"), "{log}");
    assert!(acknowledged > 100);
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{acknowledged}\r\n")));
}

/// Here it is the log that cannot be written.
#[test]
fn a_server_whose_medium_fails_says_that_it_ends() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving(dir.path(), &["--log-bytes", "1mb"]);
    let pid = server.child.id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=16384"]).status().unwrap();
    assert!(limited.success());
    fill_until_it_ends(&server, &[b'v'; 100_000]);
    assert_eq!(server.child.wait().unwrap().code(), Some(70), "{}", server.log());
    let log = server.log();
    assert!(log.contains("the server ends") && !log.contains("reads go on"), "{log}");
}

const NOBODY: u32 = 65_534;

/// Advice to open the state read-only, which the server cannot do, helps nobody.
#[test]
fn a_directory_that_cannot_be_written_is_named_with_what_the_server_needs() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    for (path, mode) in [(place.path(), 0o755), (&dir, 0o555)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_mangrove-redis"));
    command.args(["--port", "0", "--dir", "."]).env("MANGROVE_REDIS_BUILDS", builds()).current_dir(&dir);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        // Root may write anywhere.
        command.uid(NOBODY).gid(NOBODY);
    }
    // Neither the program nor the builds need be within nobody's reach.
    let Ok(output) = command.output() else { return };
    let said = text(&output);
    if said.contains("has no build of the server") {
        return;
    }
    assert!(said.contains("must be allowed to read and write"), "{said}");
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn flushing_everything_gives_the_disk_back() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serving(dir.path(), &[]);
    fill(&server, KEYS, &[b'v'; 20_000]);
    let image = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let image = image.filter(|path| path.is_dir()).map(|state| state.join("image")).next().unwrap();
    let mib = || std::fs::metadata(&image).unwrap().blocks() >> 11;
    let filled = mib();
    assert!(filled >= 38, "{filled} MiB");
    assert_eq!(server.ask(&[b"FLUSHALL", b"SYNC"]).as_deref(), Some("+OK\r\n"));
    // The end of the round gives back, before the reply to a later command.
    assert_eq!(server.ask(&[b"SET", b"a", b"1"]).as_deref(), Some("+OK\r\n"));
    assert!(mib() * 4 < filled, "{} MiB of {filled} are left", mib());
    drop(server);
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"GET", b"a"]).as_deref(), Some("1"));
    fill(&server, 10, &[b'w'; 20_000]);
}

/// The number in a line of INFO.
fn counted(server: &Server, field: &str) -> u64 {
    let info = server.ask(&[b"INFO", b"mangrove"]).expect("an answer");
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {info}")).parse().unwrap()
}

/// The server copies the names of candidates for eviction. They are its own, and not the state's.
#[test]
fn a_kill_while_the_server_evicts_leaves_nothing_of_long_keys() {
    const KEY_LEN: usize = 100_000;
    const LONG_KEYS: u32 = 300;
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let evicts = ["--maxmemory", "12mb", "--maxmemory-policy", "allkeys-lru"];
    let server = Server::serving(dir.path(), &evicts);
    for number in 0..LONG_KEYS {
        let key = "k".repeat(KEY_LEN) + &number.to_string();
        assert_eq!(server.ask(&[b"SET", key.as_bytes(), b"v"]).as_deref(), Some("+OK\r\n"));
    }
    let keys = server.ask(&[b"DBSIZE"]).expect("an answer");
    let kept: u32 = keys.trim().trim_start_matches(':').parse().unwrap();
    assert!(0 < kept && kept < LONG_KEYS / 2, "{kept} keys are left");
    drop(server);
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(keys));
    assert_eq!(server.ask(&[b"FLUSHALL", b"SYNC"]).as_deref(), Some("+OK\r\n"));
    let left = counted(&server, "mangrove_arena_bytes");
    assert!(left < KEY_LEN as u64, "{left} bytes are left of nothing");
}

/// A slice is one tracked call and frees no more elements than grave.c lets it.
#[test]
fn a_large_value_is_freed_in_slices_as_a_stream_and_in_a_flushed_database_too() {
    const SLICE_ELEMENTS: u64 = 512;
    /// Of the stream they are its entries, what the consumer has of them, and what the group has.
    const ELEMENTS: u64 = 30_000;
    const FLUSH: [&[u8]; 2] = [b"FLUSHALL", b"ASYNC"];
    const UNLINK: [&[u8]; 2] = [b"UNLINK", b"key"];
    const HASH: &str = "for j = 1, 30000 do redis.call('HSET', KEYS[1], j, 'v') end return 1";
    const SORTED_SET: &str = "for j = 1, 30000 do redis.call('ZADD', KEYS[1], j, j) end return 1";
    const STREAM: &str = "for j = 1, 10000 do redis.call('XADD', KEYS[1], j .. '-1', 'f', 'v') end \
                          redis.call('XGROUP', 'CREATE', KEYS[1], 'group', '0') \
                          redis.call('XREADGROUP', 'GROUP', 'group', 'me', 'STREAMS', KEYS[1], '>') return 1";
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Each entry of the stream is an allocation.
    let server = Server::serving(dir.path(), &["--medium", "emulated=0/0", "--stream-node-max-entries", "1"]);
    for (script, freed_by) in [(HASH, FLUSH), (SORTED_SET, FLUSH), (STREAM, FLUSH), (STREAM, UNLINK)] {
        assert_eq!(server.ask(&[b"EVAL", script.as_bytes(), b"1", b"key"]).as_deref(), Some(":1\r\n"));
        let (calls, bytes) =
            (counted(&server, "mangrove_commands"), counted(&server, "mangrove_arena_bytes"));
        assert!(server.ask(&freed_by).is_some_and(|answer| !answer.starts_with('-')));
        let is_freed = (0..POLLS).any(|_| {
            std::thread::sleep(POLL);
            counted(&server, "mangrove_grave_objects") == 0
        });
        assert!(is_freed, "{}", server.log());
        let calls = counted(&server, "mangrove_commands") - calls;
        assert!(calls >= ELEMENTS / SLICE_ELEMENTS, "{calls} tracked calls free all: {script}");
        let left = counted(&server, "mangrove_arena_bytes");
        assert!(left * 10 < bytes, "{left} bytes of {bytes} are left: {script}");
    }
}

/// The next start would find no state in the directory that the file names, and serve an empty one.
#[test]
fn a_rewritten_configuration_names_the_directory_of_the_state_wherever_dumps_go() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let [dir, dumps] = ["d", "dumps"].map(|name| place.path().canonicalize().unwrap().join(name));
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(&dumps).unwrap();
    let conf = place.path().join("v.conf");
    std::fs::write(&conf, format!("dir {}\nenable-protected-configs yes\n", dir.display())).unwrap();
    let start = || {
        let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let mut launcher = Command::new(env!("CARGO_BIN_EXE_mangrove-redis"));
        launcher.arg(&conf).args(["--port", "0", "--unixsocket", "s"]).env("MANGROVE_REDIS_BUILDS", builds());
        launcher.current_dir(place.path()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut server = Server { child: launcher.spawn().unwrap(), dir: dir.clone() };
        assert!(server.is_up(), "{}", server.log());
        server
    };
    let mut server = start();
    let dumps = dumps.to_str().unwrap();
    let moved = server.ask(&[b"CONFIG", b"SET", b"dir", dumps.as_bytes()]);
    assert_eq!(moved.as_deref(), Some("+OK\r\n"));
    // The server cannot go to the state's directory.
    let before = std::fs::read(&conf).unwrap();
    server.dir = place.path().join("away");
    std::fs::rename(&dir, &server.dir).unwrap();
    let refused = server.ask(&[b"CONFIG", b"REWRITE"]).unwrap();
    assert!(refused.starts_with("-ERR CONFIG REWRITE failed - the file would name "), "{refused}");
    assert_eq!(std::fs::read(&conf).unwrap(), before);
    std::fs::rename(&server.dir, &dir).unwrap();
    server.dir.clone_from(&dir);
    assert_eq!(server.ask(&[b"CONFIG", b"REWRITE"]).as_deref(), Some("+OK\r\n"));
    assert_eq!(server.ask(&[b"SET", b"key", b"1"]).as_deref(), Some("+OK\r\n"));
    assert_eq!(server.ask(&[b"SAVE"]).as_deref(), Some("+OK\r\n"));
    assert!(Path::new(dumps).join("dump.rdb").exists(), "dumps go elsewhere");
    drop(server);
    assert_eq!(start().ask(&[b"GET", b"key"]).as_deref(), Some("1"));
}
