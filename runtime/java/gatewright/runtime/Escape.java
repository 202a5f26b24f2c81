package gatewright.runtime;

/** An escape: `value` announces so many octets more, to which `add` is added. */
public record Escape(long value, int octets, long add) { }
