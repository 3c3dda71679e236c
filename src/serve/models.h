/*
 * models: the services of the daemon, one per model, by name. The first is the default.
 *
 * Loop thread only. Nothing is evicted: every model keeps its worker.
 */
#ifndef HEARTH_SERVE_MODELS_H
#define HEARTH_SERVE_MODELS_H

#include "serve/model_service.h"

struct serve_config;

typedef struct models models;

/* Opens the services of cfg (borrowed until models_free); `changed` is called for each change of a state. */
status models_open(struct event_base *base, const struct serve_config *cfg, const clock_src *clock,
                   void (*changed)(void *ctx, model_service *s), void *ctx, models **out, err *e);
void models_start(models *m);
void models_free(models *m);

size_t models_count(const models *m); /* >= 1 */
model_service *models_at(models *m, size_t i);
/* NULL or "" = the default; NULL if there is no such. */
model_service *models_find(models *m, const char *name);

void models_drain(models *m);
void models_cut(models *m);
bool models_stopped(const models *m); /* all of them */

#endif
