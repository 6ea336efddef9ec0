/* SPDX-License-Identifier: MIT
 * --best: the schedule with the shortest predicted step for the stages and the bytes that there
 * are. Compiles every file of the library, or those of the command line, and of a schedule with a
 * parameter `most` (stashes) or `V` (chunks a rank) several values. Schedules compete that train on
 * M microbatches with gradients of the weights that the step began with. Checks that fail at these
 * costs are left out: they are claims about other costs. The result depends on the files and
 * options only. Cost: a few compiles a file. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "plan.h"

#include "base.h"
#include "equal_work.h"
#include "limit.h"
#include "price.h"
#include "stages.h"
#include "weights.h"

enum { MOST_CHUNKS = 4, MOST_STASHES = 1 << 24, SHOWN = 6 };

typedef enum Outcome { FITS, OVER, REFUSED } Outcome; /* OVER: it needs more memory */

/* A file with the best values of its parameters so far. */
typedef struct Rival {
  const char *path;
  const char *name;   /* of the schedule; NULL: none fits */
  const char *values; /* "most = 12", or "" */
  uint32_t nrank;
  const char *failed; /* "check failed: 8 <= 7 is false": it is left out; NULL: all checks hold */
  Price price;
} Rival;

typedef struct Best {
  Sched *s;
  int64_t nmb;
  Rival *rival; /* [nrival] as they come; at last those that fit, the best first */
  uint32_t nrival, tried;
  uint64_t least;             /* bytes that the least one over the limit needs, */
  const char *over, *refused; /*   and what it said; the same of the first refused; or NULL */
  bool no_parameter;          /* that is all it said */
} Best;

typedef struct Values {
  int64_t chunks, most;
} Values; /* 0: as the schedule has it */

/* ---- one schedule ---- */

static bool is_better(const Price *a, const Price *b) {
  return a->makespan != b->makespan ? a->makespan < b->makespan : a->memory < b->memory;
}

/* Does a step do what is asked for? */
static bool competes(const Best *b, const Sched *s) {
  const ModelWork work = model_work(s);
  uint32_t late = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    late |= s->versions->staleness[r];
  return !work.forward_only && work.mbs == b->nmb && late == 0;
}

/* The value of a parameter in "P=8 M=32 most=16"; 0: there is none. */
static int64_t value_in(const char *params, const char *name) {
  const size_t n = strlen(name);
  for (const char *at = params; at && *at; at += strcspn(at, " "), at += *at == ' ')
    if (strncmp(at, name, n) == 0 && at[n] == '=')
      return strtoll(at + n + 1, NULL, 10);
  return 0;
}

/* Compiles a file with these values and keeps the best. *price if it fits; *had: the values of its
 * parameters. */
static Outcome try_values(Best *b, Rival *e, Values v, Price *price, Values *had) {
  Sched *s = b->s;
  const struct {
    const char *name;
    int64_t value;
  } own[] = {{"V", v.chunks}, {"most", v.most}};
  PricedCompile x = {.opt = *s->opt};
  Outcome outcome = REFUSED;
  const char *values = "";
  x.opt.input = e->path;
  x.opt.define = NEW_ARRAY(s->arena, Define, s->opt->ndefine + (size_t)2);
  memcpy(x.opt.define, s->opt->define, s->opt->ndefine * sizeof *x.opt.define);
  for (int i = 0; i < 2; i++)
    if (own[i].value > 0) {
      x.opt.define[x.opt.ndefine++] = (Define){.name = own[i].name, .value = own[i].value, .n = 1};
      values = arena_printf(s->arena, "%s%s%s = %" PRId64, values, *values ? ", " : "", own[i].name,
                            own[i].value);
    }
  b->tried++;
  bool ok = compile_priced(s, &x, price);
  /* `without checks` would drop its limits, too */
  const bool failed = !ok && x.diag.errors > 0 && x.diag.first == DIAG_CHECK &&
                      x.s.claims->nlimit == 0;
  ok |= failed;
  *had = (Values){value_in(x.s.model->params, "V"), value_in(x.s.model->params, "most")};
  if (ok && (!x.s.model->timed || price->makespan == 0)) {
    b->refused = "the profile has no times above 0";
  } else if (ok && competes(b, &x.s)) {
    outcome = FITS;
    if (!e->name || is_better(price, &e->price)) {
      e->name = arena_printf(s->arena, "%s", x.s.model->name);
      e->values = values;
      e->nrank = x.s.model->nrank;
      e->failed = failed ? arena_printf(s->arena, "%s", x.diag.first_text) : NULL;
      e->price = *price;
    }
  } else if (!ok && x.diag.errors > 0) {
    const uint64_t needs = x.diag.first == DIAG_MEMORY && competes(b, &x.s) ? fullest_rank(&x.s)
                                                                            : 0;
    const char *why = arena_printf(s->arena, "%s: %s", file_name(e->path), x.diag.first_text);
    outcome = needs > 0 ? OVER : REFUSED;
    if (outcome == OVER && (!b->over || needs < b->least))
      b->over = why, b->least = needs;
    if (outcome == REFUSED && (!b->refused || b->no_parameter))
      b->refused = why, b->no_parameter = x.diag.first == DIAG_PARAM;
  }
  arena_free(&x.arena);
  return outcome;
}

/* Finds the stashes with the shortest step, by steps up and down from those of the schedule. */
static void try_most(Best *b, Rival *e, int64_t first, Outcome outcome, Price best) {
  Values v = {.most = first}, had;
  Price price;
  while (outcome == OVER && v.most > 1) {
    v.most -= first < 8 ? 1 : v.most > first / 8 ? first / 8 : v.most - 1;
    outcome = try_values(b, e, v, &best, &had);
  }
  for (int64_t step = (first + 3) / 4; outcome == FITS && step > 0;) {
    bool moved = false;
    for (int up = 1; up >= 0 && !moved; up--) {
      const Values w = {.most = up ? v.most + step : v.most - step};
      moved = w.most > 0 && try_values(b, e, w, &price, &had) == FITS && is_better(&price, &best);
      if (moved)
        v = w, best = price;
    }
    step = moved ? step : step / 2;
  }
}

static bool has_define(const Sched *s, const char *name) {
  for (uint32_t i = 0; i < s->opt->ndefine; i++)
    if (strcmp(s->opt->define[i].name, name) == 0)
      return true;
  return false;
}

static void try_file(Best *b, Rival *e) {
  Values had, none;
  Price price;
  const Outcome outcome = try_values(b, e, (Values){0}, &price, &had);
  if (had.most > 0 && had.most <= MOST_STASHES && !has_define(b->s, "most"))
    try_most(b, e, had.most, outcome, price);
  for (int64_t v = 2; had.chunks > 0 && !has_define(b->s, "V") && v <= MOST_CHUNKS; v++)
    if (v != had.chunks)
      try_values(b, e, (Values){.chunks = v}, &price, &none);
}

static int by_price(const void *a, const void *b) {
  const Rival *x = a, *y = b;
  if (!x->name || !y->name)
    return !x->name - !y->name;
  return is_better(&x->price, &y->price)   ? -1
         : is_better(&y->price, &x->price) ? 1
                                           : strcmp(x->path, y->path);
}

static int by_path(const void *a, const void *b) {
  const Rival *x = a, *y = b;
  return strcmp(x->path, y->path);
}

/* ---- the file ---- */

/* A text between quotes. */
static const char *quoted(Sched *s, const char *text) {
  const char *name = "";
  for (const char *c = text; *c; c++)
    name = arena_printf(s->arena, *c == '"' || *c == '\\' ? "%s\\%c" : "%s%c", name, *c);
  return name;
}

static const char *whole_path(Sched *s, const char *path) {
  char *whole = realpath(path, NULL);
  const char *copy = arena_printf(s->arena, "%s", whole ? whole : path);
  free(whole);
  return copy;
}

/* As an import names it: a file of the library by its name, another by its whole path. */
static const char *import_name(Sched *s, const char *path) {
  const size_t n = s->opt->stdlib ? strlen(s->opt->stdlib) : 0;
  if (n > 0 && strncmp(path, s->opt->stdlib, n) == 0 && path[n] == '/')
    return path + n + 1;
  return quoted(s, whole_path(s, path));
}

/* The profile as the written file names it: as it was given if both are named from the working
 * directory, else by its whole path. */
static const char *profile_name(Sched *s) {
  const char *out = s->opt->output;
  const bool beside = s->opt->profile[0] != '/' && !(out && strchr(out, '/'));
  return quoted(s, beside ? s->opt->profile : whole_path(s, s->opt->profile));
}

/* "v_zb(most = 20)" */
static const char *call_text(Sched *s, const Rival *e) {
  return arena_printf(s->arena, "%s(%s)%s", e->name, e->values, e->failed ? " without checks" : "");
}

/* The schedule that is written, and why. */
static void write_best(const Best *b, FILE *f) {
  Sched *s = b->s;
  const Rival *e = b->rival;
  const char *given = "", *params;
  for (uint32_t i = 0; i < s->opt->ndefine; i++) {
    const Define *d = &s->opt->define[i];
    given = arena_printf(s->arena, "%s, %s = %" PRId64, given, d->name, d->value);
  }
  params = given + 2;
  fprintf(f, "# Best of pipec for %s: %s.\n", printable(s, s->opt->profile), params);
  fprintf(f, "# %s of %s.\n", call_text(s, e), printable(s, file_name(e->path)));
  put_price(s, &e->price, s->opt->memory_limit_bytes, f);
  if (e->failed)
    fprintf(f, "# checks  left out: at these costs \"%s\"\n", e->failed);
  fprintf(f, "#\n# next of %u tried, each with its best values:\n", b->tried);
  for (uint32_t i = 1; i < b->nrival && i < SHOWN && b->rival[i].name; i++)
    fprintf(f, "#   %-10s %+8.2f %%  %-9s  %s\n", seconds(s, b->rival[i].price.makespan),
            percent(b->rival[i].price.makespan, e->price.makespan) - 100,
            bytes_text(s, b->rival[i].price.memory), call_text(s, &b->rival[i]));
  fprintf(f, "import \"%s\"\nschedule %s(%s) extends %s {\n  profile \"%s\"\n",
          import_name(s, e->path), strcmp(e->name, "best") ? "best" : "best_again", params,
          call_text(s, e), profile_name(s));
  put_lowering(s, f);
  if (s->opt->memory_limit_bytes)
    fprintf(f, "  check memory(r) <= %" PRIu64 "B for r in 0..%u\n", s->opt->memory_limit_bytes,
            e->nrank);
  fprintf(f, "}\n");
}

/* Does the text take the step that it names? False: reported. */
static bool holds(const Best *b, const GuardText *text) {
  Sched *s = b->s;
  PricedCompile x = {.opt = *s->opt};
  Price price;
  x.opt.input = s->opt->output ? s->opt->output : "best.pipe";
  x.opt.text = text->text, x.opt.text_len = strlen(text->text), x.opt.ndefine = 0;
  /* the text has these */
  x.opt.profile = NULL, x.opt.memory_limit_bytes = 0, x.opt.lowering = 0;
  const bool ok = compile_priced(s, &x, &price) && price.makespan == b->rival->price.makespan;
  if (!ok)
    diag_error(s->diag, DIAG_PLAN, NO_SPAN, "no schedule can extend %s: %s", b->rival->path,
               x.diag.errors ? x.diag.first_text : "its step then differs");
  arena_free(&x.arena);
  return ok;
}

static bool put_best(const Best *b) {
  OutFile out;
  GuardText *text = guard_text();
  write_best(b, text->f);
  guard_text_done(text);
  bool ok = holds(b, text) && file_open(b->s, &out, b->s->opt->output);
  if (ok) {
    fputs(text->text, out.f);
    ok = file_close(b->s, &out, true);
  }
  guard_text_end(text);
  return ok;
}

/* False: an import cannot name one of them, reported. */
static bool find_files(Best *b) {
  Sched *s = b->s;
  uint32_t n = s->opt->ncompare;
  const char *const *file = n > 0 ? s->opt->compare : library_files(s, &n);
  b->rival = NEW_ARRAY(s->arena, Rival, n);
  b->nrival = n;
  for (uint32_t i = 0; i < n; i++) {
    b->rival[i].path = s->opt->ncompare > 0
                           ? file[i]
                           : arena_printf(s->arena, "%s/%s", s->opt->stdlib, file[i]);
    const char *control = b->rival[i].path;
    while ((unsigned char)*control >= ' ' && *control != '\x7f')
      control++;
    if (*control || strcmp(b->rival[i].path, "-") == 0) {
      diag_error(s->diag, DIAG_PLAN, NO_SPAN, "no schedule can import %s",
                 *control ? b->rival[i].path : "standard input");
      return false;
    }
  }
  if (s->opt->ncompare == 0 && n > 1)
    qsort(b->rival, n, sizeof *b->rival, by_path);
  if (n == 0)
    diag_error(s->diag, DIAG_READ, NO_SPAN, "no standard library: there is no .pipe file in %s",
               s->opt->stdlib ? s->opt->stdlib : "its folder");
  return n > 0;
}

bool best(Sched *s) {
  Best b = {.s = s};
  FILE *progress = s->opt->progress;
  struct stat st;
  if (stat(s->opt->profile, &st) == 0 && !S_ISREG(st.st_mode)) {
    diag_error(s->diag, DIAG_READ, NO_SPAN,
               "cannot read %s: each schedule reads it, so it has to be a regular file",
               s->opt->profile);
    return false;
  }
  if (!profile_check(s, s->opt->profile)) /* else every schedule would say so */
    return false;
  for (uint32_t i = 0; i < s->opt->ndefine; i++)
    if (strcmp(s->opt->define[i].name, "M") == 0)
      b.nmb = s->opt->define[i].value;
  if (!find_files(&b))
    return false;
  for (uint32_t i = 0; i < b.nrival; i++) {
    if (progress)
      fprintf(progress, "\rschedule %u of %u ", i + 1, b.nrival);
    try_file(&b, &b.rival[i]);
  }
  if (progress)
    fprintf(progress, "\r%*s\r", 40, "");
  qsort(b.rival, b.nrival, sizeof *b.rival, by_price);
  if (b.nrival > 0 && b.rival[0].name)
    return put_best(&b);
  diag_error(s->diag, DIAG_PLAN, NO_SPAN, "none of %u schedules holds: %s", b.nrival,
             b.over      ? b.over
             : b.refused ? b.refused
                         : "none trains on M microbatches without stale weights");
  if (!has_define(s, "P"))
    diag_help(s->diag, "without -D P=N each schedule has the ranks that it gives itself");
  return false;
}
