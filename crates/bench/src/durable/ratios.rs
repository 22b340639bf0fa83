//! Throughput of the key-value store by the share of writes: local mode and RPC mode, on every medium.

use super::context::DurableBench;
use super::kv::{Dice, Kv, KvRequest, KvService, REQUEST_BYTES, VALUE_BYTES};
use crate::report::report::{FigureUnit, OURS};
use anyhow::Context as _;
use mangrove_serve::{Server, ServerOptions};
use parking_lot::RwLock;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const LOCAL: &str = "local";
pub(super) const RPC: &str = "rpc";
/// The same store with a lock around it and nothing durable.
pub(super) const VOLATILE: &str = "volatile, locked";

/// Clients on emulated memory; more would measure the scheduler. On the disk clients wait, and share its syncs.
const CLIENTS_EMULATED: usize = 2;
const CLIENTS_FILE: usize = 32;
/// Connections of each of two client threads, and requests in flight on each.
const CONNECTIONS: usize = 8;
const WINDOW: usize = 16;
/// Requests between two checks of the stop flag.
const BURST: usize = 16;

/// Operations a second of `threads` threads. Each runs the closure that `work` makes, until the time is over.
fn rate<W: FnMut() -> anyhow::Result<()>>(
    threads: usize,
    seconds: f64,
    per_call: usize,
    work: impl Fn(usize) -> anyhow::Result<W> + Sync,
) -> anyhow::Result<f64> {
    let (stop, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (work, stop, total) = (&work, &stop, &total);
                scope.spawn(move || -> anyhow::Result<()> {
                    let mut call = work(thread)?;
                    let mut done = 0;
                    while !stop.load(Ordering::Relaxed) {
                        call()?;
                        done += per_call as u64;
                    }
                    total.fetch_add(done, Ordering::Relaxed);
                    Ok(())
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(total.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64())
    })
}

pub(super) fn run_local(b: &mut DurableBench) -> anyhow::Result<()> {
    for place in b.places()? {
        let clients = if place.is_file() { CLIENTS_FILE } else { CLIENTS_EMULATED };
        for ratio in b.args.ratios.clone() {
            let kv = Kv::on(&place)?;
            let ours = rate(clients, b.args.run.seconds(), BURST, |thread| {
                let (mut client, mut call) = (kv.runtime.client()?, kv.call());
                let mut dice = Dice::new(thread as u64 + 1);
                Ok(move || {
                    for _ in 0..BURST {
                        call.draw(&mut dice, ratio);
                        Kv::ask(&mut client, &mut call)?;
                    }
                    Ok(())
                })
            })?;
            kv.runtime.close()?;
            let workload = format!("{ratio} % writes");
            b.add_of(LOCAL, &place.name, &workload, "requests", clients, OURS, FigureUnit::PerSecond, ours);
            let store = RwLock::new(vec![0u8; super::kv::SLOT_COUNT * VALUE_BYTES]);
            let volatile = rate(clients, b.args.run.seconds().min(0.5), BURST, |thread| {
                let base = store.read().as_ptr().cast_mut();
                let (mut call, mut dice) = (super::kv::KvCall::new(base), Dice::new(thread as u64 + 1));
                let store = &store;
                Ok(move || {
                    for _ in 0..BURST {
                        call.draw(&mut dice, ratio);
                        let arg = std::ptr::from_mut(&mut call).cast();
                        if call.request.writes == 0 {
                            let _shared = store.read();
                            // SAFETY: only other reads run at the same time.
                            unsafe { super::kv::process(arg) };
                        } else {
                            let _alone = store.write();
                            // SAFETY: the lock excludes all other users.
                            unsafe { super::kv::process(arg) };
                        }
                    }
                    Ok(())
                })
            })?;
            b.add_of(
                LOCAL,
                &place.name,
                &workload,
                "requests",
                clients,
                VOLATILE,
                FigureUnit::PerSecond,
                volatile,
            );
        }
        place.clear()?;
    }
    Ok(())
}

pub(super) fn run_rpc(b: &mut DurableBench) -> anyhow::Result<()> {
    for place in b.places()? {
        for ratio in b.args.ratios.clone() {
            let kv = Kv::on(&place)?;
            let path = place.door();
            let mut server = Server::new(
                kv.runtime.clone(),
                Box::new(KvService::of(&kv)),
                ServerOptions::new().workers(2),
            )?;
            server.listen(&format!("unix:{}", path.display()))?;
            let stopper = server.stopper();
            let ours = std::thread::scope(|scope| {
                let serving = scope.spawn(|| server.serve());
                let ours = rate(2, b.args.run.seconds(), CONNECTIONS * WINDOW, |thread| {
                    let mut streams = (0..CONNECTIONS)
                        .map(|_| UnixStream::connect(&path).context("cannot connect to the server"))
                        .collect::<anyhow::Result<Vec<_>>>()?;
                    let mut call = kv.call();
                    let mut dice = Dice::new(thread as u64 + 1);
                    Ok(move || {
                        burst(&mut streams, || {
                            call.draw(&mut dice, ratio);
                            call.request
                        })
                    })
                });
                stopper.stop();
                serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                ours
            })?;
            kv.runtime.close()?;
            let workload = format!("{ratio} % writes");
            b.add(RPC, &place.name, &workload, "requests", 2 * CONNECTIONS, FigureUnit::PerSecond, ours);
        }
        place.clear()?;
    }
    Ok(())
}

/// Sends a window of requests on each connection, and reads all answers.
fn burst(streams: &mut [UnixStream], mut draw: impl FnMut() -> KvRequest) -> anyhow::Result<()> {
    let mut bytes = Vec::with_capacity(WINDOW * REQUEST_BYTES);
    for stream in &mut *streams {
        bytes.clear();
        for _ in 0..WINDOW {
            let request = draw();
            bytes.extend_from_slice(&request.writes.to_ne_bytes());
            bytes.extend_from_slice(&request.slot.to_ne_bytes());
            bytes.extend_from_slice(&request.value);
        }
        stream.write_all(&bytes)?;
    }
    let mut answers = [0; WINDOW * VALUE_BYTES];
    for stream in streams {
        stream.read_exact(&mut answers)?;
    }
    Ok(())
}
