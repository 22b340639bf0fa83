//! A reader beside a writer needs each of its two checks: without it, a scenario of
//! `crates/pool/tests/together/looks.rs` fails.

#[path = "../../pool/tests/support/hooked.rs"]
mod hooked;
#[path = "../../pool/tests/together/looks.rs"]
mod looks;

use mangrove_crashlab::fuzz::{DamageCheck, leave_out};
use std::process::Command;

const ROLE: &str = "MANGROVE_TEST_WITHOUT";

/// Runs `scenario` in a process of its own, without the check; returns what the process said when it failed.
fn without(check: DamageCheck, test: &str, scenario: fn()) {
    if std::env::var_os(ROLE).is_some() {
        leave_out(check);
        return scenario();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test, "--nocapture"]).env(ROLE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && text.contains("1 failed"), "not noticed: {text}");
}

#[test]
fn the_number_of_the_superblock_is_needed() {
    let test = "the_number_of_the_superblock_is_needed";
    without(DamageCheck::LookNumber, test, looks::the_log_is_used_again_meanwhile);
}

#[test]
fn the_look_where_the_log_continues_is_needed() {
    let test = "the_look_where_the_log_continues_is_needed";
    without(DamageCheck::LookAgain, test, looks::the_log_continues_meanwhile);
}
