/* SPDX-License-Identifier: MIT
 * The files of a checkpoint: their names and their tensors. */
#include "checkpoint.h"
#include "escape.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ck_file_name(char to[CK_NAME], uint32_t stage, CkPart part) {
  snprintf(to, CK_NAME, "stage-%u%s.safetensors", stage, part == CK_STATE ? ".state" : "");
}

/* Buffer i that a row keeps from one step to the next. buffer() returns false if there are only
 * i. */
typedef struct Buffer {
  const char *name; /* "weight" */
  CkPart part;
  int of;     /* PrTensorOf, or -1: the model does not name tensors in it */
  char *data; /* NULL: in another process */
  uint64_t bytes;
} Buffer;

static bool buffer(const PrRun *run, uint32_t row, uint32_t i, Buffer *out) {
  const StageRun *s = &run->stage[row];
  const Buffer all[] = {
      {"weight", CK_WEIGHTS, PR_WEIGHT, s->weight, s->size.weight},
      {"opt", CK_STATE, PR_OPT, s->opt, s->size.opt},
      {"state", CK_STATE, -1, s->state,
       (uint64_t)__builtin_popcount(run->p->stage[row].states) * pr_round(s->size.weight)},
      {"grad", CK_STATE, -1, s->grad, s->left ? s->size.grad : 0}};
  if (i >= sizeof all / sizeof *all)
    return false;
  *out = all[i];
  return true;
}

/* True if the name is UTF-8 and not the key of the metadata. */
static bool is_name(const char *name) {
  uint32_t code;
  size_t took;
  bool ok = strcmp(name, "__metadata__") != 0;
  for (; ok && *name; name += took)
    ok = (took = escape_utf8(name, strlen(name), &code)) > 0;
  return ok;
}

/* Appends an entry for tensor `is` of a buffer. */
static PrStatus append(PrRun *run, CkList *list, const Buffer *b, const PrTensor *is) {
  if (list->n == list->room) {
    uint32_t room = list->room ? 2 * list->room : 64;
    StTensor *t = realloc(list->t, room * sizeof *t);
    if (!t)
      return pr_fail(run, PR_E_MEMORY, "no memory for %u tensors", room);
    list->t = t;
    list->room = room;
  }
  StTensor *t = &list->t[list->n++];
  *t = (StTensor){.dtype = is->dtype,
                  .ndim = is->ndim,
                  .bytes = st_bytes(is->dtype, is->ndim, is->shape),
                  .data = b->data ? b->data + is->at : NULL};
  memcpy(t->key, is->name, sizeof t->key);
  memcpy(t->shape, is->shape, sizeof t->shape);
  return PR_OK;
}

/* Appends the tensors of a buffer by the names of the model. */
static PrStatus append_named(PrRun *run, CkList *list, const Buffer *b, uint32_t stage) {
  const PrModel *m = &run->m;
  uint64_t sum = 0;
  PrStatus st = PR_OK;
  for (uint32_t i = 0; !st; i++) {
    PrTensor is = {.ndim = 0};
    if (m->tensor(m->self, stage, i, &is))
      break;
    if ((int)is.of != b->of)
      continue;
    is.name[PR_NAME - 1] = 0;
    const uint64_t bytes = st_bytes(is.dtype, is.ndim, is.shape);
    if (!is_name(is.name))
      return pr_fail(run, PR_E_ARG, "model: tensor %u of stage %u: '%s' is no name for a tensor", i,
                     stage, is.name);
    if (bytes == UINT64_MAX)
      return pr_fail(run, PR_E_ARG, "model: tensor %s of stage %u: dtype %u, %u dimensions",
                     is.name, stage, (unsigned)is.dtype, is.ndim);
    if (bytes > b->bytes || is.at > b->bytes - bytes)
      return pr_fail(run, PR_E_ARG,
                     "model: tensor %s of stage %u is not within its %s of %llu bytes", is.name,
                     stage, b->name, (unsigned long long)b->bytes);
    sum += bytes;
    st = append(run, list, b, &is);
  }
  return st || sum == b->bytes
             ? st
             : pr_fail(run, PR_E_ARG,
                       "model: the tensors of stage %u have %llu bytes of its %s, not %llu", stage,
                       (unsigned long long)sum, b->name, (unsigned long long)b->bytes);
}

PrStatus ck_list(PrRun *run, uint32_t row, CkPart part, CkList *list) {
  const uint32_t stage = run->p->stage[row].model;
  PrStatus st = PR_OK;
  Buffer b;
  for (uint32_t i = 0; !st && buffer(run, row, i, &b); i++) {
    PrTensor whole = {.dtype = PR_U8, .ndim = 1, .shape = {b.bytes}};
    snprintf(whole.name, sizeof whole.name, "stage %u of %u/%s", stage, run->p->nmodel, b.name);
    if (b.part == part && run->m.tensor && b.of >= 0)
      st = append_named(run, list, &b, stage);
    else if (b.part == part && b.bytes > 0)
      st = append(run, list, &b, &whole);
  }
  return st;
}

PrStatus ck_see_rows(PrRun *run) {
  PrStatus st = PR_OK;
  for (uint32_t r = 0; r < run->p->nrank && !st && !run->sees_rows; r++) {
    PipeRank list;
    if (pr_is_here(run, r) || (st = pr_borrow_list(run, r, &list)))
      continue;
    for (uint32_t i = 0; i < list.ninstr; i++) {
      const PipeInstr *c = &list.instr[i];
      StageRun *stage = &run->stage[c->stage];
      stage->nupdate += c->op == PIPE_U;
      if (c->op == PIPE_B || c->op == PIPE_W || c->op == PIPE_U)
        stage->left = c->op != PIPE_U;
    }
    pr_return_list(run, r, &list);
  }
  run->sees_rows = !st;
  return st;
}

/* ---- what is in files ------------------------------------------------------------------------ */

bool ck_add(CkFiles *f, const char *path, CkPart part, const StSeal *seal, char why[ST_WHY]) {
  StHead head;
  if (!st_read(path, seal, &head, why))
    return false;
  CkFile *file = realloc(f->file, (f->nfile + (size_t)1) * sizeof *file);
  CkHave *have = realloc(f->have, (f->nhave + (size_t)head.n + 1) * sizeof *have);
  char *own = strdup(path);
  f->file = file ? file : f->file;
  f->have = have ? have : f->have;
  const bool ok = file && have && own;
  if (ok)
    file[f->nfile] = (CkFile){.path = own, .front = head.bytes, .seal = head.seal};
  for (uint32_t i = 0; ok && i < head.n; i++)
    have[f->nhave++] = (CkHave){.t = head.t[i], .part = part, .file = f->nfile};
  f->nfile += ok;
  free(head.t);
  if (!ok) {
    free(own);
    snprintf(why, ST_WHY, "no memory for its tensors");
  }
  return ok;
}

static int by_name(const void *a, const void *b) {
  const CkHave *x = a, *y = b;
  return x->part != y->part ? (x->part > y->part) - (x->part < y->part)
                            : strcmp(x->t.key, y->t.key);
}

const CkHave *ck_sort(CkFiles *f) {
  if (f->nhave > 0)
    qsort(f->have, f->nhave, sizeof *f->have, by_name);
  for (uint32_t i = 1; i < f->nhave; i++)
    if (by_name(&f->have[i - 1], &f->have[i]) == 0)
      return &f->have[i];
  return NULL;
}

CkHave *ck_find(const CkFiles *f, CkPart part, const char *key) {
  CkHave have = {.part = part};
  snprintf(have.t.key, sizeof have.t.key, "%s", key);
  return f->nhave ? bsearch(&have, f->have, f->nhave, sizeof have, by_name) : NULL;
}

void ck_free(CkFiles *f) {
  for (uint32_t i = 0; i < f->nfile; i++)
    free(f->file[i].path);
  free(f->file);
  free(f->have);
}

/* ---- folders --------------------------------------------------------------------------------- */

bool ck_parse_name(const char *name, uint64_t *step, uint64_t *attempt, bool *partial) {
  int end = 0;
  if (sscanf(name, "step-%" SCNu64 ".%" SCNu64 "%n", step, attempt, &end) != 2)
    return false;
  *partial = !strcmp(name + end, ".partial");
  return *partial || !name[end];
}

static int newest_first(const void *a, const void *b) {
  const CkFound *x = a, *y = b;
  if (x->attempt != y->attempt)
    return x->attempt < y->attempt ? 1 : -1;
  return (x->step < y->step) - (x->step > y->step);
}

PrStatus ck_look_through(PrRun *run, const char *dir, CkFound **found, uint32_t *n) {
  uint32_t room = 0;
  DIR *d = opendir(dir);
  *found = NULL;
  *n = 0;
  if (!d)
    return pr_fail(run, PR_E_IO, "checkpoint: cannot read %s: %s", dir, strerror(errno));
  for (struct dirent *e; (e = readdir(d));) {
    CkFound f;
    if (!ck_parse_name(e->d_name, &f.step, &f.attempt, &f.partial))
      continue;
    if (*n == room) {
      CkFound *more = realloc(*found, (room = 2 * room + 8) * sizeof *more);
      if (!more) {
        closedir(d);
        return pr_fail(run, PR_E_MEMORY, "no memory for the checkpoints in %s", dir);
      }
      *found = more;
    }
    (*found)[(*n)++] = f;
  }
  closedir(d);
  if (*n > 0)
    qsort(*found, *n, sizeof **found, newest_first);
  return PR_OK;
}
