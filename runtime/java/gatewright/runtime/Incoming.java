package gatewright.runtime;

import java.net.InetSocketAddress;

/** A message that arrives, or arrived. */
public final class Incoming {
    enum Purpose { REQUEST, HANDLED, UNMATCHED, RESPONSE, RECEIVED, IGNORED }

    /** What becomes of its stream. */
    enum Passing { HELD, DISCARDED, PASSED }

    /** Who is answered. */
    enum Requester { NO_ONE, BY_CONN, BY_PEER }

    final long id;
    final View view;
    final Reader reader;
    /** 0 when it is complete. */
    long conn;
    Requester requester = Requester.NO_ONE;
    long answerTo;
    int role;
    InetSocketAddress peer;
    /** What a repetition of it has in common with it; null if it is not looked for. */
    Common repeat;
    Purpose purpose = Purpose.REQUEST;
    long exchange;
    long task;
    Passing passing = Passing.HELD;
    long sink;
    /** What is answered when it is complete, and which request that answers. */
    Letter reply;
    long replyTo;
    /** Its own answer waits for a message behind it. */
    boolean answered;

    Incoming(long id, View view) {
        this.id = id;
        this.view = view;
        reader = new Reader(view);
    }
}
