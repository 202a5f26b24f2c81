//! Turns of requests that ask the gateway, or wait for it.
//!
//! A few of them run at a time. Each caller has few turns at once and waits for further ones in a
//! queue of its own, and viewers leave one turn to operators. So requests of one caller, however many,
//! hold up another one's by one turn of each caller that waits.

use crate::{answer::WebRefusal, session::Caller, tokens::AccessRole};
use hyper::header::RETRY_AFTER;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests that ask at a time.
pub(crate) const TURNS_MAX: usize = 4;

/// Those of all that are no operators.
const OF_VIEWERS_MAX: usize = TURNS_MAX - 1;

/// Those of one caller.
const OF_CALLER_MAX: usize = 2;

/// Maximum requests of one caller that ask or wait for a turn.
const WAITING_MAX: usize = 64;

/// How long a request waits for its turn.
const WAIT_WITHIN: Duration = Duration::from_secs(10);

/// The turns.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    viewers: Arc<Semaphore>,
    /// Those of each caller that asks or waits, by its name; strangers share one.
    callers: Mutex<HashMap<String, Arc<CallerTurns>>>,
}

/// The turns of one caller. Each of its requests holds a reference.
#[derive(Debug)]
struct CallerTurns(Arc<Semaphore>);

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct CallerTurn {
    _all: OwnedSemaphorePermit,
    _viewers: Option<OwnedSemaphorePermit>,
    _own: OwnedSemaphorePermit,
    _caller: Arc<CallerTurns>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(TURNS_MAX)),
            viewers: Arc::new(Semaphore::new(OF_VIEWERS_MAX)),
            callers: Mutex::default(),
        }
    }
}

impl Turns {
    /// Waits for a turn of a caller.
    ///
    /// # Errors
    ///
    /// 503 if it waits for too many, or for too long.
    pub(crate) async fn turn(&self, caller: &Caller) -> Result<CallerTurn, WebRefusal> {
        let mine = self.of(&caller.name);
        // The list has one reference, and each request another one.
        if Arc::strong_count(&mine) > WAITING_MAX + 1 {
            return Err(busy(&format!("{WAITING_MAX} of your requests wait for the gateway")));
        }
        let is_operator = caller.role >= Some(AccessRole::Operator);
        let late = |_| busy("the gateway is busy");
        tokio::time::timeout(WAIT_WITHIN, self.wait(mine, is_operator)).await.map_err(late)?
    }

    /// Takes the turns from the narrowest on: who waits for the last one keeps nobody else's.
    async fn wait(
        &self,
        mine: Arc<CallerTurns>,
        is_operator: bool,
    ) -> Result<CallerTurn, WebRefusal> {
        // They are never closed.
        let closed = |_| busy("the gateway ends");
        let own = Arc::clone(&mine.0).acquire_owned().await.map_err(closed)?;
        let viewers = if is_operator {
            None
        } else {
            Some(Arc::clone(&self.viewers).acquire_owned().await.map_err(closed)?)
        };
        let all = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        Ok(CallerTurn { _all: all, _viewers: viewers, _own: own, _caller: mine })
    }

    fn of(&self, name: &str) -> Arc<CallerTurns> {
        // A poisoned lock is safe here: each change is one call of a map.
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = callers.get(name) {
            return Arc::clone(known);
        }
        // Those without a request are forgotten, so there are no more than connections.
        callers.retain(|_, turns| Arc::strong_count(turns) > 1);
        let new = Arc::new(CallerTurns(Arc::new(Semaphore::new(OF_CALLER_MAX))));
        callers.insert(name.to_owned(), Arc::clone(&new));
        new
    }
}

fn busy(why: &str) -> WebRefusal {
    let why = format!("{why}: ask again in a second");
    WebRefusal::unavailable(why).with(RETRY_AFTER, "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    /// A turn that comes while others run.
    async fn turn_of(turns: &Turns, caller: &Caller) -> Option<CallerTurn> {
        let turn = tokio::time::timeout(Duration::from_millis(50), turns.turn(caller));
        turn.await.ok().and_then(Result::ok)
    }

    /// One viewer fills its own turns only, all viewers leave one, and each waits for its own.
    #[tokio::test]
    async fn callers_take_turns_and_operators_find_one() {
        let turns = Turns::default();
        let [eve, ann] = ["eve", "ann"].map(|name| Caller::of_test(name, AccessRole::Viewer));
        let ops = Caller::of_test("ops", AccessRole::Operator);
        let held = (turn_of(&turns, &eve).await.unwrap(), turn_of(&turns, &eve).await.unwrap());
        let mut waiting: Vec<_> = (2..WAITING_MAX).map(|_| Box::pin(turns.turn(&eve))).collect();
        for one in &mut waiting {
            assert!(tokio::time::timeout(Duration::ZERO, one).await.is_err());
        }
        let refused = turns.turn(&eve).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        let of_ann = turn_of(&turns, &ann).await.unwrap();
        assert!(turn_of(&turns, &ann).await.is_none(), "three of viewers run");
        let of_ops = turn_of(&turns, &ops).await.expect("one is left to operators");
        assert!(turn_of(&turns, &ops).await.is_none(), "all four run");
        drop((of_ann, of_ops));
        assert!(turn_of(&turns, &ann).await.is_some(), "whatever waits of another caller");
        drop(held);
        for one in waiting {
            drop(one.await.unwrap());
        }
        assert!(turn_of(&turns, &Caller::of_test("new", AccessRole::Viewer)).await.is_some());
        let callers: Vec<String> = turns.callers.lock().unwrap().keys().cloned().collect();
        assert_eq!(callers, ["new"], "who asks nothing is forgotten");
    }
}
