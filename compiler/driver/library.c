/* SPDX-License-Identifier: MIT
 * Finds schedules of the standard library by name: --list, and FILE arguments that are names. A
 * library file has two names: its file name without .pipe, and the name of its last schedule. Reads
 * all files of the library for this: they are few and small. */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "base.h"
#include "hints.h"

typedef struct LibFile {
  const char *name, *path; /* name: without .pipe */
  const char *schedule;    /* that it compiles */
  const char *about;       /* first sentence of its comment */
} LibFile;

static int by_name(const void *a, const void *b) {
  return strcmp(((const LibFile *)a)->name, ((const LibFile *)b)->name);
}

static void read_file(Sched *s, LibFile *l) {
  char line[512];
  const char *comment = "";
  bool head = true;
  FILE *f = fopen(l->path, "r");
  l->schedule = l->name;
  while (f && fgets(line, sizeof line, f)) {
    head &= line[0] == '#';
    if (head)
      comment = arena_printf(s->arena, "%s%s", comment, line + strspn(line, "# "));
    if (strncmp(line, "schedule ", 9) == 0)
      l->schedule = arena_strndup(s->arena, line + 9, strcspn(line + 9, "( \n"));
  }
  if (f)
    fclose(f);
  l->about = first_sentence(s, comment);
}

/* Sorted by name; *n of them. */
static LibFile *read_library(Sched *s, size_t *n) {
  VEC(LibFile) list = {0};
  DIR *dir = s->opt->stdlib ? opendir(s->opt->stdlib) : NULL;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    size_t len = strlen(e->d_name);
    if (len < 6 || strcmp(e->d_name + len - 5, ".pipe") != 0)
      continue;
    LibFile *l = vec_push(s->arena, &list);
    l->name = arena_strndup(s->arena, e->d_name, len - 5);
    l->path = arena_printf(s->arena, "%s/%s", s->opt->stdlib, e->d_name);
    read_file(s, l);
  }
  if (dir)
    closedir(dir);
  if (list.n)
    qsort(list.at, list.n, sizeof *list.at, by_name);
  *n = list.n;
  return list.at;
}

const char *library_find(Sched *s, const char *name) {
  if (access(name, F_OK) == 0 || !*name || strpbrk(name, "/."))
    return name;
  const char *local = arena_printf(s->arena, "%s.pipe", name);
  if (access(local, F_OK) == 0) /* as an import of it would */
    return local;
  size_t n;
  LibFile *l = read_library(s, &n);
  for (int schedules = 0; schedules < 2; schedules++)
    for (size_t i = 0; i < n; i++)
      if (strcmp(schedules ? l[i].schedule : l[i].name, name) == 0)
        return l[i].path;
  return name;
}

bool library_list(Sched *s, FILE *f) {
  size_t n;
  LibFile *l = read_library(s, &n);
  int wide = 0;
  for (size_t i = 0; i < n; i++)
    wide = (int)strlen(l[i].name) > wide ? (int)strlen(l[i].name) : wide;
  for (size_t i = 0; i < n; i++)
    fprintf(f, "%-*s  %s%s%s%s\n", wide, printable(s, l[i].name), printable(s, l[i].about),
            strcmp(l[i].name, l[i].schedule) ? " (schedule " : "",
            strcmp(l[i].name, l[i].schedule) ? printable(s, l[i].schedule) : "",
            strcmp(l[i].name, l[i].schedule) ? ")" : "");
  if (n == 0) {
    diag_error(s->diag, DIAG_READ, NO_SPAN, "no standard library: there is no .pipe file in %s",
               s->opt->stdlib ? s->opt->stdlib : "the installation");
    diag_help(s->diag, "PIPE_STDLIB names its directory");
  }
  return n > 0;
}
