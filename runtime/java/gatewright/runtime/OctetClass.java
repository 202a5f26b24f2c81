package gatewright.runtime;

/** Sets of octets that runs are made of. */
public enum OctetClass {
    SPACE,
    BLANK,
    TOKEN,
    WORD,
    DIGIT;

    boolean has(int octet) {
        switch (this) {
        case SPACE:
            return octet == ' ';
        case BLANK:
            return octet == ' ' || octet == '\t';
        case TOKEN:
            return octet > 0x20 && octet != 0x7f;
        case WORD:
            return octet >= '0' && octet <= '9' || octet >= 'A' && octet <= 'Z'
                || octet >= '^' && octet <= 'z' || "!#$%&'*+-.|~".indexOf(octet) >= 0;
        default:
            return octet >= '0' && octet <= '9';
        }
    }
}
