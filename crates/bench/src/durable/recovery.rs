//! Recovery by the size of the state: one process fills it and is killed, another opens it.

use super::context::DurableBench;
use crate::harness::own_path::own_path;
use crate::report::report::FigureUnit;
use crate::report::say;
use anyhow::{Context as _, bail, ensure};
use mangrove_durable::{Addresses, Medium, Options, Runtime, Start, settle_addresses};
use std::ffi::c_void;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub(super) const RECOVERY: &str = "recovery";
pub(super) const READY: &str = "open until ready";
pub(super) const MAPPED: &str = "open copy on write until ready";
pub(super) const ALL: &str = "open and read everything";
const MAPPED_ALL: &str = "open copy on write and read everything";
const COPY: &str = "one memcpy of it";
const DISK: &str = "reading it from the disk";

/// Bytes that one command allocates and writes.
const CHUNK_BYTES: usize = 16 << 20;
/// There are few roots, so each chunk points to the one before.
const ROOT: usize = 0;

/// The argument of the command that allocates a chunk.
struct Fill {
    root: *mut usize,
    number: usize,
}

unsafe extern "C" fn fill(arg: *mut c_void) {
    // SAFETY: a `Fill`, inside a command; the chunk has its bytes.
    unsafe {
        let fill = &*arg.cast::<Fill>();
        let chunk = mangrove_durable::route::mangrove_arena_alloc(CHUNK_BYTES, 4096);
        if chunk.is_null() {
            return;
        }
        std::ptr::write_bytes(chunk, fill.number as u8 | 1, CHUNK_BYTES);
        chunk.cast::<usize>().write(fill.root.add(ROOT).read());
        fill.root.add(ROOT).write(chunk as usize);
    }
}

fn options() -> Options {
    Options::new().medium(Medium::File).keeps_variables(false)
}

/// The child's work: `fill:MIB:PATH`, `open:MIB:PATH` or, copy on write, `map:MIB:PATH`.
pub(super) fn run_child(task: &str) -> anyhow::Result<()> {
    // As every application does. Otherwise recovery searches the whole state for pointers to modules that have
    // moved.
    if let Addresses::Random { why } = settle_addresses() {
        bail!("modules lie elsewhere at each start: {why}");
    }
    let mut words = task.splitn(3, ':');
    let (Some(what), Some(Ok(mib)), Some(path)) =
        (words.next(), words.next().map(str::parse::<usize>), words.next())
    else {
        bail!("there is no such task: {task}");
    };
    let chunks = (mib << 20) / CHUNK_BYTES;
    let start = if what == "map" { Start::CopyOnWrite } else { Start::Read };
    let begin = Instant::now();
    // SAFETY: there is no initialisation.
    let runtime = unsafe { Runtime::open(path, &options().start(start), None) }?;
    let root = runtime.roots();
    if what == "fill" {
        let mut client = runtime.client()?;
        for number in 0..chunks {
            let mut one = Fill { root, number };
            // SAFETY: the argument is a `Fill`.
            unsafe { client.write_durable(fill, &[(&raw mut one).cast()]) }?;
        }
        // Killed, so that nothing is closed. SAFETY: sends a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    let ready = begin.elapsed();
    let (mut found, mut sum) = (0, 0u64);
    // SAFETY: the root is a word of the state; chunks lead to each other, and end with 0.
    unsafe {
        let mut at = root.add(ROOT).read();
        while at != 0 {
            let chunk: *const u64 = std::ptr::with_exposed_provenance(at);
            sum = (0..CHUNK_BYTES / 8).fold(sum, |sum, i| sum.wrapping_add(chunk.add(i).read()));
            at = chunk.read() as usize;
            found += 1;
        }
    }
    ensure!(found == chunks, "{found} chunks of {chunks} are back (sum {sum})");
    say::answer(&format!("{} {}\n", ready.as_secs_f64() * 1e3, begin.elapsed().as_secs_f64() * 1e3))?;
    // Without closing, so that the next round finds the same state.
    std::process::exit(0);
}

/// Drops a file from the page cache, as far as the kernel does that on request.
fn forget(path: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        // SAFETY: advice about a file of ours.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}

pub(super) fn run(b: &mut DurableBench) -> anyhow::Result<()> {
    let sizes = if b.args.run.quick { vec![128] } else { b.args.states.clone() };
    for mib in sizes {
        let dir = own_path(&b.args.dir.canonicalize()?, "recovery-state");
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        let child = |what: &str| -> anyhow::Result<std::process::Output> {
            let task = format!("{what}:{mib}:{}", dir.display());
            let args = ["durable", "--child", &task];
            Ok(Command::new(std::env::current_exe()?).args(args).output()?)
        };
        let filled = child("fill")?;
        let complaint = String::from_utf8_lossy(&filled.stderr);
        ensure!(filled.status.code().is_none(), "the writer was not killed: {complaint}");
        let workload = format!("{mib} MiB");
        let starts = [("open", READY, ALL), ("map", MAPPED, MAPPED_ALL)];
        let runs = ["warm", "cold"].into_iter().flat_map(|cache| starts.map(|start| (cache, start)));
        for (cache, (task, until_ready, until_read)) in runs {
            if cache == "cold" {
                forget(&dir)?;
            }
            let opened = child(task)?;
            let complaint = String::from_utf8_lossy(&opened.stderr);
            ensure!(opened.status.success(), "the state did not open: {complaint}");
            let text = String::from_utf8_lossy(&opened.stdout).into_owned();
            let mut numbers = text.split_whitespace().map(str::parse::<f64>);
            let (Some(Ok(ready)), Some(Ok(all))) = (numbers.next(), numbers.next()) else {
                bail!("the child said {text:?}");
            };
            b.add(
                RECOVERY,
                "file",
                &workload,
                &format!("{until_ready}, {cache}"),
                1,
                FigureUnit::Milliseconds,
                ready,
            );
            b.add(
                RECOVERY,
                "file",
                &workload,
                &format!("{until_read}, {cache}"),
                1,
                FigureUnit::Milliseconds,
                all,
            );
        }
        let copy = copy_time(mib)?;
        b.add(RECOVERY, "file", &workload, COPY, 1, FigureUnit::Milliseconds, copy);
        let disk = disk_time(&dir, mib)?;
        b.add(RECOVERY, "file", &workload, DISK, 1, FigureUnit::Milliseconds, disk);
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// Milliseconds for copying this much between two buffers of 256 MiB.
fn copy_time(mib: u64) -> anyhow::Result<f64> {
    let from = vec![1u8; 256 << 20];
    let mut to = vec![2u8; 256 << 20];
    let begin = Instant::now();
    for _ in 0..mib.div_ceil(256) {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// Milliseconds for reading the data file, or as much of it as exists, from the disk.
fn disk_time(dir: &Path, mib: u64) -> anyhow::Result<f64> {
    forget(dir)?;
    let image = dir.join("image");
    let mut file = File::open(&image).with_context(|| format!("cannot read {}", image.display()))?;
    let mut buffer = vec![0; 4 << 20];
    let (mut bytes, begin) = (0, Instant::now());
    while bytes < mib << 20 {
        match file.read(&mut buffer)? {
            0 => break,
            count => bytes += count as u64,
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3 * (mib << 20) as f64 / bytes.max(1) as f64)
}
