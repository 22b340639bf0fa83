//! The bytes, as docs/format/map.md has them.

pub(super) mod layout;
pub(super) mod leaf;
pub(super) mod redo_list;
pub(super) mod size_class;
pub(super) mod space;
