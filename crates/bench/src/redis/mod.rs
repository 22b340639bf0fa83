//! `mangrove bench redis`: the durable Redis-compatible server beside stock ones, with a closed-loop client.

mod args;
mod cases;
mod client;
mod commands;
mod figures;
mod goals;
mod lines;
mod processor;
mod reply;
mod round;
mod run;
mod server;
mod server_dir;
mod subjects;

pub use args::RedisArgs;
pub use run::run;
