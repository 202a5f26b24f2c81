package gatewright.runtime;

import java.io.IOException;
import java.net.Inet6Address;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.ProtocolFamily;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.nio.channels.DatagramChannel;
import java.nio.channels.MulticastChannel;
import java.nio.channels.NetworkChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Collections;

/** How sockets are made. */
final class Sockets {
    /** Connections that wait to be accepted. */
    private static final int BACKLOG = 1024;

    private Sockets() { }

    private static ProtocolFamily family(InetSocketAddress address) {
        return address.getAddress() instanceof Inet6Address
            ? StandardProtocolFamily.INET6 : StandardProtocolFamily.INET;
    }

    /** What was begun is not kept if it did not come to its end. */
    private interface Beginning<C> {
        void of(C channel) throws IOException;
    }

    private static <C extends NetworkChannel> C whole(C channel, Beginning<C> beginning)
            throws IOException {
        try {
            beginning.of(channel);
            return channel;
        } catch (IOException | RuntimeException wrong) {
            channel.close();
            throw wrong;
        }
    }

    /**
     * Fails if somebody has an address: who shares it (SO_REUSEPORT) would get every other request.
     *
     * @throws IOException who has it, or what else is wrong
     */
    static void alone(InetSocketAddress address, boolean udp) throws IOException {
        if (udp) {
            whole(DatagramChannel.open(family(address)), channel -> channel.bind(address)).close();
            return;
        }
        whole(ServerSocketChannel.open(family(address)), channel -> {
            // Connections of a listener that has ended are no listener.
            channel.setOption(StandardSocketOptions.SO_REUSEADDR, true);
            channel.bind(address);
        }).close();
    }

    static ServerSocketChannel listen(InetSocketAddress address) throws IOException {
        return whole(ServerSocketChannel.open(family(address)), channel -> {
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.SO_REUSEADDR, true);
            // Other loops are to have it as well, and who takes over one day.
            channel.setOption(StandardSocketOptions.SO_REUSEPORT, true);
            channel.bind(address, BACKLOG);
        });
    }

    static SocketChannel connect(InetSocketAddress address) throws IOException {
        return whole(SocketChannel.open(family(address)), channel -> {
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            channel.connect(address);
        });
    }

    static DatagramChannel bind(InetSocketAddress address, boolean share, boolean multicast)
            throws IOException {
        return whole(DatagramChannel.open(family(address)), channel -> {
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.SO_REUSEADDR, multicast);
            if (share)
                channel.setOption(StandardSocketOptions.SO_REUSEPORT, true);
            channel.bind(address);
            if (multicast)
                join(channel, address);
        });
    }

    /** A socket for requests of ours to an address like this one. */
    static DatagramChannel bindAny(InetSocketAddress address) throws IOException {
        return whole(DatagramChannel.open(family(address)), channel -> {
            channel.configureBlocking(false);
            channel.bind(null);
        });
    }

    /** Joins the group on every interface that takes part in multicast. */
    private static void join(MulticastChannel channel, InetSocketAddress group)
            throws IOException {
        boolean joined = false;
        for (NetworkInterface one : Collections.list(NetworkInterface.getNetworkInterfaces())) {
            if (one.isUp() && (one.supportsMulticast() || one.isLoopback())) {
                try {
                    channel.join(group.getAddress(), one);
                    joined = true;
                } catch (IOException withoutSuchAddress) {
                    // An interface without an address of this family takes no part.
                }
            }
        }
        if (!joined)
            throw new IOException("no interface to join the group on");
    }
}
