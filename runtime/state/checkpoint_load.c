/* SPDX-License-Identifier: MIT
 * Reads checkpoints, and weights that another program wrote. Every process reads the manifest and
 * the headers of all files, then the tensors of its own rows, by name, whichever stage wrote them.
 * Data that is damaged, or that the model lacks, fails the run with the names of file and tensor;
 * weights may be half read by then. */
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

typedef struct Load {
  PrRun *run;
  const char *what;     /* "checkpoint" or "weights", for messages */
  const char *dir;      /* of the caller; NULL: load weights only, from the file `folder` */
  char folder[CK_PATH]; /* or the file or index of weights; "": no checkpoint yet */
  uint64_t step;
  uint32_t nstage;   /* of the checkpoint */
  uint64_t *updates; /* [nstage] updates of each stage so far */
  uint64_t *loss;    /* [nloss] bits of doubles */
  uint32_t nloss;
  char program[128]; /* program that wrote it: name and parameters */
  CkFiles files;
} Load;

#define REFUSE(l, form, ...) pr_fail((l)->run, PR_E_CHECKPOINT, "%s: " form, (l)->what, __VA_ARGS__)

/* Reads a small file, with a NUL after it. NULL: *why and errno are set. */
static char *read_text(const char *path, size_t *len, const char **why) {
  FILE *in;
  struct stat st;
  char *text = NULL;
  if ((*why = st_open(path, &in)))
    return NULL;
  if (!fstat(fileno(in), &st) && (text = malloc((size_t)st.st_size + 1))) {
    *len = fread(text, 1, (size_t)st.st_size, in);
    text[*len] = 0;
  } else {
    *why = strerror(errno);
  }
  fclose(in);
  return text;
}

/* Finds the newest complete checkpoint in `dir` that is older than `than`; folder is "" if none. */
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
    else if (!access(path, F_OK) || errno != ENOENT) /* without a manifest it is half removed */
      snprintf(folder, CK_PATH, "%.*s", (int)(strlen(path) - strlen("/manifest")), path);
  }
  free(found);
  return st;
}

/* Refuses damaged data and names the newest older checkpoint; the user decides whether to take
 * that. */
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

/* Finds the checkpoint that `dir` means and sets l->folder; "": there is none yet. */
static PrStatus find(Load *l, const char *dir) {
  const CkFound all = {.step = UINT64_MAX, .attempt = UINT64_MAX};
  char path[CK_PATH];
  const char *why;
  struct stat st;
  size_t len;
  if (snprintf(path, sizeof path, "%s/manifest", dir) >= (int)sizeof path)
    return REFUSE(l, "path too long: %s", dir);
  if (!stat(path, &st)) {
    snprintf(l->folder, sizeof l->folder, "%s", dir);
    return PR_OK;
  }
  snprintf(path, sizeof path, "%s/latest", dir);
  char *name = read_text(path, &len, &why);
  if (!name)
    return errno == ENOENT ? find_newest(l->run, dir, all, l->folder)
                           : REFUSE(l, "cannot read %s: %s", path, why);
  uint64_t step, attempt;
  bool partial, ok = len > 1 && name[len - 1] == '\n';
  if (ok)
    name[len - 1] = 0;
  ok = ok && ck_parse_name(name, &step, &attempt, &partial) && !partial &&
       snprintf(l->folder, sizeof l->folder, "%s/%s", dir, name) < (int)sizeof l->folder;
  free(name);
  if (!ok)
    l->folder[0] = 0;
  return ok ? PR_OK : damaged(l, "%s is damaged: the file does not name a checkpoint", path);
}

/* The rest of the line at *at, if the line begins with `key` and a blank; else NULL. Moves *at past
 * the line. */
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
  if (l->nloss > strlen(end)) /* each loss takes some text */
    return REFUSE(l, "%.600s/manifest is damaged: the file has fewer than %u losses", l->folder,
                  l->nloss);
  l->loss = calloc(l->nloss + (size_t)1, sizeof *l->loss);
  if (!l->loss)
    return pr_fail(l->run, PR_E_MEMORY, "no memory for %u losses", l->nloss);
  for (uint32_t i = 0; i < l->nloss; i++)
    l->loss[i] = strtoull(end, &end, 16);
  return PR_OK;
}

/* Refuses stages that were updated unequally often if this model has other stages. */
static PrStatus read_updates(Load *l, char *text) {
  char *end = text;
  bool equal = true;
  if (l->nstage > strlen(text)) /* each number takes some text */
    return REFUSE(l, "%.600s/manifest is damaged: the file has fewer than %u numbers of updates",
                  l->folder, l->nstage);
  l->updates = calloc(l->nstage + (size_t)1, sizeof *l->updates);
  if (!l->updates)
    return pr_fail(l->run, PR_E_MEMORY, "no memory for the updates of %u stages", l->nstage);
  for (uint32_t s = 0; s < l->nstage; s++) {
    l->updates[s] = strtoull(end, &end, 10);
    equal = equal && l->updates[s] == l->updates[0];
  }
  return equal || l->nstage == l->run->p->nmodel
             ? PR_OK
             : REFUSE(l,
                      "%.400s: its stages have had %" PRIu64
                      " and other numbers of updates, so only "
                      "a model of %u stages can resume, not of %u",
                      l->folder, l->updates[0], l->nstage, l->run->p->nmodel);
}

/* Reads the header of a file. seal: as in the manifest; NULL: a file of weights. */
static PrStatus add_file(Load *l, const char *path, CkPart part, const char *seal) {
  char why[ST_WHY];
  StSeal is = {0};
  if (seal)
    sscanf(seal, "%" SCNu64 " %" SCNx64, &is.bytes, &is.sum);
  return ck_add(&l->files, path, part, seal ? &is : NULL, why) ? PR_OK
                                                               : damaged(l, "%s: %s", path, why);
}

static PrStatus read_manifest(Load *l) {
  char path[CK_PATH], *text, *at, *value;
  const char *why;
  size_t len;
  PrStatus st = PR_OK;
  if (snprintf(path, sizeof path, "%s/manifest", l->folder) >= (int)sizeof path)
    return REFUSE(l, "path too long: %s", l->folder);
  if (!(text = at = read_text(path, &len, &why)))
    return damaged(l, "cannot read %s: %s", path, why);
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
  if ((value = line(&at, "program")) && strlen(value) > 17) /* another schedule may continue */
    snprintf(l->program, sizeof l->program, "%s", value + 17);
  if ((value = line(&at, "model")) && strcmp(value, identity)) {
    st = REFUSE(l, "%.400s is of another model: '%.200s', this model is '%.200s'", l->folder, value,
                identity);
    goto done;
  }
  if ((value = line(&at, "stages")))
    l->nstage = (uint32_t)strtoul(value, NULL, 10);
  value = line(&at, "updates");
  st = value ? read_updates(l, value) : REFUSE(l, "%.600s does not list updates", path);
  if (!st && (value = line(&at, "losses")))
    st = read_losses(l, value);
  for (uint32_t s = 0; !st && s < l->nstage; s++)
    for (CkPart part = 0; !st && part < CK_PARTS; part++) {
      char key[CK_NAME], file[CK_PATH];
      ck_file_name(key, s, part);
      if (!(value = line(&at, key)))
        st = REFUSE(l, "%.600s does not list %s", path, key);
      else if (snprintf(file, sizeof file, "%s/%s", l->folder, key) >= (int)sizeof file)
        st = REFUSE(l, "path too long: %s", l->folder);
      else
        st = add_file(l, file, part, value);
    }

done:
  free(text);
  return st;
}

/* Reads the header of a file that an index names. 0: continue. */
static int add_named(void *arg, const char *name) {
  Load *l = arg;
  char path[CK_PATH];
  const char *slash = strrchr(l->folder, '/');
  if (snprintf(path, sizeof path, "%.*s%s", (int)(slash ? slash + 1 - l->folder : 0), l->folder,
               name) >= (int)sizeof path)
    return (int)REFUSE(l, "path too long: %s", l->folder);
  for (uint32_t i = l->files.nfile; i-- > 0;)
    if (!strcmp(l->files.file[i].path, path))
      return 0;
  return (int)add_file(l, path, CK_WEIGHTS, NULL);
}

/* Reads the headers of the file of weights, or of the files of its index. */
static PrStatus add_weights(Load *l) {
  const char *end = strrchr(l->folder, '.'), *closed;
  char why[ST_WHY];
  size_t len;
  if (!end || strcmp(end, ".json"))
    return add_file(l, l->folder, CK_WEIGHTS, NULL);
  char *text = read_text(l->folder, &len, &closed);
  if (!text)
    return REFUSE(l, "cannot read %s: %s", l->folder, closed);
  const int st = st_parse_index(text, len, add_named, l, why);
  free(text);
  return st < 0 ? REFUSE(l, "%.500s: %s", l->folder, why) : (PrStatus)st;
}

/* Refuses a checkpoint because of a tensor that only one side has. */
static PrStatus foreign(Load *l, const char *key, bool model_has) {
  uint32_t nmodel = l->run->p->nmodel;
  if (l->nstage != nmodel && !l->run->m.tensor)
    return REFUSE(
        l,
        "%.400s has %u stages, this model %u: implement PrModel.tensor to change the number of stages",
        l->folder, l->nstage, nmodel);
  return REFUSE(l, "%.400s is of another model: %s %s, which %s", l->folder,
                model_has ? "the checkpoint lacks" : "the checkpoint has", key,
                model_has ? "this model has" : "this model lacks");
}

/* Reads a tensor of this process. in: file number *open, or NULL; the function opens another if
 * needed. */
static PrStatus read_tensor(Load *l, const CkHave *h, const StTensor *t, FILE **in,
                            uint32_t *open) {
  const CkFile *file = &l->files.file[h->file];
  if (!*in || *open != h->file) {
    if (*in)
      fclose(*in);
    *in = fopen(file->path, "rb");
    *open = h->file;
  }
  const PrEngine *engine = l->run->engine; /* device memory is written from a copy */
  void *to = engine->take ? malloc(t->bytes + 1) : t->data;
  PrStatus st = PR_OK;
  if (!to)
    st = pr_fail(l->run, PR_E_MEMORY, "no memory for %s", t->key);
  else if (!*in || fseeko(*in, (off_t)(file->front + h->t.at), SEEK_SET) ||
           (t->bytes && fread(to, t->bytes, 1, *in) != 1))
    st = damaged(l, "cannot read %s: %s", file->path,
                 *in && feof(*in) ? "cut short" : strerror(errno));
  else if (h->t.has_sum && pr_checksum(to, t->bytes) != h->t.sum)
    st = damaged(l, "%s: %s is damaged: its checksum differs", file->path, t->key);
  if (engine->take && !st)
    st = engine->store(l->run, t->data, to, t->bytes);
  if (engine->take)
    free(to);
  return st;
}

static bool same_form(const StTensor *a, const StTensor *b) {
  return a->dtype == b->dtype && a->ndim == b->ndim &&
         !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape);
}

/* Checks the tensors of all rows, and reads those of this process. */
static PrStatus read_rows(Load *l) {
  PrRun *run = l->run;
  FILE *in = NULL;
  uint32_t open = 0;
  PrStatus st = ck_see_rows(run);
  const CkHave *twice = ck_sort(&l->files);
  if (!st && twice)
    st = REFUSE(l, "%.400s has two tensors %s", l->folder, twice->t.key);
  for (uint32_t i = 0; !st && i < run->p->nstage * (l->dir ? CK_PARTS : 1); i++) {
    const CkPart part = l->dir ? i % CK_PARTS : CK_WEIGHTS;
    CkList list = {0};
    st = ck_list(run, l->dir ? i / CK_PARTS : i, part, &list);
    for (uint32_t k = 0; !st && k < list.n; k++) {
      const StTensor *t = &list.t[k];
      CkHave *h = ck_find(&l->files, part, t->key);
      char there[ST_FORM], here[ST_FORM];
      if (!h) {
        st = foreign(l, t->key, true);
      } else if (!same_form(&h->t, t)) {
        st_form(&h->t, there);
        st_form(t, here);
        st = REFUSE(l, "%.400s is of another model: %s is %s in the checkpoint, %s in this model",
                    l->folder, t->key, there, here);
      } else {
        h->wanted = true;
        if (t->data)
          st = read_tensor(l, h, t, &in, &open);
      }
    }
    free(list.t);
  }
  if (in)
    fclose(in);
  for (uint32_t i = 0; !st && i < l->files.nhave; i++)
    if (!l->files.have[i].wanted)
      st = foreign(l, l->files.have[i].t.key, false);
  return st;
}

/* Makes the run continue after l->step steps. */
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
  for (uint32_t row = 0; row < run->p->nstage; row++) {
    const uint32_t model = run->p->stage[row].model;
    const uint64_t updates = l->updates[l->nstage == run->p->nmodel ? model : 0];
    run->stage[row].resumed += updates - pr_updates_before(run, row, n);
  }
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

/* Loads a checkpoint or weights, without the deadline. */
static PrStatus load(Load *l, CkWatch *watch, PrStatus st) {
  PrRun *run = l->run;
  if (!st && l->dir && pr_leads(run))
    st = find(l, l->dir);
  atomic_store(&run->ck_at, CK_AT_READ_MEETING);
  if (run->engine->agree)
    st = run->engine->agree(run, st);
  if (!st && run->engine->share)
    st = run->engine->share(run, 0, l->folder, sizeof l->folder);
  if (st || !l->folder[0])
    return st;
  ck_watch_again(watch);
  atomic_store(&run->ck_at, CK_AT_READ);
  st = l->dir ? read_manifest(l) : add_weights(l);
  if (!st)
    st = read_rows(l);
  atomic_store(&run->ck_at, CK_AT_READ_MEETING);
  return run->engine->agree ? run->engine->agree(run, st) : st;
}

/* Loads what l names, in all processes alike, before the first step. */
static PrStatus load_in_time(Load *l) {
  PrRun *run = l->run;
  CkWatch watch;
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (!st && pr_steps_done(run) > 0)
    st = pr_fail(run, PR_E_ARG, "%s: read before the first step of a run, not after %llu", l->what,
                 (unsigned long long)pr_steps_done(run));
  PrStatus watched = ck_watch(run, &watch, pr_leads(run) ? CK_AT_READ : CK_AT_READ_MEETING);
  st = load(l, &watch, st ? st : watched);
  ck_watch_end(&watch);
  ck_free(&l->files);
  return !st && pr_failed(run) ? (PrStatus)atomic_load(&run->status) : st;
}

PrStatus pr_resume(PrRun *run, const char *dir, uint64_t *step) {
  Load l = {.run = run, .what = "checkpoint", .dir = dir};
  *step = 0;
  if (!run)
    return PR_E_MEMORY;
  PrStatus st = load_in_time(&l);
  if (!st && l.folder[0]) {
    set_steps(run, &l);
    *step = l.step;
  }
  free(l.loss);
  free(l.updates);
  return st;
}

PrStatus pr_load_weights(PrRun *run, const char *path) {
  Load l = {.run = run, .what = "weights"};
  if (!run)
    return PR_E_MEMORY;
  if (!*path || strlen(path) >= sizeof l.folder)
    return pr_fail(run, PR_E_ARG, "weights: no path: '%s'", path);
  strcpy(l.folder, path);
  l.nstage = run->p->nmodel;
  return load_in_time(&l);
}
