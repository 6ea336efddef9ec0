/* SPDX-License-Identifier: MIT
 * --check of ranges, such as -D P=8 -D M=1..1024: compiles every point by itself through all
 * passes: proofs, checks, limits, memory. No point is inferred from another one. Requires several
 * values in opt->define; needs no pass. Skips the points that `requires` excludes, and counts them
 * by condition. The first refuted point, in the order of the points, is compiled once more, for its
 * messages. Each core has a thread that compiles one point at a time. Cost: linear in what is
 * compiled. */
#define _POSIX_C_SOURCE 200809L /* uselocale, strdup */
#include <inttypes.h>
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "driver.h"
#include "limit.h"
#include "lower.h"
#include "report.h"
#include "stages.h"
#include "sweep.h"

enum { MOST_THREADS = 256 };
#define MOST_POINTS ((uint64_t)1 << 40)

/* Points that one condition excludes. */
typedef struct Reason {
  Span at;        /* the condition */
  uint64_t count; /* points */
  uint64_t first; /* the first of them */
  char *text;     /* the message at `first`, of malloc; NULL: no memory */
} Reason;

/* The largest peak of a rank, in bytes; without sizes in stashes. */
typedef struct Worst {
  uint64_t amount;
  uint64_t point;
  uint32_t rank;
} Worst;

typedef struct Points {
  Sched *s; /* the command line; the threads only read it */
  uint64_t npoint;
  locale_t locale;          /* of the caller; the threads take it over */
  const volatile int *stop; /* likewise, of guard_stop */
  double told;              /* when the progress was shown last, in ms */

  pthread_mutex_t lock; /* guards what follows */
  uint64_t next;        /* the first point that no thread has taken */
  uint64_t refuted;     /* the first refuted point so far; npoint: none */
  uint64_t warned;      /* the first point with warnings so far; npoint: none */
  uint64_t nwarned, proved;
  Reason *reason; /* of malloc */
  uint32_t nreason;
  Worst worst;
  bool sized;
  uint32_t ncheck, nlimit;
  char *name;   /* of the schedule; of malloc, NULL until a point is proved */
  char *open;   /* the parameter that counts microbatches, if it has its default; likewise */
  GuardEnd end; /* how a compile ended that could not go on */
  char why[512];
} Points;

/* ---- one point ---- */

typedef struct Point {
  Points *points;
  uint64_t number;
} Point;

/* Makes *one the compile of a point, with messages to diag->out. */
static void begin_point(const Points *points, uint64_t number, Sched *one, Options *opt) {
  *opt = *points->s->opt;
  opt->emit = EMIT_NONE;
  opt->check_only = false;
  opt->progress = NULL;
  opt->define = arena_alloc(one->arena, opt->ndefine * sizeof *opt->define);
  memcpy(opt->define, points->s->opt->define, opt->ndefine * sizeof *opt->define);
  sweep_go_to(opt->define, opt->ndefine, number);
  one->diag->werror = points->s->diag->werror;
  one->opt = opt;
}

/* Lets no thread take a further point. */
static void end_points(Points *points, GuardEnd end, const char *why) {
  points->end = end;
  snprintf(points->why, sizeof points->why, "%s", why);
}

/* The reason of the condition at a place; NULL: no memory. */
static Reason *reason_at(Points *points, Span at) {
  for (uint32_t i = 0; i < points->nreason; i++)
    if (points->reason[i].at.file == at.file && points->reason[i].at.beg == at.beg)
      return &points->reason[i];
  Reason *more = realloc(points->reason, (points->nreason + 1) * sizeof *more);
  if (!more)
    return NULL;
  points->reason = more;
  more[points->nreason] = (Reason){.at = at, .first = UINT64_MAX};
  return &more[points->nreason++];
}

/* Counts a point that a condition excludes. */
static void add_skipped(Points *points, uint64_t number, const Diag *diag) {
  Reason *reason = reason_at(points, diag->first_at);
  if (!reason) {
    end_points(points, GUARD_MEMORY, "out of memory");
    return;
  }
  reason->count++;
  if (number < reason->first) {
    reason->first = number;
    free(reason->text);
    reason->text = strdup(diag->first_text);
  }
}

static void add_proved(Points *points, uint64_t number, const Sched *one) {
  Worst *worst = &points->worst;
  points->proved++;
  points->sized = one->model->sized;
  points->ncheck = one->claims->ncheck;
  points->nlimit = one->claims->nlimit;
  if (!points->name) {
    const char *open = open_parameter(one);
    points->name = strdup(one->model->name);
    points->open = open ? strdup(open) : NULL;
  }
  for (uint32_t r = 0; r < one->model->nrank; r++) {
    const Peak *peak = &one->lowered->peak[r];
    const uint64_t amount = points->sized ? peak->bytes[PEAK_total] : peak->inflight;
    if (amount > worst->amount || (amount == worst->amount && number < worst->point))
      *worst = (Worst){amount, number, r};
  }
}

static void add_point(Points *points, uint64_t number, const Sched *one, bool ok) {
  const Diag *diag = one->diag;
  if (ok) {
    add_proved(points, number, one);
  } else if (diag->errors > 0 && diag->first == DIAG_REQUIRES) {
    add_skipped(points, number, diag);
  } else if (number < points->refuted) {
    points->refuted = number;
  }
  if (ok && diag->warnings > 0) {
    points->nwarned++;
    points->warned = number < points->warned ? number : points->warned;
  }
}

static void compile_point(void *of) {
  const Point *point = of;
  Arena arena = {0};
  Diag diag;
  Options opt;
  Sched one = {.arena = &arena, .diag = &diag};
  guard_stop(point->points->stop);
  diag_init(&diag, &arena, NULL);
  begin_point(point->points, point->number, &one, &opt);
  opt.counterexample = NULL;
  const bool ok = compile(&one) && diag.errors == 0;
  pthread_mutex_lock(&point->points->lock);
  add_point(point->points, point->number, &one, ok);
  pthread_mutex_unlock(&point->points->lock);
  arena_free(&arena);
}

/* ---- all points ---- */

static void show_progress(Points *points) {
  FILE *terminal = points->s->opt->progress;
  const double now = terminal ? now_ms() : 0;
  if (!terminal || now - points->told < 100)
    return;
  points->told = now;
  fprintf(terminal, "\r%" PRIu64 " of %" PRIu64 " points ", points->next, points->npoint);
}

/* Takes the next point. False: no thread has to compile more. */
static bool take_point(Points *points, uint64_t *number) {
  pthread_mutex_lock(&points->lock);
  const bool more = points->next < points->npoint && points->refuted == points->npoint &&
                    points->end == GUARD_DONE;
  if (more) {
    *number = points->next++;
    show_progress(points);
  }
  pthread_mutex_unlock(&points->lock);
  return more;
}

static void *compile_points(void *of) {
  Points *points = of;
  Point point = {.points = points};
  uselocale(points->locale);
  while (take_point(points, &point.number)) {
    Guard guard;
    const GuardEnd end = guard_run(&guard, compile_point, &point);
    if (end != GUARD_DONE) {
      pthread_mutex_lock(&points->lock);
      end_points(points, end, guard.why);
      pthread_mutex_unlock(&points->lock);
    }
    guard_release(&guard);
  }
  return NULL;
}

/* Compiles the points, in this thread alone if no other one can start. */
static void compile_all(Points *points) {
  pthread_t thread[MOST_THREADS];
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  uint64_t wanted = cores > 0 ? (uint64_t)cores : 1;
  uint32_t started = 0;
  if (wanted > MOST_THREADS)
    wanted = MOST_THREADS;
  if (wanted > points->npoint)
    wanted = points->npoint;
  pthread_mutex_init(&points->lock, NULL);
  points->locale = uselocale((locale_t)0);
  points->stop = guard_stopper();
  while (started < wanted && pthread_create(&thread[started], NULL, compile_points, points) == 0)
    started++;
  if (started == 0)
    compile_points(points);
  while (started > 0)
    pthread_join(thread[--started], NULL);
  pthread_mutex_destroy(&points->lock);
  if (points->s->opt->progress)
    fprintf(points->s->opt->progress, "\r%*s\r", 60, "");
}

/* ---- what it prints ---- */

/* The values of a point, such as "P = 8, M = 3". */
static const char *point_text(const Points *points, uint64_t number) {
  Options *opt = points->s->opt;
  sweep_go_to(opt->define, opt->ndefine, number);
  return sweep_text(points->s->arena, opt->define, opt->ndefine);
}

/* A word as a shell reads it. */
static const char *shell_word(Arena *arena, const char *word) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_-+=.,:/@%";
  const char *text = "'";
  if (*word && strspn(word, plain) == strlen(word))
    return word;
  for (size_t n; word[n = strcspn(word, "'")]; word += n + 1)
    text = arena_printf(arena, "%s%.*s'\\''", text, (int)n, word);
  return arena_printf(arena, "%s%s'", text, word);
}

/* The -D whose text stands in `word`; NULL: none. */
static const Define *define_in(const Options *opt, const char *word) {
  for (uint32_t i = 0; i < opt->ndefine; i++)
    if (opt->define[i].text >= word && opt->define[i].text <= word + strlen(word))
      return &opt->define[i];
  return NULL;
}

/* The command that compiles the point to which opt->define was set. */
static const char *point_command(Sched *s) {
  const Options *opt = s->opt;
  const char *text = opt->named
                         ? arena_printf(s->arena, "pipec %s", shell_word(s->arena, opt->input))
                         : "pipec";
  for (int i = 0; i < opt->nword; i++) {
    const char *word = opt->word[i];
    const Define *define = define_in(opt, word);
    if (define)
      word = arena_printf(s->arena, "%.*s%s=%" PRId64, (int)(define->text - word), word,
                          define->name, define->value);
    text = arena_printf(s->arena, "%s %s", text, shell_word(s->arena, word));
  }
  return text;
}

/* Compiles a point once more, for its messages, and names it. what: "the first refuted point" */
static void tell_point(Points *points, uint64_t number, const char *what) {
  Sched *s = points->s;
  const char *values = point_text(points, number);
  Options opt;
  Sched one = {.arena = s->arena, .diag = s->diag};
  begin_point(points, number, &one, &opt);
  compile(&one);
  if (!one.eval.env || s->diag->first == DIAG_PARAM) /* wrong at every point */
    return;
  s->diag->muted = false; /* the note belongs to no message */
  diag_note(s->diag, NO_SPAN, "%s is %s; alone: %s", values, what, point_command(s));
}

static void report_points(Points *points, FILE *f) {
  Sched *s = points->s;
  const Options *opt = s->opt;
  fprintf(f, "%s", printable(s, points->name ? points->name : opt->input));
  for (uint32_t i = 0; i < opt->ndefine; i++)
    fprintf(f, " %s", opt->define[i].text);
  fprintf(f,
          ": %" PRIu64 " points\nproved    %" PRIu64
          ", each by itself: complete, in order, deadlock-free, matched",
          points->npoint, points->proved);
  if (points->ncheck)
    fprintf(f, "; %u check%s", points->ncheck, points->ncheck > 1 ? "s" : "");
  if (points->nlimit)
    fprintf(f, "; %u limit%s", points->nlimit, points->nlimit > 1 ? "s" : "");
  fputc('\n', f);
  for (uint32_t i = 0; i < points->nreason; i++)
    fprintf(f, "skipped   %" PRIu64 ": %s\n", points->reason[i].count,
            printable(s, points->reason[i].text ? points->reason[i].text : ""));
  if (points->open)
    fprintf(f, "default   %s has its default at each point, since no -D gives it\n", points->open);
  if (points->sized)
    fprintf(f, "memory    at most %s,", bytes_text(s, points->worst.amount));
  else
    fprintf(f, "in flight at most %" PRIu64 ",", points->worst.amount);
  fprintf(f, " of rank %u at %s\n", points->worst.rank, point_text(points, points->worst.point));
}

/* Orders the conditions by their first points. */
static int by_first(const void *a, const void *b) {
  const Reason *x = a, *y = b;
  return x->first < y->first ? -1 : x->first > y->first;
}

/* Reports what was found. False: not every point is proved. */
static bool tell_points(Points *points) {
  Sched *s = points->s;
  if (points->refuted < points->npoint) {
    tell_point(points, points->refuted, "the first refuted point");
    return false;
  }
  if (points->nreason > 1)
    qsort(points->reason, points->nreason, sizeof *points->reason, by_first);
  if (points->proved == 0) {
    diag_error(s->diag, DIAG_REQUIRES, NO_SPAN,
               "the schedule admits none of the %" PRIu64 " points: %s", points->npoint,
               points->reason[0].text ? points->reason[0].text : "no memory");
    return false;
  }
  if (points->nwarned > 0)
    tell_point(points, points->warned,
               points->nwarned == 1
                   ? "the only point with warnings"
                   : arena_printf(s->arena, "the first of %" PRIu64 " points with warnings",
                                  points->nwarned));
  report_points(points, s->opt->out);
  return true;
}

/* What the threads have of malloc. */
static void free_texts(void *of) {
  Points *points = of;
  free(points->name);
  free(points->open);
  for (uint32_t i = 0; i < points->nreason; i++)
    free(points->reason[i].text);
  free(points->reason);
}

bool check_points(Sched *s) {
  uint32_t len;
  Points *points = NEW(s->arena, Points);
  *points = (Points){.s = s, .npoint = sweep_points(s, MOST_POINTS)};
  /* Standard input can be read only once: the compiles find it in opt. */
  if (points->npoint == 0 || !input_read(s, &len) || !remove_stall(s))
    return false;
  points->refuted = points->warned = points->npoint;
  points->worst.point = UINT64_MAX;
  guard_own(points, free_texts);
  compile_all(points);
  if (points->end != GUARD_DONE)
    guard_fail(points->end, "%s", points->why);
  return tell_points(points);
}
