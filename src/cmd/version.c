#include <stdio.h>

#include "base/buf.h"
#include "base/json.h"
#include "cmd/answer.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "kern/kern.h"

static void print_people(void)
{
    printf("hearth %s, numerics version %d, kernels built in:", HEARTH_VERSION, NUMERICS_VERSION);
    for (kern_set s = KERN_REF; s < KERN_SET_COUNT; s++) {
        if (kern_set_built(s)) {
            printf(" %s", kern_set_name(s));
        }
    }
    putchar('\n');
}

static int print_json(void)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    json_w_key(&w, "version");
    json_w_cstr(&w, HEARTH_VERSION);
    json_w_key(&w, "numerics_version");
    json_w_i64(&w, NUMERICS_VERSION);
    json_w_key(&w, "kernels");
    json_w_arr_open(&w);
    for (kern_set s = KERN_REF; s < KERN_SET_COUNT; s++) {
        if (kern_set_built(s)) {
            json_w_cstr(&w, kern_set_name(s));
        }
    }
    json_w_arr_close(&w);
    json_w_obj_close(&w);
    return answer_json(&w, &out);
}

int cmd_version(int argc, char **argv)
{
    bool as_json = false;
    const cli_arg table[] = {{"json", 0, ARG_FLAG, &as_json, 0, 0, "print one JSON object"}};
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "version [--json]", table, 1, pos, 0, &n_pos, &rc)) {
        return rc;
    }
    if (as_json) {
        return print_json();
    }
    print_people();
    return EXIT_OK;
}
