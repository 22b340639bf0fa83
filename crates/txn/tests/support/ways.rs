//! Every executor and protocol that a heap can have on this machine.

use mangrove_shadow::FlushInstruction;
use mangrove_txn::{
    Domain, Executor, HardwareLimits, Heap, HeapOptions, Latency, Medium, Protocol, StmOptions,
};

const EMULATED: Medium = Medium::Emulated(Latency::new(0, 0));

/// The executors; the model aborts now and then for no reason.
pub(crate) fn executors() -> Vec<Executor> {
    let model = HardwareLimits { spurious_per_million: 2_000, ..HardwareLimits::default() };
    let mut executors =
        vec![Executor::Records(StmOptions::default()), Executor::OneLock, Executor::HardwareModel(model)];
    if mangrove_sys::rtm().commits() {
        executors.push(Executor::Rtm);
    }
    executors
}

/// Options for each, and its name. Protocols with time stamps are left out where the machine has none.
pub(crate) fn ways() -> Vec<(String, HeapOptions)> {
    let mut ways = Vec::new();
    for executor in executors() {
        let options = Heap::options().executor(executor);
        ways.push((format!("{executor}, file"), options.clone().medium(Medium::File)));
        let options = options.medium(EMULATED);
        for (protocol, domain) in [
            (Protocol::OneFence, Domain::Adr),
            (Protocol::OneFence, Domain::Eadr),
            (Protocol::Spht, Domain::Adr),
            (Protocol::SphtEadr, Domain::Eadr),
            (Protocol::SphtEadrFlush, Domain::Eadr),
        ] {
            let stamps_work = mangrove_sys::tsc().unusable.is_none();
            let stamps_fit = !matches!(executor, Executor::Records(_));
            if protocol.is_stamped() && !(stamps_work && stamps_fit) {
                continue;
            }
            let options = options.clone().protocol(protocol).domain(domain);
            let options = if protocol == Protocol::SphtEadrFlush {
                options.flush_instruction(FlushInstruction::detect())
            } else {
                options
            };
            ways.push((format!("{executor}, {protocol}, {domain:?}"), options));
        }
    }
    ways
}

/// Runs `test` with each, in an empty directory. What fails names its own.
pub(crate) fn on_each_way(mut test: impl FnMut(HeapOptions, &std::path::Path)) {
    for (name, options) in ways() {
        eprintln!("with {name}:");
        let folder = tempfile::tempdir().unwrap();
        test(options, &folder.path().join("heap"));
    }
}
