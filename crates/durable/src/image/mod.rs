//! The durable state: what it holds, where it lies, and which program it belongs to.

pub(super) mod aslr;
pub(super) mod audit;
mod free_space;
#[cfg(test)]
mod free_space_tests;
mod gather;
pub(super) mod image;
#[cfg(test)]
pub(super) mod image_tests;
pub(super) mod layout;
mod left_states;
pub(super) mod modules;
mod pointers;
mod space;
pub(super) mod variables;
