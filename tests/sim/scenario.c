#include "sim/scenario.h"

#include <stdlib.h>
#include <string.h>

#define X(name, simplest, least) {#name, simplest, least},
static const sim_field config_fields[] = {SIM_CONFIG_FIELDS(X)};
static const sim_field request_fields[] = {SIM_REQUEST_FIELDS(X)};
static const sim_field event_fields[] = {SIM_EVENT_FIELDS(X)};
#undef X

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

const sim_kind sim_config_kind = {"config", config_fields, N_OF(config_fields)};
const sim_kind sim_request_kind = {"request", request_fields, N_OF(request_fields)};
const sim_kind sim_event_kind = {"event", event_fields, N_OF(event_fields)};

void sim_set_simplest(const sim_kind *kind, int64_t *values)
{
    for (size_t i = 0; i < kind->n_fields; i++) {
        values[i] = kind->fields[i].simplest;
    }
}

static void print_line(FILE *to, const sim_kind *kind, const int64_t *values)
{
    fputs(kind->word, to);
    for (size_t i = 0; i < kind->n_fields; i++) {
        if (values[i] != kind->fields[i].simplest) {
            fprintf(to, " %s=%lld", kind->fields[i].name, (long long)values[i]);
        }
    }
    fputc('\n', to);
}

void scenario_print(FILE *to, const scenario *s)
{
    fprintf(to, "# seed %llu; what is not said is the simplest (tests/sim/scenario.h)\n",
            (unsigned long long)s->seed);
    print_line(to, &sim_config_kind, (const int64_t *)&s->config);
    for (size_t i = 0; i < s->n_requests; i++) {
        print_line(to, &sim_request_kind, (const int64_t *)&s->requests[i]);
    }
    for (size_t i = 0; i < s->n_events; i++) {
        print_line(to, &sim_event_kind, (const int64_t *)&s->events[i]);
    }
}

static bool read_field(const sim_kind *kind, char *word, int64_t *values)
{
    char *is = strchr(word, '=');
    for (size_t i = 0; is && i < kind->n_fields; i++) {
        if (strlen(kind->fields[i].name) == (size_t)(is - word) &&
            memcmp(kind->fields[i].name, word, (size_t)(is - word)) == 0) {
            values[i] = strtoll(is + 1, NULL, 10);
            return true;
        }
    }
    fprintf(stderr, "sim: no field of a %s: %s\n", kind->word, word);
    return false;
}

/* Where the values of a line go, or NULL. */
static int64_t *line_values(scenario *s, const char *word, const sim_kind **kind)
{
    if (strcmp(word, "config") == 0) {
        *kind = &sim_config_kind;
        return (int64_t *)&s->config;
    }
    if (strcmp(word, "request") == 0 && s->n_requests < SIM_MAX_REQUESTS) {
        *kind = &sim_request_kind;
        return (int64_t *)&s->requests[s->n_requests++];
    }
    if (strcmp(word, "event") == 0 && s->n_events < SIM_MAX_EVENTS) {
        *kind = &sim_event_kind;
        return (int64_t *)&s->events[s->n_events++];
    }
    fprintf(stderr, "sim: not the beginning of a line, or too many of them: %s\n", word);
    return NULL;
}

bool scenario_read(FILE *from, scenario *out)
{
    char line[4096], *save;
    memset(out, 0, sizeof *out);
    sim_set_simplest(&sim_config_kind, (int64_t *)&out->config);
    while (fgets(line, sizeof line, from)) {
        const sim_kind *kind;
        char *word = strtok_r(line, " \n", &save);
        if (!word || *word == '#') {
            continue;
        }
        int64_t *values = line_values(out, word, &kind);
        if (!values) {
            return false;
        }
        if (kind != &sim_config_kind) {
            sim_set_simplest(kind, values);
        }
        while ((word = strtok_r(NULL, " \n", &save))) {
            if (!read_field(kind, word, values)) {
                return false;
            }
        }
    }
    scenario_mend(out);
    return true;
}

static void at_least(const sim_kind *kind, int64_t *values)
{
    for (size_t i = 0; i < kind->n_fields; i++) {
        values[i] = values[i] < kind->fields[i].least ? kind->fields[i].least : values[i];
    }
}

void scenario_mend(scenario *s)
{
    sim_config *c = &s->config;
    at_least(&sim_config_kind, (int64_t *)c);
    c->n_ctx = c->n_ctx > SIM_MAX_CTX ? SIM_MAX_CTX : c->n_ctx;
    c->logit_rows = c->logit_rows < c->lanes ? c->lanes : c->logit_rows;
    c->max_rows = c->max_rows < c->logit_rows ? c->logit_rows : c->max_rows;
    c->chunk = c->chunk > c->max_rows ? c->max_rows : c->chunk;
    c->stored = c->stored > c->n_ctx - 2 ? c->n_ctx - 2 : c->stored;
    for (size_t i = 0; i < s->n_requests; i++) {
        sim_request *r = &s->requests[i];
        at_least(&sim_request_kind, (int64_t *)r);
        r->follows = r->follows > (int64_t)i ? 0 : r->follows;
        r->session = r->session > SIM_MAX_SESSIONS ? SIM_MAX_SESSIONS : r->session;
        r->space = r->space > 2 ? 2 : r->space;
        r->own = r->own > SIM_MAX_CTX ? SIM_MAX_CTX : r->own;
        r->shared = r->shared > SIM_MAX_CTX ? SIM_MAX_CTX : r->shared;
    }
    for (size_t i = 0; i < s->n_events; i++) {
        at_least(&sim_event_kind, (int64_t *)&s->events[i]);
    }
}
