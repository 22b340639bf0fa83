//! A database that needs more memory than the process may have is refused with a message, when it is opened and when
//! it grows, and the process goes on; the properties tell what it takes.

use crate::common::{ENGINES, Whose, build, has_leveldb, scratch, under_leveldbs_names};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LIMIT: &str = "MANGROVE_LEVELDB_MEMORY_MAX";
/// Records of a kilobyte.
const MANY: u64 = 120_000;

struct Programs {
    _scratch: tempfile::TempDir,
    program: PathBuf,
    folder: PathBuf,
    data: PathBuf,
    engine: &'static str,
}

impl Programs {
    fn of(engine: &'static str) -> Self {
        let scratch_folder = tempfile::tempdir().expect("a scratch directory");
        let program = build("limits", scratch_folder.path());
        let folder = under_leveldbs_names(scratch_folder.path());
        let data = scratch(scratch_folder.path(), engine);
        Self { _scratch: scratch_folder, program, folder, data, engine }
    }

    fn command(&self, program: &Path) -> Command {
        Whose::Ours(&self.folder, self.engine).command(program)
    }

    #[track_caller]
    fn says(&self, mut command: Command) -> String {
        let output = command.output().expect("the program");
        let said = text(&output);
        assert!(output.status.success(), "{}: {}: {said}", self.engine, output.status);
        said
    }

    /// With a limit on memory.
    #[track_caller]
    fn within(&self, bytes: u64, count: u64) -> String {
        let mut command = self.command(&self.program);
        command.arg(&self.data).arg(count.to_string()).env(LIMIT, bytes.to_string());
        self.says(command)
    }

    /// With a limit on address space.
    #[track_caller]
    fn under_ulimit(&self, kib: u64, count: u64) -> String {
        let mut command = self.command(Path::new("sh"));
        command.args(["-c", &format!("ulimit -v {kib}; exec \"$@\""), "sh"]);
        command.arg(&self.program).arg(&self.data).arg(count.to_string());
        self.says(command)
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn number(said: &str, name: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no '{name}' in {said}")).trim().parse().expect("a number")
}

#[test]
fn a_database_opens_and_grows_within_its_limit_only() {
    if !has_leveldb() {
        return;
    }
    for engine in ENGINES {
        let all = Programs::of(engine);
        let said = all.within(48 << 20, MANY);
        assert!(said.contains("put: IO error: ") && said.contains("memory"), "{engine}: {said}");
        let wrote = number(&said, "wrote ");
        assert!((2_000..45_000).contains(&wrote), "{engine}: {said}");
        assert_eq!(number(&said, "records"), wrote, "{engine}");
        // Without a limit of its own it grows, and then opens within a larger limit only.
        let said = all.within(u64::MAX, MANY);
        assert_eq!(number(&said, "wrote "), MANY, "{engine}: {said}");
        let refused = all.within(48 << 20, 0);
        assert!(refused.starts_with("open: ") && refused.contains("memory"), "{engine}: {refused}");
        let said = all.within(1 << 30, 0);
        assert_eq!(number(&said, "records"), MANY, "{engine}: {said}");
        // The properties: what is there, with no more than half as much again for what finds it.
        let records = MANY * 1016;
        for name in ["memory ", "bytes of memory", "bytes of the image"] {
            assert!((records..records * 3 / 2).contains(&number(&said, name)), "{engine}, {name}: {said}");
        }
    }
}

#[test]
fn a_limit_on_address_space_is_an_error_and_not_the_end_of_the_process() {
    if !has_leveldb() {
        return;
    }
    for engine in ENGINES {
        let all = Programs::of(engine);
        all.within(u64::MAX, 30_000);
        let (mut refused, mut opened) = (0, 0);
        for kib in [4096].into_iter().chain((60..=420).rev().step_by(30)).map(|mib| mib << 10) {
            let said = all.under_ulimit(kib, 0);
            let is_refused = said.starts_with("open: ");
            refused += u32::from(is_refused);
            opened += u32::from(!is_refused);
            assert!(
                !is_refused || said.contains("ulimit -v") || said.contains("memory") || said.contains("map"),
                "{engine}, {kib}: {said}"
            );
        }
        assert!(refused > 0 && opened > 0, "{engine}: {refused} refused, {opened} opened");
        assert_eq!(number(&all.within(u64::MAX, 0), "records"), 30_000, "{engine}");
    }
}

#[test]
fn a_limit_that_is_no_number_is_refused() {
    if !has_leveldb() {
        return;
    }
    let all = Programs::of(ENGINES[0]);
    let mut command = all.command(&all.program);
    command.arg(&all.data).arg("1").env(LIMIT, "2G");
    let said = all.says(command);
    assert!(said.contains("MANGROVE_LEVELDB_MEMORY_MAX=2G: this is no number of bytes"), "{said}");
}
