#include "serve/model_service.h"

service_limits service_limits_default(void)
{
    return (service_limits){.max_waiting = 256,
                            .max_waiting_bytes = (size_t)256 << 20,
                            .stall_ms = 30000,
                            .cancel_grace_ms = 2000,
                            .steady_ms = 10000,
                            .stop_grace_ms = 700,
                            .tick_ms = 100,
                            .max_respawns = 5};
}
