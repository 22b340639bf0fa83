//! The chore itself: reads the sources once, asks each check, prints what they found.

use super::sources::Sources;
use super::{c_files, circles, docs, floors, form, names, orphans};
use crate::tree;
use anyhow::{Result, bail};

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only the checks whose name begins with this
    #[arg(long, default_value = "")]
    only: String,
}

/// A check: what it looks for, and the function that finds where that is so.
type Check = (&'static str, fn(&Sources) -> Vec<String>);

/// Each finding is a sentence that begins with the place. The documents are checked here, and not by a test of
/// this crate, because their check needs the same reading of the sources, and because a document that is
/// wrong should fail the step that says so, whoever runs the tests of the chores.
pub(super) const CHECKS: [Check; 9] = [
    ("circles of files", circles::check),
    ("circles of C files", c_files::check),
    ("tests that no program has", orphans::check),
    ("mod.rs files with more than mod and use", form::module_files),
    ("long lines", form::long_lines),
    ("long files", form::long_files),
    ("floors of ARCHITECTURE.md", floors::check),
    ("names in documents", docs::check),
    ("names of several types", names::check),
];

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let sources = Sources::tracked(&tree::root())?;
    let mut total = 0;
    for (name, check) in CHECKS.into_iter().filter(|(name, _)| name.starts_with(&args.only)) {
        let findings = check(&sources);
        println!("{name}: {}", findings.len());
        findings.iter().for_each(|finding| println!("  {}", finding.replace('\n', "\n  ")));
        total += findings.len();
    }
    if total > 0 {
        bail!("{total} findings; each line above says where and what");
    }
    Ok(())
}
