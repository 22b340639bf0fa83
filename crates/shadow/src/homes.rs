//! Where the rings lie, and where the replayer's threads run, on a machine with several NUMA nodes. On one node nothing
//! of it is done.
//!
//! The medium decides what can be chosen:
//!
//! - dax: rings and durable copy lie on the node that the device is attached to. Nothing can be moved; the replayer's
//!   threads run there, since they write no other memory.
//! - emulated, and dax on a device of unknown place: each ring has a home, and a thread leases a ring of its own node
//!   while there is one. The replayer's threads are dealt to the nodes; a page of the durable copy that no thread has
//!   touched comes from the node of the thread whose stripe it lies in.

use mangrove_pool::{MediumKind, Pool};
use mangrove_sys::{NumaNode, Topology, current_cpu, node_of_device, prefer_node, run_on};
use std::os::fd::AsFd;

/// The nodes that matter; none on a machine with one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    nodes: Vec<NumaNode>,
    /// By its index in `nodes`: all of the medium lies there.
    medium: Option<usize>,
}

impl Homes {
    /// Those of this machine, for the pool's medium.
    pub(crate) fn of_machine(pool: &Pool) -> Self {
        let nodes = Topology::detect().nodes().to_vec();
        if nodes.len() < 2 {
            return Self::default();
        }
        let device = match pool.info().medium {
            MediumKind::Dax => pool.image_file().ok().flatten().and_then(|file| node_of_device(file.as_fd())),
            _ => None,
        };
        Self::of(nodes, device)
    }

    /// For these nodes, and a medium that lies on the node with the number `device`, if that is known.
    pub(crate) fn of(mut nodes: Vec<NumaNode>, device: Option<usize>) -> Self {
        // No thread runs on a node that has memory only.
        nodes.retain(|node| !node.cpus.is_empty());
        if nodes.len() < 2 {
            return Self::default();
        }
        let medium = device.and_then(|id| nodes.iter().position(|node| node.id == id));
        Self { nodes, medium }
    }

    /// The node where a ring has its home; none where that makes no difference.
    fn of_ring(&self, log: usize) -> Option<&NumaNode> {
        if self.medium.is_some() { None } else { self.nodes.get(log.checked_rem(self.nodes.len())?) }
    }

    /// The node for the replayer's thread `number` of `count`: the first one merges the logs, too. None: anywhere.
    fn of_replayer(&self, number: usize, count: usize) -> Option<&NumaNode> {
        // One thread alone writes to all nodes.
        let dealt = || if count > 1 { number.checked_rem(self.nodes.len()) } else { None };
        self.nodes.get(self.medium.or_else(dealt)?)
    }

    /// Which rings a thread on this CPU should lease while there is one: those that the answer is true of.
    #[inline]
    fn is_near(&self, cpu: usize, log: usize) -> bool {
        self.of_ring(log).is_none_or(|home| home.cpus.binary_search(&cpu).is_ok())
    }

    /// As `is_near`, for the calling thread.
    #[inline]
    pub(crate) fn near_rings(&self) -> impl Fn(usize) -> bool + '_ {
        let cpu = if self.nodes.is_empty() { 0 } else { current_cpu() };
        move |log| self.is_near(cpu, log)
    }

    /// Asks the system for the ring's memory on its home.
    pub(crate) fn place_ring(&self, log: usize, address: *mut u8, bytes: usize) {
        if let Some(home) = self.of_ring(log) {
            // A wish: where the system refuses, the ring works from another node.
            let _ = prefer_node(address.addr(), bytes, home.id);
        }
    }

    /// The calling thread is the replayer's thread `number` of `count`: it goes to its node.
    pub(crate) fn settle_replayer(&self, number: usize, count: usize) {
        if let Some(node) = self.of_replayer(number, count) {
            // A wish: the process may not have these CPUs.
            run_on(&node.cpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(cpus: &[(usize, &[usize])]) -> Vec<NumaNode> {
        cpus.iter().map(|&(id, cpus)| NumaNode { id, cpus: cpus.to_vec() }).collect()
    }

    fn home(homes: &Homes, log: usize) -> Option<usize> {
        homes.of_ring(log).map(|node| node.id)
    }

    fn replayers(homes: &Homes) -> Vec<Option<usize>> {
        (0..4).map(|number| homes.of_replayer(number, 4).map(|node| node.id)).collect()
    }

    #[test]
    fn on_one_node_nothing_is_placed() {
        for nodes in [nodes(&[(0, &[0, 1])]), nodes(&[(0, &[0, 1]), (2, &[])])] {
            for device in [None, Some(0), Some(2)] {
                let homes = Homes::of(nodes.clone(), device);
                assert!(homes.nodes.is_empty() && homes.medium.is_none());
                assert_eq!((home(&homes, 5), replayers(&homes)), (None, vec![None; 4]));
                assert!((0..64).all(|log| homes.is_near(1, log)));
            }
        }
    }

    /// Node 3 has memory only.
    #[test]
    fn rings_and_replayers_are_dealt_to_the_nodes_with_cpus() {
        let homes = Homes::of(nodes(&[(0, &[0, 1, 4]), (3, &[]), (7, &[2, 3])]), None);
        assert_eq!([0, 1, 2, 63].map(|log| home(&homes, log)), [Some(0), Some(7), Some(0), Some(7)]);
        assert_eq!(replayers(&homes), [Some(0), Some(7), Some(0), Some(7)]);
        assert_eq!(homes.of_replayer(0, 1), None, "one thread alone writes to both");
        for (cpu, near) in [(0, 0), (4, 0), (2, 1), (3, 1)] {
            assert!((0..64).all(|log| homes.is_near(cpu, log) == (log % 2 == near)), "CPU {cpu}");
        }
        assert!((0..64).all(|log| !homes.is_near(9, log)), "a CPU that came later has no rings of its own");
    }

    #[test]
    fn where_the_device_has_a_node_the_replayers_run_there_and_rings_have_no_home() {
        let two = nodes(&[(0, &[0, 1]), (1, &[2, 3])]);
        let homes = Homes::of(two.clone(), Some(1));
        assert_eq!((home(&homes, 0), replayers(&homes)), (None, vec![Some(1); 4]));
        assert_eq!(homes.of_replayer(0, 1).map(|node| node.id), Some(1));
        assert!((0..4).all(|cpu| (0..64).all(|log| homes.is_near(cpu, log))));
        // A device of a node without CPUs is far from all of them.
        let homes = Homes::of(two, Some(2));
        assert_eq!((home(&homes, 1), replayers(&homes)[1]), (Some(1), Some(1)));
    }
}
