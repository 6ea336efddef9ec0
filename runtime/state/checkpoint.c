/* SPDX-License-Identifier: MIT
 * Writing checkpoints. Every process writes the files of the stages it has, of replicas the first;
 * then the process that leads looks at all of them, writes the manifest and gives the folder its
 * name. Whatever ends the run before that leaves the checkpoint before it the latest one. */
#include "checkpoint.h"
#include "escape.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static PrStatus agree(PrRun *run, PrStatus st) {
  return run->engine->agree ? run->engine->agree(run, st) : st;
}

static PrStatus cannot(PrRun *run, const char *what, const char *path) {
  return pr_fail(run, PR_E_IO, "checkpoint: cannot %s %s: %s", what, path, strerror(errno));
}

static PrStatus path_of(PrRun *run, char to[CK_PATH], const char *dir, const char *name) {
  int n = snprintf(to, CK_PATH, "%s/%s", dir, name);
  return n < CK_PATH ? PR_OK : pr_fail(run, PR_E_IO, "checkpoint: path too long: %s", dir);
}

static int sync_dir(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int bad = fd < 0 || fsync(fd);
  if (fd >= 0)
    close(fd);
  return bad;
}

/* Closes a file that has been written, once it is on the disk. */
static PrStatus finish_file(PrRun *run, FILE *out, const char *path, bool written) {
  int why = errno;
  bool ok = written && !fflush(out) && !fsync(fileno(out));
  why = ok || !written ? why : errno;
  if (fclose(out) && ok) {
    ok = false;
    why = errno;
  }
  errno = why;
  return ok ? PR_OK : cannot(run, "write", path);
}

/* Removes a folder of a checkpoint, its manifest first: without that it is none. What cannot be
 * removed stays. */
static void remove_folder(const char *dir, const char *name) {
  char path[CK_PATH], file[CK_PATH];
  if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
    return;
  if (snprintf(file, sizeof file, "%s/manifest", path) < (int)sizeof file)
    unlink(file);
  DIR *d = opendir(path);
  for (struct dirent *e; d && (e = readdir(d));)
    if (snprintf(file, sizeof file, "%s/%s", path, e->d_name) < (int)sizeof file &&
        strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
      unlink(file);
  if (d)
    closedir(d);
  rmdir(path);
}

void ck_leave_folders(PrRun *run) {
  for (uint32_t i = 0; i < run->nck_lock; i++)
    close(run->ck_lock[i].file);
  for (uint32_t i = 0; i < run->nck_folder; i++)
    free(run->ck_folder[i].dir);
  free(run->ck_lock);
  free(run->ck_folder);
  run->ck_lock = NULL;
  run->ck_folder = NULL;
  run->nck_lock = run->nck_folder = 0;
}

/* What this run has for a folder, by the name it is called by. NULL: no memory. */
static CkFolder *folder_of(PrRun *run, const char *dir) {
  for (uint32_t i = 0; i < run->nck_folder; i++)
    if (!strcmp(run->ck_folder[i].dir, dir))
      return &run->ck_folder[i];
  CkFolder *more = realloc(run->ck_folder, (run->nck_folder + (size_t)1) * sizeof *more);
  if (!more)
    return NULL;
  run->ck_folder = more;
  char *name = strdup(dir);
  if (!name)
    return NULL;
  more[run->nck_folder] = (CkFolder){.dir = name, .step = UINT64_MAX};
  return &more[run->nck_folder++];
}

/* Takes the lock of a folder, removes what earlier runs left unfinished there and finds out which
 * run this is. A run that was killed may hold the lock a little longer. *k: with `file`, which
 * stays the caller's if this fails. */
static PrStatus take_lock(PrRun *run, const char *dir, const char *path, CkLock *k) {
  CkFound *found;
  uint32_t n;
  for (int i = 0; flock(k->file, LOCK_EX | LOCK_NB); i++) {
    if (errno != EWOULDBLOCK)
      return cannot(run, "lock", path);
    if (i == CK_LOCK_S * 100)
      return pr_fail(run, PR_E_IO, "checkpoint: another run writes checkpoints to %s", dir);
    nanosleep(&(struct timespec){0, 10000000}, NULL);
  }
  PrStatus st = ck_look_through(run, dir, &found, &n);
  k->attempt = n ? found[0].attempt + 1 : 1;
  k->step = UINT64_MAX;
  for (uint32_t i = 0; !st && i < n; i++) {
    char name[CK_NAME];
    snprintf(name, sizeof name, "step-%" PRIu64 ".%" PRIu64 ".partial", found[i].step,
             found[i].attempt);
    if (found[i].partial)
      remove_folder(dir, name);
  }
  free(found);
  return st;
}

/* In the process that leads: makes the folder and takes its lock, unless this run has it, perhaps
 * under another name of the folder. One that has been removed or moved away meanwhile is made anew.
 * *out stays the run's. */
static PrStatus begin_folder(PrRun *run, const char *dir, CkLock **out) {
  char path[CK_PATH];
  struct stat is = {0};
  CkLock *more = realloc(run->ck_lock, (run->nck_lock + (size_t)1) * sizeof *more);
  PrStatus st = path_of(run, path, dir, "lock");
  if (more)
    run->ck_lock = more;
  else
    st = pr_fail(run, PR_E_MEMORY, "no memory for a lock");
  if (st)
    return st;
  if (mkdir(dir, 0777) && errno != EEXIST)
    return cannot(run, "make", dir);
  CkLock *k = &more[run->nck_lock];
  k->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (k->file < 0)
    return cannot(run, "open", path);
  st = fstat(k->file, &is) ? cannot(run, "open", path) : PR_OK;
  k->device = is.st_dev;
  k->inode = is.st_ino;
  for (CkLock *own = more; !st && own < k; own++)
    if (own->device == k->device && own->inode == k->inode) {
      close(k->file);
      *out = own;
      return PR_OK;
    }
  if (!st)
    st = take_lock(run, dir, path, k);
  if (st) {
    close(k->file);
    return st;
  }
  run->nck_lock++;
  *out = k;
  return PR_OK;
}

/* Copies all tensors that are in memory of a device into one block, which the caller frees. */
static PrStatus stage_list(PrRun *run, CkList *list, char **block) {
  uint64_t bytes = 1, at = 0;
  PrStatus st = PR_OK;
  for (uint32_t i = 0; i < list->n; i++)
    bytes += list->t[i].bytes;
  if (!(*block = malloc(bytes)))
    return pr_fail(run, PR_E_MEMORY, "no memory for %llu bytes of a checkpoint",
                   (unsigned long long)bytes);
  for (uint32_t i = 0; i < list->n && !st; at += list->t[i++].bytes) {
    st = run->engine->fetch(run, *block + at, list->t[i].data, list->t[i].bytes);
    list->t[i].data = *block + at;
  }
  return st;
}

/* Writes zeros up to a multiple of PR_LINE. */
static bool pad(FILE *out, uint64_t at) {
  static const char zero[PR_LINE];
  uint64_t n = pr_round(at) - at;
  return n == 0 || fwrite(zero, n, 1, out) == 1;
}

static PrStatus write_stage(PrRun *run, const char *folder, uint32_t row) {
  char *staged = NULL;
  const PipeProgram *p = run->p;
  uint32_t stage = p->stage[row].model;
  char name[CK_NAME], path[CK_PATH];
  CkList list = {0};
  CkRow *rows = NULL;
  FILE *out = NULL;
  snprintf(name, sizeof name, "stage-%u", stage);
  PrStatus st = path_of(run, path, folder, name);
  if (st || (st = ck_list(run, row, &list)))
    goto done;
  if (run->engine->take && (st = stage_list(run, &list, &staged)))
    goto done;
  if (!(rows = calloc(list.n + (size_t)1, sizeof *rows))) {
    st = pr_fail(run, PR_E_MEMORY, "no memory for %u tensors", list.n);
    goto done;
  }
  CkHead head = {.magic = CK_MAGIC,
                 .version = CK_VERSION,
                 .ntensor = list.n,
                 .step = pr_steps_done(run),
                 .nmodel = p->nmodel,
                 .stage = stage};
  const uint64_t front = sizeof head + list.n * sizeof *rows;
  head.bytes = pr_round(front);
  for (uint32_t i = 0; i < list.n; i++) {
    const CkTensor *t = &list.t[i];
    memcpy(rows[i].key, t->key, sizeof t->key);
    rows[i].at = head.bytes;
    rows[i].bytes = t->bytes;
    rows[i].sum = pr_checksum(t->data, t->bytes);
    head.bytes += pr_round(t->bytes);
  }
  head.sum = ck_head_sum(&head, rows);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  out = fd < 0 ? NULL : fdopen(fd, "wb");
  if (!out) {
    st = cannot(run, "make", path);
    if (fd >= 0)
      close(fd);
    goto done;
  }
  bool ok = fwrite(&head, sizeof head, 1, out) == 1 &&
            fwrite(rows, sizeof *rows, list.n, out) == list.n && pad(out, front);
  for (uint32_t i = 0; ok && i < list.n; i++)
    ok = (rows[i].bytes == 0 || fwrite(list.t[i].data, rows[i].bytes, 1, out) == 1) &&
         pad(out, rows[i].bytes);
  pr_fault_meet_point(run, PR_AT_SAVE, p->stage[row].rank);
  st = finish_file(run, out, path, ok);

done:
  free(staged);
  free(rows);
  free(list.t);
  return st;
}

/* The first row on the list of replicas of each stage that is here. */
static PrStatus write_stages(PrRun *run, const char *folder) {
  PrStatus st = PR_OK;
  for (uint32_t s = 0; !st && s < run->p->nmodel; s++) {
    if (!pr_is_here(run, run->p->stage[s].rank))
      continue;
    atomic_store(&run->ck_at, CK_AT_STAGE + s);
    st = write_stage(run, folder, s);
    if (!st && pr_failed(run)) /* its deadline is over */
      st = (PrStatus)atomic_load(&run->status);
  }
  atomic_store(&run->ck_at, CK_AT_MEETING);
  return st;
}

/* Appends to text[*len]; false: it is full. */
static bool add(char *text, size_t room, size_t *len, const char *fmt, ...) PR_PRINTF(4, 5);
static bool add(char *text, size_t room, size_t *len, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(text + *len, room - *len, fmt, ap);
  va_end(ap);
  *len += (size_t)n;
  return n >= 0 && *len < room;
}

/* Looks at what all processes have written, and lists it. */
static PrStatus write_manifest(PrRun *run, const char *folder) {
  const PipeProgram *p = run->p;
  const uint32_t nloss = run->loss_steps ? run->nsink * p->nmb : 0;
  size_t room = 2048 + 20 * (size_t)nloss + 128 * (size_t)p->nmodel +
                (run->m.identity ? strlen(run->m.identity) : 0),
         len = 0;
  char *text = malloc(room), path[CK_PATH], name[CK_NAME], why[CK_PATH], of[256], params[512];
  PrStatus st = text ? path_of(run, path, folder, "manifest")
                     : pr_fail(run, PR_E_MEMORY, "no memory for a manifest");
  if (st)
    goto done;
  escape_text(of, sizeof of, ESCAPE_TERMINAL, p->name); /* a line each */
  escape_text(params, sizeof params, ESCAPE_TERMINAL, p->params);
  bool ok = add(text, room, &len,
                "pipe checkpoint %d\nstep %" PRIu64 "\nprogram %016" PRIx64 " %s %s\n", CK_VERSION,
                pr_steps_done(run), p->hash, of, params) &&
            add(text, room, &len, "model %s\nstages %u\nlosses %u",
                run->m.identity ? run->m.identity : "", p->nmodel, nloss);
  for (uint32_t i = 0; ok && i < nloss; i++) {
    uint64_t bits;
    memcpy(&bits, &run->loss[(run->loss_steps - 1) & 1][i], sizeof bits);
    ok = add(text, room, &len, " %016" PRIx64, bits);
  }
  ok = ok && add(text, room, &len, "\n");
  for (uint32_t s = 0; ok && !st && s < p->nmodel; s++) {
    char file[CK_PATH];
    CkRow *rows;
    snprintf(name, sizeof name, "stage-%u", s);
    CkHead *head = path_of(run, file, folder, name) ? NULL : ck_read_head(file, &rows, why);
    if (!head) {
      st = pr_fail(run, PR_E_IO,
                   "checkpoint: %s was written, and now: %.*s; do all ranks share the folder?",
                   name, 200, why);
      break;
    }
    ok = add(text, room, &len, "stage-%u %" PRIu64 " %016" PRIx64 "\n", s, head->bytes, head->sum);
    free(head);
    free(rows);
  }
  if (st)
    goto done;
  ok = ok && add(text, room, &len, "end %016" PRIx64 "\n", pr_checksum(text, len));
  if (!ok) {
    st = pr_fail(run, PR_E_IO, "checkpoint: manifest too long");
    goto done;
  }
  FILE *out = fopen(path, "wb");
  st = out ? finish_file(run, out, path, fwrite(text, len, 1, out) == 1)
           : cannot(run, "make", path);

done:
  free(text);
  return st;
}

/* Writes DIR/latest anew. */
static PrStatus point_to(PrRun *run, const char *dir, const char *name) {
  char path[CK_PATH], temporary[CK_PATH];
  PrStatus st = path_of(run, path, dir, "latest");
  if (st || (st = path_of(run, temporary, dir, "latest.partial")))
    return st;
  FILE *out = fopen(temporary, "wb");
  if (!out)
    return cannot(run, "make", temporary);
  if ((st = finish_file(run, out, temporary, fprintf(out, "%s\n", name) > 0))) {
    unlink(temporary);
    return st;
  }
  if (rename(temporary, path) || sync_dir(dir))
    return cannot(run, "rename", temporary);
  return PR_OK;
}

/* All but the newest `keep`. */
static void prune(PrRun *run, const char *dir, uint32_t keep) {
  CkFound *found;
  uint32_t n, seen = 0;
  if (ck_look_through(run, dir, &found, &n))
    return;
  for (uint32_t i = 0; i < n; i++) {
    char name[CK_NAME];
    snprintf(name, sizeof name, "step-%" PRIu64 ".%" PRIu64, found[i].step, found[i].attempt);
    if (!found[i].partial && ++seen > keep)
      remove_folder(dir, name);
  }
  free(found);
}

/* The process that leads gives the folder its name; name[] is "step-40.2.partial". */
static PrStatus commit(PrRun *run, const char *dir, const char *folder, const char *name,
                       uint32_t keep) {
  char path[CK_PATH], final[CK_NAME];
  snprintf(final, sizeof final, "%.*s", (int)(strlen(name) - strlen(".partial")), name);
  atomic_store(&run->ck_at, CK_AT_COMMIT);
  PrStatus st = write_manifest(run, folder);
  pr_fault_meet_point(run, PR_AT_COMMIT, 0);
  if (!st && pr_failed(run))
    st = (PrStatus)atomic_load(&run->status);
  if (st || (st = path_of(run, path, dir, final)))
    return st;
  remove_folder(dir, final); /* there only if `latest` could not be written */
  if (sync_dir(folder) || rename(folder, path) || sync_dir(dir))
    return cannot(run, "rename", folder);
  if ((st = point_to(run, dir, final)))
    return st;
  if (keep > 0)
    prune(run, dir, keep);
  return PR_OK;
}

/* Everything but its deadline. */
static PrStatus write_checkpoint(PrRun *run, const char *dir, uint32_t keep, CkWatch *watch,
                                 PrStatus st) {
  char folder[CK_PATH], name[CK_NAME] = ""; /* "": it is there, under another name of the folder */
  const bool leads = pr_leads(run);
  CkLock *k = NULL;
  if (leads && !st && !(st = begin_folder(run, dir, &k)) && k->step != pr_steps_done(run)) {
    snprintf(name, sizeof name, "step-%" PRIu64 ".%" PRIu64 ".partial", pr_steps_done(run),
             k->attempt);
    if (!(st = path_of(run, folder, dir, name)) && mkdir(folder, 0777))
      st = cannot(run, "make", folder);
  }
  atomic_store(&run->ck_at, CK_AT_MEETING);
  if ((st = agree(run, st)))
    return st;
  if (run->engine->share && (st = run->engine->share(run, 0, name, sizeof name)))
    return st;
  if (!name[0])
    return PR_OK;
  ck_watch_again(watch);
  st = path_of(run, folder, dir, name);
  st = agree(run, st ? st : write_stages(run, folder));
  if (!st)
    st = agree(run, leads ? commit(run, dir, folder, name, keep) : PR_OK);
  if (st && leads)
    remove_folder(dir, name);
  if (!st && leads)
    k->step = pr_steps_done(run);
  return st;
}

PrStatus pr_checkpoint(PrRun *run, const char *dir, uint32_t keep) {
  if (!run)
    return PR_E_MEMORY;
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (st)
    return st;
  CkFolder *f = folder_of(run, dir);
  if (f && f->step == pr_steps_done(run))
    return PR_OK;
  CkWatch watch;
  st = ck_watch(run, &watch, pr_leads(run) ? CK_AT_BEGIN : CK_AT_MEETING);
  if (!f)
    st = pr_fail(run, PR_E_MEMORY, "no memory for a path");
  st = write_checkpoint(run, dir, keep, &watch, st);
  ck_watch_end(&watch);
  if (!st && pr_failed(run))
    st = (PrStatus)atomic_load(&run->status);
  if (!st)
    f->step = pr_steps_done(run);
  return st;
}
