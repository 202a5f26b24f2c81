/*
 * Reads cases from standard input, a line each, and tells what the generated code makes of them:
 *
 *   read MESSAGE HEX CUT,CUT,...        octets in pieces
 *   write MESSAGE SLOT=VALUE ... / HEX  a view, and the pieces of its stream
 *
 * Octets are hexadecimal; a value is i5, xHEX, s (a stream that passes) or l with rows between
 * ';' and cells between ','.
 */
#include "messages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 20 };

static const struct gw_message *message(const char *name)
{
    for (unsigned index = 0; index < gw_messages_count; index++)
        if (!strcmp(gw_messages[index].name, name))
            return &gw_messages[index];
    fprintf(stderr, "no message %s\n", name);
    exit(2);
}

/* Octets from hexadecimal digits up to something else; in a block of their own size. */
static struct gw_text octets(const char *hex, const char **behind)
{
    size_t length = strspn(hex, "0123456789abcdef") / 2;
    uint8_t *block = malloc(length ? length : 1);
    for (size_t at = 0; at < length; at++) {
        unsigned octet;
        sscanf(hex + 2 * at, "%2x", &octet);
        block[at] = (uint8_t)octet;
    }
    *behind = hex + 2 * length;
    return (struct gw_text){block, length};
}

static void show(struct gw_text text)
{
    for (size_t at = 0; at < text.length; at++)
        printf("%02x", text.at[at]);
}

static void show_cell(const struct gw_bounds *bounds, const struct gw_cell *cell)
{
    if (bounds->kind == GW_INT) {
        printf("i%" PRId64, cell->number);
        return;
    }
    putchar('x');
    show((struct gw_text){cell->at, cell->length});
}

static void show_slot(const struct gw_slot *slot)
{
    const struct gw_field *field = slot->field;
    switch (field->bounds.kind) {
    case GW_INT:
        printf("i%" PRId64, slot->number);
        break;
    case GW_OCTETS:
        putchar('x');
        show(gw_text_of(slot));
        break;
    case GW_STREAM:
        putchar('s');
        break;
    case GW_MESSAGE:
        break;
    case GW_LIST:
        putchar('l');
        for (uint32_t at = 0; at < slot->length * field->columns; at++) {
            if (at)
                putchar(at % field->columns ? ',' : ';');
            show_cell(&field->column[at % field->columns], &slot->cells[at]);
        }
        break;
    }
}

static void show_view(const struct gw_view *view)
{
    for (unsigned index = 0; index < view->message->count; index++) {
        const struct gw_slot *slot = gw_view_look(view, index);
        /* What only a reader uses is its own affair. */
        if (!slot->set || slot->field->scratch)
            continue;
        printf(" %u=", index);
        show_slot(slot);
    }
}

static void show_settled(size_t used, const struct gw_view *view)
{
    printf(" %zu:", used);
    for (unsigned index = 0; index < view->message->count; index++) {
        const struct gw_slot *slot = gw_view_look(view, index);
        putchar(slot->field->scratch ? '-' : slot->settled ? '1' : '0');
    }
}

/* Writes the view and shows what came of it. */
static void show_written(const struct gw_view *view, const struct gw_text *pieces, size_t count)
{
    struct gw_octets out = {0};
    struct gw_writer writer;
    gw_write(&writer, view, &out);
    enum gw_reason reason = writer.reason;
    for (size_t at = 0; reason == GW_SOUND && writer.streaming && at < count; at++)
        reason = gw_stream_write(&writer.stream, pieces[at], &out);
    if (reason == GW_SOUND && writer.streaming)
        reason = gw_stream_finish(&writer.stream, &out);
    if (reason == GW_SOUND)
        show(gw_octets_text(&out));
    else
        printf("!%s", gw_reason_name(reason));
    gw_octets_free(&out);
}

/* Each piece in a block of its own, so that a sanitizer sees any octet too far. */
static enum gw_turn read_piece(struct gw_reader *reader, struct gw_view *view, struct gw_text text,
                               bool last, struct gw_octets *stream, size_t *used)
{
    uint8_t *block = malloc(text.length ? text.length : 1);
    if (text.length)
        memcpy(block, text.at, text.length);
    struct gw_text copy = {block, text.length};
    enum gw_turn turn = gw_read(reader, view, copy, last, stream, used);
    free(block);
    return turn;
}

static void run_read(const char *name, const char *rest)
{
    const char *cuts;
    struct gw_text wire = octets(rest, &cuts);
    struct gw_view *view = gw_view_new(message(name));
    struct gw_reader reader = {0};
    struct gw_octets stream = {0};
    enum gw_turn turn = GW_WAIT;
    size_t at = 0, end, used;
    do {
        char *behind = NULL;
        cuts += strspn(cuts, " ,");
        end = *cuts >= '0' && *cuts <= '9' ? strtoul(cuts, &behind, 10) : wire.length;
        cuts = behind ? behind : cuts;
        struct gw_text piece = {wire.at + at, end - at};
        turn = read_piece(&reader, view, piece, end == wire.length && !behind, &stream, &used);
        at += used;
        if (turn != GW_FAIL)
            show_settled(used, view);
        if (end == wire.length && !behind)
            break;
    } while (turn == GW_WAIT);
    if (turn == GW_FAIL)
        printf(" !%s %" PRIu64, gw_reason_name(reader.reason), reader.at);
    show_view(view);
    printf(" stream=");
    show(gw_octets_text(&stream));
    if (turn == GW_DONE) {
        for (unsigned index = 0; index < view->message->count; index++) {
            struct gw_slot *slot = gw_view_slot(view, index);
            if (slot->passing)
                gw_set_octets(view, slot, gw_octets_text(&stream));
        }
        printf(" -> ");
        show_written(view, NULL, 0);
    }
    gw_octets_free(&stream);
    gw_view_free(view);
    free((void *)(uintptr_t)wire.at);
}

static const char *fill_cell(const char *value, struct gw_cell *cell)
{
    if (*value == 'i') {
        char *behind;
        *cell = (struct gw_cell){.number = strtoll(value + 1, &behind, 10)};
        return behind;
    }
    const char *behind;
    struct gw_text text = octets(value + 1, &behind);
    *cell = gw_cell_of(text);
    return behind;
}

static void fill(struct gw_view *view, struct gw_slot *slot, const char *value)
{
    const char *behind = value + 1;
    if (*value == 'i') {
        gw_set_number(slot, strtoll(value + 1, NULL, 10));
    } else if (*value == 's') {
        gw_set_passing(slot);
    } else if (*value == 'x') {
        struct gw_text text = octets(value + 1, &behind);
        gw_set_octets(view, slot, text);
        free((void *)(uintptr_t)text.at);
    } else {
        slot->set = true;
        while (*behind == 'i' || *behind == 'x') {
            struct gw_cell row[GW_COLUMNS_MAX];
            unsigned columns = 0;
            do {
                behind = fill_cell(behind, &row[columns++]);
            } while (*behind == ',' && behind++);
            gw_add_row(view, slot, row);
            while (columns--)
                free(row[columns].at);
            behind += *behind == ';';
        }
    }
}

static void run_write(const char *name, char *rest)
{
    struct gw_view *view = gw_view_new(message(name));
    struct gw_text pieces[16] = {{NULL, 0}};
    size_t count = 0;
    char *word = strtok(rest, " \n");
    for (; word && *word != '/'; word = strtok(NULL, " \n")) {
        char *value;
        unsigned index = (unsigned)strtoul(word, &value, 10);
        fill(view, gw_view_slot(view, index), value + 1);
    }
    const char *behind;
    while (word && (word = strtok(NULL, " \n")) && count < 16)
        pieces[count++] = octets(word, &behind);
    putchar(' ');
    show_written(view, pieces, count);
    while (count)
        free((void *)(uintptr_t)pieces[--count].at);
    gw_view_free(view);
}

int main(void)
{
    static char line[LINE], name[128];
    int from;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "read %127s %n", name, &from) == 1)
            run_read(name, line + from);
        else if (sscanf(line, "write %127s %n", name, &from) == 1)
            run_write(name, line + from);
        putchar('\n');
    }
    if (gw_pool_lent()) {
        fprintf(stderr, "%zu octets were not given back\n", gw_pool_lent());
        return 1;
    }
    gw_pool_trim();
    return 0;
}
