//! Tests of the event loops over a backing in memory: a line protocol with one counter per name.

#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "what the tests point to lives on their stacks, and waits"
)]

use super::*;
use mangrove_durable::Ticket;
use mangrove_durable::lab::{FakeBacking, fake_runtime};
use mangrove_durable::will_write;
use mangrove_durable::{Command, Error, Runtime};
use mangrove_testkit::command::wait_until;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A wait that takes longer than this hangs, however busy the machine is.
const HANG: Duration = Duration::from_secs(300);

/// `inc\n` is answered by the count after it, `get\n` by the count, `big N\n` by N letters, `bye\n` by bye and the
/// end of the connection; `boom\n` panics.
struct Counting {
    state: Box<State>,
    connected: Arc<AtomicUsize>,
    /// All that ever were connected.
    came: Arc<AtomicUsize>,
    speaks_of_errors: bool,
}

#[repr(align(64))]
struct State(UnsafeCell<u64>);

struct Peer {
    state: *const State,
    request: Vec<u8>,
    answer: Vec<u8>,
}

unsafe extern "C" fn process(arg: *mut c_void) {
    // SAFETY: the loops pass contexts of `connect`.
    let peer = unsafe { &mut *arg.cast::<Peer>() };
    let state = unsafe { (*peer.state).0.get() };
    peer.answer.clear();
    match peer.request.as_slice() {
        b"inc" => unsafe {
            will_write(state.cast(), 8);
            *state += 1;
            writeln!(peer.answer, "{}", *state).unwrap();
        },
        b"get" => writeln!(peer.answer, "{}", unsafe { *state }).unwrap(),
        b"bye" => peer.answer.extend_from_slice(b"bye\n"),
        big => {
            let count = std::str::from_utf8(&big[4..]).unwrap().parse().unwrap();
            peer.answer.resize(count, b'x');
            peer.answer.push(b'\n');
        }
    }
}

// SAFETY: `process` takes contexts of `connect`, and touches the state as the contract demands.
unsafe impl Service for Counting {
    fn connect(&self, _: u64) -> Option<Context> {
        self.connected.fetch_add(1, Ordering::SeqCst);
        self.came.fetch_add(1, Ordering::SeqCst);
        let peer = Peer { state: &raw const *self.state, request: Vec::new(), answer: Vec::new() };
        Some(Context(Box::into_raw(Box::new(peer)).cast()))
    }

    fn disconnect(&self, client: Context) {
        self.connected.fetch_sub(1, Ordering::SeqCst);
        drop(unsafe { Box::from_raw(client.0.cast::<Peer>()) });
    }

    fn deserialize(&self, client: Context, input: &[u8]) -> Frame {
        let peer = unsafe { &mut *client.0.cast::<Peer>() };
        let Some(end) = input.iter().position(|&b| b == b'\n') else { return Frame::Incomplete };
        peer.request = input[..end].to_vec();
        match peer.request.as_slice() {
            b"inc" | b"get" | b"bye" => Frame::Request(end + 1),
            big if big.starts_with(b"big ") => Frame::Request(end + 1),
            b"boom" => panic!("boom"),
            _ => Frame::Malformed,
        }
    }

    fn is_read_only(&self, client: Context) -> bool {
        unsafe { &*client.0.cast::<Peer>() }.request != b"inc"
    }

    fn command(&self) -> Command {
        process
    }

    fn answer(&self, client: Context) -> Answer<'_> {
        let peer = unsafe { &*client.0.cast::<Peer>() };
        Answer { bytes: &peer.answer, close: peer.request == b"bye" }
    }

    fn failed(&self, client: Context, error: &Error) -> bool {
        let peer = unsafe { &mut *client.0.cast::<Peer>() };
        peer.answer = format!("error: {error}\n").into_bytes();
        self.speaks_of_errors
    }
}

// SAFETY: only commands touch the cell.
unsafe impl Sync for State {}

struct Running {
    address: String,
    stopper: Stopper,
    thread: std::thread::JoinHandle<mangrove_durable::Result<ServerStat>>,
    runtime: Arc<Runtime>,
    fake: FakeBacking,
    connected: Arc<AtomicUsize>,
    came: Arc<AtomicUsize>,
}

fn start(options: ServerOptions, speaks_of_errors: bool, address: &str) -> Running {
    let (runtime, fake) = fake_runtime(true);
    let (connected, came) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let service = Counting {
        state: Box::new(State(UnsafeCell::new(0))),
        connected: Arc::clone(&connected),
        came: Arc::clone(&came),
        speaks_of_errors,
    };
    let mut server = Server::new(Arc::clone(&runtime), Box::new(service), options).unwrap();
    let address = server.listen(address).unwrap();
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.serve());
    Running { address, stopper, thread, runtime, fake, connected, came }
}

/// A server that does not run, whose answers do not wait.
pub(crate) fn ready() -> crate::server::Ready {
    let (runtime, _) = fake_runtime(false);
    let state = Box::new(State(UnsafeCell::new(0)));
    let service =
        Counting { state, connected: Arc::default(), came: Arc::default(), speaks_of_errors: false };
    let options = ServerOptions::new().workers(1);
    Server::new(runtime, Box::new(service), options).unwrap().prepare().unwrap()
}

impl Running {
    fn stop(self) -> ServerStat {
        self.stopper.stop();
        let stat = self.thread.join().unwrap().unwrap();
        assert_eq!(self.connected.load(Ordering::SeqCst), 0, "every client is ended");
        self.runtime.close().unwrap();
        stat
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        BufReader::new(stream)
    }

    /// Waits until so many clients in all have come, and so many of them are left.
    fn wait_for_clients(&self, came: usize, left: usize) {
        let begun = Instant::now();
        let is = |count: &AtomicUsize, wanted| count.load(Ordering::SeqCst) == wanted;
        while !(is(&self.came, came) && is(&self.connected, left)) {
            assert!(begun.elapsed() < HANG, "{:?} came, {:?} are left", self.came, self.connected);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn ask(peer: &mut BufReader<TcpStream>, request: &str) -> String {
    peer.get_mut().write_all(request.as_bytes()).unwrap();
    line(peer)
}

fn line(peer: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    peer.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn two() -> ServerOptions {
    ServerOptions::new().workers(2)
}

#[test]
fn requests_are_answered_in_order_whole_split_or_many_at_once() {
    let server = start(two(), false, "127.0.0.1:0");
    let mut peer = server.connect();
    assert_eq!(ask(&mut peer, "get\n"), "0");
    assert_eq!(ask(&mut peer, "inc\n"), "1");
    peer.get_mut().write_all(b"in").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(ask(&mut peer, "c\nge"), "2");
    assert_eq!(ask(&mut peer, "t\n"), "2");
    let many = "inc\nget\nget\ninc\n".repeat(500);
    peer.get_mut().write_all(many.as_bytes()).unwrap();
    for n in 0..500 {
        let got = [line(&mut peer), line(&mut peer), line(&mut peer), line(&mut peer)];
        assert_eq!(got, [2 * n + 3, 2 * n + 3, 2 * n + 3, 2 * n + 4].map(|n: u32| n.to_string()));
    }
    assert_eq!(ask(&mut peer, "bye\n"), "bye");
    assert_eq!(line(&mut peer), "", "closed after the answer");
    let stat = server.stop();
    assert_eq!((stat.clients, stat.writes, stat.reads, stat.cut_off), (1, 1002, 1003, 0));
}

#[test]
fn no_answer_leaves_before_it_is_durable_and_the_loop_goes_on_meanwhile() {
    let server = start(ServerOptions::new().workers(1), false, "127.0.0.1:0");
    let (mut writer, mut reader) = (server.connect(), server.connect());
    assert_eq!(ask(&mut reader, "get\n"), "0");
    server.fake.hold(true);
    writer.get_mut().write_all(b"inc\ninc\n").unwrap();
    wait_until("the commands ran", || server.runtime.stat().commands >= 2);
    reader.get_mut().write_all(b"get\n").unwrap(); // it has seen what may be lost
    let mut bystander = server.connect();
    bystander.get_mut().write_all(b"inc\n").unwrap(); // the loop still executes
    wait_until("the commands ran", || server.runtime.stat().commands >= 3);
    for peer in [&mut writer, &mut reader, &mut bystander] {
        peer.get_mut().set_read_timeout(Some(Duration::from_millis(60))).unwrap();
        assert!(peer.read(&mut [0; 8]).is_err(), "an answer left early");
        peer.get_mut().set_read_timeout(Some(HANG)).unwrap();
    }
    server.fake.hold(false);
    assert_eq!([line(&mut writer), line(&mut writer)], ["1", "2"]);
    assert!(["2", "3"].contains(&line(&mut reader).as_str()));
    assert_eq!(line(&mut bystander), "3");
    server.stop();
}

#[test]
fn an_error_of_the_medium_is_told_or_closes_and_reads_go_on() {
    for speaks in [true, false] {
        let server = start(two(), speaks, "127.0.0.1:0");
        let mut peer = server.connect();
        assert_eq!(ask(&mut peer, "inc\n"), "1");
        server.fake.fail();
        let told = ask(&mut peer, "inc\n");
        if speaks {
            assert!(told.starts_with("error: an earlier error ended writing"), "{told}");
            assert!(ask(&mut peer, "inc\n").starts_with("error: "));
            assert!(!ask(&mut peer, "get\n").is_empty());
        } else {
            assert_eq!(told, "");
            assert!(!ask(&mut server.connect(), "get\n").is_empty(), "reads of others go on");
        }
        server.stopper.stop();
        assert!(server.thread.join().unwrap().is_err(), "the last sync says so");
    }
}

#[test]
fn answers_that_were_held_when_the_medium_failed_are_never_given() {
    let server = start(two(), true, "127.0.0.1:0");
    let mut peer = server.connect();
    assert_eq!(ask(&mut peer, "inc\n"), "1");
    server.fake.hold(true);
    peer.get_mut().write_all(b"inc\n").unwrap();
    wait_until("the batch is committed", || server.runtime.stat().committed >= Ticket(2));
    server.fake.fail();
    assert_eq!(line(&mut peer), "", "cut off without the answer");
    server.stopper.stop();
    assert!(server.thread.join().unwrap().is_err());
}

#[test]
fn reads_go_on_when_the_medium_failed_with_a_write_under_way() {
    let server = start(two(), true, "127.0.0.1:0");
    let (mut writer, mut reader) = (server.connect(), server.connect());
    assert_eq!(ask(&mut reader, "get\n"), "0");
    server.fake.hold(true);
    writer.get_mut().write_all(b"inc\n").unwrap();
    wait_until("the batch is committed", || server.runtime.stat().committed >= Ticket(1));
    server.fake.fail();
    assert_eq!(line(&mut writer), "", "cut off without the answer");
    for _ in 0..3 {
        assert_eq!(ask(&mut reader, "get\n"), "1", "what was being written is seen");
        assert_eq!(ask(&mut server.connect(), "get\n"), "1");
    }
    assert!(ask(&mut reader, "inc\n").starts_with("error: "));
    server.stopper.stop();
    assert!(server.thread.join().unwrap().is_err());
}

#[test]
fn after_a_commit_that_was_refused_answers_still_wait_and_are_given() {
    let server = start(two(), true, "127.0.0.1:0");
    let (mut writer, mut reader) = (server.connect(), server.connect());
    assert_eq!(ask(&mut reader, "get\n"), "0");
    server.fake.hold(true);
    writer.get_mut().write_all(b"inc\n").unwrap();
    wait_until("the batch is committed", || server.runtime.stat().committed >= Ticket(1));
    server.fake.refuse_one();
    assert!(ask(&mut server.connect(), "inc\n").starts_with("error: "));
    assert!(server.runtime.failure().is_some());
    reader.get_mut().write_all(b"get\n").unwrap();
    for peer in [&mut writer, &mut reader] {
        peer.get_mut().set_read_timeout(Some(Duration::from_millis(60))).unwrap();
        assert!(peer.read(&mut [0; 8]).is_err(), "an answer left early, or never will");
        peer.get_mut().set_read_timeout(Some(HANG)).unwrap();
    }
    server.fake.hold(false);
    assert_eq!([line(&mut writer), line(&mut reader)], ["1", "2"]);
    server.stopper.stop();
    server.thread.join().unwrap().unwrap();
}

#[test]
fn an_event_loop_that_panics_ends_the_server() {
    let server = start(two(), false, "127.0.0.1:0");
    let mut peer = server.connect();
    peer.get_mut().write_all(b"boom\n").unwrap();
    let begun = Instant::now();
    while !server.thread.is_finished() {
        assert!(begun.elapsed() < HANG, "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = server.thread.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

/// A socket that the system does not watch, as beyond its limit; a file stands for it.
#[test]
fn a_client_that_cannot_be_watched_is_refused_alone() {
    let (runtime, _) = fake_runtime(true);
    let connected = Arc::default();
    let state = Box::new(State(UnsafeCell::new(0)));
    let service =
        Counting { state, connected: Arc::clone(&connected), came: Arc::default(), speaks_of_errors: false };
    let mut server = Server::new(runtime, Box::new(service), ServerOptions::new().workers(1)).unwrap();
    let address = server.listen("127.0.0.1:0").unwrap();
    let stopper = server.stopper();
    let ready = server.prepare().unwrap();
    let file = tempfile::tempfile().unwrap();
    // SAFETY: a descriptor of the test's own, given away.
    let odd = unsafe { mio::net::TcpStream::from_raw_fd(file.into_raw_fd()) };
    let shared = Arc::clone(&ready.shared);
    shared.clients.fetch_add(1, Ordering::Relaxed);
    shared.loops[0].arriving.lock().push(crate::client::stream::Stream::Tcp(odd));
    shared.loops[0].wake().unwrap();
    let thread = std::thread::spawn(move || ready.run());
    let mut peer = BufReader::new(TcpStream::connect(address).unwrap());
    assert_eq!(ask(&mut peer, "inc\n"), "1");
    stopper.stop();
    assert_eq!(line(&mut peer), "");
    let stat = thread.join().unwrap().unwrap();
    assert_eq!((stat.clients, stat.refused, stat.writes), (1, 1, 1));
    assert_eq!((shared.clients.load(Ordering::Relaxed), connected.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn limits_meet_the_one_client_that_breaks_them() {
    let options = two().request_bytes_max(1000).clients_max(3).backlog_bytes_max(4096);
    let server = start(options, false, "127.0.0.1:0");
    let mut good = server.connect();
    assert_eq!(ask(&mut good, "inc\n"), "1");
    let mut long = server.connect();
    long.get_mut().write_all(&[b'i'; 1001]).unwrap();
    assert_eq!(line(&mut long), "", "a request that is too long");
    let mut odd = server.connect();
    odd.get_mut().write_all(b"inc\nwhat\ninc\n").unwrap();
    assert_eq!([line(&mut odd), line(&mut odd)], ["2", ""], "answered up to what is no request");
    drop((long, odd));
    server.wait_for_clients(3, 1);
    // A client that takes no answers: the others are served on, and the server does not read from it without bound.
    let mut deaf = server.connect();
    deaf.get_mut().set_write_timeout(Some(HANG)).unwrap();
    let flood = "big 900000\n".repeat(150);
    deaf.get_mut().write_all(flood.as_bytes()).unwrap();
    assert_eq!(ask(&mut good, "inc\n"), "3");
    let mut rest = Vec::new();
    deaf.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    deaf.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 900_001 * 150, "he gets all of it when he listens");
    assert_eq!(ask(&mut good, "get\n"), "3");
    server.wait_for_clients(4, 1);
    // The place of the last client may become free only a moment after its end is reported.
    let comes = || loop {
        let (mut peer, mut answer) = (server.connect(), String::new());
        if peer.get_mut().write_all(b"get\n").and_then(|()| peer.read_line(&mut answer)).is_ok_and(|n| n > 0)
        {
            return peer;
        }
    };
    let _places = (comes(), comes());
    let mut refused = server.connect();
    let answer = refused.read(&mut [0; 1]);
    let is_reset = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(matches!(&answer, Ok(0)) || answer.is_err_and(|e| is_reset(&e)), "a client too many");
    drop(refused);
    server.stop();
}

#[test]
fn clients_that_stall_or_say_nothing_are_cut_off() {
    let options = two().stalled_max(Duration::from_millis(300)).idle_max(Some(Duration::from_millis(700)));
    let server = start(options, false, "127.0.0.1:0");
    let mut deaf = server.connect();
    deaf.get_mut().write_all("big 900000\n".repeat(50).as_bytes()).unwrap();
    let _silent = server.connect();
    server.wait_for_clients(2, 0);
    assert_eq!(server.stop().cut_off, 2);
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let server = start(two(), false, "127.0.0.1:0");
    for n in 0..60u32 {
        let mut peer = server.connect();
        match n % 3 {
            0 => {}
            1 => peer.get_mut().write_all(b"inc\nin").unwrap(),
            _ => drop(ask(&mut peer, "inc\n")),
        }
    }
    server.wait_for_clients(60, 0);
    let mut last = server.connect();
    let count: u32 = ask(&mut last, "get\n").parse().unwrap();
    assert!((20..=40).contains(&count), "{count}");
    server.stop();
}

#[test]
fn a_stop_answers_what_was_received() {
    let server = start(two().shutdown_max(HANG), false, "127.0.0.1:0");
    let mut peer = server.connect();
    assert_eq!(ask(&mut peer, "inc\n"), "1");
    server.fake.hold(true);
    peer.get_mut().write_all("inc\n".repeat(100).as_bytes()).unwrap();
    wait_until("the commands ran", || server.runtime.stat().commands >= 101);
    server.stopper.stop();
    std::thread::sleep(Duration::from_millis(30));
    server.fake.hold(false);
    for n in 2..=101 {
        assert_eq!(line(&mut peer), n.to_string());
    }
    assert_eq!(line(&mut peer), "");
    server.stop();
}

#[test]
fn a_stop_answers_what_waits_behind_answers_that_nobody_takes() {
    let server = start(two().backlog_bytes_max(4096).shutdown_max(HANG), false, "127.0.0.1:0");
    let mut peer = server.connect();
    peer.get_mut().write_all("big 900000\n".repeat(100).as_bytes()).unwrap();
    peer.get_mut().write_all(b"inc\n").unwrap();
    assert_eq!(ask(&mut server.connect(), "get\n"), "0", "the loops go on");
    server.stopper.stop();
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..100 {
        assert_eq!(line(&mut peer).len(), 900_000);
    }
    assert_eq!([line(&mut peer), line(&mut peer)], ["1", ""]);
    assert_eq!(server.stop().cut_off, 0);
}

#[test]
fn a_unix_socket_serves_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("door").display());
    let path = address.strip_prefix("unix:").unwrap();
    drop(std::os::unix::net::UnixListener::bind(path).unwrap()); // a crash leaves the file
    let server = start(two(), false, &address);
    let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    stream.write_all(b"inc\nbye\n").unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert_eq!(all, "1\nbye\n");
    let (runtime, _) = fake_runtime(true);
    let state = Box::new(State(UnsafeCell::new(0)));
    let service =
        Counting { state, connected: Arc::default(), came: Arc::default(), speaks_of_errors: false };
    let mut second = Server::new(runtime, Box::new(service), two()).unwrap();
    assert!(second.listen(&address).is_err(), "a living one is not");
    server.stop();
    assert!(!std::path::Path::new(path).exists());
}

#[test]
fn a_file_that_has_the_name_of_the_socket_by_now_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("door");
    let server = start(two(), false, &format!("unix:{}", path.display()));
    std::fs::rename(&path, folder.path().join("old")).unwrap();
    std::fs::write(&path, "another program's file").unwrap();
    server.stop();
    assert_eq!(std::fs::read(&path).unwrap(), b"another program's file");
}

#[test]
fn many_clients_agree_on_one_counter() {
    let server = start(two(), false, "127.0.0.1:0");
    let workers: Vec<_> = (0..16)
        .map(|_| {
            let mut peer = server.connect();
            std::thread::spawn(move || {
                let (mut mine, mut last) = (Vec::new(), 0);
                for round in 0..100 {
                    let count: u64 =
                        ask(&mut peer, if round % 4 == 0 { "get\n" } else { "inc\n" }).parse().unwrap();
                    assert!(count >= last, "a client sees its past");
                    if round % 4 != 0 {
                        assert!(count > last);
                        mine.push(count);
                    }
                    last = count;
                }
                mine
            })
        })
        .collect();
    let mut all: Vec<u64> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=1200).collect::<Vec<_>>(), "each increment has a number of its own");
    server.stop();
}
