/* SPDX-License-Identifier: MIT
 * The door of import/, files of other programs: CSV, JSON, traces. */
#ifndef PIPEC_IMPORT_H
#define PIPEC_IMPORT_H

#include "orders.h"

/* ---- csv.c: reads a file of PyTorch. Ensures what expand does, and lists for compute_comms
 * ---- */
bool is_csv(const Options *o);
bool read_csv(Sched *s, Expanded *e);
/* ---- read_json.c: reads what --emit=json writes. Ensures what expand does ---- */
bool is_json(const Options *o);
bool read_json(Sched *s, Expanded *e);
/* ---- read_trace.c: reads what a run of the program measured (--with). False: reported ---- */
bool read_trace(Sched *s, Measured *to);

#endif
