//! An open capture, and how it is closed.

use crate::{
    captures::{CaptureNumber, CaptureReaders},
    error::DataError,
    plane::PlanePort,
    port::{Port, PortRequest},
};
use gatewright_stack::builtin::CapturedPacket;
use std::{
    fmt,
    sync::{Arc, mpsc::Receiver},
};

/// An open capture.
#[derive(Debug)]
pub struct OpenCapture {
    /// Its number.
    pub number: CaptureNumber,
    /// Its packets; it ends when the capture is closed and no handler sends there.
    pub captured: Receiver<CapturedPacket>,
    /// Closes it.
    pub closer: CaptureCloser,
}

/// Closes a capture. Clones close the same one.
#[derive(Clone)]
pub struct CaptureCloser {
    number: CaptureNumber,
    readers: Arc<CaptureReaders>,
    port: PlanePort,
}

impl fmt::Debug for CaptureCloser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaptureCloser({})", self.number.0)
    }
}

impl CaptureCloser {
    /// Opens a capture behind a port.
    pub(crate) fn open(port: PlanePort) -> Result<OpenCapture, DataError> {
        let readers = port.capture_readers();
        let (number, captured) = readers.open().ok_or(DataError::Busy)?;
        Ok(OpenCapture { number, captured, closer: Self { number, readers, port } })
    }

    /// Packets from another process that were not read in time.
    pub fn missed(&self) -> u64 {
        self.readers.missed(self.number)
    }

    /// Closes it: packets of handlers that are detached already still come.
    pub fn close(&self) {
        // Workers that have ended send nothing more.
        let _ended = self.port.ask(PortRequest::FlushCaptures);
        self.readers.close(self.number);
    }
}
