package gatewright.runtime;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Names, asked for in a thread of their own, one after the other. */
final class Resolver {
    /** An answer on its way back; the address is null if there is none. */
    record Answered(long query, InetSocketAddress address) { }

    // The machine asks for no more names at once than it has queries.
    private final BlockingQueue<Output> questions = new LinkedBlockingQueue<>();
    private final ConcurrentLinkedQueue<Answered> answers = new ConcurrentLinkedQueue<>();
    private final Runnable wake;

    /** `wake` is run, in the thread of the names, when there is an answer. */
    Resolver(Runnable wake) {
        this.wake = wake;
        Thread thread = new Thread(this::serve, "names");
        thread.setDaemon(true);
        thread.start();
    }

    void ask(Output question) {
        questions.add(question);
    }

    /** The next answer; null if there is none yet. */
    Answered answer() {
        return answers.poll();
    }

    private void serve() {
        try {
            for (;;) {
                Output question = questions.take();
                answers.add(new Answered(question.id(), lookUp(question)));
                wake.run();
            }
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }

    private static InetSocketAddress lookUp(Output question) {
        try {
            InetAddress address = InetAddress.getByName(question.name());
            return new InetSocketAddress(address, question.address().getPort());
        } catch (UnknownHostException none) {
            return null;
        }
    }
}
