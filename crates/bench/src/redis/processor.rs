//! The processor time of a server, by threads, and which processors client and servers run on.

use anyhow::Context as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Nanoseconds on a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// Of all threads.
    pub(super) all: u64,
    /// Of the main thread.
    pub(super) main: u64,
}

impl Used {
    /// What the threads of `process` have used so far. A thread that ends takes its time with it.
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let mut used = Self::default();
        let tasks = format!("/proc/{process}/task");
        for task in std::fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))?.flatten() {
            // A thread may have ended since it was listed.
            let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
            let time: u64 = text
                .split_whitespace()
                .next()
                .and_then(|t| t.parse().ok())
                .context("schedstat has no time")?;
            used.all += time;
            if task.file_name().to_string_lossy() == process.to_string() {
                used.main = time;
            }
        }
        Ok(used)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.all += other.all;
        self.main += other.main;
    }

    /// What was used since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self { all: self.all.saturating_sub(before.all), main: self.main.saturating_sub(before.main) }
    }
}

/// The processors of the client and those of the servers.
pub(super) struct Pinning(Option<(CpuSet, CpuSet)>);

impl Pinning {
    /// The client gets the last processor, unless there is only one or `wanted` is false.
    pub(super) fn new(wanted: bool) -> anyhow::Result<Self> {
        let all = sched_getaffinity(None).context("cannot ask for this thread's processors")?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| all.is_set(cpu));
        let Some(last) = last.filter(|_| wanted && all.count() > 1) else { return Ok(Self(None)) };
        let (mut client, mut servers) = (CpuSet::new(), all);
        client.set(last);
        servers.unset(last);
        Ok(Self(Some((client, servers))))
    }

    /// Runs `f`, which starts a server, on the servers' processors; its children stay there.
    pub(super) fn on_servers<T>(&self, f: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let Some((client, servers)) = &self.0 else { return f() };
        sched_setaffinity(None, servers).context("cannot choose the servers' processors")?;
        let result = f();
        sched_setaffinity(None, client).context("cannot choose the client's processor")?;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_uses_time() -> anyhow::Result<()> {
        let before = Used::of(std::process::id())?;
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 20 {
            std::hint::black_box(0);
        }
        assert!(Used::of(std::process::id())?.since(before).all > 1_000_000);
        Ok(())
    }
}
