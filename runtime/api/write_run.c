/* SPDX-License-Identifier: MIT
 * Writes the measurements of a run to files: pr_write_trace all kept steps (trace_json.h; `pipec
 * --with` plots them against the prediction), pr_write_profile a profile for predictions
 * (lang/spec.md 6).
 *
 * The text goes to a new file beside the target of `path`, which replaces the target only once it
 * is complete. A target that is not a regular file (a terminal, a pipe) is written directly. The
 * steps that a failed run has kept can still be written. A failure to write is PR_E_IO and leaves
 * the run usable. */
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
#include "run.h"
#include "trace_json.h"

/* The kept steps. */
typedef struct Steps {
  const PrRun *run;
  const PipeProgram *p; /* with all lists */
  uint32_t n;
  uint64_t **start, **end; /* [n * nrank][ninstr], in one block, freed by free(start) */
} Steps;

static PrStatus copy_steps(PrRun *run, const char *path, Steps *t) {
  *t = (Steps){.run = run, .n = pr_trace_steps(run)};
  if (t->n == 0 && run->status)
    return (PrStatus)run->status;
  if (t->n == 0)
    return pr_fail(run, PR_E_IO, "cannot write %s: no step was kept (trace_steps of PrOptions)",
                   path);
  const PipeProgram *p = t->p = pr_see_all(run);
  size_t total = 0, nrow = p ? (size_t)t->n * p->nrank : 0;
  for (uint32_t r = 0; p && r < p->nrank; r++)
    total += p->rank[r].ninstr;
  total *= t->n;
  t->start = p ? malloc(2 * nrow * sizeof *t->start + 2 * total * sizeof **t->start) : NULL;
  if (!t->start)
    return pr_fail(run, PR_E_IO, "no memory to write %s", path);
  uint64_t *at = (uint64_t *)(void *)(t->start + 2 * nrow);
  t->end = t->start + nrow;
  for (size_t k = 0; k < nrow; k++) {
    uint32_t r = (uint32_t)(k % p->nrank);
    const PrSpan *span = pr_trace(run, (uint32_t)(k / p->nrank), r);
    t->start[k] = at;
    t->end[k] = at + p->rank[r].ninstr;
    at += 2 * (size_t)p->rank[r].ninstr;
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      t->start[k][i] = span[i].start_ns;
      t->end[k][i] = span[i].end_ns;
    }
  }
  return PR_OK;
}

static int put_trace(FILE *out, const Steps *t) {
  TraceGroup group = {"Measured", t->start, t->end, t->n, 1};
  return trace_json(out, t->p, &group, 1);
}

/* ---- profile ---- */

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* The times of op in the kept steps, on all rows of one stage of the model, ascending; *n of them.
 * The caller frees them. NULL: no memory. */
static uint64_t *durations(const Steps *t, uint32_t model, PipeOp op, size_t *n) {
  const PipeProgram *p = t->p;
  uint64_t *all = NULL;
  for (int pass = 0; pass < 2; pass++) {
    uint32_t row = model;
    *n = 0;
    do
      for (uint32_t step = 0; step < t->n; step++) {
        uint32_t r = p->stage[row].rank;
        const uint64_t *start = t->start[(size_t)step * p->nrank + r],
                       *end = t->end[(size_t)step * p->nrank + r];
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

/* Writes the keys that every stage has: medians, but the least time of sends, because the longer
 * ones waited for their receiver. B is the sum of I and W if the schedule splits all backwards. */
static int put_profile(FILE *out, const Steps *t) {
  const PipeProgram *p = t->p;
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
      uint64_t *all = durations(t, s, kind[k].op, &n);
      if (!all) {
        free(time);
        return -1;
      }
      if (n > 0)
        time[s][k] = k == SEND ? all[0] : all[n / 2];
      /* the last stage, or one whose successor is on its rank, has no sends */
      else if (k == SEND && s > 0)
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
  fprintf(out, ", median of %u steps\",\n \"stages\": [\n", t->n);
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

/* ---- files ---- */

typedef int (*Put)(FILE *out, const Steps *t);

/* Creates path.tmp-PID or, if that exists, path.tmp-PID-1 and so on. The caller frees *name. NULL
 * with errno: failure. */
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

/* The file at the end of the links of `path`, to be replaced, or `path` itself if there is none
 * yet; the caller frees the result. NULL: `path` must be written directly, because it is no regular
 * file or a link to nothing; or, if *error is not 0, an errno. */
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
static PrStatus write_file(PrRun *run, const char *path, const Steps *t, Put put) {
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
  bad = put(out, t);
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

static PrStatus write_steps(PrRun *run, const char *path, Put put) {
  Steps t;
  PrStatus status = copy_steps(run, path, &t);
  if (status != PR_OK)
    return status;
  status = write_file(run, path, &t, put);
  free(t.start);
  return status;
}

PrStatus pr_write_trace(PrRun *run, const char *path) { return write_steps(run, path, put_trace); }

PrStatus pr_write_profile(PrRun *run, const char *path) {
  return write_steps(run, path, put_profile);
}
