package gatewright.runtime;

import java.lang.reflect.Proxy;

/**
 * Signals of the system. No class of the standard library knows them: `sun.misc.Signal` does where it
 * is there, and is asked for by name so that nothing depends on it.
 */
final class Signals {
    private Signals() { }

    /** Lets a signal (`TERM`) do something; false if this virtual machine cannot. */
    static boolean on(String name, Runnable action) {
        try {
            Class<?> signal = Class.forName("sun.misc.Signal");
            Class<?> handler = Class.forName("sun.misc.SignalHandler");
            Object acting = Proxy.newProxyInstance(handler.getClassLoader(),
                new Class<?>[] {handler}, (proxy, method, given) -> {
                    switch (method.getName()) {
                    case "handle":
                        action.run();
                        return null;
                    case "equals":
                        return proxy == given[0];
                    case "hashCode":
                        return System.identityHashCode(proxy);
                    default:
                        return name;
                    }
                });
            signal.getMethod("handle", signal, handler)
                .invoke(null, signal.getConstructor(String.class).newInstance(name), acting);
            return true;
        } catch (ReflectiveOperationException | RuntimeException unknown) {
            return false;
        }
    }
}
