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

/* Checks that the events of the rank cover every wait of its instructions. Engines whose streams
 * wait for counts run programs without events; engines with events call this. Requires a valid
 * program. */
PrStatus pipe_validate_events(const PipeProgram *p, uint32_t rank, char *text, size_t room);

/* Tracks which instructions of other streams each stream knows to have ended, while the caller
 * walks the list of a rank from the top: pr_events_row before each row, pr_events_done after it.
 * The caller always calls pr_events_end, also after a failure. */
typedef struct PrEvents PrEvents;
PrStatus pr_events_begin(const PipeProgram *p, uint32_t rank, char *text, size_t room,
                         PrEvents **out);
PrStatus pr_events_row(PrEvents *e, uint32_t row);
PrStatus pr_events_done(PrEvents *e, uint32_t row);
void pr_events_end(PrEvents *e);
/* True if `row`, when it starts, knows that the first `count` instructions of stream `on` have
 * ended. For COMM with lowering CHANNELS: that the last of these `count` instructions has ended. */
bool pr_events_know(const PrEvents *e, uint32_t row, PipeOn on, uint32_t count);

#endif
