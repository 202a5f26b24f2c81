package gatewright.runtime;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

/**
 * Answers lines on standard input, as the drivers in C do. `cases PACKAGE` answers the cases of
 * `driver.c` with a line each; without arguments the lines are those of `machine.c` but `limit`:
 * `program PACKAGE` stands before `new`, which may say how many octets of buffers there are, and
 * `lent` tells how many of them are in use.
 */
public final class Driver {
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT =
        new PrintStream(System.out, false, StandardCharsets.ISO_8859_1);

    private Driver() { }

    public static void main(String[] arguments) throws IOException, ReflectiveOperationException {
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.ISO_8859_1));
        if (arguments.length == 2) {
            Cases cases = new Cases(arguments[1]);
            for (String line = in.readLine(); line != null; line = in.readLine())
                OUT.print(cases.answer(line) + "\n");
            OUT.flush();
            if (cases.pool.lent() > 0)
                System.exit(1);
            return;
        }
        Machines machines = new Machines();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            machines.tell(line.split(" ", -1));
            OUT.print(".\n");
            OUT.flush();
        }
    }

    private static Object constant(String program, String of, String name)
            throws ReflectiveOperationException {
        return Class.forName(program + "." + of).getField(name).get(null);
    }

    /* ---- Messages ---- */

    private static final class Cases {
        final Pool pool = new Pool(1 << 24);
        private final Message[] all;
        private final StringBuilder told = new StringBuilder();

        Cases(String program) throws ReflectiveOperationException {
            all = (Message[]) constant(program, "Messages", "ALL");
        }

        String answer(String line) {
            String[] words = line.split(" ", -1);
            told.setLength(0);
            if (words[0].equals("read"))
                read(message(words[1]), HEX.parseHex(words[2]), words[3]);
            else
                write(message(words[1]).view(), words);
            return told.toString();
        }

        private Message message(String name) {
            for (Message message : all)
                if (message.name().equals(name))
                    return message;
            throw new IllegalArgumentException(name);
        }

        private void read(Message message, byte[] wire, String cuts) {
            View view = message.view();
            Reader reader = new Reader(view);
            Octets stream = new Octets(pool);
            List<Integer> ends = new ArrayList<>();
            for (String cut : cuts.split(","))
                if (!cut.isEmpty())
                    ends.add(Integer.valueOf(cut));
            ends.add(wire.length);
            int at = 0;
            Turn turn = Turn.WAIT;
            for (int index = 0; turn == Turn.WAIT && index < ends.size(); index++) {
                // A piece of its own, so that an octet too far is seen.
                Text piece = Text.of(new Text(wire, at, ends.get(index) - at).copy());
                turn = reader.read(piece, index + 1 == ends.size(), stream);
                at += reader.used();
                if (turn != Turn.FAIL)
                    settled(reader.used(), view);
            }
            if (turn == Turn.FAIL)
                told.append(" !" + reader.reason().word() + " " + reader.position());
            for (int index = 0; index < view.slots.length; index++)
                // What only a reader uses is its own affair.
                if (view.slots[index].set && !view.slots[index].field.scratch())
                    told.append(" " + index + "=" + shown(view.slots[index]));
            told.append(" stream=" + shown(stream.text()));
            if (turn == Turn.DONE) {
                for (Slot slot : view.slots)
                    if (slot.passing)
                        slot.setOctets(stream.text());
                told.append(" -> ");
                written(view, List.of());
            }
            stream.free();
        }

        private void settled(int used, View view) {
            told.append(" " + used + ":");
            for (Slot slot : view.slots)
                told.append(slot.field.scratch() ? '-' : slot.settled ? '1' : '0');
        }

        private static String shown(Text text) {
            return HEX.formatHex(text.copy());
        }

        private static String shown(Slot slot) {
            switch (slot.kind()) {
            case INT:
                return "i" + slot.number;
            case OCTETS:
                return "x" + shown(slot.text());
            case STREAM:
                return "s";
            default:
                break;
            }
            StringBuilder rows = new StringBuilder("l");
            int columns = slot.field.columns().length;
            for (int at = 0; at < slot.length * columns; at++) {
                if (at > 0)
                    rows.append(at % columns == 0 ? ';' : ',');
                Cell cell = slot.cells[at];
                boolean number = slot.field.columns()[at % columns].kind() == Kind.INT;
                rows.append(number ? "i" + cell.number() : "x" + HEX.formatHex(cell.octets()));
            }
            return rows.toString();
        }

        /** Writes the view and shows what came of it. */
        private void written(View view, List<Text> pieces) {
            Octets out = new Octets(pool);
            Writer writer = new Writer(out);
            writer.write(view);
            Reason reason = writer.reason();
            StreamWriter stream = reason == Reason.SOUND ? writer.stream() : null;
            if (stream != null) {
                for (Text piece : pieces)
                    reason = reason == Reason.SOUND ? stream.write(piece, out) : reason;
                reason = reason == Reason.SOUND ? stream.finish(out) : reason;
            }
            told.append(reason == Reason.SOUND ? shown(out.text()) : "!" + reason.word());
            out.free();
        }

        private void write(View view, String[] words) {
            List<Text> pieces = new ArrayList<>();
            int at = 2;
            for (; !words[at].equals("/"); at++) {
                String[] slot = words[at].split("=", 2);
                fill(view.slots[Integer.parseInt(slot[0])], slot[1]);
            }
            for (at++; at < words.length; at++)
                pieces.add(Text.of(HEX.parseHex(words[at])));
            told.append(' ');
            written(view, pieces);
        }

        private static void fill(Slot slot, String value) {
            String rest = value.substring(1);
            switch (value.charAt(0)) {
            case 'i':
                slot.setNumber(Long.parseLong(rest));
                break;
            case 'x':
                slot.setOctets(Text.of(HEX.parseHex(rest)));
                break;
            case 's':
                slot.setPassing();
                break;
            default:
                slot.set = true;
                for (String row : rest.isEmpty() ? new String[0] : rest.split(";"))
                    slot.addRow(row(row.split(",")));
                break;
            }
        }

        private static Cell[] row(String[] cells) {
            Cell[] row = new Cell[cells.length];
            for (int at = 0; at < cells.length; at++) {
                String rest = cells[at].substring(1);
                row[at] = cells[at].charAt(0) == 'i'
                    ? Cell.of(Long.parseLong(rest)) : Cell.of(Text.of(HEX.parseHex(rest)));
            }
            return row;
        }
    }

    /* ---- Machines ---- */

    private static final class Machines {
        private Program program;
        private Pool pool;
        private Machine machine;
        private long now;
        /** What was told of, by its number. */
        private final List<Long> conns = new ArrayList<>();
        private final List<Long> queries = new ArrayList<>();

        void tell(String[] words) throws ReflectiveOperationException {
            switch (words[0]) {
            case "program":
                program = (Program) constant(words[1], "Gateway", "PROGRAM");
                break;
            case "free":
                free();
                break;
            case "lent":
                OUT.print("lent " + pool.lent() + "\n");
                break;
            case "counted":
                for (Count what : Count.values())
                    OUT.print(what.word() + " " + machine.counted(what) + "\n");
                break;
            case "new":
                free();
                now = 0;
                pool = new Pool(words.length > 1 ? Long.parseLong(words[1]) : 1 << 28);
                machine = new Machine(now, program, pool, 0);
                machine.tellReached(true);
                break;
            case "drain":
                machine.drain(now);
                break;
            default:
                tell(words[0], (int) Long.parseLong(words[1]), words);
                break;
            }
            if (machine != null)
                settle();
        }

        private void tell(String what, int of, String[] words) {
            switch (what) {
            case "time":
                pass(Long.parseLong(words[1]));
                break;
            case "accept":
                conns.add(machine.accepted(now, of));
                OUT.print("conn " + (conns.size() - 1) + "\n");
                break;
            case "datagram":
            case "stranger":
                datagram(of, HEX.parseHex(words[2]), what.equals("stranger"));
                break;
            case "resolved":
                machine.resolved(now, queries.get(of),
                    address(new byte[] {(byte) 192, 0, 2, 53}, 25));
                break;
            case "unknown":
                machine.resolved(now, queries.get(of), null);
                break;
            default:
                happened(what, conns.get(of), words);
            }
        }

        private void happened(String what, long conn, String[] words) {
            switch (what) {
            case "connected":
                machine.connected(now, conn);
                break;
            case "failed":
                machine.connectFailed(now, conn);
                break;
            case "octets":
                receive(conn, HEX.parseHex(words[2]));
                break;
            case "end":
                machine.ended(now, conn);
                break;
            case "break":
                machine.broken(now, conn);
                break;
            default:
                throw new IllegalArgumentException(what);
            }
        }

        private static InetSocketAddress address(byte[] octets, int port) {
            return new InetSocketAddress(Target.address(octets), port);
        }

        private void free() {
            if (machine == null)
                return;
            machine.free();
            if (machine.things() > 0 || pool.lent() > 0)
                OUT.print("kept " + machine.things() + " things and " + pool.lent() + " octets\n");
            machine = null;
            conns.clear();
            queries.clear();
        }

        private void settle() {
            for (Output output = machine.poll(); output != null; output = machine.poll())
                perform(output);
            for (PeerSeen peer = machine.pollPeer(); peer != null; peer = machine.pollPeer())
                OUT.print("server r" + peer.role() + " " + peer.seen().word() + " "
                    + peer.address() + "\n");
        }

        private void perform(Output output) {
            int conn = conns.lastIndexOf(output.id());
            switch (output.kind()) {
            case CONNECT:
                if (conn < 0) {
                    conn = conns.size();
                    conns.add(output.id());
                }
                OUT.print("connect " + conn + " " + output.role() + "\n");
                break;
            case WRITE:
                Text text = machine.unsent(output.id());
                if (text.size() > 0) {
                    OUT.print("wrote " + conn + " " + HEX.formatHex(text.copy()) + "\n");
                    machine.sent(now, output.id(), (int) text.size());
                }
                break;
            case SHUTDOWN:
                OUT.print("shutdown " + conn + "\n");
                break;
            case CLOSE:
                // One that ended before anybody heard of it is nobody's.
                if (conn >= 0)
                    OUT.print("close " + conn + (output.reset() ? " reset" : "") + "\n");
                break;
            case DATAGRAM:
                String hex = HEX.formatHex(output.octets());
                OUT.print("datagram " + output.role() + " " + hex + "\n");
                break;
            case RESOLVE:
                queries.add(output.id());
                OUT.print("resolve " + (queries.size() - 1) + " " + output.name() + "\n");
                break;
            case READ:
                break;
            }
        }

        private void pass(long to) {
            while (machine.timeout() <= to) {
                now = Math.max(now, machine.timeout());
                machine.handleTimeout(now);
                settle();
            }
            now = to;
        }

        /** Octets in as many turns as there is room for. */
        private void receive(long conn, byte[] octets) {
            int at = 0;
            while (at < octets.length) {
                int piece = Math.min(machine.room(conn), octets.length - at);
                if (piece == 0)
                    break;
                machine.received(now, conn, ByteBuffer.wrap(octets, at, piece));
                settle();
                at += piece;
            }
        }

        /** From where none is expected, if a stranger sends it. */
        private void datagram(int role, byte[] octets, boolean stranger) {
            // A client hears of the server that it asks.
            InetSocketAddress from = program.roles()[role].client
                ? machine.address(role) : address(new byte[] {127, 0, 0, 1}, 4000);
            if (stranger)
                from = new InetSocketAddress(from.getAddress(), from.getPort() + 1);
            machine.datagram(now, role, from, Text.of(octets));
        }
    }
}
