//! Call sites: the places in the source whose calls order durable bytes, and the one that an injected fault
//! suppresses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a call site does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteKind {
    /// Asks for a range to reach the persistence domain.
    Flush,
    /// Orders earlier flushes.
    Fence,
    /// Waits for durability.
    Wait,
    /// Makes a file of the pool durable.
    Sync,
    /// Writes to a file of the pool and makes it durable before returning; suppressed, it is an ordinary write.
    DurableWrite,
    /// Writes to a file of the pool; suppressed, the write comes after the next call.
    LateWrite,
    /// Gives a part of the region back; suppressed, the part becomes zero in memory and no record says so.
    GiveBack,
    /// Reports that a command, or the runtime itself, wrote part of a durable application's state.
    Report,
    /// A step that is neither a flush nor a fence: a wait for other commits, or for the open batch before pages are
    /// given back; space that is asked for again.
    Step,
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Fence => "fence",
            Self::Wait => "wait",
            Self::Sync => "sync",
            Self::DurableWrite => "durable write",
            Self::LateWrite => "write order",
            Self::GiveBack => "give back",
            Self::Report => "report",
            Self::Step => "step",
        })
    }
}

impl std::str::FromStr for SiteKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use SiteKind::{DurableWrite, Fence, Flush, GiveBack, LateWrite, Report, Step, Sync, Wait};
        [Flush, Fence, Wait, Sync, DurableWrite, LateWrite, GiveBack, Report, Step]
            .into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or_else(|| format!("\"{text}\" is not a kind of site"))
    }
}

/// One call site and what it does there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteKey {
    /// The path of the source file, as given to the compiler.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
    /// What is called there.
    pub kind: SiteKind,
}

impl SiteKey {
    /// The key of a call.
    #[must_use]
    pub fn new(kind: SiteKind, site: mangrove_pool::Site) -> Self {
        Self { file: site.file().to_owned(), line: site.line(), column: site.column(), kind }
    }
}

impl fmt::Display for SiteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{} {}", self.file, self.line, self.column, self.kind)
    }
}

impl std::str::FromStr for SiteKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("\"{text}\" is not a site like crates/hart/src/hart.rs:10:5 flush");
        let (place, kind) = text.split_once(' ').ok_or_else(bad)?;
        let mut parts = place.rsplitn(3, ':');
        let mut next = || parts.next().ok_or_else(bad);
        let (column, line, file) = (next()?, next()?, next()?);
        let number = |s: &str| s.parse::<u32>().map_err(|_| bad());
        let (line, column) = (number(line)?, number(column)?);
        Ok(Self { file: file.to_owned(), line, column, kind: kind.parse()? })
    }
}

type CallKey = (SiteKind, usize);

#[derive(Default)]
struct Seen {
    /// By the address of the location first, which is cheap; equal call sites may have several addresses.
    calls: std::collections::HashMap<CallKey, (SiteKey, u64, bool)>,
    /// Calls that were suppressed.
    injections: u64,
}

/// Notes every call site that is reached, and tells which calls to suppress.
#[derive(Default)]
pub struct Sites {
    seen: Mutex<Seen>,
    injected: Option<SiteKey>,
}

impl Sites {
    /// Injects no fault.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Suppresses every call of `site`.
    #[must_use]
    pub fn without(site: SiteKey) -> Self {
        Self { seen: Mutex::default(), injected: Some(site) }
    }

    /// Notes a call; true when it must be suppressed.
    pub fn suppressed(&self, kind: SiteKind, site: mangrove_pool::Site) -> bool {
        let mut seen = self.lock();
        let entry = seen.calls.entry((kind, std::ptr::from_ref(site) as usize)).or_insert_with(|| {
            let key = SiteKey::new(kind, site);
            let hit = self.injected.as_ref() == Some(&key);
            (key, 0, hit)
        });
        entry.1 += 1;
        let hit = entry.2;
        seen.injections += u64::from(hit);
        hit
    }

    /// The call site of the injected fault.
    pub(crate) fn injected(&self) -> Option<&SiteKey> {
        self.injected.as_ref()
    }

    /// Whether a fault is injected at some call site.
    pub(crate) fn inject(&self) -> bool {
        self.injected.is_some()
    }

    /// Calls that were suppressed so far.
    pub(crate) fn injections(&self) -> u64 {
        self.lock().injections
    }

    /// Every call site that was reached, and how often.
    #[must_use]
    pub fn reached(&self) -> BTreeMap<SiteKey, u64> {
        let mut out = BTreeMap::new();
        for (key, count, _) in self.lock().calls.values() {
            *out.entry(key.clone()).or_insert(0) += count;
        }
        out
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
