/* SPDX-License-Identifier: MIT
 * Reading checkpoints. Every process reads the manifest and the heads of all files, and then the
 * tensors of its own rows: by their names, whichever stage had them. Whatever is not as it was
 * written, or not what the model has, is told with file and tensor, and fails the run: weights may
 * be half read by then. */
#include "checkpoint.h"
#include "escape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tensor of the checkpoint. */
typedef struct Have {
  CkRow row;
  uint32_t stage; /* its file */
  bool wanted;
} Have;

typedef struct Load {
  PrRun *run;
  const char *dir; /* of the caller */
  char folder[CK_PATH];
  uint64_t step;
  uint32_t nstage; /* of the checkpoint */
  uint64_t *loss;  /* [nloss] bits */
  uint32_t nloss;
  char program[128]; /* that wrote it: name and parameters */
  Have *have;        /* [nhave] by key */
  uint32_t nhave;
} Load;

#define REFUSE(l, ...) pr_fail((l)->run, PR_E_CHECKPOINT, "checkpoint: " __VA_ARGS__)

static int by_key(const void *a, const void *b) {
  return strcmp(((const Have *)a)->row.key, ((const Have *)b)->row.key);
}

/* The text of a small file with a NUL after it, or NULL with errno set. */
static char *read_text(const char *path, size_t *len) {
  FILE *in = fopen(path, "rb");
  struct stat st;
  char *text = NULL;
  if (!in)
    return NULL;
  const bool known = !fstat(fileno(in), &st);
  if (known && S_ISDIR(st.st_mode)) {
    errno = EISDIR;
  } else if (known && (text = malloc((size_t)st.st_size + 1))) {
    *len = fread(text, 1, (size_t)st.st_size, in);
    text[*len] = 0;
  }
  fclose(in);
  return text;
}

/* Finds the newest complete checkpoint in `dir` that is older than `than`; "": there is none. */
static PrStatus find_newest(PrRun *run, const char *dir, CkFound than, char folder[CK_PATH]) {
  char path[CK_PATH];
  CkFound *found;
  uint32_t n;
  folder[0] = 0;
  if (access(dir, F_OK))
    return PR_OK;
  PrStatus st = ck_look_through(run, dir, &found, &n);
  for (uint32_t i = 0; !st && i < n && !folder[0]; i++) {
    if (found[i].partial || found[i].attempt > than.attempt ||
        (found[i].attempt == than.attempt && found[i].step >= than.step))
      continue;
    if (snprintf(path, sizeof path, "%s/step-%" PRIu64 ".%" PRIu64 "/manifest", dir, found[i].step,
                 found[i].attempt) >= (int)sizeof path)
      st = pr_fail(run, PR_E_CHECKPOINT, "checkpoint: path too long: %s", dir);
    else if (!access(path, F_OK) || errno != ENOENT) /* without it, half removed */
      snprintf(folder, CK_PATH, "%.*s", (int)(strlen(path) - strlen("/manifest")), path);
  }
  free(found);
  return st;
}

/* Refuses what is not as it was written, and says which older checkpoint there is: to take that is
 * for the user to say. */
static PrStatus damaged(Load *l, const char *format, ...) {
  char text[CK_PATH], dir[CK_PATH], older[CK_PATH] = "";
  CkFound than = {.step = UINT64_MAX, .attempt = UINT64_MAX};
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  snprintf(dir, sizeof dir, "%s", l->folder[0] ? l->folder : l->dir);
  char *name = l->folder[0] ? strrchr(dir, '/') : NULL;
  bool has_older = !l->folder[0] ||
                   (name && ck_parse_name(name + 1, &than.step, &than.attempt, &than.partial));
  if (name)
    *name = 0;
  if (has_older && !access(dir, R_OK) && find_newest(l->run, dir, than, older))
    return PR_E_CHECKPOINT;
  return *older
             ? REFUSE(l, "%.500s; %.300s is complete: resume from that folder instead", text, older)
             : REFUSE(l, "%.900s", text);
}

/* Which checkpoint `dir` means: l->folder; "" when there is none yet. */
static PrStatus find(Load *l, const char *dir) {
  const CkFound all = {.step = UINT64_MAX, .attempt = UINT64_MAX};
  char path[CK_PATH];
  struct stat st;
  size_t len;
  if (snprintf(path, sizeof path, "%s/manifest", dir) >= (int)sizeof path)
    return REFUSE(l, "path too long: %s", dir);
  if (!stat(path, &st)) {
    snprintf(l->folder, sizeof l->folder, "%s", dir);
    return PR_OK;
  }
  snprintf(path, sizeof path, "%s/latest", dir);
  char *name = read_text(path, &len);
  if (!name)
    return errno == ENOENT ? find_newest(l->run, dir, all, l->folder)
                           : REFUSE(l, "cannot read %s: %s", path, strerror(errno));
  uint64_t step, attempt;
  bool partial, ok = len > 1 && name[len - 1] == '\n';
  if (ok)
    name[len - 1] = 0;
  ok = ok && ck_parse_name(name, &step, &attempt, &partial) && !partial &&
       snprintf(l->folder, sizeof l->folder, "%s/%s", dir, name) < (int)sizeof l->folder;
  free(name);
  if (!ok)
    l->folder[0] = 0;
  return ok ? PR_OK : damaged(l, "%s is damaged: it does not name a checkpoint", path);
}

/* The rest of the line at *at if it begins with `key` and a blank; NULL if not. *at goes on after
 * it. */
static char *line(char **at, const char *key) {
  size_t n = strlen(key);
  char *end = strchr(*at, '\n'), *value = *at + n + 1;
  if (!end || strncmp(*at, key, n) || (*at)[n] != ' ')
    return NULL;
  *end = 0;
  *at = end + 1;
  return value;
}

static PrStatus read_losses(Load *l, char *text) {
  char *end;
  l->nloss = (uint32_t)strtoul(text, &end, 10);
  if (l->nloss > strlen(end)) /* each of them is text */
    return REFUSE(l, "%.600s/manifest is damaged: it has fewer than %u losses", l->folder,
                  l->nloss);
  l->loss = calloc(l->nloss + (size_t)1, sizeof *l->loss);
  if (!l->loss)
    return pr_fail(l->run, PR_E_MEMORY, "no memory for %u losses", l->nloss);
  for (uint32_t i = 0; i < l->nloss; i++)
    l->loss[i] = strtoull(end, &end, 16);
  return PR_OK;
}

/* Head and rows of the file of a stage. */
static PrStatus read_stage(Load *l, uint32_t stage, const char *listed) {
  char path[CK_PATH], why[CK_PATH];
  uint64_t bytes = 0, sum = 0;
  CkRow *rows;
  if (snprintf(path, sizeof path, "%s/stage-%u", l->folder, stage) >= (int)sizeof path)
    return REFUSE(l, "path too long: %s", l->folder);
  CkHead *head = ck_read_head(path, &rows, why);
  if (!head)
    return damaged(l, "%s: %s", path, why);
  PrStatus st = PR_OK;
  sscanf(listed, "%" SCNu64 " %" SCNx64, &bytes, &sum);
  Have *more = realloc(l->have, (l->nhave + head->ntensor + (size_t)1) * sizeof *more);
  if (!more)
    st = pr_fail(l->run, PR_E_MEMORY, "no memory for %u tensors", l->nhave);
  else
    l->have = more;
  if (!st && (head->bytes != bytes || head->sum != sum || head->step != l->step ||
              head->stage != stage || head->nmodel != l->nstage))
    st = damaged(l, "%s is not the file that the manifest lists", path);
  for (uint32_t i = 0; !st && i < head->ntensor; i++)
    l->have[l->nhave++] = (Have){.row = rows[i], .stage = stage};
  free(head);
  free(rows);
  return st;
}

static PrStatus read_manifest(Load *l) {
  char path[CK_PATH], *text, *at, *value;
  size_t len;
  PrStatus st = PR_OK;
  if (snprintf(path, sizeof path, "%s/manifest", l->folder) >= (int)sizeof path)
    return REFUSE(l, "path too long: %s", l->folder);
  if (!(text = at = read_text(path, &len)))
    return damaged(l, "cannot read %s: %s", path, strerror(errno));
  enum { END = 4 + 16 + 1 };
  char end[END + 1];
  snprintf(end, sizeof end, "end %016" PRIx64 "\n", len < END ? 0 : pr_checksum(text, len - END));
  if (strncmp(text, "pipe checkpoint ", 16)) {
    st = damaged(l, "%s is no manifest of a checkpoint", path);
  } else if (len < END || memcmp(text + len - END, end, END)) {
    st = damaged(l, "%s is damaged: its checksum differs", path);
  } else if (!(value = line(&at, "pipe checkpoint")) || atoi(value) != CK_VERSION) {
    st = REFUSE(l, "%.600s is of version %s of checkpoints; this runtime reads version %d", path,
                value ? value : "?", CK_VERSION);
  }
  if (st)
    goto done;
  const char *identity = l->run->m.identity ? l->run->m.identity : "";
  if ((value = line(&at, "step")))
    l->step = strtoull(value, NULL, 10);
  if ((value = line(&at, "program")) && strlen(value) > 17) /* another schedule may go on */
    snprintf(l->program, sizeof l->program, "%s", value + 17);
  if ((value = line(&at, "model")) && strcmp(value, identity)) {
    st = REFUSE(l, "%.400s is of another model: '%.200s', this one is '%.200s'", l->folder, value,
                identity);
    goto done;
  }
  if ((value = line(&at, "stages")))
    l->nstage = (uint32_t)strtoul(value, NULL, 10);
  if ((value = line(&at, "losses")))
    st = read_losses(l, value);
  for (uint32_t s = 0; !st && s < l->nstage; s++) {
    char key[CK_NAME];
    snprintf(key, sizeof key, "stage-%u", s);
    value = line(&at, key);
    st = value ? read_stage(l, s, value) : REFUSE(l, "%.600s does not list stage %u", path, s);
  }

done:
  free(text);
  return st;
}

/* Refuses a checkpoint for a tensor that one side has and the other has not. */
static PrStatus foreign(Load *l, const char *key, bool model_has) {
  uint32_t nmodel = l->run->p->nmodel;
  if (l->nstage != nmodel && !l->run->m.tensor)
    return REFUSE(l,
                  "%.400s is of %u stages, this model has %u: only a model that names its tensors "
                  "(PrModel.tensor) can be cut in another way",
                  l->folder, l->nstage, nmodel);
  return REFUSE(l, "%.400s is of another model: %s %s, which %s", l->folder,
                model_has ? "it lacks" : "it has", key,
                model_has ? "this one has" : "this one has not");
}

/* Reads a tensor of this process. file: the one that is open, of *stage; another is opened if
 * needed. */
static PrStatus read_tensor(Load *l, const Have *h, const CkTensor *t, FILE **file,
                            uint32_t *stage) {
  char path[CK_PATH];
  if (snprintf(path, sizeof path, "%s/stage-%u", l->folder, h->stage) >= (int)sizeof path)
    return REFUSE(l, "path too long: %s", l->folder);
  if (!*file || *stage != h->stage) {
    if (*file)
      fclose(*file);
    *file = fopen(path, "rb");
    *stage = h->stage;
  }
  const PrEngine *engine = l->run->engine; /* memory of a device is written from a copy */
  void *to = engine->take ? malloc(t->bytes + 1) : t->data;
  PrStatus st = PR_OK;
  if (!to)
    st = pr_fail(l->run, PR_E_MEMORY, "no memory for %s", t->key);
  else if (!*file || fseeko(*file, (off_t)h->row.at, SEEK_SET) ||
           (t->bytes && fread(to, t->bytes, 1, *file) != 1))
    st = damaged(l, "cannot read %s: %s", path,
                 *file && feof(*file) ? "cut short" : strerror(errno));
  else if (pr_checksum(to, t->bytes) != h->row.sum)
    st = damaged(l, "%s: %s is damaged: its checksum differs", path, t->key);
  if (engine->take && !st)
    st = engine->store(l->run, t->data, to, t->bytes);
  if (engine->take)
    free(to);
  return st;
}

/* Which rows elsewhere leave gradients (StageRun.left). */
static PrStatus see_gradients(PrRun *run) {
  PrStatus st = PR_OK;
  for (uint32_t r = 0; r < run->p->nrank && !st; r++) {
    PipeRank list;
    if (pr_is_here(run, r) || (st = pr_borrow_list(run, r, &list)))
      continue;
    for (uint32_t i = 0; i < list.ninstr; i++) {
      const PipeInstr *c = &list.instr[i];
      if (c->op == PIPE_B || c->op == PIPE_W || c->op == PIPE_U)
        run->stage[c->stage].left = c->op != PIPE_U;
    }
    pr_return_list(run, r, &list);
  }
  return st;
}

/* The tensors of all rows; those of rows of this process are read. */
static PrStatus read_rows(Load *l) {
  PrRun *run = l->run;
  FILE *file = NULL;
  uint32_t stage = 0;
  PrStatus st = see_gradients(run);
  if (l->nhave > 0)
    qsort(l->have, l->nhave, sizeof *l->have, by_key);
  for (uint32_t s = 0; !st && s < run->p->nstage; s++) {
    CkList list = {0};
    st = ck_list(run, s, &list);
    for (uint32_t i = 0; !st && i < list.n; i++) {
      const CkTensor *t = &list.t[i];
      Have key, *h;
      memcpy(key.row.key, t->key, sizeof key.row.key);
      h = l->nhave ? bsearch(&key, l->have, l->nhave, sizeof key, by_key) : NULL;
      if (!h) {
        st = foreign(l, t->key, true);
      } else if (h->row.bytes != t->bytes) {
        st = REFUSE(l, "%.400s is of another model: %s has %llu bytes there, %llu in this one",
                    l->folder, t->key, (unsigned long long)h->row.bytes,
                    (unsigned long long)t->bytes);
      } else {
        h->wanted = true;
        if (t->data)
          st = read_tensor(l, h, t, &file, &stage);
      }
    }
    free(list.t);
  }
  if (file)
    fclose(file);
  for (uint32_t i = 0; !st && i < l->nhave; i++)
    if (!l->have[i].wanted)
      st = foreign(l, l->have[i].row.key, false);
  return st;
}

/* The run goes on after l->step steps. */
static void set_steps(PrRun *run, const Load *l) {
  uint64_t n = l->step;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    RankRun *k = &run->rank[r];
    atomic_store(&k->compute_done, n * k->ncompute);
    for (uint32_t x = 0; x < k->nstream; x++)
      atomic_store(&k->stream[x].done, n * k->stream[x].n);
    atomic_store(&k->copy_done, n * k->ncopy);
    atomic_store(&k->copy_begun, n);
    atomic_store(&k->step, n);
  }
  for (uint32_t g = 0; run->turns && g < run->p->ngroup; g++)
    atomic_store(&run->turns[g].done, n * run->turns[g].n);
  atomic_store(&run->arrived, n * run->p->nrank);
  atomic_store(&run->released, n);
  run->target = n;
  run->first_step = n;
  if (l->nloss == run->nsink * run->p->nmb) {
    run->loss_steps = n;
    if (n > 0)
      memcpy(run->loss[(n - 1) & 1], l->loss, l->nloss * sizeof *l->loss);
  } else {
    char text[PR_TEXT];
    snprintf(text, sizeof text,
             "checkpoint: another batch: %s wrote it with %u losses a step, %s %s has %u",
             l->program, l->nloss, run->p->name, run->p->params, run->nsink * run->p->nmb);
    escape_text(run->note, sizeof run->note, ESCAPE_TERMINAL, text);
  }
  if (run->engine->rewind)
    run->engine->rewind(run, n);
}

/* Everything but its deadline. */
static PrStatus load(Load *l, const char *dir, CkWatch *watch, PrStatus st) {
  PrRun *run = l->run;
  if (!st && pr_leads(run))
    st = find(l, dir);
  atomic_store(&run->ck_at, CK_AT_READ_MEETING);
  if (run->engine->agree)
    st = run->engine->agree(run, st);
  if (!st && run->engine->share)
    st = run->engine->share(run, 0, l->folder, sizeof l->folder);
  if (st || !l->folder[0])
    return st;
  ck_watch_again(watch);
  atomic_store(&run->ck_at, CK_AT_READ);
  if (!(st = read_manifest(l)))
    st = read_rows(l);
  atomic_store(&run->ck_at, CK_AT_READ_MEETING);
  return run->engine->agree ? run->engine->agree(run, st) : st;
}

PrStatus pr_resume(PrRun *run, const char *dir, uint64_t *step) {
  *step = 0;
  if (!run)
    return PR_E_MEMORY;
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (!st && pr_steps_done(run) > 0)
    st = pr_fail(run, PR_E_ARG, "checkpoint: a run resumes before its first step, not after %llu",
                 (unsigned long long)pr_steps_done(run));
  Load *l = calloc(1, sizeof *l);
  if (!l)
    return pr_fail(run, PR_E_MEMORY, "no memory to read a checkpoint");
  l->run = run;
  l->dir = dir;
  CkWatch watch;
  PrStatus watched = ck_watch(run, &watch, pr_leads(run) ? CK_AT_READ : CK_AT_READ_MEETING);
  st = load(l, dir, &watch, st ? st : watched);
  ck_watch_end(&watch);
  if (!st && pr_failed(run))
    st = (PrStatus)atomic_load(&run->status);
  if (!st && l->folder[0]) {
    set_steps(run, l);
    *step = l->step;
  }
  free(l->loss);
  free(l->have);
  free(l);
  return st;
}
