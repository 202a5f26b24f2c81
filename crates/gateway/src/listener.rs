//! A thread that accepts clients of a listening socket.

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};
use std::{
    io,
    os::fd::AsFd,
    sync::Arc,
    thread::{Builder, JoinHandle, sleep},
    time::Duration,
};

/// Time before another attempt to accept a client when the system has no descriptor or memory.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A thread that accepts clients until this value is dropped.
#[derive(Debug)]
pub(crate) struct ListenerThread {
    /// Written once, never read, so that a later poll sees it too.
    end: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl ListenerThread {
    /// Calls `accept` whenever a client waits at `listener`, which is non-blocking.
    ///
    /// # Errors
    ///
    /// If the system gives no descriptor or no thread.
    pub(crate) fn start<L: AsFd + Send + 'static>(
        name: &str,
        listener: L,
        accept: impl Fn(&L) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let end = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let ended = Arc::clone(&end);
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            while wait(&listener, &ended) {
                match accept(&listener) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => sleep(AGAIN_AFTER),
                    _ => {}
                }
            }
        })?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for ListenerThread {
    fn drop(&mut self) {
        // It has no counts to overflow by one.
        let _written = self.end.write(1);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Waits for a client; returns false once it is to end.
fn wait(listener: &impl AsFd, end: &EventFd) -> bool {
    let mut fds = [listener.as_fd(), end.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    // An error is a signal, and a signal is a reason to look again.
    let _interrupted = poll(&mut fds, PollTimeout::NONE);
    let [_, end] = fds;
    !end.any().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{TcpListener, TcpStream},
        sync::mpsc::channel,
    };

    #[test]
    fn each_client_is_accepted_until_the_listener_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (came, comes) = channel();
        let thread = ListenerThread::start("listener", listener, move |listener| {
            let (_, from) = listener.accept()?;
            came.send(from).map_err(io::Error::other)
        })
        .unwrap();
        for _ in 0..3 {
            let client = TcpStream::connect(address).unwrap();
            assert_eq!(comes.recv().unwrap(), client.local_addr().unwrap());
        }
        drop(thread);
        TcpStream::connect(address).unwrap_err();
        comes.recv().unwrap_err();
    }
}
