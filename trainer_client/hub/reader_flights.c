/* Flights: CSV "date,delay,distance,origin,destination" with date MMDDHHMM and delay in minutes.
 * The label is delay > 15; the slots are origin, destination, route, hour, day and eight of their crosses.
 */
#include <stdio.h>
#include <string.h>
#include "trainer_client/hub/field.h"
#include "trainer_client/hub/sample.h"

#define LATE_MINUTES      15
#define AIRPORT_BYTES_MAX 4u
#define DATE_BYTES        8u
#define FIELDS            5u

enum part { ORIGIN, DESTINATION, HOUR, DAY, PARTS };

/* Which parts make up a slot's value, as a set of bits. */
static const uint8_t slot_parts[] = {
    1u << ORIGIN,
    1u << DESTINATION,
    1u << ORIGIN | 1u << DESTINATION, /* the route */
    1u << HOUR,
    1u << DAY,
    1u << ORIGIN | 1u << HOUR,
    1u << DESTINATION | 1u << HOUR,
    1u << ORIGIN | 1u << DESTINATION | 1u << HOUR,
    1u << ORIGIN | 1u << DAY,
    1u << DESTINATION | 1u << DAY,
    1u << HOUR | 1u << DAY,
    1u << ORIGIN | 1u << HOUR | 1u << DAY,
    1u << DESTINATION | 1u << HOUR | 1u << DAY,
};
#define FLIGHTS_SLOTS ((uint32_t)(sizeof(slot_parts) / sizeof(slot_parts[0])))

static uint64_t slot_key(uint32_t slot, const struct hub_field parts[PARTS])
{
    char value[PARTS * (AIRPORT_BYTES_MAX + 1)];
    size_t bytes = 0;
    for (uint32_t part = 0; part < PARTS; part++) {
        if ((slot_parts[slot] & 1u << part) != 0) {
            memcpy(value + bytes, parts[part].text, parts[part].bytes);
            bytes += parts[part].bytes;
            value[bytes++] = '|';
        }
    }
    return hub_key(slot, value, bytes);
}

static bool is_airport(struct hub_field field)
{
    for (size_t i = 0; i < field.bytes; i++) {
        char c = field.text[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')))
            return false;
    }
    return field.bytes > 0 && field.bytes <= AIRPORT_BYTES_MAX;
}

static int two_digits(const char *text)
{
    return (text[0] - '0') * 10 + (text[1] - '0');
}

static bool is_date(struct hub_field field)
{
    if (field.bytes != DATE_BYTES)
        return false;
    for (size_t i = 0; i < DATE_BYTES; i++)
        if (field.text[i] < '0' || field.text[i] > '9')
            return false;
    int month = two_digits(field.text), day = two_digits(field.text + 2);
    /* Hour 24 stands in the data for midnight at the end of a day. */
    return month >= 1 && month <= 12 && day >= 1 && day <= 31 && two_digits(field.text + 4) <= 24 &&
           two_digits(field.text + 6) <= 59;
}

static const char *parse_fields(const struct hub_field fields[FIELDS], struct hub_sample *sample)
{
    int64_t delay_minutes, distance_miles;
    if (!is_date(fields[0]))
        return "the date is not MMDDHHMM";
    if (!hub_field_integer(fields[1], &delay_minutes))
        return "the delay is not an integer";
    if (!hub_field_integer(fields[2], &distance_miles) || distance_miles < 0)
        return "the distance is not an integer from 0 on";
    if (!is_airport(fields[3]) || !is_airport(fields[4]))
        return "origin or destination is not an airport's code";
    const struct hub_field parts[PARTS] = {
        [ORIGIN] = fields[3],
        [DESTINATION] = fields[4],
        [HOUR] = {fields[0].text + 4, 2},
        [DAY] = {fields[0].text, 4},
    };
    for (uint32_t slot = 0; slot < FLIGHTS_SLOTS; slot++) {
        sample->keys[slot] = slot_key(slot, parts);
        sample->bag_end[slot] = slot + 1;
    }
    sample->key_count = FLIGHTS_SLOTS;
    sample->label = delay_minutes > LATE_MINUTES ? 1.0f : 0.0f;
    return NULL;
}

static enum hub_parse parse(const char *line, size_t bytes, uint64_t line_number, struct hub_sample *sample,
                            char *reason)
{
    static const char header[] = "date,delay,distance,origin,destination";
    struct hub_field fields[FIELDS], rest = {line, bytes};
    uint32_t count = 0;
    if (bytes == 0 || (line_number == 1 && bytes == sizeof(header) - 1 && memcmp(line, header, bytes) == 0))
        return HUB_NO_SAMPLE;
    while (count < FIELDS && hub_field_next(&rest, ',', &fields[count]))
        count++;
    const char *why = count < FIELDS || rest.text != NULL ? "not 5 fields separated by commas"
                                                          : parse_fields(fields, sample);
    if (why != NULL) {
        snprintf(reason, HUB_REASON_BYTES, "%s", why);
        return HUB_BROKEN;
    }
    return HUB_PARSED;
}

const struct hub_format hub_format_flights = {
    .name = "flights", .slots = FLIGHTS_SLOTS, .dense = 0, .parse = parse};
