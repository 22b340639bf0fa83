//! A table with an ordered index: both change in one transaction, so that they never disagree, whatever crashes.
//!
//!     cargo run --release -p mangrove-db --example ordered_index -- DIRECTORY add 7 Avicennia
//!     cargo run --release -p mangrove-db --example ordered_index -- DIRECTORY from Av

use mangrove::heap::{Heap, HeapBytes, HeapError, HeapMap, HeapOrderedMap, HeapResult, Stop, Tx};
use std::ops::Bound;
use std::path::Path;

/// Names by number, and numbers by name.
#[derive(Clone, Copy)]
pub(crate) struct Species {
    names: HeapMap<u64, HeapBytes>,
    numbers: HeapOrderedMap<HeapBytes, u64>,
}

impl Species {
    pub(crate) fn open(heap: &Heap) -> HeapResult<Self> {
        heap.transaction(|tx| {
            let names = HeapMap::at_root(tx, "names")?;
            Ok(Self { names, numbers: HeapOrderedMap::at_root(tx, "numbers")? })
        })
    }

    /// Gives a number this name. The name that it had leaves the index; who else had this name loses it.
    pub(crate) fn name(self, tx: &mut Tx<'_>, number: u64, name: &str) -> Result<(), Stop> {
        self.forget(tx, number)?;
        if let Some(other) = self.numbers.get(tx, name.as_bytes())? {
            self.forget(tx, other)?;
        }
        let bytes = HeapBytes::new(tx, name.as_bytes())?;
        self.names.insert(tx, &number, bytes)?;
        self.numbers.insert(tx, name.as_bytes(), number)?;
        Ok(())
    }

    /// Removes a number with its name.
    pub(crate) fn forget(self, tx: &mut Tx<'_>, number: u64) -> Result<(), Stop> {
        if let Some(old) = self.names.remove(tx, &number)? {
            let name = old.to_vec(tx)?;
            self.numbers.remove(tx, &name)?;
            old.free(tx)?; // a value's block is the program's; the index frees its keys itself
        }
        Ok(())
    }

    /// Up to `count` names from `start` on, in order, with their numbers.
    pub(crate) fn from(self, tx: &mut Tx<'_>, start: &str, count: usize) -> Result<Vec<(String, u64)>, Stop> {
        let mut found = Vec::new();
        let mut walk = self.numbers.walk_range((Bound::Included(start.as_bytes()), Bound::Unbounded));
        while found.len() < count
            && let Some((name, number)) = walk.next(tx)?
        {
            found.push((String::from_utf8_lossy(&name.to_vec(tx)?).into_owned(), number));
        }
        Ok(found)
    }
}

fn run(args: &[String]) -> HeapResult<()> {
    const USAGE: &str = "usage: DIRECTORY add NUMBER NAME | DIRECTORY from NAME";
    let usage = || HeapError::Invalid { what: USAGE.into() };
    let (Some(folder), Some(command)) = (args.first(), args.get(1)) else { return Err(usage()) };
    let heap = Heap::open(Path::new(folder))?;
    let species = Species::open(&heap)?;
    match (command.as_str(), &args[2..]) {
        ("add", [number, name]) => {
            let number = number.parse().map_err(|_| usage())?;
            heap.transaction(|tx| species.name(tx, number, name))?;
        }
        ("from", [start]) => {
            for (name, number) in heap.read(|tx| species.from(tx, start, 10))? {
                println!("{name} {number}");
            }
        }
        _ => return Err(usage()),
    }
    heap.close()
}

#[allow(dead_code, reason = "the test that uses this file has its own")]
fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let Err(error) = run(&args) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
