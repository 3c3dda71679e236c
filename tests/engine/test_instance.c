/*
 * Files whose parts do not fit together are refused by instance_open, with the key named (FAILURES I5: no end
 * token, vocabulary unlike the embedding).
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/instance.h"
#include "model/edit_model.h"
#include "model/make_model.h"

static char good[64], bad[64];

static int make(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    spec.vocab = MAKE_VOCAB_SPM;
    snprintf(good, sizeof good, "/tmp/hearth-instance-%d.gguf", (int)getpid());
    snprintf(bad, sizeof bad, "/tmp/hearth-instance-%d-bad.gguf", (int)getpid());
    return make_model(good, &spec, NULL) == ST_OK ? 0 : -1;
}

static int unmake(void **state)
{
    unlink(good);
    unlink(bad);
    return 0;
}

static void expect(const model_edit *edit, status want, const char *field)
{
    err e = {0};
    instance *in = NULL;
    instance_options opt = instance_options_default();
    assert_int_equal(edit_model(good, bad, edit, 1, &e), ST_OK);
    assert_int_equal(instance_open(bad, &opt, &in, &e), want);
    if (want == ST_OK) {
        instance_close(in);
    } else {
        assert_null(in);
        assert_string_equal(e.field, field);
    }
}

/* Gives the end token's text another name of the same length, in place. */
static void rename_end_token(const char *path)
{
    static unsigned char bytes[1 << 16];
    FILE *f = fopen(path, "r+be");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    size_t at = 0;
    while (at + 4 <= n && memcmp(bytes + at, "</s>", 4) != 0) {
        at++;
    }
    assert_true(at + 4 <= n);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite("</q>", 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
}

static void test_end_token(void **state)
{
    const char *key = "tokenizer.ggml.eos_token_id";
    expect(&(model_edit){.kind = EDIT_NONE}, ST_OK, NULL);
    expect(&(model_edit){.kind = EDIT_U32, .name = key, .number = 300}, ST_LOAD_FAILED, key);
    rename_end_token(good);
    expect(&(model_edit){.kind = EDIT_NONE}, ST_OK, NULL);
    expect(&(model_edit){.kind = EDIT_DROP, .name = key}, ST_LOAD_FAILED, key);
}

static void test_vocabulary(void **state)
{
    expect(
        &(model_edit){
            .kind = EDIT_TENSOR, .name = "token_embd.weight", .type = GGUF_TYPE_F32, .dims = {256, 299}},
        ST_LOAD_FAILED, "tokenizer.ggml.tokens");
}

typedef struct told {
    int n;
    instance_sizes sizes;
} told;

static void on_sized(void *ctx, const instance_sizes *sizes)
{
    told *t = ctx;
    t->n++;
    t->sizes = *sizes;
}

static void hash_file(const char *path, uint8_t sum[SHA256_BYTES])
{
    static unsigned char bytes[1 << 16];
    sha256 *h = NULL;
    size_t n;
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    assert_int_equal(sha256_new(&h), ST_OK);
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0) {
        assert_int_equal(sha256_update(h, bytes, n), ST_OK);
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(sha256_final(h, sum), ST_OK);
    sha256_free(h);
}

/* What the source has is all that is needed from outside: the name may be gone. */
static void test_from_source(void **state)
{
    err e = {0};
    told seen = {0};
    instance_source *s = NULL;
    instance *in = NULL;
    instance_options opt = instance_options_default();
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];
    opt.sized = on_sized;
    opt.sized_ctx = &seen;
    opt.threads = 1;
    opt.context = 64;
    opt.max_sequences = 3;
    assert_int_equal(edit_model(good, bad, &(model_edit){.kind = EDIT_NONE}, 1, &e), ST_OK);
    hash_file(bad, want);
    assert_int_equal(instance_source_open(bad, &opt, &s, &e), ST_OK);
    uint64_t bytes = instance_source_bytes(s);
    unlink(bad);
    assert_int_equal(seen.n, 0);
    if (instance_open_take(s, &opt, &in, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.sizes.threads, 1);
    assert_int_equal(seen.sizes.file_bytes, bytes);
    const instance_info *info = instance_describe(in);
    assert_int_equal(info->kv_pages,
                     3 * (64 / 32 + 1)); /* three contexts in pages of 32 tokens, and one more each */
    assert_int_equal(seen.sizes.kv_bytes,
                     info->kv_pages * info->kv_page_bytes / 4 * 5); /* a quarter for copies */
    assert_int_equal(instance_digest(in, got), ST_OK);
    assert_memory_equal(got, want, sizeof want);
    instance_close(in);
}

static void test_source_errors(void **state)
{
    err e = {0};
    instance_source *s = NULL;
    instance *in = NULL;
    instance_options opt = instance_options_default();
    assert_int_equal(instance_source_open("/nonexistent/m.gguf", &opt, &s, &e), ST_NOT_FOUND);
    assert_null(s);
    instance_source_close(NULL);
    /* taken also when it fails (the leak checker looks) */
    opt.max_sequences = 0;
    assert_int_equal(instance_source_open(good, &opt, &s, &e), ST_OK);
    assert_int_equal(instance_open_take(s, &opt, &in, &e), ST_INVALID_FIELD);
    assert_null(in);
    assert_int_equal(instance_source_open(good, &opt, &s, &e), ST_OK);
    instance_source_close(s);
}

static char log_text[4096];

static void keep_log(void *ctx, log_level level, const char *line, size_t len)
{
    size_t have = strlen(log_text);
    snprintf(log_text + have, sizeof log_text - have, "%.*s", (int)len, line);
}

static size_t files_in(const char *folder)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *entry = d ? readdir(d) : NULL; entry; entry = readdir(d)) {
        n += entry->d_name[0] != '.';
    }
    if (d) {
        closedir(d);
    }
    return n;
}

static instance *opened(const instance_options *opt)
{
    err e = {0};
    instance *in = NULL;
    log_text[0] = '\0';
    if (instance_open(good, opt, &in, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
    return in;
}

/* Packed weights: on disk if there is a folder and the model is large enough, else in memory without a word; a
 * folder that cannot be used is one line that names it. */
static void test_packed(void **state)
{
    instance_options opt = instance_options_default();
    char folder[80], command[96];
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];
    snprintf(folder, sizeof folder, "/tmp/hearth-instance-%d-packed", (int)getpid());
    log_set_sink(keep_log, NULL, LOG_INFO);
    opt.threads = 2;
    opt.pack_dir = folder;
    instance_close(opened(&opt));
    assert_int_equal(files_in(folder), 0); /* small */
    opt.pack_min_bytes = 0;
    if (!kern_select(KERN_SET_COUNT - 1)->wants_packed[GGUF_TYPE_F32]) {
        print_message("packed weights: NOT RUN, no set of this CPU packs F32\n");
        skip();
    }
    hash_file(good, want);
    for (int i = 0; i < 3; i++) {
        opt.huge_pages = i == 2;
        instance *in = opened(&opt);
        assert_int_equal(files_in(folder), 1);
        assert_int_equal(instance_digest(in, got), ST_OK); /* known without reading the model */
        assert_memory_equal(got, want, sizeof want);
        assert_false(instance_changed(in));
        assert_string_equal(log_text, "");
        instance_close(in);
    }
    opt.cpu = KERN_REF; /* wants nothing packed */
    instance_close(opened(&opt));
    assert_int_equal(files_in(folder), 1);
    opt.cpu = KERN_SET_COUNT - 1;
    opt.pack_dir = "/proc/hearth";
    instance_close(opened(&opt));
    assert_non_null(strstr(log_text, "warn pack event=packing_in_memory"));
    assert_non_null(strstr(log_text, "/proc/hearth"));
    assert_ptr_equal(strchr(log_text, '\n') + 1, log_text + strlen(log_text));
    log_set_sink(NULL, NULL, LOG_INFO);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_from_source),
                                       cmocka_unit_test(test_source_errors), cmocka_unit_test(test_packed),
                                       cmocka_unit_test(test_end_token), cmocka_unit_test(test_vocabulary)};
    return cmocka_run_group_tests(tests, make, unmake);
}
