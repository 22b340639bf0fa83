//! The notes in a sandbox like Docker's, as an unprivileged user: no address of the program is in an ordinary
//! `BTreeMap`, so that the state opens wherever the program lies.

use mangrove_testkit::command::told;
use mangrove_testkit::sandbox::{Personality, Sandbox, open_to_all};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn notes_are_kept_where_personality_is_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sandbox = Sandbox::build(scratch.path());
    let folder = scratch.path().join("work");
    std::fs::create_dir(&folder).expect("a directory");
    open_to_all(&folder);
    // Every user can start the copy.
    let program = scratch.path().join("notes");
    std::fs::copy(env!("CARGO_BIN_EXE_notes"), &program).expect("a copy");
    for filter in [Personality::AsInDocker, Personality::Refused] {
        let state = format!("{filter:?}");
        let runs = |args: &[&str]| -> Command {
            let mut command = sandbox.runs_as_nobody(filter);
            command.current_dir(&folder).arg(&program).arg(&state).args(args);
            command
        };
        let mut child = runs(&["fill"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        let said = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let last = said.take(100).last();
        child.kill().expect("SIGKILL");
        let ended = child.wait_with_output().expect("ends");
        assert_eq!(last.as_deref(), Some("100"), "{}", told(&ended));
        let listed = runs(&["list"]).output().expect("runs");
        assert!(listed.status.success(), "{}", told(&listed));
        let listed = String::from_utf8(listed.stdout).expect("UTF-8");
        assert!((1..=100).all(|number| listed.contains(&format!("note {number:012} "))), "{listed}");
    }
}
