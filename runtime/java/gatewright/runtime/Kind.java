package gatewright.runtime;

/** What a slot holds. */
enum Kind { INT, OCTETS, LIST, STREAM, MESSAGE }
