package gatewright.runtime;

/** The order of a number's octets. */
public enum Order { BIG, LITTLE }
