/* SPDX-License-Identifier: MIT
 * Rows and loops of rows as C (runtime/include/pipe_rows.h). */
#ifndef PIPEC_EMIT_ROWS_H
#define PIPEC_EMIT_ROWS_H

#include "rows.h"
#include "text.h"

/* Writes one row or LOOP per line, without braces around them. */
void emit_rows(Text *text, const RankRows *rows);

#endif
