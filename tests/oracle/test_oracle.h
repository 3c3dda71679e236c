/*
 * The test program's parts: cmocka tests of the other files, listed in test_oracle.c.
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include "oracle.h"

/* test_oracle_model.c */
void test_paper_model(void **state);
void test_open_refuses(void **state);
void test_quantised_model(void **state);

/* test_oracle_fixtures.c */
void find_fixtures(void); /* once, before any test: HEARTH_FIXTURES, or HEARTH_ROOT/../shared/fixtures */
void test_arch_fixtures(void **state);
void test_arch_refused(void **state);
void test_stories_nll(void **state);
void test_quant_fixtures(void **state);

#endif
