/* SPDX-License-Identifier: MIT
 * Finds help for an error: the meaning of an unknown name, or the statement of an order that must
 * change because an op is missing, superfluous or too early. Cost: linear in the text. For a
 * schedule that no file defines, reads the files of the standard library. */
#include "hints.h"
#include "base.h"
#include "habits.h"
#include "names.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

bool hint_near(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b);
  return n == 1 && m == 1 ? (a[0] | 32) == (b[0] | 32) : n > 1 && m > 1 && name_distance(a, b) <= 1;
}

bool hint_mentions(const Expr *e, Name name) {
  if (!e)
    return false;
  if (e->name == name)
    return true;
  for (const Arg *a = e->args; a; a = a->next)
    if (hint_mentions(a->value, name))
      return true;
  return hint_mentions(e->a, name) || hint_mentions(e->b, name) || hint_mentions(e->c, name);
}

bool hint_op(Sched *s, Name name) {
  size_t digits = strspn(name + 1, "0123456789");
  for (int k = 0; k < PIPE_NOPS; k++) {
    const char *op = pipe_op_info[k].text;
    if (pipe_op_info[k].comm)
      continue;
    if (strlen(op) == 1 && *op == *name && digits > 0 && name[1 + digits] == '\0')
      diag_help(s->diag, "did you mean '%s(%s)'", op, name + 1);
    else if (hint_near(name, op))
      diag_help(s->diag, "did you mean '%s'", op);
    else
      continue;
    return true;
  }
  return false;
}

bool hint_rank(Sched *s, const Schedule *sc, const Clause *c, Name name) {
  Name rank = strcmp(name, "rank") == 0 ? name : NULL;
  const Expr *ranks = NULL;
  for (const Clause *k = sc->clauses; k; k = k->next) {
    if (k->kind == CL_ORDER && k->var == name)
      rank = name;
    if (k->kind == CL_RANKS)
      ranks = k->value;
  }
  if (!rank)
    return false;
  if (c->kind == CL_ORDER || c->kind == CL_EXCLUSIVE)
    diag_help(s->diag, "the rank is '%s' here", c->var);
  else if (c->kind == CL_LINK)
    diag_help(s->diag, "the sending rank is '%s' here, the receiving rank '%s'", c->var, c->mb_var);
  else if ((c->kind == CL_CHECK || c->kind == CL_LIMIT) && !c->var)
    diag_help(s->diag, "for each rank, add 'for %s in 0..%s'", name,
              ranks ? span_text(s, ranks->at) : "P");
  else if (c->kind == CL_PIPE)
    diag_help(s->diag, "only 'order' has a rank; here the rank follows from the stage '%s'",
              c->var);
  else if (c->kind == CL_TIME && !c->mb_var)
    diag_help(s->diag, "the rank gets its name by 'time %s%son %s { ... }'", c->var ? c->var : "",
              c->var ? " " : "", name);
  else
    diag_help(s->diag, "only 'order' has a rank");
  return true;
}

bool hint_names(Sched *s, const Clause *c, Name name) {
  const char *word = c->kind == CL_TIME        ? "time"
                     : c->kind == CL_BYTES     ? "bytes"
                     : c->kind == CL_WEIGHTS   ? "weights"
                     : c->kind == CL_RECOMPUTE ? "recompute"
                     : c->kind == CL_OFFLOAD   ? "offload"
                                               : NULL;
  const char *rest = c->kind == CL_RECOMPUTE || c->kind == CL_OFFLOAD ? "when ..." : "{ ... }";
  bool both = c->kind == CL_WEIGHTS || c->kind == CL_OFFLOAD || c->var || *name == 'm';
  if (!word || name[1] || !islower((unsigned char)*name) || c->mb_var ||
      (c->kind == CL_BYTES && both))
    return false;
  if (both)
    diag_help(s->diag, "the stage and the microbatch get their names by '%s %s, %s %s'", word,
              c->var ? c->var : "s", c->var ? name : "m", rest);
  else
    diag_help(s->diag, "the stage gets its name by '%s %s %s'", word, name, rest);
  return true;
}

static Span found_in(const Stmt *b, Name name) {
  Span at = NO_SPAN;
  for (; b && at.file == NO_FILE; b = b->next) {
    if (b->name == name)
      return b->name_at;
    if (b->fn && b->fn->name == name)
      return b->fn->name_at;
    if (b->opdef && b->opdef->name == name)
      return b->opdef->name_at;
    at = found_in(b->body, name);
    if (at.file == NO_FILE)
      at = found_in(b->orelse, name);
  }
  return at;
}

static Span found_by_clause(const Schedule *sc, Name name) {
  for (const Clause *c = sc->clauses; c; c = c->next) {
    if ((c->kind == CL_LET || c->kind == CL_PIPE) && c->name == name)
      return c->name_at;
    if (c->kind == CL_FN && c->fn->name == name)
      return c->fn->name_at;
  }
  return NO_SPAN;
}

static Span found_by_item(const Ast *file, Name name) {
  for (const Item *it = file->items; it; it = it->next) {
    if (it->kind == IT_LET && it->name == name)
      return it->name_at;
    if (it->kind == IT_FN && it->fn->name == name)
      return it->fn->name_at;
    if (it->kind == IT_SCHEDULE && it->schedule->name == name)
      return it->schedule->name_at;
  }
  return NO_SPAN;
}

bool hint_elsewhere(Sched *s, const Ast *file, const Schedule *sc, const Clause *c, Name name,
                    Span at) {
  Span def = c ? found_in(c->body, name) : NO_SPAN;
  for (const Param *p = sc ? sc->params : NULL; p && def.file == NO_FILE; p = p->next)
    if (p->name == name)
      def = p->at;
  if (def.file == NO_FILE && sc)
    def = found_by_clause(sc, name);
  if (def.file == NO_FILE)
    def = found_by_item(file, name);
  if (sc && def.file == sc->name_at.file && def.beg == sc->name_at.beg)
    def = NO_SPAN;
  if (def.file != NO_FILE) {
    diag_note(s->diag, def,
              def.beg > at.beg ? "defined here, later" : "this definition holds only in its block");
    return true;
  }
  for (const Schedule *base = sc ? sc->base_def : NULL; base; base = base->base_def) {
    def = found_by_clause(base, name);
    if (def.file == NO_FILE)
      continue;
    diag_note(s->diag, def, "this definition holds only in '%s'", base->name);
    return true;
  }
  return false;
}

static bool defines(const char *path, Name schedule) {
  FILE *f = fopen(path, "r");
  char line[256];
  size_t n = strlen(schedule);
  bool found = false;
  while (f && !found && fgets(line, sizeof line, f))
    found = strncmp(line, "schedule ", 9) == 0 && strncmp(line + 9, schedule, n) == 0 &&
            line[9 + n] == '(';
  if (f)
    fclose(f);
  return found;
}

/* The last schedule that the file at `path` defines, or NULL. */
static const char *last_schedule(Sched *s, const char *path) {
  struct stat st;
  char line[256];
  const char *found = NULL;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
    return NULL;
  FILE *f = guard_open(path);
  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, "schedule ", 9) == 0)
      found = arena_strndup(s->arena, line + 9, strcspn(line + 9, "( \n"));
  guard_close(f);
  return found;
}

bool hint_file_name(Sched *s, Name name, Span at) {
  const char *file = arena_printf(s->arena, "%s.pipe", name);
  const char *path = file_find(s, file, s->diag->source[at.file].path);
  const char *schedule = path ? last_schedule(s, path) : NULL;
  if (!schedule)
    return false;
  for (uint32_t i = 0; i < s->diag->nsource; i++)
    if (i != at.file && strcmp(file_name(s->diag->source[i].path), file) == 0) {
      diag_help(s->diag, "did you mean '%s', which %s defines", schedule, file);
      return true;
    }
  diag_help(s->diag, "import \"%s\" defines '%s'", file, schedule);
  return true;
}

bool hint_weights(Sched *s, const Clause *c, Name name) {
  static const char *const late[] = {"latest", "last", "current", "new", "now", "head"};
  static const char *const kept[] = {"B",    "I",       "stash", "stashed",
                                     "same", "forward", "own",   "version_of"};
  for (size_t i = 0; i < sizeof late / sizeof *late; i++)
    if (strcmp(name, late[i]) == 0) {
      diag_help(s->diag, "the newest version is 'newest'");
      return true;
    }
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    if (strcmp(name, kept[i]) == 0) {
      diag_help(s->diag,
                "the version that the forward of the microbatch has read is 'F': B reads F");
      return true;
    }
  return hint_names(s, c, name);
}

bool hint_library(Sched *s, Name schedule, Span at) {
  uint32_t n;
  const char *const *name = library_files(s, &n);
  const char *file = NULL, *from = s->diag->source[at.file].path;
  for (uint32_t i = 0; i < n; i++) {
    const char *path = file_find(s, name[i], from);
    if (path && (!file || strcmp(name[i], file) < 0) && defines(path, schedule))
      file = name[i];
  }
  if (file)
    diag_help(s->diag, "import \"%s\" defines it", file);
  return file != NULL;
}

bool hint_params(Sched *s, const Schedule *sc) {
  if (sc->params)
    diag_help(s->diag, "the parameters of '%s' are %s", sc->name, params_text(s, sc));
  return sc->params != NULL;
}

/* ---- ops ---- */

static bool same(Span a, Span b) { return a.file == b.file && a.beg == b.beg && a.end == b.end; }

/* The op written at `site` in b, or the first op of `kind` in b (PIPE_NOPS: by site). *loop: the
 * innermost kernel or loop around it, else NULL. */
static const OpRef *find_op(const Stmt *b, Span site, int kind, const Stmt *in, const Stmt **loop) {
  for (; b; b = b->next) {
    const OpRef *base = b->op;
    while (base && base->op < 0 && base->def)
      base = base->def->op;
    if (b->kind == ST_OP && (kind < PIPE_NOPS ? base->op == kind : same(b->op->at, site)))
      return *loop = in, b->op;
    const Stmt *inner = b->kind == ST_KERNEL || b->kind == ST_DO ? b : in;
    const OpRef *o = find_op(b->body, site, kind, inner, loop);
    if (!o)
      o = find_op(b->orelse, site, kind, inner, loop);
    if (o)
      return o;
  }
  return NULL;
}

static const OpRef *written(const Sched *s, uint32_t r, Span site, const Stmt **loop) {
  *loop = NULL;
  return s->orders->order_clause && s->orders->order_clause[r]
             ? find_op(s->orders->order_clause[r]->body, site, PIPE_NOPS, NULL, loop)
             : NULL;
}

static bool is_name_of(const OpRef *o, const Stmt *loop) {
  return loop->name && o->args && o->args->value->kind == EX_NAME &&
         o->args->value->slot == loop->slot;
}

/* The stage has no op of this kind. */
static void hint_none(Sched *s, uint32_t r, const char *kind) {
  int op = *kind == 'F' ? PIPE_F : *kind == 'B' ? PIPE_B : *kind == 'I' ? PIPE_I : PIPE_W;
  for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++)
    if (s->orders->op[i].kind == op)
      return; /* the rank has ops of this kind, for another stage */
  const Stmt *loop = NULL;
  const OpRef *o = find_op(s->orders->order_clause[r]->body, NO_SPAN, op, NULL, &loop);
  if (o)
    diag_note(s->diag, o->at, "this op never runs");
  else
    diag_help(s->diag, "for each microbatch an order runs F and B, or F, I and W");
  for (uint32_t i = 0; o && i < s->orders->descending.n; i++)
    if (s->orders->descending.at[i] == loop)
      diag_help(s->diag, "a loop that counts down has 'step -1'");
}

void hint_missing(Sched *s, uint32_t stage, const char *kind, const uint32_t *at, uint32_t missing,
                  uint32_t first) {
  const PipeStage *st = &s->model->stage[stage];
  uint32_t r = st->rank, a = NONE, z = NONE, end = st->mb0 + st->nmb, near = NONE;
  if (s->diag->muted || !s->orders->order_clause || !s->orders->order_clause[r])
    return;
  bool one = true;
  for (uint32_t mb = st->mb0; mb < end; mb++) {
    if (!at[mb])
      continue;
    one &= z == NONE || s->orders->op[at[mb] - 1].site == s->orders->op[at[z] - 1].site;
    a = a == NONE ? mb : a;
    z = mb;
    near = near == NONE || mb < first ? mb : near;
  }
  if (z == NONE) {
    hint_none(s, r, kind);
    return;
  }
  Span site = s->orders->site[s->orders->op[at[near] - 1].site];
  if (one && z - a + 1 + missing == st->nmb && a < z)
    diag_note(s->diag, site, "%s to %s come from here", op_text(s, at[a] - 1),
              op_text(s, at[z] - 1));
  else
    diag_note(s->diag, site, "%s comes from here", op_text(s, at[near] - 1));
  const Stmt *loop;
  const OpRef *o = written(s, r, site, &loop);
  if (one && missing == 1 && o && loop && loop->range.lo &&
      (loop->kind == ST_KERNEL || is_name_of(o, loop)) &&
      first == (loop->range.step ? st->mb0 : end - 1))
    diag_help(s->diag, "a range ends before its second value");
}

void hint_order(Sched *s, uint32_t earlier, uint32_t later) {
  uint32_t r = op_rank(s, later), n = 0;
  Span early = s->orders->site[s->orders->op[earlier].site],
       late = s->orders->site[s->orders->op[later].site];
  const Stmt *loop, *other;
  if (s->diag->muted || !written(s, r, early, &loop) || !written(s, r, late, &other) ||
      loop != other || !loop || loop->kind != ST_KERNEL)
    return;
  for (uint32_t i = later; i < earlier; i++)
    n += s->orders->op[i].site == s->orders->op[later].site;
  diag_help(s->diag, "on rank %u increase the lag of '%s' by at least %u%s", r, span_text(s, late),
            n,
            n == 1 && late.beg < early.beg ? ", or write the op after the op that it needs" : "");
}

void hint_index(Sched *s, uint32_t r, const OpRef *use, const Stmt *list, int64_t mb, uint32_t n) {
  const Stmt *loop;
  bool found = written(s, r, use->at, &loop) && loop;
  const Expr *index = use->args ? use->args->value : NULL;
  if (s->diag->muted)
    return;
  if (!index)
    diag_help(s->diag,
              "an op without an index takes the microbatch after the last: it runs too often");
  else if (list && list->kind == ST_CLOCK && hint_mentions(index, list->name) &&
           index->kind != EX_NAME)
    diag_help(s->diag, "the stamp says when an op runs: write %s(%s)", use->name, list->name);
  else if (s->model->npipe > 1 && mb >= 0)
    diag_help(s->diag, "each pipe counts its microbatches from 0");
  else if (found && loop->kind == ST_KERNEL)
    diag_help(s->diag, "'clip' before 'steady' leaves out microbatches that do not exist");
  else if (found && is_name_of(use, loop) && loop->range.step)
    diag_help(s->diag, "down to 0, the range is %u..-1 step -1", n - 1);
  else if (found && is_name_of(use, loop) && mb >= 0)
    diag_help(s->diag, "microbatches are counted from 0: the range is 0..%u", n);
  else if (found && mb < 0 && loop->name && hint_mentions(index, loop->name))
    diag_help(s->diag, "'steady %s { ... }' runs each op when its microbatch exists", loop->name);
}

/* A loop over microbatches repeats op `old`: names the first microbatch that would not be a
 * repetition. */
static void hint_begin(Sched *s, uint32_t r, const Stmt *loop, uint32_t old) {
  const Op *o = &s->orders->op[old];
  const PipeStage *st = &s->model->stage[o->stage];
  const uint32_t *at = op_row(s, o->kind, (size_t)o->stage * s->model->nmb + st->mb0);
  uint32_t n = 0, ran = 0;
  while (n < st->nmb && at[n])
    n++;
  for (uint32_t mb = n; mb < st->nmb; mb++)
    ran += at[mb] != 0;
  if (ran == 0 && n < st->nmb && !loop->range.step)
    diag_help(s->diag,
              "rank %u has already run the microbatches below %u: begin the range of '%s' there", r,
              n, loop->name);
}

void hint_twice(Sched *s, uint32_t r, const OpRef *use, uint8_t kind, uint32_t old) {
  const Stmt *loop, *other;
  Span at = s->orders->site[s->orders->op[old].site];
  if (s->orders->op[old].kind != kind) {
    if (kind == PIPE_W && s->orders->op[old].kind == PIPE_B)
      diag_help(s->diag, "write I in place of B: B = I + W");
    return;
  }
  if (!written(s, r, use->at, &loop) || !written(s, r, at, &other) || loop == other)
    return;
  if (loop && loop->kind == ST_KERNEL && at.beg < loop->at.beg)
    diag_help(s->diag, "leave this op out: the lags of the kernel give its warmup");
  else if (other && other->kind == ST_KERNEL && other->at.beg < use->at.beg)
    diag_help(s->diag, "leave this op out: the lags of the kernel give its flush");
  else if (loop && is_name_of(use, loop) && s->model->slices == 1)
    hint_begin(s, r, loop, old);
}
