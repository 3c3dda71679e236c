/*
 * The text of /metrics, read by the rules of the exposition format 0.0.4 (prometheus.io/docs/instrumenting/
 * exposition_formats), and compared with docs/metrics.md name by name.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/metrics.h"

#define MAX_FAMILIES 100
#define MAX_SERIES   2000

typedef struct family {
    char name[80], type[16];
    bool has_sample;
} family;

typedef struct exposition {
    family families[MAX_FAMILIES];
    size_t n_families;
    struct {
        char key[200]; /* name and labels */
        double value;
    } series[MAX_SERIES];
    size_t n_series;
} exposition;

static size_t name_len(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') {
        n++;
    }
    assert_true(n > 0 && !isdigit((unsigned char)s[0]));
    return n;
}

/* The length of {name="value",…}; values end at the first quote that is not escaped. */
static size_t labels_len(const char *s)
{
    size_t n = 1;
    for (;;) {
        n += name_len(s + n);
        assert_true(s[n] == '=' && s[n + 1] == '"');
        n += 2;
        while (s[n] != '"') {
            assert_true(s[n] != '\0' && s[n] != '\n');
            if (s[n] == '\\') {
                n++;
                assert_true(s[n] == '\\' || s[n] == '"' || s[n] == 'n');
            }
            n++;
        }
        n++;
        if (s[n] == '}') {
            return n + 1;
        }
        assert_true(s[n] == ',');
        n++;
    }
}

/* The family a sample belongs to: its own name, or without the suffix of a histogram. */
static bool belongs(const family *f, const char *name, size_t len)
{
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    size_t n = strlen(f->name);
    if (strcmp(f->type, "histogram") != 0) {
        return n == len && memcmp(f->name, name, n) == 0;
    }
    for (size_t i = 0; i < N_OF(suffixes); i++) {
        if (n + strlen(suffixes[i]) == len && memcmp(f->name, name, n) == 0 &&
            memcmp(name + n, suffixes[i], len - n) == 0) {
            return true;
        }
    }
    return false;
}

static void read_sample(exposition *x, const char *line)
{
    size_t name = name_len(line);
    size_t len = name + (line[name] == '{' ? labels_len(line + name) : 0);
    char *end;
    assert_true(line[len] == ' ');
    double value = strtod(line + len + 1, &end);
    assert_true(end > line + len + 1 && *end == '\0');
    assert_true(x->n_families > 0 && belongs(&x->families[x->n_families - 1], line, name));
    x->families[x->n_families - 1].has_sample = true;
    assert_true(x->n_series < MAX_SERIES && len < sizeof x->series[0].key);
    for (size_t i = 0; i < x->n_series; i++) {
        if (strlen(x->series[i].key) == len && memcmp(x->series[i].key, line, len) == 0) {
            fail_msg("twice: %s", line);
        }
    }
    memcpy(x->series[x->n_series].key, line, len);
    x->series[x->n_series].key[len] = '\0';
    x->series[x->n_series++].value = value;
}

static void read_head(exposition *x, const char *help, const char *type)
{
    assert_true(strncmp(help, "# HELP ", 7) == 0 && strncmp(type, "# TYPE ", 7) == 0);
    size_t n = name_len(help + 7);
    assert_true(help[7 + n] == ' ' && help[8 + n] != '\0');
    assert_true(strncmp(type + 7, help + 7, n + 1) == 0);
    assert_true(x->n_families < MAX_FAMILIES);
    family *f = &x->families[x->n_families++];
    snprintf(f->name, sizeof f->name, "%.*s", (int)n, help + 7);
    snprintf(f->type, sizeof f->type, "%s", type + 8 + n);
    bool counter = strcmp(f->type, "counter") == 0;
    assert_true(counter || strcmp(f->type, "gauge") == 0 || strcmp(f->type, "histogram") == 0);
    bool total = n > 6 && strcmp(f->name + n - 6, "_total") == 0;
    if (counter != total) {
        fail_msg("%s is a %s", f->name, f->type);
    }
    for (size_t i = 0; i + 1 < x->n_families; i++) {
        assert_string_not_equal(x->families[i].name, f->name);
    }
}

/* Cuts the text into lines. */
static exposition *read_all(char *text)
{
    exposition *x = calloc(1, sizeof *x);
    assert_non_null(x);
    assert_true(text[0] != '\0' && text[strlen(text) - 1] == '\n');
    for (char *line = text; *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        if (line[0] == '#') {
            char *type = end + 1;
            end = strchr(type, '\n');
            assert_non_null(end);
            *end = '\0';
            read_head(x, line, type);
        } else {
            read_sample(x, line);
        }
        line = end + 1;
    }
    return x;
}

static double value(const exposition *x, const char *key)
{
    for (size_t i = 0; i < x->n_series; i++) {
        if (strcmp(x->series[i].key, key) == 0) {
            return x->series[i].value;
        }
    }
    fail_msg("there is no %s", key);
    return 0;
}

static exposition *put(const metrics *m)
{
    const metric_model models[] = {{.id = "a\"b\\c\nd",
                                    .ready = true,
                                    .running = 2,
                                    .starts = 3,
                                    .deaths = {[WORKER_STALLED] = 4},
                                    .page = {[STATUS_ROW_TICK] = 5}},
                                   {.id = "plain",
                                    .queued = 6,
                                    .page = {[STATUS_ROW_TOKENS_REUSED] = 7,
                                             [STATUS_ROW_LANES_IDLE] = 11,
                                             [STATUS_ROW_PARKED] = 12,
                                             [STATUS_ROW_PREEMPTIONS] = 13,
                                             [STATUS_ROW_TOKENS_RECOMPUTED] = 14,
                                             [STATUS_ROW_TOKENS_RESTORED] = 15,
                                             [STATUS_ROW_PAGES_CACHED] = 16,
                                             [STATUS_ROW_TOKENS_FETCHED] = 17}}};
    const metric_view view = {.version = "1.2",
                              .uptime_ms = 1500,
                              .connections = 8,
                              .live_requests = 9,
                              .models = models,
                              .n_models = 2};
    buf out = {0};
    assert_int_equal(metrics_put(m, &view, &out), ST_OK);
    exposition *x = read_all(out.data);
    buf_release(&out);
    return x;
}

static void expect(const exposition *x, const char *key, double want)
{
    double got = value(x, key);
    if (got < want - 1e-9 || got > want + 1e-9) {
        fail_msg("%s is %g, not %g", key, got, want);
    }
}

static void test_values(void **state)
{
    metrics m = {0};
    metrics_count_exchange(&m, METRIC_ROUTE_chat, 200, 100, false);
    metrics_count_exchange(&m, METRIC_ROUTE_chat, 200, 11, true);
    metrics_count_exchange(&m, METRIC_ROUTE_other, 0, 0, true);
    metrics_count_exchange(&m, METRIC_ROUTE_health, 418, 1, false);
    metrics_count_finish(&m, "timeout");
    metrics_count_finish(&m, "gone");
    metrics_count_finish(&m, "something new");
    m.tokens_prompt = 12;
    exposition *x = put(&m);
    expect(x, "hearth_build_info{version=\"1.2\"}", 1);
    expect(x, "hearth_uptime_seconds", 1.5);
    expect(x, "hearth_http_connections", 8);
    expect(x, "hearth_generations_live", 9);
    expect(x, "hearth_requests_total{route=\"/v1/chat/completions\",status=\"200\"}", 2);
    expect(x, "hearth_requests_total{route=\"other\",status=\"0\"}", 1);
    expect(x, "hearth_requests_total{route=\"/health\",status=\"999\"}", 1);
    expect(x, "hearth_clients_gone_total", 2);
    expect(x, "hearth_response_bytes_total", 112);
    expect(x, "hearth_choices_total{finish=\"timeout\"}", 1);
    expect(x, "hearth_choices_total{finish=\"gone\"}", 1);
    expect(x, "hearth_choices_total{finish=\"error\"}", 1);
    expect(x, "hearth_choices_total{finish=\"stop\"}", 0);
    expect(x, "hearth_tokens_prompt_total", 12);
    expect(x, "hearth_model_ready{model=\"a\\\"b\\\\c\\nd\"}", 1);
    expect(x, "hearth_model_ready{model=\"plain\"}", 0);
    expect(x, "hearth_requests_running{model=\"a\\\"b\\\\c\\nd\"}", 2);
    expect(x, "hearth_requests_queued{model=\"plain\"}", 6);
    expect(x, "hearth_worker_starts_total{model=\"a\\\"b\\\\c\\nd\"}", 3);
    expect(x, "hearth_worker_deaths_total{model=\"a\\\"b\\\\c\\nd\",cause=\"stalled\"}", 4);
    expect(x, "hearth_worker_steps_total{model=\"a\\\"b\\\\c\\nd\"}", 5);
    expect(x, "hearth_worker_tokens_reused_total{model=\"plain\"}", 7);
    expect(x, "hearth_worker_lanes_idle{model=\"plain\"}", 11);
    expect(x, "hearth_worker_parked{model=\"plain\"}", 12);
    expect(x, "hearth_worker_preemptions_total{model=\"plain\"}", 13);
    expect(x, "hearth_worker_tokens_recomputed_total{model=\"plain\"}", 14);
    expect(x, "hearth_worker_tokens_restored_total{model=\"plain\"}", 15);
    expect(x, "hearth_worker_pages_cached{model=\"plain\"}", 16);
    expect(x, "hearth_worker_tokens_fetched_total{model=\"plain\"}", 17);
    free(x);
}

/* Buckets are cumulative, the last is the count, a bound belongs to its own bucket. */
static void test_histogram(void **state)
{
    static const double seconds[] = {0, 0.005, 0.006, 1, 300, 301};
    static const struct {
        const char *le;
        double n;
    } want[] = {{"0.005", 2}, {"0.01", 3}, {"0.5", 3}, {"1", 4}, {"60", 4}, {"300", 5}, {"+Inf", 6}};
    metrics m = {0};
    char key[100];
    for (size_t i = 0; i < N_OF(seconds); i++) {
        metrics_observe(&m.ttft, seconds[i]);
    }
    exposition *x = put(&m);
    for (size_t i = 0; i < N_OF(want); i++) {
        snprintf(key, sizeof key, "hearth_ttft_seconds_bucket{le=\"%s\"}", want[i].le);
        expect(x, key, want[i].n);
    }
    expect(x, "hearth_ttft_seconds_count", 6);
    expect(x, "hearth_ttft_seconds_sum", 602.011);
    expect(x, "hearth_request_seconds_count", 0);
    free(x);
}

/* Every name in the text has its row in docs/metrics.md with its type, and the reverse. */
static void test_document(void **state)
{
    char path[4096], line[600], types[MAX_FAMILIES][16], names[MAX_FAMILIES][80];
    size_t n = 0;
    metrics m = {0};
    const char *root = getenv("HEARTH_ROOT");
    snprintf(path, sizeof path, "%s/docs/metrics.md", root ? root : ".");
    FILE *f = fopen(path, "r");
    if (!f) {
        fail_msg("cannot read %s", path);
    }
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "| `%79[a-z_]` | %15[a-z] |", names[n], types[n]) == 2) {
            n++;
            assert_true(n < MAX_FAMILIES);
        }
    }
    fclose(f);
    metrics_count_exchange(&m, METRIC_ROUTE_chat, 200, 100, false);
    exposition *x = put(&m);
    assert_int_equal(n, x->n_families);
    for (size_t i = 0; i < n; i++) { /* in the same order, too */
        assert_string_equal(names[i], x->families[i].name);
        assert_string_equal(types[i], x->families[i].type);
        assert_true(x->families[i].has_sample);
    }
    free(x);
}

static void test_no_memory(void **state)
{
    static metrics m;
    const metric_view view = {.version = "1"};
    buf out = {0};
    assert_int_equal(buf_append_str(&out, "before"), ST_OK);
    mem_fail_at(1, true);
    status st = metrics_put(&m, &view, &out);
    mem_fail_at(0, false);
    assert_int_equal(st, ST_NOMEM);
    assert_string_equal(buf_str(&out), "before");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
