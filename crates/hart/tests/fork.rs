//! A child of fork writes nothing to its parent's map, and waits for no lock: no thread of it gives one back.

use mangrove_hart::{Batch, Hart, Options, WriteMode};
use mangrove_pool::{Create, Medium, PoolOptions};
use mangrove_testkit::process::in_child;
use std::sync::Barrier;

#[test]
fn a_child_that_is_forked_while_the_gate_is_closed_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let options = PoolOptions::new().create(Create::New).medium(Medium::File).capacity(16 << 20);
    let pool = options.open(folder.path().join("p")).unwrap();
    let hart = Hart::create(pool.region().clone(), &Options::default()).unwrap();
    hart.put(b"a", b"1", WriteMode::Durable).unwrap();
    let (closed, may_open) = (Barrier::new(2), Barrier::new(2));
    let status = std::thread::scope(|scope| {
        scope.spawn(|| {
            hart.without_writers(|| {
                closed.wait();
                may_open.wait();
            });
        });
        closed.wait();
        let status = in_child(|| {
            let mut batch = Batch::new();
            batch.put(b"b", b"2").put(b"c", b"3");
            assert!(hart.put(b"b", b"2", WriteMode::Durable).is_err());
            assert!(hart.delete(b"a", WriteMode::Durable).is_err());
            assert!(hart.write(batch, WriteMode::Durable).is_err());
            assert!(hart.compact().is_err());
        });
        may_open.wait();
        status
    });
    assert_eq!(status, 0);
    hart.put(b"b", b"2", WriteMode::Durable).unwrap();
    assert_eq!(hart.get(b"a").unwrap(), Some(b"1".to_vec()));
}
