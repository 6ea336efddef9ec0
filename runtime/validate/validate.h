/* SPDX-License-Identifier: MIT
 * The validator of emitted tables. pr_open calls it before a run, and pipec in every compile
 * (check_tables). It reads only tables; runtime/core/model.c checks whether a model fits a program.
 *
 * Ensures that a valid program accesses no memory outside its slots and has no race within a rank:
 * every index is in range, every slot has the size of its tensors, each (stage, mb) has its ops in
 * order, and the waits guarantee that a slot is full before it is read and has been read before it
 * is filled again. Two ranks can still deadlock or exchange different tensors: the compiler proves
 * that they do not, and engines detect it.
 *
 * Requires valid pointers to arrays of the stated lengths; it does not check them. */
#ifndef PIPE_VALIDATE_H
#define PIPE_VALIDATE_H

#include <stdbool.h>
#include <stddef.h>

#include "pipe_run.h"

/* Validates p. PR_OK; or PR_E_ARG, or PR_E_MEMORY if the validator itself has no memory, with the
 * reason in text[room]. Time and memory are linear in instructions, slots and (stage, mb) pairs. */
PrStatus pipe_validate(const PipeProgram *p, char *text, size_t room);

/* Tracks which rows of a rank are over when a row starts (validate_waits.c), while the caller walks
 * its list from the top: pr_clocks_row before each row, pr_clocks_done after it. Requires tables of
 * the stated lengths; checks the waits and their order. The caller always calls pr_clocks_end, also
 * after a failure. */
typedef struct PrClocks PrClocks;
PrStatus pr_clocks_begin(const PipeProgram *p, uint32_t rank, char *text, size_t room,
                         PrClocks **out);
PrStatus pr_clocks_row(PrClocks *clocks, uint32_t row);
PrStatus pr_clocks_done(PrClocks *clocks, uint32_t row);
void pr_clocks_end(PrClocks *clocks);
/* True if row `above` is over when `row`, the current one, starts. */
bool pr_clocks_over(const PrClocks *clocks, uint32_t row, uint32_t above);

#endif
