//! Setups of links and workers, and what links report.

use super::{Plain, plain_enum, plain_struct, taken};
use crate::{
    reopen::Reopen,
    setup::{DataSetup, DeviceSetup, WorkerLink},
    workers::LinkNow,
};
use gatewright_link::{
    Backend, CaptureConfig, Chance, DeviceFacts, DpdkConfig, DriverForwarding, Exclusive, HeldKind,
    Impairment, LinkConfig, LinkInfo, LinkState, MemoryConfig, Mode, Share, TapConfig,
    pcapng::Speed,
};
use std::num::NonZeroU32;

plain_struct!(DataSetup {
    links,
    workers,
    spin,
    frames,
    chunk_size,
    cores,
    neighbours,
    seed,
    waits
});
plain_struct!(WorkerLink { name, device, queues });
plain_struct!(Reopen { device, before });

plain_enum!(DeviceSetup {
    0 => Interface(device),
    1 => Tap(device),
    2 => Capture(device),
    3 => Segment(device),
    4 => Virtual(device),
    5 => Spare(index),
    6 => Dpdk(device),
});

plain_struct!(LinkConfig {
    index,
    interface,
    backend,
    exclusive,
    promiscuous,
    vlans,
    ring_slots,
    share,
    forwards_in_driver,
});
plain_enum!(Backend { 0 => Auto, 1 => Xdp, 2 => XdpGeneric, 3 => PacketSocket });
plain_struct!(Share { number, of });
plain_struct!(TapConfig { index, interface, framing, mtu, up });
plain_struct!(CaptureConfig { index, name, read, write, speed, framing, mtu });
plain_struct!(DpdkConfig { index, port, mtu, promiscuous });
plain_struct!(MemoryConfig { index, name, segment, impairment, seed, mtu });
plain_struct!(Impairment { loss, duplicate, reorder, reorder_by, corrupt, delay, jitter });
plain_enum!(Speed { 0 => Captured, 1 => Percent(percent), 2 => FramesPerSecond(rate), 3 => Unlimited });

impl Plain for Chance {
    fn put(&self, to: &mut Vec<u8>) {
        self.in_a_million().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        u32::take(from).map(Self::per_million)
    }
}

impl Plain for NonZeroU32 {
    fn put(&self, to: &mut Vec<u8>) {
        self.get().put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Self::new(u32::take(from)?)
    }
}

plain_enum!(Mode {
    0 => XdpZeroCopy,
    1 => XdpCopy,
    2 => XdpGeneric,
    3 => PacketSocket,
    4 => Tap,
    5 => Tun,
    6 => CaptureFile,
    7 => Memory,
    8 => Virtual,
    9 => NoDevice,
    10 => Dpdk,
});
plain_enum!(Exclusive {
    0 => Shared,
    1 => Divided,
    2 => Dropped,
    3 => Redirected,
    4 => Unaddressed,
    5 => Ours,
});
plain_enum!(LinkState { 0 => Up, 1 => Down, 2 => Gone, 3 => Ended });
plain_struct!(LinkInfo {
    name,
    mode,
    why,
    framing,
    link_address,
    mtu,
    partial_checksums,
    exclusive,
    driver,
    kernel_index,
    queues,
    receivers,
    driver_forwarding,
});
plain_struct!(DeviceFacts { link, share, info, kind });
plain_enum!(HeldKind {
    0 => XdpProgram { tag_function, queues, is_generic, in_pieces },
    1 => PacketSockets { sockets, slots, frame_len },
    2 => Tap,
    3 => XdpSockets { sockets, entries, lent, chunks, chunk_size },
});
plain_enum!(DriverForwarding { 0 => NotAsked, 1 => Active, 2 => Refused(reason) });
plain_struct!(LinkNow { state, queues });

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::{CHUNK_SIZE, LinkIndex};
    use gatewright_stack::{NeighbourLimits, VirtualLink};
    use gatewright_wire::Framing;
    use std::time::Duration;

    #[test]
    fn a_setup_with_each_kind_of_device_comes_back_from_its_octets() {
        let index = LinkIndex(4);
        let impairment = Impairment {
            loss: Chance::per_million(7),
            delay: Duration::from_millis(20),
            ..Impairment::default()
        };
        let text = |text: &str| text.to_owned();
        let percent = NonZeroU32::new(50).unwrap();
        let devices = [
            DeviceSetup::Interface(LinkConfig {
                backend: Backend::PacketSocket,
                share: Share { number: 1, of: 3 },
                ..LinkConfig::new(index, "eth0")
            }),
            DeviceSetup::Tap(TapConfig {
                index,
                interface: text("tun%d"),
                framing: Framing::Ip,
                mtu: 1400,
                up: true,
            }),
            DeviceSetup::Capture(CaptureConfig {
                index,
                name: text("c"),
                read: Some("a/b.pcapng".into()),
                write: None,
                speed: Speed::Percent(percent),
                framing: Framing::Ethernet,
                mtu: 1500,
            }),
            DeviceSetup::Segment(MemoryConfig {
                index,
                name: text("s"),
                segment: text("air"),
                impairment,
                seed: 9,
                mtu: 1500,
            }),
            DeviceSetup::Dpdk(DpdkConfig {
                index,
                port: text("net_tap0,iface=t0"),
                mtu: 1500,
                promiscuous: true,
            }),
            DeviceSetup::Virtual(VirtualLink::vlan(index, LinkIndex(0), 7, 3)),
            DeviceSetup::Spare(index),
        ];
        let link = |device| WorkerLink { name: text("lan"), device, queues: Some(2) };
        let setup = DataSetup {
            links: devices.into_iter().map(link).collect(),
            workers: 3,
            spin: Duration::from_micros(50),
            frames: 8192,
            chunk_size: CHUNK_SIZE,
            cores: vec![1, 0, 1023],
            neighbours: NeighbourLimits::DEFAULT,
            seed: u64::MAX,
            waits: false,
        };
        let back = DataSetup::of(&setup.octets()).unwrap();
        assert_eq!(format!("{back:?}"), format!("{setup:?}"));
        assert_eq!(back.links, setup.links);
    }
}
