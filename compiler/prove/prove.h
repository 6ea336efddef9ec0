/* SPDX-License-Identifier: MIT
 * The door of prove/: deadlock, matching, memory, and the checks of the text. */
#ifndef PIPEC_PROVE_H
#define PIPEC_PROVE_H

#include "lower.h"
#include "machine.h"

/* ---- deadlock.c: requires settle. Proves that the program completes, with rendezvous, untagged
 * FIFO and one comm stream per rank or channel ---- */
bool check_deadlock(const Sched *s);
/* ---- slow_links.c ---- */
/* Warns if the program takes much longer than on an idle network. Requires lower. */
void warn_slow_links(Sched *s);
/* ---- check_match.c: requires prog. Proves FIFO matching on each directed rank pair ---- */
bool check_match(Sched *s);
/* ---- check_channels.c: proves that lists complete and match under opt->model. Ensures
 * least_buffer ---- */
bool check_channels(Sched *s, Verdict *verdict); /* the lists of prog */
/* Orders.lists, and that each tensor is sent and received in time. Ensures the peers of transfers;
 * sets only_lists if the lists complete under opt->model but not under the model of the engines. */
bool prove_lists(Sched *s, Orders *orders, Verdict *verdict);
const char *model_text(Sched *s);
const char *list_text(Sched *s, MachineAt at); /* an instruction of machine_list, in op notation */
const char *buffer_text(Sched *s, uint64_t buffer); /* "2 messages", "1024 B" */
/* ---- check_memory.c: requires slots. Proves that the bytes of each rank fit the limit ---- */
bool check_memory(Sched *s, Verdict *verdict);
/* "0F3: weights 10.0 GiB + ...": the worst moment of a rank and what is alive then. */
const char *memory_sum(Sched *s, uint32_t r);
/* Texts of two sizes; different if the sizes are. */
void bytes_texts(Sched *s, uint64_t a, uint64_t b, const char *text[2]);
/* ---- check_user.c: requires check_memory and lower. Proves the `check` clauses ---- */
bool check_user(Sched *s, Verdict *verdict);
bool quantity(Sched *s, const Expr *call, int64_t *value); /* a builtin of `check`; false:
                                                              reported */

#endif
