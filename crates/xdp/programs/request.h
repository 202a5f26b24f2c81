/* Requests that reports become: memory for one, and its pieces as texts, JSON and CBOR. */

/* Areas of texts: of values, and of the identity; texts end at TEXT_END. */
#define AREAS 2
#define AREA 128
#define VALUES 0
#define IDENTITY AREA
#define TEXT_END 96
#define CHECKED_AT_ONCE 512
#define SUMMED_MAX (3 * CHECKED_AT_ONCE)
/* Delta 4 and an extended length (RFC 7252 §3.1). */
#define OPTION_HEAD 0x4d
#define OPTION_EXTENDED 13
#define HOPS 64
/* Octets of a message before its options: header and token (RFC 7252 §3). */
#define COAP_HEADER 8
/* Headroom that is used: of 256 octets the kernel keeps 40 for itself, a driver that sends 12. */
#define HEAD_ROOM 200

/* Two numbers as one text: sign, first number, zeros, sign between, second number. */
struct numbers {
    u32 first;
    u32 second;
    u32 width; /* digits of the second number at least; 0 if there is none */
    u32 zeros;
    u32 between;
    u32 is_negative;
};

/* Where a request goes. */
struct way {
    struct found found;
    u32 hop;
};

/* Memory of a processor, as a program's stack is too small. What decides how far a loop goes or where
 * something is written is kept here: the kernel's checker would follow each of its values. */
#define DATAGRAM_ROOM 2048
#define MESSAGE_ROOM 2048
#define HEADER_ROOM 64
struct scratch {
    u8 datagram[DATAGRAM_ROOM + CHECKED_AT_ONCE]; /* from the UDP header on */
    u8 text[AREAS * AREA + 64]; /* texts, written from their ends to their beginnings */
    u32 at;              /* where the text begins that is being written */
    u32 length;          /* of that */
    u32 identity_at;
    u32 identity_length;
    u32 out;             /* octets of the message that are written */
    u32 version;         /* of the settings by which it is written */
    u64 number;          /* the report's */
    u64 received;
    struct numbers numbers; /* that are written as a text */
    u64 time;        /* the device's own time of the report */
    u64 digest;      /* of what it measured */
    u32 has_time;
    u32 is_timed;    /* whether that names it */
    u32 report;      /* octets of the report */
    u32 headers;     /* octets of the request's headers */
    u32 octets;      /* of the datagram, from the IP header on */
    u32 port;        /* from which the request goes */
    struct way way;
    u8 header[HEADER_ROOM]; /* that ends where the message begins */
    u8 message[MESSAGE_ROOM + CHECKED_AT_ONCE];
};

/* What is known of a datagram. */
struct datagram {
    u32 source[4];
    u16 port;
    u16 family;
    u32 at;     /* of its UDP header in the frame */
    u32 length; /* from there on */
    u32 sum;    /* of its pseudo header, not folded */
    u32 octets; /* from the IP header on, for counters */
};

INLINE void count_report(enum report_reason reason, u32 octets)
{
    count(&report_counts, (constants.link & (LINKS_MAX - 1)) * REPORT_ROOM + reason, octets);
}

INLINE u16 fold(u64 sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* Writes a letter before the text. */
INLINE void prepend(volatile struct scratch *scratch, u32 area, u8 letter)
{
    u32 at = scratch->at - 1;
    scratch->text[area + (at & (AREA - 1))] = letter;
    scratch->at = at;
}

/* Writes the digits of a number below 10^9 before the text, at least `least` of them. No branch depends on
 * what is written, here and below: the kernel's checker would follow both of its sides. */
INLINE u32 put_digits(volatile struct scratch *scratch, u32 area, u32 at, u32 number, u32 least)
{
    for (u32 digit = 0; digit < 9; digit++) {
        u32 tenth = number * 0xcccccccdull >> 35;
        /* 1 if there is such a digit. */
        u32 has = (number | (0 - number) | (digit - least)) >> 31;
        OPAQUE(has);
        scratch->text[area + ((at - 1) & (AREA - 1))] = '0' + (number - tenth * 10);
        at -= has;
        number = tenth;
    }
    return at;
}

/* Writes a number in decimal before the text. */
INLINE void prepend_number(volatile struct scratch *scratch, u32 area, u64 number)
{
    u32 at = scratch->at;
    for (u32 i = 0; i < 3; i++) {
        u64 rest = number / 1000000000;
        u32 least = 1 + 8 * any(rest);
        at = put_digits(scratch, area, at, number - rest * 1000000000, least);
        if (rest == 0)
            break;
        number = rest;
    }
    scratch->at = at;
}

/* Writes a letter into a text of a known length, and two digits of a number below 100. */
INLINE u32 put(volatile struct scratch *scratch, u32 at, u8 letter)
{
    scratch->text[VALUES + at] = letter;
    return at + 1;
}
INLINE u32 put_two(volatile struct scratch *scratch, u32 at, u32 number)
{
    u32 tens = number * 205 >> 11;
    return put(scratch, put(scratch, at, '0' + tens), '0' + (number - tens * 10));
}

INLINE u32 octet(volatile struct scratch *scratch, u32 at)
{
    return scratch->datagram[sizeof(struct udp) + (at & (DATAGRAM_ROOM - 1))];
}

struct decimal {
    s32 mantissa;
    s32 exponent;
    int is_number; /* and with an exponent that is written here */
};

/* ISO/IEEE 11073-20601, annex F.7; the special values lie side by side. */
INLINE struct decimal sfloat(volatile struct scratch *scratch, u32 at)
{
    u32 raw = octet(scratch, at) << 8 | octet(scratch, at + 1);
    struct decimal decimal = {
        .mantissa = (s32)(raw << 20) >> 20,
        .exponent = (s32)(raw << 16) >> 28,
        .is_number = raw < 0x07fe || raw > 0x0802,
    };
    return decimal;
}

#define EXPONENT_MAX 8
INLINE struct decimal floating(volatile struct scratch *scratch, u32 at)
{
    u32 raw = octet(scratch, at) << 24 | octet(scratch, at + 1) << 16 |
              octet(scratch, at + 2) << 8 | octet(scratch, at + 3);
    struct decimal decimal = {.mantissa = (s32)(raw << 8) >> 8, .exponent = (s32)raw >> 24};
    decimal.is_number = (raw < 0x007ffffe || raw > 0x00800002) &&
                        decimal.exponent >= -EXPONENT_MAX && decimal.exponent <= EXPONENT_MAX;
    return decimal;
}

INLINE void take_decimal(volatile struct scratch *scratch, struct decimal decimal)
{
    u32 sign = decimal.mantissa >> 31, down = decimal.exponent >> 31, unit = 1;
    OPAQUE(sign);
    OPAQUE(down);
    u32 digits = (decimal.mantissa ^ sign) - sign, places = -decimal.exponent & down;
    for (u32 i = 0; i < EXPONENT_MAX; i++) {
        u32 is_place = (i - places) >> 31;
        OPAQUE(is_place);
        unit *= 1 + 9 * is_place;
    }
    scratch->numbers.first = digits / unit;
    scratch->numbers.second = digits % unit;
    scratch->numbers.width = places;
    scratch->numbers.zeros = decimal.exponent & ~down & (0 - (u32)any(digits));
    scratch->numbers.between = '.';
    scratch->numbers.is_negative = (u32)decimal.mantissa >> 31;
}

/* Writes a letter before what begins at `at`, if `is_there` is 1. */
INLINE u32 put_before(volatile struct scratch *scratch, u32 at, u8 letter, u32 is_there)
{
    scratch->text[VALUES + ((at - 1) & (AREA - 1))] = letter;
    return at - is_there;
}

INLINE void write_numbers(volatile struct scratch *scratch)
{
    u32 width = scratch->numbers.width, zeros = scratch->numbers.zeros;
    u32 at = put_digits(scratch, VALUES, TEXT_END, scratch->numbers.second, width);
    at = put_before(scratch, at, scratch->numbers.between, any(width));
    for (u32 i = 0; i < EXPONENT_MAX; i++)
        at = put_before(scratch, at, '0', (i - zeros) >> 31);
    at = put_digits(scratch, VALUES, at, scratch->numbers.first, 1);
    scratch->at = put_before(scratch, at, '-', scratch->numbers.is_negative);
}

/* Two decimal digits of a calendar time, 100 and more if they are none. */
INLINE u32 bcd(u32 octet)
{
    u32 high = octet >> 4, low = octet & 15, is_none = ((9 - high) | (9 - low)) >> 31;
    OPAQUE(is_none);
    return high * 10 + low + 200 * is_none;
}

/* Whether there is a calendar time that is a date. */
INLINE int is_date(volatile struct scratch *scratch, u32 at)
{
    u32 wrong = 0, month = bcd(octet(scratch, at + 2)), day = bcd(octet(scratch, at + 3));
    for (u32 i = 0; i < 8; i++)
        wrong |= bcd(octet(scratch, at + i)) > 99;
    return !wrong && month >= 1 && month <= 12 && day >= 1 && day <= 31 &&
           bcd(octet(scratch, at + 4)) < 24 && bcd(octet(scratch, at + 5)) < 60 &&
           bcd(octet(scratch, at + 6)) <= 60;
}

/* Hundredths of a second since 1970 of a date; whether it is not before (`days_since_1970`). */
INLINE int since_1970(volatile struct scratch *scratch, u32 at, u64 *time)
{
    u32 part[8];
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        part[i] = bcd(octet(scratch, at + i));
    u32 year = part[0] * 100 + part[1], month = part[2];
    if (month <= 2) {
        if (year == 0)
            return 0;
        year -= 1;
    }
    u32 day = (153 * ((month + 9) % 12) + 2) / 5 + part[3] - 1;
    u32 days = year * 365 + year / 4 - year / 100 + year / 400 + day;
    if (days < 719468)
        return 0;
    u64 seconds = (u64)(days - 719468) * 86400 + part[4] * 3600 + part[5] * 60 + part[6];
    *time = seconds * 100 + part[7];
    return 1;
}

/* The time of arrival as oneM2M writes it, 20261121T130000,000001 (`Timestamp`). */
INLINE void write_received(volatile struct scratch *scratch)
{
    u64 seconds = scratch->received / 1000000;
    u32 micros = scratch->received - seconds * 1000000;
    /* The calendar of eras of 400 years (`date_after`). */
    u32 days = seconds / 86400, second = seconds - (u64)days * 86400;
    days += 719468;
    u32 era = days / 146097, of_era = days % 146097;
    u32 year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    u32 of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    u32 march = (5 * of_year + 2) / 153;
    u32 day = of_year - (153 * march + 2) / 5 + 1, month = march < 10 ? march + 3 : march - 9;
    u32 year = (year_of_era + era * 400 + (month <= 2)) % 10000;
    u32 at = TEXT_END - 22;
    scratch->at = at;
    at = put_two(scratch, at, year / 100);
    at = put_two(scratch, at, year % 100);
    at = put_two(scratch, at, month);
    at = put_two(scratch, at, day);
    at = put(scratch, at, 'T');
    at = put_two(scratch, at, second / 3600);
    at = put_two(scratch, at, second / 60 % 60);
    at = put_two(scratch, at, second % 60);
    at = put(scratch, at, ',');
    at = put_two(scratch, at, micros / 10000);
    at = put_two(scratch, at, micros / 100 % 100);
    put_two(scratch, at, micros % 100);
}

/* 2009-06-12T12:10:00.00, whose digits the octets are already. */
INLINE void write_time(volatile struct scratch *scratch, u32 place)
{
    const char between[8] = {0, '-', '-', 'T', ':', ':', '.', 0};
    u32 at = TEXT_END - 22;
    scratch->at = at;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 digits = octet(scratch, place + i);
        at = put(scratch, at, '0' + (digits >> 4));
        at = put(scratch, at, '0' + (digits & 15));
        if (between[i])
            at = put(scratch, at, between[i]);
    }
}

/* A hexadecimal digit, without a branch. */
INLINE u8 hexadecimal(u32 digit)
{
    return '0' + digit + ((9 - digit) >> 31) * ('a' - '0' - 10);
}

/* Two or four octets of flags. */
INLINE void write_bits(volatile struct scratch *scratch, u32 place, u32 octets)
{
    scratch->at = TEXT_END - (octets == 2 ? 4 : 8);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 both = octet(scratch, place + (octets == 2 ? 0u : 2u) + i - 2);
        u32 at = TEXT_END - 8 + 2 * i;
        put(scratch, put(scratch, at, hexadecimal(both >> 4)), hexadecimal(both & 15));
    }
}

/* Appends octets to the message, at most 8 times `steps`: some more are copied, which the next ones
 * replace. */
INLINE void emit(volatile struct scratch *scratch, const volatile void *from, u32 length, u32 steps)
{
    const volatile u64 *words = from;
    u32 out = scratch->out, left = (length + 7) / 8;
    scratch->out = out + length;
    for (u32 i = 0; i < steps; i++) {
        if (i >= left)
            break;
        *(volatile u64 *)&scratch->message[(out + 8 * i) & (MESSAGE_ROOM - 1)] = words[i];
    }
}

/* Writes the text that ends at TEXT_END, with the head of a CBOR text or the quotes of JSON if it is
 * one by itself. */
INLINE void emit_text(volatile struct scratch *scratch, u32 form, u32 is_text)
{
    u32 length = TEXT_END - scratch->at, behind = 0;
    if (is_text && form == PLAN_CBOR) {
        if (length < 24) {
            prepend(scratch, VALUES, 0x60 | length);
        } else {
            prepend(scratch, VALUES, length);
            prepend(scratch, VALUES, 0x78);
        }
    } else if (is_text) {
        prepend(scratch, VALUES, '"');
        scratch->text[VALUES + TEXT_END] = '"';
        behind = 1;
    }
    scratch->length = TEXT_END - scratch->at + behind;
    u32 from = scratch->at & (AREA - 1);
    length = scratch->length & 63;
    if (length)
        emit(scratch, &scratch->text[VALUES + from], length, 8);
}

/* Writes the head of a data item of major type 0, a number, in as few octets as it needs (RFC 8949 §3). */
INLINE void write_cbor_number(volatile struct scratch *scratch, u64 number)
{
    u64 one = any(number >> 8) | (23 - (number & 0xff)) >> 63, two = any(number >> 8);
    u64 four = any(number >> 16), eight = any(number >> 32);
    for (u32 i = 0; i < 8; i++)
        scratch->text[VALUES + TEXT_END - 1 - i] = number >> (8 * i);
    scratch->at = TEXT_END - (one + two + 2 * four + 4 * eight);
    prepend(scratch, VALUES, choose(mask(one), 23 + one + two + four + eight, number));
}

/* Writes one piece of the request; whether there is one. */
INLINE int write_piece(volatile struct scratch *scratch, struct report_device *device, u32 number)
{
    u32 piece = ((volatile u32 *)device->plan)[number];
    u32 kind = PIECE_KIND(piece), at = PIECE_AT(piece), length = PIECE_LENGTH(piece);
    u32 form = ((volatile struct report_device *)device)->form & PLAN_CBOR;
    if (kind == PIECE_END)
        return 0;
    if (kind == PIECE_TEXT) {
        length &= PIECE_OCTETS_MAX;
        if (length && at < PLAN_OCTETS)
            emit(scratch, &device->plan[at], length, (PIECE_OCTETS_MAX + 7) / 8);
        return 1;
    }
    if (kind == PIECE_IDENTITY) {
        at = scratch->identity_at & (AREA - 1);
        length = scratch->identity_length & 63;
        if (length)
            emit(scratch, &scratch->text[IDENTITY + at], length, 8);
        return 1;
    }
    if (kind == PIECE_HEAD || kind == PIECE_OPTION) {
        length += scratch->identity_length;
        scratch->at = TEXT_END;
        if (kind == PIECE_OPTION) {
            prepend(scratch, VALUES, length - OPTION_EXTENDED);
            prepend(scratch, VALUES, OPTION_HEAD);
        } else if (length < 24) {
            prepend(scratch, VALUES, 0x60 | length);
        } else {
            prepend(scratch, VALUES, length);
            prepend(scratch, VALUES, 0x78);
        }
    } else if (kind == PIECE_RECEIVED) {
        write_received(scratch);
    } else if (kind == PIECE_TIME) {
        write_time(scratch, at);
    } else if (kind == PIECE_BITS) {
        write_bits(scratch, at, length);
    } else if (kind == PIECE_REPORT && form == PLAN_CBOR) {
        write_cbor_number(scratch, scratch->number);
    } else if (kind == PIECE_REPORT) {
        scratch->at = TEXT_END;
        prepend_number(scratch, VALUES, scratch->number);
    } else {
        if (kind == PIECE_SFLOAT) {
            take_decimal(scratch, sfloat(scratch, at));
        } else if (kind == PIECE_FLOAT) {
            take_decimal(scratch, floating(scratch, at));
        } else {
            scratch->numbers.first = length;
            scratch->numbers.second = octet(scratch, at) << 8 | octet(scratch, at + 1);
            scratch->numbers.width = 1;
            scratch->numbers.zeros = 0;
            scratch->numbers.between = ':';
            scratch->numbers.is_negative = 0;
        }
        write_numbers(scratch);
    }
    form = ((volatile struct report_device *)device)->form & PLAN_CBOR;
    emit_text(scratch, form, PIECE_IS_TEXT(piece));
    return 1;
}
