//! On which bucket of a limiter a command runs, and for whom.

use super::request::HolderId;
use crate::idempotency::OpId;
use crate::store::TierId;

/// On which bucket of a limiter a command runs, and for whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) key: &'a [u8],
    /// The tier of the key, if the caller knows it.
    pub(crate) tier: Option<TierId>,
    /// Under which id the command runs only once.
    pub(crate) id: Option<&'a OpId>,
    /// Who holds the tokens that the command settles; the limiter's own id by default.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only Redis asks who it is")
    )]
    pub(crate) holder: Option<HolderId>,
}

impl<'a> Target<'a> {
    pub(crate) const fn new(key: &'a [u8]) -> Self {
        Self {
            key,
            tier: None,
            id: None,
            holder: None,
        }
    }

    pub(crate) const fn once(mut self, id: &'a OpId) -> Self {
        self.id = Some(id);
        self
    }
}
