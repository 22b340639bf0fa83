//! Pools to damage: made once, by the real code, on a simulated disk.

use crate::engines::map::MapSubject;
use crate::engines::map_model::MapModel;
use crate::engines::map_workload::workload;
use crate::engines::subject::Subject;
use crate::machine::disk::{Disk, DiskNode, DiskTree};
use crate::machine::site::Sites;
use crate::rng::Rng;
use mangrove_pool::{Create, Medium, Pool, PoolOptions};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Where the pool lies on the simulated disk.
pub(super) const POOL: &str = "/pool";
const LOG_BYTES: u64 = 64 << 10;

/// A pool as it lies on a disk, and every state that its history went through.
pub(super) struct FuzzVictim {
    pub(super) tree: DiskTree,
    pub(super) states: Vec<MapModel>,
    /// Closed in order: then the map must notice every damage.
    pub(super) clean: bool,
}

/// Options of the victims' pools on `disk`.
pub(super) fn options(disk: &Disk) -> PoolOptions {
    PoolOptions::new()
        .medium(Medium::File)
        .capacity(<MapSubject<false>>::REGION_BYTES)
        .log_bytes(LOG_BYTES)
        .kind("crashlab")
        .background(false)
        .storage(Arc::new(disk.clone()))
}

/// The pools: closed and crashed, of several workloads. Built on first use.
pub(super) fn victims() -> &'static [FuzzVictim] {
    static VICTIMS: OnceLock<Vec<FuzzVictim>> = OnceLock::new();
    VICTIMS.get_or_init(|| {
        let scenarios = ["everything", "update across classes", "extents", "batch"];
        scenarios.into_iter().flat_map(|s| [make(s, true), make(s, false)]).collect()
    })
}

fn make(scenario: &str, clean: bool) -> FuzzVictim {
    let mut tree = DiskTree::default();
    tree.folders.insert("/".into(), Default::default());
    let disk = Disk::new(tree, Arc::new(Sites::new()));
    let pool: Pool = options(&disk).create(Create::New).open(POOL).expect("a new pool on a new disk");
    let mut map = <MapSubject<false>>::create(pool.region().clone()).expect("a new map in a new pool");
    let mut states = vec![MapModel::default()];
    for (index, op) in workload(scenario, &mut Rng::new(7), false).iter().enumerate() {
        let before = states[index].clone();
        map.apply(index as u32, op, &before).expect("an operation on a sound pool");
        let mut after = before;
        after.advance(index as u32, op);
        states.push(after);
    }
    drop(map);
    if clean {
        pool.close().expect("closing a sound pool");
    } else {
        drop(pool);
    }
    let victim = FuzzVictim { tree: disk.tree(), states, clean };
    must_hold(&victim);
    victim
}

/// Panics unless the undamaged pool opens and every read of it agrees with an allowed state: of a damaged one an error
/// is accepted, so a map that reports nothing else would pass.
fn must_hold(victim: &FuzzVictim) {
    let disk = Disk::new(victim.tree.clone(), Arc::new(Sites::new()));
    let pool = options(&disk).open(POOL).expect("a pool without damage");
    let map = <MapSubject<false>>::recover(pool.region().clone()).expect("a map without damage");
    map.check().expect("a sound map");
    let holds = |state: &MapModel| map.holds(state).expect("every record of a map without damage");
    let last = &victim.states[victim.states.len() - 1];
    assert!(victim.allowed().iter().any(holds), "without damage {}", map.difference(last));
}

impl FuzzVictim {
    /// The states that the map may have.
    fn allowed(&self) -> &[MapModel] {
        if self.clean { &self.states[self.states.len() - 1..] } else { &self.states }
    }

    /// The numbers of the pool's files by name.
    pub(super) fn files(&self) -> Vec<(String, u64)> {
        let names = self.tree.folders.get(Path::new(POOL));
        let files = names.into_iter().flatten().filter_map(|(name, node)| match node {
            DiskNode::File(file) => Some((name.clone(), *file)),
            DiskNode::Folder => None,
        });
        files.collect()
    }
}

/// Opens the map on `tree` and works on it a little. `Ok(None)`: opening failed with an error.
///
/// # Errors
/// A structure that opened and then broke its own promises.
pub(super) fn try_open(tree: DiskTree, victim: &FuzzVictim, strict: bool) -> Result<Option<()>, String> {
    let disk = Disk::new(tree, Arc::new(Sites::new()));
    let Ok(pool) = options(&disk).open(POOL) else { return Ok(None) };
    let Ok(mut map) = <MapSubject<false>>::recover(pool.region().clone()) else { return Ok(None) };
    // A check may find damage, but not panic.
    let sound = map.check();
    if strict {
        let allowed = victim.allowed();
        let mut same = false;
        for state in allowed.iter().rev() {
            // A read that reports an error is not a wrong answer.
            same |= !matches!(map.holds(state), Ok(false));
        }
        if !same {
            let last = &allowed[allowed.len() - 1];
            return Err(format!("damage went unnoticed: {} (check says {sound:?})", map.difference(last)));
        }
        return Ok(Some(()));
    }
    // Whatever the map holds now: using it must neither panic nor hang.
    let mut rng = Rng::new(3);
    for (index, op) in
        <MapSubject<false>>::follow_up(&mut rng, &victim.states[victim.states.len() - 1]).iter().enumerate()
    {
        let _ = map.apply(index as u32, op, &MapModel::default());
    }
    drop(map);
    let _ = pool.close();
    Ok(Some(()))
}
