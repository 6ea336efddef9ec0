/* SPDX-License-Identifier: MIT
 * Versions of the weights that are read by number, for every M (clock_of_m.c, note [clock]): how many updates of its stage
 * stand before an op is linear in j and n, and so is the number that its line asks for, in parts of a run of turns
 * where the choices that the line makes differ. Linear in rows times lines times such parts. */
#include "clock_of_m.h"

enum { MOST_PARTS = 8 };

typedef struct Reader { /* an op of a list */
  const ListRow *o;
  int kind;     /* whose lines count for it */
  Affine had;   /* updates of its stage before it */
  int64_t ring; /* versions that its stage keeps; 0: all that are read */
} Reader;

static bool lines_of(const Sched *s, int kind) {
  for (uint32_t i = 0; i < s->model->nwline; i++)
    if (s->model->wline[i]->word == WW_READS && s->model->wline[i]->kind == kind)
      return true;
  return false;
}

/* The line that says what an op of a row of that kind reads at this microbatch, bound to it; NULL: none. */
static bool reading_line(Proof *p, const ListRow *o, int kind, Affine mb, const WeightLine **line) {
  const Sched *s = p->s;
  *line = NULL;
  for (uint32_t i = 0; i < s->model->nwline && !*line; i++) {
    const WeightLine *l = s->model->wline[i];
    bool holds = true;
    if (l->word != WW_READS || l->kind != kind)
      continue;
    if (l->clause->var)
      affine_bind(p->x, l->clause->slot, affine(s->model->stage[o->stage].model));
    if (l->clause->mb_var)
      affine_bind(p->x, l->clause->mb_slot, mb);
    if (l->when && !affine_truth(p->x, l->when, &holds))
      return false;
    if (holds)
      *line = l;
  }
  return true;
}

/* Whose lines say what a run reads (weights.c): I that has none those of B, R that has none those of its backward. */
static bool find_kind(Proof *p, const Run *x, int *kind) {
  const ListRow *o = row_at(p, x);
  bool of_i = lines_of(p->s, PIPE_I);
  *kind = o->kind;
  if (*kind == PIPE_R && !lines_of(p->s, PIPE_R)) {
    *kind = PIPE_B;
    if (!of_i)
      return true;
    const Runs *b = proof_family(p, o->stage, OF_B);
    Serving k = {0};
    uint32_t nb = 0, ni = 0;
    while (proof_next(p, b, x, 0, &k)) {
      nb += row_at(p, k.run)->kind == PIPE_B;
      ni += row_at(p, k.run)->kind == PIPE_I;
    }
    if (k.failed)
      return false;
    if (nb && ni)
      return proof_no(p, o, "what R reads depends on whether a B or an I comes after it");
    *kind = ni ? PIPE_I : PIPE_B;
  }
  if (*kind == PIPE_I && !of_i)
    *kind = PIPE_B;
  return true;
}

static bool must(Proof *p, const ListRow *o, Affine v) {
  bool yes;
  return affine_at_least_0(p->x, o->at, v, &yes) &&
         (yes || proof_no(p, o, "for some M it reads a version that is not there"));
}

/* Of turns j of a row, before which there were so many updates and whose version is given by number, or by that of its F:
 * they are there, and the ring has not lost them. */
static bool reads_version(Proof *p, const Reader *r, Affine unit, Affine updates) {
  const WeightLine *l;
  const ListRow *o = r->o;
  Affine mb, version;
  int64_t slice;
  if (!affine_divide(p->x, unit, p->s->model->slices, &mb, &slice) ||
      !reading_line(p, o, r->kind, mb, &l))
    return false;
  if (l && l->source == WS_FORWARD && o->kind != PIPE_F && !reading_line(p, o, PIPE_F, mb, &l))
    return false;
  if (!l || l->source != WS_VALUE)
    return true; /* the newest; or that of its F, see reads_as_forward */
  if (!affine_eval(p->x, l->value, &version))
    return false;
  return must(p, o, version) && must(p, o, affine_sum(updates, version, -1)) &&
         (r->ring == 0 ||
          must(p, o, affine_sum(affine_sum(version, updates, -1), affine(r->ring - 1), 1)));
}

/* The same of all turns from .. from + turns + by_n * n - 1, in parts where the choices that they make differ. */
static bool reads_in_turns(Proof *p, const Reader *r, Affine from, Affine turns, int depth) {
  AffineEnv *x = p->x;
  const ListRow *o = r->o;
  Affine unit = affine_sum(o->unit, from, o->unit.j), updates = affine_sum(r->had, from, r->had.j);
  if (turns.n == 0) {
    for (int64_t j = 0; j < turns.a; j++)
      if (!reads_version(p, r, (Affine){unit.a + unit.j * j, unit.n, 0},
                         (Affine){updates.a + updates.j * j, updates.n, 0}))
        return false;
    return true;
  }
  if (turns.a < 1)
    return affine_fail(x, AFFINE_BASE, 0);
  x->turns = turns.a, x->by_n = turns.n;
  bool ok = reads_version(p, r, unit, updates);
  x->turns = x->by_n = 0;
  if (ok || x->fail != AFFINE_CROSS)
    return ok;
  Affine at = x->cross;
  if (depth == 0)
    return false;
  x->fail = AFFINE_OK;
  return must(p, o, at) && must(p, o, affine_sum(turns, at, -1)) &&
         reads_in_turns(p, r, from, at, depth - 1) &&
         reads_in_turns(p, r, affine_sum(from, at, 1), affine_sum(turns, at, -1), depth - 1);
}

/* May an op of this kind read the version that its F has read as the newest? */
static bool may_read_as_forward(const Sched *s, int kind) {
  bool forward = false, newest = false, always = false;
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    const WeightLine *l = s->model->wline[i];
    if (l->word != WW_READS)
      continue;
    forward |= l->kind == kind && l->source == WS_FORWARD;
    newest |= l->kind == PIPE_F && l->source != WS_VALUE;
    always |= l->kind == PIPE_F && !l->when;
  }
  return forward && (newest || !always);
}

/* A ring keeps the newest version that an F has read until its backward has read it, too. */
static bool reads_as_forward(Proof *p, const Run *x, int64_t ring) {
  const Runs *f = proof_family(p, row_at(p, x)->stage, OF_F);
  Serving k = {0};
  while (proof_next(p, f, x, 0, &k))
    for (int i = 0; i < 2; i++) {
      Affine at_f = proof_updates_at(p, k.run, k.end[i]), at_x = proof_updates_at(p, x, k.end[i]);
      if (!must(p, row_at(p, x), affine_sum(affine_sum(at_f, at_x, -1), affine(ring - 1), 1)))
        return false;
    }
  return !k.failed;
}

static bool reads_of_row(Proof *p, uint32_t rank, uint32_t segment, uint32_t row,
                         const WeightLine *kept) {
  const ListSegment *g = &p->l->rank[rank].segment.at[segment];
  Reader r = {.o = &p->l->rank[rank].row.at[row], .had = p->updates[rank][row]};
  Run run;
  if (kept && kept->clause->var)
    affine_bind(p->x, kept->clause->slot, affine(p->s->model->stage[r.o->stage].model));
  return (!kept || affine_number(p->x, kept->value, &r.ring)) &&
         proof_run_of_units(p, rank, segment, row, &run) && find_kind(p, &run, &r.kind) &&
         reads_in_turns(p, &r, affine(0), (Affine){g->turns, g->by_n, 0}, MOST_PARTS) &&
         (!r.ring || r.o->kind == PIPE_F || !may_read_as_forward(p->s, r.kind) ||
          reads_as_forward(p, &run, r.ring));
}

bool versions_of_m(Proof *p) {
  const Sched *s = p->s;
  bool numbers = false;
  const WeightLine *per = NULL;
  const WeightLine *kept = NULL; /* there is no more than one: it has no `when` */
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    numbers |= s->model->wline[i]->value != NULL;
    per = s->model->wline[i]->per ? s->model->wline[i] : per;
    if (s->model->wline[i]->word == WW_VERSIONS)
      kept = s->model->wline[i];
  }
  if (!numbers)
    return true;
  if (per)
    return affine_no(p->x, per->per->at, "its ops share what they read (per)");
  for (uint32_t r = 0; r < p->l->nrank; r++)
    for (uint32_t i = 0; i < p->l->rank[r].segment.n; i++) {
      const ListSegment *g = &p->l->rank[r].segment.at[i];
      for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++) {
        int kind = p->l->rank[r].row.at[k].kind;
        if (kind == PIPE_U || kind == PIPE_W || reads_of_row(p, r, i, k, kept))
          continue;
        if (p->x->fail == AFFINE_TURN) /* all segments must be so much longer */
          p->l->pace *= p->x->need, p->x->fail = AFFINE_STEP, p->x->need = 1;
        return false;
      }
    }
  return true;
}

/* ---- numbers of formulas ---- */

/* Does the number of updates between the F of what x is of and x grow with n? */
static bool grows_late(Proof *p, const Run *x) {
  Serving k = {0};
  while (proof_next(p, proof_family(p, row_at(p, x)->stage, OF_F), x, 0, &k))
    for (int i = 0; i < 2; i++)
      p->l->late |= proof_updates_at(p, k.run, k.end[i]).n != proof_updates_at(p, x, k.end[i]).n;
  return !k.failed;
}

/* Do updates of a rank apply more gradients the larger n is? slope, has: [nstage], 0 */
static void grow_applied(Proof *p, uint32_t r, int64_t *slope, bool *has) {
  const RankList *l = &p->l->rank[r];
  for (uint32_t i = 0; i < l->segment.n; i++) {
    const ListSegment *g = &l->segment.at[i];
    const ListRow *first = &l->row.at[g->row0], *end = first + g->nrow;
    for (const ListRow *o = first; o < end; o++)
      has[o->stage] |= o->kind == PIPE_U;
    for (const ListRow *o = first; o < end; o++)
      if (o->kind == PIPE_U)
        p->l->applied |= slope[o->stage] != 0, slope[o->stage] = 0;
      else if ((o->kind == PIPE_B || o->kind == PIPE_W) && !has[o->stage])
        slope[o->stage] += g->by_n;
    for (const ListRow *o = first; o < end; o++)
      has[o->stage] = false;
  }
}

bool delays_of_m(Proof *p) {
  const Sched *s = p->s;
  bool formulas = false;
  int64_t *slope = NEW_ARRAY(p->a, int64_t, s->model->nstage + (size_t)1);
  bool *has = NEW_ARRAY(p->a, bool, s->model->nstage + (size_t)1), ok = true;
  p->l->late = p->l->applied = false;
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    formulas |= s->model->wline[i]->formula != NULL;
    p->l->late |= s->model->wline[i]->per ||
                  s->model->wline[i]->value; /* other versions than the newest: not looked at */
  }
  for (uint32_t r = 0; r < p->l->nrank && formulas; r++) {
    const RankList *l = &p->l->rank[r];
    grow_applied(p, r, slope, has);
    for (uint32_t i = 0; i < l->segment.n && !p->l->late; i++)
      for (uint32_t k = l->segment.at[i].row0;
           k < l->segment.at[i].row0 + l->segment.at[i].nrow && ok; k++) {
        Run run;
        int kind = l->row.at[k].kind;
        if (kind == PIPE_B || kind == PIPE_I || kind == PIPE_W || kind == PIPE_R)
          ok = proof_run_of_units(p, r, i, k, &run) && grows_late(p, &run);
      }
  }
  return ok;
}
