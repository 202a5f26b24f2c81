package gatewright.runtime;

/** Checks over octets, one octet at a time, so that they run along while a message arrives. */
public enum Check {
    CRC16_MODBUS(2, 0xffff),
    CRC16_CCITT(2, 0xffff),
    CRC32(4, 0xffffffff),
    LRC(1, 0);

    /** How many octets it has on the wire. */
    final int octets;
    final int begin;

    Check(int octets, int begin) {
        this.octets = octets;
        this.begin = begin;
    }

    int add(int sum, byte[] in, int from, int length) {
        int all = sum;
        for (int at = from; at < from + length; at++)
            all = add(all, in[at] & 0xff);
        return all;
    }

    private int add(int sum, int octet) {
        switch (this) {
        case CRC16_MODBUS:
            return reflected(sum ^ octet, 0xa001);
        case CRC32:
            return reflected(sum ^ octet, 0xedb88320);
        case CRC16_CCITT:
            return straight(sum ^ octet << 8);
        default:
            return sum + octet & 0xff;
        }
    }

    /** Eight steps of a reflected CRC. */
    private static int reflected(int sum, int polynomial) {
        int all = sum;
        for (int bit = 0; bit < 8; bit++)
            all = (all & 1) != 0 ? all >>> 1 ^ polynomial : all >>> 1;
        return all;
    }

    private static int straight(int sum) {
        int all = sum;
        for (int bit = 0; bit < 8; bit++)
            all = ((all & 0x8000) != 0 ? all << 1 ^ 0x1021 : all << 1) & 0xffff;
        return all;
    }

    /** The sum as it stands on the wire. */
    byte[] wire(int sum) {
        int value = sum;
        if (this == CRC16_CCITT)
            value = (sum & 0xff) << 8 | sum >>> 8;
        if (this == CRC32)
            value = ~sum;
        if (this == LRC)
            value = -sum;
        byte[] wire = new byte[octets];
        for (int at = 0; at < octets; at++)
            wire[at] = (byte) (value >>> 8 * at);
        return wire;
    }
}
