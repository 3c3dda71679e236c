#include "serve/models.h"

#include <string.h>

#include "base/mem.h"
#include "serve/serve.h"

struct models {
    size_t n;
    service_config *configs;  /* owned */
    model_service **services; /* owned, and each of them */
};

status models_open(struct event_base *base, const serve_config *cfg, const clock_src *clock,
                   void (*changed)(void *ctx, model_service *s), void *ctx, models **out, err *e)
{
    models *m = mem_calloc(1, sizeof *m);
    if (!m) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    m->n = 0; /* so many are open */
    m->configs = mem_calloc(cfg->n_models, sizeof *m->configs);
    m->services = mem_calloc(cfg->n_models, sizeof *m->services);
    if (!m->configs || !m->services) {
        models_free(m);
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < cfg->n_models; i++) {
        m->configs[i] = (service_config){.id = cfg->models[i].id,
                                         .argv = cfg->models[i].worker_argv,
                                         .limits = cfg->limits,
                                         .clock = clock,
                                         .changed = changed,
                                         .ctx = ctx};
        st = service_open(base, &m->configs[i], &m->services[i], e);
        m->n += st == ST_OK;
    }
    if (st != ST_OK) {
        models_free(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

void models_free(models *m)
{
    if (!m) {
        return;
    }
    for (size_t i = 0; i < m->n; i++) {
        service_free(m->services[i]);
    }
    mem_free(m->services);
    mem_free(m->configs);
    mem_free(m);
}

void models_start(models *m)
{
    for (size_t i = 0; i < m->n; i++) {
        service_start(m->services[i]);
    }
}

size_t models_count(const models *m)
{
    return m->n;
}

model_service *models_at(models *m, size_t i)
{
    return m->services[i];
}

model_service *models_find(models *m, const char *name)
{
    if (!name || name[0] == '\0') {
        return m->services[0];
    }
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(service_id(m->services[i]), name) == 0) {
            return m->services[i];
        }
    }
    return NULL;
}

void models_drain(models *m)
{
    for (size_t i = 0; i < m->n; i++) {
        service_drain(m->services[i]);
    }
}

void models_cut(models *m)
{
    for (size_t i = 0; i < m->n; i++) {
        service_cut(m->services[i]);
    }
}

bool models_stopped(const models *m)
{
    for (size_t i = 0; i < m->n; i++) {
        if (!service_stopped(m->services[i])) {
            return false;
        }
    }
    return true;
}
