/* SPDX-License-Identifier: MIT
 * --for-all=NAME=LO..HI: compiles every value of a range through all passes: proofs, checks,
 * limits, memory. Requires opt->range; needs no pass. Counts values that the schedule does not
 * admit. The first value that is refuted is compiled once more, for its messages, and ends the run.
 * Cost: linear in what is compiled. */
#include <inttypes.h>
#include <string.h>

#include "base.h"
#include "driver.h"
#include "lower.h"
#include "limit.h"

/* The results of all values so far. */
typedef struct Values {
  Sched *s;
  uint64_t proved, refused; /* values; refused: by `requires` */
  bool sized;
  uint64_t most; /* peak of the rank that needs the most: bytes; without sizes stashes */
  uint32_t rank; /* this rank */
  int64_t at;    /* its value */
  uint32_t ncheck, nlimit;
  const char *why; /* error of the first value that was not admitted */
} Values;

static void begin(const Sched *s, Sched *one, Arena *arena, Diag *diag, Options *opt,
                  int64_t value) {
  *opt = *s->opt;
  *one = (Sched){.arena = arena, .diag = diag, .opt = opt};
  opt->emit = EMIT_NONE, opt->check_only = false, opt->range.n = 0;
  opt->define = arena_alloc(arena, (opt->ndefine + 1) * sizeof *opt->define);
  memcpy(opt->define, s->opt->define, opt->ndefine * sizeof *opt->define);
  opt->define[opt->ndefine++] = (Define){.name = s->opt->range.name, .value = value, .n = 1};
}

static void add(Values *e, const Sched *one, int64_t value) {
  e->proved++;
  e->sized = one->model->sized;
  e->ncheck = one->claims->ncheck, e->nlimit = one->claims->nlimit;
  for (uint32_t r = 0; one->lowered && one->lowered->peak && r < one->model->nrank; r++) {
    const Peak *p = &one->lowered->peak[r];
    uint64_t n = e->sized ? p->bytes[PEAK_total] : p->inflight;
    if (n > e->most)
      e->most = n, e->rank = r, e->at = value;
  }
}

/* Compiles a value. False: it is refuted, reported. */
static bool try_value(Values *e, int64_t value) {
  Arena arena = {0};
  Diag diag;
  Options opt;
  Sched one;
  diag_init(&diag, &arena, NULL);
  begin(e->s, &one, &arena, &diag, &opt, value);
  bool ok = compile_only(&one) && diag.errors == 0, admitted = ok || diag.first != DIAG_REQUIRES;
  if (ok)
    add(e, &one, value);
  if (!admitted && e->refused++ == 0)
    e->why = arena_printf(e->s->arena, "%s", diag.first_text);
  arena_free(&arena);
  if (ok || !admitted)
    return true;
  Diag *said = e->s->diag;
  begin(e->s, &one, e->s->arena, said, &opt, value);
  compile_only(&one);
  if (said->first != DIAG_PARAM)
    diag_note(said, NO_SPAN, "%s = %" PRId64 " is the first refused value", e->s->opt->range.name,
              value);
  return false;
}

static void report(const Values *e, FILE *f) {
  Sched *s = e->s;
  const Define *d = &s->opt->range;
  const int64_t last = d->lo + (int64_t)(d->n - 1) * d->step;
  fprintf(f, "%-9s every one of %" PRIu64 " values from %" PRId64 " to %" PRId64, d->name,
          e->proved, d->lo, last);
  if (d->step > 1)
    fprintf(f, " by %" PRId64, d->step);
  fprintf(f, " proved complete, in order, deadlock-free, matched");
  if (e->ncheck)
    fprintf(f, "; %u check%s", e->ncheck, e->ncheck > 1 ? "s" : "");
  if (e->nlimit)
    fprintf(f, "; %u limit%s", e->nlimit, e->nlimit > 1 ? "s" : "");
  fputc('\n', f);
  if (e->refused)
    fprintf(f, "%-9s %" PRIu64 " values that the schedule does not admit: %s\n", "not", e->refused,
            printable(s, e->why));
  if (e->sized)
    fprintf(f, "%-9s at most %s, of rank %u at %s = %" PRId64 "\n", "memory",
            bytes_text(s, e->most), e->rank, d->name, e->at);
  else
    fprintf(f, "%-9s at most %" PRIu64 ", of rank %u at %s = %" PRId64 "\n", "in flight", e->most,
            e->rank, d->name, e->at);
}

bool for_all_range(Sched *s) {
  const Define *d = &s->opt->range;
  Values e = {.s = s};
  FILE *progress = s->opt->progress;
  for (uint32_t i = 0; i < d->n; i++) {
    const int64_t value = d->lo + (int64_t)i * d->step;
    if (progress)
      fprintf(progress, "\r%s = %" PRId64 ", %u of %u ", d->name, value, i + 1, d->n);
    bool ok = try_value(&e, value);
    if (progress && (!ok || i + 1 == d->n))
      fprintf(progress, "\r%*s\r", 60, "");
    if (!ok)
      return false;
  }
  if (e.proved == 0) {
    diag_error(s->diag, DIAG_REQUIRES, NO_SPAN,
               "the schedule admits none of these values of %s: %s", d->name, e.why);
    return false;
  }
  report(&e, s->opt->out);
  return true;
}
