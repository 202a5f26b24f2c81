package gatewright.runtime;

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Objects;

/** Peers that sessions store, and what is said to them unasked. */
final class Peers {
    /** A peer that a session stores. */
    static final class Peer {
        /** The same for the same connection or address. */
        final Common place;
        /** 0: it is at an address. */
        final long conn;
        final InetSocketAddress at;
        /** What was kept of its request; null for nothing. */
        final View kept;
        private final Common same;
        /** The fresh number of what was sent to it last; null for none. */
        private Common mark;

        Peer(Common place, long conn, InetSocketAddress at, View kept) {
            this.place = place;
            this.conn = conn;
            this.at = at;
            this.kept = kept;
            same = kept == null ? null : Common.of(kept.slots);
        }

        boolean is(Peer other) {
            return place.equals(other.place) && Objects.equals(same, other.same);
        }
    }

    private final Machine m;
    /** The sessions that store the peer of a place. */
    private final HashMap<Common, Ids> holders = new HashMap<>();

    Peers(Machine m) {
        this.m = m;
    }

    private PeersKind about(int which) {
        return m.program.session().peers()[which];
    }

    /** The peers in one variable of the session that a handler is in; null if it is in none. */
    private List<Peer> of(Task task, int which) {
        Session session = m.sessions.get(task.keyed);
        return session == null ? null : session.peers.get(which);
    }

    /** Where the requester of a handler is; null if nobody is to be answered. */
    private static Common place(Incoming request) {
        if (request == null || request.requester == Incoming.Requester.NO_ONE)
            return null;
        if (request.requester == Incoming.Requester.BY_CONN)
            return Common.ofConn(request.answerTo);
        return Common.of(request.role, request.peer);
    }

    /** The requester of a handler, as it is stored; null if there is none. */
    private Peer requester(Task task, PeersKind about) {
        Incoming request = m.incomings.get(task.request);
        Common place = place(request);
        if (place == null)
            return null;
        View kept = about.kept().fields.length == 0 ? null : about.kept().view();
        for (int index = 0; kept != null && index < kept.slots.length; index++) {
            Key key = about.keys()[index];
            if (request.view.about == key.view())
                kept.slots[index].copy(request.view.slots[key.request()]);
        }
        boolean connected = request.requester == Incoming.Requester.BY_CONN;
        return new Peer(place, connected ? request.answerTo : 0, request.peer, kept);
    }

    /* ---- Which sessions store a place ---- */

    private void hold(Common place, long session) {
        Ids sessions = holders.computeIfAbsent(place, of -> new Ids());
        if (!sessions.has(session))
            sessions.add(session);
    }

    private static boolean isStored(Session session, Common place) {
        for (List<Peer> peers : session.peers)
            for (Peer peer : peers)
                if (peer.place.equals(place))
                    return true;
        return false;
    }

    /** A peer may not be in a session any more. */
    private void letHoldGo(long id, Common place) {
        Session session = m.sessions.get(id);
        Ids sessions = holders.get(place);
        if (sessions == null || session != null && isStored(session, place))
            return;
        sessions.remove(id);
        if (sessions.count() == 0)
            holders.remove(place);
    }

    /** A session is over. */
    void free(Session session) {
        for (List<Peer> peers : session.peers)
            for (Peer peer : peers)
                letHoldGo(session.id, peer.place);
    }

    boolean areConnected(Session session) {
        for (List<Peer> peers : session.peers)
            for (Peer peer : peers)
                if (peer.conn != 0)
                    return true;
        return false;
    }

    /** A connection is over. */
    void isGone(long conn) {
        if (holders.isEmpty())
            return;
        Ids sessions = holders.remove(Common.ofConn(conn));
        for (int index = 0; sessions != null && index < sessions.count(); index++) {
            Session session = m.sessions.get(sessions.get(index));
            if (session != null)
                for (List<Peer> peers : session.peers)
                    peers.removeIf(peer -> peer.conn == conn);
        }
    }

    /* ---- What handlers say ---- */

    boolean store(Task task, int which) {
        List<Peer> peers = of(task, which);
        Peer peer = peers == null ? null : requester(task, about(which));
        if (peer == null)
            return false;
        for (Peer other : peers)
            if (other.is(peer))
                return true;
        boolean replaces = !about(which).list() && !peers.isEmpty();
        Peer replaced = replaces ? peers.remove(peers.size() - 1) : null;
        boolean room = peers.size() < about(which).max();
        if (room) {
            hold(peer.place, task.keyed);
            peers.add(peer);
        }
        if (replaced != null)
            letHoldGo(task.keyed, replaced.place);
        return room;
    }

    void part(Task task, int which) {
        List<Peer> peers = of(task, which);
        Peer peer = peers == null ? null : requester(task, about(which));
        if (peer != null) {
            peers.removeIf(other -> other.is(peer));
            letHoldGo(task.keyed, peer.place);
        }
    }

    void clear(Task task, int which) {
        List<Peer> peers = of(task, which);
        while (peers != null && !peers.isEmpty())
            letHoldGo(task.keyed, peers.remove(peers.size() - 1).place);
    }

    /** Takes a peer out of a variable, as far as a request is about what was sent to it so. */
    private static void forgetIn(List<Peer> peers, PeersKind about, Common place,
            Incoming request) {
        Key key = about.mark();
        boolean marked = key != null && request.view.about == key.view()
            && request.view.slots[key.request()].set;
        Common mark = marked ? Common.of(request.view.slots[key.request()]) : null;
        peers.removeIf(peer -> peer.place.equals(place)
            && (mark == null || mark.equals(peer.mark)));
    }

    void forgetRequester(Task task) {
        Incoming request = m.incomings.get(task.request);
        Common place = place(request);
        Ids sessions = place == null ? null : holders.get(place);
        for (int index = sessions == null ? 0 : sessions.count(); index > 0; index--) {
            long id = sessions.get(index - 1);
            Session session = m.sessions.get(id);
            for (int which = 0; session != null && which < session.peers.size(); which++)
                forgetIn(session.peers.get(which), about(which), place, request);
            letHoldGo(id, place);
        }
    }

    long count(Task task, int which) {
        List<Peer> peers = of(task, which);
        return peers == null ? 0 : peers.size();
    }

    boolean next(Task task, int which, Slot cursor) {
        List<Peer> peers = of(task, which);
        long taken = cursor.set ? cursor.number : 0;
        if (peers == null || taken >= peers.size())
            return false;
        task.kept = peers.get((int) taken).kept;
        cursor.setNumber(taken + 1);
        return true;
    }

    private static boolean hasRoom(Conn conn) {
        int behind = conn.behind == null ? 0 : conn.behind.size();
        return conn.unsent.length() < Machine.BUFFER_OCTETS && behind < Reading.PIPELINED_MAX;
    }

    /** Sends a letter to a peer of a variable, if it is there still. */
    void tell(Task task, int which, long at, Letter letter, Common mark) {
        List<Peer> peers = of(task, which);
        if (peers == null || at < 0 || at >= peers.size()) {
            Letter.free(letter);
            return;
        }
        Peer peer = peers.get((int) at);
        if (mark != null)
            peer.mark = mark;
        if (peer.conn == 0) {
            byte[] octets = letter.octets.text().copy();
            m.output(Output.datagram(about(which).role(), peer.at, octets));
            Letter.free(letter);
            return;
        }
        Conn conn = m.conns.get(peer.conn);
        if (conn != null && hasRoom(conn)) {
            m.pump.put(conn.id, letter);
        } else {
            m.count(Count.UNTOLD);
            Letter.free(letter);
        }
    }
}
