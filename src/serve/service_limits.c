/* model_service: what it is told, and what it tells. */
#include "serve/model_service.h"

service_limits service_limits_default(void)
{
    return (service_limits){.max_waiting = 256,
                            .max_waiting_bytes = (size_t)256 << 20,
                            .max_light_bytes = (size_t)16 << 20,
                            .stall_ms = 30000,
                            .cancel_grace_ms = 2000,
                            .steady_ms = 10000,
                            .stop_grace_ms = 700,
                            .tick_ms = 100,
                            .max_respawns = 5};
}

const char *worker_cause_label(worker_cause c)
{
    static const char *const labels[] = {
#define X(name, label) label,
        WORKER_CAUSE_LIST(X)
#undef X
    };
    return labels[c];
}
