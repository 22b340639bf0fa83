//! What this machine can do for durable data: processor, medium, and what its disk takes for a sync.

mod cpu_facts;
pub(super) mod disk_floor;
pub(super) mod doctor;
