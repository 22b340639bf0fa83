//! One instant of the map: snapshots, ranges, and the pre-images that keep an instant readable.

mod fetch;
mod pin;
pub(super) mod pre_images;
pub(super) mod range;
pub(super) mod snapshot;
