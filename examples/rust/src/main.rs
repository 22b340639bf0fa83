//! Notes in an ordinary `BTreeMap`, durable.
//!
//!     notes DIRECTORY put NAME TEXT...   notes DIRECTORY get NAME   notes DIRECTORY drop NAME   notes DIRECTORY list
//!     notes DIRECTORY fill               adds notes until it is killed; prints each that is safe

#![forbid(unsafe_code)]

use mangrove_durable::{Allocator, Durable, Result, settle_addresses};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

type Notes = BTreeMap<String, Vec<u8>>;

fn main() -> ExitCode {
    // First of all: the state will hold pointers, and is to find itself at the same addresses after each start.
    settle_addresses();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(3)
        }
    }
}

fn run(args: &[&str]) -> Result<bool> {
    let [folder, command, rest @ ..] = args else {
        eprintln!("usage: notes DIRECTORY put NAME TEXT... | get NAME | drop NAME | list | fill");
        return Ok(false);
    };
    let notes = Durable::open(folder, Notes::new)?;
    let found = match (*command, rest) {
        ("put", [name, text @ ..]) => {
            // The closure is the command: it happens whole or not at all, and is durable when `write` returns.
            notes.write(|notes| notes.insert((*name).to_owned(), text.join(" ").into_bytes()))?;
            true
        }
        ("get", [name]) => notes.read(|notes| {
            notes.get(*name).inspect(|text| println!("{}", String::from_utf8_lossy(text))).is_some()
        })?,
        ("drop", [name]) => notes.write(|notes| notes.remove(*name).is_some())?,
        ("list", []) => notes.read(|notes| {
            for (name, text) in notes {
                println!("{name} {}", text.len());
            }
            true
        })?,
        ("fill", []) => fill(&notes)?,
        _ => false,
    };
    notes.close()?;
    Ok(found)
}

/// Each note's text is its name, over and over. Old ones go.
fn fill(notes: &Durable<Notes>) -> Result<bool> {
    const KEPT: u64 = 500;
    let name = |number: u64| format!("note {number:012}");
    loop {
        let number = notes.write(|notes| {
            let numbered = (Bound::Included("note "), Bound::Excluded("note!"));
            let last = notes.range::<str, _>(numbered).next_back();
            let last: u64 = last.and_then(|(name, _)| name[5..].parse().ok()).unwrap_or(0);
            let number = last + 1;
            let text = name(number).into_bytes().repeat(1 + number as usize % 40);
            notes.insert(name(number), text);
            notes.remove(&name(number.saturating_sub(KEPT)));
            number
        })?;
        println!("{number}");
    }
}
