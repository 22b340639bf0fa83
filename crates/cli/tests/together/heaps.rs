//! What the commands of `mangrove pool`, and `mangrove doctor`, tell about heaps.

use crate::support::Yard;
use mangrove::heap::Order;
use mangrove::{Domain, Heap, Latency, Medium};
use std::path::Path;

fn make(path: &Path, medium: Medium, domain: Domain) -> Heap {
    let options = Heap::options().medium(medium).domain(domain).capacity(16 << 20).log_bytes(64 << 10);
    let heap = options.open(path).unwrap();
    heap.transaction(|tx| {
        let pair = tx.alloc([1u64, 2])?;
        tx.set_root("pair", pair)
    })
    .unwrap();
    heap
}

fn json(yard: &Yard, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&yard.ok(args)).unwrap()
}

#[test]
fn info_tells_the_roots_of_a_heap_that_is_not_open() {
    for (medium, domain, order, protocol) in [
        (Medium::File, Domain::Auto, None, "group commit"),
        (Medium::Emulated(Latency::default()), Domain::Adr, Some(Order::Dense), "one fence"),
        (Medium::Emulated(Latency::default()), Domain::Eadr, Some(Order::Gaps), "without flush"),
    ] {
        let yard = Yard::new();
        let heap = make(&yard.path("h"), medium, domain);
        let open = json(&yard, &["pool", "info", "h", "--json"]);
        assert_eq!((&open["busy"], &open["heap"]), (&true.into(), &serde_json::Value::Null));
        let base = heap.base();
        drop(heap);
        let info = json(&yard, &["pool", "info", "h", "--json"]);
        let heap = &info["heap"];
        assert_eq!((&info["kind"], &heap["base"]), (&"heap".into(), &base.into()), "{info}");
        assert_eq!((&heap["capacity"], &heap["blocks"]), (&(16 << 20).into(), &1.into()));
        assert_eq!(heap["roots"][0]["name"], "pair");
        assert_eq!((&heap["roots"][0]["bytes"], heap["roots"].as_array().unwrap().len()), (&16.into(), 1));
        assert_eq!(heap["order"].as_str(), order.map(|order| order.to_string()).as_deref());
        assert_eq!(heap["generation"].as_u64(), order.map(|_| 1));
        let text = yard.ok(&["pool", "info", "h"]);
        assert!(text.contains(&format!("{base:#x}")) && text.contains("\"pair\": 16 bytes at"), "{text}");
        assert!(text.contains(protocol), "{text}");
        assert_eq!(json(&yard, &["pool", "check", "h", "--json"])["sound"], true);
    }
}

#[test]
fn a_damaged_heap_gets_a_sentence_each() {
    let yard = Yard::new();
    let heap = make(&yard.path("h"), Medium::File, Domain::Auto);
    heap.transaction(|tx| {
        tx.set_root("wild", mangrove::heap::Ptr::<u64>::at(4096))?;
        // The name of a root in the slot behind.
        tx.write_bytes(heap.base() + 64 + 2 * 64, &[60])
    })
    .unwrap();
    yard.fails(&["pool", "check", "h"], 3, "is in use");
    drop(heap);
    let said = yard.run(&["pool", "check", "h"]);
    let text = String::from_utf8(said.out).unwrap();
    assert_eq!((said.code, text.lines().count()), (1, 3), "{text}");
    assert!(text.contains("\"wild\" points to 8 bytes at 0x1000"), "{text}");
    assert!(text.contains("has a name of 60 bytes") && text.ends_with("2 problems\n"), "{text}");
    // Its roots cannot be listed, and the rest is told.
    let info = json(&yard, &["pool", "info", "h", "--json"]);
    assert!(info["heap_error"].as_str().unwrap().contains("has a name of 60 bytes"), "{info}");
    assert!(yard.ok(&["pool", "info", "h"]).contains("cannot be read: the heap is damaged"));
}

#[test]
fn a_backup_of_a_heap_or_a_map_is_a_pool_of_its_kind() {
    let yard = Yard::new();
    let heap = make(&yard.path("h"), Medium::File, Domain::Auto);
    yard.ok(&["pool", "backup", "h", "beside"]);
    heap.close().unwrap();
    assert_eq!(json(&yard, &["pool", "info", "beside", "--json"])["heap"]["roots"][0]["name"], "pair");
    assert!(yard.ok(&["pool", "backup", "h", "copy"]).contains("copied to copy"));
    yard.fails(&["pool", "backup", "h", "copy"], 3, "already holds a pool");
    yard.ok(&["pool", "check", "copy"]);
    let info = json(&yard, &["pool", "info", "copy", "--json"]);
    assert!(info["heap"]["next_executor"].as_str().unwrap().contains("ownership records"), "{info}");
    assert!(info["heap"]["next_protocol"].as_str().unwrap().contains("group commit"), "{info}");
    let roots = info["heap"]["roots"].clone();
    assert_eq!(roots, json(&yard, &["pool", "info", "h", "--json"])["heap"]["roots"]);
    let heap = Heap::open(yard.path("copy")).unwrap();
    let read = heap.read(|tx| {
        let pair = tx.root::<[u64; 2]>("pair")?.expect("in the copy");
        tx.read(pair)
    });
    assert_eq!(read.unwrap(), [1, 2]);
    let sample = yard.sample();
    yard.ok(&["pool", "backup", "p", "map copy"]);
    assert_eq!(yard.run(&["map", "scan", "map copy"]).out, sample);
    yard.fails(&["pool", "backup", "none", "x"], 3, "there is no pool");
}

#[test]
fn doctor_tells_what_a_heap_would_use() {
    let yard = Yard::new();
    for (domain, order, protocol) in [("adr", "dense", "one fence"), ("eadr", "gaps", "without flush")] {
        let mut command = yard.command(&["doctor", ".", "--measure", "10", "--json"]);
        let output = command.env("MANGROVE_DOMAIN", domain).output().unwrap();
        let doctor: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let plan = &doctor["heap_on_persistent_memory"];
        assert_eq!(plan["order"], order);
        assert!(plan["protocol"].as_str().unwrap().contains(protocol), "{plan}");
        let here = if doctor["choice"]["medium"] == "file" { "group commit" } else { protocol };
        assert!(doctor["heap"]["protocol"].as_str().unwrap().contains(here), "{doctor}");
        // RTM is chosen by itself only on eADR, and only where it commits.
        let automatic = doctor["heap_automatic_on_persistent_memory"]["executor"].as_str().unwrap();
        let hardware = domain == "eadr" && doctor["rtm"]["commits"] == true;
        assert!(automatic.contains(if hardware { "RTM" } else { "ownership records" }), "{doctor}");
        assert!(doctor["heap"]["executor"].as_str().unwrap().contains("ownership records"), "{doctor}");
    }
    let text = yard.ok(&["doctor", ".", "--measure", "10"]);
    assert!(text.contains("a heap would use"), "{text}");
}
