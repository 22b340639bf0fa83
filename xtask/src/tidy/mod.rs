//! `cargo xtask tidy`: rules of this repository's structure that no compiler and no lint looks after.
//! It reads the sources as text, so it is right for whatever files there are.

mod c_files;
mod circles;
mod docs;
mod floors;
mod form;
mod modules;
mod names;
mod orphans;
mod run;
mod scan;
mod sources;
mod types;

#[cfg(test)]
mod tests;

pub(crate) use run::{Args, run};
