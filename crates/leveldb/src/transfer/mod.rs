//! Moving databases between LevelDB itself and this library: import and export.

mod export;
mod foreign;
mod import;
mod manifest;
mod outcome;
mod partial;
mod room;
mod source_view;

pub use export::{ExportOptions, export};
pub use import::{ImportOptions, import};
pub use outcome::{TransferError, TransferProgress, Transferred};
