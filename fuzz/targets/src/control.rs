//! What reaches a running gateway, or its clients, by the control socket.

use gatewright_gateway::{CaptureStream, TraceRequest, api::ControlRequest};
use gatewright_planes::RouteTarget;
use std::io::{BufReader, Read};

/// A destination, a frame in digits, a request, and the chunks of a live capture.
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
    let whole = chunks(octets);
    let pieces = chunks(Slow(octets));
    assert_eq!(whole, pieces, "however the stream is cut");
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
