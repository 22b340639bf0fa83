//! Operations with crashes: a small language, decoded from bytes, run on the simulators.

use crate::engines::map::MapSubject;
use crate::engines::map_model::{Bytes, MapOp};
use crate::engines::subject::Subject;
use crate::machine::cursor::CrashDomain;
use crate::machine::file_world::{FilePlan, FileWorld};
use crate::machine::store_world::StoreWorld;
use crate::rng::Rng;
use crate::search::chain::{Leg, chain};
use arbitrary::{Arbitrary, Unstructured};
use mangrove_hart::WriteMode;
use std::cell::RefCell;

/// Operations in one input. Longer inputs find nothing that shorter ones do not find sooner.
const OP_COUNT_MAX: usize = 60;
const LOG_BYTES: u64 = 64 << 10;

/// Which world the input runs in.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Where {
    Adr,
    Eadr,
    File,
    Interval,
}

/// A key, from few, so that operations meet.
#[derive(Arbitrary, Clone, Debug)]
enum Key {
    Few(u8),
    Repeated { byte: u8, count: u8 },
    Long { byte: u8, count: u16 },
    Free(Vec<u8>),
}

#[derive(Arbitrary, Clone, Debug)]
enum Value {
    Inline(u8, u8),
    Small(u8, u8),
    Medium(u8, u16),
    Large(u8, u16),
}

#[derive(Arbitrary, Clone, Debug)]
enum Step {
    Put(Key, Value, bool),
    InsertNew(Key, Value, bool),
    Delete(Key, bool),
    CompareAndSet(Key, Option<Value>, Option<Value>, bool),
    Batch(Vec<(Key, Option<Value>)>, bool),
    DeleteRange(Key, Key, bool),
    Get(Key),
    Scan,
    Sync,
    Checkpoint,
    Crash(u32),
}

impl Key {
    fn bytes(&self) -> Bytes {
        match self {
            Self::Few(n) => format!("key{}", n % 16).into_bytes(),
            Self::Repeated { byte, count } => vec![*byte; *count as usize],
            Self::Long { byte, count } => vec![*byte; (*count as usize) % (mangrove_hart::KEY_BYTES_MAX + 1)],
            Self::Free(bytes) => bytes[..bytes.len().min(mangrove_hart::KEY_BYTES_MAX)].to_vec(),
        }
        .into()
    }
}

impl Value {
    fn bytes(&self) -> Bytes {
        let (byte, len) = match *self {
            Self::Inline(byte, n) => (byte, n as usize % 9),
            Self::Small(byte, n) => (byte, n as usize),
            Self::Medium(byte, n) => (byte, n as usize % 2048),
            Self::Large(byte, n) => (byte, n as usize % 20_000),
        };
        // Values of one length differ in their first and last bytes.
        let mut out = vec![byte; len];
        if let Some(last) = out.last_mut() {
            *last = byte.wrapping_mul(31);
        }
        out.into()
    }
}

fn mode(buffered: bool) -> WriteMode {
    if buffered { WriteMode::Buffered } else { WriteMode::Durable }
}

fn op(step: &Step) -> Option<MapOp> {
    Some(match step {
        Step::Put(k, v, b) => MapOp::Put(k.bytes(), v.bytes(), mode(*b)),
        Step::InsertNew(k, v, b) => MapOp::InsertNew(k.bytes(), v.bytes(), mode(*b)),
        Step::Delete(k, b) => MapOp::Delete(k.bytes(), mode(*b)),
        Step::CompareAndSet(k, old, new, b) => MapOp::CompareAndSet(
            k.bytes(),
            old.as_ref().map(Value::bytes),
            new.as_ref().map(Value::bytes),
            mode(*b),
        ),
        Step::Batch(ops, b) => {
            let ops = ops.iter().take(30).map(|(k, v)| (k.bytes(), v.as_ref().map(Value::bytes)));
            MapOp::Batch(ops.collect(), mode(*b))
        }
        Step::DeleteRange(from, to, b) => MapOp::DeleteRange(from.bytes(), to.bytes(), mode(*b)),
        Step::Get(k) => MapOp::Get(k.bytes()),
        Step::Scan => MapOp::Scan,
        Step::Sync => MapOp::Sync,
        Step::Checkpoint => MapOp::Checkpoint,
        Step::Crash(_) => return None,
    })
}

/// Decodes an input; `None` when it is too short to mean anything.
fn decode(data: &[u8]) -> Option<(Where, Vec<Leg<MapOp>>)> {
    let mut input = Unstructured::new(data);
    let place = Where::arbitrary(&mut input).ok()?;
    let mut legs = vec![Leg { ops: Vec::new(), seed: 0 }];
    for n in 0..OP_COUNT_MAX {
        if input.is_empty() {
            break;
        }
        let step = Step::arbitrary(&mut input).ok()?;
        let last = legs.last_mut()?;
        match (op(&step), step) {
            (Some(op), _) => last.ops.push(op),
            (None, Step::Crash(seed)) => {
                last.seed = u64::from(seed);
                legs.push(Leg { ops: Vec::new(), seed: n as u64 });
            }
            (None, _) => {}
        }
    }
    Some((place, legs))
}

/// Runs the operations that `data` encodes, with their crashes.
///
/// # Errors
/// The finding, with the operations.
pub fn operations(data: &[u8]) -> Result<(), String> {
    thread_local! {
        static ADR: RefCell<Option<[StoreWorld; 2]>> = const { RefCell::new(None) };
        static EADR: RefCell<Option<[StoreWorld; 2]>> = const { RefCell::new(None) };
    }
    let Some((place, legs)) = decode(data) else { return Ok(()) };
    let store = |domain| {
        let machine = || StoreWorld::new(domain, <MapSubject<false>>::REGION_BYTES);
        [machine(), machine()]
    };
    let file = |interval| {
        let plan = FilePlan {
            capacity: <MapSubject<false>>::REGION_BYTES,
            log_bytes: LOG_BYTES,
            interval,
            ..FilePlan::default()
        };
        [FileWorld::new(plan), FileWorld::new(plan)]
    };
    let result = match place {
        Where::Adr => ADR.with_borrow_mut(|worlds| {
            chain::<MapSubject<false>, _>(worlds.get_or_insert_with(|| store(CrashDomain::Adr)), &legs)
        }),
        Where::Eadr => EADR.with_borrow_mut(|worlds| {
            chain::<MapSubject<false>, _>(worlds.get_or_insert_with(|| store(CrashDomain::Eadr)), &legs)
        }),
        Where::File => chain::<MapSubject<false>, _>(&mut file(false), &legs),
        Where::Interval => chain::<MapSubject<true>, _>(&mut file(true), &legs),
    };
    result.map_err(|e| format!("{place:?}, {legs:?}: {e}"))
}

/// Inputs to start from.
#[must_use]
pub fn operations_seeds() -> Vec<Vec<u8>> {
    (0..24u64)
        .map(|n| {
            let mut rng = Rng::new(n);
            let mut bytes = rng.bytes(60 + 30 * n as usize);
            // The first four bytes choose the world.
            let place = ((n % 4) << 30 | 1) as u32;
            bytes[..4].copy_from_slice(&place.to_le_bytes());
            bytes
        })
        .collect()
}
