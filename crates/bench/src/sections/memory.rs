//! Bytes of DRAM and of durable memory for each record (section IV-E), counted, not estimated.

use crate::harness::context::{MapBench, TableLine};
use crate::harness::machine::allocated_bytes;
use crate::harness::media::BenchMedium;
use crate::harness::progress::SectionProgress;
use crate::report::report::FigureUnit;
use mangrove_pool::Latency;

pub(crate) const SECTION: &str = "memory";
pub(crate) const DRAM: &str = "DRAM per record";
pub(crate) const DURABLE: &str = "durable per record";

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let subjects = std::mem::take(&mut c.subjects);
    let progress = SectionProgress::new(SECTION, c.workloads.len() * subjects.len());
    for workload in c.workloads.clone() {
        let keys = c.keys(workload, c.records())?;
        for subject in &subjects {
            progress.step(format!("{} {}", subject.name, workload.name()));
            let region = BenchMedium::region(Latency::default(), keys.len())?;
            let before = allocated_bytes();
            let mut index = (subject.create)(region)?;
            super::operations::insert_all(&mut *index, &keys);
            let dram = allocated_bytes().saturating_sub(before) as f64 / keys.len() as f64;
            let durable = index.durable_bytes() as f64 / keys.len() as f64;
            for (operation, bytes) in [(DRAM, dram), (DURABLE, durable)] {
                let line = TableLine {
                    section: SECTION,
                    medium: "zero",
                    workload: workload.name(),
                    operation,
                    threads: 0,
                };
                if bytes > 0.0 {
                    c.add(&line, subject.name, FigureUnit::Bytes, bytes);
                }
            }
            progress.done();
        }
    }
    c.subjects = subjects;
    c.report.note(
        "DRAM is what the C library's allocator says is in use (mallinfo2), headers included; \
         durable bytes are those of segments, chunks, nodes and leaves in use.",
    );
    Ok(())
}
