//! The order in which requests get a connection while all are in use: the clients' connections take
//! turns, so that one of them with a hundred requests delays the others by one request, not by a
//! hundred.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A client's connection. Zero is the gateway itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientId(pub(crate) u64);

/// Hands out one turn at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct FairLine(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// The clients that wait, in the order of their turns, with their requests.
    clients: VecDeque<(ClientId, VecDeque<oneshot::Sender<Turn>>)>,
}

/// The turn of a request. Dropping it gives the turn to the next.
#[derive(Debug)]
pub(super) struct Turn(Option<FairLine>);

impl FairLine {
    /// Waits for the turn of a client.
    pub(super) async fn turn(&self, client: ClientId) -> Turn {
        let waiting = {
            let mut state = self.0.lock();
            if !state.is_taken {
                state.is_taken = true;
                return Turn(Some(self.clone()));
            }
            let (sender, receiver) = oneshot::channel();
            let mut clients = state.clients.iter_mut();
            match clients.find(|(other, _)| *other == client) {
                Some((_, requests)) => requests.push_back(sender),
                None => state.clients.push_back((client, VecDeque::from([sender]))),
            }
            receiver
        };
        // A sender is never dropped without having sent.
        waiting.await.unwrap_or(Turn(None))
    }

    fn pass_on(&self) {
        let mut state = self.0.lock();
        let mut turn = Turn(Some(self.clone()));
        while let Some((client, mut requests)) = state.clients.pop_front() {
            let next = loop {
                match requests.pop_front() {
                    Some(request) if request.is_closed() => {}
                    next => break next,
                }
            };
            if !requests.is_empty() {
                state.clients.push_back((client, requests));
            }
            let Some(next) = next else { continue };
            match next.send(turn) {
                Ok(()) => return,
                Err(back) => turn = back,
            }
        }
        state.is_taken = false;
        // Nobody waits. Dropped as it is, it would be passed on again.
        turn.0 = None;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(line) = self.0.take() {
            line.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_take_turns_whatever_number_of_requests_they_have() {
        let line = FairLine::default();
        let first = line.turn(ClientId(9)).await;
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut requests = tokio::task::JoinSet::new();
        for client in [1, 1, 1, 1, 2, 3, 3] {
            let (line, served) = (line.clone(), Arc::clone(&served));
            let waiting = async move {
                let _turn = line.turn(ClientId(client)).await;
                served.lock().push(client);
            };
            requests.spawn(waiting);
            tokio::task::yield_now().await;
        }
        drop(first);
        requests.join_all().await;
        assert_eq!(*served.lock(), [1, 2, 3, 1, 3, 1, 1]);
        assert!(!line.0.lock().is_taken);
    }

    #[tokio::test]
    async fn requests_that_have_given_up_are_passed_over() {
        let line = FairLine::default();
        let first = line.turn(ClientId(1)).await;
        for _ in 0..10_000 {
            let mut given_up = Box::pin(line.turn(ClientId(2)));
            assert!(futures_poll(given_up.as_mut()).is_none());
        }
        let mut waiting = Box::pin(line.turn(ClientId(3)));
        assert!(futures_poll(waiting.as_mut()).is_none());
        drop(first);
        let turn = waiting.await;
        drop(turn);
        assert!(!line.0.lock().is_taken);
        assert!(line.0.lock().clients.is_empty());
    }

    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
