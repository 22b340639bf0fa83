//! What one client's database holds: the reference that a server is compared with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) type Bytes = Vec<u8>;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ModelValue {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Sorted(BTreeMap<Bytes, i64>),
    /// Identifiers, and the one field of each entry.
    Stream(Vec<(u64, Bytes)>),
}

impl ModelValue {
    /// True for what the server removes together with its last element. A stream stays.
    fn is_gone(&self) -> bool {
        match self {
            Self::Text(_) | Self::Stream(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::Sorted(sorted) => sorted.is_empty(),
        }
    }
}

/// A key's value and the instant at which it expires, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) value: ModelValue,
    pub(super) deadline: Option<u64>,
}

/// A database.
pub(super) type State = BTreeMap<String, Entry>;

/// One change of one key.
#[derive(Clone, Debug)]
pub(super) enum KeyChange {
    Set(Bytes),
    SetUntil(Bytes, u64),
    Append(Bytes),
    Increment(i64),
    /// UNLINK.
    Remove,
    HashSet(Vec<(Bytes, Bytes)>),
    HashRemove(Bytes),
    PushRight(Vec<Bytes>),
    PushLeft(Bytes),
    PopLeft,
    /// LTRIM to the last so many.
    Trim(usize),
    SetAdd(Vec<Bytes>),
    SetRemove(Bytes),
    SortedAdd(Bytes, i64),
    SortedRemove(Bytes),
    /// XADD with MAXLEN.
    StreamAdd(u64, Bytes, usize),
    /// PEXPIREAT of a key that the same transaction has made.
    Until(u64),
    /// RENAME to another key.
    Rename(String),
    /// COPY to another key, REPLACE.
    Copy(String),
    /// FLUSHDB ASYNC; the key says nothing.
    Flush,
}

/// The hash, list, ... under a key, made if it is not there.
macro_rules! of_kind {
    ($state:expr, $key:expr, $kind:ident) => {{
        let new = || Entry { value: ModelValue::$kind(Default::default()), deadline: None };
        match &mut $state.entry($key.to_owned()).or_insert_with(new).value {
            ModelValue::$kind(value) => value,
            other => panic!("{} is a key of another kind: {other:?}", $key),
        }
    }};
}

/// Applies a change, as the server does.
pub(super) fn apply(state: &mut State, key: &str, change: &KeyChange) {
    let plain = |value| Entry { value: ModelValue::Text(value), deadline: None };
    match change {
        KeyChange::Set(value) => {
            state.insert(key.into(), plain(value.clone()));
        }
        KeyChange::SetUntil(value, deadline) => {
            state.insert(key.into(), Entry { deadline: Some(*deadline), ..plain(value.clone()) });
        }
        KeyChange::Append(more) => of_kind!(state, key, Text).extend_from_slice(more),
        KeyChange::Increment(by) => {
            let text = of_kind!(state, key, Text);
            let number: i64 = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).unwrap_or(0);
            *text = (number + by).to_string().into_bytes();
        }
        KeyChange::Remove => {
            state.remove(key);
        }
        KeyChange::HashSet(fields) => of_kind!(state, key, Hash).extend(fields.iter().cloned()),
        KeyChange::HashRemove(field) => {
            of_kind!(state, key, Hash).remove(field);
        }
        KeyChange::PushRight(values) => of_kind!(state, key, List).extend(values.iter().cloned()),
        KeyChange::PushLeft(value) => of_kind!(state, key, List).push_front(value.clone()),
        KeyChange::PopLeft => {
            of_kind!(state, key, List).pop_front();
        }
        KeyChange::Trim(most) => {
            let list = of_kind!(state, key, List);
            list.drain(..list.len().saturating_sub(*most));
        }
        KeyChange::SetAdd(members) => of_kind!(state, key, Set).extend(members.iter().cloned()),
        KeyChange::SetRemove(member) => {
            of_kind!(state, key, Set).remove(member);
        }
        KeyChange::SortedAdd(member, score) => {
            of_kind!(state, key, Sorted).insert(member.clone(), *score);
        }
        KeyChange::SortedRemove(member) => {
            of_kind!(state, key, Sorted).remove(member);
        }
        KeyChange::StreamAdd(id, value, most) => {
            let stream = of_kind!(state, key, Stream);
            stream.push((*id, value.clone()));
            stream.drain(..stream.len().saturating_sub(*most));
        }
        KeyChange::Until(deadline) => {
            if let Some(entry) = state.get_mut(key) {
                entry.deadline = Some(*deadline);
            }
        }
        KeyChange::Rename(to) => {
            if let Some(entry) = state.remove(key) {
                state.insert(to.clone(), entry);
            }
        }
        KeyChange::Copy(to) => {
            if let Some(entry) = state.get(key).cloned() {
                state.insert(to.clone(), entry);
            }
        }
        KeyChange::Flush => state.clear(),
    }
    if state.get(key).is_some_and(|entry| entry.value.is_gone()) {
        state.remove(key);
    }
}

/// The keys that `change` of `key` may make different; none stands for all.
pub(super) fn touched<'a>(key: &'a str, change: &'a KeyChange) -> Option<Vec<&'a str>> {
    match change {
        KeyChange::Flush => None,
        KeyChange::Rename(to) | KeyChange::Copy(to) => Some(vec![key, to]),
        _ => Some(vec![key]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_goes_with_its_last_element_and_a_stream_stays() {
        let mut state = State::new();
        apply(&mut state, "h", &KeyChange::HashSet(vec![(b"f".to_vec(), b"1".to_vec())]));
        apply(&mut state, "h", &KeyChange::HashRemove(b"f".to_vec()));
        apply(&mut state, "l", &KeyChange::PopLeft);
        apply(&mut state, "x", &KeyChange::StreamAdd(1, b"1".to_vec(), 0));
        assert_eq!(state.keys().collect::<Vec<_>>(), ["x"]);
        apply(&mut state, "i", &KeyChange::Increment(5));
        apply(&mut state, "i", &KeyChange::Increment(-7));
        apply(&mut state, "i", &KeyChange::Copy("j".into()));
        assert_eq!(state["j"].value, ModelValue::Text(b"-2".to_vec()));
        apply(&mut state, "", &KeyChange::Flush);
        assert!(state.is_empty());
    }
}
