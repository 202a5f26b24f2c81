package gatewright.runtime;

/** How far a message is read before somebody is told. */
enum Goal { TO_END, TO_BEGIN, TO_SETTLED }
