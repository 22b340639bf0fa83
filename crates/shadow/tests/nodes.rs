//! NUMA nodes: a thread leases rings of its own node first, and the replayer's threads run on the nodes that they are
//! dealt to. On a machine with one node both are as if there were none, and that is what this tests there.

use mangrove_shadow::{Create, Latency, Medium, Options};
use mangrove_sys::{NumaNode, Topology, cpu_list, run_on};
use std::sync::Barrier;

/// The nodes that have CPUs which this process may use.
fn nodes() -> Vec<NumaNode> {
    let on = |node: &NumaNode| std::thread::scope(|scope| scope.spawn(|| run_on(&node.cpus)).join().unwrap());
    Topology::detect().nodes().iter().filter(|node| on(node)).cloned().collect()
}

/// Where each thread of this process with such a name may run.
fn allowed(name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let named =
        tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name));
    let status = named.filter_map(|task| std::fs::read_to_string(task.join("status")).ok());
    let list = |status: String| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:").map(|list| list.trim().to_owned()))
    };
    status.filter_map(list).collect()
}

#[test]
fn rings_are_leased_by_their_own_node_and_replayers_run_on_theirs() {
    let nodes = nodes();
    eprintln!("{} NUMA nodes", nodes.len());
    let own = allowed(std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim());
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(Create::New).medium(Medium::Emulated(Latency::default()));
    let options = options.capacity(1 << 20).log_bytes(64 << 10).log_count(8).replayers(2);
    let shadow = options.open(dir.path().join("s")).unwrap();
    shadow.grow(1 << 20).unwrap();
    for (number, name) in ["mangrove-replay", "mangrove-repl-1"].into_iter().enumerate() {
        let node = &nodes[number % nodes.len()];
        let expected = if nodes.len() > 1 { cpu_list(&node.cpus) } else { own[0].clone() };
        // It goes there when it begins.
        while allowed(name) != [expected.clone()] {
            std::thread::yield_now();
        }
    }
    let (shadow, all_leased) = (&shadow, &Barrier::new(nodes.len()));
    let homes = |index: usize| {
        assert!(run_on(&nodes[index].cpus));
        let leases: Vec<_> = (0..8 / nodes.len()).map(|_| shadow.lease()).collect();
        all_leased.wait();
        leases.iter().map(|lease| lease.log() % nodes.len()).collect::<Vec<_>>()
    };
    let leased: Vec<Vec<usize>> = std::thread::scope(|scope| {
        let homes = &homes;
        let threads: Vec<_> = (0..nodes.len()).map(|index| scope.spawn(move || homes(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (index, homes) in leased.iter().enumerate() {
        assert!(homes.iter().all(|&home| home == index), "node {index} has rings of {homes:?}");
    }
    // What the kernel says of the rings' memory.
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    maps.lines().filter(|line| line.contains("prefer")).for_each(|line| eprintln!("{line}"));
}
