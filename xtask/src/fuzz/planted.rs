//! `cargo xtask fuzz --planted`: damages unclosed pools systematically, with every check and without each in turn.

use anyhow::{Context, bail};
use mangrove_crashlab::fuzz::{DamageCheck, damage_search, leave_out};
use std::process::Command;
use std::time::Instant;

/// Runs the search. `without`: in this process, without that check; else with all checks, and then in a process for
/// each check, because a pool without it may end the process.
pub(super) fn run(without: Option<&str>) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut mapped_first = false;
    if let Some(name) = without {
        let found = DamageCheck::ALL.into_iter().find(|check| format!("{check:?}") == name);
        let Some(check) = found else { bail!("no check is called {name}; there are {:?}", DamageCheck::ALL) };
        leave_out(check);
        // The pools that need the check come first.
        mapped_first = matches!(
            check,
            DamageCheck::ImageLength
                | DamageCheck::Made
                | DamageCheck::BlankRootWord
                | DamageCheck::BlankSegment
                | DamageCheck::BlankChunk
                | DamageCheck::BlankSlot
        );
    }
    let tally = damage_search(true, mapped_first).map_err(anyhow::Error::msg)?;
    println!(
        "{} damaged pools: {} refused, the others whole or exempt, {:.1} s",
        tally.tried,
        tally.refused,
        begun.elapsed().as_secs_f64()
    );
    if without.is_some() {
        return Ok(());
    }
    let mut missed = Vec::new();
    for check in DamageCheck::ALL {
        let name = format!("{check:?}");
        let out = Command::new(std::env::current_exe().context("where is this program?")?)
            .args(["fuzz", "--planted", "--without", &name])
            .output()
            .context("cannot start this program again")?;
        if out.status.success() {
            println!("  {name:<16} NOT NOTICED");
            missed.push(name);
            continue;
        }
        let said = String::from_utf8_lossy(&out.stderr);
        let finding = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it died");
        println!("  {name:<16} {}: {finding}", out.status);
    }
    if !missed.is_empty() {
        bail!("left out, and nothing noticed: {}", missed.join(", "));
    }
    println!("{} checks: each is needed", DamageCheck::ALL.len());
    Ok(())
}
