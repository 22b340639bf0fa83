//! The index against a model, alone and under contention.

mod audit;
mod heap;
mod model;
mod shapes;
mod stress;
