package gatewright.runtime;

import gatewright.runtime.PeerSeen.Seen;
import java.util.TreeMap;

/** Servers that the program's client roles cannot reach, as seen by all loops; told when that changes. */
final class LostServers {
    /** Servers that are known to be lost; the addresses may come from messages. */
    private static final int LOST_MAX = 64;
    /** Changes that are told at once, and one a second after that. */
    private static final int TOLD_AT_ONCE = 20;
    private static final long SECOND = Time.milliseconds(1000);

    /** Why, and since when; one that was silent is not back by a connection, as it accepted some before. */
    private record Loss(String cause, long since, boolean silent) { }

    private final Program program;
    private final TreeMap<String, Loss> all = new TreeMap<>();
    private volatile boolean any;
    private long lost;
    private long back;
    private long unlisted;
    private long untold;
    /** Changes that may be told now, and when that was found. */
    private long may = TOLD_AT_ONCE;
    private long found = Time.now();

    LostServers(Program program) {
        this.program = program;
    }

    /** Takes what a loop's machine has seen, with what the system said of it, or null. */
    void see(Machine machine, Exception why) {
        for (PeerSeen seen = machine.pollPeer(); seen != null; seen = machine.pollPeer())
            take(seen, why);
        machine.tellReached(any);
    }

    private synchronized void take(PeerSeen seen, Exception why) {
        String server = program.roles()[seen.role()].name + " at " + seen.address();
        Loss before = all.get(server);
        if (seen.seen().isLoss()) {
            if (before == null && all.size() < LOST_MAX) {
                String cause = cause(seen.seen(), why);
                all.put(server, new Loss(cause, Time.now(), seen.seen() == Seen.SILENT));
                lost++;
                tell("peer-lost: cannot reach its " + server + ": " + cause);
            } else if (before == null) {
                unlisted++;
            }
        } else if (before != null && (seen.seen() == Seen.ANSWERED || !before.silent())) {
            all.remove(server);
            back++;
            long seconds = (Time.now() - before.since()) / SECOND;
            tell("peer-back: reaches its " + server + " again, after " + seconds + " s");
        }
        any = !all.isEmpty();
    }

    /** A server that comes and goes with each request does not fill the log. */
    private void tell(String text) {
        long seconds = (Time.now() - found) / SECOND;
        found += seconds * SECOND;
        may = Math.min(TOLD_AT_ONCE, may + seconds);
        if (may == 0) {
            untold++;
            return;
        }
        may--;
        Main.log(program, text);
    }

    private static String cause(Seen seen, Exception why) {
        String told = why == null ? null : why.getMessage();
        switch (seen) {
        case UNRESOLVED:
            return "its name cannot be resolved";
        case SILENT:
            return "it did not answer in time";
        case REFUSED:
            return "the opening of the connection failed: it did not answer as the program expects";
        case CLOSED:
            return told == null ? "it closed the connection" : told;
        default:
            return told == null ? "no connection can be made" : told;
        }
    }

    /** What was counted, and who is lost now. */
    synchronized void report() {
        count("peers_lost", lost);
        count("peers_back", back);
        count("peers_unlisted", unlisted);
        count("peers_untold", untold);
        all.forEach((server, loss) -> Main.log(program, "lost: " + server + ": " + loss.cause()));
    }

    private void count(String word, long times) {
        if (times > 0)
            Main.log(program, word + " " + times);
    }
}
