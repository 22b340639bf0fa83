//! The engines under test, their workloads and models.

pub(super) mod collections;
pub(super) mod collections_model;
pub(super) mod durable;
pub(super) mod durable_state;
pub(super) mod durable_workload;
pub(super) mod htm_sgl;
pub(super) mod map;
pub(super) mod map_model;
pub(super) mod map_workload;
pub(super) mod shadow;
pub(super) mod space;
pub(super) mod subject;
pub(super) mod toy;
pub(super) mod txn;
