//! The import of a file that does not come to its end, clients meanwhile, and a synchronisation with a primary that
//! fails, with the real server. Where `make redis` has not built it there is nothing to run.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use support::{POLL, POLLS, Server, builds, is_built};

const KEYS: usize = 1_000;

/// The directory of an append-only file that sets so many keys, and the file in it that has the commands.
fn append_only_file(dir: &Path) -> (std::path::PathBuf, Vec<u8>) {
    let folder = dir.join("appendonlydir");
    std::fs::create_dir(&folder).unwrap();
    let name = "appendonly.aof.1.incr.aof";
    std::fs::write(folder.join("appendonly.aof.manifest"), format!("file {name} seq 1 type i\n")).unwrap();
    let set = |key| {
        let key = format!("key:{key}");
        format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$1\r\n1\r\n", key.len())
    };
    let commands: String = (0..KEYS).map(set).collect();
    std::fs::write(folder.join(name), &commands).unwrap();
    (folder.join(name), commands.into_bytes())
}

/// In its middle: what is damaged at the end is cut off and the rest imported.
fn damage(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..][..5].fill(b'#');
    std::fs::write(file, bytes).unwrap();
}

/// What the server says that does not start, and its exit code.
fn refused(dir: &Path, more: &[&str]) -> (Option<i32>, String) {
    let before = std::fs::read_to_string(dir.join("log")).unwrap_or_default().len();
    let mut server = Server::start(dir, more);
    assert!(!server.is_up(), "the server serves");
    (server.child.wait().unwrap().code(), server.log()[before..].to_owned())
}

#[test]
fn an_append_only_file_whose_import_was_cut_short_is_imported_again_and_no_state_without_it_counts() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let (file, sound) = append_only_file(dir);
    damage(&file);
    let appendonly = ["--appendonly", "yes"];
    let (code, said) = refused(dir, &appendonly);
    assert!(code == Some(1) && said.contains("Bad file format"), "{code:?}: {said}");
    // Without the directive the state would count with nothing in it.
    let (code, said) = refused(dir, &[]);
    assert!(code == Some(2) && said.contains("start with appendonly yes"), "{code:?}: {said}");
    std::fs::write(&file, sound).unwrap();
    let server = Server::serving(dir, &appendonly);
    assert!(server.log().contains("begins again"), "{}", server.log());
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
    drop(server);
    // Now it counts, and the file is not needed.
    let (code, said) = refused(dir, &appendonly);
    let expected = "remove `appendonly yes` from the command line";
    assert!(code == Some(2) && said.contains(expected), "{code:?}: {said}");
    let server = Server::serving(dir, &[]);
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
}

#[test]
fn a_state_starts_empty_when_the_file_of_its_import_has_been_taken_away() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    damage(&append_only_file(dir).0);
    refused(dir, &["--appendonly", "yes"]);
    std::fs::remove_dir_all(dir.join("appendonlydir")).unwrap();
    let server = Server::serving(dir, &[]);
    assert_eq!(server.ask(&[b"DBSIZE"]).as_deref(), Some(":0\r\n"));
}

/// The state counts after its first start, so what that passes over would be lost without a word.
#[test]
fn a_first_start_passes_over_no_file_that_is_there() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    append_only_file(dir);
    let appendonly = ["--appendonly", "yes"];
    let (code, said) = refused(dir, &[]);
    assert!(code == Some(2) && said.contains("start with appendonly yes to import it"), "{code:?}: {said}");
    let server = Server::serving(dir, &appendonly);
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
    assert_eq!(server.ask(&[b"SAVE"]).as_deref(), Some("+OK\r\n"));
    drop(server);
    // Now the file does not matter.
    drop(Server::serving(dir, &[]));

    let other = tempfile::tempdir().unwrap();
    std::fs::copy(dir.join("dump.rdb"), other.path().join("dump.rdb")).unwrap();
    let (code, said) = refused(other.path(), &appendonly);
    let expected = "start with appendonly no to import dump.rdb";
    assert!(code == Some(2) && said.contains(expected), "{code:?}: {said}");
    let server = Server::serving(other.path(), &[]);
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
}

/// A dump without its end, of more than the import commits at once.
fn large_values() -> Vec<u8> {
    const VALUES: u8 = 12;
    const VALUE_LEN: u32 = 8 << 20;
    let mut dump = b"REDIS0011".to_vec();
    for key in 0..VALUES {
        dump.extend([0, 1, b'a' + key, 0x80]);
        dump.extend(VALUE_LEN.to_be_bytes());
        dump.resize(dump.len() + VALUE_LEN as usize, b'v');
    }
    dump
}

/// The limit on the size of files stands for a disk that is full.
#[test]
fn an_import_without_space_says_so_and_calls_no_dump_damaged() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    std::fs::write(dir.join("dump.rdb"), large_values()).unwrap();
    let mut command = Command::new("prlimit");
    command.args(["--fsize=41943040", env!("CARGO_BIN_EXE_mangrove-redis"), "--port", "0"]);
    command.args(["--unixsocket", "s", "--dir", ".", "--builds"]).arg(builds()).current_dir(dir);
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(70), "{said}");
    assert!(said.contains("every acknowledged write is kept"), "{said}");
    assert!(!said.contains("failed allocating"), "{said}");
}

/// The server counts what it frees. Below zero, its memory would be more than any `maxmemory`, and writes refused.
#[test]
fn a_start_that_drops_what_an_import_left_takes_writes_below_maxmemory() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    // It ends before its last byte.
    std::fs::write(dir.join("dump.rdb"), large_values()).unwrap();
    let (code, said) = refused(dir, &[]);
    assert_eq!(code, Some(1), "{said}");
    std::fs::write(dir.join("dump.rdb"), b"REDIS0011\xff\0\0\0\0\0\0\0\0").unwrap();
    let server = Server::serving(dir, &["--maxmemory", "512mb"]);
    assert!(server.log().contains("keys of an import that a crash cut off"), "{}", server.log());
    assert_eq!(server.ask(&[b"SET", b"key", b"1"]).as_deref(), Some("+OK\r\n"));
}

/// A line without its end; none when the connection has ended.
fn line(from: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let len = from.read_line(&mut line).ok()?;
    (len > 0).then(|| line.trim_end().to_owned())
}

/// The words of a command.
fn command(from: &mut impl BufRead) -> Option<Vec<String>> {
    let count: usize = line(from)?.strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..count {
        // Its length.
        line(from)?;
        words.push(line(from)?);
    }
    Some(words)
}

/// The next replica that asks its primary, which is this program, for data: its connection, and its PSYNC.
fn asked_for_data(primary: &TcpListener) -> (TcpStream, Vec<String>) {
    loop {
        let (mut stream, _) = primary.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        // A server that was killed has left connections.
        while let Some(words) = command(&mut reader) {
            let reply = match words[0].as_str() {
                "PSYNC" => return (stream, words),
                "PING" => "+PONG\r\n",
                _ => "+OK\r\n",
            };
            if stream.write_all(reply.as_bytes()).is_err() {
                break;
            }
        }
    }
}

/// Else the primary would send the replica what comes after data that it no longer has.
#[test]
fn a_replica_whose_synchronisation_failed_asks_for_all_data_after_a_kill() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let primary = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = primary.local_addr().unwrap().port().to_string();
    let replica = ["--replicaof", "127.0.0.1", &port];
    let mut server = Server::serving(dir.path(), &replica);
    let becomes = |command: &[&[u8]], expected: &str| {
        let is_so = (0..POLLS).any(|_| {
            std::thread::sleep(POLL);
            server.ask(command).as_deref() == Some(expected)
        });
        assert!(is_so, "{}", server.log());
    };
    let id = "1".repeat(40);
    let (mut stream, _) = asked_for_data(&primary);
    // A dump without keys and without a checksum, and then the stream of writes.
    let dump = b"REDIS0011\xff\0\0\0\0\0\0\0\0";
    write!(stream, "+FULLRESYNC {id} 0\r\n${}\r\n", dump.len()).unwrap();
    stream.write_all(dump).unwrap();
    stream.write_all(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1\r\n1\r\n").unwrap();
    // The reply rests on what is durable.
    becomes(&[b"GET", b"key"], "1");
    drop(stream);
    let (mut stream, asked) = asked_for_data(&primary);
    assert_eq!(asked[1], id);
    let damaged = "this is no dump";
    write!(stream, "+FULLRESYNC {} 0\r\n${}\r\n{damaged}", "2".repeat(40), damaged.len()).unwrap();
    becomes(&[b"DBSIZE"], ":0\r\n");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let _server = Server::serving(dir.path(), &replica);
    assert_eq!(asked_for_data(&primary).1[1..], ["?", "-1"]);
}

/// The old data waits to be freed by a timer, and none runs in a load.
#[test]
fn a_replica_frees_what_it_had_while_it_loads_what_its_primary_has() {
    const VALUES: u8 = 64;
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serving(dir.path(), &[]);
    let memory = |field: &str| -> u64 {
        let info = server.ask(&[b"INFO", b"memory"]).expect("INFO is answered");
        let number = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        number.unwrap_or_else(|| panic!("no {field} in {info}")).parse().unwrap()
    };
    let value = vec![b'v'; 1 << 20];
    for number in 0..VALUES {
        let key = format!("old:{number}");
        assert_eq!(server.ask(&[b"SET", key.as_bytes(), &value]).as_deref(), Some("+OK\r\n"));
    }
    let had = memory("used_memory");
    let mut dump = b"REDIS0011".to_vec();
    for key in 0..VALUES {
        dump.extend([0, 1, key, 0x80]);
        dump.extend((1_u32 << 20).to_be_bytes());
        dump.extend(&value);
    }
    dump.extend(b"\xff\0\0\0\0\0\0\0\0");
    let primary = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = primary.local_addr().unwrap().port().to_string();
    let replicaof = server.ask(&[b"REPLICAOF", b"127.0.0.1", port.as_bytes()]);
    assert_eq!(replicaof.as_deref(), Some("+OK\r\n"));
    let (mut stream, _) = asked_for_data(&primary);
    write!(stream, "+FULLRESYNC {} 0\r\n${}\r\n", "1".repeat(40), dump.len()).unwrap();
    stream.write_all(&dump).unwrap();
    let is_loaded = (0..POLLS).any(|_| {
        std::thread::sleep(POLL);
        server.ask(&[b"EXISTS", &[VALUES - 1]]).as_deref() == Some(":1\r\n")
    });
    assert!(is_loaded, "{}", server.log());
    let peak = memory("used_memory_peak");
    assert!(peak < had + had / 2, "{peak} bytes were in use, {had} before");
}

/// The server reads requests while it loads a value, and keeps a client's buffer for its next large argument.
#[test]
fn a_large_value_of_a_client_that_was_there_during_the_import_is_there_after_a_kill() {
    /// Of the list that is imported, a thousand bytes each.
    const ELEMENTS: u16 = 4_096;
    /// From 32 KiB on an argument is the buffer itself.
    const LARGE: usize = 40_000;
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    // The file ends when this test lets it. It stays open for reading, since the server opens it twice.
    let fifo = dir.join("dump.rdb");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut dump = File::options().read(true).write(true).open(&fifo).unwrap();
    let mut server = Server::start(dir, &["--loading-process-events-interval-bytes", "1024"]);
    let connected = (0..POLLS).find_map(|_| {
        std::thread::sleep(POLL);
        UnixStream::connect(dir.join("s")).ok()
    });
    let mut client = connected.expect("the server listens");
    client.set_read_timeout(Some(POLL * POLLS)).unwrap();
    let mut answers = BufReader::new(client.try_clone().unwrap());
    let set = |byte: u8| {
        let mut request = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${LARGE}\r\n").into_bytes();
        request.resize(request.len() + LARGE, byte);
        request.extend(b"\r\n");
        request
    };
    client.write_all(&set(b'a')).unwrap();

    let element = [&(0x4000_u16 | 1_000).to_be_bytes()[..], &[b'e'; 1_000]].concat();
    let mut bytes = b"REDIS0011\x01\x01l".to_vec();
    bytes.extend((0x4000 | ELEMENTS).to_be_bytes());
    (1..ELEMENTS).for_each(|_| bytes.extend(&element));
    let mut pipe = dump.try_clone().unwrap();
    let writer = std::thread::spawn(move || pipe.write_all(&bytes).unwrap());
    // The list is not whole yet, so the event loop runs inside the call that loads it.
    let said = line(&mut answers).unwrap();
    assert!(said.starts_with("-LOADING"), "{said}");
    writer.join().unwrap();
    dump.write_all(&[&element[..], b"\xff\0\0\0\0\0\0\0\0"].concat()).unwrap();

    // Another value each time.
    let mut bytes = (b'b'..=b'z').cycle();
    let stored = (0..POLLS).find_map(|_| {
        let byte = bytes.next()?;
        client.write_all(&set(byte)).unwrap();
        let said = line(&mut answers).unwrap();
        assert!(said == "+OK" || said.starts_with("-LOADING"), "{said}");
        (said == "+OK").then_some(byte)
    });
    let stored = stored.expect("the import ends");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::serving(dir, &[]);
    assert_eq!(server.ask(&[b"LLEN", b"l"]), Some(format!(":{ELEMENTS}\r\n")));
    let kept = server.ask(&[b"GET", b"key"]);
    assert!(kept == Some(char::from(stored).to_string().repeat(LARGE)), "the value is another one");
}
