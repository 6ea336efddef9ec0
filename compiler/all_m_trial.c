/* SPDX-License-Identifier: MIT
 * What is proved for every value of a parameter is held against the text: many values for which nobody has compiled it yet are
 * compiled as far as the orders, by passes that share nothing with the proof, one value after the other and then ones that are
 * further and further apart. A proof is a proof; but if a value contradicts it, it was ours that was wrong, and
 * that value is the verdict. */
#include <inttypes.h>

#include "lists_of_m.h"

enum {
  MOST_CELLS =
      1 << 18, /* microbatches times stages, of all values; half of them for one after the other */
  APART = 16,  /* then a sixteenth further each time */
  STEPS = 100 * 1000 * 1000 /* and no more than these (work.h) */
};

void try_proved(Sched *s, const Param *m) {
  const int64_t by = s->all_m.multiple > 1 ? (int64_t)s->all_m.multiple : 1;
  int64_t left = MOST_CELLS;
  Work *own = s->work, work;
  work_begin(&work, STEPS, false);
  s->work = s->opt->work = &work;
  for (int64_t v = ((int64_t)s->all_m.from + by) / by * by; (left -= v * s->nstage) > 0;
       v += left > MOST_CELLS / 2 ? by : by * (1 + v / by / APART)) {
    Arena arena;
    Diag diag;
    Options opt;
    Sched at;
    bool ok = orders_at(s, &at, &arena, &diag, &opt, m->name, v, false, true);
    arena_free(&arena);
    if (ok || diag.first == DIAG_REQUIRES)
      continue;
    if (work_spent(&work) || diag.first == DIAG_LOOP || diag.first == DIAG_TOO_LARGE)
      break; /* as of larger ones: of these nothing is said */
    s->all_m.proved = false, s->all_m.refuted = true;
    s->all_m.at = s->def->name_at;
    s->all_m.text = arena_printf(s->arena, "refuted at %s = %" PRId64 " [%s]", m->name, v,
                                 diag_name(diag.first));
    break;
  }
  s->work = s->opt->work = own;
}
