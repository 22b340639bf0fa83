//! What every section needs: the parsed arguments, the inputs, the report.

use crate::harness::media::BenchMedium;
use crate::harness::own_path::{emptied, own_path};
use crate::harness::store::StoreKind;
use crate::report::report::{BenchReport, FigureUnit, RowKey};
use crate::subjects::{self, IndexKind, MangroveC};
use crate::{Keys, MapArgs, Workload};
use anyhow::{Context as _, bail};
use mangrove_pool::Latency;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// The directory of [`MapBench::loaded_dir`].
const LOADED: &str = "loaded";

/// One run of the bench.
pub(crate) struct MapBench<'a> {
    pub(crate) args: MapArgs,
    pub(crate) report: BenchReport,
    pub(crate) subjects: Vec<IndexKind>,
    /// Subjects that only the section `threads` measures.
    pub(crate) subjects_of_threads: Vec<IndexKind>,
    /// Mangrove first, then the peers that are built in.
    pub(crate) stores: Vec<&'a dyn StoreKind>,
    /// Mangrove through its C API, for the sections that time calls.
    pub(crate) c_door: Option<&'a dyn StoreKind>,
    pub(crate) media: Vec<(String, BenchMedium)>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) threads: Vec<usize>,
    /// How to start this program as a child of the bench; `None` where it cannot be (a test).
    pub(crate) child: Option<Vec<OsString>>,
    keys: HashMap<(Workload, usize), Arc<Keys>>,
}

impl<'a> MapBench<'a> {
    /// Parses the arguments.
    pub(crate) fn new(args: MapArgs, stores: Vec<&'a dyn StoreKind>) -> anyhow::Result<Self> {
        let media: Vec<_> = args
            .media
            .iter()
            .map(|m| Ok((m.trim().to_owned(), BenchMedium::parse(m)?)))
            .collect::<anyhow::Result<_>>()?;
        let workloads = args.workloads.iter().map(|w| Workload::parse(w)).collect::<anyhow::Result<_>>()?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if args.threads.is_empty() { (1..=cpus).collect() } else { args.threads.clone() };
        if threads.contains(&0) {
            bail!("--threads takes numbers from 1 on");
        }
        let wanted = |name: &str| {
            args.subjects.is_empty() || args.subjects.iter().any(|s| s.eq_ignore_ascii_case(name))
        };
        let chosen =
            |all: Vec<IndexKind>| -> Vec<IndexKind> { all.into_iter().filter(|s| wanted(s.name)).collect() };
        let (subjects, subjects_of_threads) = (chosen(subjects::all()), chosen(subjects::of_threads()));
        let stores: Vec<_> = stores.into_iter().filter(|s| wanted(s.name())).collect();
        if let Some(unknown) = args.subjects.iter().find(|name| {
            !subjects.iter().chain(&subjects_of_threads).any(|s| s.name.eq_ignore_ascii_case(name))
                && !stores.iter().any(|s| s.name().eq_ignore_ascii_case(name))
                && !MangroveC::NAME.eq_ignore_ascii_case(name)
        }) {
            bail!(
                "there is no subject '{unknown}' in this build (peers need a build with the feature `peers`)"
            );
        }
        let report = BenchReport::default();
        Ok(Self {
            args,
            report,
            subjects,
            subjects_of_threads,
            stores,
            c_door: None,
            media,
            workloads,
            threads,
            child: None,
            keys: HashMap::new(),
        })
    }

    /// Whether a subject was asked for, by its name or by naming none.
    pub(crate) fn wants_subject(&self, name: &str) -> bool {
        self.args.subjects.is_empty() || self.args.subjects.iter().any(|s| s.eq_ignore_ascii_case(name))
    }

    /// Seconds of a synced-put measurement.
    pub(crate) fn seconds(&self) -> f64 {
        self.args.run.seconds_or(3.0)
    }

    /// Records of the Sequential and Random workloads.
    pub(crate) fn records(&self) -> usize {
        self.args.records as usize
    }

    /// The keys of a workload, made once.
    pub(crate) fn keys(&mut self, workload: Workload, records: usize) -> anyhow::Result<Arc<Keys>> {
        if let Some(keys) = self.keys.get(&(workload, records)) {
            return Ok(Arc::clone(keys));
        }
        // Dictionary has its own number of records, except in smoke tests.
        let limit =
            if workload == Workload::Dictionary && !self.args.run.quick { usize::MAX } else { records };
        let keys = Arc::new(workload.keys(limit, self.args.seed)?);
        self.keys.insert((workload, records), Arc::clone(&keys));
        Ok(keys)
    }

    /// The emulated media of this run.
    pub(crate) fn emulated(&self) -> Vec<(String, Latency)> {
        let of = |(name, medium): &(String, BenchMedium)| match medium {
            BenchMedium::Emulated(latency) => Some((name.clone(), *latency)),
            BenchMedium::File => None,
        };
        self.media.iter().filter_map(of).collect()
    }

    /// True when the disk is to be measured.
    pub(crate) fn measures_disk(&self) -> bool {
        self.media.iter().any(|(_, m)| *m == BenchMedium::File)
    }

    /// The stores, and after Mangrove's Rust facade its C API.
    pub(crate) fn stores_and_c(&self) -> Vec<&'a dyn StoreKind> {
        let mut stores = self.stores.clone();
        if let Some(c) = self.c_door {
            stores.insert(1.min(stores.len()), c);
        }
        stores
    }

    /// Adds a figure to the report.
    pub(crate) fn add(&mut self, line: &TableLine<'_>, subject: &str, unit: FigureUnit, value: f64) {
        let key = RowKey {
            section: line.section,
            medium: line.medium.to_owned(),
            workload: line.workload.to_owned(),
            operation: line.operation.to_owned(),
            threads: line.threads,
            subject: subject.to_owned(),
        };
        self.report.add(key, unit, value);
    }

    /// Where stores lie that were loaded once for several sections: below `--dir`, removed when the bench ends.
    pub(crate) fn loaded_dir(&self) -> anyhow::Result<PathBuf> {
        let dir = own_path(&self.args.dir, LOADED);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }

    /// An empty directory for one store, below `--dir`.
    pub(crate) fn fresh_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        emptied(own_path(&self.args.dir, name))
    }
}

impl Drop for MapBench<'_> {
    fn drop(&mut self) {
        // A child process shares the directory of the bench that started it.
        if self.args.child.is_none() {
            let _ = std::fs::remove_dir_all(own_path(&self.args.dir, LOADED));
        }
    }
}

/// A line of a table: everything of a [`RowKey`] but the subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableLine<'a> {
    pub(crate) section: &'static str,
    pub(crate) medium: &'a str,
    pub(crate) workload: &'a str,
    pub(crate) operation: &'a str,
    pub(crate) threads: usize,
}
