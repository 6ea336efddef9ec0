/* SPDX-License-Identifier: MIT
 * What was measured beside what was predicted, as files: pr_write_svg (svg.c) draws the last kept
 * step above the prediction, pr_write_trace (trace_json.c) lists all kept steps and the prediction,
 * pr_write_profile has of the kept steps what pipec predicts from (lang/spec.md 6).
 * Apart from those so that the compiler can draw without the engine.
 *
 * A program without times is predicted in units; a unit is then drawn as long as makes both equally
 * busy, so that what differs between them is the waiting. The text is written to a new file beside
 * the one that `path` leads to, which takes its place only when it is complete; what is no regular
 * file (a terminal, a pipe) is never replaced but written to. A run that failed can still be drawn
 * if it kept a step; failing to write is PR_E_IO and leaves the run usable. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "pipe_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "escape.h"
#include "pipe_sim.h"
#include "run.h"
#include "svg.h"
#include "trace_json.h"

/* Sum of the compute ops' times. */
static double sum_busy(const PipeProgram *p, uint64_t *const *start, uint64_t *const *end) {
  double sum = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      if (pipe_op_info[p->rank[r].instr[i].op].stream == PIPE_COMPUTE)
        sum += (double)(end[r][i] - start[r][i]);
  return sum;
}

/* start[n * nrank + r][i] and *end[..][i] of the kept steps from `first` on, from one block that
 * the caller frees with free(start); NULL when there is no memory. */
static uint64_t **copy_trace(const PrRun *run, const PipeProgram *p, uint32_t first,
                             uint64_t ***end) {
  size_t total = 0, nrow = (size_t)(pr_trace_steps(run) - first) * p->nrank;
  for (uint32_t r = 0; r < p->nrank; r++)
    total += p->rank[r].ninstr;
  total *= pr_trace_steps(run) - first;
  uint64_t **start = malloc(2 * nrow * sizeof *start + 2 * total * sizeof **start);
  if (!start)
    return NULL;
  uint64_t *at = (uint64_t *)(void *)(start + 2 * nrow);
  *end = start + nrow;
  for (size_t k = 0; k < nrow; k++) {
    uint32_t r = (uint32_t)(k % p->nrank);
    const PrSpan *span = pr_trace(run, first + (uint32_t)(k / p->nrank), r);
    start[k] = at;
    (*end)[k] = at + p->rank[r].ninstr;
    at += 2 * (size_t)p->rank[r].ninstr;
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      start[k][i] = span[i].start_ns;
      (*end)[k][i] = span[i].end_ns;
    }
  }
  return start;
}

/* Creates path.tmp-PID or, if that exists, path.tmp-PID-1 and so on; its name goes to *name, which
 * the caller frees. NULL with errno set on failure. */
static FILE *create_beside(const char *path, char **name) {
  size_t room = strlen(path) + 48;
  *name = malloc(room);
  if (!*name)
    return NULL;
  for (int n = 0;; n++) {
    if (n)
      snprintf(*name, room, "%s.tmp-%ld-%d", path, (long)getpid(), n);
    else
      snprintf(*name, room, "%s.tmp-%ld", path, (long)getpid());
    int fd = open(*name, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd >= 0) {
      FILE *out = fdopen(fd, "w");
      if (!out) {
        int why = errno;
        close(fd);
        unlink(*name);
        errno = why;
      }
      return out;
    }
    if (errno != EEXIST || n == 99)
      return NULL;
  }
}

/* Both sides of what is written. */
typedef struct Timeline {
  const PrRun *run;
  const PipeProgram *p; /* with all lists */
  uint64_t **predicted, **predicted_end;
  uint64_t **measured, **measured_end; /* NULL: no step was kept */
  uint32_t nstep;                      /* of measured */
  double scale;                        /* ns per unit of the prediction; 1 if it is in ns */
} Timeline;

/* The prediction, and the last `most` steps kept. */
static PrStatus timeline_open(PrRun *run, Timeline *t, uint32_t most, const char *path) {
  uint32_t kept = pr_trace_steps(run);
  *t = (Timeline){.run = run, .nstep = kept < most ? kept : most, .scale = 1};
  if (run->status && kept == 0)
    return (PrStatus)run->status;
  const PipeProgram *p = t->p = pr_see_all(run);
  if (!p)
    return pr_fail(run, PR_E_IO, "no memory to draw %s", path);
  t->predicted = pipe_predict(p, &t->predicted_end, NULL);
  if (kept > 0)
    t->measured = copy_trace(run, p, kept - t->nstep, &t->measured_end);
  if (!t->predicted || (kept > 0 && !t->measured)) {
    free(t->predicted ? *t->predicted : NULL);
    free(t->measured);
    return pr_fail(run, PR_E_IO, "no memory to draw %s", path);
  }
  if (t->measured && !p->timed) {
    uint64_t **last = t->measured + (size_t)(t->nstep - 1) * p->nrank;
    uint64_t **last_end = t->measured_end + (size_t)(t->nstep - 1) * p->nrank;
    double want = sum_busy(p, t->predicted, t->predicted_end), got = sum_busy(p, last, last_end);
    if (want > 0 && got > 0)
      t->scale = got / want;
  }
  return PR_OK;
}

static void timeline_close(Timeline *t) {
  free(*t->predicted);
  free(t->measured);
}

static int draw_svg(FILE *out, const PipeProgram *p, const Timeline *t) {
  SvgTrack track[2];
  int ntrack = 0;
  if (t->measured)
    track[ntrack++] = (SvgTrack){"Measured", t->measured, t->measured_end, 1, 1};
  track[ntrack++] = (SvgTrack){"Predicted", t->predicted, t->predicted_end, p->timed != 0,
                               t->scale};
  return svg_timeline(out, p, track, ntrack);
}

static int draw_trace(FILE *out, const PipeProgram *p, const Timeline *t) {
  double scale = p->timed ? 1 : t->measured ? t->scale : 1000;
  char name[64] = "Predicted";
  if (!p->timed) {
    uint64_t ns = (uint64_t)(scale + 0.5);
    snprintf(name, sizeof name, "Predicted (1 unit = %" PRIu64 ".%03u us)", ns / 1000,
             (unsigned)(ns % 1000));
  }
  TraceGroup group[2] = {{name, t->predicted, t->predicted_end, 1, scale},
                         {"Measured", t->measured, t->measured_end, t->nstep, 1}};
  return trace_json(out, p, group, t->measured ? 2 : 1);
}

/* ---- profile ---- */

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* How long op took in the kept steps, on the rows of one stage of the model, ascending; *n of them.
 * The caller frees them. NULL: no memory. */
static uint64_t *durations(const PipeProgram *p, const Timeline *t, uint32_t model, PipeOp op,
                           size_t *n) {
  uint64_t *all = NULL;
  for (int pass = 0; pass < 2; pass++) {
    uint32_t row = model;
    *n = 0;
    do
      for (uint32_t step = 0; step < t->nstep; step++) {
        uint32_t r = p->stage[row].rank;
        const uint64_t *start = t->measured[(size_t)step * p->nrank + r],
                       *end = t->measured_end[(size_t)step * p->nrank + r];
        for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
          if (p->rank[r].instr[i].op == op && p->rank[r].instr[i].stage == row) {
            if (all)
              all[*n] = end[i] - start[i];
            ++*n;
          }
      }
    while ((row = p->stage[row].replica) != model);
    if (!all && !(all = malloc((*n + 1) * sizeof *all)))
      return NULL;
  }
  qsort(all, *n, sizeof *all, ascending);
  return all;
}

enum { PROFILE_KEYS = 7 };

/* The keys that every stage has, as the form wants it: medians; of sends the least, since the
 * others wait for their receiver, too. B is the sum of I and W where the schedule splits all
 * backwards. */
static int draw_profile(FILE *out, const PipeProgram *p, const Timeline *t) {
  static const struct {
    const char *key;
    PipeOp op;
  } kind[PROFILE_KEYS] = {{"F", PIPE_F}, {"B", PIPE_B}, {"I", PIPE_I},        {"W", PIPE_W},
                          {"R", PIPE_R}, {"U", PIPE_U}, {"send", PIPE_SEND_F}};
  enum { F, B, I, W, SEND = PROFILE_KEYS - 1 };
  uint64_t(*time)[PROFILE_KEYS] = calloc(p->nmodel, sizeof *time);
  size_t have[PROFILE_KEYS] = {0}, n;
  if (!time)
    return -1;
  for (uint32_t s = 0; s < p->nmodel; s++)
    for (int k = 0; k < PROFILE_KEYS; k++) {
      uint64_t *all = durations(p, t, s, kind[k].op, &n);
      if (!all) {
        free(time);
        return -1;
      }
      if (n > 0)
        time[s][k] = k == SEND ? all[0] : all[n / 2];
      else if (k == SEND && s > 0) /* of the last stage, or to one on the same rank */
        time[s][k] = time[s - 1][k];
      have[k] += n > 0;
      free(all);
    }
  if (have[SEND] > 0)
    have[SEND] = p->nmodel;
  if (have[B] == 0 && have[I] == p->nmodel && have[W] == p->nmodel)
    for (uint32_t s = 0; s < p->nmodel; s++)
      time[s][B] = time[s][I] + time[s][W], have[B]++;
  fputs("{\"pipe_profile\": 1,\n \"measured\": \"", out);
  escape_put(out, ESCAPE_JSON, p->name);
  fputs(" ", out);
  escape_put(out, ESCAPE_JSON, p->params);
  fprintf(out, ", median of %u steps\",\n \"stages\": [\n", t->nstep);
  for (uint32_t s = 0; s < p->nmodel; s++) {
    PrSizes z = t->run->stage[s].size;
    fputs("  {", out);
    for (int k = 0; k < PROFILE_KEYS; k++)
      if (have[k] == p->nmodel)
        fprintf(out, "\"%s\": %" PRIu64 ", ", kind[k].key, time[s][k]);
    fprintf(out,
            "\"act\": %" PRIu64 ", \"gout\": %" PRIu64 ", \"boundary\": %" PRIu64
            ", \"weight\": %" PRIu64 ", \"grad\": %" PRIu64 ", \"opt\": %" PRIu64
            ", \"work\": %" PRIu64 ", \"edge\": %" PRIu64 ", \"tied\": %" PRIu64 "}%s\n",
            z.act, z.gout, z.boundary, z.weight, z.grad, z.opt, z.work, z.edge, z.tied,
            s + 1 < p->nmodel ? "," : "");
  }
  fputs(" ]}\n", out);
  free(time);
  return ferror(out) ? -1 : 0;
}

typedef int (*Draw)(FILE *out, const PipeProgram *p, const Timeline *t);

/* What is at the end of the links of `path`, which the caller frees: the file to be replaced, or
 * `path` itself where there is none yet. NULL: it is to be opened and written as it stands, for it
 * is no regular file or a link to nothing. *error is errno, or 0. */
static char *file_behind(const char *path, int *error) {
  struct stat st;
  char *name;
  *error = 0;
  if (stat(path, &st) == 0) {
    if (!S_ISREG(st.st_mode))
      return NULL;
    name = realpath(path, NULL);
  } else {
    if (errno == ENOENT && lstat(path, &st) == 0)
      return NULL;
    name = strdup(path);
  }
  if (!name)
    *error = errno;
  return name;
}

/* Writes to `path` or the file behind it. PR_OK, or PR_E_IO with the text set. */
static PrStatus write_file(PrRun *run, const char *path, const Timeline *t, Draw draw) {
  PrStatus status = PR_OK;
  char *temporary = NULL;
  int why, bad;
  char *file = file_behind(path, &why);
  if (why)
    return pr_fail(run, PR_E_IO, "cannot write %s: %s", path, strerror(why));
  FILE *out = file ? create_beside(file, &temporary) : fopen(path, "w");
  if (!out) {
    status = pr_fail(run, PR_E_IO,
                     file ? "cannot create a file beside %s: %s" : "cannot write %s: %s", path,
                     strerror(errno));
    goto done;
  }
  errno = 0;
  bad = draw(out, t->p, t);
  why = errno;
  if (fclose(out) && !bad) {
    bad = -1;
    why = errno;
  }
  if (bad)
    status = pr_fail(run, PR_E_IO, "cannot write %s: %s", path, strerror(why ? why : EIO));
  else if (file && rename(temporary, file))
    status = pr_fail(run, PR_E_IO, "cannot rename %s to %s: %s", temporary, file, strerror(errno));
  if (status && file)
    unlink(temporary);

done:
  free(temporary);
  free(file);
  return status;
}

static PrStatus write_timeline(PrRun *run, const char *path, uint32_t most, Draw draw) {
  Timeline t;
  PrStatus status = timeline_open(run, &t, most, path);
  if (status != PR_OK)
    return status;
  status = write_file(run, path, &t, draw);
  timeline_close(&t);
  return status;
}

PrStatus pr_write_svg(PrRun *run, const char *path) {
  return write_timeline(run, path, 1, draw_svg);
}

PrStatus pr_write_trace(PrRun *run, const char *path) {
  return write_timeline(run, path, UINT32_MAX, draw_trace);
}

PrStatus pr_write_profile(PrRun *run, const char *path) {
  if (pr_trace_steps(run) == 0)
    return pr_fail(run, PR_E_IO, "cannot write %s: no step was kept (trace_steps of PrOptions)",
                   path);
  return write_timeline(run, path, UINT32_MAX, draw_profile);
}
