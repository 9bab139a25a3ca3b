//! Where openraft puts the result of a proposal.

use openraft::OptionalSend;
use openraft::raft::responder::Responder;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::entry::TypeConfig;

/// Hands a result to whoever waits for it, and gives back the proposal's share of the budget, when the
/// entry is done with: not earlier, even if nobody waits any more.
pub(crate) struct Reply<T> {
    sender: oneshot::Sender<T>,
    _share: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    pub(crate) fn new(share: OwnedSemaphorePermit) -> (Reply<T>, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        let reply = Reply {
            sender,
            _share: share,
        };
        (reply, receiver)
    }
}

impl<T: OptionalSend + 'static> Responder<TypeConfig, T> for Reply<T> {
    fn on_complete(self, result: T) {
        // A caller that gave up left an outcome that it treats as unknown.
        let _ = self.sender.send(result);
    }
}
