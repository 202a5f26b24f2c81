package gatewright.runtime;

/** What a table's value becomes when it is filed. */
public enum Convert { AS_IS, AS_LOWER, AS_UPPER, AS_DECIMAL, AS_LENGTH, AS_UINT }
