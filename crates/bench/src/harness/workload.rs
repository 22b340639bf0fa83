//! The key sets of the HART paper, section IV-A: Dictionary, Sequential, Random.

use crate::Keys;
use anyhow::{Context, bail};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use std::path::Path;

/// Where Debian's package installs the words.
pub(crate) const DICTIONARY_PATH: &str = "/usr/share/dict/american-english-insane";

/// Longest key of any workload: the limit of the paper's leaf, and so of the baselines.
pub(crate) const KEY_BYTES_MAX: usize = 24;

/// The 62 characters of the paper's keys, in ascending order of their codes.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Characters of a Sequential key: there are 62^8 keys, and 100 million of them share their first two bytes only in
/// part, as in the paper's trace of consecutive strings.
const SEQUENTIAL_CHARS: usize = 8;

/// A key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// English words, in the order of the file.
    Dictionary,
    /// Consecutive strings over the alphabet.
    Sequential,
    /// Distinct random strings of 5 to 16 characters.
    Random,
}

impl Workload {
    /// All of them, in the paper's order.
    pub(crate) const ALL: [Self; 3] = [Self::Dictionary, Self::Sequential, Self::Random];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dictionary => "Dictionary",
            Self::Sequential => "Sequential",
            Self::Random => "Random",
        }
    }

    /// Reads a name, in any case.
    ///
    /// # Errors
    /// When there is no such workload.
    pub fn parse(name: &str) -> anyhow::Result<Self> {
        match Self::ALL.into_iter().find(|w| w.name().eq_ignore_ascii_case(name.trim())) {
            Some(w) => Ok(w),
            None => bail!("there is no workload '{name}'; choose among dictionary, sequential and random"),
        }
    }

    /// The keys, all distinct. `records` is a limit for Dictionary and the number for the others.
    ///
    /// # Errors
    /// When the dictionary is not installed.
    pub fn keys(self, records: usize, seed: u64) -> anyhow::Result<Keys> {
        match self {
            Self::Dictionary => dictionary(Path::new(DICTIONARY_PATH), records),
            Self::Sequential => Ok(sequential(records)),
            Self::Random => Ok(random(records, seed)),
        }
    }
}

/// The words of `path`, without repetitions and without words beyond [`KEY_BYTES_MAX`].
fn dictionary(path: &Path, limit: usize) -> anyhow::Result<Keys> {
    let text = std::fs::read(path).with_context(|| {
        format!(
            "the Dictionary workload needs {}; install it with: apt-get install wamerican-insane \
             (or leave the workload out: --workloads sequential,random)",
            path.display()
        )
    })?;
    let mut seen = HashSet::new();
    let mut keys = Keys::with_capacity(700_000, text.len());
    for word in text.split(|&b| b == b'\n') {
        if keys.len() == limit {
            break;
        }
        if (1..=KEY_BYTES_MAX).contains(&word.len()) && seen.insert(word) {
            keys.push(word);
        }
    }
    Ok(keys)
}

fn sequential(records: usize) -> Keys {
    let mut keys = Keys::with_capacity(records, records * SEQUENTIAL_CHARS);
    let mut key = [0u8; SEQUENTIAL_CHARS];
    for i in 0..records {
        let mut rest = i;
        for c in key.iter_mut().rev() {
            *c = ALPHABET[rest % ALPHABET.len()];
            rest /= ALPHABET.len();
        }
        keys.push(&key);
    }
    keys
}

fn random(records: usize, seed: u64) -> Keys {
    let mut rng = SmallRng::seed_from_u64(seed);
    // Distinct by a set of 128-bit keys (at most 16 characters fit in one), which needs no allocation for each.
    let mut seen: HashSet<u128> = HashSet::with_capacity(records);
    let mut keys = Keys::with_capacity(records, records * 11);
    let mut key = [0u8; 16];
    while keys.len() < records {
        let len = rng.random_range(5..=16);
        key[len..].fill(0);
        for c in &mut key[..len] {
            *c = ALPHABET[rng.random_range(0..ALPHABET.len())];
        }
        if seen.insert(u128::from_le_bytes(key)) {
            keys.push(&key[..len]);
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distinct(keys: &Keys) -> bool {
        keys.iter().collect::<HashSet<_>>().len() == keys.len()
    }

    #[test]
    fn sequential_keys_ascend_by_one() {
        let keys = sequential(10_000);
        assert_eq!(keys.len(), 10_000);
        assert_eq!(keys.get(0), b"00000000");
        assert_eq!(keys.get(62), b"00000010");
        assert!((1..keys.len()).all(|i| keys.get(i - 1) < keys.get(i)));
    }

    #[test]
    fn random_keys_are_distinct_repeatable_and_of_the_right_shape() {
        let keys = random(20_000, 7);
        assert!(distinct(&keys));
        assert!(keys.iter().all(|k| (5..=16).contains(&k.len()) && k.iter().all(u8::is_ascii_alphanumeric)));
        assert_eq!(keys.get(999), random(20_000, 7).get(999));
        assert_ne!(keys.get(999), random(20_000, 8).get(999));
    }

    #[test]
    fn a_missing_dictionary_says_how_to_get_it() {
        let error = dictionary(Path::new("/nonexistent/words"), 10).expect_err("no such file");
        assert!(format!("{error:#}").contains("apt-get install wamerican-insane"));
    }

    #[test]
    fn dictionary_words_are_distinct_and_short() -> anyhow::Result<()> {
        let dir = std::env::temp_dir().join(format!("mangrove-words-{}", std::process::id()));
        std::fs::write(&dir, "b\na\n\nb\nabcdefghijklmnopqrstuvwxyz\nab\n")?;
        let keys = dictionary(&dir, 100)?;
        std::fs::remove_file(&dir)?;
        assert_eq!(keys.iter().collect::<Vec<_>>(), [&b"b"[..], b"a", b"ab"]);
        Ok(())
    }
}
