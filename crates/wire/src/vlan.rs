//! VLAN tags (IEEE 802.1Q): they follow the two addresses of the Ethernet header.

use crate::{EtherType, header};

header! {
    /// A tag behind its own type (`0x8100` or `0x88a8`): it ends in the type of what follows. The
    /// standard prints no diagram in this form: this one is drawn here.
    Vlan = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    | PCP |D|         VID           |          Ether Type           |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where pcp as priority, d as drop_eligible, vid as vlan_id, ether_type: EtherType
}

/// The identifier that means no VLAN, only a priority.
pub const VLAN_ID_PRIORITY: u16 = 0;

/// The largest identifier of a VLAN; `0xfff` is reserved.
pub const VLAN_ID_MAX: u16 = 0xffe;
