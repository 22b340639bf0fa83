//! Stacks: a second one for a thread, what waits on one, and a call that returns twice.

pub(crate) mod checkpoint;
pub(crate) mod second_stack;
pub(crate) mod stack_walk;
