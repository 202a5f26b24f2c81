/*
 * Messages: octets to views and back, sans-IO.
 *
 * What a compiled gateway program calls to read and write its messages. Nothing here opens a
 * socket, reads a clock or keeps state outside of its arguments, but for the pool that memory is
 * taken from. A peer cannot make any of it grow beyond what the program's layouts allow.
 */
#ifndef GW_MESSAGE_H
#define GW_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Octets that lie elsewhere. */
struct gw_text {
    const uint8_t *at;
    size_t length;
};

/* A constant's octets, from a C string without its end. */
#define GW_TEXT(string) ((struct gw_text){(const uint8_t *)(string), sizeof(string) - 1})

/* ---- Memory: blocks from a pool, so that no message asks the system for any. ---- */

/* A block of at least `size` octets; NULL if the pool's limit is reached. `room` is told. */
void *gw_pool_take(size_t size, size_t *room);

/* Gives a block back; `room` as it was told. */
void gw_pool_give(void *block, size_t room);

/* The most octets that the pool may hold, and how many it holds and has lent. */
void gw_pool_limit(size_t octets);
size_t gw_pool_held(void);
size_t gw_pool_lent(void);

/* Gives everything that is not lent back to the system. */
void gw_pool_trim(void);

/* Octets that grow at their end and are used up at their beginning. */
struct gw_octets {
    uint8_t *block;
    size_t room;  /* of the block */
    size_t begin; /* the first octet that is there */
    size_t end;   /* behind the last one */
    bool lost;    /* something that was appended is missing: there was no memory for it */
};

/* Appends; false if there is no memory. */
bool gw_octets_add(struct gw_octets *octets, struct gw_text text);
/* Makes room for so many more octets and says where; NULL if there is no memory. */
uint8_t *gw_octets_grow(struct gw_octets *octets, size_t length);
/* Uses up octets at the beginning. */
void gw_octets_use(struct gw_octets *octets, size_t length);
/* What is there. */
struct gw_text gw_octets_text(const struct gw_octets *octets);
/* Gives the block back. */
void gw_octets_free(struct gw_octets *octets);

/* ---- Views ---- */

enum gw_kind { GW_INT, GW_OCTETS, GW_LIST, GW_STREAM, GW_MESSAGE };

/* What a column of a list, or a slot, may hold. */
struct gw_bounds {
    enum gw_kind kind;
    int64_t low, high; /* of a number */
    uint32_t max;      /* octets */
};

/* A slot's description. */
struct gw_field {
    const char *name;
    struct gw_bounds bounds; /* of a list: max is its rows */
    bool mandatory;          /* a well-formed message has it */
    bool scratch;            /* only the parser uses it */
    uint8_t columns;         /* of a list */
    const struct gw_bounds *column;
};

/* One value of a list's row. */
struct gw_cell {
    int64_t number;
    uint8_t *at;
    uint32_t length;
    uint32_t room; /* octets that fit at `at`, where the list has them of its own */
};

struct gw_message;
struct gw_view;

/* A typed place for one recognised field. */
struct gw_slot {
    const struct gw_field *field;
    bool set;
    bool settled;    /* it is known whether it is set: a handler that waits may go on */
    bool passing;    /* a stream whose octets pass by and are not here */
    uint32_t length; /* octets, or rows */
    uint32_t room;   /* octets or cells that fit */
    union {
        int64_t number;
        uint8_t *octets;
        struct gw_cell *cells;
        struct gw_view *message; /* held by a handler; `from` says which one it is */
    };
    uint64_t from;
};

/* What every view begins with; its slots follow, in the order of the message's fields. */
struct gw_view {
    _Alignas(_Alignof(struct gw_slot)) const struct gw_message *message;
    void *blocks;     /* memory of the slots, besides what is left of the view's own block */
    uint8_t *free;    /* memory that no slot has yet */
    size_t left;      /* octets of it */
    size_t room;      /* of the view's own block */
    uint32_t holders; /* how many hold it; the last one frees it */
};

struct gw_reader;
struct gw_writer;

/* What came of a step, or of reading. */
enum gw_turn { GW_NEXT, GW_GO, GW_WAIT, GW_FAIL, GW_DONE, GW_REACHED };

/* What of a message is too long, so that a protocol may have an answer of its own to it. */
enum gw_too_long { GW_NOTHING_LONG, GW_LONG_LINE, GW_LONG_TABLE, GW_LONG_CONTENT, GW_LONG_COUNT };

/* No length. */
#define GW_NOT_WHOLE SIZE_MAX

/* A message of a program: what it holds, how it is read, how it is written. */
struct gw_message {
    const char *name;
    size_t size; /* of its view */
    uint16_t count;
    const struct gw_field *fields;
    const struct gw_view *blank; /* its view with no slot set; NULL: made from the fields */
    bool datagram;
    bool lines;          /* it is lines: behind a malformed one the next begins at a line's end */
    uint32_t window_max; /* the longest stretch that the reader must see at once */
    const uint8_t *too_long; /* enum gw_too_long of each step of `read`; NULL: nobody asks */
    enum gw_turn (*read)(struct gw_reader *, struct gw_view *); /* NULL: it is only written */
    /* Reads it in one pass if the input has it whole: its length, with every slot settled. Otherwise
       GW_NOT_WHOLE, with slots in any state. NULL: it is not read so. */
    size_t (*whole)(struct gw_view *, struct gw_text input);
    void (*write)(struct gw_writer *, const struct gw_view *);
};

/* A view with no slot set, from the pool; NULL if there is no memory. */
struct gw_view *gw_view_new(const struct gw_message *message);
/* Gives a view and all it holds back, if nobody else holds it; NULL is no fault. */
void gw_view_free(struct gw_view *view);
/* A slot by its index. */

/* Fill a slot and settle it; false if there is no memory. Bounds are not looked at. */
bool gw_set_octets(struct gw_view *view, struct gw_slot *slot, struct gw_text text);
void gw_set_passing(struct gw_slot *slot);
bool gw_set_copy(struct gw_view *view, struct gw_slot *slot, const struct gw_slot *from);
/* Memory that lives as long as the view, beyond what it has left; NULL if there is none. */
void *gw_view_more(struct gw_view *view, size_t size);
/* Makes room for so many cells of a list; false if there is no memory. */
bool gw_list_grow(struct gw_view *view, struct gw_slot *list, uint32_t cells);
/* Appends a row, of as many cells as the list has columns. */
bool gw_add_row(struct gw_view *view, struct gw_slot *list, const struct gw_cell *row);

/* What a slot holds; 0 or no octets if it is absent. */
static inline int64_t gw_number(const struct gw_slot *slot)
{
    return slot->set && slot->field->bounds.kind == GW_INT ? slot->number : 0;
}
static inline struct gw_text gw_text_of(const struct gw_slot *slot)
{
    bool here = slot->set && !slot->passing;
    return here ? (struct gw_text){slot->octets, slot->length} : (struct gw_text){NULL, 0};
}
static inline int64_t gw_number_or(const struct gw_slot *slot, int64_t otherwise)
{
    return slot->set ? slot->number : otherwise;
}
static inline int64_t gw_rows(const struct gw_slot *list) { return list->set ? list->length : 0; }
static inline const struct gw_cell *gw_cell_at(const struct gw_slot *list, int64_t row, unsigned of)
{
    return &list->cells[(size_t)row * list->field->columns + of];
}
static inline struct gw_text gw_cell_text(const struct gw_slot *list, int64_t row, unsigned of)
{
    const struct gw_cell *cell = gw_cell_at(list, row, of);
    return (struct gw_text){cell->at, cell->length};
}
/* A cell that holds what lies elsewhere. */
static inline struct gw_cell gw_cell_of(struct gw_text text)
{
    return (struct gw_cell){.at = (uint8_t *)(uintptr_t)text.at, .length = (uint32_t)text.length};
}
static inline int64_t gw_cell_number(const struct gw_slot *list, int64_t row, unsigned of)
{
    return gw_cell_at(list, row, of)->number;
}

/* Patterns; an absent slot is none of them. */
static inline bool gw_is_set(const struct gw_slot *slot) { return slot->set; }
static inline bool gw_is_within(const struct gw_slot *slot, int64_t low, int64_t high)
{
    return slot->set && low <= slot->number && slot->number <= high;
}
static inline bool gw_is_empty(const struct gw_slot *slot)
{
    return slot->set && !slot->passing && slot->length == 0;
}
bool gw_same(struct gw_text one, struct gw_text other);
bool gw_is(const struct gw_slot *slot, struct gw_text text);
/* The same without regard to ASCII case. */
bool gw_is_key(const struct gw_slot *slot, struct gw_text text);

/* ---- Reading ---- */

/* What is wrong with a message, by whoever sent it; or why one cannot be built. */
enum gw_reason {
    GW_SOUND,
    GW_CUT,
    GW_BEYOND,
    GW_UNEXPECTED,
    GW_TOO_LONG,
    GW_TOO_SHORT,
    GW_TOO_LARGE,
    GW_OUT_OF_BOUNDS,
    GW_MISSING,
    GW_TWICE,
    GW_NO_NUMBER,
    GW_WRONG_CHECK,
    GW_LEFT_OVER,
    GW_NO_CASE,
    GW_CHUNK_SIZE,
    GW_CHUNK_END,
    GW_CHUNK_EXTRA,
    GW_BAD_SLOT,
    GW_BAD_LENGTH,
    GW_BAD_OCTETS,
    GW_BAD_NUMBER,
    GW_NO_FRAMING,
    GW_STREAM_LENGTH,
    GW_NO_LENGTH,
    GW_NO_MEMORY
};

/* The reason in a word. */
const char *gw_reason_name(enum gw_reason reason);

enum gw_class { GW_SPACE, GW_BLANK, GW_TOKEN, GW_WORD, GW_DIGIT };
enum gw_fold { GW_KEEP, GW_UPPER, GW_LOWER };
enum gw_order { GW_BIG, GW_LITTLE };
enum gw_check { GW_CRC16_MODBUS, GW_CRC16_CCITT, GW_CRC32, GW_LRC };
enum gw_convert { GW_AS_IS, GW_AS_LOWER, GW_AS_UPPER, GW_AS_DECIMAL, GW_AS_LENGTH, GW_AS_UINT };
enum gw_framing { GW_LINES, GW_CHUNKED, GW_COUNTED, GW_UNTIL_CLOSE, GW_NOTHING };

/* The deepest nesting of lines, counted blocks and checks. */
#define GW_REGIONS_MAX 16
/* Columns of a list. */
#define GW_COLUMNS_MAX 32
/* Loops of one message. */
#define GW_COUNTERS_MAX 8
/* Octets of chunk extensions and trailers of one stream. */
#define GW_CHUNK_EXTRA_MAX 8192

/* A part of the message that has an end of its own. */
struct gw_region {
    uint64_t end;
    bool known;   /* the end is known */
    bool folded;  /* line's ends in it are blanks */
    uint8_t tail; /* octets of the line's end behind it */
};

/* A stream that is being read. */
struct gw_stream_reader {
    enum gw_framing framing;
    enum { GW_AT_START, GW_WITHIN, GW_AT_SIZE, GW_IN_CHUNK, GW_IN_TRAILER } state;
    uint64_t left;  /* octets that are missing */
    uint64_t room;  /* octets that it may still have */
    uint32_t extra; /* octets of extensions and trailers so far */
    struct gw_text terminator, stuffing;
    uint8_t before; /* the last octet of a line */
    bool torn;      /* the line before ended with a lone LF */
};

/* How far a message is read. */
enum gw_goal { GW_TO_END, GW_TO_BEGIN, GW_TO_SETTLED };

/* Where the reading of one message is. All zero is before its first octet. */
struct gw_reader {
    uint64_t at; /* octets used of the message */
    uint16_t step;
    uint8_t depth; /* regions above the whole message */
    bool last;     /* nothing follows the input */
    bool datagram;
    bool streaming;
    bool hold;     /* the stream is left where it begins */
    bool entering; /* the octets that failed were to be a line */
    bool begun;    /* octets of it were here before */
    bool checking;
    enum gw_goal goal;
    uint16_t goal_count;
    const uint16_t *goal_slots;
    enum gw_reason reason;
    enum gw_check check;
    uint32_t sum;
    uint64_t word;
    uint32_t counts[GW_COUNTERS_MAX];
    struct gw_region regions[GW_REGIONS_MAX];
    struct gw_stream_reader stream;
    struct gw_view *view;
    struct gw_text input;          /* from here on */
    struct gw_octets *stream_into; /* NULL throws the stream away */
};

/*
 * Reads on. `input` begins with what was not used last time; `last` says that nothing will follow:
 * the datagram is whole, or the connection ended. Octets of the message's stream are appended to
 * `stream`. GW_WAIT asks for more, GW_DONE is the message's end, GW_FAIL says that it is malformed
 * (`reader->reason`, at octet `reader->at`). `used` octets of the input are used up.
 */
enum gw_turn gw_read(struct gw_reader *reader, struct gw_view *view, struct gw_text input, bool last,
                     struct gw_octets *stream, size_t *used);

/* What of the message was too long, where its reading failed. */
enum gw_too_long gw_too_long(const struct gw_reader *r);

/* Whether the message is read as far as its goal says; GW_REACHED then tells it. */
bool gw_reached_goal(const struct gw_reader *r);
static inline bool gw_reached(const struct gw_reader *r)
{
    return r->goal != GW_TO_END && gw_reached_goal(r);
}

/* The steps of readers. Each completes (GW_NEXT), uses nothing and waits, or fails. */
enum gw_turn gw_fail(struct gw_reader *r, enum gw_reason reason);
enum gw_turn gw_literal(struct gw_reader *r, struct gw_text wanted);
enum gw_turn gw_literal_folded(struct gw_reader *r, struct gw_text wanted);
enum gw_turn gw_until(struct gw_reader *r, struct gw_text delimiter, uint32_t max,
                      enum gw_fold fold, struct gw_slot *into);
enum gw_turn gw_run(struct gw_reader *r, enum gw_class class, uint32_t min, uint32_t max,
                    enum gw_fold fold, bool empty_is_absent, struct gw_slot *into);
enum gw_turn gw_take(struct gw_reader *r, uint32_t length, uint32_t max, enum gw_fold fold,
                     bool empty_is_absent, struct gw_slot *into);
enum gw_turn gw_take_counted(struct gw_reader *r, const struct gw_slot *length, uint32_t max,
                             enum gw_fold fold, bool empty_is_absent, struct gw_slot *into);
enum gw_turn gw_take_rest(struct gw_reader *r, uint32_t max, enum gw_fold fold,
                          bool empty_is_absent, struct gw_slot *into);
enum gw_turn gw_digits(struct gw_reader *r, unsigned radix, uint32_t min, uint32_t max,
                       struct gw_slot *into);
enum gw_turn gw_one_of(struct gw_reader *r, struct gw_text set, bool optional,
                       struct gw_slot *into);
enum gw_turn gw_varint(struct gw_reader *r, unsigned max, struct gw_slot *into);

/* An escape: `value` announces so many octets more, to which `add` is added. */
struct gw_escape {
    int64_t value;
    unsigned octets;
    int64_t add;
};
enum gw_turn gw_extend(struct gw_reader *r, struct gw_slot *slot, unsigned count,
                       const struct gw_escape *escapes);
enum gw_turn gw_sum(struct gw_reader *r, struct gw_slot *into, const struct gw_slot *add);
void gw_fold(uint8_t *octets, size_t length, enum gw_fold fold);
enum gw_turn gw_enter_line(struct gw_reader *r, uint32_t max);
enum gw_turn gw_enter_folded_line(struct gw_reader *r, uint32_t max);
enum gw_turn gw_begin_check(struct gw_reader *r, enum gw_check check);
enum gw_turn gw_end_check(struct gw_reader *r, enum gw_check check);
/* GW_GO if the octets came next and are used; GW_NEXT if they do not come. */
enum gw_turn gw_peek(struct gw_reader *r, struct gw_text wanted);
enum gw_turn gw_count(struct gw_reader *r, unsigned counter, uint32_t max);
enum gw_turn gw_copy(struct gw_reader *r, const struct gw_slot *from, struct gw_slot *into);
enum gw_turn gw_given(struct gw_reader *r, const struct gw_slot *slot);
/* Files a table's value: as it is, or converted; `trim` takes blanks off both ends. */
enum gw_turn gw_file(struct gw_reader *r, const struct gw_slot *value, enum gw_convert convert,
                     bool trim, struct gw_slot *into);
enum gw_turn gw_append(struct gw_reader *r, struct gw_slot *list, unsigned count,
                       const struct gw_slot *const *columns);
/* The same in a pass over a whole message; false if it cannot be. */
bool gw_whole_append(struct gw_view *view, struct gw_slot *list, unsigned count,
                     const struct gw_slot *const *columns);
/* A stream begins under a framing; gw_stream passes its octets on. */
enum gw_turn gw_stream_lines(struct gw_reader *r, struct gw_text terminator,
                             struct gw_text stuffing, struct gw_slot *into);
enum gw_turn gw_stream_chunked(struct gw_reader *r, struct gw_slot *into);
enum gw_turn gw_stream_counted(struct gw_reader *r, const struct gw_slot *length,
                               struct gw_slot *into);
enum gw_turn gw_stream_until_close(struct gw_reader *r, struct gw_slot *into);
enum gw_turn gw_stream_nothing(struct gw_reader *r, struct gw_slot *into);
enum gw_turn gw_stream_at_most(struct gw_reader *r, int64_t max);
static inline bool gw_streaming(const struct gw_reader *r) { return r->streaming; }
enum gw_turn gw_stream(struct gw_reader *r);
enum gw_turn gw_accept(struct gw_reader *r);

/* ---- Writing ---- */

/* A stream that is being written. */
struct gw_stream_writer {
    enum gw_framing framing;
    struct gw_text terminator, stuffing;
    uint64_t announced, written;
    uint8_t tail[2];  /* the last two octets */
    uint32_t matched; /* octets of a line that begin like the stuffing and are held back */
    bool known;       /* whether the line is stuffed is known */
};

/* The writing of one message. */
struct gw_writer {
    struct gw_octets *out;
    enum gw_reason reason; /* the first thing that was wrong; then nothing more is written */
    uint64_t word;
    struct gw_text field; /* the octets under check */
    uint8_t digits[24];   /* of numbers as octets */
    bool streaming;       /* the message ends with a stream that passes: `stream` writes it */
    struct gw_stream_writer stream;
};

/*
 * Writes a message behind what `out` has. False if it cannot be built (`writer->reason`); `out` is
 * then as it was.
 */
bool gw_write(struct gw_writer *writer, const struct gw_view *view, struct gw_octets *out);

/* Writes octets of a stream, framed, and its end; GW_SOUND, or why not. */
enum gw_reason gw_stream_write(struct gw_stream_writer *stream, struct gw_text octets,
                               struct gw_octets *out);
enum gw_reason gw_stream_finish(struct gw_stream_writer *stream, struct gw_octets *out);

/* The parts of writers. After something was wrong they do nothing. */
void gw_refuse(struct gw_writer *w, enum gw_reason reason);
void gw_put(struct gw_writer *w, struct gw_text text);
void gw_field(struct gw_writer *w, struct gw_text text, uint32_t min, uint32_t max);
void gw_field_is(struct gw_writer *w, enum gw_class class);
void gw_field_one_of(struct gw_writer *w, struct gw_text set);
void gw_field_without(struct gw_writer *w, struct gw_text text);
void gw_field_begins_not(struct gw_writer *w, enum gw_class class);
void gw_field_one_line(struct gw_writer *w);
void gw_field_end(struct gw_writer *w);
void gw_put_digits(struct gw_writer *w, int64_t value, unsigned radix, unsigned width,
                   uint32_t max);
void gw_put_bits(struct gw_writer *w, int64_t value, unsigned shift, unsigned width);
/* The same in two's complement. */
void gw_put_signed_bits(struct gw_writer *w, int64_t value, unsigned shift, unsigned width);
void gw_put_word(struct gw_writer *w, unsigned octets, enum gw_order order);
void gw_put_varint(struct gw_writer *w, int64_t value, unsigned max);
void gw_put_extension(struct gw_writer *w, int64_t value, unsigned count,
                      const struct gw_escape *escapes);
int64_t gw_escape(struct gw_writer *w, int64_t value, unsigned count,
                  const struct gw_escape *escapes);
size_t gw_mark(const struct gw_writer *w);
/* Refuses more octets than these since the mark. */
void gw_put_bound(struct gw_writer *w, size_t mark, uint32_t max);
/* Puts a length before what was written since the mark; 0 octets are a varint. */
void gw_put_length(struct gw_writer *w, size_t mark, unsigned octets, enum gw_order order,
                   uint32_t more, uint32_t max);
void gw_put_check(struct gw_writer *w, size_t mark, enum gw_check check);
int64_t gw_difference(struct gw_writer *w, int64_t one, int64_t other);
struct gw_text gw_decimal(struct gw_writer *w, int64_t value);
struct gw_text gw_uint(struct gw_writer *w, int64_t value);
static inline int64_t gw_size(struct gw_text text) { return (int64_t)text.length; }
void gw_put_lines(struct gw_writer *w, const struct gw_slot *slot, struct gw_text terminator,
                  struct gw_text stuffing);
void gw_put_chunked(struct gw_writer *w, const struct gw_slot *slot);
void gw_put_counted(struct gw_writer *w, const struct gw_slot *slot, const struct gw_slot *length);
void gw_put_until_close(struct gw_writer *w, const struct gw_slot *slot);
void gw_put_nothing(struct gw_writer *w, const struct gw_slot *slot);

/* A check over octets, and its value as it stands on the wire. */
uint32_t gw_check_begin(enum gw_check check);
uint32_t gw_check_add(enum gw_check check, uint32_t sum, struct gw_text text);
unsigned gw_check_octets(enum gw_check check, uint32_t sum, uint8_t octets[4]);

#include "gw_read.h"
#include "gw_whole.h"

#endif
