//! Moving databases between LevelDB itself and this library: import and export.

mod export;
mod foreign;
mod import;
mod manifest;
mod options;
mod outcome;
mod partial;
mod room;
mod source_view;
mod tables;

pub use export::export;
pub use import::import;
pub use options::TransferOptions;
pub use outcome::{TransferError, TransferProgress, Transferred};
