//! Tasks of the runtime.
//!
//! Tokio's code for a task is compiled for each type of future, and twice, as it has two schedulers.
//! A boxed future has one type for all: the box costs a connection an allocation, and the futures'
//! own code is there once.

use core::pin::{Pin, pin};
use hyper::rt::Executor;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// A future on the heap.
type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Boxes a future that becomes a task.
pub(crate) fn boxed<T>(future: impl Future<Output = T> + Send + 'static) -> BoxedFuture<T> {
    Box::pin(future)
}

/// Starts a task on the current runtime.
///
/// # Panics
///
/// Outside a runtime.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(boxed(future))
}

/// Runs a future to its end on the calling thread.
///
/// # Panics
///
/// Within a runtime.
pub fn block_on<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let future: Pin<&mut dyn Future<Output = T>> = pin!(future);
    runtime.block_on(future)
}

/// Starts hyper's own tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskExecutor;

impl<F> Executor<F> for TaskExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        spawn(async move {
            future.await;
        });
    }
}
