/*
 * json_scan: tells byte by byte whether a text is still the beginning of one JSON object or array (grammar of
 * RFC 8259, nothing else is checked), and when it is complete. Plain data, no memory of its own; the bytes are
 * taken for valid UTF-8. White space before the value is not skipped.
 */
#ifndef HEARTH_TEXT_JSON_SCAN_H
#define HEARTH_TEXT_JSON_SCAN_H

#include <stdint.h>

#define JSON_SCAN_MAX_DEPTH 256u

typedef enum json_scan_result { JSON_SCAN_MORE, JSON_SCAN_DONE, JSON_SCAN_BAD } json_scan_result;

typedef enum json_scan_state {
    JSON_SCAN_START, /* '{' or '[' */
    JSON_SCAN_VALUE, /* a value must come */
    JSON_SCAN_VALUE_OR_END,
    JSON_SCAN_KEY, /* a key must come */
    JSON_SCAN_KEY_OR_END,
    JSON_SCAN_COLON,
    JSON_SCAN_AFTER, /* behind a value: ',' or a bracket */
    JSON_SCAN_STRING,
    JSON_SCAN_ESCAPE,
    JSON_SCAN_HEX,
    JSON_SCAN_NUMBER_SIGN, /* behind '-' */
    JSON_SCAN_NUMBER_ZERO, /* behind a leading 0 */
    JSON_SCAN_NUMBER_INT,
    JSON_SCAN_NUMBER_DOT,
    JSON_SCAN_NUMBER_FRACTION,
    JSON_SCAN_NUMBER_E,
    JSON_SCAN_NUMBER_E_SIGN,
    JSON_SCAN_NUMBER_EXPONENT,
    JSON_SCAN_WORD, /* in true, false, null */
    JSON_SCAN_END
} json_scan_state;

typedef struct json_scan {
    uint8_t state; /* json_scan_state */
    uint8_t in_key;
    uint8_t n_hex;    /* digits of \u that are still to come */
    uint16_t depth;   /* open brackets */
    const char *word; /* what must still come of true, false, null; static storage */
    uint32_t is_object[JSON_SCAN_MAX_DEPTH / 32]; /* bit per open bracket */
} json_scan;

void json_scan_init(json_scan *s);
/* After DONE or BAD nothing may be pushed. */
json_scan_result json_scan_push(json_scan *s, unsigned char c);

#endif
