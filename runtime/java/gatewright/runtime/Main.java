package gatewright.runtime;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The gateway as a program of its own. */
public final class Main {
    private static final int LOOPS_MAX = 64;
    /** More than any parameter holds, in octets. */
    private static final int FILE_MAX = (1 << 20) + 3;
    /** How long loops may take to end, in milliseconds. */
    private static final long END_MS = 1000;

    private Main() { }

    /** Runs a program until the process is told to end. */
    public static void run(Program program, String... arguments) {
        int loops = 1;
        boolean replaces = false;
        List<String> addresses = new ArrayList<>();
        for (int at = 0; at < arguments.length; at++) {
            if (arguments[at].equals("-n") && at + 1 < arguments.length)
                loops = number(arguments[++at]);
            else if (arguments[at].equals("-r"))
                replaces = true;
            else if (List.of("-s", "-e", "-f").contains(arguments[at]) && at + 1 < arguments.length) {
                String option = arguments[at++];
                String wrong = setParameter(program, option, arguments[at]);
                if (wrong != null) {
                    log(program, wrong);
                    System.exit(2);
                }
            }
            else
                addresses.add(arguments[at]);
        }
        if (loops < 1 || loops > LOOPS_MAX) {
            usage(program);
            return;
        }
        for (Slot parameter : program.parameters()) {
            if (!parameter.set) {
                log(program, "parameter `" + parameter.field.name() + "` has no default and is not set");
                System.exit(2);
            }
        }
        if (program.isOfOneLoop())
            loops = 1;
        checkLimit(program, loops);
        List<Loop> all = new ArrayList<>();
        try {
            LostServers lost = new LostServers(program);
            for (int index = 0; index < loops; index++) {
                Machine machine = machine(program, loops);
                for (String address : addresses) {
                    if (!set(machine, address)) {
                        usage(program);
                        return;
                    }
                }
                if (index == 0 && !replaces)
                    alone(machine);
                all.add(new Loop(machine, lost, loops > 1, index > 0));
            }
        } catch (IOException wrong) {
            log(program, wrong.getMessage());
            System.exit(1);
        }
        serve(program, all);
    }

    /** Fails if somebody serves at an address of the program's servers; groups are everybody's. */
    private static void alone(Machine machine) throws IOException {
        Role[] roles = machine.program.roles();
        for (int role = 0; role < roles.length; role++) {
            InetSocketAddress address = machine.address(role);
            if (roles[role].client || roles[role].multicast || address.isUnresolved())
                continue;
            try {
                Sockets.alone(address, roles[role].udp);
            } catch (IOException taken) {
                throw new IOException(roles[role].name + " at port " + address.getPort() + ": "
                    + taken.getMessage() + " (-r serves beside who has it)", taken);
            }
        }
    }

    private static void serve(Program program, List<Loop> loops) {
        List<Thread> threads = new ArrayList<>();
        for (Loop loop : loops) {
            Thread thread = new Thread(loop, "loop");
            thread.setUncaughtExceptionHandler((failed, why) -> {
                log(program, "a loop failed: " + why);
                why.printStackTrace();
                Runtime.getRuntime().halt(1);
            });
            threads.add(thread);
        }
        // Told to end, what runs goes on to its end; told once more, it ends at once.
        Signals.on("TERM", () -> loops.forEach(Loop::drain));
        Signals.on("USR1", () -> loops.forEach(Loop::show));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            loops.forEach(Loop::end);
            try {
                for (Thread thread : threads)
                    thread.join(END_MS);
            } catch (InterruptedException over) {
                Thread.currentThread().interrupt();
            }
        }));
        threads.forEach(Thread::start);
        log(program, "ready");
    }

    /**
     * Tells if the system allows fewer descriptors than the connections that the program allows. The
     * virtual machine has raised the soft limit by itself.
     */
    private static void checkLimit(Program program, int loops) {
        long wanted = 64;
        for (Role role : program.roles())
            wanted += (long) loops * (role.udp ? 1 : role.connectionsMax);
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/limits"))) {
                String[] words = line.split(" +");
                if (!line.startsWith("Max open files") || number(words[3]) >= wanted
                        || words[3].equals("unlimited"))
                    continue;
                log(program, "the program's limits need " + wanted + " descriptors, this process may"
                    + " have " + words[3] + " (ulimit -n): connections above that wait at the door");
            }
        } catch (IOException unknown) {
            // A system that does not tell its limits is not asked further.
        }
    }

    /** Half of the heap is for buffers, all loops' together. */
    private static Machine machine(Program program, int loops) {
        Pool pool = new Pool(Runtime.getRuntime().maxMemory() / 2 / loops);
        return new Machine(Time.now(), program, pool, (int) System.nanoTime());
    }

    private static int number(String text) {
        try {
            return Integer.parseInt(text);
        } catch (NumberFormatException none) {
            return 0;
        }
    }

    /** Takes ROLE=HOST:PORT; false if it is none. */
    private static boolean set(Machine machine, String argument) {
        int equals = argument.indexOf('=');
        for (int role = 0; equals >= 0 && role < machine.program.roles().length; role++)
            if (machine.program.roles()[role].name.equals(argument.substring(0, equals)))
                return machine.address(role, argument.substring(equals + 1));
        return false;
    }

    /** Takes NAME=VALUE, NAME=VARIABLE or NAME=FILE, as the option says; what is wrong, or null. */
    private static String setParameter(Program program, String option, String argument) {
        int equals = argument.indexOf('=');
        if (equals < 0) {
            String value = option.equals("-f") ? "FILE" : option.equals("-e") ? "VARIABLE" : "VALUE";
            return option + " " + argument + ": it takes NAME=" + value;
        }
        String name = argument.substring(0, equals);
        String said = argument.substring(equals + 1);
        List<String> known = new ArrayList<>();
        for (Slot parameter : program.parameters()) {
            known.add("`" + parameter.field.name() + "`");
            if (!parameter.field.name().equals(name))
                continue;
            if (option.equals("-f"))
                return setFile(parameter, Path.of(said));
            String text = option.equals("-e") ? System.getenv(said) : said;
            if (text == null)
                return "`" + name + "`: the environment has no `" + said + "`";
            return parameter.sets(text.getBytes(StandardCharsets.UTF_8));
        }
        String those = known.isEmpty() ? "none" : String.join(", ", known);
        return "the program has no parameter `" + name + "`; it has " + those;
    }

    /** Sets a parameter to what a file holds, without a line's end behind it; what is wrong, or null. */
    private static String setFile(Slot parameter, Path file) {
        try (InputStream in = Files.newInputStream(file)) {
            byte[] all = in.readNBytes(FILE_MAX);
            int length = all.length;
            if (length > 0 && all[length - 1] == '\n')
                length--;
            if (length > 0 && all[length - 1] == '\r')
                length--;
            return parameter.sets(Arrays.copyOf(all, length));
        } catch (NoSuchFileException missing) {
            return "`" + parameter.field.name() + "`: " + file + ": No such file or directory";
        } catch (IOException unread) {
            return "`" + parameter.field.name() + "`: " + file + ": " + unread.getMessage();
        }
    }

    private static void usage(Program program) {
        boolean has = program.parameters().length > 0;
        System.err.println("usage: [-n LOOPS] [-r] "
            + (has ? "[-s NAME=VALUE] [-e NAME=VARIABLE] [-f NAME=FILE] " : "") + "[ROLE=HOST:PORT]...");
        for (Role role : program.roles()) {
            String side = role.client ? "to" : "at";
            System.err.println("  " + role.name + ": " + side + " " + role.address);
        }
        for (Slot parameter : program.parameters()) {
            Bounds bounds = parameter.field.bounds();
            String may = bounds.kind() == Kind.INT ? bounds.low() + ".." + bounds.high()
                : "at most " + bounds.max() + " octets";
            String unset = parameter.set ? "" : ", to be set";
            System.err.println("  -s " + parameter.field.name() + ": " + may + unset);
        }
        System.err.println(
            "  -r: beside the gateway that has these addresses, which is then sent SIGTERM");
        System.exit(2);
    }

    static void log(Program program, String text) {
        System.err.println(program.name() + ": " + text);
    }
}
