//! The NUMA nodes of this machine and the CPUs of each, as Linux lists them below /sys/devices/system.
//!
//! Source: Linux, Documentation/ABI/stable/sysfs-devices-node, and for the lists of CPUs
//! Documentation/admin-guide/cputopology.rst.

use std::fs;
use std::path::Path;

/// A CPU with a higher number is none: the greatest that Linux can be built for is 8,192.
const CPU_NUMBER_MAX: usize = (1 << 16) - 1;

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number; numbers may have gaps.
    pub id: usize,
    /// Its CPUs that are online, ascending. Empty for a node that has memory only.
    pub cpus: Vec<usize>,
}

/// The NUMA nodes of a machine: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<NumaNode>,
}

impl Topology {
    /// The nodes of this machine, read anew at each call. Where the system does not list them, or lists what cannot
    /// be, one node with all CPUs.
    #[must_use]
    pub fn detect() -> Self {
        Self::read(Path::new("/sys/devices/system"))
    }

    /// The nodes that the directory `system` lists in its directories `node` and `cpu`.
    fn read(system: &Path) -> Self {
        let nodes = listed_nodes(&system.join("node"));
        let nodes = nodes.unwrap_or_else(|| vec![NumaNode { id: 0, cpus: online_cpus(system) }]);
        Self { nodes }
    }

    /// These nodes, by number.
    #[cfg(test)]
    pub(crate) fn of(nodes: Vec<NumaNode>) -> Self {
        Self { nodes }
    }

    /// The nodes, by number.
    #[must_use]
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    /// The number of the node that `cpu` belongs to; `None` for a CPU that is not online.
    #[must_use]
    pub fn node_of(&self, cpu: usize) -> Option<usize> {
        self.nodes.iter().find(|node| node.cpus.binary_search(&cpu).is_ok()).map(|node| node.id)
    }
}

/// The nodes in `folder`; `None` when there is none, when one cannot be read, or when they contradict each other.
fn listed_nodes(folder: &Path) -> Option<Vec<NumaNode>> {
    let mut nodes = Vec::new();
    for entry in fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| number(name.strip_prefix("node")?)) else { continue };
        let cpus = parse_cpu_list(&fs::read_to_string(entry.path().join("cpulist")).ok()?)?;
        nodes.push(NumaNode { id, cpus });
    }
    nodes.sort_unstable_by_key(|node| node.id);
    let mut all: Vec<_> = nodes.iter().flat_map(|node| &node.cpus).copied().collect();
    all.sort_unstable();
    // A machine has CPUs, and each belongs to one node.
    let is_sound = !all.is_empty() && all.windows(2).all(|pair| pair[0] != pair[1]);
    is_sound.then_some(nodes)
}

/// The CPUs that are online, by the system's list, else as many as this process may use.
fn online_cpus(system: &Path) -> Vec<usize> {
    let list = fs::read_to_string(system.join("cpu/online")).ok();
    let listed = list.and_then(|text| parse_cpu_list(&text)).filter(|cpus| !cpus.is_empty());
    listed.unwrap_or_else(|| (0..std::thread::available_parallelism().map_or(1, usize::from)).collect())
}

/// The numbers of a list such as `0-3,8`, as Linux writes CPUs and nodes: ascending, apart from each other, and empty
/// for none. `None` for any other text.
#[must_use]
pub fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut cpus: Vec<usize> = Vec::new();
    if text.is_empty() {
        return Some(cpus);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        let follows = cpus.last().is_none_or(|&before| before < first);
        if !follows || first > last || last > CPU_NUMBER_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The list that [`parse_cpu_list`] reads; `cpus` ascend.
#[must_use]
pub fn cpu_list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|before, next| before + 1 == *next);
    let texts = runs.map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// A number in decimal digits. (`str::parse` also takes a plus sign.)
fn number(text: &str) -> Option<usize> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_decimal { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A made-up /sys/devices/system, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("mangrove-topology-{}-{name}", std::process::id()));
            fs::create_dir(&root).unwrap();
            let tree = Self(root);
            for (path, text) in files {
                let path = tree.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            tree
        }

        fn nodes(&self) -> Vec<(usize, Vec<usize>)> {
            let nodes = Topology::read(&self.0).nodes;
            nodes.into_iter().map(|node| (node.id, node.cpus)).collect()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn lists_are_read_and_written_as_linux_does() {
        for (text, cpus) in [
            ("", vec![]),
            ("0", vec![0]),
            ("0-3,8", vec![0, 1, 2, 3, 8]),
            ("0-1,4-5,7", vec![0, 1, 4, 5, 7]),
            ("65535", vec![65535]),
        ] {
            assert_eq!(parse_cpu_list(text).as_ref(), Some(&cpus), "{text:?}");
            assert_eq!(parse_cpu_list(&format!("{text}\n")).as_ref(), Some(&cpus), "{text:?}");
            assert_eq!(cpu_list(&cpus), text);
        }
        assert_eq!(parse_cpu_list("2-2"), Some(vec![2]));
        for bad in [
            " ",
            ",",
            "0,",
            ",0",
            "-",
            "1-",
            "-1",
            "3-2",
            "0-3,3",
            "4,2",
            "+1",
            "0x1",
            "0-1-2",
            "0-7:2/4",
            "0 1",
            "a",
            "0\n\n",
            "65536",
            "0-4294967296",
            "99999999999999999999",
        ] {
            assert_eq!(parse_cpu_list(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn nodes_and_their_cpus_are_found_in_order() {
        let tree = Tree::new(
            "four",
            &[
                ("node/node8/cpulist", "4-7\n"),
                ("node/node0/cpulist", "0-3,12\n"),
                ("node/node10/cpulist", "8-11\n"),
                ("node/node2/cpulist", "\n"),
                ("node/online", "0,2,8,10\n"),
                ("node/nodes/cpulist", "99\n"),
                ("node/power/control", "auto\n"),
                ("cpu/online", "0-12\n"),
            ],
        );
        let expected =
            [(0, vec![0, 1, 2, 3, 12]), (2, vec![]), (8, vec![4, 5, 6, 7]), (10, vec![8, 9, 10, 11])];
        assert_eq!(tree.nodes(), expected);
        let topology = Topology::read(&tree.0);
        for (id, cpus) in expected {
            assert!(cpus.iter().all(|&cpu| topology.node_of(cpu) == Some(id)));
        }
        assert_eq!(topology.node_of(13), None);
    }

    #[test]
    fn without_a_sound_list_there_is_one_node() {
        let online = ("cpu/online", "0,2-3\n");
        for (name, files) in [
            ("none", vec![]),
            ("no-cpulist", vec![("node/node0/meminfo", "")]),
            ("half", vec![("node/node0/cpulist", "0\n"), ("node/node1/meminfo", "")]),
            ("garbage", vec![("node/node0/cpulist", "0-\n")]),
            ("twice", vec![("node/node0/cpulist", "0-2\n"), ("node/node1/cpulist", "2-3\n")]),
            ("no-cpus", vec![("node/node0/cpulist", "\n")]),
        ] {
            let tree = Tree::new(name, &[&files[..], &[online]].concat());
            assert_eq!(tree.nodes(), [(0, vec![0, 2, 3])], "{name}");
        }
        let tree = Tree::new("nothing", &[]);
        let nodes = tree.nodes();
        assert!(nodes.len() == 1 && !nodes[0].1.is_empty() && nodes[0].1[0] == 0, "{nodes:?}");
    }

    #[test]
    fn this_machine_has_a_node_for_the_cpu_that_runs_this() {
        let topology = Topology::detect();
        for node in topology.nodes() {
            eprintln!("NUMA node {} of this machine: CPUs {}", node.id, cpu_list(&node.cpus));
        }
        assert!(topology.node_of(rustix::thread::sched_getcpu()).is_some());
    }
}
