//! Writes of many bytes: byte for byte after a crash, undone byte for byte, and as ranges in the log.

use mangrove_txn::{Cancel, Create, Heap, HeapOptions, Latency, Medium, StmOptions, Stop, Tx};

const EMULATED: Medium = Medium::Emulated(Latency::new(0, 0));
const BYTES: usize = 64 << 10;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn options(medium: Medium, solo: bool) -> HeapOptions {
    let executor = StmOptions { solo_after: solo.then_some(1), ..StmOptions::default() };
    let options = Heap::options().create(Create::IfMissing).medium(medium).executor(executor);
    options.capacity(32 << 20).log_bytes(64 << 10).background(false)
}

/// Some writes of 1 to 5,000 bytes, which may overlap, and words beside them; the same to the model.
fn write(tx: &mut Tx<'_>, base: usize, model: &mut [u8], random: &mut Random) -> Result<(), Stop> {
    for _ in 0..1 + random.below(4) {
        let longest = [5000, 100, 40, 9][random.below(4)];
        let len = 1 + random.below(longest);
        let (at, first) = (random.below(BYTES - len), random.below(256));
        let bytes: Vec<u8> = (0..len).map(|n| (first + n) as u8).collect();
        tx.write_bytes(base + at, &bytes)?;
        model[at..at + len].copy_from_slice(&bytes);
        if random.below(2) == 0 {
            let at = random.below(BYTES / 8) * 8;
            tx.write_bytes(base + at, &[first as u8; 8])?;
            model[at..at + 8].fill(first as u8);
        }
    }
    Ok(())
}

#[test]
fn bytes_come_back_as_the_last_commit_left_them() {
    for (medium, solo) in [(EMULATED, false), (EMULATED, true), (Medium::File, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (mut random, mut model, mut base) = (Random(9), vec![0; BYTES], None);
        for round in 0..5 {
            let heap = options(medium, solo).open(folder.path().join("heap")).unwrap();
            let at = heap
                .transaction(|tx| match base {
                    Some(at) => Ok(at),
                    None => tx.alloc_bytes_zeroed(BYTES, 8),
                })
                .unwrap();
            base = Some(at);
            let mut found = vec![1; BYTES];
            heap.read(|tx| tx.read_bytes(at, &mut found)).unwrap();
            assert!(found == model, "round {round} on {medium:?}, solo {solo}");
            for _ in 0..60 {
                let begun = (model.clone(), random.0);
                let aborts = random.below(6) == 0;
                let answer = heap.try_transaction(|tx| -> Result<(), Cancel<()>> {
                    (model, random) = (begun.0.clone(), Random(begun.1));
                    write(tx, at, &mut model, &mut random)?;
                    let kept = (model.clone(), random.below(3) == 0);
                    if kept.1 {
                        let nested = tx.nested(|tx| {
                            write(tx, at, &mut model, &mut random)?;
                            Err::<(), _>(Cancel::Abort(()))
                        });
                        assert!(matches!(nested, Err(Cancel::Abort(()))));
                        model = kept.0;
                    }
                    if aborts { Err(Cancel::Abort(())) } else { Ok(()) }
                });
                if answer.unwrap().is_err() {
                    model = begun.0;
                }
            }
        }
    }
}

/// The log takes 16 bytes beside each range of up to a KiB, not 8 beside each word.
#[test]
fn long_writes_are_ranges_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let heap = options(EMULATED, false).open(folder.path().join("heap")).unwrap();
    let base = heap.transaction(|tx| tx.alloc_bytes(BYTES, 8)).unwrap();
    for (at, len) in [(0, 4096), (3, 4096), (5, 300), (1, 100), (0, 32)] {
        let before = heap.shadow().stat().log_written;
        heap.transaction(|tx| tx.write_bytes(base + at, &vec![5; len])).unwrap();
        let written = (heap.shadow().stat().log_written - before) as usize;
        // The head, and the rest of the last line, which belongs to nobody else.
        let most = 32 + len + len.div_ceil(1024) * (16 + 16) + 63;
        assert!(written <= most, "{len} bytes at {at}: {written} bytes of log, at most {most}");
    }
}

/// Lists of a long transaction stay in proportion to what it writes, not to how often.
#[test]
fn what_is_written_again_and_again_is_noted_once() {
    let folder = tempfile::tempdir().unwrap();
    let heap = options(EMULATED, false).open(folder.path().join("heap")).unwrap();
    let base = heap.transaction(|tx| tx.alloc_bytes_zeroed(BYTES, 8)).unwrap();
    let before = heap.shadow().stat().log_written;
    let bytes = vec![7; 4096];
    heap.transaction(|tx| (0..1000).try_for_each(|_| tx.write_bytes(base, &bytes))).unwrap();
    let written = heap.shadow().stat().log_written - before;
    assert!(written < 16 * 4096, "{written} bytes of log for 4,096 bytes");
}
