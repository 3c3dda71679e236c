/*
 * test_main: cmocka and what its header asks for, in the right order.
 */
#ifndef HEARTH_TESTS_ENGINE_TEST_MAIN_H
#define HEARTH_TESTS_ENGINE_TEST_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
