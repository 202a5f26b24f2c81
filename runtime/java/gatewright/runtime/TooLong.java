package gatewright.runtime;

/** What of a message is too long, so that a protocol may have an answer of its own to it. */
public enum TooLong { NOTHING, LINE, TABLE, CONTENT }
