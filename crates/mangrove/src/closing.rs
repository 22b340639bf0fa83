//! A pool that is closed in order when it is dropped.

use crate::Result;
use mangrove_pool::Pool;

/// Closes its pool when dropped, if `close` has not done so; errors are lost then.
pub(crate) struct Closing(Option<Pool>);

impl Closing {
    pub(crate) fn new(pool: Pool) -> Self {
        Self(Some(pool))
    }

    pub(crate) fn pool(&self) -> &Pool {
        match &self.0 {
            Some(pool) => pool,
            None => unreachable!("only `close`, which takes the value, empties it"),
        }
    }

    pub(crate) fn close(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |pool| Ok(pool.close()?))
    }

    /// Ends the pool as a crash does, and removes it if it was created by this opening.
    pub(crate) fn undo_creation(mut self) {
        if let Some(pool) = self.0.take() {
            pool.undo_creation();
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(pool) = self.0.take() {
            // A caller that must know calls `Map::close`; what was acknowledged is durable in either case.
            let _ = pool.close();
        }
    }
}
