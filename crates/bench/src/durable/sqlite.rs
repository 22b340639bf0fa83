//! SQLite's `:memory:` made durable (examples/sqlite), compared with SQLite's own durability on the same disk, in
//! processes of their own.

use super::context::DurableBench;
use crate::harness::own_path::own_path;
use crate::report::report::{FigureUnit, OURS};
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::process::Command;

pub(super) const SQLITE: &str = "sqlite";
pub(super) const INSERT: &str = "single-row transactions";
pub(super) const READ: &str = "reads by key";
pub(super) const MEMORY: &str = ":memory:, volatile";

/// Mangrove with durability `interval`, and what loses as much in a power cut.
pub(super) const INTERVAL: &str = "Mangrove, interval";
pub(super) const NORMAL: &str = "WAL, NORMAL, a connection each";

/// The subjects' names in the program and in the report.
const SUBJECTS: [(&str, &str); 6] = [
    ("durable", OURS),
    ("wal", "WAL, FULL, a connection each"),
    ("wal-shared", "WAL, FULL, one connection"),
    ("interval", INTERVAL),
    ("wal-normal", NORMAL),
    ("memory", MEMORY),
];

/// Rows of a transaction: one client inserts them.
pub(super) const ROWS: [u32; 3] = [10, 100, 1000];

/// The name of the line for inserts of `rows` rows in one transaction.
pub(super) fn insert_of(rows: u32) -> String {
    if rows == 1 { INSERT.to_owned() } else { format!("rows, {rows} a transaction") }
}

/// Builds the example as its README says.
fn build(b: &DurableBench) -> anyhow::Result<PathBuf> {
    let (from, libraries) = (b.sources().join("examples/sqlite"), b.libraries()?);
    let library = libraries.join("libmangrove_app.so");
    ensure!(
        library.exists(),
        "{} is not there; build it (cargo build --release --package mangrove-app)",
        library.display()
    );
    let soname = libraries.join("libmangrove_app.so.0");
    if !soname.exists() {
        std::os::unix::fs::symlink("libmangrove_app.so", &soname)?;
    }
    let program = own_path(&b.args.dir.canonicalize()?, "sqlite-example");
    let built = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-pthread", "-I"])
        .arg(b.sources().join("crates/app/include"))
        .args(["durable_sqlite.c", "main.c", "stress.c", "bench.c"].map(|source| from.join(source)))
        .arg("-o")
        .args([&program, &library])
        .arg("-lsqlite3")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .status()
        .context("no C compiler")?;
    ensure!(built.success(), "examples/sqlite does not compile here (is libsqlite3-dev installed?)");
    Ok(program)
}

pub(super) fn run(b: &mut DurableBench) -> anyhow::Result<()> {
    let program = match build(b) {
        Ok(program) => program,
        Err(error) => {
            b.report.note(format!("SQLite was not measured: {error:#}."));
            return Ok(());
        }
    };
    let many = ROWS.map(|rows| ("insert", insert_of(rows), 1, rows));
    let one = [("insert", INSERT), ("read", READ)]
        .into_iter()
        .flat_map(|(what, operation)| [1, 8].map(|clients| (what, operation.to_owned(), clients, 1)));
    for (what, operation, clients, rows) in one.chain(many) {
        for (subject, name) in SUBJECTS {
            let dir = own_path(&b.args.dir.canonicalize()?, "sqlite-state");
            std::fs::create_dir_all(&dir)?;
            let output = Command::new(&program)
                .args(["bench", subject])
                .arg(dir.join("db"))
                .args([&b.args.run.seconds().to_string(), &clients.to_string(), what, &rows.to_string()])
                .output()?;
            std::fs::remove_dir_all(&dir)?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8_lossy(&output.stdout);
            let rate = text.trim().rsplit(' ').next().and_then(|n| n.parse().ok());
            let rate = rate.with_context(|| format!("the program printed {text:?}"))?;
            b.add_of(SQLITE, "file", "", &operation, clients, name, FigureUnit::PerSecond, rate);
        }
    }
    std::fs::remove_file(&program)?;
    Ok(())
}
