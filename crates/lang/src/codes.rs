//! Diagnostic codes of the language.

use gatewright_diagnostic::Code;

macro_rules! codes {
    ($($name:ident = $number:literal, $title:literal, $explanation:literal;)*) => {
        $(
            pub(crate) const $name: Code =
                Code { number: $number, title: $title, explanation: $explanation };
        )*

        /// All codes of this crate with their explanations, in the order of numbers.
        pub const CODES: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    UNEXPECTED = 200, "unexpected word",
        "The text does not follow the grammar at this place; the label says what could stand \
         there. Reading goes on with the next line, so that one run reports every such place.";
    STRANGE_CHARACTER = 201, "strange character",
        "Only letters, digits, quotes and the marks of the grammar stand outside texts and \
         comments. A comment begins with `//`.";
    UNCLOSED_TEXT = 202, "unclosed text",
        "A text ends on the line where it begins (a drawing at its next `\"\"\"`), and a hole \
         `{…}` within its text. Write `\\n` for a line's end and `\\{` for a brace.";
    UNCLOSED_BLOCK = 203, "unclosed block",
        "Every `{` needs its `}`.";
    BAD_NUMBER = 204, "bad number",
        "Numbers are decimal or `0x…`, may have underscores between digits, and are below 2^63. \
         A time is at most 365 days. A `fresh` number of a test is below 2^32.";
    BAD_ESCAPE = 205, "unknown escape",
        "In a text, `\\r \\n \\t \\0 \\\\ \\\" \\{ \\}` and `\\xHH` mean an octet; nothing else \
         follows a backslash.";
    BAD_HEX = 206, "bad octets",
        "`x\"…\"` holds pairs of hexadecimal digits, with spaces where you like: `x\"0d 0a\"`.";
    HOLE_HERE = 207, "hole in a constant",
        "Holes `{…}` are possible where a text is a value, and in the text of a template. Behind `after`, \
         `before`, `past`, `by` and `until`, in a layout, a pattern, an address or a test a text is a \
         constant.";
    TOO_DEEP = 208, "too deeply nested",
        "Blocks and expressions nest to a depth of 64, and at most 256 operators follow each other \
         in one expression, so that no text can exhaust the compiler.";
    TEXT_TOO_LONG = 209, "text too long",
        "A program has at most one mebioctet of text a file.";
    SAID_TWICE = 210, "said twice",
        "A setting is given once. With two, it is unclear which one counts.";
    NO_TRUTH = 211, "no truth in a value",
        "A value alone is no condition: nothing is true because it is there, is not empty or is \
         not 0. Say what is asked: `x is present`, `x is not empty`, `x is 0`.";
    EMPTY_RANGE = 212, "empty range",
        "In `low..high` both ends belong to the range, and low is not above high.";
    BAD_WIDTH = 213, "impossible width",
        "Bit fields have 1 to 63 bits (`u1` to `u63`), with a sign 2 to 64 (`i2` to `i64`). Lengths have \
         8, 16, 24 or 32 and no sign, numbers in digits 1 to 18 digits.";

    UNKNOWN_NAME = 220, "unknown name",
        "Every name is declared: a field in its view, a constant in its message module, a value by \
         `let`, a session variable in `session`. A word that is declared nowhere is never taken \
         for a field.";
    DECLARED_TWICE = 221, "declared twice",
        "Within one scope a name means one thing.";
    NO_IMPORT = 222, "import not found",
        "`use \"FILE\"` names a file beside this one.";
    AMBIGUOUS = 223, "ambiguous name",
        "Two message modules of this gateway have the name; write `module.name`.";
    NO_GATEWAY = 224, "no gateway",
        "A program that runs has one `gateway`; a text without one can only be imported.";
    IMPORT_CYCLE = 225, "too many imports",
        "At most 64 files make one program.";

    NO_LIMIT = 230, "limit missing",
        "Everything that is held has a bound, so that the memory of a session is known before it \
         runs: a field `at most N octets` unless its line or block bounds it, a list `at most N`, \
         a table `at most N entries`, a wait `within TIME`.";
    LIMIT_TOO_BIG = 231, "limit too big",
        "What is held at once is at most 1,048,576 octets or elements. Longer bodies are a \
         `stream`, which is passed on and never held.";
    BITS_UNALIGNED = 232, "bits do not fill octets",
        "Adjacent bit fields fill whole octets, at most eight.";
    BAD_FIELD = 233, "field is not allowed here",
        "The layout cannot be read or written as it is: the label says why.";
    NOT_MEASURED = 234, "not a length",
        "`NAME octets` needs a field before it that is a number without a sign. What is extended or \
         added up has no sign, either.";
    STREAM_NOT_LAST = 235, "stream is not last",
        "A stream is passed on while it arrives, so nothing of its message can come behind it.";
    TABLE_KEY = 236, "bad key",
        "The keys of a table are all texts or all numbers, as its part's key is; with a running \
         sum they ascend, because the differences that are written cannot be negative.";
    TABLE_END = 237, "a table without an end",
        "A table ends where its `until` says; `end` is the end of the datagram or counted block \
         around it.";
    RUNS_TOGETHER = 238, "items run together",
        "What is written must be read back. An item that reads as far as its octets go (a `token`, \
         a number of digits, `skip spaces`, an optional `one of`) cannot stand before one that can \
         begin with such an octet, and nothing stands behind `rest` or a list: a reader could not \
         tell where one ends and the other begins. An optional field has a form in which its \
         absence can be seen.";

    UNKNOWN_HOLE = 240, "unknown hole",
        "A message is built from the fields of its view or the holes of its template, by name or \
         in their order.";
    HOLE_UNFILLED = 241, "hole not filled",
        "Every mandatory field is filled on every path: by the one who builds the message, by a \
         `sending` rule of the protocol if it is private, or by its default.";
    PRIVATE_HOLE = 242, "private hole",
        "A private field belongs to the protocol: a `sending` rule fills it. The gateway does not.";
    WRONG_TYPE = 243, "wrong type",
        "A number, octets, a list, a stream and a message are different things, and none becomes \
         another by itself.";
    TOO_LONG = 244, "value may be too long",
        "The value can have more octets than its place holds. Nothing is cut silently: write \
         `first N octets of VALUE`, or raise the place's limit.";
    OUT_OF_RANGE = 245, "value may not fit",
        "The number can be outside the bounds of its place. Test it first, or read it with \
         `decimal of X at most N`.";
    MAY_BE_ABSENT = 246, "value may be absent",
        "An optional field, a list's item or a session variable may be absent. Say what happens \
         then: `let x = VALUE else STATEMENT`, `(VALUE else OTHER)`, or `if VALUE is present \
         { … }`.\n\n\
         A session variable that was assigned is set until the handler waits (`send`, `wait`, \
         `receive`, a part of a message that is still on its way), if the session has a key: \
         another request may clear it meanwhile, or end the session.\n\n    \
         session.last = request.verb\n    wait 1 second\n    \
         return answer(200, session.last)                       wrong\n    \
         return answer(200, (session.last else \"none\"))         right\n    \
         let last = session.last else return answer(404, \"no\")  right\n\n\
         A session for each connection is its handler's alone: there an assignment holds until \
         `clear`.";
    NEEDLESS_ELSE = 247, "needless else",
        "Nothing in the value can be absent, so the `else` is never taken.";
    NOT_CONSTANT = 248, "not a constant",
        "Here the value must be known before the program runs.";

    NO_HANDLER = 260, "no handler",
        "The protocol dispatches to a handler that the gateway does not have: add \
         `on NAME(request) { … }`.";
    UNKNOWN_HANDLER = 261, "handler never called",
        "No dispatch of the gateway's servers leads to this handler.";
    WRONG_RETURN = 262, "wrong return type",
        "A handler answers with the response of the protocol whose request it handles, by its name \
         with its fields:\n\n    \
         on ask(request) {\n        \
         return                         wrong: it owes an answer\n        \
         return request(verb: \"ASK\")   wrong: not the response\n        \
         return answer(200, \"yes\")     right\n    }\n\n\
         A timer and an opening have nobody to answer.";
    NO_RETURN = 263, "handler may end without an answer",
        "Every path through a handler ends with `return`, `close` or `fail`; only a handler that \
         the protocol dispatches `without response` may simply end.";
    UNREACHABLE = 264, "never reached",
        "Control never comes here: everything is caught before.";
    NO_OTHERWISE = 265, "otherwise missing",
        "A choice says what happens in every case: its last line is `otherwise -> …`.";
    ELSE_FALLS_THROUGH = 266, "else goes on",
        "Behind `let NAME = … else …` the name has a value; so the `else` must leave: `return`, \
         `close` or `fail`, or give a value instead.";
    WRONG_PLACE = 267, "not possible here",
        "The statement has no meaning in this place; the message says why.";
    UNUSED = 268, "never used",
        "It is declared and never read; drop it, or use it.";
    MISSING_SETTING = 269, "setting missing",
        "A protocol says how it behaves; nothing is assumed. The message names what is missing.";
    NEED_ROLE = 270, "to whom?",
        "The gateway has several clients (or none) that speak this protocol: say `to ROLE`.";
    RECURSION = 271, "definition uses itself",
        "A definition is replaced by its statements; it cannot contain itself.";
    BAD_ADDRESS = 272, "not an address",
        "An address is `HOST:PORT`: an IPv4 address, an IPv6 address in brackets, or a name; and a \
         port from 1 to 65535.";

    ONE_NAME = 273, "one name for several connections",
        "The opening tells the server a name that is the same on each connection, and there may be \
         several: many servers then end the one before (MQTT 3.1.1 §3.1.4). Write `shared, at most \
         N waiting` in the `client`, so that there is one, or leave the name to the server.";

    OUTSIDE_SESSION = 280, "session variable outside a session",
        "The variables of a keyed session exist between `start session` (or `resume session`) and \
         `end session`, on every path that comes here.";
    NO_SESSION = 281, "no session",
        "The gateway declares no `session`, or one of another role.";

    AMPLIFICATION = 290, "amplification",
        "Whoever forges the sender's address of a UDP request makes the gateway send to a third \
         party. If the answer is more than three times the request (headers of IP and UDP counted, \
         RFC 9000 §8.1 has the same factor), or goes to a group, the gateway is a weapon. Shorten \
         the answer, or write `allow amplification` in the protocol if every requester is trusted.";
}
