package gatewright.runtime;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;

/** host:port, as programs and configurations write it; the name is empty for an address. */
record Target(String name, InetSocketAddress address) {
    /** The longest name of a host (RFC 1035 §2.3.4). */
    private static final int NAME_MAX = 253;

    /** Reads host:port; null if it is none. */
    static Target read(String text) {
        int colon = text.lastIndexOf(':');
        int port = colon < 0 ? 0 : port(text.substring(colon + 1));
        if (port == 0 || colon == 0)
            return null;
        String host = text.substring(0, colon);
        boolean six = host.startsWith("[") && host.endsWith("]") && host.length() > 1;
        byte[] octets = six ? readSix(host.substring(1, host.length() - 1)) : readFour(host);
        if (octets != null)
            return new Target("", new InetSocketAddress(address(octets), port));
        if (six || !isName(host))
            return null;
        return new Target(host, InetSocketAddress.createUnresolved(host, port));
    }

    static InetAddress address(byte[] octets) {
        try {
            return InetAddress.getByAddress(octets);
        } catch (UnknownHostException wrongLength) {
            throw new IllegalArgumentException(wrongLength);
        }
    }

    boolean isName() {
        return !name.isEmpty();
    }

    /** As programs write it. */
    @Override
    public String toString() {
        byte[] octets = isName() ? null : address.getAddress().getAddress();
        String host = isName() ? name
            : octets.length == 16 ? "[" + six(octets) + "]" : address.getAddress().getHostAddress();
        return host + ":" + address.getPort();
    }

    /** RFC 5952: the first of the longest runs of groups that are 0, if of more than one, is `::`. */
    private static String six(byte[] octets) {
        int[] groups = new int[8];
        for (int at = 0; at < groups.length; at++)
            groups[at] = (octets[2 * at] & 0xff) << 8 | octets[2 * at + 1] & 0xff;
        int from = 0;
        int most = 1;
        for (int at = 0; at < groups.length; at++) {
            int zeros = 0;
            while (at + zeros < groups.length && groups[at + zeros] == 0)
                zeros++;
            if (zeros > most) {
                from = at;
                most = zeros;
            }
        }
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < groups.length; at++) {
            if (most > 1 && at == from) {
                text.append("::");
                at += most - 1;
            } else {
                boolean first = text.length() == 0 || text.charAt(text.length() - 1) == ':';
                text.append(first ? "" : ":").append(Integer.toHexString(groups[at]));
            }
        }
        return text.toString();
    }

    private static int port(String text) {
        if (text.isEmpty() || text.length() > 5)
            return 0;
        int port = 0;
        for (char c : text.toCharArray()) {
            if (c < '0' || c > '9')
                return 0;
            port = port * 10 + (c - '0');
        }
        return port <= 65535 ? port : 0;
    }

    /** Four decimal numbers with dots; null if it is something else. */
    private static byte[] readFour(String text) {
        String[] parts = text.split("\\.", -1);
        byte[] octets = new byte[4];
        if (parts.length != octets.length)
            return null;
        for (int at = 0; at < octets.length; at++) {
            String part = parts[at];
            boolean digits = !part.isEmpty() && part.length() <= 3
                && part.chars().allMatch(c -> c >= '0' && c <= '9');
            if (!digits || part.length() > 1 && part.charAt(0) == '0')
                return null;
            int value = Integer.parseInt(part);
            if (value > 255)
                return null;
            octets[at] = (byte) value;
        }
        return octets;
    }

    /** RFC 4291 §2.2, without the form that ends like IPv4; null if it is something else. */
    private static byte[] readSix(String text) {
        int gap = text.indexOf("::");
        byte[] head = groups(gap < 0 ? text : text.substring(0, gap));
        byte[] tail = gap < 0 ? new byte[0] : groups(text.substring(gap + 2));
        if (head == null || tail == null)
            return null;
        int length = head.length + tail.length;
        if (gap < 0 ? length != 16 : length > 14)
            return null;
        byte[] octets = new byte[16];
        System.arraycopy(head, 0, octets, 0, head.length);
        System.arraycopy(tail, 0, octets, 16 - tail.length, tail.length);
        return octets;
    }

    private static byte[] groups(String text) {
        if (text.isEmpty())
            return new byte[0];
        String[] groups = text.split(":", -1);
        byte[] octets = new byte[2 * groups.length];
        for (int at = 0; at < groups.length; at++) {
            String group = groups[at];
            boolean digits = !group.isEmpty() && group.length() <= 4
                && group.chars().allMatch(c -> Numbers.digit(c, 16) >= 0);
            if (!digits)
                return null;
            int value = Integer.parseInt(group, 16);
            octets[2 * at] = (byte) (value >> 8);
            octets[2 * at + 1] = (byte) value;
        }
        return octets;
    }

    private static boolean isName(String text) {
        return !text.isEmpty() && text.length() <= NAME_MAX && text.chars().allMatch(
            c -> c < 0x80 && Character.isLetterOrDigit(c) || c == '-' || c == '.' || c == '_');
    }
}
