//! CoAP's message layer, with datagrams of a peer and time passing.

use core::time::Duration;
use gatewright_onem2m::coap::primitive::{option, read_request, read_response, write_response};
use gatewright_onem2m::coap::{CoapMessage, Endpoint, Input, Limits, Output, RequestId};
use gatewright_onem2m::{Response, Serialisation, Status};
use gatewright_wire::coap::Code;
use std::net::{Ipv4Addr, SocketAddr};

/// Steps of one run at most.
const STEPS_MAX: usize = 200;

/// An endpoint that asks and answers. Each datagram is told by its length and by how many half
/// seconds it comes after the last one.
pub fn coap_endpoint(octets: &[u8]) {
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 5_683));
    let mut endpoint = Endpoint::new(Limits::default(), option::is_known, [0, 0]);
    let mut now = Duration::ZERO;
    let message = CoapMessage { payload: vec![0; 3_000], ..CoapMessage::new(Code::PUT) };
    endpoint.handle(now, Input::Request { id: RequestId(1), to: peer, message });
    let mut rest = octets;
    for _ in 0..STEPS_MAX {
        let Some((&[length, late], tail)) = rest.split_first_chunk() else { break };
        let (datagram, tail) = tail.split_at(usize::from(length).min(tail.len()));
        rest = tail;
        now += Duration::from_millis(500) * u32::from(late);
        endpoint.handle(now, Input::Datagram { from: peer, octets: datagram });
        serve(&mut endpoint, now);
    }
    // Whatever was left open ends by itself.
    for _ in 0..STEPS_MAX {
        let Some(due) = endpoint.poll_timeout() else { return };
        endpoint.handle(due, Input::Tick);
        serve(&mut endpoint, due);
    }
    assert_eq!(endpoint.poll_timeout(), None);
}

fn serve(endpoint: &mut Endpoint, now: Duration) {
    while let Some(output) = endpoint.poll_output() {
        match output {
            Output::Asked { id, message, .. } => {
                let request = read_request(&message);
                let status = request.as_ref().map_or_else(|refusal| refusal.status, |_| Status::Ok);
                let mut response = Response::new(status, "1", gatewright_onem2m::Release::R4);
                response.content = Some("[]".repeat(700).into());
                let message = write_response(&response, Serialisation::Json);
                endpoint.handle(now, Input::Respond { id, message });
            }
            Output::Answered { answer: Ok(answer), .. } => {
                let _refused = read_response(&answer).is_err();
            }
            _ => {}
        }
    }
}
