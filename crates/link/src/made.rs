//! Devices that are made rather than found: TAP and TUN interfaces, and capture files.

use crate::interface::Interface;
use crate::pcapng::{CaptureLink, CaptureReader, ReadError, Speed, file as capture_file};
use crate::tap::{self, TapDevice};
use crate::unbound::{UnboundDevice, UnboundLink};
use crate::{
    DeviceFacts, Exclusive, Framing, HeldDevice, HeldKind, LinkInfo, Mode, OpenError, Preparer,
    Share, local_address,
};
use gatewright_packet::{LinkAddress, LinkIndex, Pool};
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Configuration to create a TAP or TUN interface, with a link as its other end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TapConfig {
    /// The link's index in the gateway, stamped on received frames.
    pub index: LinkIndex,
    /// The name of the interface; the kernel replaces `%d` in it by a number.
    pub interface: String,
    /// Ethernet for TAP, IP for TUN.
    pub framing: Framing,
    /// Maximum octets of a packet without its link-layer header.
    pub mtu: usize,
    /// Whether the kernel's end is set up, too. It gets no addresses here.
    pub up: bool,
}

impl TapConfig {
    /// Octets of its largest frame, with room for two tags.
    pub const fn frame_len_max(&self) -> usize {
        self.mtu + self.framing.header_len_max()
    }
}

/// Configuration of a link over capture files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaptureConfig {
    /// The link's index in the gateway, stamped on received frames.
    pub index: LinkIndex,
    /// The link's name, which is also that of the written interface.
    pub name: String,
    /// The file whose frames arrive.
    pub read: Option<PathBuf>,
    /// The file that takes the frames that leave; a capture that it held before is lost, and a file
    /// that holds something else is refused.
    pub write: Option<PathBuf>,
    /// How fast `read` is replayed.
    pub speed: Speed,
    /// The first header of the frames in both files.
    pub framing: Framing,
    /// Maximum octets of a packet without its link-layer header.
    pub mtu: usize,
}

/// The framing of a capture file: that of its first frame, or of its first interface if it has no
/// frame.
///
/// # Errors
///
/// [`OpenError::File`] if it cannot be opened, [`OpenError::Capture`] if it is no capture of
/// Ethernet frames or IP packets.
pub fn capture_framing(file: &Path) -> Result<Framing, OpenError> {
    let name = || file.display().to_string();
    let open = |source| OpenError::File { file: name(), action: "read", source };
    let wrong = |reason| OpenError::Capture { file: name(), reason };
    let mut reader = CaptureReader::new(BufReader::new(capture_file::open(file).map_err(open)?));
    let first = match reader.next_record() {
        Ok(record) => record.map(|record| record.interface),
        Err(ReadError::Io(source)) => return Err(open(source)),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let interface = match first {
        Some(first) => reader.interface(first),
        None => reader.interfaces().first(),
    };
    let Some(interface) = interface else {
        return Err(wrong("the capture file describes no interface".to_owned()));
    };
    interface.framing.ok_or_else(|| {
        wrong("its frames begin neither with an Ethernet header nor with an IP header".to_owned())
    })
}

impl Preparer {
    /// Creates a TAP or TUN interface for a link at its other end.
    ///
    /// # Errors
    ///
    /// As [`Opener::open_tap`].
    pub fn prepare_tap(&self, config: &TapConfig) -> Result<UnboundLink, OpenError> {
        const CAPABILITY: &str = "CAP_NET_ADMIN";
        if let Some(held) = self.held_tap(config)? {
            return Ok(held);
        }
        let device = TapDevice::new(&config.interface, config.framing).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                return OpenError::NoDevice { name: tap::DEVICE.to_owned(), others: Vec::new() };
            }
            OpenError::system(&config.interface, "make a TAP or TUN device", CAPABILITY, source)
        })?;
        let name = device.name.clone();
        let set = |source| OpenError::system(&name, "set the MTU", CAPABILITY, source);
        let interface = Interface::find(&name).map_err(set)?;
        interface.set_mtu(config.mtu).map_err(set)?;
        if config.up {
            let set = |source| OpenError::system(&name, "take up", CAPABILITY, source);
            interface.set_up().map_err(set)?;
        }
        let mtu = config.mtu;
        self.check_chunk(&name, mtu, config.framing)?;
        let mac = interface.mac().ok().flatten();
        let link_address = mac.map_or(LinkAddress::NONE, tap::other_end);
        let info = LinkInfo {
            name,
            mode: match config.framing {
                Framing::Ethernet => Mode::Tap,
                Framing::Ip => Mode::Tun,
            },
            why: "as configured".to_owned(),
            framing: config.framing,
            link_address,
            mtu,
            partial_checksums: true,
            exclusive: Exclusive::Ours,
            driver: interface.driver(),
            kernel_index: interface.index,
            queues: vec![0],
            receivers: 1,
            driver_forwarding: crate::DriverForwarding::NotAsked,
        };
        self.tap_link(config, info, interface, device)
    }

    /// The interface that an earlier process has created for the link, as it is now.
    fn held_tap(&self, config: &TapConfig) -> Result<Option<UnboundLink>, OpenError> {
        let is_tap = |kind: &HeldKind| *kind == HeldKind::Tap;
        let Some(held) = self.devices().take(config.index, Share::WHOLE, is_tap) else {
            return Ok(None);
        };
        let HeldDevice { facts: DeviceFacts { info, .. }, descriptors } = held;
        let name = info.name.clone();
        let lost = |source| OpenError::system(&name, "go on with it", "CAP_NET_ADMIN", source);
        let interface = Interface::find(&name).map_err(lost)?;
        let file = descriptors.into_iter().next().filter(|_| interface.index == info.kernel_index);
        let file = file.ok_or_else(|| lost(io::ErrorKind::NotFound.into()))?;
        self.check_chunk(&name, info.mtu, config.framing)?;
        let device = TapDevice::of_held(file, name);
        self.tap_link(config, info, interface, device).map(Some)
    }

    /// The link of a device, which another process may hold.
    fn tap_link(
        &self,
        config: &TapConfig,
        info: LinkInfo,
        interface: Interface,
        mut device: TapDevice,
    ) -> Result<UnboundLink, OpenError> {
        if self.devices().are_kept() {
            let lost = |source| OpenError::system(&info.name, "share it", "CAP_NET_ADMIN", source);
            let kept = device.keep().map_err(lost)?;
            let (link, info, kind) = (config.index, info.clone(), HeldKind::Tap);
            self.devices().note(DeviceFacts { link, share: Share::WHOLE, info, kind }, &[kept]);
        }
        let device = UnboundDevice::Tap { info, index: config.index, interface, device };
        Ok(UnboundLink::once(self.slab(), device))
    }

    /// Opens the files of a link.
    ///
    /// # Errors
    ///
    /// As [`Opener::open_capture`](crate::Opener::open_capture).
    pub fn prepare_capture(&self, config: &CaptureConfig) -> Result<UnboundLink, OpenError> {
        self.check_chunk(&config.name, config.mtu, config.framing)?;
        let failed = |path: &Path, action| {
            let file = path.display().to_string();
            move |source| OpenError::File { file, action, source }
        };
        let read = |path: &PathBuf| capture_file::open(path).map_err(failed(path, "read"));
        let write = |path: &PathBuf| capture_file::create(path).map_err(failed(path, "write"));
        let read = config.read.as_ref().map(read).transpose()?;
        let write = config.write.as_ref().map(write).transpose()?;
        let files = CaptureFiles { info: config.info(), index: config.index, read, write };
        let device = UnboundDevice::Capture(Box::new((files, config.speed)));
        Ok(UnboundLink::once(self.slab(), device))
    }

    /// Checks that the slab's packets hold the frames of a link.
    pub(crate) fn check_chunk(
        &self,
        name: &str,
        mtu: usize,
        framing: Framing,
    ) -> Result<(), OpenError> {
        let (needed, found) = (mtu + framing.header_len_max(), self.slab().packet_len_max());
        if needed > found {
            return Err(OpenError::Chunk { name: name.to_owned(), mtu, needed, found });
        }
        Ok(())
    }
}

impl CaptureConfig {
    /// The properties of the link.
    fn info(&self) -> LinkInfo {
        let file = |how: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| format!("{how} {}", path.display()))
        };
        let files = [file("replays", &self.read), file("writes", &self.write)];
        LinkInfo {
            name: self.name.clone(),
            mode: Mode::CaptureFile,
            why: files.into_iter().flatten().collect::<Vec<_>>().join(", "),
            framing: self.framing,
            // IP packets have no link-layer address.
            link_address: match self.framing {
                Framing::Ethernet => LinkAddress::ethernet(local_address(self.index).0),
                Framing::Ip => LinkAddress::NONE,
            },
            mtu: self.mtu,
            partial_checksums: false,
            exclusive: Exclusive::Ours,
            driver: String::new(),
            kernel_index: 0,
            queues: Vec::new(),
            receivers: 1,
            driver_forwarding: crate::DriverForwarding::NotAsked,
        }
    }
}

/// The open files of a capture link.
pub(crate) struct CaptureFiles {
    pub(crate) info: LinkInfo,
    index: LinkIndex,
    read: Option<File>,
    write: Option<File>,
}

impl CaptureFiles {
    /// The link, with packets of `pool`.
    pub(crate) fn bind(self, speed: Speed, pool: &Rc<Pool>) -> CaptureLink {
        let Self { info, index, read, write } = self;
        let mut link = CaptureLink::with_info(index, info, Rc::clone(pool));
        if let Some(file) = read {
            link = link.replay(Box::new(BufReader::new(file)), speed).held();
        }
        if let Some(file) = write {
            link.record_from_now(Box::new(BufWriter::new(file)));
        }
        link
    }
}
