/* SPDX-License-Identifier: MIT
 * Writes checkpoints. Every process writes the files of its stages; of replicas the first row
 * writes. Then the leading process reads the headers of all files, writes the manifest and gives
 * the folder its final name. Whatever ends the run earlier leaves the previous checkpoint as the
 * latest one. */
#include "checkpoint.h"
#include "escape.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

/* Syncs a written file to disk and closes it. */
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

/* Removes the folder of a checkpoint, manifest first: without a manifest it is no checkpoint.
 * Leaves what it cannot remove, and the target of a link in its place. */
static void remove_folder(const char *dir, const char *name) {
  char path[CK_PATH];
  if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
    return;
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0)
    return;
  unlinkat(folder, "manifest", 0);
  DIR *d = fdopendir(folder);
  for (struct dirent *e; d && (e = readdir(d));)
    unlinkat(folder, e->d_name, 0);
  if (d)
    closedir(d);
  else
    close(folder);
  rmdir(path);
}

/* The entry of this run for a folder, by path. NULL: no memory. */
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

/* Locks a folder, removes what earlier runs left unfinished and numbers this run (*k). Waits a
 * little: a killed run may hold the lock for a moment. k->file is open; after a failure it stays
 * the caller's. */
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

/* In the leading process: makes the folder and locks it, unless this run holds it, perhaps under
 * another path. A folder that was removed or moved meanwhile is made again. *out belongs to the
 * run. */
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

/* Copies all tensors that are in device memory to one block, which the caller frees. */
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

/* Writes the file of a part of a row, the first of its replicas. */
static PrStatus write_file(PrRun *run, const char *folder, uint32_t row, CkPart part) {
  char name[CK_NAME], path[CK_PATH], step[24], hash[24], *staged = NULL, *head = NULL;
  const char *const about[] = {"step", step, "program", hash, NULL};
  size_t front;
  CkList list = {0};
  ck_file_name(name, run->p->stage[row].model, part);
  snprintf(step, sizeof step, "%" PRIu64, pr_steps_done(run));
  snprintf(hash, sizeof hash, "%016" PRIx64, run->p->hash);
  PrStatus st = path_of(run, path, folder, name);
  if (st || (st = ck_list(run, row, part, &list)))
    goto done;
  st_place(list.t, list.n);
  if (run->engine->take && (st = stage_list(run, &list, &staged)))
    goto done;
  for (uint32_t i = 0; i < list.n; i++)
    list.t[i].sum = pr_checksum(list.t[i].data, list.t[i].bytes);
  if (!(head = st_write(list.t, list.n, about, &front))) {
    st = pr_fail(run, PR_E_MEMORY, "no memory for the names of %u tensors", list.n);
    goto done;
  }
  FILE *out = fopen(path, "wbxe");
  if (!out) {
    st = cannot(run, "make", path);
    goto done;
  }
  bool ok = fwrite(head, front, 1, out) == 1;
  for (uint32_t i = 0; ok && i < list.n; i++)
    ok = list.t[i].bytes == 0 || fwrite(list.t[i].data, list.t[i].bytes, 1, out) == 1;
  if (part == CK_WEIGHTS)
    pr_fault_meet_point(run, PR_AT_SAVE, run->p->stage[row].rank);
  st = finish_file(run, out, path, ok);

done:
  free(staged);
  free(head);
  free(list.t);
  return st;
}

/* Writes the files of the stages of the model whose first row is in this process. */
static PrStatus write_stages(PrRun *run, const char *folder) {
  PrStatus st = PR_OK;
  for (uint32_t s = 0; !st && s < run->p->nmodel; s++) {
    if (!pr_is_here(run, run->p->stage[s].rank))
      continue;
    atomic_store(&run->ck_at, CK_AT_STAGE + s);
    for (CkPart part = 0; !st && part < CK_PARTS; part++)
      if (!(st = write_file(run, folder, s, part)) && pr_failed(run)) /* the deadline has passed */
        st = (PrStatus)atomic_load(&run->status);
  }
  atomic_store(&run->ck_at, CK_AT_MEETING);
  return st;
}

/* Writes a small file that must not exist yet. */
static PrStatus write_text(PrRun *run, const char *path, const char *text, size_t len) {
  FILE *out = fopen(path, "wbxe");
  return out ? finish_file(run, out, path, fwrite(text, len, 1, out) == 1)
             : cannot(run, "make", path);
}

/* Reads the headers of the files of all processes and lists their tensors. */
static PrStatus list_files(PrRun *run, const char *folder, CkFiles *files) {
  char path[CK_PATH], name[CK_NAME], why[ST_WHY];
  PrStatus st = PR_OK;
  for (uint32_t s = 0; s < run->p->nmodel; s++)
    for (CkPart part = 0; part < CK_PARTS; part++) {
      ck_file_name(name, s, part);
      if ((st = path_of(run, path, folder, name)))
        return st;
      if (!ck_add(files, path, part, NULL, why))
        return pr_fail(
            run, PR_E_IO,
            "checkpoint: %s was written, and now: %.200s; do all ranks share the folder?", name,
            why);
    }
  const CkHave *twice = ck_sort(files);
  return twice ? pr_fail(run, PR_E_ARG, "model: two of its tensors are called %s", twice->t.key)
               : PR_OK;
}

static const char *name_of(const CkFiles *files, uint32_t i) {
  return strrchr(files->file[i].path, '/') + 1;
}

/* The index that loaders of models expect. */
static void put_index(FILE *f, const CkFiles *files, const PrRun *run) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < files->nhave; i++)
    bytes += files->have[i].part == CK_WEIGHTS ? files->have[i].t.bytes : 0;
  fprintf(f, "{\"metadata\":{\"total_size\":%" PRIu64 ",\"step\":%" PRIu64 "},\"weight_map\":{",
          bytes, pr_steps_done(run));
  for (uint32_t i = 0; i < files->nhave && files->have[i].part == CK_WEIGHTS; i++) {
    fputs(i ? ",\"" : "\"", f);
    escape_put(f, ESCAPE_JSON, files->have[i].t.key);
    fprintf(f, "\":\"%s\"", name_of(files, files->have[i].file));
  }
  fputs("}}\n", f);
}

static void put_manifest(FILE *f, const CkFiles *files, const PrRun *run) {
  const PipeProgram *p = run->p;
  const uint32_t nloss = run->loss_steps ? run->nsink * p->nmb : 0;
  fprintf(f, "pipe checkpoint %d\nstep %" PRIu64 "\nprogram %016" PRIx64 " ", CK_VERSION,
          pr_steps_done(run), p->hash);
  escape_put(f, ESCAPE_TERMINAL, p->name); /* one line each */
  fputc(' ', f);
  escape_put(f, ESCAPE_TERMINAL, p->params);
  fprintf(f, "\nmodel %s\nstages %u\nupdates", run->m.identity ? run->m.identity : "", p->nmodel);
  for (uint32_t s = 0; s < p->nmodel; s++) /* row s is the first of stage s */
    fprintf(f, " %" PRIu64, pr_updates_before(run, s, pr_steps_done(run)));
  fprintf(f, "\nlosses %u", nloss);
  for (uint32_t i = 0; i < nloss; i++) {
    uint64_t bits;
    memcpy(&bits, &run->loss[(run->loss_steps - 1) & 1][i], sizeof bits);
    fprintf(f, " %016" PRIx64, bits);
  }
  fputc('\n', f);
  for (uint32_t i = 0; i < files->nfile; i++)
    fprintf(f, "%s %" PRIu64 " %016" PRIx64 "\n", name_of(files, i), files->file[i].seal.bytes,
            files->file[i].seal.sum);
}

/* Writes the text that `put` makes of the files. sealed: its last line is `end` and a checksum of
 * the rest. */
static PrStatus write_list(PrRun *run, const char *folder, const char *name, const CkFiles *files,
                           void (*put)(FILE *, const CkFiles *, const PrRun *), bool sealed) {
  char path[CK_PATH], *text = NULL;
  size_t len = 0;
  PrStatus st = path_of(run, path, folder, name);
  FILE *f = st ? NULL : open_memstream(&text, &len);
  if (f) {
    put(f, files, run);
    fflush(f);
    if (sealed)
      fprintf(f, "end %016" PRIx64 "\n", pr_checksum(text, len));
  }
  const bool bad = !f || ferror(f);
  if (((f && fclose(f)) || bad) && !st)
    st = pr_fail(run, PR_E_MEMORY, "no memory for %s", name);
  if (!st)
    st = write_text(run, path, text, len);
  free(text);
  return st;
}

static PrStatus write_lists(PrRun *run, const char *folder) {
  CkFiles files = {0};
  PrStatus st = ck_see_rows(run);
  if (!st)
    st = list_files(run, folder, &files);
  if (!st)
    st = write_list(run, folder, "model.safetensors.index.json", &files, put_index, false);
  if (!st)
    st = write_list(run, folder, "manifest", &files, put_manifest, true);
  ck_free(&files);
  return st;
}

/* Replaces DIR/latest. */
static PrStatus point_to(PrRun *run, const char *dir, const char *name) {
  char path[CK_PATH], temporary[CK_PATH], text[CK_NAME + 1];
  PrStatus st = path_of(run, path, dir, "latest");
  if (st || (st = path_of(run, temporary, dir, "latest.partial")))
    return st;
  const int len = snprintf(text, sizeof text, "%s\n", name);
  unlink(temporary); /* left by a killed run */
  if ((st = write_text(run, temporary, text, (size_t)len))) {
    unlink(temporary);
    return st;
  }
  if (rename(temporary, path) || sync_dir(dir))
    return cannot(run, "rename", temporary);
  return PR_OK;
}

/* Removes all but the newest `keep` checkpoints. */
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

/* The leading process gives the folder its final name; name is "step-40.2.partial". */
static PrStatus commit(PrRun *run, const char *dir, const char *folder, const char *name,
                       uint32_t keep) {
  char path[CK_PATH], final[CK_NAME];
  snprintf(final, sizeof final, "%.*s", (int)(strlen(name) - strlen(".partial")), name);
  atomic_store(&run->ck_at, CK_AT_COMMIT);
  PrStatus st = write_lists(run, folder);
  pr_fault_meet_point(run, PR_AT_COMMIT, 0);
  if (!st && pr_failed(run))
    st = (PrStatus)atomic_load(&run->status);
  if (st || (st = path_of(run, path, dir, final)))
    return st;
  remove_folder(dir, final); /* exists only if `latest` could not be written */
  if (sync_dir(folder) || rename(folder, path) || sync_dir(dir))
    return cannot(run, "rename", folder);
  if ((st = point_to(run, dir, final)))
    return st;
  if (keep > 0)
    prune(run, dir, keep);
  return PR_OK;
}

/* Writes a checkpoint, without its deadline. */
static PrStatus write_checkpoint(PrRun *run, const char *dir, uint32_t keep, CkWatch *watch,
                                 PrStatus st) {
  char folder[CK_PATH], name[CK_NAME] = ""; /* "": it exists, under another path of the folder */
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
