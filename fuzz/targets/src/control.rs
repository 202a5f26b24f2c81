//! What reaches a running gateway, or its clients, by the control socket.

use gatewright_gateway::{
    CaptureStream, TraceRequest,
    api::{ControlRequest, RequestLines},
};
use gatewright_planes::RouteTarget;
use std::io::{BufReader, Read};

/// A destination, a frame in digits, a request, requests line by line, and the chunks of a live
/// capture.
pub fn control(octets: &[u8]) {
    let text = String::from_utf8_lossy(octets);
    if let Ok(RouteTarget::Network(network)) = RouteTarget::parse(&text) {
        assert_eq!(network.network(), network, "a destination has no host part");
    }
    let trace = TraceRequest { frame: Some(text.to_string()), ..TraceRequest::default() };
    if let Ok(Some(frame)) = trace.octets() {
        assert_eq!(frame.len() * 2, text.len());
    }
    if let Ok(request) = ControlRequest::parse(&text) {
        // What was understood is told and understood again.
        let again =
            serde_json::to_string(&request).map(|told| ControlRequest::parse(&told).is_ok());
        assert!(again.is_ok_and(|again| again), "{request:?}");
        if let ControlRequest::Attach(spec) = request {
            let _placement = spec.read(&["lan".to_owned()]);
        }
    }
    let all = lines([octets].into_iter());
    for pieces in [1, 7] {
        assert_eq!(lines(octets.chunks(pieces)), all, "however a client's octets are cut");
    }
    let whole = chunks(octets);
    let pieces = chunks(Slow(octets));
    assert_eq!(whole, pieces, "however the stream is cut");
}

/// The lines of a client that sends these octets and closes.
fn lines<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut lines, mut found) = (RequestLines::default(), Vec::new());
    for piece in pieces {
        lines.push(piece);
        found.extend(std::iter::from_fn(|| lines.next_line()));
        assert!(!lines.is_too_long(), "the inputs are short");
    }
    found.extend(lines.last_line());
    found
}

/// The chunks of a capture with what was told behind them, as far as they can be read.
fn chunks(stream: impl Read) -> (Vec<Vec<u8>>, Option<serde_json::Value>) {
    let mut stream = CaptureStream::over(BufReader::with_capacity(16, stream));
    let mut chunks = Vec::new();
    while let Ok(Some(chunk)) = stream.next_chunk() {
        chunks.push(chunk);
    }
    (chunks, stream.told().cloned())
}

/// Octets that come one by one.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(1);
        into.get_mut(..most).map_or(Ok(0), |into| self.0.read(into))
    }
}
