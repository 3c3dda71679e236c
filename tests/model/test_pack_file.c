/*
 * Packed weights on disk (pack_file, pack_folder, pack_header): what is written is found again; whatever a file
 * has gone through (a crash at any point, a flipped byte, a cut, another one in its place) it is either right or
 * made again; two starters make it once; a folder that cannot be used is an error that names it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/pack_file.h"
#include "model/pack_folder.h"
#include "model/pack_rig.h"
#include "model/temp_path.h"

#define PATIENCE_S 60

static char model[TEMP_PATH_BYTES], folder[TEMP_PATH_BYTES + 16];
static pack_rig rig;
static unsigned char *want;       /* the image */
static char log_text[4096];       /* what was logged since the test began */
static pack_file_options options; /* of the tests: the folder, no other limits */

static void keep_log(void *ctx, log_level level, const char *line, size_t len)
{
    size_t have = strlen(log_text);
    snprintf(log_text + have, sizeof log_text - have, "%.*s", (int)len, line);
}

static int set_up(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_Q8_0);
    spec.type_alt = GGUF_TYPE_F32;
    spec.n_vocab = 8000; /* 8 MB: more than one step */
    if (make_model(temp_path(model, "pack-file.gguf"), &spec, NULL) != ST_OK) {
        return -1;
    }
    pack_rig_open(&rig, model, 2);
    want = pack_rig_image(&rig);
    log_set_sink(keep_log, NULL, LOG_INFO);
    return 0;
}

static int tear_down(void **state)
{
    mem_free(want);
    pack_rig_close(&rig);
    return unlink(model);
}

static int remove_folder(void **state)
{
    char command[sizeof folder + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static int fresh_folder(void **state)
{
    char base[TEMP_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/a/b", temp_path(base, "pack-dir"));
    (void)remove_folder(state);
    options = (pack_file_options){
        .folder = folder, .model_bytes = gguf_file_bytes(rig.file), .budget_bytes = (uint64_t)1 << 40};
    log_text[0] = '\0';
    return 0;
}

static pack_file *open_file(void)
{
    pack_file *f = NULL;
    err e = {0};
    if (pack_file_open(&options, &rig.key, &f, &e) != ST_OK) {
        fail_msg("pack_file_open: %s", e.msg);
    }
    return f;
}

static status complete(pack_file *f, err *e)
{
    return pack_file_complete(f, &rig.plan, rig.p, &(pack_progress){0}, e);
}

static void check_image(pack_file *f)
{
    void *map = NULL;
    uint8_t sum[SHA256_BYTES];
    uint64_t n;
    const void *bytes = gguf_part_bytes(rig.file, 0, &n);
    unsigned char *copy = mem_alloc((size_t)rig.plan.image_bytes);
    assert_int_equal(pack_file_map(f, &rig.plan, &map, NULL), ST_OK);
    assert_memory_equal(map, want, (size_t)rig.plan.image_bytes);
    munmap(map, (size_t)rig.plan.image_bytes);
    assert_int_equal(pack_file_read(f, &rig.plan, rig.p, copy, NULL), ST_OK);
    assert_memory_equal(copy, want, (size_t)rig.plan.image_bytes);
    mem_free(copy);
    assert_int_equal(sha256_once(bytes, (size_t)n, sum), ST_OK);
    assert_memory_equal(pack_file_digest(f), sum, SHA256_BYTES);
}

/* Opens, completes, checks. Returns whether the file was there (the same inode is still there afterwards). */
static bool use_file(char path[PACK_PATH_MAX])
{
    struct stat before = {0}, after;
    err e = {0};
    assert_int_equal(pack_folder_path(folder, &rig.key, path, NULL), ST_OK);
    bool there = lstat(path, &before) == 0;
    int held = open(path, O_RDONLY | O_CLOEXEC); /* so that another file cannot get its number */
    pack_file *f = open_file();
    assert_string_equal(pack_file_path(f), path);
    if (complete(f, &e) != ST_OK) {
        fail_msg("pack_file_complete: %s", e.msg);
    }
    check_image(f);
    pack_file_close(f);
    if (held >= 0) {
        close(held);
    }
    assert_int_equal(lstat(path, &after), 0);
    assert_int_equal(after.st_mode & 07777, 0400);
    return there && before.st_ino == after.st_ino;
}

static void made_once(void **state)
{
    char path[PACK_PATH_MAX];
    struct stat sb;
    assert_false(use_file(path));
    assert_true(use_file(path));
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(sb.st_size, pack_header_bytes(&rig.plan) + rig.plan.image_bytes);
    assert_string_equal(log_text, "");
    /* Other types packed, another model: other files. */
    pack_key other = rig.key;
    char name[PACK_PATH_MAX];
    other.types ^= 1;
    assert_int_equal(pack_folder_path(folder, &other, name, NULL), ST_OK);
    assert_string_not_equal(name, path);
    other = rig.key;
    other.source[0] ^= 1;
    assert_int_equal(pack_folder_path(folder, &other, name, NULL), ST_OK);
    assert_string_not_equal(name, path);
}

static void use_sets_mtime(void **state)
{
    char path[PACK_PATH_MAX];
    struct stat sb;
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    (void)use_file(path);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_true(use_file(path));
    assert_int_equal(stat(path, &sb), 0);
    assert_true(sb.st_mtim.tv_sec > 1000);
}

static void poke(const char *path, uint64_t at, const void *bytes, size_t n)
{
    chmod(path, 0600);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
    close(fd);
    chmod(path, 0400);
}

static void flipped(void **state)
{
    /* one byte of each field of the header, of the first and the last matrix, of the filling, the last of it */
    const uint64_t end = pack_header_bytes(&rig.plan), list_end = PACK_HEADER_FIXED + 48 * rig.plan.n_items;
    const uint64_t at[] = {0,   7,   8,   12,  16,  20,  24,           26,       32,
                           38,  40,  48,  79,  80,  111, 112,          119,      120,
                           127, 128, 136, 144, 152, 160, list_end - 1, list_end, end - 1};
    char path[PACK_PATH_MAX];
    (void)use_file(path);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        unsigned char byte;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(pread(fd, &byte, 1, (off_t)at[i]), 1);
        close(fd);
        byte ^= 0x10;
        poke(path, at[i], &byte, 1);
        log_text[0] = '\0';
        if (use_file(path)) {
            fail_msg("a header with byte %llu flipped was used", (unsigned long long)at[i]);
        }
        assert_non_null(strstr(log_text, path));
        assert_ptr_equal(strchr(log_text, '\n') + 1, log_text + strlen(log_text)); /* one line */
    }
}

static void cut_or_grown(void **state)
{
    const uint64_t header = pack_header_bytes(&rig.plan), all = header + rig.plan.image_bytes;
    const uint64_t sizes[] = {
        0, 1, PACK_HEADER_FIXED - 1, PACK_HEADER_FIXED, header - 1, header, header + 1, all - 1, all + 1};
    char path[PACK_PATH_MAX];
    (void)use_file(path);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        chmod(path, 0600);
        assert_int_equal(truncate(path, (off_t)sizes[i]), 0);
        if (use_file(path)) {
            fail_msg("a file of %llu bytes was used", (unsigned long long)sizes[i]);
        }
    }
}

/* What else may have the name: a file of anything is replaced, what is no file is left alone. */
static void foreign(void **state)
{
    char path[PACK_PATH_MAX], target[PACK_PATH_MAX + 8];
    pack_file *f = NULL;
    err e = {0};
    (void)use_file(path);
    chmod(path, 0600);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(write(fd, "notes\n", 6), 6);
    close(fd);
    assert_false(use_file(path));
    assert_non_null(strstr(log_text, "it does not begin like a packed file"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(pack_file_open(&options, &rig.key, &f, &e), ST_IO);
    assert_non_null(strstr(e.msg, path));
    assert_int_equal(rmdir(path), 0);
    snprintf(target, sizeof target, "%s.x", path);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(pack_file_open(&options, &rig.key, &f, &e), ST_IO);
    assert_non_null(strstr(e.msg, path));
    assert_int_equal(access(target, F_OK), -1);
    assert_null(f);
}

/* A header that is right in itself, of the same key, for other matrices: nothing is read through it. */
static void other_plan(void **state)
{
    char path[PACK_PATH_MAX];
    unsigned char header[2 * PACK_HEADER_ALIGN];
    err e = {0};
    (void)use_file(path);
    assert_true(pack_header_bytes(&rig.plan) <= sizeof header);
    pack_item *items = mem_alloc_array(rig.plan.n_items, sizeof *items);
    memcpy(items, rig.plan.items, rig.plan.n_items * sizeof *items);
    items[1].offset = (uint64_t)1 << 60;
    pack_plan plan = rig.plan;
    plan.items = items;
    pack_header_make(&plan, &rig.key, rig.key.source, header);
    poke(path, 0, header, (size_t)pack_header_bytes(&rig.plan));
    pack_file *f = open_file();
    assert_int_equal(complete(f, &e), ST_IO);
    assert_non_null(strstr(e.msg, path));
    pack_file_close(f);
    mem_free(items);
}

/*
 * Other processes
 */
typedef struct crash {
    double at;
} crash;

static void crash_at(void *ctx, double done)
{
    const crash *c = ctx;
    if (done >= c->at) {
        raise(SIGKILL);
    }
}

static int wait_for(pid_t pid)
{
    int how = -1;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

/* A child has its own threads to make (a fork has only one), so it takes a pool of one. */
static pid_t fork_writer(void (*work)(void *arg), void *arg)
{
    pid_t pid = fork();
    if (pid == 0) {
        pool *p = NULL;
        alarm(PATIENCE_S);
        if (pool_new(1, false, &p, NULL) == ST_OK) {
            rig.p = p;
            work(arg);
        }
        _exit(1);
    }
    assert_true(pid > 0);
    return pid;
}

static void write_and_crash(void *arg)
{
    pack_file *f = NULL;
    if (pack_file_open(&options, &rig.key, &f, NULL) == ST_OK) {
        (void)pack_file_complete(f, &rig.plan, rig.p, &(pack_progress){crash_at, arg}, NULL);
    }
}

static void crashes(void **state)
{
    char path[PACK_PATH_MAX];
    for (double at = 0; at <= 1.0; at += 0.125) {
        crash c = {.at = at};
        assert_int_equal(pack_folder_path(folder, &rig.key, path, NULL), ST_OK);
        unlink(path);
        int how = wait_for(fork_writer(write_and_crash, &c));
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        assert_int_equal(access(path, F_OK), 0);
        log_text[0] = '\0';
        assert_false(use_file(path));
        assert_non_null(strstr(log_text, "nobody finished it"));
        assert_true(use_file(path));
    }
}

/* A child that opens, says so, and does what it is told by one byte: finish, or die. */
typedef struct talk {
    int to_child[2];
    int from_child[2];
} talk;

static void write_when_told(void *arg)
{
    talk *t = arg;
    char byte = 'n';
    pack_file *f = NULL;
    if (pack_file_open(&options, &rig.key, &f, NULL) != ST_OK || write(t->from_child[1], "o", 1) != 1 ||
        read(t->to_child[0], &byte, 1) != 1 || byte != 'f') {
        _exit(2);
    }
    _exit(pack_file_complete(f, &rig.plan, rig.p, &(pack_progress){0}, NULL) == ST_OK ? 0 : 3);
}

static pid_t start_writer(talk *t)
{
    char byte;
    assert_int_equal(pipe2(t->to_child, O_CLOEXEC) | pipe2(t->from_child, O_CLOEXEC), 0);
    pid_t pid = fork_writer(write_when_told, t);
    assert_int_equal(read(t->from_child[0], &byte, 1), 1);
    return pid;
}

static void end_talk(talk *t)
{
    for (int i = 0; i < 2; i++) {
        close(t->to_child[i]);
        close(t->from_child[i]);
    }
}

static void second_waits(void **state)
{
    char path[PACK_PATH_MAX];
    talk t;
    pid_t pid = start_writer(&t);
    pack_file *f = open_file();
    assert_int_equal(write(t.to_child[1], "f", 1), 1);
    assert_int_equal(complete(f, NULL), ST_OK);
    check_image(f);
    pack_file_close(f);
    int how = wait_for(pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_true(use_file(path));
    assert_non_null(strstr(log_text, "event=waiting"));
    end_talk(&t);
}

/* Its writer dies: the one who waited does without, the next makes it. */
static void writer_dies(void **state)
{
    char path[PACK_PATH_MAX];
    talk t;
    err e = {0};
    pid_t pid = start_writer(&t);
    pack_file *f = open_file();
    assert_int_equal(write(t.to_child[1], "d", 1), 1);
    assert_int_equal(complete(f, &e), ST_IO);
    assert_non_null(strstr(e.msg, pack_file_path(f)));
    pack_file_close(f);
    (void)wait_for(pid);
    assert_false(use_file(path));
    end_talk(&t);
}

static void waits_not_for_ever(void **state)
{
    talk t;
    err e = {0};
    pid_t pid = start_writer(&t);
    options.wait_ms = 50;
    pack_file *f = open_file();
    assert_int_equal(complete(f, &e), ST_TIMEOUT);
    assert_non_null(strstr(e.msg, pack_file_path(f)));
    pack_file_close(f);
    assert_int_equal(write(t.to_child[1], "d", 1), 1);
    (void)wait_for(pid);
    end_talk(&t);
}

static void open_and_complete(void *arg)
{
    pack_file *f = NULL;
    void *map;
    (void)arg;
    _exit(pack_file_open(&options, &rig.key, &f, NULL) == ST_OK && complete(f, NULL) == ST_OK &&
                  pack_file_map(f, &rig.plan, &map, NULL) == ST_OK &&
                  memcmp(map, want, (size_t)rig.plan.image_bytes) == 0
              ? 0
              : 1);
}

/* Nobody orders them. */
static void many_starters(void **state)
{
    pid_t pids[6];
    for (int round = 0; round < 4; round++) {
        char path[PACK_PATH_MAX];
        assert_int_equal(pack_folder_path(folder, &rig.key, path, NULL), ST_OK);
        unlink(path);
        for (size_t i = 0; i < 6; i++) {
            pids[i] = fork_writer(open_and_complete, NULL);
        }
        for (size_t i = 0; i < 6; i++) {
            int how = wait_for(pids[i]);
            assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        }
        assert_true(use_file(path));
    }
}

/*
 * Room
 */
static void write_limited(void *arg)
{
    const struct rlimit limit = {4 << 20, 4 << 20};
    struct stat sb;
    pack_file *f = NULL;
    err e = {0};
    bool as_wanted = setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                     pack_file_open(&options, &rig.key, &f, NULL) == ST_OK && complete(f, &e) == ST_FULL &&
                     strstr(e.msg, pack_file_path(f)) && stat(pack_file_path(f), &sb) == 0 && sb.st_size == 0;
    (void)arg;
    _exit(as_wanted ? 0 : 1);
}

static void size_limit(void **state)
{
    int how = wait_for(fork_writer(write_limited, NULL));
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    char path[PACK_PATH_MAX];
    assert_false(use_file(path));
}

#define NOT_ALLOWED 77

/* A file system of 1 MB, seen by this process only; and the same read-only. */
static void write_full_disk(void *arg)
{
    pack_file *f = NULL;
    err e = {0};
    (void)arg;
    if (mkdir(folder, 0700) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", folder, "tmpfs", 0, "size=1m") != 0) {
        _exit(NOT_ALLOWED);
    }
    if (pack_file_open(&options, &rig.key, &f, &e) != ST_OK || complete(f, &e) != ST_FULL ||
        !strstr(e.msg, folder)) {
        _exit(1);
    }
    pack_file_close(f);
    options.budget_bytes = 0; /* half of 1 MB */
    if (pack_file_open(&options, &rig.key, &f, &e) != ST_FULL || !strstr(e.msg, folder)) {
        _exit(2);
    }
    if (mount("none", folder, NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0 ||
        pack_file_open(&options, &rig.key, &f, &e) == ST_OK || !strstr(e.msg, folder)) {
        _exit(3);
    }
    _exit(0);
}

static void full_or_read_only(void **state)
{
    char above[TEMP_PATH_BYTES + 16];
    snprintf(above, sizeof above, "%s", folder);
    *strrchr(above, '/') = '\0';
    assert_int_equal(folder_make(above, NULL), ST_OK);
    int how = wait_for(fork_writer(write_full_disk, NULL));
    if (WIFEXITED(how) && WEXITSTATUS(how) == NOT_ALLOWED) {
        print_message("full disk: NOT RUN, no right to mount\n");
        skip();
    }
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static void no_folder(void **state)
{
    pack_file *f = NULL;
    err e = {0};
    options.folder = "/proc/hearth/packed";
    assert_int_equal(pack_file_open(&options, &rig.key, &f, &e), ST_IO);
    assert_non_null(strstr(e.msg, "/proc/hearth/packed"));
    options.folder = model; /* a file */
    assert_int_equal(pack_file_open(&options, &rig.key, &f, &e), ST_IO);
    assert_non_null(strstr(e.msg, model));
    assert_null(f);
}

static void put_file(const char *name, size_t n_bytes, time_t used)
{
    static char bytes[64 << 10];
    char path[sizeof folder + 64];
    const struct timespec times[2] = {{used, 0}, {used, 0}};
    memset(bytes, 'x', sizeof bytes);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n_bytes), n_bytes);
    close(fd);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool there(const char *name)
{
    char path[sizeof folder + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void budget(void **state)
{
    char path[sizeof folder + 64];
    err e = {0};
    assert_int_equal(folder_make(folder, NULL), ST_OK);
    put_file("new.hpack", 64 << 10, 5000);
    put_file("old.hpack", 64 << 10, 1000);
    put_file("middle.hpack", 64 << 10, 3000);
    put_file("oldest.hpack", 64 << 10, 500); /* being written: locked, see below */
    put_file("other.txt", 64 << 10, 100);
    put_file("dead.hpack", 0, 9000); /* an unfinished one of nobody */
    snprintf(path, sizeof path, "%s/oldest.hpack", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    /* 4 x 64 KB are there. */
    assert_int_equal(pack_folder_make_room(folder, 64 << 10, 5 * (64 << 10), &e), ST_OK);
    assert_true(there("old.hpack") && there("oldest.hpack") && !there("dead.hpack"));
    assert_int_equal(pack_folder_make_room(folder, 64 << 10, 3 * (64 << 10), &e), ST_OK);
    assert_true(there("oldest.hpack") && !there("old.hpack") && !there("middle.hpack") && there("new.hpack"));
    close(fd);
    assert_int_equal(pack_folder_make_room(folder, 65 << 10, 64 << 10, &e),
                     ST_FULL); /* nothing goes in vain */
    assert_true(there("oldest.hpack") && there("new.hpack"));
    assert_non_null(strstr(e.msg, folder));
    assert_true(there("other.txt"));
}

/* The model changed while it was packed: what was packed is nobody's. */
static void model_changes(void **state)
{
    char path[PACK_PATH_MAX];
    err e = {0};
    const struct timespec now[2] = {{0, UTIME_OMIT}, {time(NULL) + 100, 0}};
    pack_file *f = open_file();
    assert_int_equal(utimensat(AT_FDCWD, model, now, 0), 0);
    assert_int_equal(complete(f, &e), ST_MODEL_CHANGED);
    pack_file_close(f);
    pack_rig_close(&rig);
    char old[PACK_PATH_MAX];
    assert_int_equal(pack_folder_path(folder, &rig.key, old, NULL), ST_OK);
    pack_rig_open(&rig, model, 2);
    assert_false(use_file(path)); /* another identity, another name */
    assert_string_not_equal(path, old);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, fresh_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        EACH(made_once),         EACH(use_sets_mtime),     EACH(flipped),       EACH(cut_or_grown),
        EACH(foreign),           EACH(other_plan),         EACH(crashes),       EACH(second_waits),
        EACH(writer_dies),       EACH(waits_not_for_ever), EACH(many_starters), EACH(size_limit),
        EACH(full_or_read_only), EACH(no_folder),          EACH(budget),        EACH(model_changes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
