/* split: several parts as one file, and the sets that must be refused. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>

#include "base/mem.h"
#include "gguf/raw_gguf.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

#define N_PARTS 3

/* What one part says about itself; tensor NULL = none. */
typedef struct part_spec {
    uint32_t no;
    uint32_t count;
    uint32_t tensors_count;
    const char *tensor;
    bool missing;
} part_spec;

/* a good set */
#define PART_0               \
    {                        \
        0, 3, 2, NULL, false \
    }
#define PART_1                     \
    {                              \
        1, 3, 2, "a.weight", false \
    }
#define PART_2                     \
    {                              \
        2, 3, 2, "b.weight", false \
    }

static const part_spec good[N_PARTS] = {PART_0, PART_1, PART_2};

static const char *part_path(const char *stem, size_t i)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%05zu-of-%05d.gguf", stem, i + 1, N_PARTS);
    return temp_file(name);
}

/* split.no and split.count are u16 and the total i32, as llama-gguf-split writes them. */
static void part_write(const part_spec *p, const char *path)
{
    static float values[N_PARTS][4];
    uint16_t no = (uint16_t)p->no, count = (uint16_t)p->count;
    gguf_writer *w = NULL;
    assert_int_equal(gguf_writer_new(&w), ST_OK);
    if (p->no == 0) {
        assert_int_equal(gguf_writer_str(w, "general.architecture", "llama", 5), ST_OK);
    }
    gguf_kv kv = {.key = {"split.no", 8}, .type = GGUF_U16, .elem = GGUF_U16, .n = 1, .data = &no};
    assert_int_equal(gguf_writer_copy_kv(w, &kv), ST_OK);
    kv.key = (gguf_str){"split.count", 11};
    kv.data = &count;
    assert_int_equal(gguf_writer_copy_kv(w, &kv), ST_OK);
    assert_int_equal(gguf_writer_i32(w, "split.tensors.count", (int32_t)p->tensors_count), ST_OK);
    if (p->tensor) {
        for (size_t i = 0; i < 4; i++) {
            values[p->no % N_PARTS][i] = (float)(10 * p->no + i);
        }
        assert_int_equal(gguf_writer_tensor(w, p->tensor, GGUF_TYPE_F32, (const uint64_t[]){4}, 1,
                                            values[p->no % N_PARTS], NULL),
                         ST_OK);
    }
    assert_int_equal(gguf_writer_finish(w, path, NULL), ST_OK);
    gguf_writer_free(w);
}

static void set_write(const char *stem, const part_spec *set)
{
    for (size_t i = 0; i < N_PARTS; i++) {
        if (!set[i].missing) {
            part_write(&set[i], part_path(stem, i));
        }
    }
}

static void set_remove(const char *stem)
{
    for (size_t i = 0; i < N_PARTS; i++) {
        unlink(part_path(stem, i));
    }
}

static void test_any_part_opens_all(void **state)
{
    set_write("m", good);
    for (size_t named = 0; named < N_PARTS; named++) {
        gguf_file *f = NULL;
        gguf_str arch;
        err e;
        err_clear(&e);
        if (gguf_open(part_path("m", named), &f, &e) != ST_OK) {
            fail_msg("part %zu: %s", named, e.msg);
        }
        assert_int_equal(gguf_parts(f), 3);
        assert_int_equal(gguf_n_tensors(f), 2);
        assert_int_equal(gguf_get_str(f, "general.architecture", &arch, NULL), ST_OK);
        const gguf_tensor *b = gguf_find_tensor(f, "b.weight");
        assert_ptr_equal(b, gguf_tensor_at(f, 1));
        assert_int_equal(b->part, 2);
        assert_true(((const float *)b->data)[3] == 23.0f);
        assert_int_equal(gguf_find_tensor(f, "a.weight")->part, 1);
        assert_false(gguf_changed(f));
        gguf_close(f);
    }
    set_remove("m");
}

static void test_bad_sets(void **state)
{
    static const struct {
        const char *what;
        part_spec set[N_PARTS];
        status st;
        const char *field;
        const char *says;
    } cases[] = {
        {"missing part", {PART_0, PART_1, {.missing = true}}, ST_NOT_FOUND, "path", "s-00003-of-00003.gguf"},
        {"missing in the middle",
         {PART_0, {.missing = true}, PART_2},
         ST_NOT_FOUND,
         "path",
         "s-00002-of-00003.gguf"},
        {"one part counts 4",
         {PART_0, PART_1, {2, 4, 2, "b.weight", false}},
         ST_LOAD_FAILED,
         "split.count",
         "s-00003-of-00003.gguf"},
        {"one part counts 1",
         {PART_0, {0, 1, 2, "a.weight", false}, PART_2},
         ST_LOAD_FAILED,
         "split.count",
         "s-00002-of-00003.gguf"},
        {"two parts swapped", {PART_0, PART_2, PART_1}, ST_LOAD_FAILED, "split.no", "s-00002-of-00003.gguf"},
        {"number past the count",
         {PART_0, PART_1, {3, 3, 2, "b.weight", false}},
         ST_LOAD_FAILED,
         "split.no",
         "is 3"},
        {"wrong total",
         {PART_0, {1, 3, 5, "a.weight", false}, PART_2},
         ST_LOAD_FAILED,
         "split.tensors.count",
         "is 5"},
        {"same tensor twice",
         {PART_0, PART_1, {2, 3, 2, "a.weight", false}},
         ST_LOAD_FAILED,
         "a.weight",
         "s-00003-of-00003.gguf"},
        {"name says 3, file says 2",
         {{0, 2, 2, NULL, false}, PART_1, PART_2},
         ST_LOAD_FAILED,
         "split.count",
         "of 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_file *f = NULL;
        err e;
        err_clear(&e);
        set_write("s", cases[i].set);
        status st = gguf_open(part_path("s", 0), &f, &e);
        set_remove("s");
        assert_null(f);
        if (st != cases[i].st || strcmp(e.field, cases[i].field) != 0 || !strstr(e.msg, cases[i].says)) {
            fail_msg("%s: %s, field %s: %s", cases[i].what, status_name(st), e.field, e.msg);
        }
    }
}

/* A part under a name that does not tell where the others are. */
static void test_renamed_part(void **state)
{
    gguf_file *f = NULL;
    err e;
    err_clear(&e);
    part_write(&good[0], temp_file("renamed.gguf"));
    assert_int_equal(gguf_open(temp_file("renamed.gguf"), &f, &e), ST_LOAD_FAILED);
    assert_string_equal(e.field, "split.count");
    assert_non_null(strstr(e.msg, "NAME-00001-of-00003.gguf"));
    unlink(temp_file("renamed.gguf"));
    /* a split of one part is a plain file, whatever its name */
    part_write(&(part_spec){0, 1, 1, "a.weight", false}, temp_file("one.gguf"));
    assert_int_equal(gguf_open(temp_file("one.gguf"), &f, &e), ST_OK);
    gguf_close(f);
    unlink(temp_file("one.gguf"));
}

static void test_count_without_number(void **state)
{
    gguf_writer *w = NULL;
    gguf_file *f = NULL;
    err e;
    err_clear(&e);
    assert_int_equal(gguf_writer_new(&w), ST_OK);
    assert_int_equal(gguf_writer_u32(w, "split.count", 3), ST_OK);
    assert_int_equal(gguf_writer_finish(w, part_path("n", 0), NULL), ST_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open(part_path("n", 0), &f, &e), ST_LOAD_FAILED);
    assert_string_equal(e.field, "split.no");
    unlink(part_path("n", 0));
}

static size_t n_open_fds(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

/* Those that would stay open over exec. */
static size_t n_inherited_fds(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) == 0;
    }
    return n;
}

/* All that opening needs from outside comes first: afterwards the names may be gone (or the process shut in). */
static void test_two_steps(void **state)
{
    size_t before = n_open_fds(), inherited = n_inherited_fds();
    for (size_t named = 0; named < N_PARTS; named++) {
        gguf_files *s = NULL;
        gguf_file *f = NULL;
        err e;
        err_clear(&e);
        set_write("t", good);
        assert_int_equal(gguf_files_open(part_path("t", named), &s, &e), ST_OK);
        assert_int_equal(n_open_fds(), before + N_PARTS);
        assert_int_equal(n_inherited_fds(), inherited);
        uint64_t bytes = gguf_files_bytes(s);
        set_remove("t");
        if (gguf_files_parse_take(s, &f, &e) != ST_OK) {
            fail_msg("part %zu: %s", named, e.msg);
        }
        assert_int_equal(gguf_parts(f), N_PARTS);
        assert_int_equal(gguf_n_tensors(f), 2);
        assert_int_equal(gguf_file_bytes(f), bytes);
        gguf_close(f);
        assert_int_equal(n_open_fds(), before);
    }
    gguf_files_close(NULL);
}

/* What the name promises and the file does not need is neither an error nor kept. */
static void test_named_like_a_part(void **state)
{
    const part_spec whole = {0, 1, 1, "a.weight", false};
    for (int neighbours = 0; neighbours < 2; neighbours++) {
        for (size_t named = 0; named < N_PARTS; named++) {
            gguf_files *s = NULL;
            gguf_file *f = NULL;
            err e;
            size_t before = n_open_fds();
            uint64_t n_bytes;
            err_clear(&e);
            if (neighbours) {
                set_write("w", good);
            }
            part_write(&whole, part_path("w", named));
            assert_int_equal(gguf_files_open(part_path("w", named), &s, &e), ST_OK);
            if (gguf_files_parse_take(s, &f, &e) != ST_OK) {
                fail_msg("part %zu: %s", named, e.msg);
            }
            assert_int_equal(gguf_parts(f), 1);
            assert_int_equal(n_open_fds(), before + 1);
            assert_memory_equal(gguf_part_bytes(f, 0, &n_bytes), "GGUF", 4);
            assert_int_equal(n_bytes, gguf_file_bytes(f));
            gguf_close(f);
            assert_int_equal(n_open_fds(), before);
            set_remove("w");
            unlink(part_path("w", named));
        }
    }
}

static void test_files_not_parsed(void **state)
{
    gguf_files *s = NULL;
    gguf_file *f = NULL;
    err e;
    size_t before = n_open_fds();
    /* missing neighbours are the second step's error */
    part_write(&good[0], part_path("p", 0));
    assert_int_equal(gguf_files_open(part_path("p", 0), &s, &e), ST_OK);
    assert_int_equal(gguf_files_parse_take(s, &f, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.msg, "p-00002-of-00003.gguf"));
    assert_int_equal(n_open_fds(), before);
    assert_int_equal(gguf_files_open(part_path("p", 0), &s, &e), ST_OK);
    gguf_files_close(s); /* never parsed at all */
    assert_int_equal(n_open_fds(), before);
    unlink(part_path("p", 0));
    assert_int_equal(gguf_files_open(part_path("p", 0), &s, &e), ST_NOT_FOUND);
    assert_string_equal(e.field, "path");
}

static void test_out_of_memory(void **state)
{
    set_write("m", good);
    for (uint64_t n = 1;; n++) {
        gguf_file *f = NULL;
        err e;
        err_clear(&e);
        mem_fail_at(n, false);
        status st = gguf_open(part_path("m", 1), &f, &e);
        mem_fail_at(0, false);
        if (st == ST_OK) {
            assert_true(n > 10);
            gguf_close(f);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(f);
    }
    set_remove("m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_part_opens_all), cmocka_unit_test(test_bad_sets),
        cmocka_unit_test(test_renamed_part),       cmocka_unit_test(test_count_without_number),
        cmocka_unit_test(test_two_steps),          cmocka_unit_test(test_named_like_a_part),
        cmocka_unit_test(test_files_not_parsed),   cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("gguf-split", tests, NULL, temp_folder_remove);
}
