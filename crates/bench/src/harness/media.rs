//! The media of the comparison: emulated memory with the paper's latencies, and the disk.

use anyhow::{Context, bail};
use mangrove_pool::{Domain, Emulated, Latency, Region};

/// Bytes of region for each record, generous for every structure (P-ART and WOART take the most).
const REGION_BYTES_PER_RECORD: u64 = 400;
/// And at least this.
const REGION_BYTES_MIN: u64 = 16 << 20;
/// Regions up to this size are touched before the clock starts: persistent memory exists already and costs no page
/// fault.
const TOUCHED_BYTES_MAX: u64 = 4 << 30;

/// Latency that the paper takes DRAM to have: 300/100 adds 200 ns to a write and nothing to a read.
const DRAM_NS: u32 = 100;

/// A medium as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchMedium {
    /// Emulated memory; the added latencies.
    Emulated(Latency),
    /// The file system of `--dir`.
    File,
}

impl BenchMedium {
    /// Reads `zero`, `file`, or the paper's `write/read` in nanoseconds of total latency.
    pub(crate) fn parse(name: &str) -> anyhow::Result<Self> {
        match name.trim() {
            "zero" => return Ok(Self::Emulated(Latency::default())),
            "file" => return Ok(Self::File),
            _ => {}
        }
        let Some((write, read)) = name.split_once('/') else {
            bail!("there is no medium '{name}'; choose among zero, 300/100, 300/300, 600/300 and file");
        };
        let ns = |text: &str| -> anyhow::Result<u32> {
            let ns: u32 =
                text.trim().parse().with_context(|| format!("'{text}' is not a number of nanoseconds"))?;
            Ok(ns.saturating_sub(DRAM_NS))
        };
        Ok(Self::Emulated(Latency::new(ns(write)?, ns(read)?)))
    }

    /// A region of emulated memory for `records` records, all zero.
    pub(crate) fn region(latency: Latency, records: usize) -> anyhow::Result<Region> {
        let len = (records as u64 * REGION_BYTES_PER_RECORD).max(REGION_BYTES_MIN).next_multiple_of(1 << 20);
        let region = emulated(len, latency)?;
        // As of a file on persistent memory, whose pages are huge. For every structure alike.
        if let Some(base) = std::ptr::NonNull::new(region.base()) {
            // SAFETY: the region's own memory.
            unsafe { mangrove_sys::advise_huge_pages(base, len as usize) };
        }
        if len <= TOUCHED_BYTES_MAX {
            region.zero(0, len as usize);
        }
        Ok(region)
    }
}

/// Flushes are executed whatever the platform's persistence domain is: the figures are about them.
fn emulated(len: u64, latency: Latency) -> anyhow::Result<Region> {
    Ok(Emulated::region_with(len, latency, Domain::Adr)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_read_as_the_paper_names_them() -> anyhow::Result<()> {
        let of = |write_ns, read_ns| BenchMedium::Emulated(Latency::new(write_ns, read_ns));
        assert_eq!(BenchMedium::parse("300/100")?, of(200, 0));
        assert_eq!(BenchMedium::parse("600/300")?, of(500, 200));
        assert_eq!(BenchMedium::parse("zero")?, of(0, 0));
        assert_eq!(BenchMedium::parse("file")?, BenchMedium::File);
        assert!(BenchMedium::parse("tape").is_err());
        Ok(())
    }
}
