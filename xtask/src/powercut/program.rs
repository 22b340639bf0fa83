//! What runs in the guest: the real `mangrove-stress`, an example with the same output, or the raw program of
//! `raw.rs`.

use super::initramfs::PROGRAM;

/// The program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Program {
    /// A durable map, by `mangrove-stress`
    Map,
    /// SQLite's `:memory:` made durable (examples/sqlite)
    Sqlite,
    /// Durable transactions, by `mangrove-stress txn`
    Txn,
    /// The Redis-compatible server, with clients of ours on the host
    Redis,
    /// A file, appended to and synced: proves the harness without Mangrove
    Raw,
}

/// The shell commands of one program on one disk.
pub(super) struct Script {
    pub(super) program: Program,
    /// `dax` or `file`.
    pub(super) medium: &'static str,
    pub(super) threads: u8,
    pub(super) keys: u64,
    /// Bytes of the map's log, as its option takes it.
    pub(super) log: &'static str,
    /// The injected fault: acknowledge before it is durable.
    pub(super) early: bool,
}

impl Script {
    /// What stands in front of `write` and `check` on the program's command line.
    fn word(&self) -> &'static str {
        match self.program {
            Program::Sqlite => "stress ",
            Program::Txn => "txn ",
            Program::Map | Program::Raw | Program::Redis => "",
        }
    }

    /// Writes until the power goes; `# ended` marks the end of a writer that failed.
    pub(super) fn write(&self, round: u64, seed: u32) -> String {
        let Self { medium, threads, keys, log, early, .. } = self;
        let numbers = format!("--round {round} --seed {seed} --threads {threads} --keys {keys}");
        let command = match self.program {
            Program::Redis => unreachable!("its rounds are in redis.rs"),
            Program::Map | Program::Sqlite | Program::Txn => {
                let word = self.word();
                let durability = if *early { "interval=60000" } else { "sync" };
                format!(
                    "{word}write /mnt/pool {numbers} --medium {medium} --log {log} --durability {durability}"
                )
            }
            Program::Raw => {
                format!("powercut --inside write {numbers}{}", if *early { " --early" } else { "" })
            }
        };
        format!("{PROGRAM} {command} < /dev/null; echo \"# ended $?\"\n")
    }

    /// Prints what is there, then `# checked` and the exit status. A missing pool counts as an empty one: the power
    /// may have gone before or while it was created.
    pub(super) fn check(&self, close: bool) -> String {
        let command = match self.program {
            Program::Redis => unreachable!("its rounds are in redis.rs"),
            Program::Map | Program::Sqlite | Program::Txn => {
                format!("{}check /mnt/pool{}", self.word(), if close { " --close" } else { "" })
            }
            Program::Raw => "powercut --inside check".to_owned(),
        };
        // A failure's reason is needed too; a check that succeeds prints nothing there.
        format!(
            "{PROGRAM} {command} < /dev/null 2> /tmp/why; status=$?; sed 's/^/# why: /' /tmp/why; \
             echo \"# checked $status\"\n"
        )
    }
}
