//! Transport of a device's connection: a stream of octets, or datagrams of one APDU each.

use super::DevicesConfig;
use crate::datagram_socket::DatagramSocket;
use crate::listeners::{ListenerAddress, ListenerKind};
use core::fmt::Debug;
use core::future::poll_fn;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use gatewright_health::frame::Framer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::mpsc;

/// Octets read at once: the longest APDU of most devices; the buffer is on the stack only briefly.
pub(crate) const PIECE: usize = 4_096;

/// A stream of octets, with or without TLS.
pub(crate) trait DeviceStream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin> DeviceStream for S {}

/// Transport of a connection.
#[derive(Debug)]
pub(crate) enum Transport {
    Stream(Box<dyn DeviceStream>),
    Datagrams(Datagrams),
}

/// The datagrams of one device.
#[derive(Debug)]
pub(crate) struct Datagrams {
    pub(crate) socket: Arc<DatagramSocket>,
    pub(crate) peer: SocketAddr,
    pub(crate) arrived: mpsc::Receiver<Box<[u8]>>,
}

/// Input from a transport.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// End of the transport.
    End,
    /// Octets, stored in the framer.
    Octets,
    /// One APDU.
    Apdu(Box<[u8]>),
}

impl Transport {
    /// Waits for input. Dropping the future loses nothing.
    pub(crate) async fn receive(&mut self, framer: &mut Framer) -> io::Result<Arrived> {
        match self {
            Self::Stream(stream) => {
                let length = poll_fn(|context| read(stream, context, framer)).await?;
                Ok(if length == 0 { Arrived::End } else { Arrived::Octets })
            }
            Self::Datagrams(datagrams) => {
                Ok(datagrams.arrived.recv().await.map_or(Arrived::End, Arrived::Apdu))
            }
        }
    }

    /// Sends one APDU.
    pub(crate) async fn send(&mut self, apdu: &[u8]) -> io::Result<()> {
        match self {
            Self::Stream(stream) => {
                stream.write_all(apdu).await?;
                stream.flush().await
            }
            Self::Datagrams(Datagrams { socket, peer, .. }) => socket.send_to(apdu, *peer).await,
        }
    }
}

fn read(
    stream: &mut Box<dyn DeviceStream>,
    context: &mut Context<'_>,
    framer: &mut Framer,
) -> Poll<io::Result<usize>> {
    let mut piece = [const { MaybeUninit::uninit() }; PIECE];
    let mut buffer = ReadBuf::uninit(&mut piece);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    framer.push(buffer.filled());
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Addresses to listen on for devices.
pub(super) fn listener_addresses(config: &DevicesConfig) -> Vec<ListenerAddress> {
    let all = [
        (ListenerKind::Devices, Some(config.listen)),
        (ListenerKind::DevicesUdp, config.datagrams),
        (ListenerKind::DevicesStack, config.stack),
        (ListenerKind::DevicesTls, config.tls.as_ref().map(|(at, _)| *at)),
    ];
    all.into_iter()
        .filter_map(|(kind, at)| at.map(|address| ListenerAddress { kind, address }))
        .collect()
}
