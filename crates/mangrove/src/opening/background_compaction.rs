//! The thread that compacts a map by itself.

use mangrove_hart::Hart;
use mangrove_sys::without_signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Compacts its map until it is dropped.
pub(crate) struct BackgroundCompaction {
    hart: Arc<Hart>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundCompaction {
    /// Compacts `hart` whenever at least `bytes_min` bytes would come back. None where the process gets no thread: then
    /// the map is compacted only when a caller asks for it.
    pub(crate) fn start(hart: &Arc<Hart>, bytes_min: u64) -> Option<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let (map, has_ended) = (Arc::clone(hart), Arc::clone(&ended));
        let builder = Builder::new().name("mangrove-compact".to_owned());
        let spawned = without_signals(|| builder.spawn(move || map.compact_by_itself(bytes_min, &has_ended)));
        Some(Self { hart: Arc::clone(hart), ended, thread: Some(spawned.ok()?) })
    }
}

impl Drop for BackgroundCompaction {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `compact_by_itself`.
        self.ended.store(true, Ordering::Release);
        self.hart.wake_compaction();
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported, and left the map as another thread's would.
            let _ = thread.join();
        }
    }
}
