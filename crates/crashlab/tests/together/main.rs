//! The tests that can share a process, as modules of one program: it compiles in a fraction of the time of many.

mod bulk_load;
mod damage;
mod file_model;
mod space;
mod store_model;
