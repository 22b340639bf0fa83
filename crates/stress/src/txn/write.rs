//! `mangrove-stress txn write`: threads change a ledger until killed, while others look at all of it.

use super::ledger::Ledger;
use crate::value::{WriterOperation, mix};
use crate::write::{Args, or_end, say};
use mangrove::heap::Heap;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Threads that only read.
const READER_COUNT: u8 = 2;
/// Between two looks of a reader, which are long transactions: the writers shall get on.
const PAUSE: Duration = Duration::from_millis(3);
/// Address space of a new heap: more than the receipts need, and little enough for the disk of a small guest.
const CAPACITY: u64 = 64 << 20;

/// Works until the time is over; a process that is killed never returns from here.
pub(crate) fn run<L: Ledger>(args: &Args) -> anyhow::Result<()> {
    let mut options = Heap::options().durability(args.durability).medium(args.medium).capacity(CAPACITY);
    if let Some(device) = &args.devdax {
        options = options.devdax(device);
    }
    if let Some(bytes) = args.log {
        options = options.log_bytes(bytes);
    }
    let heap = options.open(&args.pool)?;
    let ledger = L::open(&heap, args.keys)?;
    let out = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let end = Instant::now() + Duration::from_secs(args.seconds);
    std::thread::scope(|scope| {
        let (heap, out) = (&heap, &out);
        for t in 0..args.threads {
            scope.spawn(move || or_end(write(heap, ledger, out, args, t, end)));
        }
        for r in 0..READER_COUNT {
            scope.spawn(move || or_end(look(heap, ledger, out, args, r, end)));
        }
    });
    if args.close {
        heap.close()?;
        return Ok(());
    }
    std::process::exit(0);
}

fn write<L: Ledger>(
    heap: &Heap,
    ledger: L,
    out: &File,
    args: &Args,
    thread: u8,
    end: Instant,
) -> anyhow::Result<()> {
    let mut noise = mix(args.seed ^ mix(u64::from(args.round) << 8 | u64::from(thread)));
    for number in 1.. {
        if Instant::now() >= end {
            break;
        }
        noise = mix(noise.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let of = WriterOperation { round: args.round, thread, number };
        say(out, format_args!("> {of} p counter{thread}\n"))?;
        heap.transaction(|tx| ledger.operate(tx, of, noise))?;
        say(out, format_args!("< {of}\n"))?;
    }
    Ok(())
}

/// Looks at the whole and reads the counters of the threads in turn: what it saw must survive, too.
fn look<L: Ledger>(
    heap: &Heap,
    ledger: L,
    out: &File,
    args: &Args,
    reader: u8,
    end: Instant,
) -> anyhow::Result<()> {
    let name = format!("r{}l{reader}", args.round);
    for thread in (0..args.threads).cycle() {
        if Instant::now() >= end {
            break;
        }
        say(out, format_args!("? {name} counter{thread}\n"))?;
        match heap.read(|tx| ledger.look(tx, thread))?.map_err(anyhow::Error::msg)? {
            Some(of) => say(out, format_args!(": {name} counter{thread} {of}\n"))?,
            None => say(out, format_args!(": {name} counter{thread} -\n"))?,
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
