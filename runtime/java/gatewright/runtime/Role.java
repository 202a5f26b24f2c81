package gatewright.runtime;

import java.util.EnumMap;

/** A role of a program, as the program describes it. */
public final class Role {
    private static final Key[] NO_KEYS = {};
    private static final int[] NO_SLOTS = {};

    final String name;
    final String address;
    final boolean client;
    final Message response;
    final int connectionsMax;
    boolean udp;
    boolean async;
    boolean multicast;
    RequestKind[] requests = {};
    Key[] flow = NO_KEYS;
    /** The response's slots among the flow. */
    int[] flowWaits = NO_SLOTS;
    Answer greeting;
    Handler opening;
    Answer malformed = Answer.NOTHING;
    Answer failed = Answer.NOTHING;
    Answer full = Answer.NOTHING;
    private final EnumMap<TooLong, Answer> tooLong = new EnumMap<>(TooLong.class);
    /** 0: none. */
    long idle;
    boolean reuse;
    boolean reuseEachResponse;
    int reuseMax;
    long reuseIdle;
    boolean shared;
    int sharedWaiting;
    int retransmitTimes;
    long retransmitAfter;
    long retransmitPauseMax;
    boolean retransmitDoubling;
    Key[] duplicates = NO_KEYS;
    long duplicatesKeep;

    private Role(String name, String address, boolean client, Message response,
            int connectionsMax) {
        this.name = name;
        this.address = address;
        this.client = client;
        this.response = response;
        this.connectionsMax = connectionsMax;
    }

    /** One that listens. */
    public static Role server(String name, String address, Message response, int connectionsMax) {
        return new Role(name, address, false, response, connectionsMax);
    }

    /** One that asks. */
    public static Role client(String name, String address, Message response, int connectionsMax) {
        return new Role(name, address, true, response, connectionsMax);
    }

    /** Over UDP instead of TCP. */
    public Role udp() {
        udp = true;
        return this;
    }

    /** Responses come in any order. */
    public Role async() {
        async = true;
        return this;
    }

    /** Its address is a group. */
    public Role multicast() {
        multicast = true;
        return this;
    }

    /** What may be asked of it. */
    public Role requests(RequestKind... kinds) {
        requests = kinds;
        return this;
    }

    /** What matches a response to its request. */
    public Role flow(int[] waits, Key... keys) {
        flow = keys;
        flowWaits = waits;
        return this;
    }

    /** What it says first. */
    public Role greeting(Answer answer) {
        greeting = answer;
        return this;
    }

    /** What opens a connection of it. */
    public Role opening(Handler handler) {
        opening = handler;
        return this;
    }

    /** What it answers by itself. */
    public Role answers(Answer malformed, Answer failed, Answer full) {
        this.malformed = malformed;
        this.failed = failed;
        this.full = full;
        return this;
    }

    /** What it answers to a message that is too long, in place of that for malformed ones. */
    public Role tooLong(TooLong what, Answer answer) {
        tooLong.put(what, answer);
        return this;
    }

    /** What it answers to a message that could not be read. */
    Answer malformed(Incoming incoming) {
        return tooLong.getOrDefault(incoming.reader.tooLong(), malformed);
    }

    /** How long a connection may be silent. */
    public Role idle(long time) {
        idle = time;
        return this;
    }

    /** Connections are kept, after each response or when a session ends. */
    public Role reuse(boolean eachResponse, int max, long idle) {
        reuse = true;
        reuseEachResponse = eachResponse;
        reuseMax = max;
        reuseIdle = idle;
        return this;
    }

    /** One connection to a server carries the requests of all sessions; so many may wait for it. */
    public Role shared(int waiting) {
        shared = true;
        sharedWaiting = waiting;
        return this;
    }

    /** Requests that are not answered are sent again. */
    public Role retransmit(int times, long after, long pauseMax, boolean doubling) {
        retransmitTimes = times;
        retransmitAfter = after;
        retransmitPauseMax = pauseMax;
        retransmitDoubling = doubling;
        return this;
    }

    /** Requests that come again are answered once. */
    public Role duplicates(long keep, Key... keys) {
        duplicates = keys;
        duplicatesKeep = keep;
        return this;
    }
}
