#include "worker/greeting.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "wire/frame.h"

#define MODEL_SUFFIX ".gguf"

/* False: too large or in several files; then there is no digest. */
static bool digest_of(const instance *model, char hex[SHA256_HEX_LEN + 1])
{
    uint8_t sum[SHA256_BYTES];
    if (instance_digest(model, sum) != ST_OK) {
        return false;
    }
    hex_encode(sum, sizeof sum, hex);
    return true;
}

/* The model's own name, else the file's. */
static status put_name(buf *name, const char *path, const instance_info *info)
{
    if (info->name[0] != '\0') {
        return buf_append_str(name, info->name);
    }
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    size_t len = strlen(file), suffix = strlen(MODEL_SUFFIX);
    if (len > suffix && strcmp(file + len - suffix, MODEL_SUFFIX) == 0) {
        len -= suffix;
    }
    return buf_append(name, file, len);
}

static frame_sampling sampling_of(const instance_info *info)
{
    const instance_number numbers[FRAME_SAMPLING_COUNT] = {
#define X(name) [FRAME_SAMPLING_##name] = info->name,
        FRAME_SAMPLING_NUMBERS(X)
#undef X
    };
    frame_sampling s = {0};
    for (size_t i = 0; i < FRAME_SAMPLING_COUNT; i++) {
        s.said |= numbers[i].said ? 1u << i : 0;
        s.value[i] = numbers[i].value;
    }
    return s;
}

status greeting_put(buf *out, const char *model_path, const instance *model, int32_t max_sessions,
                    bool supports_cancel)
{
    const instance_info *info = instance_describe(model);
    char digest[SHA256_HEX_LEN + 1];
    buf name = {0};
    status st = put_name(&name, model_path, info);
    frame_ready r = {
        .max_sessions = max_sessions,
        .supports_cancel = supports_cancel,
        .protocol = WIRE_PROTOCOL,
        .pid = getpid(),
        .name = buf_str(&name),
        .arch = info->arch,
        .quant = info->quant,
        .params = info->params,
        .digest = digest_of(model, digest) ? digest : NULL,
        .context_length = info->context,
        .vocab_size = info->n_vocab,
        .sampling = sampling_of(info),
        .kernels = info->kernels,
        .kv_pages = info->kv_pages,
        .kv_page_bytes = info->kv_page_bytes,
    };
    if (st == ST_OK) {
        st = frame_put_ready(out, &r);
    }
    buf_release(&name);
    return st;
}
