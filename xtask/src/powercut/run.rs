//! The chore: prepares, runs the rounds on each medium, reports.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::args::{Args, MediumArg};
use super::hypervisor::{self, Accelerator};
use super::initramfs;
use super::kernel::Kernel;
use super::media::GuestStorage;
use super::packages;
use super::program::{Program, Script};
use super::raw;
use super::redis::{self, ServerRounds};
use super::rig::{Rig, Totals};
use super::rounds::{Outcome, Rounds, medium};
use crate::apps::App;
use crate::tree;
use crate::valkey::{self, ClientCrowd};

/// Rounds within which an injected fault must show.
const INJECTED_ROUNDS_MAX: u64 = 10;

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    if let Some(role) = args.inside {
        return raw::run(role, &args.numbers, args.threads, args.keys, args.seed);
    }
    let folder = tree::target().join("powercut");
    let run_folder = folder.join(format!("run-{}", std::process::id()));
    std::fs::create_dir_all(&run_folder)?;
    let kernel = {
        // On a fresh machine one of two runs fetches, and the other waits for it.
        let _lock = tree::lock(&folder.join("fetch.lock"))?;
        packages::install_missing()?;
        Kernel::obtain(&folder)?
    };
    let mut bench = Bench { kernel, folder, run_folder, args, accelerator: None };
    let outcome = if bench.args.planted { bench.planted() } else { bench.honest() };
    std::fs::remove_dir_all(&bench.run_folder)?;
    outcome
}

/// What all runs share.
struct Bench {
    args: Args,
    kernel: Kernel,
    /// The kernel's cache, and what is kept after a failure.
    folder: PathBuf,
    /// The files of this run. They are removed after it; the directory is the run's own, so that two runs may be
    /// active at once.
    run_folder: PathBuf,
    accelerator: Option<Accelerator>,
}

/// One injected fault.
struct InjectedFault {
    name: &'static str,
    program: Program,
    early: bool,
    lies: bool,
}

const NONE: (bool, bool) = (false, false);

const INJECTED_FAULTS: [InjectedFault; 4] = [
    InjectedFault {
        name: "a file, acknowledged before fdatasync",
        program: Program::Raw,
        early: true,
        lies: false,
    },
    InjectedFault {
        name: "a file, on a disk that ignores flushes",
        program: Program::Raw,
        early: false,
        lies: true,
    },
    InjectedFault {
        name: "the map, acknowledged before the drain",
        program: Program::Map,
        early: true,
        lies: false,
    },
    InjectedFault {
        name: "the map, on a disk that ignores flushes",
        program: Program::Map,
        early: false,
        lies: true,
    },
];

impl Bench {
    fn honest(&mut self) -> Result<()> {
        let storages = match self.args.medium {
            MediumArg::Ext4 => vec![GuestStorage::Ext4],
            MediumArg::Dax => vec![GuestStorage::Dax],
            MediumArg::Devdax => vec![GuestStorage::Devdax],
            MediumArg::Both => vec![GuestStorage::Ext4, GuestStorage::Dax],
        };
        if self.args.program == Program::Redis {
            return self.honest_server(&storages);
        }
        let rounds: Vec<Rounds> = storages
            .into_iter()
            .map(|storage| self.rounds(storage, self.args.program, NONE))
            .collect::<Result<_>>()?;
        let clean = side_by_side(rounds, |rounds| one_medium(rounds, &self.args))?;
        ensure!(clean.into_iter().all(|clean| clean), "the store broke its word");
        Ok(())
    }

    fn honest_server(&mut self, storages: &[GuestStorage]) -> Result<()> {
        ensure!(
            self.args.examine.is_none(),
            "the clients of a server are gone: its disk cannot be judged again"
        );
        let rounds: Vec<ServerRounds> = storages
            .iter()
            .map(|storage| self.server_rounds(*storage, None, false))
            .collect::<Result<_>>()?;
        side_by_side(rounds, |mut rounds| {
            rounds.run(self.args.rounds).with_context(|| format!("seed {}", self.args.seed))?;
            println!("{}", rounds.report());
            rounds.clear()
        })?;
        Ok(())
    }

    /// The faults of a server: answers that leave before their unit is durable, and a disk that lies.
    fn planted_server(&mut self) -> Result<()> {
        let plants = [
            ("the server, without the gate of its answers", Some("gate"), false),
            ("the server, on a disk that ignores flushes", None, true),
        ];
        // What fails without a fault, as a server that is not built does, catches none.
        let mut sound = self.server_rounds(GuestStorage::Ext4, None, false)?;
        sound.run(1).context("without a fault")?;
        sound.clear()?;
        let mut missed = 0;
        for (name, plant, lies) in plants {
            let mut rounds = self.server_rounds(GuestStorage::Ext4, plant, lies)?;
            match rounds.run(INJECTED_ROUNDS_MAX) {
                Ok(()) => {
                    missed += 1;
                    println!("planted: {name}: NOT caught in {INJECTED_ROUNDS_MAX} rounds");
                }
                Err(error) => {
                    let how: Vec<String> = error.chain().map(ToString::to_string).collect();
                    let how: String = how.join(": ").chars().take(300).collect();
                    println!("planted: {name}: caught ({how})");
                }
            }
            rounds.clear()?;
        }
        ensure!(missed == 0, "the harness misses planted bugs");
        Ok(())
    }

    /// Each injected fault must be found, or the harness proves nothing.
    fn planted(&mut self) -> Result<()> {
        if self.args.program == Program::Redis {
            return self.planted_server();
        }
        // The faults of the raw program prove the harness without a map.
        let raw_only = self.args.program == Program::Raw;
        let plants: Vec<&InjectedFault> =
            INJECTED_FAULTS.iter().filter(|plant| !raw_only || plant.program == Program::Raw).collect();
        let mut caught = 0;
        let mut sound: Vec<Program> = Vec::new();
        for plant in &plants {
            if !sound.contains(&plant.program) {
                self.without_fault(plant.program)?;
                sound.push(plant.program);
            }
            let mut rounds = self.rounds(GuestStorage::Ext4, plant.program, (plant.early, plant.lies))?;
            // A lying disk may lose the whole file system, and then the checker or the mount fails: the fault is
            // found too, in another way.
            let found = match rounds.run(INJECTED_ROUNDS_MAX) {
                Ok(outcome) if outcome.verdict.is_clean() => None,
                Ok(outcome) => Some(outcome.verdict.counts()),
                Err(error) if plant.lies => {
                    Some(format!("{error:#}").lines().next().unwrap_or_default().to_owned())
                }
                Err(error) => return Err(error),
            };
            match found {
                Some(how) => {
                    caught += 1;
                    println!("planted: {}: caught ({how})", plant.name);
                }
                None => println!("planted: {}: NOT caught in {INJECTED_ROUNDS_MAX} rounds", plant.name),
            }
            rounds.clear()?;
        }
        println!("planted: {caught} of {} caught", plants.len());
        if caught < plants.len() {
            bail!("the harness misses planted bugs");
        }
        Ok(())
    }

    /// What fails without a fault, as a guest that does not boot does, catches none.
    fn without_fault(&mut self, program: Program) -> Result<()> {
        let mut rounds = self.rounds(GuestStorage::Ext4, program, NONE)?;
        let outcome = rounds.run(1).context("without a fault")?;
        ensure!(outcome.verdict.is_clean(), "without a fault: {}", outcome.verdict.counts());
        rounds.clear()
    }

    fn rounds(
        &mut self,
        storage: GuestStorage,
        program: Program,
        (early, lies): (bool, bool),
    ) -> Result<Rounds> {
        let initramfs = self.initramfs(program)?;
        let accelerator = self.accelerator(&initramfs)?;
        let rig = self.rig(storage, accelerator, initramfs, lies);
        let script = Script {
            program,
            medium: medium(storage),
            threads: self.args.threads,
            keys: self.args.keys,
            log: "16M",
            early,
        };
        let keep = if early || lies { self.run_folder.join("kept") } else { self.keep(storage) };
        Ok(Rounds::new(rig, script, keep, self.args.seed))
    }

    fn server_rounds(
        &mut self,
        storage: GuestStorage,
        plant: Option<&'static str>,
        lies: bool,
    ) -> Result<ServerRounds> {
        let initramfs = self.initramfs(Program::Redis)?;
        let accelerator = self.accelerator(&initramfs)?;
        let mut rig = self.rig(storage, accelerator, initramfs, lies);
        rig.serves = Some(redis::PORT);
        let keys = (self.args.keys / valkey::KEYS_DIVISOR).max(6);
        let crowd = ClientCrowd::new(usize::from(self.args.threads), keys, redis::FLOODS);
        let library_path = initramfs::library_path(&self.server()?)?;
        Ok(ServerRounds::new(rig, crowd, self.keep(storage), library_path, plant))
    }

    /// Where the disk is kept after a failure.
    fn keep(&self, storage: GuestStorage) -> PathBuf {
        self.args.keep.clone().unwrap_or_else(|| self.folder.join("kept")).join(storage.name())
    }

    fn rig(&self, storage: GuestStorage, accelerator: Accelerator, initramfs: PathBuf, lies: bool) -> Rig {
        Rig {
            accelerator,
            kernel: self.kernel.image.clone(),
            initramfs,
            storage,
            folder: self.run_folder.join(storage.name()),
            lies,
            serves: None,
            rng: StdRng::seed_from_u64(self.args.seed),
            totals: Totals::default(),
        }
    }

    /// The durable server.
    fn server(&self) -> Result<PathBuf> {
        self.args.binary.clone().map_or_else(|| valkey::Programs::default().durable(), Ok)
    }

    fn initramfs(&self, program: Program) -> Result<PathBuf> {
        let (name, binary) = match program {
            Program::Map | Program::Txn => {
                ("map", self.args.binary.clone().map_or_else(tree::mangrove_stress, Ok)?)
            }
            Program::Sqlite => ("sqlite", self.args.binary.clone().map_or_else(|| App::Sqlite.build(), Ok)?),
            Program::Redis => ("redis", self.server()?),
            Program::Raw => ("raw", std::env::current_exe()?),
        };
        let file = self.run_folder.join(name).with_extension("cpio");
        if !file.exists() {
            initramfs::build(&self.kernel, &binary, &file)?;
        }
        Ok(file)
    }

    fn accelerator(&mut self, initramfs: &std::path::Path) -> Result<Accelerator> {
        if let Some(accelerator) = self.args.accelerator.or(self.accelerator) {
            return Ok(accelerator);
        }
        let accelerator = hypervisor::detect(&self.kernel.image, initramfs, &self.run_folder)?;
        println!("powercut: the guest runs under {accelerator:?}");
        self.accelerator = Some(accelerator);
        Ok(accelerator)
    }
}

/// Does the work of each medium at the same time, because a guest that boots keeps only one processor busy.
fn side_by_side<R: Send, T: Send>(rounds: Vec<R>, work: impl Fn(R) -> Result<T> + Sync) -> Result<Vec<T>> {
    let ends: Vec<Result<T>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = rounds.into_iter().map(|rounds| scope.spawn(move || work(rounds))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    ends.into_iter().collect()
}

/// Runs the rounds on one medium and reports; true if nothing was wrong.
fn one_medium(mut rounds: Rounds, args: &Args) -> Result<bool> {
    let storage = rounds.rig.storage;
    let start = Instant::now();
    let outcome = match &args.examine {
        Some(kept) => rounds.examine(kept),
        None => rounds.run(args.rounds),
    };
    let outcome = outcome.with_context(|| format!("{}, seed {}", storage.name(), args.seed))?;
    report(storage, &outcome, rounds.totals(), start.elapsed().as_secs_f64());
    rounds.clear()?;
    Ok(outcome.verdict.is_clean())
}

fn report(storage: GuestStorage, outcome: &Outcome, totals: Totals, seconds: f64) {
    let Outcome { rounds, acknowledged, verified, checks_cut, verdict } = outcome;
    let mut text = format!(
        "powercut: {}: {rounds} rounds, {acknowledged} writes acknowledged, {verified} records verified, \
         {checks_cut} checks cut, {} boots of {:.1} s, {seconds:.0} s\n",
        storage.name(),
        totals.boots,
        totals.boot_seconds / totals.boots.max(1) as f64,
    );
    if storage == GuestStorage::Ext4 {
        let traffic = totals.traffic;
        text.push_str(&format!(
            "  disk: {} writes, {} flushes; the cuts took {} unflushed writes, {} of them in part; {} mounts needed e2fsck\n",
            traffic.writes, traffic.flushes, traffic.lost, traffic.torn, totals.repairs
        ));
    }
    println!("{text}  {}", verdict.counts());
}
