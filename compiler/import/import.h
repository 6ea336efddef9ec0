/* SPDX-License-Identifier: MIT
 * The door of import/: reads CSV and traces. */
#ifndef PIPEC_IMPORT_H
#define PIPEC_IMPORT_H

#include "orders.h"

/* ---- csv.c: reads CSV of PyTorch. Ensures what expand ensures; lists for compute_comms ---- */
bool is_csv(const Options *o);
bool read_csv(Sched *s, Expanded *e);
/* ---- read_trace.c: reads the trace of a run of the program (--with). False: reported ---- */
bool read_trace(Sched *s, Measured *to);

#endif
