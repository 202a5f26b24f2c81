package gatewright.runtime;

/** How the end of a stream is told. */
enum Framing { LINES, CHUNKED, COUNTED, UNTIL_CLOSE, NOTHING }
