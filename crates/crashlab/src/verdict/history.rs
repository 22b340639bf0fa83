//! Was an acknowledged write lost? The judge of every test that kills a writer (`kill9`, `powercut`).
//!
//! # What the writer reports
//!
//! One stream for all writer threads, one whole line per `write(2)`, so that the position of a line is an instant:
//!
//! ```text
//! > T N p KEY     thread T begins its operation N: put KEY, with a value that names (T, N, KEY)
//! > T N d KEY     thread T begins its operation N: delete KEY
//! < T N           operation N of thread T was acknowledged
//! ? T KEY         thread T begins to read KEY
//! : T KEY W N     it read the value of operation N of thread W
//! : T KEY -       it read nothing
//! ```
//!
//! `T` is a word without blanks that no later run uses again, `N` counts 1, 2, 3, … without gaps, `KEY` has no
//! blanks. After the crash the checker reads everything and reports:
//!
//! ```text
//! = KEY T N       KEY holds the whole, undamaged value of (T, N, KEY)
//! ! KEY WHY       KEY holds something else
//! . COUNT         that was all: COUNT keys
//! ```
//!
//! # What must hold
//!
//! 1. Nothing lost: for each key the surviving operation is one that a linearization may have put last, that is, no
//!    *acknowledged* operation on the key began after the survivor was acknowledged.
//! 2. Nothing phantom: some operation wrote the surviving value, that is, the stream has that operation, on that key.
//!    (An operation whose `>` line was still in the pipe at the kill counts as begun if it is the very next of its
//!    thread.)
//! 3. Nothing torn: every value is whole.
//! 4. A thread begins an operation only after the one before was acknowledged. So when operation N survived, every
//!    earlier one of its thread counts as acknowledged, even if the line was lost in the pipe.
//! 5. Nothing unexplained: for each key some order of the operations explains every read and what the crash left
//!    (`linear.rs`).
//!
//! A value that a check found has been *read*, so it must survive the next crash as well: it becomes the state from
//! which the next round is judged.

use super::linear::{KeyOperation, Unexplained, What, explain};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// One operation of one writer thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId {
    /// The thread's name, unique over all rounds.
    pub thread: String,
    /// 1, 2, 3, … within the thread.
    pub number: u64,
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.thread, self.number)
    }
}

#[derive(Debug)]
struct Operation {
    id: OperationId,
    deletes: bool,
    began: u64,
    acknowledged: Option<u64>,
}

/// A read of one key.
#[derive(Debug)]
struct Reading {
    thread: String,
    began: u64,
    /// When the read returned, and what.
    answered: Option<(u64, Option<OperationId>)>,
}

/// What was wrong in one check; empty lists mean that the store kept its promise.
#[derive(Debug, Default)]
pub struct HistoryVerdict {
    /// Acknowledged writes that are gone.
    pub lost: Vec<String>,
    /// Values that no operation was writing.
    pub phantom: Vec<String>,
    /// Values that are damaged.
    pub torn: Vec<String>,
    /// Results of reads, or what a crash left, that no order of the operations explains.
    pub unexplained: Vec<String>,
    /// Keys that were present and whole.
    pub found: u64,
}

impl HistoryVerdict {
    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.messages().next().is_none()
    }

    /// How many of each kind, for people.
    pub fn counts(&self) -> String {
        format!(
            "{} lost, {} phantom, {} torn, {} unexplained",
            self.lost.len(),
            self.phantom.len(),
            self.torn.len(),
            self.unexplained.len()
        )
    }

    /// All messages, the worst kind first.
    pub fn messages(&self) -> impl Iterator<Item = &String> {
        self.lost.iter().chain(&self.phantom).chain(&self.torn).chain(&self.unexplained)
    }
}

/// Everything that the writers reported since the last check, over the state found by that check.
#[derive(Debug, Default)]
pub struct History {
    /// What the last check found: each key, and the operation that wrote it.
    base: BTreeMap<String, OperationId>,
    /// Operations per key, in the order in which they began.
    operations: HashMap<String, Vec<Operation>>,
    /// The key of each operation, per thread; index 0 is operation 1.
    threads: HashMap<String, Vec<String>>,
    /// Reads per key, in the order in which they began.
    readings: HashMap<String, Vec<Reading>>,
    position: u64,
    acknowledged_total: u64,
    read_total: u64,
}

impl History {
    /// Takes one line of a writer. `Err` means that the writer broke the format: a fault of the test itself.
    pub fn line(&mut self, line: &str) -> Result<(), String> {
        self.position += 1;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            [">", thread, number, kind @ ("p" | "d"), key] => {
                let number: u64 = number.parse().map_err(|_| format!("no number in {line:?}"))?;
                let keys = self.threads.entry((*thread).to_owned()).or_default();
                if number != keys.len() as u64 + 1 {
                    return Err(format!("{line:?} follows operation {} of its thread", keys.len()));
                }
                keys.push((*key).to_owned());
                self.operations.entry((*key).to_owned()).or_default().push(Operation {
                    id: OperationId { thread: (*thread).to_owned(), number },
                    deletes: *kind == "d",
                    began: self.position,
                    acknowledged: None,
                });
                Ok(())
            }
            ["<", thread, number] => {
                let number: u64 = number.parse().map_err(|_| format!("no number in {line:?}"))?;
                let position = self.position;
                let operation = self
                    .operation_mut(thread, number)
                    .ok_or_else(|| format!("{line:?} acknowledges what never began"))?;
                if operation.acknowledged.replace(position).is_some() {
                    return Err(format!("{line:?} came twice"));
                }
                self.acknowledged_total += 1;
                Ok(())
            }
            ["?", thread, key] => {
                self.readings.entry((*key).to_owned()).or_default().push(Reading {
                    thread: (*thread).to_owned(),
                    began: self.position,
                    answered: None,
                });
                Ok(())
            }
            [":", thread, key, rest @ ..] => {
                let read = match rest {
                    ["-"] => None,
                    [writer, number] => Some(OperationId {
                        thread: (*writer).to_owned(),
                        number: number.parse().map_err(|_| format!("no number in {line:?}"))?,
                    }),
                    _ => return Err(format!("not a writer's line: {line:?}")),
                };
                let begun = self.readings.get_mut(*key);
                let reading = begun.and_then(|list| list.iter_mut().rfind(|r| r.thread == *thread));
                match reading {
                    Some(reading) if reading.answered.is_none() => {
                        reading.answered = Some((self.position, read));
                        self.read_total += 1;
                        Ok(())
                    }
                    _ => Err(format!("{line:?} answers a read that never began")),
                }
            }
            _ => Err(format!("not a writer's line: {line:?}")),
        }
    }

    /// How many operations were acknowledged since this history began, over all rounds.
    pub fn acknowledged_total(&self) -> u64 {
        self.acknowledged_total
    }

    /// How many reads returned since this history began, over all rounds.
    pub fn read_total(&self) -> u64 {
        self.read_total
    }

    /// Judges a checker's output (its `=`, `!` and `.` lines; others are ignored), and makes the state found the
    /// base of the next round. `Err` means that the checker did not finish.
    pub fn check<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) -> Result<HistoryVerdict, String> {
        let mut verdict = HistoryVerdict::default();
        let mut found: BTreeMap<String, Option<OperationId>> = BTreeMap::new();
        let mut complete = None;
        for line in lines {
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("="), Some(key), Some(rest)) => {
                    let id = rest.split_once(' ').and_then(|(thread, number)| {
                        Some(OperationId { thread: thread.to_owned(), number: number.trim().parse().ok()? })
                    });
                    let id = id.ok_or_else(|| format!("not a checker's line: {line:?}"))?;
                    if found.insert(key.to_owned(), Some(id)).is_some() {
                        verdict.phantom.push(format!("{key} was listed twice"));
                    }
                }
                (Some("!"), Some(key), why) => {
                    verdict.torn.push(format!("{key} is damaged: {}", why.unwrap_or("no reason given")));
                    found.insert(key.to_owned(), None);
                }
                (Some("."), Some(count), None) => {
                    complete = Some(count.parse::<usize>().map_err(|_| format!("no count in {line:?}"))?);
                }
                _ => {}
            }
        }
        match complete {
            None => return Err("the checker did not finish".to_owned()),
            Some(count) if count != found.len() => {
                return Err(format!("the checker counted {count} keys and listed {}", found.len()));
            }
            Some(_) => {}
        }
        self.infer(&found);
        self.judge(&found, &mut verdict);
        self.explain(&found, &mut verdict);
        self.base = found.into_iter().filter_map(|(key, id)| Some((key, id?))).collect();
        self.operations.clear();
        self.threads.clear();
        self.readings.clear();
        Ok(verdict)
    }

    fn operation_mut(&mut self, thread: &str, number: u64) -> Option<&mut Operation> {
        let key = self.threads.get(thread)?.get(usize::try_from(number.checked_sub(1)?).ok()?)?;
        let list = self.operations.get_mut(key)?;
        list.iter_mut().rfind(|operation| operation.id.thread == thread && operation.id.number == number)
    }

    /// Rule 4, and the second sentence of rule 2: completes the stream by what the survivors prove.
    fn infer(&mut self, found: &BTreeMap<String, Option<OperationId>>) {
        let end = self.position + 1;
        for (key, id) in found.iter().filter_map(|(key, id)| Some((key, id.as_ref()?))) {
            if self.base.get(key) == Some(id) {
                continue;
            }
            let Some(keys) = self.threads.get_mut(&id.thread) else { continue };
            if id.number == keys.len() as u64 + 1 {
                keys.push(key.clone());
                self.operations.entry(key.clone()).or_default().push(Operation {
                    id: id.clone(),
                    deletes: false,
                    began: end,
                    acknowledged: None,
                });
            }
            for earlier in (1..id.number).rev() {
                match self.operation_mut(&id.thread, earlier) {
                    Some(operation) if operation.acknowledged.is_none() => {
                        operation.acknowledged = Some(end);
                    }
                    // This one is acknowledged, and so is every one before it.
                    _ => break,
                }
            }
        }
    }

    /// Rules 1 and 2.
    fn judge(&self, found: &BTreeMap<String, Option<OperationId>>, verdict: &mut HistoryVerdict) {
        for (key, id) in found {
            let Some(id) = id else { continue };
            verdict.found += 1;
            let operations = self.operations.get(key).map_or(&[][..], Vec::as_slice);
            if let Some(survivor) = operations.iter().find(|operation| operation.id == *id) {
                if survivor.deletes {
                    verdict.phantom.push(format!("{key} holds a value of {id}, which deleted it"));
                } else if let Some(later) = later_acknowledged(operations, survivor) {
                    verdict.lost.push(format!("{key} holds {id}, but {} came later", later.describe()));
                }
            } else if self.base.get(key) == Some(id) {
                if let Some(later) = operations.iter().find(|operation| operation.acknowledged.is_some()) {
                    verdict.lost.push(format!("{key} still holds {id}, but {} came later", later.describe()));
                }
            } else {
                verdict.phantom.push(format!("{key} holds a value of {id}, which never wrote it"));
            }
        }
        for key in self.base.keys().chain(self.operations.keys().filter(|key| !self.base.contains_key(*key)))
        {
            if !found.contains_key(key) {
                self.judge_absent(key, verdict);
            }
        }
    }

    /// Rule 5.
    fn explain(&self, found: &BTreeMap<String, Option<OperationId>>, verdict: &mut HistoryVerdict) {
        let mut keys: Vec<&String> = self.operations.keys().chain(self.readings.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            // A damaged value is reported already, and explains nothing.
            let after = match found.get(key) {
                Some(None) => continue,
                Some(id) => id.as_ref(),
                None => None,
            };
            let operations = self.operations.get(key).map_or(&[][..], Vec::as_slice);
            let readings = self.readings.get(key).map_or(&[][..], Vec::as_slice);
            let mut numbers = Numbers::default();
            let first = numbers.of(self.base.get(key));
            let mut accesses: Vec<KeyOperation> = Vec::new();
            for operation in operations {
                let id = (!operation.deletes).then_some(&operation.id);
                accesses.push(KeyOperation {
                    begin: operation.began,
                    end: operation.acknowledged,
                    what: What::Write(numbers.of(id)),
                });
            }
            let answered = readings.iter().filter_map(|r| Some((r, r.answered.as_ref()?)));
            for (reading, (at, read)) in answered.clone() {
                accesses.push(KeyOperation {
                    begin: reading.began,
                    end: Some(*at),
                    what: What::Read(numbers.of(read.as_ref())),
                });
            }
            let value = |id: Option<&OperationId>| id.map_or("nothing".to_owned(), ToString::to_string);
            match explain(first, &accesses, numbers.of(after)) {
                Ok(()) => {}
                Err(Unexplained::Found) => verdict.unexplained.push(format!(
                    "{key} holds {} after the crash, which no order of the operations before explains",
                    value(after)
                )),
                Err(Unexplained::Answer(n)) => {
                    let read = n.checked_sub(operations.len()).and_then(|n| answered.clone().nth(n));
                    verdict.unexplained.push(match read {
                        Some((reading, (_, read))) => format!(
                            "{} read {} in {key}, which no order of the operations explains",
                            reading.thread,
                            value(read.as_ref())
                        ),
                        None => format!("{key}: {} has no place in any order", operations[n].describe()),
                    });
                }
            }
        }
    }

    /// An absent key is right if it was absent before and nothing was acknowledged, or if a delete may have
    /// been the last operation on it.
    fn judge_absent(&self, key: &str, verdict: &mut HistoryVerdict) {
        let operations = self.operations.get(key).map_or(&[][..], Vec::as_slice);
        let acknowledged = operations.iter().rfind(|operation| operation.acknowledged.is_some());
        if !self.base.contains_key(key) && acknowledged.is_none() {
            return;
        }
        let mut deletes = operations.iter().filter(|operation| operation.deletes);
        if deletes.any(|delete| later_acknowledged(operations, delete).is_none()) {
            return;
        }
        verdict.lost.push(match (acknowledged, self.base.get(key)) {
            (Some(operation), _) => format!("{key} is absent, but {} came last", operation.describe()),
            (None, Some(id)) => format!("{key} is absent, but held {id} at the check before"),
            (None, None) => unreachable!("returned above: nothing was ever acknowledged"),
        });
    }
}

/// A number for each value of a key; 0 is absence.
#[derive(Default)]
struct Numbers(HashMap<OperationId, u32>);

impl Numbers {
    fn of(&mut self, id: Option<&OperationId>) -> u32 {
        let next = self.0.len() as u32 + 1;
        id.map_or(0, |id| *self.0.entry(id.clone()).or_insert(next))
    }
}

impl Operation {
    fn describe(&self) -> String {
        format!("the acknowledged {} {}", if self.deletes { "delete" } else { "put" }, self.id)
    }
}

/// An acknowledged operation that certainly came after `survivor`: it began after the survivor's
/// acknowledgement, or it is a later one of the same thread.
fn later_acknowledged<'a>(operations: &'a [Operation], survivor: &Operation) -> Option<&'a Operation> {
    operations.iter().find(|other| {
        other.acknowledged.is_some()
            && ((other.id.thread == survivor.id.thread && other.id.number > survivor.id.number)
                || survivor.acknowledged.is_some_and(|instant| instant < other.began))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[&str]) -> History {
        let mut history = History::default();
        for line in lines {
            history.line(line).unwrap();
        }
        history
    }

    fn counts(history: &mut History, check: &[&str]) -> (usize, usize, usize) {
        let verdict = history.check(check.iter().copied()).unwrap();
        (verdict.lost.len(), verdict.phantom.len(), verdict.torn.len())
    }

    const PUT_TWICE: &[&str] = &["> a 1 p k", "< a 1", "> a 2 p k", "< a 2"];

    #[test]
    fn the_last_acknowledged_value_is_right_and_an_older_one_is_lost() {
        assert_eq!(counts(&mut history(PUT_TWICE), &["= k a 2", ". 1"]), (0, 0, 0));
        assert_eq!(counts(&mut history(PUT_TWICE), &["= k a 1", ". 1"]), (1, 0, 0));
        assert_eq!(counts(&mut history(PUT_TWICE), &[". 0"]), (1, 0, 0));
    }

    #[test]
    fn an_operation_in_flight_may_or_may_not_have_happened() {
        let lines = &["> a 1 p k", "< a 1", "> a 2 d k"];
        assert_eq!(counts(&mut history(lines), &["= k a 1", ". 1"]), (0, 0, 0));
        assert_eq!(counts(&mut history(lines), &[". 0"]), (0, 0, 0));
    }

    #[test]
    fn two_threads_on_one_key_may_end_either_way_only_if_they_overlapped() {
        let overlapping = &["> a 1 p k", "> b 1 p k", "< a 1", "< b 1"];
        assert_eq!(counts(&mut history(overlapping), &["= k a 1", ". 1"]), (0, 0, 0));
        assert_eq!(counts(&mut history(overlapping), &["= k b 1", ". 1"]), (0, 0, 0));
        let ordered = &["> a 1 p k", "< a 1", "> b 1 p k", "< b 1"];
        assert_eq!(counts(&mut history(ordered), &["= k a 1", ". 1"]), (1, 0, 0));
    }

    #[test]
    fn a_value_that_nobody_wrote_is_a_phantom_and_a_damaged_one_is_torn() {
        assert_eq!(counts(&mut history(&[]), &["= k a 1", ". 1"]), (0, 1, 0));
        assert_eq!(counts(&mut history(PUT_TWICE), &["= k a 2", "= other a 2", ". 2"]), (0, 1, 0));
        assert_eq!(counts(&mut history(PUT_TWICE), &["! k byte 17", ". 1"]), (0, 0, 1));
        assert_eq!(counts(&mut history(PUT_TWICE), &["= k a 4", ". 1"]), (0, 1, 0));
    }

    #[test]
    fn a_survivor_proves_that_the_operation_before_it_was_acknowledged() {
        let lines = &["> a 1 p k", "> a 2 p other"];
        assert_eq!(counts(&mut history(lines), &["= other a 2", ". 1"]), (1, 0, 0));
        assert_eq!(counts(&mut history(lines), &["= other a 2", "= k a 1", ". 2"]), (0, 0, 0));
    }

    #[test]
    fn the_next_operation_may_survive_though_its_line_stayed_in_the_pipe() {
        assert_eq!(counts(&mut history(PUT_TWICE), &["= k a 3", ". 1"]), (0, 0, 0));
    }

    #[test]
    fn what_a_check_found_must_survive_the_next_crash() {
        let mut lines = history(&["> a 1 p k"]);
        assert_eq!(counts(&mut lines, &["= k a 1", ". 1"]), (0, 0, 0));
        assert_eq!(counts(&mut lines, &["= k a 1", ". 1"]), (0, 0, 0));
        assert_eq!(counts(&mut lines, &[". 0"]), (1, 0, 0));
    }

    fn unexplained(lines: &[&str], check: &[&str]) -> Vec<String> {
        history(lines).check(check.iter().copied()).unwrap().unexplained
    }

    #[test]
    fn reads_are_explained_or_not() {
        let fresh = ["> a 1 p k", "? b k", ": b k a 1", "< a 1", "? b k", ": b k a 1"];
        assert_eq!(unexplained(&fresh, &["= k a 1", ". 1"]), Vec::<String>::new());
        let stale = ["> a 1 p k", "< a 1", "? b k", ": b k -"];
        assert_eq!(unexplained(&stale, &["= k a 1", ". 1"]).len(), 1);
        let back = ["> a 1 p k", "? b k", ": b k a 1", "? c k", ": c k -"];
        assert!(unexplained(&back, &["= k a 1", ". 1"])[0].starts_with("c read nothing in k"));
        // Read before the crash and gone after it: the write was not acknowledged, but b has read its value.
        let shown = ["> a 1 p k", "? b k", ": b k a 1"];
        assert_eq!(unexplained(&shown, &[". 0"]).len(), 1);
        let unanswered = ["> a 1 p k", "? b k"];
        assert_eq!(unexplained(&unanswered, &[". 0"]), Vec::<String>::new());
        let nobodys = ["? b k", ": b k a 7"];
        assert_eq!(unexplained(&nobodys, &[". 0"]).len(), 1);
        assert!(History::default().line(": b k -").is_err());
    }

    #[test]
    fn what_a_check_found_is_what_reads_of_the_next_round_find() {
        let mut rounds = history(&["> a 1 p k"]);
        assert!(rounds.check(["= k a 1", ". 1"]).unwrap().is_clean());
        for line in ["? c k", ": c k a 1", "> d 1 d k", "? c k", ": c k -"] {
            rounds.line(line).unwrap();
        }
        assert!(rounds.check([". 0"]).unwrap().is_clean());
        for line in ["? e k", ": e k a 1"] {
            rounds.line(line).unwrap();
        }
        assert!(!rounds.check([". 0"]).unwrap().is_clean());
    }

    #[test]
    fn a_check_that_stops_half_way_is_an_error() {
        assert!(history(PUT_TWICE).check(["= k a 2"]).is_err());
        assert!(history(PUT_TWICE).check(["= k a 2", ". 2"]).is_err());
        assert!(History::default().line("< a 1").is_err());
        assert!(History::default().line("> a 2 p k").is_err());
    }
}
