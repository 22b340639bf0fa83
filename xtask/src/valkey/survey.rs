//! Reads a database back and compares it with what its client knows.

use super::client::ClientLedger;
use super::model::{Entry, ModelValue, State, apply, touched};
use super::operation::{self, ACCOUNT_COUNT, BALANCE};
use super::resp::{Reply, RespConnection, Words, words};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// Lists the keys of a database and the server's own counts of them, in one instant: a script's clock stands.
const LIST: &str = "redis.call('SELECT', ARGV[1]) local seen, cursor, keys = {}, '0', {} repeat \
    local r = redis.call('SCAN', cursor, 'COUNT', 500) cursor = r[1] \
    for _, k in ipairs(r[2]) do if not seen[k] then seen[k] = true keys[#keys + 1] = k end end until cursor == '0' \
    local timed = 0 for _, k in ipairs(keys) do if redis.call('PTTL', k) >= 0 then timed = timed + 1 end end \
    local line = string.match(redis.call('INFO', 'keyspace'), 'db' .. ARGV[1] .. ':(%C*)') or 'expires=0,' \
    return {redis.call('DBSIZE'), tonumber(string.match(line, 'expires=(%d+)')), timed, keys}";

/// What a database was found to hold.
pub(super) struct Survey {
    state: State,
    /// The server's clock before and after.
    began: u64,
    ended: u64,
}

impl Survey {
    /// Reads the database. Findings: counts and lookups that contradict what a walk finds.
    pub(super) fn take(
        connection: &mut RespConnection,
        database: usize,
        findings: &mut Vec<String>,
    ) -> Result<Self> {
        let database = database.to_string();
        let began = clock(connection)?;
        let mut listed = connection.ask(&["EVAL", LIST, "0", &database])?.list()?;
        ensure!(listed.len() == 4, "a list of keys has four parts, not {}", listed.len());
        let keys = listed.remove(3).list()?;
        let keys: Vec<String> = keys.into_iter().map(Reply::string).collect::<Result<_>>()?;
        let counts: Vec<i64> = listed.into_iter().map(Reply::integer).collect::<Result<_>>()?;
        if counts[0] != keys.len() as i64 {
            findings.push(format!(
                "database {database}: DBSIZE is {}, SCAN finds {} keys",
                counts[0],
                keys.len()
            ));
        }
        if counts[1] != counts[2] {
            let (counted, found) = (counts[1], counts[2]);
            findings.push(format!(
                "database {database}: INFO counts {counted} keys that expire, {found} have a TTL"
            ));
        }
        connection.ask(&["SELECT", &database])?;
        let asked: Vec<Words> =
            keys.iter().flat_map(|key| [fetch(key), words(&["PEXPIRETIME", key])]).collect();
        let mut replies = connection.ask_all(&asked)?.into_iter();
        let mut state = State::new();
        for key in keys {
            let (value, deadline) = replies.next().zip(replies.next()).context("a reply is missing")?;
            let Some(value) = parse(&key, value).with_context(|| format!("the value of {key}"))? else {
                continue;
            };
            let deadline = u64::try_from(deadline.integer()?).ok();
            state.insert(key, Entry { value, deadline });
        }
        let ended = clock(connection)?;
        let survey = Self { state, began, ended };
        survey.look_up(connection, findings)?;
        Ok(survey)
    }

    pub(super) fn len(&self) -> u64 {
        self.state.len() as u64
    }

    /// What a walk over a collection finds, a lookup finds as well.
    fn look_up(&self, connection: &mut RespConnection, findings: &mut Vec<String>) -> Result<()> {
        for (key, entry) in self.state.iter().filter(|(_, entry)| entry.deadline.is_none()) {
            let (name, members) = match &entry.value {
                ModelValue::Hash(hash) => ("HMGET", hash.keys().cloned().collect::<Vec<_>>()),
                ModelValue::Set(set) => ("SMISMEMBER", set.iter().cloned().collect()),
                ModelValue::Sorted(sorted) => ("ZMSCORE", sorted.keys().cloned().collect()),
                _ => continue,
            };
            let mut command = words(&[name, key]);
            command.extend(members.iter().cloned());
            let replies = connection.ask_words(&command)?.list()?;
            let missing =
                replies.iter().filter(|reply| matches!(reply, Reply::Nil | Reply::Integer(0))).count();
            if missing > 0 {
                findings.push(format!("{key}: {name} finds {missing} of {} members not", members.len()));
            }
        }
        Ok(())
    }

    /// Whether a key is as the model has it.
    fn agrees(&self, model: &State, key: &str, evicts: bool) -> bool {
        match (model.get(key), self.state.get(key)) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(model), None) => model.deadline.is_some_and(|deadline| evicts || deadline <= self.ended),
            (Some(model), Some(found)) => {
                model == found && found.deadline.is_none_or(|deadline| deadline >= self.began)
            }
        }
    }

    fn differing(&self, model: &State, evicts: bool) -> BTreeSet<String> {
        let keys = model.keys().chain(self.state.keys().filter(|key| !model.contains_key(*key)));
        keys.filter(|key| !self.agrees(model, key, evicts)).cloned().collect()
    }

    /// Finds the operation after which everything is as it was found, and makes it the ledger's last.
    ///
    /// Nothing is lost if it is the last acknowledged one, one that was read by another client, or a later one; and
    /// nothing is torn if it exists at all. The server runs a connection's commands in order and commits in that
    /// order, so a crash keeps a prefix of a client's operations.
    pub(super) fn settle(&self, ledger: &mut ClientLedger, told: u64, evicts: bool) -> Option<String> {
        let mut model = std::mem::take(&mut ledger.state);
        let mut differing = self.differing(&model, evicts);
        let mut closest = (differing.clone(), ledger.acknowledged, String::new());
        closest.2 = self.show(&model, &differing);
        let mut last = ledger.acknowledged;
        let pending = std::mem::take(&mut ledger.pending);
        let mut next = pending.iter();
        loop {
            if differing.is_empty() && last >= told {
                break;
            }
            let Some(operation) = next.next() else {
                let (keys, number, shown) = closest;
                return Some(format!(
                    "acknowledged {}, read by others {told}, sent {}: no state of these is there; the closest is \
                     after {number} with {} keys that differ: {shown}",
                    ledger.acknowledged,
                    pending.last().map_or(ledger.acknowledged, |operation| operation.number),
                    keys.len(),
                ));
            };
            for (key, change) in &operation.changes {
                apply(&mut model, key, change);
                match touched(key, change) {
                    None => differing = self.differing(&model, evicts),
                    Some(keys) => keys.into_iter().for_each(|key| {
                        if self.agrees(&model, key, evicts) {
                            differing.remove(key);
                        } else {
                            differing.insert(key.to_owned());
                        }
                    }),
                }
            }
            last = operation.number;
            if differing.len() < closest.0.len() {
                closest = (differing.clone(), last, self.show(&model, &differing));
            }
        }
        model.retain(|key, _| self.state.contains_key(key));
        ledger.state = model;
        ledger.acknowledged = last;
        None
    }

    /// A few of the keys that differ.
    fn show(&self, model: &State, keys: &BTreeSet<String>) -> String {
        let mut lines = Vec::new();
        for key in keys.iter().take(4) {
            let (due, found) = (model.get(key), self.state.get(key));
            lines.push(format!("{key}: {}", difference(due, found)));
        }
        lines.join("; ")
    }
}

/// The server's clock, in milliseconds since 1970. In a virtual machine it is not that of this process.
fn clock(connection: &mut RespConnection) -> Result<u64> {
    let time = connection.ask(&["TIME"])?.list()?;
    let mut parts = time.into_iter().map(|part| -> Result<u64> { Ok(part.string()?.parse()?) });
    let (seconds, micros) = parts.next().zip(parts.next()).context("TIME has two parts")?;
    Ok(seconds? * 1_000 + micros? / 1_000)
}

/// The command that reads a key whole, by its kind.
fn fetch(key: &str) -> Words {
    match key.as_bytes().first() {
        Some(b'h' | b'E') => words(&["HGETALL", key]),
        Some(b'l') => words(&["LRANGE", key, "0", "-1"]),
        Some(b'S') => words(&["SMEMBERS", key]),
        Some(b'z') => words(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        Some(b'x') => words(&["XRANGE", key, "-", "+"]),
        _ => words(&["GET", key]),
    }
}

/// The answer to [`fetch`]; nothing if the key has expired since it was listed.
fn parse(key: &str, reply: Reply) -> Result<Option<ModelValue>> {
    let Reply::List(list) = reply else {
        return Ok(if reply == Reply::Nil { None } else { Some(ModelValue::Text(reply.text()?)) });
    };
    if list.is_empty() && !key.starts_with('x') {
        return Ok(None);
    }
    if key.starts_with('x') {
        let entry = |entry: Reply| -> Result<(u64, Vec<u8>)> {
            let mut parts = entry.list()?.into_iter();
            let (id, fields) = parts.next().zip(parts.next()).context("an entry has two parts")?;
            let id = id.string()?.strip_suffix("-0").context("not an identifier of ours")?.parse()?;
            Ok((id, fields.list()?.into_iter().nth(1).context("an entry without a value")?.text()?))
        };
        return Ok(Some(ModelValue::Stream(list.into_iter().map(entry).collect::<Result<_>>()?)));
    }
    let words: Vec<Vec<u8>> = list.into_iter().map(Reply::text).collect::<Result<_>>()?;
    let pairs = || words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    Ok(Some(match key.as_bytes()[0] {
        b'h' | b'E' => ModelValue::Hash(pairs().collect()),
        b'l' => ModelValue::List(words.into()),
        b'S' => ModelValue::Set(words.into_iter().collect()),
        b'z' => {
            let scores = pairs().map(|(member, score)| {
                Ok((member, std::str::from_utf8(&score)?.parse().context("a score is a whole number here")?))
            });
            ModelValue::Sorted(scores.collect::<Result<BTreeMap<_, _>>>()?)
        }
        _ => bail!("{key} is of no kind of ours"),
    }))
}

/// What is different, in a few words.
fn difference(due: Option<&Entry>, found: Option<&Entry>) -> String {
    let (due, found) = match (due, found) {
        (Some(due), Some(found)) => (due, found),
        (due, found) => {
            let say =
                |entry: Option<&Entry>| entry.map_or("nothing".into(), |e| brief(&format!("{:?}", e.value)));
            return format!("{} is due, {} is there", say(due), say(found));
        }
    };
    if due.value == found.value {
        return format!("expires at {:?} instead of {:?}", found.deadline, due.deadline);
    }
    let (due, found) = (format!("{:?}", due.value), format!("{:?}", found.value));
    // Where they part is worth more than where both begin.
    let at = due.bytes().zip(found.bytes()).take_while(|(a, b)| a == b).count().saturating_sub(20);
    let from = |text: &str| brief(text.get(at..).unwrap_or_default());
    format!("from byte {at} {} is due, {} is there", from(&due), from(&found))
}

/// The bytes of strings print as numbers in brackets: shown as text, and cut.
fn brief(text: &str) -> String {
    let mut shown = String::new();
    let mut words = text.split([',', ' ', '[', ']']).filter(|word| !word.is_empty());
    while let Some(word) = words.next().filter(|_| shown.len() < 70) {
        match word.parse::<u8>() {
            Ok(byte) if byte.is_ascii_graphic() => shown.push(byte as char),
            _ => shown.push_str(word),
        }
    }
    shown
}

/// The accounts, at the beginning.
pub(super) fn open_accounts(connection: &mut RespConnection) -> Result<()> {
    connection.ask(&["SELECT", "0"])?;
    for number in 0..ACCOUNT_COUNT {
        connection.ask(&["SETNX", &operation::account(number), &BALANCE.to_string()])?;
    }
    Ok(())
}

/// Every transfer leaves the sum of the accounts as it is.
pub(super) fn audit_accounts(connection: &mut RespConnection, findings: &mut Vec<String>) -> Result<()> {
    connection.ask(&["SELECT", "0"])?;
    let mut sum = 0;
    for number in 0..ACCOUNT_COUNT {
        sum += match connection.ask(&["GET", &operation::account(number)])? {
            Reply::Nil => 0,
            balance => balance.string()?.parse::<i64>().context("a balance is a number")?,
        };
    }
    let due = BALANCE * i64::from(ACCOUNT_COUNT);
    if sum != due {
        findings.push(format!("a transfer is torn: the accounts hold {sum} instead of {due}"));
    }
    Ok(())
}
