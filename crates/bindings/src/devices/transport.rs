//! What a connection of a device runs over: a stream of octets, or datagrams of one APDU each.

use core::fmt::Debug;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use gatewright_health::frame::Framer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;

/// Octets read at once: a longest APDU of most devices; it lives on the stack for a moment only.
const PIECE: usize = 4_096;

/// A stream of octets, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin> Stream for S {}

/// What a connection runs over.
#[derive(Debug)]
pub(super) enum Transport {
    Stream(Box<dyn Stream>),
    Datagrams(Datagrams),
}

/// The datagrams of one device.
#[derive(Debug)]
pub(super) struct Datagrams {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) peer: SocketAddr,
    pub(super) arrived: mpsc::Receiver<Box<[u8]>>,
}

/// What has arrived.
#[derive(Debug)]
pub(super) enum Arrived {
    /// The end.
    End,
    /// Octets, which the framer has.
    Octets,
    /// One APDU.
    Apdu(Box<[u8]>),
}

impl Transport {
    /// Waits for what arrives. Dropping the future loses nothing.
    pub(super) async fn receive(&mut self, framer: &mut Framer) -> io::Result<Arrived> {
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
    pub(super) async fn send(&mut self, apdu: &[u8]) -> io::Result<()> {
        match self {
            Self::Stream(stream) => {
                stream.write_all(apdu).await?;
                stream.flush().await
            }
            Self::Datagrams(Datagrams { socket, peer, .. }) => {
                socket.send_to(apdu, *peer).await.map(drop)
            }
        }
    }
}

fn read(
    stream: &mut Box<dyn Stream>,
    context: &mut Context<'_>,
    framer: &mut Framer,
) -> Poll<io::Result<usize>> {
    let mut piece = [0; PIECE];
    let mut buffer = ReadBuf::new(&mut piece);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    framer.push(buffer.filled());
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Writes all of it.
pub(crate) async fn write(stream: &TcpStream, mut octets: &[u8]) -> io::Result<()> {
    while !octets.is_empty() {
        stream.writable().await?;
        match stream.try_write(octets) {
            Ok(length) => octets = octets.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
