/* SPDX-License-Identifier: MIT
 * Has a formula (formula.c) a value for every M? What is known when it is compiled is computed in double, and what is made of it must be a
 * number, and one of float: so each part of it is bounded here, over all M up to 2^31 and all numbers that an op can have, by the
 * same operations on the ends of ranges. These are monotone in each operand, rounded as they are; of `exp`, `log`
 * and `pow`, which need not be, the ends are moved apart a little. What only the run knows is never a constant, and what is made of it is one
 * only where formula.c folds: of 0 and 1.
 *
 * What does not move has been computed for the ops at the M at hand, unless it stands behind a condition that moves: then, and where it moves, a
 * part that may be beyond 2^126, a divisor that may be within 2^-126 of 0, and a root or logarithm that may not exist, are not
 * decided. Linear in the text for each stage, a sum as often as it has turns. */
#include <math.h>

#include "formula.h"
#include "names.h"
#include "rest_of_m.h"

enum { MOST_TURNS = PIPE_FORMULA_TERMS, MOST_STEPS = 1 << 22 };
static const char *const NO_VALUE = "for some M it may have no value",
                         *const LARGE = "for some M it may be too large for a float",
                         *const ZERO = "for some M it may be 0, or near it";
static const double MOST = 0x1p126, LEAST = 0x1p-126, NEAR = 1e-12;

/* What a part is if it is known when it is compiled. */
typedef struct Reach {
  double lo, hi;
  bool run;   /* it never is: then it has no range */
  bool whole; /* it is an integer */
  bool moves;
} Reach;

typedef struct Bound {
  Line *l;
  uint32_t steps;
  const Expr *no;  /* the first part that may have no value */
  const char *why; /*   and what it may be */
} Bound;

static const Reach NOTHING = {0, 0, true, false, false};

static bool is_moved(Line *l, const Expr *e) {
  l->moved.steps = 0;
  return expr_is_moved(&l->moved, e);
}

static bool is_only(const Reach *r, double x) { return !r->run && r->lo == x && r->hi == x; }
static bool never(const Reach *r, double x) { return r->run || r->lo > x || r->hi < x; }

static Reach refuse(Bound *b, const Expr *e, const char *why) {
  if (!b->no)
    b->no = e, b->why = why;
  return NOTHING;
}

static Reach hull(const double *x, int n, Reach like) {
  like.lo = INFINITY, like.hi = -INFINITY;
  for (int i = 0; i < n; i++)
    if (isnan(x[i]))
      like.lo = -INFINITY, like.hi = INFINITY;
    else
      like.lo = fmin(like.lo, x[i]), like.hi = fmax(like.hi, x[i]);
  return like;
}

/* Of a function of the C library, which is right up to some last bits. */
static Reach wider(Reach r) {
  r.lo -= fabs(r.lo) * NEAR, r.hi += fabs(r.hi) * NEAR;
  return r;
}

/* Either of both. */
static Reach either(const Reach *a, const Reach *b) {
  Reach r = a->run ? *b : *a;
  r.run = a->run && b->run, r.whole = a->whole && b->whole, r.moves = a->moves || b->moves;
  if (!a->run && !b->run)
    r.lo = fmin(a->lo, b->lo), r.hi = fmax(a->hi, b->hi);
  return r;
}

static Reach outcome(bool no, bool yes, Reach like) {
  like.lo = !no, like.hi = yes, like.whole = true;
  return like;
}

static Reach reach(Bound *b, const Expr *e, bool late);

/* An integer of the schedule. */
static Reach integer(Bound *b, const Expr *e, bool late) {
  Line *l = b->l;
  Reach r = {.whole = true, .moves = is_moved(l, e)};
  int64_t v = 0;
  if (!r.moves && quiet_value(l->s, e, &v)) {
    r.lo = r.hi = (double)v;
    return r;
  }
  const Expr *no = r.moves ? no_value(l, e, late) : late ? e : NULL;
  if (no)
    return refuse(b, no, NO_VALUE);
  l->steps = 0;
  r.hi = ldexp(1, (int)bits_of(l, e));
  if (e->kind == EX_NAME && e->builtin == FO_VALUE && e->slot == l->m)
    r.hi = 0x1p31; /* M itself */
  r.lo = always_positive(l, e) ? 1 : never_negative(l, e) ? 0 : -r.hi;
  return r;
}

static Reach name(Bound *b, const Expr *e, bool late) {
  Reach r = {.whole = true, .moves = is_moved(b->l, e)};
  switch (e->builtin) {
  case FO_VALUE: return integer(b, e, late);
  case FO_N: r.lo = 1, r.hi = 0x1p62; return r;
  case FO_DELAY:
  case FO_AHEAD: r.lo = 0, r.hi = 0x1p32; return r;
  case FO_BEHIND: r.lo = -0x1p32, r.hi = 0x1p32; return r;
  default: return NOTHING;
  }
}

static Reach product(const Reach *a, const Reach *b, Reach r) {
  const double x[] = {a->lo * b->lo, a->lo * b->hi, a->hi * b->lo, a->hi * b->hi};
  r.run = (a->run && never(b, 0)) || (b->run && never(a, 0));
  if (a->run || b->run) /* a constant only of a factor 0 */
    return r.lo = r.hi = 0, r;
  return hull(x, 4, r);
}

static Reach quotient(Bound *k, const Expr *e, bool late, Reach *a, Reach *b, Reach r) {
  r.whole = false;
  r.run = a->run || (b->run && never(a, 0));
  if (!b->run && b->lo < LEAST && b->hi > -LEAST) {
    if (late || b->moves)
      return refuse(k, e->b, ZERO);
    if (!b->whole || is_only(b, 0)) { /* it is not 0 where it is computed, but perhaps near it */
      r.lo = -INFINITY, r.hi = INFINITY;
      return r;
    }
    b->lo = b->lo == 0 ? 1 : b->lo, b->hi = b->hi == 0 ? -1 : b->hi;
  }
  if (a->run || b->run)
    return r.lo = r.hi = 0, r;
  const double x[] = {a->lo / b->lo, a->lo / b->hi, a->hi / b->lo, a->hi / b->hi,
                      -a->lo,        -a->hi,        a->lo,         a->hi};
  return hull(x, b->lo < 0 && b->hi > 0 ? 8 : 4, r); /* by whole numbers of both signs: not 0 */
}

static Reach power(Bound *k, const Expr *e, bool late, const Reach *a, const Reach *b, Reach r) {
  r.whole = false;
  r.run = (a->run && never(b, 0)) || (b->run && never(a, 1));
  if (a->run || b->run) /* a constant only where it is 1 */
    return r.lo = r.hi = 1, r;
  double most = fmax(fabs(a->lo), fabs(a->hi)),
         least = a->lo <= 0 && a->hi >= 0 ? 0 : fmin(fabs(a->lo), fabs(a->hi));
  if ((least < LEAST && b->lo < 0) || (a->lo < 0 && !b->whole)) {
    if (late || r.moves)
      return refuse(k, e, NO_VALUE);
    r.lo = -INFINITY, r.hi = INFINITY;
    return r;
  }
  const double x[] = {pow(least, b->lo), pow(least, b->hi), pow(most, b->lo), pow(most, b->hi),
                      b->lo <= 0 && b->hi >= 0 ? 1 : pow(most, b->hi)};
  r = wider(hull(x, 5, r));
  if (a->lo < 0)
    r.hi = fmax(fabs(r.lo), fabs(r.hi)), r.lo = -r.hi;
  return r;
}

static Reach of_two(Bound *k, const Expr *e, int op, bool late, Reach a, Reach b) {
  Reach r = {.run = a.run || b.run, .whole = a.whole && b.whole, .moves = a.moves || b.moves};
  double x[2];
  switch (op) {
  case PIPE_TERM_ADD: x[0] = a.lo + b.lo, x[1] = a.hi + b.hi; return hull(x, 2, r);
  case PIPE_TERM_SUB: x[0] = a.lo - b.hi, x[1] = a.hi - b.lo; return hull(x, 2, r);
  case PIPE_TERM_MUL: return product(&a, &b, r);
  case PIPE_TERM_DIV: return quotient(k, e, late, &a, &b, r);
  case PIPE_TERM_POW: return power(k, e, late, &a, &b, r);
  case PIPE_TERM_MIN: r.lo = fmin(a.lo, b.lo), r.hi = fmin(a.hi, b.hi); return r;
  case PIPE_TERM_MAX: r.lo = fmax(a.lo, b.lo), r.hi = fmax(a.hi, b.hi); return r;
  case PIPE_TERM_LT: return outcome(a.hi >= b.lo, a.lo < b.hi, r);
  case PIPE_TERM_LE: return outcome(a.hi > b.lo, a.lo <= b.hi, r);
  case PIPE_TERM_GT: return outcome(a.lo <= b.hi, a.hi > b.lo, r);
  case PIPE_TERM_GE: return outcome(a.lo < b.hi, a.hi >= b.lo, r);
  default: return outcome(true, true, r); /* equal or not, and, or */
  }
}

static Reach of_one(Bound *k, const Expr *e, int op, bool late, const Reach *a) {
  Reach r = *a;
  bool both = a->lo < 0 && a->hi > 0;
  if (a->run)
    return r;
  switch (op) {
  case PIPE_TERM_NEG: r.lo = -a->hi, r.hi = -a->lo; return r;
  case PIPE_TERM_NOT: return outcome(!is_only(a, 0), !never(a, 0), r);
  case PIPE_TERM_ABS:
    r.lo = both ? 0 : fmin(fabs(a->lo), fabs(a->hi)), r.hi = fmax(fabs(a->lo), fabs(a->hi));
    return r;
  case PIPE_TERM_FLOOR: r.lo = floor(a->lo), r.hi = floor(a->hi), r.whole = true; return r;
  default: break;
  }
  r.whole = false;
  if (op == PIPE_TERM_EXP) {
    r.lo = exp(a->lo), r.hi = exp(a->hi);
    return wider(r);
  }
  if ((op == PIPE_TERM_SQRT ? a->lo < 0 : a->lo < LEAST) && (late || a->moves))
    return refuse(k, e, NO_VALUE);
  if (op == PIPE_TERM_SQRT) {
    r.lo = sqrt(fmax(a->lo, 0)), r.hi = sqrt(fmax(a->hi, 0));
    return r;
  }
  r.lo = log(fmax(a->lo, 0x1p-1074)), r.hi = log(fmax(a->hi, 0x1p-1074));
  return wider(r);
}

/* A part must be a number of float, unless it is no constant, or has been computed. */
static Reach checked(Bound *b, const Expr *e, bool late, Reach r) {
  bool fits = r.lo >= -MOST && r.hi <= MOST;
  return b->no || r.run || fits || !(late || r.moves) ? r : refuse(b, e, LARGE);
}

/* e for each j from a up to b. */
static Reach sum(Bound *b, const Expr *e, bool late) {
  Line *l = b->l;
  const Arg *j = e->args, *lo = j->next, *hi = lo->next;
  Reach from = reach(b, lo->value, late), to = reach(b, hi->value, late);
  Reach r = {.moves = from.moves || to.moves}, next;
  uint32_t slot = j->value->slot;
  if (from.run || to.run || from.lo != from.hi || to.lo != to.hi || to.lo - from.lo > MOST_TURNS ||
      from.lo != floor(from.lo) || to.lo != floor(to.lo) || !(fabs(from.lo) < MOST_TURNS * 0x1p20))
    return refuse(b, e, NO_VALUE);
  l->known[slot] = true;
  for (double i = from.lo; i < to.lo && !b->no; i++) {
    l->s->eval.env[slot] = (int64_t)i;
    next = reach(b, hi->next->value, late);
    r = checked(b, e, late, of_two(b, e, PIPE_TERM_ADD, late, r, next));
  }
  return r;
}

static Reach call(Bound *b, const Expr *e, bool late) {
  if (e->slot == FORMULA_INTEGER)
    return integer(b, e, late);
  if (e->slot == FORMULA_SUM)
    return sum(b, e, late);
  Reach r = reach(b, e->args->value, late);
  if (!e->args->next)
    return of_one(b, e, (int)e->slot, late, &r);
  for (const Arg *a = e->args->next; a; a = a->next)
    r = checked(b, e, late, of_two(b, e, (int)e->slot, late, r, reach(b, a->value, late)));
  return r;
}

/* The second one is not looked at where the first one decides. */
static Reach both(Bound *b, const Expr *e, bool late) {
  bool all = e->kind == EX_AND;
  Reach x = reach(b, e->a, late);
  if (!x.run && (all ? is_only(&x, 0) : never(&x, 0)))
    return outcome(all, !all, x);
  Reach y = reach(b, e->b, late || x.moves),
        r = {.run = x.run || (y.run && (all ? never(&x, 0) : is_only(&x, 0))),
             .moves = x.moves || y.moves};
  bool known = all ? never(&x, 0) : is_only(&x, 0);
  return outcome(!known || !never(&y, 0), !known || !is_only(&y, 0), r);
}

static Reach choice(Bound *b, const Expr *e, bool late) {
  Reach c = reach(b, e->a, late), x, y;
  if (!c.run && (never(&c, 0) || is_only(&c, 0)))
    return reach(b, never(&c, 0) ? e->b : e->c, late);
  x = reach(b, e->b, late || c.moves), y = reach(b, e->c, late || c.moves);
  x = either(&x, &y);
  x.moves |= c.moves;
  return x;
}

static Reach value(Bound *b, const Expr *e, bool late) {
  static const uint8_t term[] = {
      [EX_ADD] = PIPE_TERM_ADD, [EX_SUB] = PIPE_TERM_SUB, [EX_MUL] = PIPE_TERM_MUL,
      [EX_DIV] = PIPE_TERM_DIV, [EX_LT] = PIPE_TERM_LT,   [EX_LE] = PIPE_TERM_LE,
      [EX_GT] = PIPE_TERM_GT,   [EX_GE] = PIPE_TERM_GE,   [EX_EQ] = PIPE_TERM_EQ,
      [EX_NE] = PIPE_TERM_NE};
  Reach a;
  switch (e->kind) {
  case EX_INT: return (Reach){(double)e->value, (double)e->value, false, true, false};
  case EX_REAL: return (Reach){e->real, e->real, false, false, false};
  case EX_NAME: return name(b, e, late);
  case EX_MOD: return integer(b, e, late);
  case EX_CALL: return call(b, e, late);
  case EX_COND: return choice(b, e, late);
  case EX_AND:
  case EX_OR: return both(b, e, late);
  case EX_NEG:
  case EX_NOT:
    a = reach(b, e->a, late);
    return of_one(b, e, e->kind == EX_NEG ? PIPE_TERM_NEG : PIPE_TERM_NOT, late, &a);
  default:
    a = reach(b, e->a, late);
    return of_two(b, e, term[e->kind], late, a, reach(b, e->b, late));
  }
}

static Reach reach(Bound *b, const Expr *e, bool late) {
  if (b->no)
    return NOTHING;
  if (b->steps++ > MOST_STEPS)
    return refuse(b, e, NO_VALUE);
  return checked(b, e, late, value(b, e, late));
}

/* Is it made of integers that do not move, with what gives integers? */
static bool is_plain(const Line *l, const Expr *e) {
  switch (e->kind) {
  case EX_INT: return true;
  case EX_NAME: return e->builtin == FO_VALUE && l->known[e->slot] && !l->moved.slot[e->slot];
  case EX_NEG: return is_plain(l, e->a);
  case EX_ADD:
  case EX_SUB:
  case EX_MUL: return is_plain(l, e->a) && is_plain(l, e->b);
  default: return false;
  }
}

/* The number of turns of a sum whose ends are such; of others it is more than fit. */
static uint32_t turns_of(const Line *l, const Expr *sum) {
  const Expr *lo = sum->args->next->value, *hi = sum->args->next->next->value;
  int64_t a, b, n;
  if (!is_plain(l, lo) || !is_plain(l, hi) || !quiet_value(l->s, lo, &a) ||
      !quiet_value(l->s, hi, &b) || __builtin_sub_overflow(b, a, &n) || n > MOST_TURNS)
    return MOST_TURNS;
  return n < 0 ? 0 : (uint32_t)n;
}

/* Terms and values at once that a formula may need, whatever is folded in it. */
typedef struct Room {
  uint32_t terms, depth;
} Room;

static Room behind(Room a, Room b, uint32_t held) {
  uint32_t depth = b.depth + held;
  return (Room){a.terms + b.terms > MOST_TURNS ? MOST_TURNS + 1 : a.terms + b.terms,
                a.depth > depth ? a.depth : depth};
}

static Room room_of(const Line *l, const Expr *e) {
  const Room one = {1, 0};
  Room all = {0, 0};
  uint32_t held = 0;
  if (e->kind == EX_MOD || e->kind == EX_INT || e->kind == EX_REAL || e->kind == EX_NAME ||
      (e->kind == EX_CALL && e->slot == FORMULA_INTEGER))
    return (Room){1, 1};
  if (e->kind == EX_CALL && e->slot == FORMULA_SUM) {
    Room body = behind(behind((Room){1, 1}, room_of(l, e->args->next->next->next->value), 1), one,
                       0);
    uint32_t turns = turns_of(l, e);
    all = behind(room_of(l, e->args->next->value), room_of(l, e->args->next->next->value), 1);
    for (uint32_t i = 0; i < turns && all.terms <= MOST_TURNS; i++)
      all = behind(all, body, 0);
    return all;
  }
  const Expr *const part[] = {e->a, e->b, e->c};
  for (int i = 0; i < 3; i++)
    if (part[i])
      all = behind(all, room_of(l, part[i]), held++);
  for (const Arg *a = e->kind == EX_CALL ? e->args : NULL; a; a = a->next)
    all = behind(behind(all, room_of(l, a->value), held), one, 0), held = 1;
  return behind(all, one, 0);
}

const Expr *no_formula(Line *l, const Expr *e, bool late, const char **why) {
  Bound b = {.l = l};
  if (!e || (!late && !is_moved(l, e)))
    return NULL;
  reach(&b, e, late);
  *why = b.no ? b.why : "for some M it may have too many terms";
  if (b.no)
    return b.no;
  Room r = room_of(l, e);
  return r.terms > PIPE_FORMULA_TERMS || r.depth > PIPE_FORMULA_DEPTH ? e : NULL;
}
