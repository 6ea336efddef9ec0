/* SPDX-License-Identifier: MIT
 * Draws the grid in a terminal (--show): ranks down, time across, fitted to the width. Requires
 * prog.
 *
 * If the whole prediction fits, a column is a whole fraction of the greatest common divisor of all
 * times. Then every op has exactly its width, and shows its microbatch where there is room.
 * Otherwise a column shows the op that runs at its middle. If ops are narrower than columns, single
 * ops would show a false rhythm. So a column then shows the kind that takes three fifths of the
 * time around it, or '#' if none does; with colour and UTF-8, the two largest kinds, one above the
 * other.
 *
 * With colour an op is a block in the colour of its kind, in the shade of its chunk. Without colour
 * it is filled with a shade character of its kind or, if the locale is not UTF-8, with its
 * letter. */
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base.h"
#include "lower.h"
#include "pipe_sim.h"
#include "report.h"

enum { SHADES = 4, MOST_RANKS = 64, WIDEST = 1000, LEFT = 8, RIGHT = 20, LEAST = 12 };

/* Colours of the common 256-colour palette. */
static const struct Paint {
  uint8_t back[SHADES], ink;
  const char *fill, *name;
} paint[PIPE_NOPS] = {
    [PIPE_F] = {{153, 117, 75, 111}, 16, "\u2591", "forward"},
    [PIPE_B] = {{29, 23, 35, 30}, 231, "\u2588", "backward"},
    [PIPE_I] = {{79, 43, 115, 72}, 16, "\u2593", "input gradient"},
    [PIPE_W] = {{222, 215, 229, 178}, 16, "\u2592", "weight gradient"},
    [PIPE_R] = {{182, 146, 140, 176}, 16, "\u259a", "recomputed forward"},
    [PIPE_U] = {{53, 89, 54, 90}, 231, "\u25a0", "update"},
    [PIPE_SIDE] = {{94, 130, 95, 131}, 231, "\u25a4", "of the schedule's own"},
};

typedef struct Grid {
  Sched *s;
  FILE *f;
  bool colour, utf8;
  uint32_t cols;
  uint64_t time; /* of the whole grid: makespan, at least 1 */
  double around; /* time that a column summarizes; 0: columns show single ops */
} Grid;

uint32_t terminal_width(FILE *f, uint32_t none) {
  const char *env = getenv("COLUMNS");
  struct winsize size;
  long n = env ? strtol(env, NULL, 10) : 0;
  if (n <= 0 && isatty(fileno(f)) && ioctl(fileno(f), TIOCGWINSZ, &size) == 0)
    n = size.ws_col;
  return n <= 0 ? none : n > WIDEST ? WIDEST : (uint32_t)n;
}

static bool show_wants_colour(const Options *o, FILE *f) {
  const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
  if (o->color != COLOR_AUTO)
    return o->color == COLOR_ALWAYS;
  return !(none && *none) && isatty(fileno(f)) && term && strcmp(term, "dumb") != 0;
}

/* Does the locale of the user have UTF-8? The process may run in another locale. */
static bool is_utf8(void) {
  locale_t l = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
  if (!l)
    return false;
  bool yes = strcmp(nl_langinfo_l(CODESET, l), "UTF-8") == 0;
  freelocale(l);
  return yes;
}

static bool computes(const PipeInstr *in) { return pipe_stream_of(in->op) == PIPE_COMPUTE; }

static uint64_t gcd(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t c = a % b;
    a = b, b = c;
  }
  return a;
}

/* The number of columns: a whole number for each unit of time if this fits, at most as many as
 * labels can use. */
static uint32_t columns(Grid *g, uint64_t **start, uint64_t **end, uint32_t room) {
  const PipeProgram *p = g->s->prog;
  uint64_t unit = g->time, shortest = UINT64_MAX;
  double busy = 0, nop = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      if (computes(&p->rank[r].instr[i])) {
        uint64_t took = end[r][i] - start[r][i];
        unit = gcd(gcd(unit, start[r][i]), end[r][i]);
        shortest = took && took < shortest ? took : shortest;
        busy += (double)took, nop += took > 0;
      }
  uint64_t n = g->time / unit, most = 1;
  if (n > room) {
    double column = (double)g->time / room, op = busy / (nop > 0 ? nop : 1);
    g->around = op >= column ? 0 : column > 12 * op ? column : 12 * op;
    return room;
  }
  for (uint32_t m = p->nmb / p->slices; m; m /= 10)
    most++;
  for (uint32_t q = p->slices > 1 ? 10 * p->slices : 0; q; q /= 10)
    most++;
  if (shortest != UINT64_MAX)
    most = (most + shortest / unit - 1) / (shortest / unit);
  most = most < room / n ? most : room / n;
  return (uint32_t)(n * (most ? most : 1));
}

static void style(const Grid *g, const PipeInstr *in) {
  if (!g->colour)
    return;
  if (!in)
    fputs("\033[0;38;5;244m", g->f);
  else
    fprintf(g->f, "\033[0;38;5;%u;48;5;%um", paint[in->op].ink,
            paint[in->op].back[g->s->model->stage[in->stage].chunk % SHADES]);
}

static const char *fill(const Grid *g, const PipeInstr *in) {
  if (!in)
    return g->utf8 ? "\u00b7" : ".";
  return g->colour             ? " "
         : g->utf8             ? paint[in->op].fill
         : in->op == PIPE_SIDE ? "s"
                               : pipe_op_info[in->op].text;
}

/* Draws one op, or idle time (NULL), over n columns. */
static void cell(const Grid *g, const PipeInstr *in, uint32_t n) {
  char label[32] = "";
  uint32_t at = 0, len = 0;
  if (in && in->mb != NONE)
    len = (uint32_t)snprintf(label, sizeof label, g->s->model->slices > 1 ? "%u.%u" : "%u",
                             in->mb / g->s->model->slices, in->mb % g->s->model->slices);
  if (len + !g->colour > n) /* without colour only the fill shows the kind */
    len = 0;
  style(g, in);
  if (in && g->colour && g->utf8 && n > len) { /* left edge of the block */
    fputs("\u258f", g->f);
    at = 1;
  }
  if (len)
    fputs(label, g->f);
  for (at += len; at < n; at++)
    fputs(fill(g, in), g->f);
}

static void plain(const Grid *g) {
  if (g->colour)
    fputs("\033[0m", g->f);
}

/* The time at the middle of column c, rounded down: times are integers, so the same op runs
 * then. */
static uint64_t middle(const Grid *g, uint32_t c) {
  return (uint64_t)((2.0 * c + 1) * (double)g->time / (2.0 * g->cols));
}

static void row(const Grid *g, uint32_t r, const uint64_t *start, const uint64_t *end) {
  const PipeRank *k = &g->s->prog->rank[r];
  uint32_t i = 0, n = 0;
  const PipeInstr *now = NULL;
  for (uint32_t c = 0; c < g->cols; c++) {
    uint64_t t = middle(g, c);
    while (i < k->ninstr && (!computes(&k->instr[i]) || end[i] <= t))
      i++;
    const PipeInstr *in = i < k->ninstr && start[i] <= t ? &k->instr[i] : NULL;
    if (n && in != now) {
      cell(g, now, n);
      n = 0;
    }
    now = in;
    n++;
  }
  cell(g, now, n);
  plain(g);
}

/* Draws a column of shares: `most` takes the largest share of the time around it, `next` the
 * second; PIPE_NOPS: idle. share: of most, relative to both. mixed: no kind takes three fifths. */
static void shares_cell(const Grid *g, int most, int next, double share, bool mixed) {
  if (mixed && (!g->colour || !g->utf8)) {
    plain(g);
    fputc('#', g->f);
    return;
  }
  if (!g->colour || !g->utf8 || next == most) {
    PipeInstr in = {.op = (uint8_t)most, .mb = NONE};
    style(g, most < PIPE_NOPS ? &in : NULL);
    fputs(fill(g, most < PIPE_NOPS ? &in : NULL), g->f);
    return;
  }
  bool idle = most == PIPE_NOPS; /* idle is above, as background */
  int eighths = (int)(8 * (idle ? 1 - share : share) + 0.5), foot = idle ? next : most;
  fprintf(g->f, "\033[0;38;5;%u", paint[foot].back[0]);
  if (!idle && next < PIPE_NOPS)
    fprintf(g->f, ";48;5;%u", paint[next].back[0]);
  fprintf(g->f, "m\xe2\x96%c", 0x80 + (eighths < 1 ? 1 : eighths));
}

static void shares_row(const Grid *g, uint32_t r, const uint64_t *start, const uint64_t *end) {
  const PipeRank *k = &g->s->prog->rank[r];
  uint32_t from = 0;
  for (uint32_t c = 0; c < g->cols; c++) {
    double mid = (c + 0.5) * (double)g->time / g->cols, share[PIPE_NOPS + 1] = {0};
    double a = mid - g->around / 2, b = mid + g->around / 2;
    a = a < 0 ? 0 : a, b = b > (double)g->time ? (double)g->time : b;
    share[PIPE_NOPS] = b - a;
    while (from < k->ninstr && (!computes(&k->instr[from]) || (double)end[from] <= a))
      from++;
    for (uint32_t i = from; i < k->ninstr; i++) {
      if (!computes(&k->instr[i]))
        continue;
      if ((double)start[i] >= b)
        break;
      double x = (double)start[i] > a ? (double)start[i] : a,
             y = (double)end[i] < b ? (double)end[i] : b;
      share[k->instr[i].op] += y > x ? y - x : 0;
      share[PIPE_NOPS] -= y > x ? y - x : 0;
    }
    int most = 0, next = -1;
    for (int op = 1; op <= PIPE_NOPS; op++)
      most = share[op] > share[most] + 0.1 * (b - a) ? op : most; /* near ties keep the earlier */
    for (int op = 0; op <= PIPE_NOPS; op++)
      if (op != most && share[op] > 0.06 * (b - a) &&
          (next < 0 || share[op] > share[next] + 0.1 * (b - a)))
        next = op;
    shares_cell(g, most, next < 0 ? most : next,
                next < 0 ? 1 : share[most] / (share[most] + share[next]),
                share[most] < 0.6 * (b - a));
  }
  plain(g);
}

/* Draws marks at 1, 2 or 5 times a power of ten of the unit, at least ten columns apart. */
static void axis(const Grid *g, uint32_t left) {
  static const struct {
    uint64_t ns;
    const char *name;
  } unit[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
  uint64_t per = 1, step = 1;
  const char *name = "units";
  for (int i = 0; g->s->model->timed && i < 4; i++)
    if (g->time >= unit[i].ns) {
      per = unit[i].ns, name = unit[i].name;
      break;
    }
  for (int k = 0; (double)step * g->cols / (double)g->time < 10 && step < UINT64_MAX / 4; k++)
    step = k % 3 == 1 ? step / 2 * 5 : step * 2;
  uint32_t at = 0;
  fprintf(g->f, "%*s", left, "");
  for (uint64_t t = 0; t < g->time; t += step) {
    uint32_t c = (uint32_t)((double)t * g->cols / (double)g->time + 0.5);
    if (c + 8 > g->cols && t > 0)
      break;
    at += (uint32_t)fprintf(g->f, "%*s%.12g", (int)(c - at), "", (double)t / (double)per);
    if (t > UINT64_MAX - step)
      break;
  }
  fprintf(g->f, " %s\n", name);
}

/* The time of a column: "51.2 units". */
static const char *cell_text(const Grid *g) {
  double t = (double)g->time / g->cols;
  return g->s->model->timed ? time_text(g->s, (uint64_t)(t + 0.5))
                            : arena_printf(g->s->arena, "%.3g units", t);
}

/* Draws the kinds present, then idle time; closer together, or on another line, if they do not
 * fit. */
static void legend(const Grid *g, const bool used[PIPE_NOPS], uint32_t left, uint32_t width) {
  uint32_t at = left, all = left + 7, gap = 3;
  for (int op = 0; op < PIPE_NOPS; op++)
    all += used[op] && paint[op].name ? 6 + (uint32_t)strlen(paint[op].name) : 0;
  gap -= all > width;
  fprintf(g->f, "%*s", left, "");
  for (int op = 0; op <= PIPE_NOPS; op++) {
    const char *name = op < PIPE_NOPS ? paint[op].name : "idle";
    PipeInstr in = {.op = (uint8_t)op, .mb = NONE};
    if (op < PIPE_NOPS && (!used[op] || !name))
      continue;
    uint32_t wide = 3 + (uint32_t)strlen(name);
    if (at > left && at + gap + wide > width)
      fprintf(g->f, "\n%*s", left, ""), at = left;
    else if (at > left)
      fprintf(g->f, "%*s", (int)gap, ""), at += gap;
    cell(g, op < PIPE_NOPS ? &in : NULL, 2);
    plain(g);
    fprintf(g->f, " %s", name);
    at += wide;
  }
  fputc('\n', g->f);
}

void put_wrapped(FILE *f, const char *text, uint32_t at, uint32_t indent, uint32_t width) {
  for (bool first = true; *text; first = false) {
    uint32_t n = (uint32_t)strcspn(text, " ");
    bool wrap = !first && at + 1 + n > width;
    at = wrap ? indent : at + !first;
    fprintf(f, "%s%*s%.*s",
            wrap    ? "\n"
            : first ? ""
                    : " ",
            wrap ? (int)indent : 0, "", (int)n, text);
    at += n, text += n + (text[n] == ' ');
  }
  fputc('\n', f);
}

void emit_show(Sched *s, FILE *f) {
  const PipeProgram *p = s->prog;
  Grid g = {.s = s,
            .f = f,
            .colour = show_wants_colour(s->opt, f),
            .utf8 = is_utf8(),
            .time = p->makespan ? p->makespan : 1};
  uint32_t width = terminal_width(f, 80);
  bool right = width >= LEFT + RIGHT + 2 * LEAST;
  uint32_t room = width > LEFT + LEAST ? width - LEFT - (right ? RIGHT : 0) : LEAST;
  uint64_t **end, **start = program_times(s->arena, s->prog, &end);
  bool used[PIPE_NOPS] = {0};
  g.cols = columns(&g, start, end, room);
  fprintf(f, "%s%s%s: bubble %.2f %%\n", printable(s, s->model->name), *s->model->params ? " " : "",
          printable(s, s->model->params), bubble_percent(s, s->times->makespan));
  put_wrapped(f, bound_text(s), 0, 0, width);
  if (right)
    fprintf(f, "%*sidle  in flight\n", (int)(LEFT + g.cols + 4), "");
  for (uint32_t r = 0; r < p->nrank; r++) {
    uint64_t busy = 0;
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      if (computes(&p->rank[r].instr[i])) {
        used[p->rank[r].instr[i].op] |= end[r][i] > start[r][i];
        busy += end[r][i] - start[r][i];
      }
    if (r >= MOST_RANKS)
      continue;
    fprintf(f, r < 100 ? "rank %2u " : "%7u ", r);
    (g.around > 0 ? shares_row : row)(&g, r, start[r], end[r]);
    if (right)
      fprintf(f, "  %5.1f %%  %5u", p->makespan ? 100 * (1 - (double)busy / (double)g.time) : 0,
              p->rank[r].inflight);
    fputc('\n', f);
  }
  if (p->nrank > MOST_RANKS)
    fprintf(f, "   and %u more: --emit=svg draws all\n", p->nrank - MOST_RANKS);
  axis(&g, LEFT);
  if (g.around > 0)
    fprintf(f, "%*sone cell = %s: %s\n", LEFT, "", cell_text(&g),
            g.colour && g.utf8 ? "the two kinds with most" : "its kind, # where none has 3/5");
  legend(&g, used, LEFT, width);
}
