//! Translation from machine code to machine code that records its stores.

pub(super) mod branches;
pub(super) mod decode;
pub(super) mod emit;
pub(super) mod liveness;
pub(super) mod masked_stores;
pub(super) mod record;
pub(super) mod translate;
