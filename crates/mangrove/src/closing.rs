//! A pool that is closed in order when it is dropped.

use crate::Result;
use mangrove_pmem::Pool;

/// Closes its pool at the latest when dropped; then errors go nowhere.
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
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(pool) = self.0.take() {
            // Whoever wants to know calls `Map::close`; what was acknowledged is durable either way.
            let _ = pool.close();
        }
    }
}
