package gatewright.runtime;

import java.util.ArrayDeque;

/** A handler that runs: its values, and what its code calls. */
public final class Task {
    enum Origin { BY_REQUEST, BY_OPENING, BY_CLOCK }

    enum Wait { READY, SLOTS, CONNECTION, RESPONSE, WRITTEN, GATHER, RECEIVE, SLEEP }

    /** Its values. */
    public final View values;
    /** What it builds. */
    public final Build build;
    /** Where it goes on. */
    public int block;

    final long id;
    final Handler handler;
    final Origin origin;
    final int clock;
    final Timer timer;
    /** The role of its request or opening. */
    int by;
    long request;
    /** Where its request came from, or the connection that it opens. */
    long conn;
    Wait wait = Wait.READY;
    /** It is under way; it is to end when it stops; it waits for what will never come. */
    long started;
    boolean finished;
    boolean runs;
    boolean ends;
    boolean fails;
    long waitsFor;
    /** Sessions. */
    long own;
    long keyed;

    int otherwise;
    /** Where a response or message goes. */
    Slot into;
    /** Whom it sends to, what, and until when. */
    int role;
    Letter letter;
    Common flow;
    Target target;
    long query;
    boolean newOnly;
    long deadline;
    boolean respond;
    long within;
    Message receives;
    boolean answers;
    boolean close;
    /** Of the request of the peer that is told; null for nothing. */
    View kept;
    /** The fresh number of what it is told; null for none. */
    Common mark;
    /** Responses that are being collected; 0: one response. */
    long gatherMax;
    boolean gathering;
    long gatherExchange;
    long gatherLeft;
    Slot gatherInto;
    int gatherBody;
    int gatherDone;
    /** Messages that were collected and not taken yet; null for none. */
    ArrayDeque<Long> gathered;

    private final Machine m;
    /** Instead of the role's address. */
    private Text address;
    private final Octets pieces;

    Task(Machine m, long id, Handler handler, Origin origin, int clock) {
        this.m = m;
        this.id = id;
        this.handler = handler;
        this.origin = origin;
        this.clock = clock;
        values = handler.values().view();
        build = new Build(m, 0, null);
        timer = new Timer(Timer.Kind.TASK, id);
        pieces = new Octets(m.pool);
    }

    void free() {
        Letter.free(letter);
        letter = null;
        pieces.free();
    }

    /* ---- Values ---- */

    public void set(Slot slot, Slot value) {
        if (slot == value)
            return;
        if (value.kind() == Kind.MESSAGE) {
            Incoming message = value.set ? m.incomings.get(value.from) : null;
            if (message != null)
                m.running.setMessage(slot, message);
            return;
        }
        slot.clear();
        slot.copy(value);
    }

    public void setText(Slot slot, Text value) {
        slot.setOctets(value);
    }

    public void piece(Text text) {
        if (!pieces.add(text))
            m.count(Count.NO_MEMORY);
    }

    public void pieceNumber(long value) {
        piece(Text.of(Long.toString(value)));
    }

    public void formatted(Slot slot) {
        slot.setOctets(pieces.text());
        pieces.free();
    }

    /* ---- What may have no result; true if there is one. ---- */

    public boolean take(Slot slot, Slot value) {
        if (value.set)
            set(slot, value);
        return value.set;
    }

    public boolean after(Slot slot, Text of, Text prefix) {
        if (!of.first(prefix.length).sameKey(prefix))
            return false;
        slot.setOctets(of.behind(prefix.length).withoutBlanks());
        return true;
    }

    public boolean before(Slot slot, Text of, Text delimiter) {
        int at = of.find(delimiter);
        if (at >= 0)
            slot.setOctets(of.part(0, at));
        return at >= 0;
    }

    private static void setCell(Slot slot, Slot list, long row, int column) {
        if (list.field.columns()[column].kind() == Kind.INT)
            slot.setNumber(list.cellNumber(row, column));
        else
            slot.setOctets(list.cellText(row, column));
    }

    public boolean past(Slot slot, Text of, Text delimiter) {
        int at = of.find(delimiter);
        if (at >= 0)
            slot.setOctets(of.behind(at + delimiter.length).withoutBlanks());
        return at >= 0;
    }

    /** Octets as small hexadecimal digits. */
    public void hex(Slot slot, Text of) {
        StringBuilder digits = new StringBuilder();
        for (int index = 0; index < of.length; index++)
            digits.append(Character.forDigit(of.at(index) >> 4, 16))
                .append(Character.forDigit(of.at(index) & 15, 16));
        slot.setOctets(Text.of(digits.toString()));
    }

    public void folded(Slot slot, Text of, Fold how) {
        slot.setOctets(of);
        how.apply(slot.octets, slot.length);
    }

    /** The octets of a list's rows with a text between them, if they are not more than `max`. */
    public boolean joined(Slot slot, Slot list, Text separator, long max) {
        Octets whole = new Octets(m.pool);
        boolean sound = true;
        for (int row = 0; sound && row < list.rows(); row++) {
            if (row > 0)
                sound = whole.add(separator);
            sound = sound && whole.add(Text.of(list.cells[row].octets()));
        }
        sound = sound && whole.length() <= max;
        if (sound)
            slot.setOctets(whole.text());
        whole.free();
        return sound;
    }

    /** The part behind those that were taken; false behind the last. */
    public boolean nextPart(Text of, Text separator, Slot cursor, Slot part) {
        long at = cursor.set ? cursor.number : 0;
        if (at > of.length)
            return false;
        Text rest = of.behind((int) at);
        int found = rest.find(separator);
        int end = found < 0 ? rest.length : found;
        part.setOctets(rest.part(0, end));
        cursor.setNumber(at + end + separator.length);
        return true;
    }

    public boolean item(Slot slot, Slot list, long index, int column) {
        if (index < 1 || index > list.rows() || column >= list.field.columns().length)
            return false;
        setCell(slot, list, index - 1, column);
        return true;
    }

    public boolean next(Slot list, Slot cursor, Slot... row) {
        long taken = cursor.number();
        if (taken < 0 || taken >= list.rows())
            return false;
        for (int column = 0; column < Math.min(row.length, list.field.columns().length); column++)
            setCell(row[column], list, taken, column);
        cursor.setNumber(taken + 1);
        return true;
    }

    /* ---- Session variables; one that is read outside of a session is absent. ---- */

    public Slot variable(int index) {
        Session session = m.remembered.seen(this);
        return session == null ? Slot.ABSENT : session.variables.slots[index];
    }

    /** The variable of the session that a statement changes; null if there is none. */
    private Slot changed(int index) {
        Session session = m.remembered.changed(this);
        return session == null ? null : session.variables.slots[index];
    }

    public void assign(int index, Slot value) {
        Slot slot = changed(index);
        if (slot == null || slot == value)
            return;
        slot.clear();
        slot.copy(value);
    }

    public void assignNumber(int index, long value) {
        Slot slot = changed(index);
        if (slot != null)
            slot.setNumber(value);
    }

    public void assignText(int index, Text value) {
        Slot slot = changed(index);
        if (slot != null)
            slot.setOctets(value);
    }

    public void forget(int index) {
        Slot slot = changed(index);
        if (slot != null)
            slot.clear();
    }

    private static boolean addCell(Slot list, Cell cell) {
        if (list == null || list.length >= list.field.bounds().max())
            return false;
        list.addRow(cell);
        return true;
    }

    /** Appends to a list of its own; false if that is full. */
    public boolean push(Slot list, Slot value) {
        if (!value.set)
            return false;
        boolean number = value.kind() == Kind.INT;
        return number ? pushNumber(list, value.number) : pushText(list, value.text());
    }

    public boolean pushNumber(Slot list, long value) {
        return addCell(list, Cell.of(value));
    }

    public boolean pushText(Slot list, Text value) {
        return addCell(list, Cell.of(value));
    }

    public boolean addTo(int index, Slot value) {
        if (!value.set)
            return false;
        boolean number = value.kind() == Kind.INT;
        return number ? addNumberTo(index, value.number) : addTextTo(index, value.text());
    }

    public boolean addNumberTo(int index, long value) {
        return addCell(changed(index), Cell.of(value));
    }

    public boolean addTextTo(int index, Text value) {
        return addCell(changed(index), Cell.of(value));
    }

    public boolean startSession() {
        return m.remembered.enter(this, true);
    }

    public boolean resumeSession() {
        return m.remembered.enter(this, false);
    }

    public boolean startSessionAs(Text value) {
        return m.remembered.enter(this, Common.of(value), true);
    }

    public boolean resumeSessionAs(Text value) {
        return m.remembered.enter(this, Common.of(value), false);
    }

    public void endSession() {
        long session = keyed;
        keyed = 0;
        m.remembered.end(session);
    }

    /* ---- Session variables that store peers ---- */

    public boolean store(int which) {
        return m.stored.store(this, which);
    }

    public void part(int which) {
        m.stored.part(this, which);
    }

    public void forgetRequester() {
        m.stored.forgetRequester(this);
    }

    public void clearPeers(int which) {
        m.stored.clear(this, which);
    }

    public long stored(int which) {
        return m.stored.count(this, which);
    }

    public boolean nextPeer(int which, Slot cursor) {
        return m.stored.next(this, which, cursor);
    }

    /** Of the request of the peer that is told; absent if it was absent there. */
    public Slot kept(int index) {
        return kept != null && index < kept.slots.length ? kept.slots[index] : Slot.ABSENT;
    }

    /** The fresh number of what is built, by which an answer is known to be about it. */
    public void marked(Slot fresh) {
        mark = Common.of(fresh);
    }

    /** Sends what was built to the peer that the cursor took; false if it cannot be written. */
    public boolean tell(int which, Slot cursor) {
        Letter letter = written();
        Common about = mark;
        if (letter == null)
            return false;
        mark = null;
        m.stored.tell(this, which, cursor.set ? cursor.number - 1 : -1, letter, about);
        return true;
    }

    /* ---- Connections of the session ---- */

    public void release(int by) {
        m.connections.letGoWhenFree(m.remembered.connTo(this, by));
    }

    public void hangUp(int by) {
        m.connections.hangUp(m.remembered.connTo(this, by));
    }

    /* ---- Sending, waiting, ending. The handler returns what these return. ---- */

    /** What it built as a letter; null if it cannot be. */
    private Letter written() {
        Letter written = new Letter(m.pool);
        if (build.finish(written))
            return written;
        Letter.free(written);
        m.count(Count.UNBUILDABLE);
        return null;
    }

    /** Answers with what was built, and goes on; false if that cannot be. */
    public boolean provisional() {
        Incoming asked = m.incomings.get(request);
        Letter answer = asked == null ? null : written();
        if (answer == null)
            return false;
        if (asked.requester == Incoming.Requester.BY_CONN) {
            m.pump.put(asked.answerTo, answer);
            return true;
        }
        if (asked.requester == Incoming.Requester.BY_PEER)
            m.datagrams.answerPeer(asked, answer);
        else
            Letter.free(answer);
        return true;
    }

    /** Whether it is known of slots of a message whether they are set; if not, waits for them. */
    public boolean settled(Slot message, int[] slots) {
        boolean settled = message.set;
        for (int index = 0; settled && index < slots.length; index++)
            settled = message.message.slots[slots[index]].settled;
        if (settled)
            return true;
        Incoming incoming = message.set ? m.incomings.get(message.from) : null;
        if (incoming == null || incoming.conn == 0) {
            fails = true;
            return false;
        }
        incoming.reader.until(slots);
        wait = Wait.SLOTS;
        m.toRead(incoming.conn);
        return false;
    }

    /** What is sent next goes to this address. */
    public void address(Text to) {
        address = to;
    }

    private Stop sendTo(int to, long time, int then, int orElse) {
        role = to;
        block = then;
        otherwise = orElse;
        Letter.free(letter);
        View built = build.view();
        flow = Common.of(m.program.roles()[to], built.about, built, false);
        letter = written();
        if (letter == null)
            return Stop.FAILS;
        target = address == null ? m.roles[to].address : Target.read(address.toString());
        address = null;
        if (target == null) {
            Letter.free(letter);
            letter = null;
            m.running.goOn(this, false);
            return Stop.WAITS;
        }
        newOnly = false;
        deadline = m.now + time;
        return Stop.SENDS;
    }

    /** Sends what was built; a response goes into a slot, if there is one. */
    public Stop send(int to, long time, Slot response, int then, int orElse) {
        into = response;
        respond = response != null;
        gatherMax = 0;
        return sendTo(to, time, then, orElse);
    }

    /** Sends what was built, and collects responses. */
    public Stop gather(int to, long time, long max, Slot response, int body, int done) {
        into = response;
        respond = true;
        gatherMax = max;
        gatherInto = response;
        gatherBody = body;
        gatherDone = done;
        return sendTo(to, time, body, done);
    }

    public Stop nextResponse() {
        return Stop.GATHERS;
    }

    /** Takes the message behind the request. */
    public Stop receive(Message view, long time, Slot message, int then, int orElse) {
        receives = view;
        within = time;
        into = message;
        block = then;
        otherwise = orElse;
        return Stop.RECEIVES;
    }

    public Stop sleep(long time, int then) {
        within = time;
        block = otherwise = then;
        return Stop.SLEEPS;
    }

    /** Ends, and answers with what was built, if it `has` an answer. */
    public Stop end(boolean has, boolean closes) {
        answers = has;
        close = closes;
        if (!has)
            return Stop.RETURNS;
        Letter.free(letter);
        letter = written();
        return letter != null ? Stop.RETURNS : Stop.FAILS;
    }
}
