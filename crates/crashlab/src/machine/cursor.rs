//! A position in a trace of cache-line events: knows at each event what a crash could leave.

use crate::machine::lines::{DirtyUnits, ImageChoice};
use crate::machine::trace::{Trace, TraceEvent};

/// Bytes that become durable together.
pub(crate) const LINE: usize = 64;

/// What survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashDomain {
    /// Caches are lost: each line has any value that it held at or after its last fence-ordered flush.
    Adr,
    /// Caches survive: memory holds exactly the stores executed.
    Eadr,
    /// A log and files: writes since the last sync are lost in any combination.
    File,
}

impl CrashDomain {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Adr, Self::Eadr, Self::File];

    /// The name that the command line uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Adr => "adr",
            Self::Eadr => "eadr",
            Self::File => "file",
        }
    }
}

impl std::str::FromStr for CrashDomain {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|d| d.name() == s)
            .ok_or_else(|| format!("\"{s}\" is not a persistence domain; choose adr, eadr or file"))
    }
}

static ZEROS: [u8; 512] = [0; 512];

/// The share of a unit (a cache line or a sector) in an image's identity: images are equal when the sums of these
/// are.
#[must_use]
pub(crate) fn unit_hash(id: u64, bytes: &[u8]) -> u64 {
    // Absent units hold zeros. The comparison is a memcmp, because most of a small pool is zero.
    if bytes.len() <= ZEROS.len() && *bytes == ZEROS[..bytes.len()] {
        return 0;
    }
    let mut h = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    for word in bytes.chunks(8) {
        let mut w = [0; 8];
        w[..word.len()].copy_from_slice(word);
        let w = u64::from_le_bytes(w);
        let product = u128::from(h ^ w) * 0xa076_1d64_78bd_642f_u128;
        h = (product as u64) ^ ((product >> 64) as u64).rotate_left(23);
    }
    h
}

/// A part of an image: the line's number and its bytes.
pub(crate) type Overlay = Vec<(u64, [u8; LINE])>;

/// The state of a simulated persistent memory at a position in a trace.
pub(crate) struct TraceCursor {
    domain: CrashDomain,
    durable: Vec<u8>,
    hash: u64,
    units: DirtyUnits<LINE>,
    /// Lines whose durable value changed since the last [`TraceCursor::take_settled`].
    settled: Vec<u64>,
}

impl TraceCursor {
    /// Starts from the durable bytes `start`.
    #[must_use]
    pub(crate) fn new(domain: CrashDomain, start: Vec<u8>) -> Self {
        assert!(start.len().is_multiple_of(LINE));
        let hash = start
            .chunks(LINE)
            .enumerate()
            .fold(0u64, |h, (i, line)| h.wrapping_add(unit_hash(i as u64, line)));
        Self { domain, durable: start, hash, units: DirtyUnits::default(), settled: Vec::new() }
    }

    /// The durable bytes.
    #[must_use]
    pub(crate) fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// The durable value of a line.
    #[must_use]
    pub(crate) fn line(&self, id: u64) -> &[u8] {
        &self.durable[id as usize * LINE..(id as usize + 1) * LINE]
    }

    /// The lines whose durable value changed since the last call.
    pub(crate) fn take_settled(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.settled)
    }

    /// True when a crash just before `event` may leave images that a crash before an earlier event cannot, or must
    /// keep promises that an earlier crash need not keep: before fences and after returns.
    #[must_use]
    pub(crate) fn is_cut(&self, trace: &Trace, event: usize) -> bool {
        let after_mark = event > 0 && matches!(trace.events[event - 1], TraceEvent::Mark(_));
        match trace.events.get(event) {
            None => true,
            Some(TraceEvent::Fence { .. }) => self.domain == CrashDomain::Adr,
            Some(TraceEvent::Store { .. } | TraceEvent::Step { .. }) if self.domain == CrashDomain::Eadr => {
                true
            }
            Some(_) => after_mark,
        }
    }

    /// How many images a crash at this point could leave (see [`DirtyUnits::combinations`]). On eADR: how many
    /// words of the store about to execute may have arrived, 0 included.
    #[must_use]
    pub(crate) fn combinations(&self, trace: &Trace, event: usize) -> u64 {
        match (self.domain, trace.events.get(event)) {
            (CrashDomain::Adr, _) => self.units.combinations(),
            (_, Some(&TraceEvent::Store { offset, len, .. })) => words(offset, len).count() as u64,
            _ => 1,
        }
    }

    /// The lines of one image that differ from the durable bytes.
    #[must_use]
    pub(crate) fn pick(&self, trace: &Trace, event: usize, choice: ImageChoice) -> Overlay {
        if self.domain == CrashDomain::Adr {
            return self.units.pick(choice);
        }
        let Some(&TraceEvent::Store { offset, len, at }) = trace.events.get(event) else { return Vec::new() };
        let count = words(offset, len).count() as u64;
        let arrived = match choice {
            ImageChoice::Index(n) => n.min(count),
            ImageChoice::Seed(seed) | ImageChoice::Extra(seed) => seed % count,
        };
        let bytes = trace.stored(at, len);
        let mut out: Overlay = Vec::new();
        for (start, n) in words(offset, len).take(arrived as usize) {
            let id = start / LINE as u64;
            if out.last().is_none_or(|(last, _)| *last != id) {
                out.push((id, self.line(id).try_into().unwrap_or([0; LINE])));
            }
            let within = (start % LINE as u64) as usize;
            let from = (start - offset) as usize;
            if let Some((_, line)) = out.last_mut() {
                line[within..within + n].copy_from_slice(&bytes[from..from + n]);
            }
        }
        out
    }

    /// The identity of the image that has `overlay` over the durable bytes.
    #[must_use]
    pub(crate) fn image_hash(&self, overlay: &Overlay) -> u64 {
        overlay.iter().fold(self.hash, |h, (id, bytes)| {
            h.wrapping_sub(unit_hash(*id, self.line(*id))).wrapping_add(unit_hash(*id, bytes))
        })
    }

    /// Executes one event.
    pub(crate) fn step(&mut self, trace: &Trace, event: usize) {
        match trace.events[event] {
            ref event @ (TraceEvent::Store { .. } | TraceEvent::Step { .. }) => {
                trace.stores(event).for_each(|(offset, bytes)| self.store(offset, bytes));
            }
            TraceEvent::Flush { offset, len, thread } if self.domain == CrashDomain::Adr => {
                for id in offset / LINE as u64..(offset + u64::from(len)).div_ceil(LINE as u64) {
                    self.units.flush(thread, id);
                }
            }
            TraceEvent::Fence { thread } if self.domain == CrashDomain::Adr => {
                let (durable, hash, settled) = (&mut self.durable, &mut self.hash, &mut self.settled);
                self.units.fence(thread, |id, bytes| settle(durable, hash, settled, id, bytes));
            }
            _ => {}
        }
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let position = offset + done as u64;
            let id = position / LINE as u64;
            let start = (position % LINE as u64) as usize;
            let n = (LINE - start).min(bytes.len() - done);
            let part = &bytes[done..done + n];
            let line = || -> [u8; LINE] { self.line(id).try_into().unwrap_or([0; LINE]) };
            if self.domain == CrashDomain::Adr {
                let durable = line();
                self.units.store(id, start, part, || durable);
            } else {
                let mut new = line();
                new[start..start + n].copy_from_slice(part);
                settle(&mut self.durable, &mut self.hash, &mut self.settled, id, &new);
            }
            done += n;
        }
    }
}

fn settle(durable: &mut [u8], hash: &mut u64, settled: &mut Vec<u64>, id: u64, bytes: &[u8; LINE]) {
    let line = &mut durable[id as usize * LINE..(id as usize + 1) * LINE];
    if line != bytes {
        *hash = hash.wrapping_sub(unit_hash(id, line)).wrapping_add(unit_hash(id, bytes));
        line.copy_from_slice(bytes);
        settled.push(id);
    }
}

/// The failure-atomic parts of a store: (offset, bytes), none across an 8-byte boundary.
fn words(offset: u64, len: u32) -> impl Iterator<Item = (u64, usize)> {
    let end = offset + u64::from(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let n = (8 - at % 8).min(end - at);
            let item = (at, n as usize);
            at += n;
            item
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lines stored in one step, as a hardware transaction does.
    #[test]
    fn a_step_is_left_whole_where_caches_survive_and_by_lines_where_not() {
        let mut trace = Trace::default();
        trace.step([(0, [1; 8].as_slice()), (LINE as u64, [2; 8].as_slice())].into_iter());
        let images = |domain, events: usize| {
            let mut at = TraceCursor::new(domain, vec![0; 2 * LINE]);
            (0..events).for_each(|event| at.step(&trace, event));
            assert!(at.is_cut(&trace, events) || domain == CrashDomain::Adr);
            let image = |n| {
                let mut bytes = at.durable().to_vec();
                for (id, line) in at.pick(&trace, events, ImageChoice::Index(n)) {
                    bytes[id as usize * LINE..][..LINE].copy_from_slice(&line);
                }
                [bytes[0], bytes[LINE]]
            };
            (0..at.combinations(&trace, events)).map(image).collect::<Vec<_>>()
        };
        assert_eq!(images(CrashDomain::Eadr, 0), [[0, 0]]);
        assert_eq!(images(CrashDomain::Eadr, 1), [[1, 2]]);
        assert_eq!(images(CrashDomain::Adr, 1), [[0, 0], [1, 0], [0, 2], [1, 2]]);
    }
}
