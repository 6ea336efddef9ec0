/* SPDX-License-Identifier: MIT
 * What is proved for every value of a parameter is held against the text: many values behind those that it begins with are
 * compiled as far as the orders, by passes that share nothing with the proof, one value after the other and then ones that are
 * further and further apart. A proof is a proof; but if a value contradicts it, it was ours that was wrong, and
 * that value is the verdict. */
#include "again.h"
#include "lists_of_m.h"

enum {
  MOST_OPS = 1 << 20,       /* of all values; half of them for one after the other */
  APART = 16,               /* then a sixteenth further each time */
  STEPS = 100 * 1000 * 1000 /* and no more than these (work.h) */
};

void try_proved(Sched *s, const Param *m) {
  const int64_t by = s->all_m.multiple > 1 ? (int64_t)s->all_m.multiple : 1;
  Work *own = s->work, work;
  work_begin(&work, STEPS, false);
  s->work = s->opt->work = &work;
  uint64_t nop = 0;
  for (int64_t v = ((int64_t)s->all_m.from + by) / by * by; nop < MOST_OPS;
       v += nop < MOST_OPS / 2 ? by : by * (1 + v / by / APART)) {
    DiagName why;
    nop += (uint64_t)v; /* one that is not admitted takes some time, too */
    if (!wrong_at(s, m->name, v, &why, &nop))
      continue;
    if (work_spent(&work) || why == DIAG_LOOP || why == DIAG_TOO_LARGE)
      break; /* as of larger ones: of these nothing is said */
    s->all_m.proved = false, s->all_m.refuted = true;
    s->all_m.at = s->parsed->def->name_at;
    s->all_m.text = refuted_text(s, m->name, v, why);
    break;
  }
  s->work = s->opt->work = own;
}
