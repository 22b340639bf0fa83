//! A look at a file pool: a reader that opens it while a process writes to it. docs/decisions/looks.md says why it is
//! as it is.

pub(crate) mod gate;
pub(crate) mod hole;
pub(crate) mod look;
