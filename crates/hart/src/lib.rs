//! Placeholder.
mod index;
