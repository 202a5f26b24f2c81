package gatewright.runtime;

/** The typed slots of one message, in the order of its fields. */
public abstract class View {
    final Message about;
    final Slot[] slots;

    /** No slot is set. */
    protected View(Message about) {
        this.about = about;
        slots = new Slot[about.fields.length];
        for (int index = 0; index < slots.length; index++)
            slots[index] = new Slot(about.fields[index]);
    }

    /** The slot of an index. */
    protected final Slot slot(int index) {
        return slots[index];
    }

    /** Reads on in a message; one that is only written is not read. */
    protected Turn read(Reader r) {
        return r.fail(Reason.NO_CASE);
    }

    /** Writes the message; one that is only a handler's values is not written. */
    protected void write(Writer w) {
        w.refuse(Reason.NO_CASE);
    }
}
