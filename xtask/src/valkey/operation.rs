//! What clients do: an operation changes one or several keys, by a command, a transaction, a script or a function.

use super::model::{Bytes, KeyChange};
use super::resp::Words;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How the server is asked for an operation's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One command, one change.
    Command,
    /// MULTI and EXEC.
    Transaction,
    /// EVAL.
    Script,
    /// FCALL of [`library`].
    Function,
}

/// Moves an amount between two of the accounts that all clients share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) amount: i64,
}

/// An operation: a crash keeps all of its changes or none.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// 1, 2, 3, ... for each client.
    pub(super) number: u64,
    pub(super) form: Form,
    pub(super) changes: Vec<(String, KeyChange)>,
    pub(super) transfer: Option<Transfer>,
}

/// Accounts of [`Transfer`], in database 0; each begins with [`BALANCE`].
pub(super) const ACCOUNT_COUNT: u8 = 16;
pub(super) const BALANCE: i64 = 1_000_000;
/// Keys of a client that come one after the other and go again: its table grows, shrinks and rehashes.
const WAVE_KEYS: u64 = 3_000;
/// How far off a near deadline is, in milliseconds.
const SOON_MS: std::ops::Range<u64> = 20..700;
/// After this long all keys with near deadlines have expired.
pub(crate) const DEADLINES: Duration = Duration::from_millis(SOON_MS.end + 50);

/// The script of [`Form::Script`]: calls what its arguments spell, each command after the count of its words.
const SCRIPT: &str = "local i = 1 while i <= #ARGV do local n = tonumber(ARGV[i]) local c = {} \
    for j = 1, n do c[j] = ARGV[i + j] end redis.call(unpack(c)) i = i + n + 1 end return 1";

/// The library of [`Form::Function`]; it is part of the state.
pub(super) fn library() -> String {
    let body = SCRIPT.replace("ARGV", "args");
    format!("#!lua name=kill9\nredis.register_function('kill9', function(keys, args) {body} end)")
}

/// The key of an account.
pub(super) fn account(number: u8) -> String {
    format!("account:{number}")
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}

impl Operation {
    /// The commands that ask for it, from a client whose database is `database`.
    pub(super) fn commands(&self, database: usize) -> Vec<Words> {
        let mut changes: Vec<Words> = self.changes.iter().map(|(key, change)| command(key, change)).collect();
        if let Some(Transfer { from, to, amount }) = self.transfer {
            let select = |number: usize| super::resp::words(&["SELECT", &number.to_string()]);
            let by = |name: &str, of: u8| super::resp::words(&[name, &account(of), &amount.to_string()]);
            changes.extend([select(0), by("DECRBY", from), by("INCRBY", to), select(database)]);
        }
        let called = |mut head: Words, changes: Vec<Words>| {
            for change in changes {
                head.push(change.len().to_string().into_bytes());
                head.extend(change);
            }
            vec![head]
        };
        match self.form {
            Form::Command => changes,
            Form::Transaction => {
                changes.insert(0, super::resp::words(&["MULTI"]));
                changes.push(super::resp::words(&["EXEC"]));
                changes
            }
            Form::Script => called(super::resp::words(&["EVAL", SCRIPT, "0"]), changes),
            Form::Function => called(super::resp::words(&["FCALL", "kill9", "0"]), changes),
        }
    }
}

/// A change as a command.
fn command(key: &str, change: &KeyChange) -> Words {
    let of = |name: &str, rest: &[&[u8]]| -> Words {
        let head = [name.as_bytes(), key.as_bytes()];
        head.iter().chain(rest).map(|word| word.to_vec()).collect()
    };
    let all = |name: &str, rest: &[Bytes]| {
        let rest: Vec<&[u8]> = rest.iter().map(Vec::as_slice).collect();
        of(name, &rest)
    };
    let text = |number: u64| number.to_string().into_bytes();
    match change {
        KeyChange::Set(value) => of("SET", &[value]),
        KeyChange::SetUntil(value, deadline) => of("SET", &[value, b"PXAT", &text(*deadline)]),
        KeyChange::Append(more) => of("APPEND", &[more]),
        KeyChange::Increment(by) => of("INCRBY", &[by.to_string().as_bytes()]),
        KeyChange::Remove => of("UNLINK", &[]),
        KeyChange::HashSet(fields) => {
            all("HSET", &fields.iter().flat_map(|(f, v)| [f.clone(), v.clone()]).collect::<Vec<_>>())
        }
        KeyChange::HashRemove(field) => of("HDEL", &[field]),
        KeyChange::PushRight(values) => all("RPUSH", values),
        KeyChange::PushLeft(value) => of("LPUSH", &[value]),
        KeyChange::PopLeft => of("LPOP", &[]),
        KeyChange::Trim(most) => of("LTRIM", &[format!("-{most}").as_bytes(), b"-1"]),
        KeyChange::SetAdd(members) => all("SADD", members),
        KeyChange::SetRemove(member) => of("SREM", &[member]),
        KeyChange::SortedAdd(member, score) => of("ZADD", &[score.to_string().as_bytes(), member]),
        KeyChange::SortedRemove(member) => of("ZREM", &[member]),
        KeyChange::StreamAdd(id, value, most) => {
            let id = format!("{id}-0");
            of("XADD", &[b"MAXLEN", b"=", most.to_string().as_bytes(), id.as_bytes(), b"v", value])
        }
        KeyChange::Until(deadline) => of("PEXPIREAT", &[&text(*deadline)]),
        KeyChange::Rename(to) => of("RENAME", &[to.as_bytes()]),
        KeyChange::Copy(to) => of("COPY", &[to.as_bytes(), b"REPLACE"]),
        KeyChange::Flush => super::resp::words(&["FLUSHDB", "ASYNC"]),
    }
}

/// Draws the operations of one client.
pub(super) struct Generator {
    pub(super) rng: StdRng,
    /// Different keys of each kind.
    pub(super) keys: u64,
    /// Keys that expire are large and many, so that the server has something to evict.
    pub(super) ballast: bool,
    pub(super) number: u64,
    wave: u64,
    is_falling: bool,
}

impl Generator {
    /// Operations after `number`.
    pub(super) fn new(rng: StdRng, keys: u64, ballast: bool, number: u64) -> Self {
        Self { rng, keys, ballast, number, wave: 0, is_falling: false }
    }

    /// The next operation.
    pub(super) fn draw(&mut self) -> Operation {
        self.number += 1;
        let dice = self.rng.random_range(0..1000);
        let (form, mut changes) = match dice {
            0..650 => (Form::Command, vec![self.change()]),
            650..700 => (Form::Transaction, self.wave()),
            700..740 => (Form::Transaction, self.expiring_hash()),
            740..860 => (Form::Transaction, self.changes()),
            860..940 => (Form::Script, self.changes()),
            940..999 => (Form::Function, self.changes()),
            _ if self.rng.random_ratio(1, 4) => (Form::Command, vec![(String::new(), KeyChange::Flush)]),
            _ => (Form::Command, vec![self.change()]),
        };
        // An identifier serves once in a stream.
        let mut streams = BTreeSet::new();
        changes.retain(|(key, change)| {
            !matches!(change, KeyChange::StreamAdd(..)) || streams.insert(key.clone())
        });
        if matches!(form, Form::Script | Form::Function) {
            // A RENAME of a key that is not there would end a script half-way, as an error of any command does.
            changes.retain(|(_, change)| !matches!(change, KeyChange::Rename(_)));
            changes.push((self.key("i"), KeyChange::Increment(1)));
        }
        let transfers = form != Form::Command && self.rng.random_ratio(1, 3);
        let transfer = transfers.then(|| Transfer {
            from: self.rng.random_range(0..ACCOUNT_COUNT),
            to: self.rng.random_range(0..ACCOUNT_COUNT),
            amount: self.rng.random_range(1..100),
        });
        Operation { number: self.number, form, changes, transfer }
    }

    /// A key of a kind.
    pub(super) fn key(&mut self, kind: &str) -> String {
        format!("{kind}:{}", self.rng.random_range(0..self.keys))
    }

    fn changes(&mut self) -> Vec<(String, KeyChange)> {
        (0..self.rng.random_range(2..6)).map(|_| self.change()).collect()
    }

    /// The operation's number and some more.
    fn value(&mut self) -> Bytes {
        let sizes = [0, 3, 20, 40, 44, 45, 60, 100, 700, 5000];
        let len = sizes[self.rng.random_range(0..sizes.len())];
        let mut value = format!("{}:", self.number).into_bytes();
        value.resize(value.len() + len, b'a' + (self.number % 26) as u8);
        value
    }

    /// A field or a member: a few keys are large collections, the others small.
    pub(super) fn member(&mut self, key: &str) -> Bytes {
        let many = if key.ends_with(":0") { 2_000 } else { 30 };
        let number = self.rng.random_range(0..many);
        // Sets of numbers have an encoding of their own.
        let is_number = key.starts_with("S:") && key.ends_with(['1', '3', '5']);
        if is_number { number.to_string().into_bytes() } else { format!("m{number}").into_bytes() }
    }

    fn change(&mut self) -> (String, KeyChange) {
        match self.rng.random_range(0..100) {
            0..14 => (self.key("s"), KeyChange::Set(self.value())),
            14..20 => (self.key("s"), KeyChange::Remove),
            20..28 => self.expiring(),
            28..33 => (self.key("a"), KeyChange::Append(b"abcdefgh".repeat(3))),
            33..34 => (self.key("a"), KeyChange::Remove),
            34..40 => (self.key("i"), KeyChange::Increment(self.rng.random_range(-5..50))),
            40..43 => {
                let (from, to) = self.two_keys();
                (from, KeyChange::Copy(to))
            }
            43..45 => {
                let (from, to) = self.two_keys();
                (from, KeyChange::Rename(to))
            }
            45..57 => self.hash(),
            57..70 => self.list(),
            70..80 => self.set(),
            80..90 => self.sorted(),
            _ => {
                let most = self.rng.random_range(3..30);
                (self.key("x"), KeyChange::StreamAdd(self.number, self.value(), most))
            }
        }
    }

    /// Different ones: COPY refuses a key onto itself.
    fn two_keys(&mut self) -> (String, String) {
        let (from, mut to) = (self.key("s"), self.key("s"));
        while to == from {
            to = self.key("s");
        }
        (from, to)
    }

    fn expiring(&mut self) -> (String, KeyChange) {
        let keys = self.keys * if self.ballast { 4 } else { 1 };
        let key = format!("e:{}", self.rng.random_range(0..keys));
        let mut value = self.value();
        if self.ballast {
            value.resize(48_000, b'.');
        }
        (key, KeyChange::SetUntil(value, self.deadline()))
    }

    /// Soon, or after the end of the test.
    fn deadline(&mut self) -> u64 {
        let soon = self.rng.random_ratio(1, if self.ballast { 10 } else { 2 });
        now() + if soon { self.rng.random_range(SOON_MS) } else { 1_000_000_000 }
    }

    fn hash(&mut self) -> (String, KeyChange) {
        let key = self.key("h");
        let field = self.member(&key);
        if self.rng.random_ratio(1, 5) {
            return (key, KeyChange::HashRemove(field));
        }
        let number = self.number.to_string().into_bytes();
        (key, KeyChange::HashSet(vec![(b"n".to_vec(), number), (field, self.value())]))
    }

    fn list(&mut self) -> (String, KeyChange) {
        let key = self.key("l");
        let change = match self.rng.random_range(0..8) {
            0..4 => KeyChange::PushRight((0..self.rng.random_range(1..4)).map(|_| self.value()).collect()),
            4..5 => KeyChange::PushLeft(self.value()),
            5..6 => KeyChange::PopLeft,
            6..7 => KeyChange::Trim(if key.ends_with(":0") { 200 } else { 5 }),
            _ => KeyChange::Remove,
        };
        (key, change)
    }

    fn set(&mut self) -> (String, KeyChange) {
        let key = self.key("S");
        let member = self.member(&key);
        let change = match self.rng.random_range(0..4) {
            0 => KeyChange::SetRemove(member),
            1 => KeyChange::SetAdd(vec![member, self.member(&key), self.member(&key)]),
            _ => KeyChange::SetAdd(vec![member]),
        };
        (key, change)
    }

    fn sorted(&mut self) -> (String, KeyChange) {
        let key = self.key("z");
        let member = self.member(&key);
        let remove = self.rng.random_ratio(1, 4);
        let score = self.rng.random_range(-1_000_000..1_000_000);
        (key, if remove { KeyChange::SortedRemove(member) } else { KeyChange::SortedAdd(member, score) })
    }

    fn wave(&mut self) -> Vec<(String, KeyChange)> {
        let mut changes = Vec::new();
        for _ in 0..16 {
            let key = format!("w:{}", self.wave);
            changes
                .push((key, if self.is_falling { KeyChange::Remove } else { KeyChange::Set(b"w".to_vec()) }));
            match (self.is_falling, self.wave) {
                (false, WAVE_KEYS) => self.is_falling = true,
                (true, 0) => self.is_falling = false,
                (false, _) => self.wave += 1,
                (true, _) => self.wave -= 1,
            }
        }
        changes
    }

    fn expiring_hash(&mut self) -> Vec<(String, KeyChange)> {
        let key = self.key("E");
        let fields = (0..12).map(|_| (self.member("E:1"), self.value())).collect();
        let until = KeyChange::Until(self.deadline());
        vec![(key.clone(), KeyChange::Remove), (key.clone(), KeyChange::HashSet(fields)), (key, until)]
    }
}
