/* SPDX-License-Identifier: MIT
 * Reads PyTorch's pipeline files: a row per rank, a cell per action (lang/spec.md 10). There are
 * two formats. `compute_only` has idle cells and no transfers. `compute_comms` has UNSHARD,
 * RESHARD, REDUCE_GRAD, SEND_x, RECV_x and WAIT_x and no idle cells; one of these words makes a
 * file compute_comms. Two notations are pipec's own: a cell 0SEND_F1+0RECV_B0 is a group of
 * transfers, and a cell WAIT waits for all transfers above it.
 *
 * Ensures what expand ensures: stages on the ranks of their rows, and ops in order. A file without
 * a backward is forward-only. The format has no update; for a file that is trained, the reader adds
 * one at the end of each rank. For compute_comms also ensures
 * Orders.lists, with the sends and receives in the order of the file, unless --lowering= asks for
 * derived transfers.
 *
 * The reader is strict, because PyTorch's reader is not: PyTorch matches the beginning of a cell
 * and drops the rest, so 0BW0 of its older files becomes a B without a microbatch. --torch-lax
 * accepts what PyTorch accepts, with a warning for each cell. Cost: linear. */
#include <string.h>

#include "import.h"
#include "base.h"
#include "expand.h"
#include "names.h"

enum {
  K_UNSHARD = PIPE_NOPS,
  K_RESHARD,
  K_REDUCE_GRAD,
  K_WAIT_REDUCE_GRAD,
  K_WAIT_SEND_F,
  K_WAIT_SEND_B,
  K_WAIT /* waits for all transfers above it; has no stage */
};

static const struct {
  const char *text;
  uint8_t kind;
  bool mb;
} kinds[] = {{"F", PIPE_F, true},
             {"I", PIPE_I, true},
             {"B", PIPE_B, true},
             {"WAIT_REDUCE_GRAD", K_WAIT_REDUCE_GRAD, false},
             {"WAIT_SEND_F", K_WAIT_SEND_F, true},
             {"WAIT_SEND_B", K_WAIT_SEND_B, true},
             {"UNSHARD", K_UNSHARD, false},
             {"RESHARD", K_RESHARD, false},
             {"REDUCE_GRAD", K_REDUCE_GRAD, false},
             {"SEND_F", PIPE_SEND_F, true},
             {"RECV_F", PIPE_RECV_F, true},
             {"SEND_B", PIPE_SEND_B, true},
             {"RECV_B", PIPE_RECV_B, true},
             {"W", PIPE_W, true}}; /* after WAIT_, which begins with W */

typedef struct Action {
  uint32_t kind, stage, mb, site;
  bool joined; /* in one action, or one group, with the action before it */
} Action;

typedef struct Csv {
  Sched *s;
  Expanded *made;
  const char *text;
  uint32_t file, noddity;
  VEC(Action) action;
  VEC(uint32_t) row0; /* first action of each row; then one past the last */
  VEC(Span) row_at;
  bool comms;          /* the format is compute_comms */
  Span comms_at, idle; /* first cell that shows the format; first idle cell */
  Span own;            /* first cell in a notation that PyTorch does not read */
} Csv;

static Span span(const Csv *c, const char *a, const char *b) {
  return (Span){c->file, (uint32_t)(a - c->text), (uint32_t)(b - c->text)};
}

/* Reports `what`: an error, or with --torch-lax a warning that it is read as `reads`. False: an
 * error. */
static bool odd(Csv *c, Span at, const char *what, const char *reads) {
  enum { SHOWN = 20 };
  if (!c->s->opt->torch_lax)
    diag_error(c->s->diag, DIAG_CSV, at, "%s", what);
  else if (c->noddity++ < SHOWN)
    diag_warn(c->s->diag, DIAG_CSV, at, "%s; read as %s", what, reads);
  return c->s->opt->torch_lax;
}

static const char *cut(Csv *c, const char *a, const char *b) {
  enum { MOST = 40 };
  uint32_t n = (uint32_t)(b - a > MOST ? MOST : b - a);
  char *out = arena_alloc(c->s->arena, (size_t)4 * n + sizeof "..."), *p = out;
  for (uint32_t i = 0; i < n; i++)
    if ((unsigned char)a[i] < ' ' || a[i] == 0x7f)
      p += sprintf(p, "\\x%02x", (unsigned)(unsigned char)a[i]);
    else
      *p++ = a[i];
  strcpy(p, b - a > MOST ? "..." : "");
  return out;
}

static const char *digits(const char *p, const char *end, uint64_t *value) {
  *value = 0;
  for (; p < end && *p >= '0' && *p <= '9'; p++)
    *value = *value < UINT32_MAX ? *value * 10 + (uint64_t)(*p - '0') : *value;
  return p;
}

static bool not_an_action(Csv *c, const char *p, const char *end) {
  diag_error(c->s->diag, DIAG_CSV, span(c, p, end),
             "'%s' is not an action: expected one such as 2F0, 0SEND_F1 or (0F7;7B3)OVERLAP_F_B",
             cut(c, p, end));
  uint64_t n;
  const char *after = digits(p, end, &n);
  bool low = after > p && after < end && *after >= 'a' && *after <= 'z',
       joined = *p == '(' && (end - p < 11 || memcmp(end - 11, "OVERLAP_F_B", 11) != 0);
  if (low)
    diag_help(c->s->diag, "letters are capitals");
  else if (joined)
    diag_help(c->s->diag, "OVERLAP_F_B stands right behind the two actions in parentheses");
  else if (after == p)
    diag_help(c->s->diag, "an action begins with its stage: 0F3 is F of microbatch 3 on stage 0");
  return false;
}

static bool push(Csv *c, Span at, uint32_t kind, uint64_t stage, uint64_t mb) {
  Sched *s = c->s;
  if (stage > INT32_MAX || mb > INT32_MAX) {
    diag_error(s->diag, DIAG_CSV, at, "a stage or microbatch is at most %d", INT32_MAX);
    return false;
  }
  *vec_push(s->arena, &c->action) = (Action){kind, (uint32_t)stage, (uint32_t)mb,
                                             add_site(s, &c->made->orders, at), false};
  if (!c->comms && kind > PIPE_U)
    c->comms = true, c->comms_at = at;
  return true;
}

static bool one_action(Csv *c, const char *p, const char *end) {
  uint64_t stage, mb;
  const char *q = digits(p, end, &stage), *kind = q;
  uint32_t k = 0, nkind = sizeof kinds / sizeof *kinds;
  while (k < nkind && !((size_t)(end - q) >= strlen(kinds[k].text) &&
                        memcmp(q, kinds[k].text, strlen(kinds[k].text)) == 0))
    k++;
  if (q == p || k == nkind)
    return not_an_action(c, p, end);
  const char *number = q + strlen(kinds[k].text);
  q = digits(number, end, &mb);
  const char *reads = arena_printf(c->s->arena, "%llu%s%.*s", (unsigned long long)stage,
                                   kinds[k].text, kinds[k].mb ? (int)(q - number) : 0, number);
  if (kinds[k].kind == PIPE_B && q == number && end - q >= 2 && *q == 'W' &&
      digits(q + 1, end, &mb) == end) {
    const char *b = arena_printf(c->s->arena, "%lluB%llu", (unsigned long long)stage,
                                 (unsigned long long)mb);
    if (!odd(c, span(c, p, end),
             arena_printf(c->s->arena, "PyTorch wrote '%s' for %s up to version 2.5",
                          cut(c, p, end), b),
             b))
      return false;
    return push(c, span(c, p, end), PIPE_B, stage, mb);
  }
  if (kinds[k].mb && q == number) {
    diag_error(c->s->diag, DIAG_CSV, span(c, p, end), "'%s' has no microbatch", cut(c, p, end));
    diag_help(c->s->diag, "an action is stage, kind, microbatch: 0F0");
    return false;
  }
  bool zeros = (p[0] == '0' && kind - p > 1) || (kinds[k].mb && number[0] == '0' && q - number > 1);
  if (zeros)
    reads = arena_printf(c->s->arena, kinds[k].mb ? "%llu%s%llu" : "%llu%s",
                         (unsigned long long)stage, kinds[k].text, (unsigned long long)mb);
  if (q < end &&
      !odd(c, span(c, q, end), arena_printf(c->s->arena, "'%s' follows the action", cut(c, q, end)),
           reads)) {
    if (strchr(" ;\t", *q))
      diag_help(c->s->diag, "cells are separated by commas");
    return false;
  }
  if (!kinds[k].mb && q > number &&
      !odd(c, span(c, number, q), arena_printf(c->s->arena, "%s has no microbatch", kinds[k].text),
           reads))
    return false;
  if (zeros && !odd(c, span(c, p, q), "a number begins with 0", reads)) {
    diag_help(c->s->diag, "write %s", reads);
    return false;
  }
  return push(c, span(c, p, q), kinds[k].kind, stage, mb);
}

static const char *trim(const char **p, const char *end) {
  while (*p < end && **p == ' ')
    ++*p;
  while (end > *p && end[-1] == ' ')
    end--;
  return end;
}

/* Reads (0F7;7B3)OVERLAP_F_B: its parts are one action. */
static bool overlap(Csv *c, const char *p, const char *end) {
  static const char name[] = "OVERLAP_F_B";
  const char *close = memchr(p, ')', (size_t)(end - p)), *after = close ? close + 1 : end;
  uint32_t first = c->action.n;
  if (!close || p + 1 == close || end - after < 1)
    return not_an_action(c, p, end);
  if ((size_t)(end - after) != strlen(name) || memcmp(after, name, strlen(name)) != 0) {
    bool other = false; /* PyTorch accepts any kind here */
    for (uint32_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
      other |= (size_t)(end - after) == strlen(kinds[k].text) &&
               memcmp(after, kinds[k].text, strlen(kinds[k].text)) == 0;
    if (!other)
      return not_an_action(c, p, end);
    if (!odd(
            c, span(c, after, end),
            arena_printf(c->s->arena, "only OVERLAP_F_B joins actions, not %s", cut(c, after, end)),
            "its parts, one after the other"))
      return false;
  }
  for (const char *a = p + 1, *stop; a <= close; a = stop + 1) {
    const char *b = stop = memchr(a, ';', (size_t)(close - a));
    if (!stop)
      b = stop = close;
    const char *in = a, *in_end = trim(&in, b);
    if ((in != a || in_end != b) &&
        !odd(c, span(c, a, b), "a blank beside an action", cut(c, in, in_end)))
      return false;
    if (!one_action(c, in, in_end))
      return false;
  }
  const Action *part = &c->action.at[first];
  bool pair = c->action.n == first + 2 && part[0].kind == PIPE_F &&
              (part[1].kind == PIPE_B || part[1].kind == PIPE_I);
  if (pair)
    c->action.at[first + 1].joined = true;
  return pair || odd(c, span(c, p, end), "OVERLAP_F_B joins one F and one B or I",
                     "its parts, one after the other");
}

static void note_own(Csv *c, Span at) { c->own = c->own.file == NO_FILE ? at : c->own; }

static bool too_many_in_group(Sched *s, Span at, uint32_t rank, uint32_t n) {
  diag_error(s->diag, DIAG_TRANSFER, at, "rank %u: %u transfers in one group; there can be %u",
             rank, n, PIPE_GROUP_MOST);
  return false;
}

/* Reads 0SEND_F1+0RECV_B0: its transfers are one group. */
static bool group(Csv *c, const char *p, const char *end) {
  uint32_t first = c->action.n;
  for (const char *a = p, *plus; a <= end; a = plus + 1) {
    plus = memchr(a, '+', (size_t)(end - a));
    plus = plus ? plus : end;
    if (a == plus) {
      diag_error(c->s->diag, DIAG_CSV, span(c, p, end), "'+' stands between two transfers");
      return false;
    }
    if (!one_action(c, a, plus))
      return false;
    Action *part = &c->action.at[c->action.n - 1];
    if (!pipe_is_move(part->kind)) {
      diag_error(c->s->diag, DIAG_CSV, span(c, a, plus), "'+' joins only SEND and RECV");
      return false;
    }
    part->joined = c->action.n > first + 1;
  }
  note_own(c, span(c, p, end));
  return c->action.n - first <= PIPE_GROUP_MOST ||
         too_many_in_group(c->s, span(c, p, end), c->row_at.n - 1, c->action.n - first);
}

static bool cell(Csv *c, const char *p, const char *end) {
  const char *a = p, *b = trim(&a, end);
  if ((a != p || b != end) &&
      !odd(c, span(c, p, end), "a blank beside an action", a == b ? "an idle cell" : cut(c, a, b)))
    return false;
  if (a == b) {
    if (c->idle.file == NO_FILE)
      c->idle = (Span){c->file, (uint32_t)(p - c->text), (uint32_t)(p - c->text) + 1};
    return true;
  }
  if (b - a == 4 && memcmp(a, "WAIT", 4) == 0)
    return note_own(c, span(c, a, b)), push(c, span(c, a, b), K_WAIT, 0, 0);
  if (!c->s->opt->torch_lax && memchr(a, '+', (size_t)(b - a))) /* PyTorch drops what follows '+' */
    return group(c, a, b);
  return *a == '(' ? overlap(c, a, b) : one_action(c, a, b);
}

/* Reads the cells of a line. */
static bool row(Csv *c, const char *p, const char *end) {
  bool ok = true;
  *vec_push(c->s->arena, &c->row0) = c->action.n;
  *vec_push(c->s->arena, &c->row_at) = span(c, p, end > p ? end : p + 1);
  for (bool more = p < end; more;) {
    const char *a = p, *b, *next;
    if (*p == '"') {
      const char *quote = memchr(p + 1, '"', (size_t)(end - p - 1));
      if (!quote || (quote + 1 < end && quote[1] != ',')) {
        diag_error(c->s->diag, DIAG_CSV, span(c, p, quote ? quote + 1 : end),
                   quote ? "text follows a quoted cell" : "a quoted cell has no end");
        return false;
      }
      a = p + 1, b = quote, next = quote + 1;
      const char *comma = memchr(a, ',', (size_t)(b - a));
      if (comma && *a == '(' &&
          !odd(c, span(c, a, b), "a comma stands where actions are joined by ';'",
               cut(c, a + 1, comma)))
        ok = false, b = a;
      else if (comma && *a == '(')
        a++, b = comma;
    } else {
      next = memchr(p, ',', (size_t)(end - p));
      b = next = next ? next : end;
    }
    ok &= cell(c, a, b);
    if (c->s->diag->errors > c->s->diag->limit)
      return false;
    more = next < end;
    p = next + 1;
  }
  return ok;
}

/* The end of the row at p; *next: the begin of the next row. A line ends with LF or CRLF, with
 * --torch-lax also with CR. *lf: the first LF from p on, or `stop`; kept between calls, so that the
 * text is searched once. */
static const char *row_end(Csv *c, const char *p, const char *stop, const char **lf,
                           const char **next, bool *ok) {
  if (*lf < p) {
    const char *found = memchr(p, '\n', (size_t)(stop - p));
    *lf = found ? found : stop;
  }
  const char *end = *lf, *cr = memchr(p, '\r', (size_t)(end - p));
  *next = end + 1;
  if (!cr)
    return end;
  if (end < stop && cr + 1 == end)
    return cr;
  *next = cr + 1;
  *ok &= odd(c, span(c, cr, cr + 1), "a line ends with a carriage return alone",
             "the end of a line");
  return cr;
}

static bool read_rows(Csv *c, uint32_t len) {
  bool ok = true;
  const char *stop = c->text + len, *lf = memchr(c->text, '\n', len), *next;
  lf = lf ? lf : stop;
  for (const char *p = c->text; p < stop; p = next) {
    const char *end = row_end(c, p, stop, &lf, &next, &ok);
    ok &= row(c, p, end);
    if (c->s->diag->errors > c->s->diag->limit)
      return false;
  }
  *vec_push(c->s->arena, &c->row0) = c->action.n;
  if (ok && c->row_at.n == 0) {
    diag_error(c->s->diag, DIAG_CSV, NO_SPAN, "%s is empty", c->s->opt->input);
    ok = false;
  }
  if (ok && c->comms && c->idle.file != NO_FILE) {
    diag_error(c->s->diag, DIAG_CSV, c->idle,
               "an idle cell in a file with transfers: PyTorch writes no such cell");
    diag_note(c->s->diag, c->comms_at, "this makes it a compute_comms file");
    ok = false;
  }
  return ok;
}

static Span at_site(const Csv *c, const Action *a) { return c->s->orders->site[a->site]; }

static const char *action_text(Csv *c, const Action *a) {
  const Span at = at_site(c, a);
  return cut(c, c->text + at.beg, c->text + at.end);
}

/* Does only a schedule that is trained have the kind? */
static bool is_trained(uint32_t kind) {
  switch (kind) {
  case PIPE_F:
  case PIPE_SEND_F:
  case PIPE_RECV_F:
  case K_WAIT_SEND_F:
  case K_WAIT:
  case K_UNSHARD:
  case K_RESHARD: return false;
  default: return true;
  }
}

/* Checks that a kind of op that others need is not absent from the whole file. A file without any
 * trained kind is forward-only. */
static bool check_kinds(Csv *c) {
  const Action *first[PIPE_NOPS] = {NULL}, *trained = NULL;
  for (uint32_t i = c->action.n; i-- > 0;) {
    const Action *a = &c->action.at[i];
    if (a->kind < PIPE_NOPS)
      first[a->kind] = a;
    if (is_trained(a->kind))
      trained = a;
  }
  c->made->model.forward = !trained;
  const bool backward = first[PIPE_B] || first[PIPE_I] || first[PIPE_W];
  const Action *there = !first[PIPE_F] || !backward       ? trained
                        : first[PIPE_I] && !first[PIPE_W] ? first[PIPE_I]
                        : first[PIPE_W] && !first[PIPE_I] ? first[PIPE_W]
                                                          : NULL;
  if (!there)
    return true;
  diag_error(c->s->diag, DIAG_MISSING_OP, at_site(c, there), "the file has %s, but no %s",
             action_text(c, there),
             !first[PIPE_F]          ? "F"
             : !backward             ? "B"
             : there->kind == PIPE_I ? "W"
                                     : "I");
  return false;
}

/* The ops of a stage, or of a microbatch. */
typedef struct Tally {
  const Action *first;
  uint32_t rank, nop; /* rank of `first`; number of ops */
  bool several;       /* several ranks have them */
} Tally;

static void add(Tally *tally, const Action *a, uint32_t rank) {
  if (!tally->first)
    *tally = (Tally){.first = a, .rank = rank};
  tally->nop++;
  tally->several |= tally->rank != rank;
}

/* Reports an op whose stage has no other op, although other stages have more. */
static bool check_lone_stages(Csv *c, const Tally *stage) {
  const Model *model = &c->made->model;
  const uint64_t needed = (uint64_t)model->nmb * (model->forward ? 1 : 2);
  bool ok = true;
  for (uint32_t st = 0; st < model->nstage; st++)
    if (stage[st].nop == 1 && needed > 2) {
      diag_error(c->s->diag, DIAG_MISSING_OP, at_site(c, stage[st].first),
                 "%s of rank %u is the only op of stage %u", action_text(c, stage[st].first),
                 stage[st].rank, st);
      ok = false;
    }
  return ok;
}

/* Reports microbatches of which one rank among several has ops or there is only one op, and
 * microbatches without ops. */
static bool check_microbatches(Csv *c, const Tally *mb) {
  const Model *model = &c->made->model;
  Diag *d = c->s->diag;
  const uint64_t needed = (uint64_t)model->nstage * (model->forward ? 1 : 2);
  bool ok = true;
  for (uint32_t m = 0, end; m < model->nmb; m = end) {
    const Tally *t = &mb[m];
    end = m + 1;
    const bool alone = model->nrank > 1 && t->nop && !t->several;
    if ((!alone && t->nop != 1) || needed <= t->nop + 1)
      continue;
    while (alone && end < model->nmb && mb[end].nop && !mb[end].several && mb[end].rank == t->rank)
      end++;
    const char *op = action_text(c, t->first);
    if (end > m + 1)
      diag_error(d, DIAG_MISSING_OP, at_site(c, t->first),
                 "rank %u alone has ops of microbatches %u to %u, such as %s", t->rank, m, end - 1,
                 op);
    else if (t->nop > 1)
      diag_error(d, DIAG_MISSING_OP, at_site(c, t->first),
                 "rank %u alone has ops of microbatch %u, such as %s", t->rank, m, op);
    else
      diag_error(d, DIAG_MISSING_OP, at_site(c, t->first),
                 "%s of rank %u is the only op of microbatch %u", op, t->rank, m);
    ok = false;
  }
  for (uint32_t m = 0; m < model->nmb && ok; m++)
    if (!mb[m].nop) {
      diag_error(d, DIAG_MISSING_OP, at_site(c, mb[model->nmb - 1].first),
                 "there is a microbatch %u, but no rank runs microbatch %u", model->nmb - 1, m);
      ok = false;
    }
  return ok;
}

/* Places each stage on the rank of the row that computes it, and counts microbatches. False:
 * reported. */
static bool place(Csv *c) {
  Sched *s = c->s;
  Model *model = &c->made->model;
  uint32_t n = c->action.n;
  Tally *stage = NEW_ARRAY(s->arena, Tally, n); /* of at most n */
  Tally *mb = NEW_ARRAY(s->arena, Tally, n);
  bool ok = true;
  model->nrank = c->row_at.n;
  for (uint32_t r = 0; r < model->nrank; r++) {
    bool any = false;
    for (uint32_t i = c->row0.at[r]; i < c->row0.at[r + 1]; i++) {
      const Action *a = &c->action.at[i];
      if (a->kind > PIPE_U)
        continue;
      any = true;
      if (a->stage >= n || a->mb >= n) {
        diag_error(s->diag, DIAG_BAD_INDEX, at_site(c, a),
                   "%s %u, but the whole file has %u actions",
                   a->stage >= n ? "stage" : "microbatch", a->stage >= n ? a->stage : a->mb, n);
        return false;
      }
      model->nstage = a->stage >= model->nstage ? a->stage + 1 : model->nstage;
      model->nmb = a->mb >= model->nmb ? a->mb + 1 : model->nmb;
      add(&stage[a->stage], a, r);
      add(&mb[a->mb], a, r);
      if (stage[a->stage].several) {
        diag_error(s->diag, DIAG_PLACE, at_site(c, a), "stage %u is on rank %u and on rank %u",
                   a->stage, stage[a->stage].rank, r);
        diag_note(s->diag, at_site(c, stage[a->stage].first), "first given here");
        return false;
      }
    }
    if (!any) {
      diag_error(s->diag, DIAG_EMPTY_RANK, c->row_at.at[r],
                 "rank %u computes nothing: every line is a rank, a blank line, too", r);
      ok = false;
    }
  }
  if (!ok || !check_kinds(c) || !check_lone_stages(c, stage))
    return false;
  for (uint32_t st = 0; ok && st < model->nstage; st++)
    if (!stage[st].first) {
      diag_error(s->diag, DIAG_PLACE, at_site(c, stage[model->nstage - 1].first),
                 "there is a stage %u, but no rank computes stage %u", model->nstage - 1, st);
      ok = false;
    }
  ok = ok && check_microbatches(c, mb);
  /* Each needs an F; a file without a backward may lack half of them, so that they are named. */
  if (ok && (uint64_t)model->nstage * model->nmb > (uint64_t)n * (model->forward ? 2 : 1)) {
    diag_error(s->diag, DIAG_MISSING_OP, NO_SPAN,
               "%u stages x %u microbatches need more than the %u actions of the file",
               model->nstage, model->nmb, n);
    ok = false;
  }
  if (!ok)
    return false;
  model->stage = NEW_ARRAY(s->arena, PipeStage, model->nstage);
  for (uint32_t st = 0; st < model->nstage; st++)
    model->stage[st] = (PipeStage){.rank = stage[st].rank,
                                   .prev = st ? st - 1 : NONE,
                                   .next = st + 1 < model->nstage ? st + 1 : NONE,
                                   .model = st,
                                   .replica = st,
                                   .nmb = model->nmb,
                                   .nin = st > 0,
                                   .nout = st + 1 < model->nstage,
                                   .tied = NONE,
                                   .tie = st};
  number_chunks(s, model);
  return true;
}

static bool fill_ops(Csv *c) {
  Sched *s = c->s;
  Orders *orders = &c->made->orders;
  size_t cells = (size_t)s->model->nstage * s->model->nmb;
  bool ok = true;
  orders->at_f = NEW_ARRAY(s->arena, uint32_t, cells);
  orders->at_b = NEW_ARRAY(s->arena, uint32_t, cells);
  orders->at_w = NEW_ARRAY(s->arena, uint32_t, cells);
  orders->at_r = NEW_ARRAY(s->arena, uint32_t, cells); /* the format has no R */
  orders->rank_op0 = NEW_ARRAY(s->arena, uint32_t, s->model->nrank + 1);
  orders->order_at = c->row_at.at;
  orders->op = arena_alloc(s->arena, ((size_t)c->action.n + s->model->nstage) * sizeof *orders->op);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    orders->rank_op0[r] = orders->nop;
    uint32_t site = 0;
    for (uint32_t i = c->row0.at[r]; i < c->row0.at[r + 1]; i++) {
      const Action *a = &c->action.at[i];
      if (a->kind > PIPE_U)
        continue;
      size_t k = (size_t)a->stage * s->model->nmb + a->mb;
      uint32_t *at = a->kind == PIPE_F   ? &orders->at_f[k]
                     : a->kind == PIPE_W ? &orders->at_w[k]
                                         : &orders->at_b[k];
      uint32_t old = *at                 ? *at
                     : a->kind == PIPE_B ? orders->at_w[k]
                     : a->kind == PIPE_W && orders->at_b[k] &&
                             orders->op[orders->at_b[k] - 1].kind == PIPE_B
                         ? orders->at_b[k]
                         : 0;
      if (old && orders->op[old - 1].kind == a->kind)
        diag_error(s->diag, DIAG_DUPLICATE_OP, at_site(c, a), "rank %u runs %s twice", r,
                   op_text(s, old - 1));
      else if (old)
        diag_error(s->diag, DIAG_MIXED_BACKWARD, at_site(c, a),
                   "rank %u: %u%s%u, but %s already is the backward of this microbatch: B = I + W",
                   r, a->stage, pipe_op_info[a->kind].text, a->mb, op_text(s, old - 1));
      if (old) {
        diag_note(s->diag, orders->site[orders->op[old - 1].site], "%s is here first",
                  op_text(s, old - 1));
        ok = false;
        continue;
      }
      orders->op[orders->nop] = (Op){
          .kind = (uint8_t)a->kind, .stage = a->stage, .mb = a->mb, .site = site = a->site};
      if (a->joined && !c->comms && orders->nop > orders->rank_op0[r])
        orders->op[orders->nop - 1].group = 1;
      *at = ++orders->nop;
    }
    set_phases(orders, orders->rank_op0[r], orders->nop);
    const uint32_t end = s->model->forward ? 0 : s->model->rank_stage0[r + 1];
    for (uint32_t i = s->model->rank_stage0[r]; i < end; i++) {
      orders->op[orders->nop++] = (Op){.kind = PIPE_U,
                                       .phase = PIPE_FLUSH,
                                       .stage = s->model->rank_stage[i],
                                       .mb = NONE,
                                       .site = site};
    }
  }
  orders->rank_op0[s->model->nrank] = orders->nop;
  return ok;
}

/* The number of transfers that follow action i in its group. */
static uint16_t joined_after(const Csv *c, uint32_t i, uint32_t end) {
  uint32_t n = 0;
  while (c->action.at[i].kind > PIPE_U && i + n + 1 < end && c->action.at[i + n + 1].joined)
    n++;
  return (uint16_t)n;
}

/* Makes the list of each rank, without UNSHARD, RESHARD, REDUCE_GRAD and WAIT_REDUCE_GRAD: no proof
 * needs them. WAIT_SEND_x becomes its SEND with `waits` set. WAIT becomes the `waits` of the next
 * instruction, unless this is a WAIT_SEND_x: its SEND stands above the WAIT. */
static void fill_lists(Csv *c) {
  Sched *s = c->s;
  PipeInstr *in = arena_alloc(s->arena, (size_t)c->action.n * sizeof *in + 1);
  c->made->orders.lists = NEW_ARRAY(s->arena, List, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    s->orders->lists[r].instr = in;
    bool all = false;
    for (uint32_t i = c->row0.at[r]; i < c->row0.at[r + 1]; i++) {
      const Action *a = &c->action.at[i];
      bool wait = a->kind == K_WAIT_SEND_F || a->kind == K_WAIT_SEND_B;
      all |= a->kind == K_WAIT;
      if (a->kind >= PIPE_NOPS && !wait)
        continue;
      *in = pipe_instr(a->kind == K_WAIT_SEND_F   ? PIPE_SEND_F
                       : a->kind == K_WAIT_SEND_B ? PIPE_SEND_B
                                                  : (PipeOp)a->kind,
                       a->stage, a->mb);
      in->waits = wait ? WAIT_SEND : all ? WAIT_ALL : 0;
      in->group = joined_after(c, i, c->row0.at[r + 1]);
      all &= wait;
      in++->site = a->site;
    }
    s->orders->lists[r].n = (uint32_t)(in - s->orders->lists[r].instr);
  }
}

/* In a file with WAIT_REDUCE_GRAD, each REDUCE_GRAD must have one before the next REDUCE_GRAD of
 * the rank. */
static bool check_reduce_waits(Csv *c) {
  Sched *s = c->s;
  bool any = false, ok = true;
  for (uint32_t i = 0; i < c->action.n; i++)
    any |= c->action.at[i].kind == K_WAIT_REDUCE_GRAD;
  for (uint32_t r = 0; any && r < s->model->nrank; r++) {
    const Action *open = NULL;
    for (uint32_t i = c->row0.at[r]; i <= c->row0.at[r + 1]; i++) {
      const Action *a = i < c->row0.at[r + 1] ? &c->action.at[i] : NULL;
      bool wait = a && a->kind == K_WAIT_REDUCE_GRAD;
      if (wait && (!open || open->stage != a->stage)) {
        diag_error(s->diag, DIAG_CSV, at_site(c, a),
                   "rank %u waits for %uREDUCE_GRAD, which has not begun", r, a->stage);
        ok = false;
      } else if (open && !wait && (!a || a->kind == K_REDUCE_GRAD)) {
        diag_error(s->diag, DIAG_CSV, at_site(c, open),
                   "rank %u does not wait for %uREDUCE_GRAD %s: %uWAIT_REDUCE_GRAD is missing", r,
                   open->stage, a ? "before the next REDUCE_GRAD" : "before its last action ends",
                   open->stage);
        ok = false;
      }
      if (wait)
        open = NULL;
      else if (a && a->kind == K_REDUCE_GRAD)
        open = a;
    }
  }
  return ok;
}

/* Checks REDUCE_GRAD, because PyTorch divides the gradients of a stage by the number of
 * microbatches only there. warn: also of what PyTorch does not read or does not divide. */
static bool check_reduce(Csv *c, bool warn) {
  Sched *s = c->s;
  const Action **reduce = NEW_ARRAY(s->arena, const Action *, s->model->nstage);
  uint32_t lacking = 0, last = 0;
  bool ok = check_reduce_waits(c);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = c->row0.at[r]; i < c->row0.at[r + 1]; i++) {
      const Action *a = &c->action.at[i];
      if (a->kind >= PIPE_NOPS && a->kind < K_WAIT_SEND_F &&
          (a->stage >= s->model->nstage || s->model->stage[a->stage].rank != r)) {
        diag_error(s->diag, DIAG_FOREIGN, at_site(c, a), "rank %u computes nothing of stage %u", r,
                   a->stage);
        ok = false;
      } else if (a->kind == K_REDUCE_GRAD && reduce[a->stage]) {
        diag_error(s->diag, DIAG_DUPLICATE_OP, at_site(c, a), "rank %u runs %uREDUCE_GRAD twice", r,
                   a->stage);
        diag_note(s->diag, at_site(c, reduce[a->stage]), "it is here first");
        ok = false;
      } else if (a->kind == K_REDUCE_GRAD) {
        reduce[a->stage] = a;
      } else if ((a->kind == PIPE_B || a->kind == PIPE_W) && reduce[a->stage]) {
        diag_error(
            s->diag, DIAG_UPDATE, at_site(c, a),
            "rank %u runs this after %uREDUCE_GRAD, which must follow all gradients of the stage",
            r, a->stage);
        diag_note(s->diag, at_site(c, reduce[a->stage]), "%uREDUCE_GRAD is here", a->stage);
        reduce[a->stage] = NULL;
        ok = false;
      }
    }
  for (uint32_t st = 0; st < s->model->nstage; st++)
    if (!reduce[st])
      lacking++, last = st;
  if (ok && warn && c->own.file != NO_FILE)
    diag_warn(s->diag, DIAG_CSV, c->own,
              "PyTorch does not read this cell: '+' and WAIT are pipec's");
  else if (ok && warn && lacking && !s->model->forward)
    diag_warn(
        s->diag, DIAG_CSV, s->orders->order_at[s->model->stage[last].rank],
        "%u of %u stages, such as %u, have no REDUCE_GRAD: PyTorch does not divide their gradients by the number of microbatches",
        lacking, s->model->nstage, last);
  return ok;
}

bool is_csv(const Options *o) {
  size_t n = o->input ? strlen(o->input) : 0;
  return n >= 4 && strcmp(o->input + n - 4, ".csv") == 0;
}

bool read_csv(Sched *s, Expanded *e) {
  Csv c = {.s = s, .made = e, .idle = NO_SPAN, .own = NO_SPAN};
  /* no clauses: costs come from the profile or are the defaults */
  Instance x = {.s = s, .model = &e->model};
  uint32_t len;
  c.text = input_read(s, &len);
  if (!c.text)
    return false;
  c.file = diag_source(s->diag, s->opt->input, c.text, len);
  e->model.name = file_name(s->opt->input);
  e->model.params = "";
  e->model.slices = 1;
  if (s->opt->ndefine > 0 && s->opt->ncompare == 0) { /* else other inputs may have them */
    diag_error(s->diag, DIAG_PARAM, NO_SPAN, "-D %s: a CSV file has no parameters",
               s->opt->define[0].name);
    return false;
  }
  if (s->opt->schedule) {
    diag_error(s->diag, DIAG_USAGE, NO_SPAN,
               "--schedule=%s: a CSV file has one schedule, without a name", s->opt->schedule);
    return false;
  }
  if (!read_rows(&c, len) || !place(&c))
    return false;
  e->model.nmodel = e->model.nstage;
  bool own = c.comms && !s->opt->lowering;
  if (!set_costs(&x) || !fill_ops(&c) || (c.comms && !check_reduce(&c, own && s->opt->check_only)))
    return false;
  if (own)
    fill_lists(&c);
  else /* the transfers of the file are ignored */
    e->orders.lowering = asked_lowering(s, LOWERING_AUTO);
  return true;
}
