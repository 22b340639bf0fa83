//! What commands map survives SIGKILL, whatever the flags, or the command is refused with a message.

use crate::common::{compile, run, says, told};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[test]
fn what_a_command_maps_survives_or_is_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/mappings.c", scratch.path(), "mappings", &[]);
    let (state, file) = (scratch.path().join("s"), scratch.path().join("data"));
    let content = [&[1; 4096][..], &[2; 100]].concat();
    std::fs::write(&file, &content).expect("written");
    let runs = |how: &str| Command::new(&program).arg(&state).arg(how).arg(&file).output().expect("runs");
    let made = runs("make");
    assert_eq!(made.status.signal(), Some(libc::SIGKILL), "{}", told(&made));
    assert_eq!(std::fs::read(&file).expect("read"), content, "commands wrote to their copies");
    // The state needs no file.
    let away = scratch.path().join("away");
    std::fs::rename(&file, &away).expect("renamed");
    for _ in 0..3 {
        run(Command::new(&program).arg(&state).arg("verify").arg(&file));
    }
    std::fs::rename(&away, &file).expect("renamed");
    for (how, text) in [
        ("shared", "ask for private memory"),
        ("shared over", "ask for private memory"),
        ("shared file", "map it private, which copies it into the state"),
        ("shared look", "map it private, which copies it into the state"),
        ("fixed", "at a fixed address outside of the durable state"),
        ("fixed noreplace", "at a fixed address outside of the durable state"),
        ("fixed file", "at a fixed address outside of the durable state"),
        ("over", "that it had not mapped before"),
        ("moved over", "that it had not mapped before"),
        ("execute", "code that is made at run time cannot be durable"),
        ("grows", "MAP_GROWSDOWN"),
        #[cfg(target_arch = "x86_64")]
        ("low", "MAP_32BIT"),
        ("device", "map it before opening the state"),
    ] {
        says(&runs(how), 3, text);
    }
    run(Command::new(&program).arg(&state).arg("verify").arg(&file));
    assert_eq!(std::fs::read(&file).expect("read"), content);
}
