/*
 * strftime of a moment in UTC, in the C locale, without a time zone (as Python formats a naive datetime). Own
 * calendar arithmetic: the result depends on no setting of the process.
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_print.h"

typedef struct moment {
    int64_t unix_s, year;
    int month, day, hour, minute, second; /* month and day from 1 */
    int weekday;                          /* 0: Sunday */
    int yearday;                          /* from 0 */
} moment;

static bool is_leap(int64_t y)
{
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

/* Days since 1970 into a date (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms"). */
static moment moment_of(int64_t t)
{
    int64_t days = t / 86400, rest = t % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    moment m = {
        .unix_s = t, .hour = (int)(rest / 3600), .minute = (int)(rest / 60 % 60), .second = (int)(rest % 60)};
    m.weekday = (int)(((days + 4) % 7 + 7) % 7);
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    m.day = (int)(doy - (153 * mp + 2) / 5 + 1);
    m.month = (int)(mp < 10 ? mp + 3 : mp - 9);
    m.year = yoe + era * 400 + (m.month <= 2);
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    m.yearday = before[m.month - 1] + m.day - 1 + (m.month > 2 && is_leap(m.year));
    return m;
}

/* ISO 8601: week 1 has the year's first Thursday. */
static int iso_week(const moment *m, int64_t *year)
{
    int wd = (m->weekday + 6) % 7; /* 0: Monday */
    int week = (m->yearday - wd + 10) / 7;
    *year = m->year;
    if (week < 1) {
        (*year)--;
        int last = m->yearday + 365 + is_leap(*year);
        return (last - wd + 10) / 7;
    }
    if (week == 53 && m->yearday - wd + 3 >= 365 + is_leap(m->year)) {
        (*year)++;
        return 1;
    }
    return week;
}

static const char *const weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

/* A number of `width` digits, filled as `flag` says: '-' not at all, '_' with blanks, else with `fill`. */
static void number(char *out, size_t cap, int64_t v, int width, char fill, char flag)
{
    fill = flag == '_' ? ' ' : flag == '0' ? '0' : fill;
    width = flag == '-' ? 0 : width;
    snprintf(out, cap, fill == '0' ? "%0*lld" : "%*lld", width, (long long)v);
}

/* What one letter stands for; false if nothing. */
static bool directive(char c, char flag, const moment *m, char *out, size_t cap)
{
    int64_t iso_year;
    int week = iso_week(m, &iso_year), hour12 = m->hour % 12 ? m->hour % 12 : 12;
    const struct {
        char letter;
        int64_t value;
        int width;
        char fill;
    } numbers[] = {
        {'Y', m->year, 0, '0'},
        {'C', m->year / 100, 2, '0'},
        {'y', m->year % 100, 2, '0'},
        {'m', m->month, 2, '0'},
        {'d', m->day, 2, '0'},
        {'e', m->day, 2, ' '},
        {'H', m->hour, 2, '0'},
        {'k', m->hour, 2, ' '},
        {'I', hour12, 2, '0'},
        {'l', hour12, 2, ' '},
        {'M', m->minute, 2, '0'},
        {'S', m->second, 2, '0'},
        {'f', 0, 6, '0'},
        {'j', m->yearday + 1, 3, '0'},
        {'u', m->weekday ? m->weekday : 7, 1, '0'},
        {'w', m->weekday, 1, '0'},
        {'U', (m->yearday + 7 - m->weekday) / 7, 2, '0'},
        {'W', (m->yearday + 7 - (m->weekday + 6) % 7) / 7, 2, '0'},
        {'V', week, 2, '0'},
        {'G', iso_year, 0, '0'},
        {'g', iso_year % 100, 2, '0'},
        {'s', m->unix_s, 0, '0'},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].letter == c) {
            number(out, cap, numbers[i].value, numbers[i].width, numbers[i].fill, flag);
            return true;
        }
    }
    const struct {
        char letter;
        const char *text;
        int max;
    } words[] = {
        {'A', weekdays[m->weekday], 20},
        {'a', weekdays[m->weekday], 3},
        {'B', months[m->month - 1], 20},
        {'b', months[m->month - 1], 3},
        {'h', months[m->month - 1], 3},
        {'p', m->hour < 12 ? "AM" : "PM", 2},
        {'P', m->hour < 12 ? "am" : "pm", 2},
        {'n', "\n", 1},
        {'t', "\t", 1},
        {'%', "%", 1},
        {'Z', "", 0},
        {'z', "", 0},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i].letter == c) {
            snprintf(out, cap, "%.*s", words[i].max, words[i].text);
            return true;
        }
    }
    return false;
}

static const char *composite(char c)
{
    switch (c) {
    case 'D':
    case 'x':
        return "%m/%d/%y";
    case 'F':
        return "%Y-%m-%d";
    case 'T':
    case 'X':
        return "%H:%M:%S";
    case 'R':
        return "%H:%M";
    case 'r':
        return "%I:%M:%S %p";
    case 'c':
        return "%a %b %e %H:%M:%S %Y";
    default:
        return NULL;
    }
}

/* marks: one per byte of fmt, or NULL for all 0. */
static void format(jrt *rt, jbuild *b, const char *fmt, size_t n, const uint8_t *marks, const moment *m)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t mark = marks ? marks[i] : 0;
        size_t at = i;
        char flag = 0, text[64];
        if (fmt[i] != '%' || i + 1 == n) {
            jbuild_add(rt, b, fmt + i, 1, mark);
            continue;
        }
        i++;
        if (i + 1 < n && strchr("-_0^#", fmt[i]) && fmt[i]) {
            flag = fmt[i++];
        }
        const char *more = composite(fmt[i]);
        if (more) {
            format(rt, b, more, strlen(more), NULL, m);
        } else if (directive(fmt[i], flag, m, text, sizeof text)) {
            for (char *p = text; flag == '^' && *p; p++) {
                *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
            }
            jbuild_add(rt, b, text, strlen(text), mark);
        } else {
            for (; at <= i; at++) { /* unknown: as it stands */
                jbuild_add(rt, b, fmt + at, 1, mark);
            }
        }
    }
}

jstr *jformat_time(jrt *rt, const jstr *fmt, int64_t time_s)
{
    moment m = moment_of(time_s);
    jbuild b;
    jbuild_begin(rt, &b);
    format(rt, &b, fmt->s, fmt->len, fmt->m, &m);
    return jbuild_end(rt, &b);
}
