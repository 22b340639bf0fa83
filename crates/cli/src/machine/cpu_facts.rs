//! What `mangrove doctor` says about the CPUs: hardware transactions, time stamp counters, NUMA nodes.

use mangrove_sys::{RTM_TRIAL_COUNT, Rtm, Topology, Tsc, cpu_list};
use serde_json::{Value, json};

/// The facts. Nothing of Mangrove depends on them yet.
pub(crate) struct CpuFacts {
    rtm: Rtm,
    tsc: Tsc,
    topology: Topology,
}

impl CpuFacts {
    /// Those of this machine. Takes a few milliseconds, ten seconds at most where the machine is busy.
    pub(crate) fn find() -> Self {
        Self { rtm: mangrove_sys::rtm(), tsc: mangrove_sys::tsc(), topology: Topology::detect() }
    }

    /// Rows of the table.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let nodes = self.topology.nodes().iter().map(|node| match node.cpus.is_empty() {
            true => format!("{} without CPUs", node.id),
            false => format!("{} with CPUs {}", node.id, cpu_list(&node.cpus)),
        });
        // Lists of CPUs have commas, so nodes are separated by semicolons.
        vec![
            ("RTM (hardware transactions)", self.rtm.to_string()),
            ("time stamp counter", tsc_sentence(&self.tsc)),
            ("NUMA nodes", nodes.collect::<Vec<_>>().join("; ")),
        ]
    }

    /// `present`: the instructions are there; `committed` of `tried` small transactions did, both 0 where none was
    /// tried.
    pub(crate) fn rtm_json(&self) -> Value {
        let (committed, tried) = match self.rtm {
            Rtm::Commits { count } => (count, RTM_TRIAL_COUNT),
            Rtm::NeverCommitted { .. } => (0, RTM_TRIAL_COUNT),
            _ => (0, 0),
        };
        json!({
            "present": self.rtm.has_instructions(),
            "commits": self.rtm.commits(),
            "committed": committed,
            "tried": tried,
            "why": self.rtm.to_string(),
        })
    }

    /// `consistent` is null when it was not found out; `why` is null when stamps are usable.
    pub(crate) fn tsc_json(&self) -> Value {
        json!({
            "rdtscp": self.tsc.has_rdtscp,
            "invariant": self.tsc.is_invariant,
            "consistent": self.tsc.is_consistent,
            "usable": self.tsc.unusable.is_none(),
            "why": self.tsc.unusable,
        })
    }

    pub(crate) fn numa_json(&self) -> Value {
        let nodes = self.topology.nodes().iter();
        nodes.map(|node| json!({ "node": node.id, "cpus": node.cpus })).collect()
    }
}

fn tsc_sentence(tsc: &Tsc) -> String {
    match &tsc.unusable {
        None => "invariant, and consistent among CPUs".to_owned(),
        Some(why) => format!("orders no events of different CPUs: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(rtm: Rtm, is_consistent: Option<bool>) -> CpuFacts {
        let is_good = is_consistent == Some(true);
        let unusable = (!is_good).then(|| "the counters disagree".to_owned());
        let tsc = Tsc { has_rdtscp: true, is_invariant: true, is_consistent, unusable };
        CpuFacts { rtm, tsc, topology: Topology::detect() }
    }

    #[test]
    fn each_kind_of_machine_is_told_in_text_and_json() {
        let status = mangrove_sys::AbortStatus::from_bits(0);
        for (rtm, said, numbers) in [
            (Rtm::Absent, "not there", [json!(false), json!(false), json!(0), json!(0)]),
            (Rtm::AlwaysAborts, "every transaction aborts", [json!(true), json!(false), json!(0), json!(0)]),
            (
                Rtm::NeverCommitted { last: status },
                "none of 2000 small transactions committed (last abort: no reason)",
                [json!(true), json!(false), json!(0), json!(2000)],
            ),
            (
                Rtm::Commits { count: 1999 },
                "1999 of 2000 small transactions committed",
                [json!(true), json!(true), json!(1999), json!(2000)],
            ),
        ] {
            let facts = facts(rtm, Some(true));
            let (name, text) = &facts.rows()[0];
            assert!(name.starts_with("RTM") && text.contains(said), "{text}");
            let json = facts.rtm_json();
            assert_eq!(["present", "commits", "committed", "tried"].map(|key| json[key].clone()), numbers);
            assert_eq!(json["why"], text.as_str());
        }
    }

    #[test]
    fn counters_that_are_no_clock_are_told_with_the_reason() {
        for is_consistent in [Some(true), Some(false), None] {
            let facts = facts(Rtm::Absent, is_consistent);
            let (_, text) = &facts.rows()[1];
            let json = facts.tsc_json();
            let is_good = is_consistent == Some(true);
            assert_eq!(
                (json["usable"].as_bool(), json["consistent"].as_bool()),
                (Some(is_good), is_consistent)
            );
            assert_eq!(json["why"].as_str(), (!is_good).then_some("the counters disagree"));
            assert_eq!(text.contains("the counters disagree"), !is_good, "{text}");
            assert_eq!(text.starts_with("invariant"), is_good, "{text}");
        }
    }
}
