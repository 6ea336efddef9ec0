/* SPDX-License-Identifier: MIT
 * The validator of emitted tables. The runtime asks it before a run, pipec in every
 * compile (check_tables). It reads tables and knows no run: whether a model fits a program is
 * runtime/core/model.c.
 *
 * A program that passes runs without touching memory outside its slots and without a race inside
 * a rank: every index is in range, every slot has the size of the tensor put into it, each
 * (stage, mb) has its ops in order, and the waits make sure that a slot is full before it is read
 * and has been read before it is filled again. Two ranks can still stall, or exchange different
 * tensors: the compiler proves that they do not, and engines detect it.
 *
 * Pointers, and the lengths of the arrays behind them, are taken on trust. */
#ifndef PIPE_VALIDATE_H
#define PIPE_VALIDATE_H

#include <stdbool.h>
#include <stddef.h>

#include "pipe_run.h"

/* PR_OK; else PR_E_ARG, or PR_E_MEMORY if the validator itself has no memory, and text[room] says
 * why. Time and memory are linear in instructions, slots and (stage, mb) pairs. */
PrStatus pipe_validate(const PipeProgram *p, char *text, size_t room);

/* Do the events of the rank carry every wait of its instructions? Engines whose streams know counts
 * run programs without events; engines with events ask. Requires a valid program. */
PrStatus pipe_validate_events(const PipeProgram *p, uint32_t rank, char *text, size_t room);

/* What the streams of a rank know of each other while its list is walked from the top: for each row
 * one pr_events_row before it, one pr_events_done after it. pr_events_end in any case. */
typedef struct PrEvents PrEvents;
PrStatus pr_events_begin(const PipeProgram *p, uint32_t rank, char *text, size_t room,
                         PrEvents **out);
PrStatus pr_events_row(PrEvents *e, uint32_t row);
PrStatus pr_events_done(PrEvents *e, uint32_t row);
void pr_events_end(PrEvents *e);
/* Does `row`, when it starts, know that the first `count` instructions of another stream have
 * ended? Of COMM with lowering CHANNELS: that the last of these has. */
bool pr_events_know(const PrEvents *e, uint32_t row, PipeOn on, uint32_t count);

#endif
