//! Accepts clients and hands them to the event loops in turn.

use crate::address::ListeningSocket;
use crate::io_error::io_error;
use crate::shared::ServerShared;
use mangrove_durable::Result;
use mio::{Events, Interest, Poll, Token};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The token of the stop; listeners have the ones above it.
pub(crate) const STOP: Token = Token(0);
/// How long to wait when the process has no descriptor left for another client.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the server is stopped.
pub(crate) fn run(shared: &ServerShared, poll: &mut Poll, listeners: &mut [ListeningSocket]) -> Result<()> {
    for (index, listener) in listeners.iter_mut().enumerate() {
        poll.registry()
            .register(listener.source(), Token(index + 1), Interest::READABLE)
            .map_err(|e| io_error("watch a listening socket", &e))?;
    }
    let mut events = Events::with_capacity(16);
    let mut turn = 0;
    let mut again = false;
    while !shared.stop.is_stopped() {
        match poll.poll(&mut events, again.then_some(PAUSE)) {
            Err(e) if e.kind() != ErrorKind::Interrupted => {
                return Err(io_error("wait for clients", &e));
            }
            _ => {}
        }
        again = false;
        // Events are edge-triggered: each listener is asked until no client waits there.
        for listener in &*listeners {
            while !shared.stop.is_stopped() {
                match listener.accept() {
                    Ok(stream) => {
                        if shared.clients.fetch_add(1, Ordering::Relaxed) >= shared.options.clients_max {
                            shared.clients.fetch_sub(1, Ordering::Relaxed);
                            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
                            continue; // dropped, and so closed
                        }
                        shared.counters.clients.fetch_add(1, Ordering::Relaxed);
                        let chosen = &shared.loops[turn % shared.loops.len()];
                        turn += 1;
                        chosen.arriving.lock().push(stream);
                        chosen.wake()?;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                    Err(_) => {
                        again = true;
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}
