//! Is a recorded history opaque (and so its committed part strictly serializable)?
//!
//! The history consists of attempts: those that committed, and those that were undone, which count as transactions
//! that only read. All values written are different, and whoever writes a word has read it before; so it is known
//! from whom each read took its value, and in which order the writers of a word follow each other. Then the history
//! is opaque if and only if no read took a value that was undone, replaced by its own writer, or from nowhere; no two
//! writers replaced the same value; and the attempts can be sorted so that each follows those that ended before it
//! began, those whose values it read, and (reader before writer) those that read what it replaced. (The graph
//! characterization of Guerraoui and Kapalka, PPoPP 2008, section 5, with a version order that is forced.)

use std::collections::HashMap;

/// One access of an attempt, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A read of a word gave a value.
    Read(usize, u64),
    /// A write of a value to a word.
    Write(usize, u64),
}

/// One run of a body.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// A moment before it began.
    pub(crate) begin: u64,
    /// A moment after it ended; for one that was undone, after its last access.
    pub(crate) end: u64,
    /// Whether it committed.
    pub(crate) committed: bool,
    /// Its accesses.
    pub(crate) events: Vec<Event>,
}

/// What is wrong with a history.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A value that no attempt wrote.
    FromNowhere { attempt: usize, value: u64 },
    /// A value that was undone, or that its writer replaced before it committed.
    Dirty { attempt: usize, from: usize },
    /// Two reads of one word in one attempt differ, or a read misses the attempt's own write.
    Unstable { attempt: usize, word: usize },
    /// Two committed attempts replaced the same value.
    LostUpdate { one: usize, other: usize },
    /// These attempts cannot be sorted.
    Circle(Vec<usize>),
}

/// A word and a value that it held.
type Place = (usize, u64);

/// Who wrote a value: an attempt, or nobody (the initial value).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Origin {
    writer: Option<usize>,
    last: bool,
}

/// Checks a history over words that held `initial` in the beginning.
///
/// # Panics
/// When the history was not recorded as the module demands.
pub(crate) fn check(attempts: &[Attempt], initial: &[u64]) -> Result<(), Violation> {
    let mut origins: HashMap<Place, Origin> = initial
        .iter()
        .enumerate()
        .map(|(word, &v)| ((word, v), Origin { writer: None, last: true }))
        .collect();
    for (writer, attempt) in attempts.iter().enumerate() {
        let mut last = HashMap::new();
        for event in &attempt.events {
            if let Event::Write(word, value) = *event {
                let origin = Origin { writer: Some(writer), last: false };
                assert!(origins.insert((word, value), origin).is_none(), "values are written once");
                last.insert(word, value);
            }
        }
        last.into_iter().for_each(|place| origins.get_mut(&place).expect("written").last = true);
    }
    let mut readers: HashMap<Place, Vec<usize>> = HashMap::new();
    let mut replacers: HashMap<Place, usize> = HashMap::new();
    let mut graph = Graph::new(attempts);
    for (this, attempt) in attempts.iter().enumerate() {
        for ((word, value), replaces) in outer_reads(this, attempt)? {
            let origin =
                origins.get(&(word, value)).ok_or(Violation::FromNowhere { attempt: this, value })?;
            if let Some(from) = origin.writer {
                if from == this || !attempts[from].committed || !origin.last {
                    return Err(Violation::Dirty { attempt: this, from });
                }
                graph.edge(from, this);
            }
            readers.entry((word, value)).or_default().push(this);
            if replaces
                && attempt.committed
                && let Some(other) = replacers.insert((word, value), this)
            {
                return Err(Violation::LostUpdate { one: other, other: this });
            }
        }
    }
    for (place, writer) in replacers {
        for &reader in readers[&place].iter().filter(|reader| **reader != writer) {
            graph.edge(reader, writer);
        }
    }
    graph.sort()
}

/// What an attempt read of others, and whether it wrote that word later.
fn outer_reads(this: usize, attempt: &Attempt) -> Result<Vec<(Place, bool)>, Violation> {
    let (mut seen, mut own) = (HashMap::new(), HashMap::new());
    for event in &attempt.events {
        match *event {
            Event::Read(word, value) => {
                let expected = own.get(&word).or_else(|| seen.get(&word)).copied();
                if expected.is_some_and(|expected| expected != value) {
                    return Err(Violation::Unstable { attempt: this, word });
                }
                seen.entry(word).or_insert(value);
            }
            Event::Write(word, value) => {
                assert!(seen.contains_key(&word), "a word is read before it is written");
                own.insert(word, value);
            }
        }
    }
    Ok(seen.into_iter().map(|place| (place, own.contains_key(&place.0))).collect())
}

/// Attempts, and moments in their order: an attempt that ended before another began comes before it by way of the
/// moments between.
struct Graph {
    attempts: usize,
    edges: Vec<Vec<usize>>,
}

impl Graph {
    fn new(attempts: &[Attempt]) -> Self {
        let mut moments: Vec<u64> =
            attempts.iter().flat_map(|attempt| [attempt.begin, attempt.end]).collect();
        moments.sort_unstable();
        moments.dedup();
        let node = |moment: u64| attempts.len() + moments.binary_search(&moment).expect("collected");
        let mut edges = vec![Vec::new(); attempts.len() + moments.len()];
        for (this, attempt) in attempts.iter().enumerate() {
            assert!(attempt.begin < attempt.end, "time passes");
            edges[node(attempt.begin)].push(this);
            edges[this].push(node(attempt.end));
        }
        (1..moments.len()).for_each(|i| edges[attempts.len() + i - 1].push(attempts.len() + i));
        Self { attempts: attempts.len(), edges }
    }

    fn edge(&mut self, before: usize, after: usize) {
        self.edges[before].push(after);
    }

    /// Sorts; what is left when no node without a predecessor is, holds a circle.
    fn sort(self) -> Result<(), Violation> {
        let mut before = vec![0; self.edges.len()];
        self.edges.iter().flatten().for_each(|to| before[*to] += 1);
        let mut free: Vec<usize> = (0..before.len()).filter(|node| before[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for &to in &self.edges[node] {
                before[to] -= 1;
                if before[to] == 0 {
                    free.push(to);
                }
            }
        }
        let left: Vec<usize> = (0..self.attempts).filter(|node| before[*node] > 0).collect();
        if left.is_empty() { Ok(()) } else { Err(Violation::Circle(left)) }
    }
}
