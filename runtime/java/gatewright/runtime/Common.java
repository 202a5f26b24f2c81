package gatewright.runtime;

import java.io.ByteArrayOutputStream;
import java.net.InetSocketAddress;
import java.util.Arrays;

/** What messages have in common, as octets that are equal if the values are. */
final class Common {
    private final byte[] octets;

    private Common(byte[] octets) {
        this.octets = octets;
    }

    /** The number that it begins with. */
    int first() {
        return octets[0];
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Common && Arrays.equals(octets, ((Common) other).octets);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(octets);
    }

    /** A request's values of the keys of its view, and who sent it if that matters. */
    static Common of(View view, Key[] keys, InetSocketAddress from) {
        ByteArrayOutputStream octets = new ByteArrayOutputStream();
        for (Key key : keys)
            if (key.view() == view.about)
                add(octets, view.slots[key.request()]);
        if (from != null)
            add(octets, from);
        return new Common(octets.toByteArray());
    }

    static Common of(InetSocketAddress address) {
        ByteArrayOutputStream octets = new ByteArrayOutputStream();
        add(octets, address);
        return new Common(octets.toByteArray());
    }

    /** Where a connection's peer is. */
    static Common ofConn(long conn) {
        ByteArrayOutputStream octets = new ByteArrayOutputStream();
        octets.write('c');
        octets.write(Numbers.octets(conn, 8, Order.BIG), 0, 8);
        return new Common(octets.toByteArray());
    }

    /** Where a peer without a connection is. */
    static Common of(int role, InetSocketAddress address) {
        ByteArrayOutputStream octets = new ByteArrayOutputStream();
        octets.write('a');
        octets.write(Numbers.octets(role, 4, Order.BIG), 0, 4);
        add(octets, address);
        return new Common(octets.toByteArray());
    }

    static Common of(Text text) {
        return new Common(text.copy());
    }

    static Common of(Slot... slots) {
        ByteArrayOutputStream octets = new ByteArrayOutputStream();
        for (Slot slot : slots)
            add(octets, slot);
        return new Common(octets.toByteArray());
    }

    /** What requests of a view and their responses have in common; null without a key. */
    static Common of(Role about, Message request, View view, boolean response) {
        ByteArrayOutputStream octets = new ByteArrayOutputStream();
        for (int index = 0; index < about.flow.length; index++) {
            Key key = about.flow[index];
            if (key.view() != request)
                continue;
            if (octets.size() == 0)
                octets.write(index);
            add(octets, view.slots[response ? key.response() : key.request()]);
        }
        return octets.size() == 0 ? null : new Common(octets.toByteArray());
    }

    private static void add(ByteArrayOutputStream octets, InetSocketAddress address) {
        byte[] host = address.getAddress().getAddress();
        octets.write(host.length);
        octets.write(address.getPort() >> 8);
        octets.write(address.getPort());
        octets.write(host, 0, host.length);
    }

    private static void add(ByteArrayOutputStream octets, Slot slot) {
        if (slot.set && slot.kind() == Kind.INT) {
            octets.write('i');
            octets.write(Numbers.octets(slot.number, 8, Order.BIG), 0, 8);
        } else if (slot.set && slot.kind() == Kind.OCTETS) {
            octets.write('o');
            octets.write(Numbers.octets(slot.length, 4, Order.BIG), 0, 4);
            octets.write(slot.octets, 0, slot.length);
        } else {
            octets.write('-');
        }
    }
}
