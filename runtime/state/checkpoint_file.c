/* SPDX-License-Identifier: MIT
 * The files of a checkpoint: which tensors there are, names, heads and checksums. */
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

uint64_t ck_head_sum(const CkHead *head, const CkRow *rows) {
  CkHead zero = *head;
  zero.sum = 0;
  return pr_checksum_after(pr_checksum(&zero, sizeof zero), rows, head->ntensor * sizeof *rows);
}

bool ck_buffer(const PrRun *run, uint32_t row, uint32_t i, CkBuffer *out) {
  const StageRun *s = &run->stage[row];
  const CkBuffer all[] = {
      {"weight", PR_WEIGHT, s->weight, s->size.weight},
      {"opt", PR_OPT, s->opt, s->size.opt},
      {"state", -1, s->state,
       (uint64_t)__builtin_popcount(run->p->stage[row].states) * pr_round(s->size.weight)},
      {"grad", -1, s->grad, s->left ? s->size.grad : 0}};
  if (i >= sizeof all / sizeof *all)
    return false;
  *out = all[i];
  return true;
}

/* The next entry; NULL: no memory. */
static CkTensor *append(CkList *list) {
  if (list->n == list->room) {
    uint32_t room = list->room ? 2 * list->room : 64;
    CkTensor *t = realloc(list->t, room * sizeof *t);
    if (!t)
      return NULL;
    list->t = t;
    list->room = room;
  }
  CkTensor *t = &list->t[list->n++];
  memset(t, 0, sizeof *t);
  return t;
}

PrStatus ck_list(PrRun *run, uint32_t row, CkList *list) {
  uint32_t stage = run->p->stage[row].model;
  CkBuffer b;
  for (uint32_t i = 0; ck_buffer(run, row, i, &b); i++) {
    bool named = run->m.tensor && b.of >= 0;
    uint64_t sum = 0;
    PrTensor tensor;
    for (uint32_t k = 0; named && !run->m.tensor(run->m.self, stage, k, &tensor); k++) {
      if ((int)tensor.of != b.of)
        continue;
      tensor.name[PR_NAME - 1] = 0;
      if (tensor.at > b.bytes || tensor.bytes > b.bytes - tensor.at)
        return pr_fail(run, PR_E_ARG,
                       "model: tensor %s of stage %u is not within its %s of %llu bytes",
                       tensor.name, stage, b.name, (unsigned long long)b.bytes);
      sum += tensor.bytes;
      CkTensor *t = append(list);
      if (!t)
        return pr_fail(run, PR_E_MEMORY, "no memory for %u tensors", list->n);
      snprintf(t->key, sizeof t->key, "%s/%s", tensor.name, b.name);
      t->data = b.data ? (char *)b.data + tensor.at : NULL;
      t->bytes = tensor.bytes;
    }
    if (named && sum != b.bytes)
      return pr_fail(run, PR_E_ARG,
                     "model: the tensors of stage %u have %llu bytes of its %s, not %llu", stage,
                     (unsigned long long)sum, b.name, (unsigned long long)b.bytes);
    if (named || b.bytes == 0)
      continue;
    CkTensor *t = append(list);
    if (!t)
      return pr_fail(run, PR_E_MEMORY, "no memory for %u tensors", list->n);
    snprintf(t->key, sizeof t->key, "stage %u of %u/%s", stage, run->p->nmodel, b.name);
    t->data = b.data;
    t->bytes = b.bytes;
  }
  return PR_OK;
}

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

CkHead *ck_read_head(const char *path, CkRow **rows, char *why) {
  FILE *in = fopen(path, "rb");
  CkHead *head = NULL;
  struct stat st;
  *rows = NULL;
  if (!in || fstat(fileno(in), &st)) {
    snprintf(why, CK_PATH, "%s", strerror(errno));
    goto bad;
  }
  head = malloc(sizeof *head);
  if (!head || fread(head, sizeof *head, 1, in) != 1) {
    snprintf(why, CK_PATH, "cut short: %lld bytes", (long long)st.st_size);
    goto bad;
  }
  if (memcmp(head->magic, CK_MAGIC, sizeof head->magic)) {
    snprintf(why, CK_PATH, "not a file of a checkpoint, or of a machine of another byte order");
    goto bad;
  }
  if (head->version != CK_VERSION) {
    snprintf(why, CK_PATH, "version %u of checkpoints; this runtime reads version %u",
             head->version, CK_VERSION);
    goto bad;
  }
  if ((uint64_t)st.st_size != head->bytes) {
    snprintf(why, CK_PATH, "%s: %lld bytes of %llu",
             (uint64_t)st.st_size < head->bytes ? "cut short" : "too long", (long long)st.st_size,
             (unsigned long long)head->bytes);
    goto bad;
  }
  if (head->ntensor > (head->bytes - sizeof *head) / sizeof **rows) {
    snprintf(why, CK_PATH, "damaged: %u tensors in %llu bytes", head->ntensor,
             (unsigned long long)head->bytes);
    goto bad;
  }
  *rows = calloc(head->ntensor + (size_t)1, sizeof **rows);
  if (!*rows || fread(*rows, sizeof **rows, head->ntensor, in) != head->ntensor) {
    snprintf(why, CK_PATH, *rows ? "cannot be read" : "no memory for its head");
    goto bad;
  }
  bool whole = ck_head_sum(head, *rows) == head->sum;
  for (uint32_t i = 0; whole && i < head->ntensor; i++) {
    const CkRow *r = &(*rows)[i];
    whole = r->key[CK_KEY - 1] == 0 && r->at <= head->bytes && r->bytes <= head->bytes - r->at;
  }
  if (!whole) {
    snprintf(why, CK_PATH, "damaged: the checksum of its head differs");
    goto bad;
  }
  fclose(in);
  return head;

bad:
  if (in)
    fclose(in);
  free(*rows);
  free(head);
  *rows = NULL;
  return NULL;
}
