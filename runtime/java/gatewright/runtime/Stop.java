package gatewright.runtime;

/** Why a handler stopped. */
public enum Stop { FAILS, WAITS, SENDS, RECEIVES, SLEEPS, GATHERS, RETURNS, CLOSES, OPENED }
