//! A client of `kill9 --app redis`: one connection, one database, pipelines of operations, until the server is killed.

use super::model::{State, apply};
use super::operation::{Form, Generator, Operation};
use super::resp::{Address, Reply, RespConnection, Words, words};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Complaints of one client that are kept.
const FINDINGS_MAX: usize = 5;

/// What a client knows about its database.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientLedger {
    /// After every acknowledged operation.
    pub(super) state: State,
    /// The last acknowledged operation.
    pub(super) acknowledged: u64,
    /// Operations that were sent after it, in order.
    pub(super) pending: Vec<Operation>,
    /// The last operation whose effect another client has read.
    pub(super) told: u64,
    /// The last operation that was drawn.
    pub(super) drawn: u64,
    /// Answers that no server should give.
    pub(super) findings: Vec<String>,
}

/// What the clients of one server share.
pub(super) struct Shared {
    pub(super) address: Address,
    /// Different keys of each kind.
    pub(super) keys: u64,
    /// Whether the server is to evict keys.
    pub(super) evicts: bool,
    /// One batch in so many begins with a flood of answers.
    pub(super) floods: u32,
    /// For each client the last operation whose effect another client has read.
    pub(super) told: Vec<AtomicU64>,
    /// Operations that were acknowledged.
    pub(super) acknowledged: AtomicU64,
    /// Clients whose connection has ended, or that got none.
    pub(super) ended: AtomicU64,
    /// Reads that were answered.
    pub(super) read: AtomicU64,
}

/// The database of a client.
pub(super) fn database(client: usize) -> usize {
    client + 1
}

/// What stands in the pipeline.
enum Sent {
    Operation(Operation),
    /// A read of another client's newest values, between two SELECTs.
    Peek(usize),
    /// Reads with more answer than the server writes at once.
    Flood,
    /// Reads of the own keys, for what they do to the server: they take steps of rehashing, and unpack lists.
    Reads(usize),
}

/// The clients' end of one connection.
struct Talk<'a> {
    shared: &'a Shared,
    client: usize,
    connection: RespConnection,
    ledger: ClientLedger,
    generator: Generator,
    sent: VecDeque<Sent>,
}

/// Works until the connection ends.
pub(super) fn work(shared: &Shared, client: usize, ledger: ClientLedger, rng: StdRng) -> ClientLedger {
    let Ok(connection) = RespConnection::open(&shared.address) else {
        shared.ended.fetch_add(1, Ordering::Relaxed);
        return ledger;
    };
    let generator = Generator::new(rng, shared.keys, shared.evicts, ledger.drawn);
    let mut talk = Talk { shared, client, connection, ledger, generator, sent: VecDeque::new() };
    let ended = talk.run();
    shared.ended.fetch_add(1, Ordering::Relaxed);
    if let Err(error) = ended
        && matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock)
    {
        talk.complain(format!("the connection failed: {error}"));
    }
    let Talk { mut ledger, generator, sent, .. } = talk;
    ledger.drawn = generator.number;
    ledger.pending = sent
        .into_iter()
        .filter_map(|sent| if let Sent::Operation(operation) = sent { Some(operation) } else { None })
        .collect();
    ledger
}

/// Reads the values of the client `of`, one at a time, until the connection ends: a server with I/O threads has these
/// reads executed there. What an answer names is there, whatever comes.
pub(super) fn listen(shared: &Shared, of: usize, mut rng: StdRng) {
    let Ok(mut connection) = RespConnection::open(&shared.address) else { return };
    let mut read = |command: Words| -> io::Result<Reply> {
        connection.add(&command);
        connection.send()?;
        connection.read()
    };
    if read(words(&["SELECT", &database(of).to_string()])).is_err() {
        return;
    }
    loop {
        let number = rng.random_range(0..shared.keys);
        let command = if rng.random_ratio(1, 2) {
            words(&["GET", &format!("s:{number}")])
        } else {
            words(&["HGET", &format!("h:{number}"), "n"])
        };
        let Ok(answer) = read(command) else { return };
        if let Some(number) = named(&answer) {
            shared.told[of].fetch_max(number, Ordering::Relaxed);
        }
        shared.read.fetch_add(1, Ordering::Relaxed);
    }
}

impl Talk<'_> {
    fn complain(&mut self, finding: String) {
        if self.ledger.findings.len() < FINDINGS_MAX {
            self.ledger.findings.push(format!("client {}: {finding}", self.client));
        }
    }

    fn run(&mut self) -> io::Result<()> {
        self.connection.add(&words(&["SELECT", &database(self.client).to_string()]));
        self.connection.send()?;
        self.connection.read()?;
        loop {
            if self.generator.rng.random_ratio(1, self.shared.floods) {
                self.flood();
            }
            let batch = [1, 1, 4, 16, 64][self.generator.rng.random_range(0..5)];
            for _ in 0..batch {
                self.put();
            }
            self.connection.send()?;
            while let Some(sent) = self.sent.front() {
                match sent {
                    Sent::Operation(operation) => {
                        let count = operation.commands(database(self.client)).len();
                        let replies = self.replies(count)?;
                        let Some(Sent::Operation(operation)) = self.sent.pop_front() else { unreachable!() };
                        self.acknowledge(&operation, &replies);
                    }
                    Sent::Peek(of) => {
                        let of = *of;
                        let replies = self.replies(PEEKS + 2)?;
                        self.sent.pop_front();
                        self.hear(of, &replies);
                    }
                    Sent::Flood => {
                        self.sent.pop_front();
                        for _ in 0..FLOOD {
                            self.connection.read()?;
                            let operation = self.generator.draw();
                            let commands = operation.commands(database(self.client));
                            commands.iter().for_each(|command| self.connection.add(command));
                            self.sent.push_back(Sent::Operation(operation));
                            self.connection.send()?;
                        }
                        self.shared.read.fetch_add(FLOOD as u64, Ordering::Relaxed);
                    }
                    Sent::Reads(count) => {
                        let count = *count;
                        self.replies(count)?;
                        self.sent.pop_front();
                        self.shared.read.fetch_add(count as u64, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    fn replies(&mut self, count: usize) -> io::Result<Vec<Reply>> {
        (0..count).map(|_| self.connection.read()).collect()
    }

    /// Adds one thing to do to the pipeline.
    fn put(&mut self) {
        let dice = self.generator.rng.random_range(0..10);
        if dice == 0 && self.shared.told.len() > 1 {
            let other = self.generator.rng.random_range(1..self.shared.told.len());
            let of = (self.client + other) % self.shared.told.len();
            self.connection.add(&words(&["SELECT", &database(of).to_string()]));
            self.peeks().iter().for_each(|command| self.connection.add(command));
            self.connection.add(&words(&["SELECT", &database(self.client).to_string()]));
            self.sent.push_back(Sent::Peek(of));
        } else if dice == 1 {
            let reads = self.reads();
            reads.iter().for_each(|command| self.connection.add(command));
            self.sent.push_back(Sent::Reads(reads.len()));
        } else {
            let operation = self.generator.draw();
            operation.commands(database(self.client)).iter().for_each(|command| self.connection.add(command));
            self.sent.push_back(Sent::Operation(operation));
        }
    }

    /// Reads whose answers take several writes of the server. Operations follow while the connection waits to be
    /// writable: their answers must not leave with the others.
    fn flood(&mut self) {
        let mut read = words(&["MGET"]);
        read.extend((0..self.shared.keys).map(|number| format!("s:{number}").into_bytes()));
        (0..FLOOD).for_each(|_| self.connection.add(&read));
        self.sent.push_back(Sent::Flood);
    }

    /// Commands whose answers name the operation that wrote what they read.
    fn peeks(&mut self) -> [Words; PEEKS] {
        let (s, h) = (self.generator.key("s"), self.generator.key("h"));
        let (l, x) = (self.generator.key("l"), self.generator.key("x"));
        [
            words(&["GET", &s]),
            words(&["HGET", &h, "n"]),
            words(&["LINDEX", &l, "-1"]),
            words(&["XREVRANGE", &x, "+", "-", "COUNT", "1"]),
        ]
    }

    fn reads(&mut self) -> Vec<Words> {
        let field = String::from_utf8_lossy(&self.generator.member("h:0")).into_owned();
        let (l, s) = (self.generator.key("l"), self.generator.key("s"));
        vec![
            words(&["HGET", "h:0", &field]),
            words(&["SISMEMBER", "S:0", &field]),
            words(&["LRANGE", &l, "0", "-1"]),
            words(&["SCAN", "0", "COUNT", "20"]),
            words(&["GET", &s]),
            words(&["ZRANGE", "z:0", "0", "20"]),
            words(&["RANDOMKEY"]),
        ]
    }

    /// Takes an operation's replies.
    fn acknowledge(&mut self, operation: &Operation, replies: &[Reply]) {
        let Some(last) = replies.last() else { return };
        let refused = match last {
            Reply::Error(why) => !why.contains("no such key"),
            last => *last == Reply::Nil && operation.form == Form::Transaction,
        };
        if refused {
            // For want of memory, too: the model cannot tell which of several pending ones a full server would refuse.
            self.complain(format!("operation {} is refused: {last:?}", operation.number));
            return;
        }
        if let (Form::Transaction, Reply::List(list)) = (operation.form, last) {
            let bad = list.iter().find(|r| matches!(r, Reply::Error(why) if !why.contains("no such key")));
            if let Some(bad) = bad {
                self.complain(format!("operation {}: EXEC answers {bad:?}", operation.number));
            }
        }
        for (key, change) in &operation.changes {
            apply(&mut self.ledger.state, key, change);
        }
        self.ledger.acknowledged = operation.number;
        self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the answers to [`Talk::peeks`]: what they name is there, whatever comes.
    fn hear(&mut self, of: usize, replies: &[Reply]) {
        for reply in &replies[1..=PEEKS] {
            if let Some(number) = named(reply) {
                self.shared.told[of].fetch_max(number, Ordering::Relaxed);
            }
        }
        self.shared.read.fetch_add(PEEKS as u64, Ordering::Relaxed);
    }
}

/// Commands of [`Talk::flood`].
const FLOOD: usize = 20;
/// Commands of [`Talk::peeks`].
const PEEKS: usize = 4;

/// The operation that a value names at its beginning, as does the identifier of a stream's entry.
fn named(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Text(text) => {
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
        }
        Reply::List(list) => named(list.first()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_client_that_gets_no_connection_has_ended() {
        let shared = Shared {
            address: Address::Unix("/nowhere/socket".into()),
            keys: 1,
            evicts: false,
            floods: 1,
            told: Vec::new(),
            acknowledged: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            read: AtomicU64::new(0),
        };
        work(&shared, 0, ClientLedger::default(), StdRng::seed_from_u64(1));
        assert_eq!(shared.ended.into_inner(), 1);
    }

    #[test]
    fn values_and_entries_name_their_operation() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        assert_eq!(named(&text("812:aaaa")), Some(812));
        assert_eq!(named(&text("7")), Some(7));
        assert_eq!(named(&Reply::Nil), None);
        let entry = Reply::List(vec![text("33-0"), Reply::List(vec![])]);
        assert_eq!(named(&Reply::List(vec![entry])), Some(33));
        assert_eq!(named(&Reply::List(vec![])), None);
    }
}
