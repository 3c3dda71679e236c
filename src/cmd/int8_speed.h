/*
 * int8_speed: how many int8 operations a second the best instruction of a set does here (kern_table.int8_rate),
 * measured now: what bounds reading a prompt. One call at a time.
 */
#ifndef HEARTH_CMD_INT8_SPEED_H
#define HEARTH_CMD_INT8_SPEED_H

#include "base/pool.h"
#include "kern/kern.h"

/* 10^12 operations a second, two per multiply-add, with all threads of p for about 20 ms; 0 if the set has no
 * such instruction. */
double int8_speed_pass(pool *p, const kern_table *kern);

#endif
