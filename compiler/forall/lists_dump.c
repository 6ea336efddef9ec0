/* SPDX-License-Identifier: MIT
 * Text of what each rank does for every M (lists_of_m.h), for --dump-after=check_all_m and for tests that read it. */
#include <inttypes.h>
#include <string.h>

#include "forall.h"
#include "lists_of_m.h"

typedef struct Lines {
  Arena *a;
  VEC(char) text;
} Lines;

static void add(Lines *l, const char *s) {
  for (; *s; s++)
    *vec_push(l->a, &l->text) = *s;
}

static void add_times(Lines *l, int64_t v, const char *name) {
  char buf[32];
  if (v == 0)
    return;
  snprintf(buf, sizeof buf, "%+" PRId64 "%s", v, name);
  add(l, buf);
}

/* "3F12+2n+4j", of a whole U "3U". */
static void add_row(Lines *l, const Sched *s, const ListRow *o) {
  char buf[64];
  snprintf(buf, sizeof buf, "%" PRIu32 "%s", o->stage, pipe_op_info[o->kind].text);
  add(l, buf);
  if (o->whole)
    return;
  snprintf(buf, sizeof buf, "%" PRId64,
           o->kind == PIPE_U ? o->unit.a / s->model->slices : o->unit.a);
  add(l, buf);
  int64_t by = o->kind == PIPE_U ? s->model->slices : 1;
  add_times(l, o->unit.n / by, "n");
  add_times(l, o->unit.j / by, "j");
}

const char *lists_text(Sched *s, const Sched *of, const ListsOfM *lists, int64_t from, int64_t step,
                       const char *before) {
  Lines l = {.a = s->arena};
  char buf[96];
  add(&l, before ? before : "");
  snprintf(buf, sizeof buf, "%s = %" PRId64 "+%" PRId64 "n\n", s->opt->for_all, from, step);
  add(&l, buf);
  for (uint32_t r = 0; r < lists->nrank; r++) {
    const RankList *k = &lists->rank[r];
    snprintf(buf, sizeof buf, "rank %" PRIu32 ":", r);
    add(&l, buf);
    for (uint32_t i = 0; i < k->segment.n; i++) {
      const ListSegment *g = &k->segment.at[i];
      if (g->by_n) {
        snprintf(buf, sizeof buf, " %" PRId64 "%+" PRId64 "n times {", g->turns, g->by_n);
        add(&l, buf);
      }
      for (uint32_t j = g->row0; j < g->row0 + g->nrow; j++) {
        bool first = j == g->row0 || k->row.at[j - 1].group == 0, more = k->row.at[j].group > 0;
        add(&l, !first ? ";" : more ? " (" : " ");
        add_row(&l, of, &k->row.at[j]);
        add(&l, !first && !more ? ")" : "");
      }
      add(&l, g->by_n ? " }" : "");
    }
    add(&l, "\n");
  }
  *vec_push(l.a, &l.text) = 0;
  return l.text.at;
}

void dump_all_m(Sched *s, FILE *f) { fputs(s->all_m.lists ? s->all_m.lists : "(no lists)\n", f); }
