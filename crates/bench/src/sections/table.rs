//! The sections of `mangrove bench map`, in the order of the report.

use super::{
    batches, bitflip, deletes, floors, gets, killed_open, looks, memory, mixes, operations, overwrites,
    persists, ranges, recovery, scale, synced_puts, threads, values, ycsb,
};
use crate::harness::context::MapBench;

/// A section.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    /// One line for `--only list`, and the table's caption.
    pub(crate) title: &'static str,
    /// It measures the disk; the others measure emulated memory.
    pub(crate) on_disk: bool,
    pub(crate) run: fn(&mut MapBench<'_>) -> anyhow::Result<()>,
}

/// All of them in the order of the report.
pub(crate) const ALL: [Section; 19] = [
    Section {
        name: "floors",
        title: "Floors: what nobody can beat on this machine",
        on_disk: false,
        run: floors::run,
    },
    Section {
        name: "persists",
        title: "Flushes and fences per operation, counted",
        on_disk: false,
        run: persists::run,
    },
    Section {
        name: "operations",
        title: "Insertion, search, update, deletion (paper: Fig. 4-7), and in random order",
        on_disk: false,
        run: operations::run,
    },
    Section {
        name: "scale",
        title: "Number of records, Random (paper: Fig. 8)",
        on_disk: false,
        run: scale::run,
    },
    Section { name: "mixes", title: "Mixed workloads (paper: Fig. 9)", on_disk: false, run: mixes::run },
    Section {
        name: "range",
        title: "Range of 100,000 records (paper: Fig. 10a)",
        on_disk: false,
        run: ranges::run,
    },
    Section {
        name: "memory",
        title: "Memory per record (paper: Fig. 10b)",
        on_disk: false,
        run: memory::run,
    },
    Section {
        name: "recovery",
        title: "Build and recovery (paper: Fig. 10c)",
        on_disk: false,
        run: recovery::run,
    },
    Section {
        name: "threads",
        title: "Several threads (paper: Fig. 10d)",
        on_disk: false,
        run: threads::run,
    },
    Section {
        name: "puts",
        title: "Every put synced, 16-byte keys, 100-byte values",
        on_disk: true,
        run: synced_puts::run,
    },
    Section {
        name: "batches",
        title: "Batches of 1,000 synced, and unsynced fill",
        on_disk: true,
        run: batches::run,
    },
    Section { name: "gets", title: "Random gets and ordered scan", on_disk: true, run: gets::run },
    Section { name: "ycsb", title: "YCSB A, B, C and E with Zipf's law", on_disk: true, run: ycsb::run },
    Section {
        name: "overwrites",
        title: "Random overwrites of all records",
        on_disk: true,
        run: overwrites::run,
    },
    Section { name: "values", title: "Values of 1 to 100 kB", on_disk: true, run: values::run },
    Section {
        name: "deletes",
        title: "Nine of ten records deleted at random",
        on_disk: true,
        run: deletes::run,
    },
    Section {
        name: "open",
        title: "Open after SIGKILL and after a clean close",
        on_disk: true,
        run: killed_open::run,
    },
    Section {
        name: "looks",
        title: "A reader once a second beside a writer at full speed",
        on_disk: true,
        run: looks::run,
    },
    Section {
        name: "bitflip",
        title: "One bit flipped in a closed store, reopened, read through",
        on_disk: true,
        run: bitflip::run,
    },
];
