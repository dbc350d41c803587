//! The registration of FILL and COMPLETION rings in a UMEM.

use super::{AfterClose, RingsId, Umem};
use crate::error::Result;

/// The registration of one FILL and COMPLETION pair. When it ends, after rings and socket, the
/// chunks lent through the pair come back.
#[derive(Debug)]
pub(crate) struct RingsLease<'u> {
    umem: &'u Umem,
    id: RingsId,
    after: AfterClose,
}

impl<'u> RingsLease<'u> {
    /// Registers a pair whose chunks the kernel lets go of at the end.
    pub(crate) fn new(umem: &'u Umem) -> Result<Self> {
        Ok(Self {
            umem,
            id: umem.register_rings()?,
            after: AfterClose::LetGo,
        })
    }

    /// The pair.
    pub(crate) fn id(&self) -> RingsId {
        self.id
    }

    /// Sets the kernel's access to the chunks after the end.
    pub(crate) fn set_after_close(&mut self, after: AfterClose) {
        self.after = after;
    }
}

impl Drop for RingsLease<'_> {
    fn drop(&mut self) {
        self.umem.release_rings(self.id, self.after);
    }
}
