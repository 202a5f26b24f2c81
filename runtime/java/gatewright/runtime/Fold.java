package gatewright.runtime;

/** What becomes of the case of ASCII letters. */
public enum Fold {
    KEEP,
    UPPER,
    LOWER;

    void apply(byte[] octets, int length) {
        for (int at = 0; this != KEEP && at < length; at++) {
            byte octet = octets[at];
            if (this == UPPER && octet >= 'a' && octet <= 'z')
                octets[at] = (byte) (octet - ('a' - 'A'));
            if (this == LOWER && octet >= 'A' && octet <= 'Z')
                octets[at] = (byte) (octet + ('a' - 'A'));
        }
    }
}
