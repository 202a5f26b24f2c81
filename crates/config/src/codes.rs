//! Diagnostic codes of a description: `GW0100` to `GW0199`.

use gatewright_diagnostic::Code;

macro_rules! codes {
    ($($name:ident $number:literal $title:literal $explanation:literal)*) => {
        $(#[doc = $title]
        pub const $name: Code =
            Code { number: $number, title: $title, explanation: $explanation };)*

        /// All codes of this crate, for `gatewright explain`.
        pub const CODES: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    SYNTAX 100 "this is not TOML"
    "A description is TOML 1.1 (https://toml.io). Strings stand in quotes, tables begin with a \
    header, and every table and key is written once:\n\n    \
    device = lan0      wrong\n    device = \"lan0\"    right"

    UNKNOWN_KEY 101 "unknown key"
    "The table has no key of this name. It is refused rather than ignored: a misspelt `mtu` would \
    otherwise leave the default in force. A key belongs to the last header above it, so a key of one \
    table that stands below the header of another is unknown, too. The finding names the keys that \
    there are; `gatewright schema` and the manual's page of keys explain them."

    UNKNOWN_TABLE 102 "unknown table"
    "The tables of a description are [gateway], [planes], [link.NAME], [[route]], \
    [[neighbour]], [[attach]], [udp_gateway.NAME], [tcp_proxy.NAME], [balance.NAME], [control], \
    [web], [log], [[program]], [devices], [cse] and [mesh]."

    WRONG_TYPE 103 "a value of the wrong type"
    "Numbers stand without quotes, strings with them, lists in brackets:\n\n    \
    mtu = \"1500\"                     wrong\n    mtu = 1500                       right\n    \
    addresses = \"192.0.2.1/24\"       wrong\n    addresses = [\"192.0.2.1/24\"]     right"

    MISSING_KEY 104 "a key is missing"
    "The table does not work without this key, and there is no default that would suit everyone. \
    The finding shows what may stand there."

    OUT_OF_RANGE 105 "a number out of range"
    "The finding gives the least and the greatest number that the key may have, and what the number \
    means. The bounds are those of a standard (a port is at most 65535), of the machine, or of the \
    gateway, which reserves memory by them."

    NOT_A_CHOICE 106 "not one of the choices"
    "The key takes one of a few words; the finding names the one that is meant, or lists them.\n\n\
    An IP protocol is a number from 0 to 255 or one of icmp, igmp, tcp, udp, icmpv6, sctp, dccp, \
    rsvp, gre, esp, ah, eigrp, ospf, pim, ipcomp, vrrp, l2tp, udplite, hip. IPv4 in IP is 4, IPv6 \
    in IP 41: their names mean other things elsewhere."

    NOT_AN_ADDRESS 107 "not an IP address"
    "An address is written as 192.0.2.1 or 2001:db8::1, without a prefix length and without a port."

    NOT_A_PREFIX 108 "not an address with a prefix length"
    "An address of a link and the destination of a route carry the length of their prefix: \
    192.0.2.1/24, 2001:db8::1/64. IPv4 has lengths 0 to 32, IPv6 0 to 128."

    HOST_PART 109 "a prefix with a host part"
    "The destination of a route is a network, so every bit behind the prefix is 0:\n\n    \
    to = \"192.0.2.7/24\"    wrong\n    to = \"192.0.2.0/24\"    right\n\n\
    Which of the two numbers is meant cannot be guessed safely, so it is refused."

    NOT_A_MAC 110 "not a hardware address of a host"
    "A hardware address is six octets in hex, 02:00:00:00:00:01. The lowest bit of the first octet \
    says \"group\", so it must be 0; an address of your own choice begins with 02."

    NOT_A_POSITION 111 "not a position of the graph"
    "A position says which packets are meant: `frame`, `ether:TYPE`, `ip:PROTOCOL`, \
    `icmp:NUMBER`, `icmpv6:NUMBER`, `udp:PORT`, `tcp:PORT`, `label:NUMBER` or `dispatch:OCTET`. TYPE is ipv4, ipv6, arp, vlan, mpls or a number \
    such as 0x88b5; PROTOCOL is icmp, igmp, tcp, udp, icmpv6, sctp or a number below 256."

    NOT_A_LISTENER 112 "not a place to listen at"
    "A place to listen at is an address with a port, 127.0.0.1:9464 or [::1]:9464; for metrics \
    also a Unix socket, unix:/run/gatewright/metrics.sock. A name is not looked up."

    KEY_WITHOUT_USE 113 "a key without use here"
    "The table has this key, but with what else stands in the table it would do nothing, so it is \
    refused. Many keys belong to one handler or to one mode of a link: `rate` to the handler \
    `rate-limit`, `file` to `capture`, `read` to the mode `pcapng`:\n\n    \
    [[attach]]\n    handler = \"count\"\n    rate = 100           wrong: `count` limits nothing\n\n\
    Leave the key out, or choose the handler or mode that it belongs to."

    BAD_NAME 114 "not a name"
    "Names of links and gateways appear in commands, metrics and file names: 1 to 32 letters, \
    digits, `-` and `_`, beginning with a letter or digit. An interface of the kernel has at most \
    15 octets, without `/` and blanks. A container of readings has none of the names that are something \
    else below a device, as `commands` and `la`."

    TOO_MANY 115 "too many of them"
    "Everything in a gateway has a bound, so that its memory is known. The finding tells it."

    NOT_A_CREDENTIAL 116 "not a credential"
    "`credential:NAME` is the file NAME in the folder where the service manager puts credentials, or in \
    `credentials` beside the description. A name is that of one file there: it has no `/`, and is neither \
    `.` nor `..`. A file elsewhere is named by its path, without `credential:`."

    NO_LINK 120 "a gateway without a link"
    "Frames come in and go out by links. Describe at least one:\n\n    \
    [link.lan]\n    device = \"eth0\"\n    addresses = [\"192.0.2.1/24\"]"

    DEVICE_TWICE 121 "one device for two links"
    "A frame of the device would belong to both links. Give each link its own device; several \
    addresses can stand on one link."

    ADDRESS_TWICE 122 "an address is given twice"
    "An address belongs to one link. Hosts would find it at two places and lose packets by turns."

    OVERLAP 123 "the prefixes of two links overlap"
    "Both links claim to reach the same hosts directly, so the router could only guess. Give the \
    links different networks, or the smaller one a route."

    UNUSABLE_ADDRESS 124 "an address that no host can have"
    "Multicast, loopback and unspecified addresses do not name a host on a link (RFC 1122 §3.2.1.3, \
    RFC 4291 §2.5). An IPv4 address that is written as one of IPv6 (::ffff:192.0.2.1, RFC 4291 \
    §2.5.5.2) is for programs: no packet has it."

    NETWORK_ADDRESS 125 "the network's own address, or its broadcast address"
    "With a prefix of up to 30 bits the first IPv4 address names the network and the last is its \
    broadcast (RFC 1122 §3.2.1.3). Take one between them:\n\n    \
    192.0.2.0/24 and 192.0.2.255/24   wrong\n    192.0.2.1/24                      right"

    MTU_TOO_SMALL 126 "an MTU too small for IPv6"
    "Every link that carries IPv6 takes packets of 1280 octets (RFC 8200 §5). Raise the MTU, or \
    take the IPv6 addresses off the link."

    ROUTER_LIFETIME 127 "a router that is gone before it is heard again"
    "Hosts use a router for as long as its advertisement says, and hear the next one after an interval \
    at the latest: the lifetime is at least the interval (RFC 4861 §6.2.1), or 0 for a router that \
    is not to be used.\n\n    advertise = { interval_s = 600, lifetime_s = 60 }     wrong\n    \
    advertise = { interval_s = 600, lifetime_s = 1800 }   right"

    SHARED_LINK 128 "a setting of a link that is shared with the kernel"
    "With `exclusive = false` the kernel stays the host of the link: addresses, routes and neighbours \
    come from it and follow its changes. Set them there (`ip address add …`), or make the link \
    exclusive. Other links of the same gateway may be exclusive; routes over those are set here."

    UNKNOWN_LINK 130 "there is no such link"
    "The name stands for a table [link.NAME] of this description."

    UNREACHABLE 131 "the next hop is on no link"
    "A next hop must be a neighbour: an address inside the prefix of a link, so that its hardware \
    address can be asked for. Add an address of that network to a link, or take another next hop."

    OWN_ADDRESS 132 "the next hop is this gateway"
    "A packet sent there would come back at once. The next hop is the address of the neighbour."

    OTHER_FAMILY 133 "IPv4 and IPv6 are mixed"
    "An IPv4 route has an IPv4 next hop, an IPv6 route an IPv6 one; a datagram is relayed within \
    one family."

    NO_NEXT_HOP 134 "a route that leads nowhere"
    "A route names a neighbour (`via`), or a link on which the destinations are neighbours \
    themselves (`link`), or both; or next hops that share its flows (`balance` and `flow`)."

    ROUTE_TWICE 135 "a route is given twice"
    "Routes of the same destination and metric share its flows: at most 16, each with another next hop. \
    Otherwise give them different metrics. A route with a balance shares flows itself, and is the only \
    one of its metric."

    LINK_LOCAL 136 "a link-local next hop without its link"
    "Addresses of fe80::/10 exist on every link (RFC 4291 §2.5.6), so the route must say on which: \
    add `link = \"NAME\"`."

    VLAN_TWICE 137 "a VLAN is two links"
    "A tag of one identifier on one cable leads to one link. Give the second another identifier, or \
    put its addresses on the first."

    NO_TAGS 138 "a VLAN where there are no tags"
    "A VLAN is carried by tags in the Ethernet frames of another link (IEEE 802.1Q):\n\n    \
    [link.trunk]\n    device = \"eth1\"\n\n    [link.cameras]\n    on = \"trunk\"\n    vlan = 10\n\n\
    That link is an interface of its own, not a VLAN itself, and not tun."

    VLAN_MTU 139 "a VLAN with a larger MTU than its link"
    "A tag makes the frame longer, not the packet, so a VLAN carries what the link below carries and \
    no more. Raise the MTU there, or leave it out here."

    WRONG_PLACE 140 "the handler is not possible at this place"
    "`count`, `capture` and `mirror` only look: as `instead` they would swallow every packet. `drop` \
    and `rate-limit` take packets away, which a `tap` cannot."

    MIRROR_LOOP 141 "the mirror shows itself"
    "Copies that leave by the link they were taken from would be copied again without end. Send them \
    to another link."

    FILE_TWICE 142 "two captures write one file"
    "Both would write over each other. Give each its own file."

    NOT_FOR_MESSAGES 145 "not for messages"
    "At a handler of a gateway program, `gateway:NAME/HANDLER`, stand `count`, `capture`, `drop` and \
    `rate-limit`. They see its requests; `count` and `capture` also its answers, with \
    `side = \"transmit\"`. What a request cannot be refused by, or a message does not have, is refused \
    here rather than ignored."

    NO_MESSAGE_POSITION 144 "no such handler of a gateway program"
    "A position of messages is `gateway:`, the name that the program gives itself (`gateway NAME`), \
    `/`, and one of its handlers: `ROLE.NAME`, or NAME alone, or `*` for all. `gatewright gw graph` \
    shows the handlers of a program."

    PORT_WITHOUT_PROTOCOL 143 "a port without a protocol"
    "Ports belong to UDP and TCP. Say which: `match = { protocol = \"udp\", port = 53 }`."

    LISTENER_TWICE 150 "two listeners at one place"
    "Only one of them can get what arrives there. Change the port, the address or the link."

    FOREIGN_ADDRESS 151 "the address is not on this link"
    "A gateway listens at an address of its link; leave `address` out to listen at all of them."

    FORWARD_UNREACHABLE 152 "no link or route leads there"
    "Datagrams for this address would be dropped. Add a route, or an address of that network to a \
    link."

    SERIES 153 "merging and the series do not go together"
    "`merge` says how much is merged; `series` how the pieces are found again: `plain` puts them \
    together as they are, `merge` adds lengths, and `split`, at the other end, takes them apart. \
    So `series = \"merge\"` needs merging, and `split` must not merge."

    FORWARD_LOOP 154 "the gateway forwards to itself"
    "Every datagram would come back to where it was taken from, without end."

    PROXY_TARGET 192 "a proxy without one target"
    "Connections of a TCP proxy and clients of a UDP gateway go to one server, which has a port:\n\n    \
    forward = { address = \"192.0.2.80\", port = 80 }\n\nor to relays that share flows, of which the \
    balance must know what flow a connection or client is:\n\n    \
    balance = \"servers\"\n    flow = { rate = 50, octets = 400, within_us = 5000 }\n\n\
    A balance names each of its relays once. A route goes `via` one neighbour, or to those of a \
    balance, which have no ports."

    UNKNOWN_BALANCE 193 "no such balance"
    "The proxy or the route names a table [balance.NAME] that is not there."

    BALANCE_SHARED 199 "a balance of the data plane is shared"
    "The data plane admits the clients of a UDP gateway and the flows of a route, and knows of no other \
    flows: a balance that others use as well would count the flows of each for itself, and promise the \
    relays twice. TCP proxies may share one. A route's flows are admitted by one worker: several \
    data cores would share the balance, too."

    LIVE_NEXT_HOP 159 "a next hop's model cannot be live"
    "A live model is corrected by the times to a relay's answers. A route carries packets in one \
    direction, and sees no answers. TCP proxies and UDP gateways do."

    WIDE_OPEN 160 "reachable from other machines"
    "Metrics and device ports have no password. Bound to an address that is not loopback, everyone \
    who reaches the machine reaches them. That is a warning: it may be what you want."

    PROGRAM_TWICE 161 "a program is given twice"
    "It would run twice and listen at the same places. Remove one."

    PROGRAM_NAME_TWICE 195 "two programs of one name"
    "A program is known by the name that it gives itself (`gateway NAME`): status, metrics, delay models \
    and positions of messages (`gateway:NAME/HANDLER`) tell programs apart by it. Give the gateway in one \
    of the files another name."

    NOT_A_PROGRAM 162 "not a gateway program"
    "Programs in the gateway language have names that end in `.gate`."

    BAD_CSE_ID 163 "not a CSE identifier"
    "A CSE identifier is `/` and a name without further `/` (oneM2M TS-0001 §7.2): \"/gateway-cse\"."

    NO_PROGRAM 164 "the program cannot be read"
    "The path of a program is relative to the folder of the description. Nothing is run that could \
    not be read and compiled before."

    NO_CSE 165 "devices without a place for their readings"
    "What devices report becomes resources of the gateway's service entity, [cse]. If they are \
    delivered `direct`, nothing is stored here, so there must be a CSE above, [cse.registrar]."

    NOT_A_URL 166 "not a URL of a CSE"
    "A CSE is reached by http:// and its host, with the port if it is not 80: \
    \"http://192.0.2.1:8080\". The address of a resource does not belong there."

    NOT_A_SYSTEM_ID 167 "not a system-id"
    "A device tells who it is by its EUI-64, 16 hexadecimal digits: \"0022090000000001\" (ISO/IEEE \
    11073-20601, System-Id)."

    NOT_A_ROLE_ADDRESS 168 "not a role's address"
    "Each role of a program has an address in the program's text: `role web = http server at \
    \"0.0.0.0:80\"`. An entry of `at` gives a role another one, as ROLE=HOST:PORT:\n\n    \
    at = [\"web=192.0.2.1:8080\", \"next=[2001:db8::1]:25\"]\n\n\
    ROLE is the name of a role of this program. HOST is an IPv4 address, an IPv6 address in brackets, \
    or a name."

    NOT_A_FIELD 169 "not a field with its value"
    "What a message is matched by is `NAME=VALUE`: a field of the message as its module names it, and \
    the value that it has, number or text: `fields = [\"method=DELETE\"]`."

    NEEDS_RESTART 170 "this change needs a restart"
    "A running gateway takes most changes of a description by `gatewright reload`. It takes none of a \
    description that also changes what only a start decides:\n\n    \
    [cse]      base, id, type, provider: which service entity it is\n    \
    [cse]      store, store_mib, reserve_mib: its database\n    \
    [cse]      mqtt, registrar: the broker that it serves, the CSE above\n    \
    [devices]  map, views, devices_max: what readings become, how many devices\n    \
    [link]     shared links, links of mode tun and VLANs that come or go;\n               \
    more than four links more than at the start\n\n\
    `gatewright check FILE` lists these keys for a description. Undo the change, or stop the gateway and \
    start it again: what is stored, and what devices have not been answered, is there afterwards. A \
    database belongs to one base and id: with others, a start needs another `store`."

    CANNOT_LISTEN 171 "cannot listen there"
    "The system does not give the gateway this address: another process listens there \
    (`ss -ltnup`), the address is none of this machine, or a port below 1024 needs a right. Where \
    the gateway itself listens there for something else, that moves by a reload of its own. A gateway that is being started does not run then; one that runs goes on as before."

    NOT_TAKEN 172 "the running gateway cannot take this"
    "What this key asks for did not work, and nothing of the description was taken: the gateway goes \
    on as it was."

    NO_CERTIFICATE 173 "TLS without a certificate"
    "Where certificates are shown on both sides, the gateway needs one, its key, and the authorities \
    whose certificates it takes: [cse.tls] with `certificate`, `key` and `authorities`. A broker's \
    certificate must be for the host of its URL."

    NOT_A_SETTING 174 "not a parameter with its value"
    "A program's parameters are set each by its name, `=`, and its value: `set = [\"host=192.0.2.1\"]`. \
    `set_env` names a variable of the environment that holds the value instead, `set_file` a file: \
    so a password need not stand in the description."

    NOT_PORTS 175 "not a port or a range of ports"
    "Ports of a filter's rule are texts: \"5683\", or \"1024-65535\" with the lower one first: \
    `destination_port = [\"5683\", \"1024-2047\"]`."

    NOTHING_PASSES 176 "nothing passes there in this version"
    "No layer of this version takes packets apart at this position: there is no TCP, no label \
    switching and no 6LoWPAN. TCP segments for this host pass at `ip:tcp`, labelled frames at \
    `ether:mpls`; a filter with `protocol` and `destination_port` tells ports of TCP apart."

    NO_PACKETS 147 "a handler at packets of a gateway without links"
    "Packets come in and go out by links, and pass the positions of the graph on their way. The sockets \
    of devices, service entity, proxies and programs are the kernel's unless the gateway has links, so \
    their packets pass none. Handlers at messages of programs (`at = \"gateway:NAME/HANDLER\"`) need no \
    link."

    NOT_OVER_STACK 178 "a role that the gateway's own stack cannot have"
    "`stack = [\"ROLE\"]` gives a role of a program the sockets of the gateway's own stack. It has UDP \
    and no TCP yet, so a role of TCP stays with the kernel. It is the host on exclusive links only: a \
    server listens at an address of such a link, at 0.0.0.0 or [::], or for a group."

    DROPS_ALL 177 "takes every packet"
    "A `drop` without a match takes every packet that comes by. If that is meant, it says so more \
    clearly as a filter: handler = \"filter\", default = \"drop\"."

    RULE_WITHOUT_EFFECT 146 "a filter or a rule without effect"
    "The first rule that matches decides, so nothing gets to a rule behind one without conditions. A \
    filter without rules gives every packet its `default`, which is `accept` if not given. A rule about \
    ports matches only packets of protocols that have ports."

    NO_CAPTURE 183 "the capture file cannot be read"
    "A link of mode `pcapng` reads a capture in the format pcapng or pcap, of Ethernet frames (link \
    type 1) or of IP packets (101, 228 or 229). Its path is relative to the folder of the \
    description. Nothing is run that could not be read before."

    NOT_A_DPDK_PORT 197 "not a port of DPDK"
    "A port is named as DPDK's own programs name it: a virtual device by its driver, a number and its \
    arguments (`net_af_packet0,iface=eth0`, `net_tap0`), a PCI device by its address \
    (`0000:03:00.0`)."

    WITHOUT_DPDK 198 "this program has no DPDK"
    "DPDK is a choice when the program is built: `cargo build --release --features dpdk`, with DPDK \
    22.11 and its headers (Debian: libdpdk-dev). Without it `mode = \"auto\"` opens an interface of the \
    kernel."

    DPDK_APART 196 "a port of DPDK in a data plane of its own"
    "With `[planes] mode = \"process\"` the data plane's process may open no files, and a new one goes on \
    with the devices of the one before. DPDK reads files to load its drivers, and keeps its ports to one \
    process. So a link of mode `dpdk` runs in the control plane's process only."

    CAPTURE_TWICE 179 "a capture file is written and used a second time"
    "Two links would write over each other, and a link that reads a file while another writes it \
    would read an end that is not there yet. Give each written file a name of its own."

    MULTICAST_ROUTE 180 "a next hop for a group"
    "Packets to groups (224.0.0.0/4, ff00::/8) are sent to the members on a link by an address of the \
    link layer that follows from the group's (RFC 1112 §6.4, RFC 2464 §7): no neighbour is asked for \
    its own, and this gateway does not forward them. Leave `via` out, or leave out the route."

    ADVERTISES_NOTHING 181 "a router of a link without an IPv6 network"
    "Router advertisements are IPv6's: they tell hosts the IPv6 networks of the link's `addresses`, and \
    from these the hosts form their own (RFC 4861 §6.2.3, RFC 4862 §5.5). Without one they get a \
    router, and no address to use it with."

    ROUTER_AUTOCONFIGURES 182 "a router that configures itself as a host"
    "A link's addresses come from its routers (`autoconfigure`), or this gateway is the router that \
    tells them to others (`advertise`). \"The autoconfiguration process specified in this document \
    applies only to hosts and not routers\" (RFC 4862 §1). On different links both are usual."

    HOST_ADDRESSES 184 "the kernel beside a link without fixed addresses"
    "`host` makes an interface at which the kernel has the link's addresses, so that programs of this \
    machine (ssh) are reached there. They are those of the description: what DHCP or routers give to \
    the link is not told to the kernel in this version."

    OLD_NAME 185 "a key by its former name"
    "The key has a new name. The former one is still read, and means the same:\n\n    \
    [gateway]                         [planes]\n    \
    workers = 2          former       data_cores = 2          now\n\n\
    Both together would say it twice, so that is refused."

    STATIC_NEIGHBOUR 186 "a neighbour that the link cannot have"
    "A static neighbour is another station on a link: its address is inside the network of one of the \
    link's addresses, and not the gateway's own. An address of fe80::/10 is on every link, so it names \
    its own (`link = \"NAME\"`). The kernel keeps the neighbours of shared links, and a tun has no \
    link-layer addresses.\n\n    \
    [[neighbour]]\n    address = \"192.0.2.9\"\n    mac = \"02:00:00:00:00:09\""

    NEIGHBOUR_TWICE 187 "a neighbour is given twice"
    "A station has one link-layer address on a link. Give the second neighbour another IP address, or \
    take one of the two away."

    WEB_WIDE_OPEN 188 "a web interface that everybody reaches"
    "Beyond loopback and Unix sockets, the web interface listens only with TLS, and to those that show \
    who they are, by a token or by a certificate:\n\n    \
    [web]\n    listen = \"192.0.2.1:8787\"\n    tokens = \"web-tokens\"\n    \
    tls = { certificate = \"web.pem\", key = \"web.key\" }\n\n\
    `gatewright web token add` makes a token. From another machine, ssh leads to loopback, too: \
    ssh -L 8787:127.0.0.1:8787 gateway."

    DEVICES_OVER_STACK 189 "devices where the gateway's own stack is no host"
    "`stack` in [devices] is a UDP port of the gateway's own stack. That is the host on exclusive links \
    only: the port is at an address of such a link, or at 0.0.0.0 or [::]. On links that are shared with \
    the kernel, `udp` opens a port of the kernel."

    DIRECT_BY_DATA_PLANE 190 "no readings for the CSE's CoAP address"
    "`coap` in [cse.registrar] is where the data plane sends readings, over the gateway's links. It does \
    that for devices that are associated at [devices] `stack`, and whose delivery is `direct`. Readings of \
    all others go to `url`, which may itself be a coap:// address."

    UNUSABLE_FILE 194 "a file that the description names cannot be used"
    "A description names files by path: certificates, keys, lists of revoked certificates, OCSP \
    responses, keys and members of a mesh, values of a program's parameters. \
    `gatewright check` loads each as a start does, and connects nothing. The finding says \
    which key names the file and why it cannot be used: it is missing, this user may not read it, or \
    it holds something else.\n\n    \
    [cse.tls]\n    certificate = \"cse.pem\"    # a certificate (PEM), and those between it and its authority\n    \
    key = \"cse.key\"            # its private key (PEM)\n    \
    authorities = \"ca.pem\"     # the certificates of the authorities (PEM)\n\n\
    A relative path begins at the description's folder. To check the description of another machine, \
    put files of the same kind at the same places. `credential:NAME` is handed over by the service \
    manager; outside the service a missing one is a warning."

    COAP_IN_CLEAR 191 "readings travel in the clear"
    "The CSE above is reached over TLS by its `url`, but the data plane sends readings to its `coap` address \
    without any protection, as this version has no DTLS. On a network that others can read or write, \
    leave `coap` out: direct readings then go to `url`, too, by the control plane."
}

#[cfg(test)]
mod tests {
    use crate::tables::Shape;

    /// What `check` and `explain` say of an unknown table names each that there is.
    #[test]
    fn the_finding_about_unknown_tables_names_all_of_them() {
        let said = super::UNKNOWN_TABLE.explanation;
        for key in crate::tables::ROOT.keys {
            let header = match key.shape {
                Shape::Many(..) => format!("[[{}]]", key.name),
                Shape::Named(..) => format!("[{}.NAME]", key.name),
                _ => format!("[{}]", key.name),
            };
            assert!(said.contains(&header), "{header}");
        }
    }
}
