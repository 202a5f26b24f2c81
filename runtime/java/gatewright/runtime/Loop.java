package gatewright.runtime;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Arrays;

/** The event loop: one thread, one selector, one machine. */
final class Loop implements Runnable {
    /** The longest read or write; a datagram, too. */
    private static final int SCRATCH = 65_536;
    /** Connections of one listener, or datagrams of one socket, at one wake-up. */
    private static final int AT_ONCE = 64;
    /** Octets that one connection gives before others have their turn. */
    private static final int TURN = 16_384;
    /** Octets at one wake-up of connections that had their turn. */
    private static final int LEFT_OVER = 65_536;
    /** Turns of taking in who waits when nobody is to come in any more: the longest backlog. */
    private static final int DRAIN_TURNS = 64;
    private static final long WAIT_MAX_MS = 3_600_000;
    /** How long nobody is taken in after the system had no descriptor for a connection. */
    private static final long PAUSE = Time.milliseconds(100);
    /** How long what runs may take to its end when the process is told to end. */
    private static final long DRAIN = Time.milliseconds(30_000);

    /** The socket of a connection. */
    private static final class Peer {
        final long id;
        final SocketChannel channel;
        SelectionKey key;
        boolean over;
        /** The wake-up in which its turn began, and the octets that it has given in it. */
        long wakeup;
        int given;
        /** It had its turn, and goes on when the others have had theirs. */
        boolean left;

        Peer(long id, SocketChannel channel) {
            this.id = id;
            this.channel = channel;
        }

        /** Whether events of a kind are of interest. */
        void watch(int kind, boolean on) {
            if (key.isValid()) {
                int now = key.interestOps();
                int then = on ? now | kind : now & ~kind;
                if (now != then)
                    key.interestOps(then);
            }
        }
    }

    private final Machine machine;
    private final LostServers lost;
    private final boolean led;
    private final Role[] about;
    private final Selector selector;
    private final Resolver resolver;
    private final SelectableChannel[] sockets;
    /** By the index of their id. */
    private Peer[] peers = new Peer[64];
    private final ByteBuffer scratch = ByteBuffer.allocateDirect(SCRATCH);
    /** Peers that had their turn, each once. */
    private final ArrayDeque<Peer> left = new ArrayDeque<>();
    private long wakeup;
    /** Octets read from connections so far, and when the loop was woken up. */
    private long octets;
    private long octetsBefore;
    /** The most octets between two questions to the system. */
    private long octetsAtOnce;
    /** Until when nobody is taken in, if the system had no descriptor. */
    private long shut = Long.MAX_VALUE;
    private volatile boolean over;
    private volatile boolean toDrain;
    private volatile boolean toShow;
    /** When it is over at the latest, once it drains. */
    private long until = Long.MAX_VALUE;

    /**
     * Opens the sockets of all roles; `share` them with other loops. One that is `led` leaves groups to
     * the first loop.
     *
     * @throws IOException if one cannot be opened; the message says which
     */
    Loop(Machine machine, LostServers lost, boolean share, boolean led) throws IOException {
        this.machine = machine;
        this.lost = lost;
        this.led = led;
        about = machine.program.roles();
        selector = Selector.open();
        resolver = new Resolver(selector::wakeup);
        sockets = new SelectableChannel[about.length];
        for (int role = 0; role < about.length; role++) {
            try {
                open(role, share, led);
            } catch (IOException | RuntimeException wrong) {
                InetSocketAddress address = machine.address(role);
                String where = about[role].name + " at " + address.getHostString() + ":"
                    + address.getPort();
                throw new IOException(where + ": " + wrong.getMessage(), wrong);
            }
        }
    }

    private void open(int role, boolean share, boolean led) throws IOException {
        InetSocketAddress address = machine.address(role);
        boolean client = about[role].client;
        if (client && !about[role].udp)
            return;
        if (!client && address.isUnresolved())
            throw new IOException("it listens on an address, not on a name");
        // Of a group each socket gets all, whether it shares or not: of several loops the first one
        // receives, so that a request is answered once.
        if (led && !client && about[role].udp && about[role].multicast)
            return;
        if (client)
            sockets[role] = address.isUnresolved()
                ? Sockets.bindAny(new InetSocketAddress("127.0.0.1", 0))
                : Sockets.bindAny(address);
        else if (about[role].udp)
            sockets[role] = Sockets.bind(address, share || !about[role].multicast,
                about[role].multicast);
        else
            sockets[role] = Sockets.listen(address);
        int kind = about[role].udp ? SelectionKey.OP_READ : SelectionKey.OP_ACCEPT;
        sockets[role].register(selector, kind, role);
    }

    /** Lets the loop end; from any thread. */
    void end() {
        over = true;
        selector.wakeup();
    }

    /** Lets what runs go on to its end and takes nothing new in; at once if said before. */
    void drain() {
        over = toDrain;
        toDrain = true;
        selector.wakeup();
    }

    /** Lets the loop say what it did so far. */
    void show() {
        toShow = true;
        selector.wakeup();
    }

    @Override
    public void run() {
        try {
            while (!over) {
                wakeup++;
                octetsAtOnce = Math.max(octetsAtOnce, octets - octetsBefore);
                octetsBefore = octets;
                waitForEvents();
                orders();
                names();
                performAll();
                serveLeft();
                if (machine.timeout() <= Time.now())
                    machine.handleTimeout(Time.now());
                performAll();
                lost.see(machine, null);
                if (shut <= Time.now())
                    openDoors();
                if (until != Long.MAX_VALUE && (isDone() || Time.now() >= until))
                    over = true;
            }
            finish();
        } catch (IOException wrong) {
            // Whoever runs it ends the process: others must not be let in by sockets that nobody serves.
            throw new UncheckedIOException("the event loop failed", wrong);
        }
    }

    /** Whether all that runs is at its end, and nothing waits that nobody else would get. */
    private boolean isDone() {
        for (int role = 0; role < about.length && machine.isIdle(); role++) {
            if (about[role].udp && !about[role].client && !about[role].multicast)
                receiveSome(role);
            performAll();
        }
        return machine.isIdle();
    }

    private void waitForEvents() throws IOException {
        long due = Math.min(Math.min(machine.timeout(), until), shut);
        long now = Time.now();
        if (due <= now || !left.isEmpty())
            selector.selectNow(this::handle);
        else
            // Rounded up; 0 would be for ever.
            selector.select(this::handle, Math.min((due - now + 999) / 1000, WAIT_MAX_MS));
    }

    /** What other threads asked for. */
    private void orders() throws IOException {
        if (toShow) {
            toShow = false;
            tell();
        }
        if (toDrain && until == Long.MAX_VALUE)
            listenNoMore();
    }

    private void listenNoMore() throws IOException {
        tell();
        for (int role = 0; role < about.length; role++) {
            if (about[role].client || sockets[role] == null)
                continue;
            // A socket for datagrams stays, for answers to leave by it, and gets its part of what
            // arrives: that is taken as long as it is there. Of a group whoever takes over gets all.
            if (about[role].multicast)
                sockets[role].keyFor(selector).cancel();
            if (about[role].udp)
                continue;
            // Who waits here was let in by the system, and would be reset.
            for (int turns = 0; turns < DRAIN_TURNS && acceptSome(role); turns++)
                continue;
            sockets[role].close();
            sockets[role] = null;
        }
        until = Time.now() + DRAIN;
        machine.drain(Time.now());
        // A socket is closed in truth once its selector was asked again.
        selector.selectNow(this::handle);
        Main.log(machine.program, "draining");
    }

    /** What was counted, and what became of the handlers. */
    private void tell() {
        for (Count what : Count.values())
            if (machine.counted(what) > 0)
                Main.log(machine.program, what.word() + " " + machine.counted(what));
        Pool pool = machine.pool;
        Main.log(machine.program, "memory " + pool.lent() + " of " + pool.held() + " octets");
        if (!led)
            lost.report();
        for (Handled handled : machine.handled())
            if (handled.count() > 0)
                Main.log(machine.program, handled.toString());
        Main.log(machine.program,
            "octets_in " + octets + ", at most " + octetsAtOnce + " at one wake-up");
    }

    private void finish() throws IOException {
        tell();
        machine.free();
        for (Peer peer : peers)
            if (peer != null)
                close(peer, true);
        for (SelectableChannel socket : sockets)
            if (socket != null)
                socket.close();
        selector.close();
    }

    /* ---- Events ---- */

    private void handle(SelectionKey key) {
        if (!key.isValid())
            return;
        if (key.attachment() instanceof Integer role) {
            if (about[role].udp)
                receiveSome(role);
            else
                acceptSome(role);
            return;
        }
        Peer peer = (Peer) key.attachment();
        if (key.isConnectable()) {
            connected(peer);
            return;
        }
        if (key.isReadable())
            readFrom(peer);
        if (key.isValid() && key.isWritable())
            writeTo(peer);
    }

    /** Whether there may be more. */
    private boolean acceptSome(int role) {
        for (int accepted = 0; accepted < AT_ONCE; accepted++) {
            // What is over is closed first: the machine gives its place to the next.
            performAll();
            SocketChannel channel = accept(role);
            if (channel == null)
                return false;
            try {
                channel.configureBlocking(false);
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            } catch (IOException gone) {
                close(new Peer(0, channel), true);
                continue;
            }
            takeIn(machine.accepted(Time.now(), role), channel);
        }
        return true;
    }

    /** Null if nobody waits, or there is no descriptor left: who waits then goes on waiting. */
    private SocketChannel accept(int role) {
        try {
            return ((ServerSocketChannel) sockets[role]).accept();
        } catch (IOException noRoom) {
            sockets[role].keyFor(selector).interestOps(0);
            shut = Time.now() + PAUSE;
            return null;
        }
    }

    private void openDoors() {
        shut = Long.MAX_VALUE;
        for (SelectableChannel socket : sockets)
            if (socket instanceof ServerSocketChannel)
                socket.keyFor(selector).interestOps(SelectionKey.OP_ACCEPT);
    }

    private void takeIn(long id, SocketChannel channel) {
        try {
            Peer peer = add(id, channel, SelectionKey.OP_READ);
            performAll();
            readFrom(peer);
        } catch (IOException gone) {
            close(new Peer(id, channel), true);
            machine.broken(Time.now(), id);
        }
    }

    private Peer add(long id, SocketChannel channel, int interest) throws IOException {
        int index = (int) id;
        if (index >= peers.length)
            peers = Arrays.copyOf(peers, Math.max(index + 1, 2 * peers.length));
        Peer peer = new Peer(id, channel);
        peers[index] = peer;
        peer.key = channel.register(selector, interest, peer);
        return peer;
    }

    private Peer peer(long id) {
        int index = (int) id;
        Peer peer = index < peers.length ? peers[index] : null;
        return peer != null && peer.id == id ? peer : null;
    }

    private void receiveSome(int role) {
        DatagramChannel channel = (DatagramChannel) sockets[role];
        for (int received = 0; received < AT_ONCE; received++) {
            try {
                scratch.clear();
                InetSocketAddress from = (InetSocketAddress) channel.receive(scratch);
                if (from == null)
                    return;
                byte[] octets = new byte[scratch.flip().remaining()];
                scratch.get(octets);
                machine.datagram(Time.now(), role, from, Text.of(octets));
            } catch (IOException unreachable) {
                // An earlier datagram came back; nothing is known of this one.
                return;
            }
        }
    }

    /** Whether a peer goes on when the others have had their turn. */
    private boolean isLeft(Peer peer) {
        if (peer.left)
            return true;
        if (peer.wakeup != wakeup) {
            peer.wakeup = wakeup;
            peer.given = 0;
        }
        if (peer.given < TURN)
            return false;
        left.addLast(peer);
        peer.left = true;
        return true;
    }

    /**
     * Peers that had their turn have another, up to so many octets: whoever sends without end is
     * served while nobody else has anything new.
     */
    private void serveLeft() {
        for (int given = 0; given < LEFT_OVER && !left.isEmpty();) {
            Peer peer = left.removeFirst();
            peer.left = false;
            peer.wakeup = wakeup;
            peer.given = 0;
            readFrom(peer);
            performAll();
            given += peer.given;
        }
    }

    /** What was seen before is not for the reason for which this connection is over. */
    private void broken(long id, Exception why) {
        lost.see(machine, null);
        machine.broken(Time.now(), id);
        lost.see(machine, why);
    }

    private void connectFailed(long id, Exception why) {
        lost.see(machine, null);
        machine.connectFailed(Time.now(), id);
        lost.see(machine, why);
    }

    /** Reads as long as there is something, room for it, and its turn. */
    private void readFrom(Peer peer) {
        while (!peer.over) {
            int room = Math.min(machine.room(peer.id), SCRATCH);
            boolean now = room > 0 && !isLeft(peer);
            // One that is left over is not told of: it is known to have more.
            peer.watch(SelectionKey.OP_READ, now);
            if (!now)
                return;
            try {
                int got = peer.channel.read(scratch.clear().limit(room));
                if (got > 0) {
                    peer.given += got;
                    octets += got;
                    machine.received(Time.now(), peer.id, scratch.flip());
                } else if (got < 0) {
                    peer.watch(SelectionKey.OP_READ, false);
                    machine.ended(Time.now(), peer.id);
                }
                // Fewer than there was room for were all there were.
                if (got < room)
                    return;
            } catch (IOException broken) {
                broken(peer.id, broken);
                return;
            }
        }
    }

    /** Writes as long as there is something and the system takes it. */
    private void writeTo(Peer peer) {
        while (!peer.over) {
            Text unsent = machine.unsent(peer.id);
            if (unsent.length == 0)
                break;
            int length = Math.min(unsent.length, SCRATCH);
            try {
                scratch.clear().put(unsent.in, unsent.from, length).flip();
                int gone = peer.channel.write(scratch);
                if (gone > 0)
                    machine.sent(Time.now(), peer.id, gone);
                if (gone < length) {
                    peer.watch(SelectionKey.OP_WRITE, true);
                    return;
                }
            } catch (IOException broken) {
                broken(peer.id, broken);
                return;
            }
        }
        peer.watch(SelectionKey.OP_WRITE, false);
    }

    private void connected(Peer peer) {
        try {
            if (!peer.channel.finishConnect())
                return;
            peer.key.interestOps(SelectionKey.OP_READ);
            machine.connected(Time.now(), peer.id);
            // What the server said first may have come along with the connection.
            readFrom(peer);
        } catch (IOException refused) {
            // The machine says no more of a connection that never was.
            close(peer, false);
            connectFailed(peer.id, refused);
        }
    }

    private void names() {
        for (Resolver.Answered answer = resolver.answer(); answer != null;
                answer = resolver.answer())
            machine.resolved(Time.now(), answer.query(), answer.address());
    }

    /* ---- Outputs ---- */

    private void performAll() {
        for (Output output = machine.poll(); output != null; output = machine.poll())
            perform(output);
    }

    private void perform(Output output) {
        Peer peer = peer(output.id());
        switch (output.kind()) {
        case CONNECT:
            connect(output);
            break;
        case WRITE:
            if (peer != null)
                writeTo(peer);
            break;
        case READ:
            if (peer != null)
                readFrom(peer);
            break;
        case SHUTDOWN:
            if (peer != null)
                shutdown(peer);
            break;
        case CLOSE:
            if (peer != null)
                close(peer, output.reset());
            break;
        case DATAGRAM:
            datagram(output);
            break;
        case RESOLVE:
            resolver.ask(output);
            break;
        }
    }

    private void connect(Output output) {
        SocketChannel channel = null;
        try {
            channel = Sockets.connect(output.address());
            if (channel.isConnected()) {
                Peer peer = add(output.id(), channel, SelectionKey.OP_READ);
                machine.connected(Time.now(), peer.id);
                readFrom(peer);
            } else {
                add(output.id(), channel, SelectionKey.OP_CONNECT);
            }
        } catch (IOException | RuntimeException wrong) {
            if (channel != null)
                close(new Peer(output.id(), channel), false);
            connectFailed(output.id(), wrong);
        }
    }

    private void shutdown(Peer peer) {
        try {
            peer.channel.shutdownOutput();
        } catch (IOException broken) {
            broken(peer.id, broken);
        }
    }

    private void close(Peer peer, boolean reset) {
        peer.over = true;
        if (peer(peer.id) != null)
            peers[(int) peer.id] = null;
        try {
            if (reset)
                peer.channel.setOption(StandardSocketOptions.SO_LINGER, 0);
            peer.channel.close();
        } catch (IOException gone) {
            // What cannot be closed is closed.
        }
    }

    private void datagram(Output output) {
        try {
            // A datagram that the system does not take is lost, as any may be.
            ((DatagramChannel) sockets[output.role()])
                .send(ByteBuffer.wrap(output.octets()), output.address());
        } catch (IOException | RuntimeException wrong) {
            Main.log(machine.program, "a datagram was not sent: " + wrong.getMessage());
        }
    }
}
