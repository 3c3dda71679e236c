#include "kv/store_index.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

#define NAME           "index.db"
#define LOCK_NAME      "index.lock"
#define VFS_NAME       "hearth-store"
#define APPLICATION    0x68746870 /* "hthp" */
#define SCHEMA_VERSION 1
#define BUSY_MS        500   /* how long another worker's transaction is waited for: it does without */
#define OPEN_BUSY_MS   10000 /* while opening: nobody would try again */
#define PAUSE_NS       50000000
#define PATH_BYTES     4096u

#define TEXT_OF(x)  TEXT_OF_(x)
#define TEXT_OF_(x) #x

/* clang-format off */
static const char schema[] =
    "CREATE TABLE page("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT," /* never used again: "after seq" is what others added since */
    " key BLOB UNIQUE NOT NULL,"
    " parent BLOB NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " used INTEGER NOT NULL,"
    " kids INTEGER NOT NULL);"
    "CREATE INDEX page_parent ON page(parent);"
    "CREATE INDEX page_next ON page(used, seq) WHERE kids = 0;"
    "CREATE TABLE total("
    " one INTEGER PRIMARY KEY CHECK(one = 1),"
    " files INTEGER NOT NULL, bytes INTEGER NOT NULL, tick INTEGER NOT NULL,"
    " day INTEGER NOT NULL, day_bytes INTEGER NOT NULL);"
    "INSERT INTO total VALUES(1, 0, 0, 0, 0, 0);"
    "CREATE TRIGGER page_added AFTER INSERT ON page BEGIN"
    " UPDATE page SET kids = kids + 1 WHERE key = new.parent;"
    " UPDATE total SET files = files + 1, bytes = bytes + new.bytes, tick = max(tick, new.used);"
    " END;"
    "CREATE TRIGGER page_removed AFTER DELETE ON page BEGIN"
    " UPDATE page SET kids = kids - 1 WHERE key = old.parent;"
    " UPDATE total SET files = files - 1, bytes = bytes - old.bytes;"
    " END;"
    "PRAGMA application_id = " TEXT_OF(APPLICATION) ";"
    "PRAGMA user_version = " TEXT_OF(SCHEMA_VERSION) ";";

static const char settings[] =
    "PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;"
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA journal_size_limit = 4194304;";

enum {
    SQL_BEGIN, SQL_COMMIT, SQL_ROLLBACK, SQL_TOTALS, SQL_HAS, SQL_ADD, SQL_TICK, SQL_USE, SQL_REMOVE, SQL_VICTIM,
    SQL_SPEND, SQL_SINCE, SQL_RECOUNT_KIDS, SQL_RECOUNT, N_SQL
};

static const char *const sql[N_SQL] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_TOTALS] = "SELECT files, bytes, day, day_bytes FROM total",
    [SQL_HAS] = "SELECT 1 FROM page WHERE key = ?1",
    [SQL_ADD] = "INSERT OR IGNORE INTO page(key, parent, bytes, used, kids)"
                " VALUES(?1, ?2, ?3, ?4, (SELECT count(*) FROM page WHERE parent = ?1))",
    [SQL_TICK] = "UPDATE total SET tick = max(tick + 1, ?1) RETURNING tick",
    [SQL_USE] = "UPDATE page SET used = ?2 WHERE key = ?1",
    [SQL_REMOVE] = "DELETE FROM page WHERE key = ?1",
    [SQL_VICTIM] = "SELECT key FROM page WHERE kids = 0 AND key <> ?1 ORDER BY used, seq LIMIT 1",
    [SQL_SPEND] = "UPDATE total SET day_bytes = ?2 + CASE day WHEN ?1 THEN day_bytes ELSE 0 END, day = ?1",
    [SQL_SINCE] = "SELECT seq, key FROM page WHERE seq > ?1 ORDER BY seq",
    [SQL_RECOUNT_KIDS] = "UPDATE page SET kids = (SELECT count(*) FROM page AS kid WHERE kid.parent = page.key)"
                         " WHERE kids <> (SELECT count(*) FROM page AS kid WHERE kid.parent = page.key)",
    [SQL_RECOUNT] = "UPDATE total SET files = (SELECT count(*) FROM page),"
                    " bytes = (SELECT ifnull(sum(bytes), 0) FROM page),"
                    " tick = max(0, (SELECT ifnull(max(used), 0) FROM page))",
};
/* clang-format on */

struct store_index {
    sqlite3 *db;                /* owned */
    sqlite3_stmt *stmts[N_SQL]; /* owned */
    int lock_fd;                /* owned */
    uint64_t generation;        /* of index.lock when this was opened */
};

/*
 * SQLite's memory is ours, and paths are taken as they are: what they go through is none of this process' business.
 */
#define SIZE_BYTES 16u /* in front of each allocation */

static void *db_malloc(int n)
{
    char *p = n > 0 ? mem_alloc((size_t)n + SIZE_BYTES) : NULL;
    if (!p) {
        return NULL;
    }
    memcpy(p, &n, sizeof n);
    return p + SIZE_BYTES;
}

static void db_free(void *p)
{
    if (p) {
        mem_free((char *)p - SIZE_BYTES);
    }
}

static void *db_realloc(void *p, int n)
{
    char *q = mem_realloc((char *)p - SIZE_BYTES, (size_t)n + SIZE_BYTES);
    if (!q) {
        return NULL;
    }
    memcpy(q, &n, sizeof n);
    return q + SIZE_BYTES;
}

static int db_size(void *p)
{
    int n = 0;
    if (p) {
        memcpy(&n, (char *)p - SIZE_BYTES, sizeof n);
    }
    return n;
}

static int db_roundup(int n)
{
    return (n + 7) & ~7;
}

static int db_memory_init(void *ctx)
{
    return SQLITE_OK;
}

static void db_memory_end(void *ctx)
{
}

static int full_path(sqlite3_vfs *vfs, const char *path, int cap, char *out)
{
    size_t n = strlen(path);
    if (n >= (size_t)cap) {
        return SQLITE_CANTOPEN;
    }
    memcpy(out, path, n + 1);
    return SQLITE_OK;
}

static int sqlite_ready = SQLITE_ERROR; /* written once, by prepare_sqlite */
static pthread_once_t sqlite_once = PTHREAD_ONCE_INIT;

static void prepare_sqlite(void)
{
    static const sqlite3_mem_methods memory = {db_malloc,  db_free,        db_realloc,    db_size,
                                               db_roundup, db_memory_init, db_memory_end, NULL};
    static sqlite3_vfs vfs;                              /* SQLite keeps it */
    (void)sqlite3_config(SQLITE_CONFIG_MALLOC, &memory); /* refused where the program uses SQLite already */
    sqlite_ready = sqlite3_initialize();
    const sqlite3_vfs *unix_vfs = sqlite_ready == SQLITE_OK ? sqlite3_vfs_find("unix") : NULL;
    if (unix_vfs) {
        vfs = *unix_vfs;
        vfs.zName = VFS_NAME;
        vfs.xFullPathname = full_path;
        sqlite_ready = sqlite3_vfs_register(&vfs, 0);
    }
}

/*
 * Results
 */
static status status_of(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return ST_OK;
    case SQLITE_NOMEM:
        return ST_NOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
        return ST_CAPACITY;
    case SQLITE_FULL:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return ST_IO;
    case SQLITE_IOERR:
        return rc == SQLITE_IOERR_NOMEM ? ST_NOMEM : ST_IO;
    case SQLITE_READONLY:
        return rc == SQLITE_READONLY_DBMOVED ? ST_BAD_FORMAT : ST_IO;
    default:
        return ST_BAD_FORMAT;
    }
}

static status failed(store_index *ix, int rc, err *e)
{
    status st = err_set(e, status_of(rc), NULL, NAME ": %s (%d)", sqlite3_errstr(rc), rc);
    store_index_rollback(ix);
    return st;
}

/* One step of a statement that was bound; *rc tells whether there is a row. */
static status step(store_index *ix, int which, int *rc, err *e)
{
    *rc = sqlite3_step(ix->stmts[which]);
    if (*rc == SQLITE_ROW || *rc == SQLITE_DONE) {
        return ST_OK;
    }
    sqlite3_reset(ix->stmts[which]);
    return failed(ix, *rc, e);
}

static status run(store_index *ix, int which, err *e)
{
    int rc;
    status st;
    do {
        st = step(ix, which, &rc, e);
    } while (st == ST_OK && rc == SQLITE_ROW);
    sqlite3_reset(ix->stmts[which]);
    return st;
}

static void bind_key(store_index *ix, int which, int at, const store_key *key)
{
    sqlite3_bind_blob(ix->stmts[which], at, key->bytes, sizeof key->bytes,
                      SQLITE_STATIC); /* bound anew each time */
}

static void bind_number(store_index *ix, int which, int at, int64_t n)
{
    sqlite3_bind_int64(ix->stmts[which], at, n);
}

/* false: whoever made this file made it differently. */
static bool key_of_column(sqlite3_stmt *s, int column, store_key *out)
{
    const void *bytes = sqlite3_column_blob(s, column);
    if (!bytes || sqlite3_column_bytes(s, column) != (int)sizeof out->bytes) {
        return false;
    }
    memcpy(out->bytes, bytes, sizeof out->bytes);
    return true;
}

/*
 * Opening
 */
/* After the n-th try; false: it was the last. */
static bool wait_more(const store_patience *patience, int n)
{
    const struct timespec pause = {0, PAUSE_NS};
    if (n >= OPEN_BUSY_MS / (PAUSE_NS / 1000000) || patience->is_over(patience->ctx)) {
        return false;
    }
    (void)nanosleep(&pause, NULL);
    return true;
}

static int on_busy(void *patience, int n)
{
    return wait_more(patience, n);
}

static bool take_lock(int fd, const store_patience *patience)
{
    int n = 0;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (!wait_more(patience, n++)) {
            return false;
        }
    }
    return true;
}

static uint64_t read_generation(int fd)
{
    uint64_t n = 0;
    return pread(fd, &n, sizeof n, 0) == (ssize_t)sizeof n ? n : 0;
}

static status open_lock(store_index *ix, int dir_fd, const store_patience *patience, err *e)
{
    ix->lock_fd = openat(dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (ix->lock_fd < 0) {
        return err_set(e, ST_IO, NULL, "cannot open " LOCK_NAME ": %s", strerror(errno));
    }
    if (!take_lock(ix->lock_fd, patience)) {
        return err_set(e, ST_IO, NULL, LOCK_NAME " is held by somebody");
    }
    ix->generation = read_generation(ix->lock_fd);
    return ST_OK;
}

static status remove_old(int dir_fd, err *e)
{
    static const char *const names[] = {NAME "-wal", NAME "-shm", NAME "-journal", NAME};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (unlinkat(dir_fd, names[i], 0) != 0 && errno != ENOENT) {
            return err_set(e, ST_IO, NULL, "cannot remove %s: %s", names[i], strerror(errno));
        }
    }
    return ST_OK;
}

/* Whoever has another one open sees it. */
static status count_generation(store_index *ix, err *e)
{
    ix->generation++;
    return pwrite(ix->lock_fd, &ix->generation, sizeof ix->generation, 0) == (ssize_t)sizeof ix->generation
               ? ST_OK
               : err_set(e, ST_IO, NULL, "cannot write " LOCK_NAME ": %s", strerror(errno));
}

static status exec(store_index *ix, const char *text, err *e)
{
    int rc = sqlite3_exec(ix->db, text, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ST_OK : failed(ix, rc, e);
}

/* The first column of the first row, as a number; ST_BAD_FORMAT if there is none. */
static status ask(store_index *ix, const char *text, int64_t *out, err *e)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(ix->db, text, -1, &s, NULL);
    rc = rc == SQLITE_OK ? sqlite3_step(s) : rc;
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(s, 0);
    }
    sqlite3_finalize(s);
    return rc == SQLITE_ROW ? ST_OK : failed(ix, rc == SQLITE_DONE ? SQLITE_CORRUPT : rc, e);
}

static status check_version(store_index *ix, bool *empty, err *e)
{
    int64_t application = 0, version = 0, things = 0, sound = 0;
    status st = ask(ix, "PRAGMA application_id", &application, e);
    st = st == ST_OK ? ask(ix, "PRAGMA user_version", &version, e) : st;
    st = st == ST_OK ? ask(ix, "SELECT count(*) FROM sqlite_schema", &things, e) : st;
    st = st == ST_OK ? ask(ix, "SELECT quick_check = 'ok' FROM pragma_quick_check(1)", &sound, e) : st;
    if (st != ST_OK) {
        return st;
    }
    *empty = application == 0 && version == 0 && things == 0;
    if (!*empty && (application != APPLICATION || version != SCHEMA_VERSION || !sound)) {
        return err_set(e, ST_BAD_FORMAT, NULL, NAME " is %s", sound ? "of another version" : "damaged");
    }
    return ST_OK;
}

static status prepare_all(store_index *ix, err *e)
{
    for (int i = 0; i < N_SQL; i++) {
        int rc = sqlite3_prepare_v3(ix->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &ix->stmts[i], NULL);
        if (rc != SQLITE_OK) {
            return failed(ix, rc, e);
        }
    }
    return ST_OK;
}

static status open_database(store_index *ix, const char *dir, store_patience patience, bool *empty, err *e)
{
    char path[PATH_BYTES];
    int keep = 1, n = snprintf(path, sizeof path, "%s/" NAME, dir);
    if (n < 0 || n >= (int)sizeof path) {
        return err_set(e, ST_IO, NULL, "the path of " NAME " is too long");
    }
    int rc = sqlite3_open_v2(path, &ix->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                             VFS_NAME);
    if (rc != SQLITE_OK) {
        return failed(ix, rc, e);
    }
    sqlite3_extended_result_codes(ix->db, 1);
    sqlite3_busy_handler(ix->db, on_busy, &patience);
    /* The last one who closes would remove the -wal by its name, which may be that of the next generation. */
    sqlite3_file_control(ix->db, NULL, SQLITE_FCNTL_PERSIST_WAL, &keep);
    status st = exec(ix, settings, e);
    st = st == ST_OK ? check_version(ix, empty, e) : st;
    if (st == ST_OK && *empty) {
        st = exec(ix, "BEGIN IMMEDIATE", e);
        st = st == ST_OK ? exec(ix, schema, e) : st;
        st = st == ST_OK ? exec(ix, "COMMIT", e) : st;
    }
    st = st == ST_OK ? prepare_all(ix, e) : st;
    sqlite3_busy_timeout(ix->db, BUSY_MS);
    return st;
}

status store_index_open(const char *dir, int dir_fd, bool fresh, const store_patience *patience,
                        store_index **out, bool *made, err *e)
{
    store_index *ix = mem_calloc(1, sizeof *ix);
    if (!ix || pthread_once(&sqlite_once, prepare_sqlite) != 0 || sqlite_ready != SQLITE_OK) {
        mem_free(ix);
        return err_set(e, ST_NOMEM, NULL, "cannot make SQLite ready");
    }
    bool empty = false;
    status st = open_lock(ix, dir_fd, patience, e);
    st = st == ST_OK && fresh ? remove_old(dir_fd, e) : st;
    st = st == ST_OK ? open_database(ix, dir, *patience, &empty, e) : st;
    st = st == ST_OK && empty ? count_generation(ix, e) : st;
    if (st != ST_OK) {
        store_index_close(ix);
        return st;
    }
    (void)flock(ix->lock_fd, LOCK_UN);
    *out = ix;
    *made = empty;
    return ST_OK;
}

void store_index_close(store_index *ix)
{
    if (!ix) {
        return;
    }
    for (int i = 0; i < N_SQL; i++) {
        sqlite3_finalize(ix->stmts[i]);
    }
    sqlite3_close(ix->db);
    if (ix->lock_fd >= 0) {
        close(ix->lock_fd); /* and gives the lock back */
    }
    mem_free(ix);
}

bool store_index_is_stale(const store_index *ix)
{
    return read_generation(ix->lock_fd) != ix->generation;
}

/*
 * Use
 */
status store_index_begin(store_index *ix, err *e)
{
    return run(ix, SQL_BEGIN, e);
}

status store_index_commit(store_index *ix, err *e)
{
    return run(ix, SQL_COMMIT, e);
}

void store_index_rollback(store_index *ix)
{
    if (ix->db && !sqlite3_get_autocommit(ix->db) && ix->stmts[SQL_ROLLBACK]) {
        (void)sqlite3_step(
            ix->stmts[SQL_ROLLBACK]); /* what cannot be taken back is taken back by whoever opens it next */
        sqlite3_reset(ix->stmts[SQL_ROLLBACK]);
    }
}

status store_index_totals_read(store_index *ix, store_index_totals *out, err *e)
{
    int rc;
    sqlite3_stmt *s = ix->stmts[SQL_TOTALS];
    status st = step(ix, SQL_TOTALS, &rc, e);
    if (st != ST_OK) {
        return st;
    }
    if (rc == SQLITE_ROW) {
        out->files = (uint64_t)sqlite3_column_int64(s, 0);
        out->bytes = (uint64_t)sqlite3_column_int64(s, 1);
        out->day = sqlite3_column_int64(s, 2);
        out->day_bytes = (uint64_t)sqlite3_column_int64(s, 3);
    }
    sqlite3_reset(s);
    return rc == SQLITE_ROW ? ST_OK : failed(ix, SQLITE_CORRUPT, e);
}

status store_index_has(store_index *ix, const store_key *key, err *e)
{
    int rc;
    bind_key(ix, SQL_HAS, 1, key);
    status st = step(ix, SQL_HAS, &rc, e);
    sqlite3_reset(ix->stmts[SQL_HAS]);
    return st != ST_OK ? st : rc == SQLITE_ROW ? ST_OK : err_set(e, ST_NOT_FOUND, NULL, "it is not in " NAME);
}

static status next_tick(store_index *ix, int64_t now_ms, int64_t *out, err *e)
{
    int rc;
    bind_number(ix, SQL_TICK, 1, now_ms);
    status st = step(ix, SQL_TICK, &rc, e);
    if (st != ST_OK) {
        return st;
    }
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(ix->stmts[SQL_TICK], 0);
        return run(ix, SQL_TICK, e);
    }
    sqlite3_reset(ix->stmts[SQL_TICK]);
    return failed(ix, SQLITE_CORRUPT, e);
}

status store_index_add(store_index *ix, const store_key *key, const store_key *parent, uint64_t bytes,
                       int64_t used_ms, int64_t now_ms, err *e)
{
    int64_t used = used_ms;
    status st = used_ms ? ST_OK : next_tick(ix, now_ms, &used, e);
    if (st != ST_OK) {
        return st;
    }
    bind_key(ix, SQL_ADD, 1, key);
    bind_key(ix, SQL_ADD, 2, parent);
    bind_number(ix, SQL_ADD, 3, (int64_t)bytes);
    bind_number(ix, SQL_ADD, 4, used);
    return run(ix, SQL_ADD, e);
}

status store_index_use(store_index *ix, const store_key *keys, size_t n, int64_t now_ms, err *e)
{
    int64_t used = 0;
    status st = store_index_begin(ix, e);
    st = st == ST_OK ? next_tick(ix, now_ms, &used, e) : st;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        bind_key(ix, SQL_USE, 1, &keys[i]);
        bind_number(ix, SQL_USE, 2, used);
        st = run(ix, SQL_USE, e);
    }
    return st == ST_OK ? store_index_commit(ix, e) : st;
}

status store_index_remove(store_index *ix, const store_key *key, err *e)
{
    bind_key(ix, SQL_REMOVE, 1, key);
    return run(ix, SQL_REMOVE, e);
}

status store_index_victim(store_index *ix, const store_key *except, store_key *out, err *e)
{
    int rc;
    bool ok = false;
    bind_key(ix, SQL_VICTIM, 1, except);
    status st = step(ix, SQL_VICTIM, &rc, e);
    if (st != ST_OK) {
        return st;
    }
    if (rc == SQLITE_ROW) {
        ok = key_of_column(ix->stmts[SQL_VICTIM], 0, out);
    }
    sqlite3_reset(ix->stmts[SQL_VICTIM]);
    if (rc != SQLITE_ROW) {
        return err_set(e, ST_NOT_FOUND, NULL, "there is no file left to remove");
    }
    return ok ? ST_OK : failed(ix, SQLITE_CORRUPT, e);
}

status store_index_spend(store_index *ix, int64_t day, uint64_t bytes, err *e)
{
    bind_number(ix, SQL_SPEND, 1, day);
    bind_number(ix, SQL_SPEND, 2, (int64_t)bytes);
    return run(ix, SQL_SPEND, e);
}

status store_index_since(store_index *ix, int64_t *seq, void (*each)(void *ctx, const store_key *key),
                         void *ctx, err *e)
{
    int rc = SQLITE_DONE;
    store_key key;
    sqlite3_stmt *s = ix->stmts[SQL_SINCE];
    bind_number(ix, SQL_SINCE, 1, *seq);
    status st = step(ix, SQL_SINCE, &rc, e);
    while (st == ST_OK && rc == SQLITE_ROW) {
        if (!key_of_column(s, 1, &key)) {
            sqlite3_reset(s);
            return failed(ix, SQLITE_CORRUPT, e);
        }
        *seq = sqlite3_column_int64(s, 0);
        each(ctx, &key);
        st = step(ix, SQL_SINCE, &rc, e);
    }
    sqlite3_reset(s);
    return st;
}

status store_index_recount(store_index *ix, err *e)
{
    status st = store_index_begin(ix, e);
    st = st == ST_OK ? run(ix, SQL_RECOUNT_KIDS, e) : st;
    st = st == ST_OK ? run(ix, SQL_RECOUNT, e) : st;
    return st == ST_OK ? store_index_commit(ix, e) : st;
}
