/* SPDX-License-Identifier: MIT
 * Finds schedules of the standard library by name: for --list, and for FILE arguments that are
 * names. A library file has two names: its file name without .pipe, and the name of its last
 * schedule. Reads all files of the library: they are few and small. */
#define _GNU_SOURCE /* dladdr1, strcasestr */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "base.h"
#include "hints.h"

/* The file that holds this code: a shared library, or the program. False: unknown. */
static bool find_self(char path[PATH_MAX]) {
  Dl_info at;
  struct link_map *map = NULL;
  if (dladdr1((void *)(uintptr_t)library_dir, &at, (void **)&map, RTLD_DL_LINKMAP) && map &&
      *map->l_name) /* the program itself has an empty name */
    return realpath(map->l_name, path) != NULL;
  ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
  path[n > 0 ? n : 0] = 0;
  return n > 0;
}

const char *library_dir(Sched *s) {
  const char *env = getenv("PIPE_STDLIB"), *dir = NULL;
  char self[PATH_MAX];
  if (env && *env)
    return env;
  if (!find_self(self))
    return NULL;
  /* bin/pipec, lib/libpipec.so or lib/x86_64-linux-gnu/libpipec.so, and share/pipe/stdlib */
  for (int up = 1; up <= 3; up++) {
    char *slash = strrchr(self, '/');
    struct stat st;
    if (!slash)
      break;
    *slash = 0;
    if (up == 1)
      continue;
    const char *there = arena_printf(s->arena, "%s/share/pipe/stdlib", self);
    if (stat(there, &st) == 0)
      return there;
    dir = dir ? dir : there;
  }
  return dir;
}

typedef struct LibFile {
  const char *name, *path; /* name: without .pipe */
  const char *schedule;    /* the schedule that it compiles: its last */
  const char *about;       /* first sentence of its comment */
} LibFile;

static int by_name(const void *a, const void *b) {
  return strcmp(((const LibFile *)a)->name, ((const LibFile *)b)->name);
}

static void read_file(Sched *s, LibFile *l) {
  char line[512];
  const char *comment = "";
  bool head = true;
  FILE *f = guard_open(l->path);
  l->schedule = l->name;
  while (f && fgets(line, sizeof line, f)) {
    head &= line[0] == '#';
    if (head)
      comment = arena_printf(s->arena, "%s%s", comment, line + strspn(line, "# "));
    if (strncmp(line, "schedule ", 9) == 0)
      l->schedule = arena_strndup(s->arena, line + 9, strcspn(line + 9, "( \n"));
  }
  guard_close(f);
  l->about = first_sentence(s, comment);
}

/* The files of the library, sorted by name; *n: their number. */
static LibFile *read_library(Sched *s, uint32_t *n) {
  const char *const *name = library_files(s, n);
  LibFile *list = NEW_ARRAY(s->arena, LibFile, *n);
  for (uint32_t i = 0; i < *n; i++) {
    list[i].name = arena_strndup(s->arena, name[i], strlen(name[i]) - 5);
    list[i].path = arena_printf(s->arena, "%s/%s", s->opt->stdlib, name[i]);
    read_file(s, &list[i]);
  }
  qsort(list, *n, sizeof *list, by_name);
  return list;
}

const char *library_find(Sched *s, const char *name) {
  if (access(name, F_OK) == 0 || !*name || strpbrk(name, "/."))
    return name;
  const char *local = arena_printf(s->arena, "%s.pipe", name);
  if (access(local, F_OK) == 0) /* an import would find it first */
    return local;
  uint32_t n;
  LibFile *l = read_library(s, &n);
  for (int schedules = 0; schedules < 2; schedules++)
    for (uint32_t i = 0; i < n; i++)
      if (strcmp(schedules ? l[i].schedule : l[i].name, name) == 0)
        return l[i].path;
  return name;
}

/* Does the line of a schedule have each word, in letters of either size? */
static bool has_words(const LibFile *l, const char *const *word, uint32_t nword) {
  for (uint32_t i = 0; i < nword; i++)
    if (!strcasestr(l->name, word[i]) && !strcasestr(l->schedule, word[i]) &&
        !strcasestr(l->about, word[i]))
      return false;
  return true;
}

bool library_list(Sched *s, FILE *f, const char *const *word, uint32_t nword) {
  uint32_t all, n = 0;
  LibFile *l = read_library(s, &all);
  for (uint32_t i = 0; i < all; i++)
    if (has_words(&l[i], word, nword))
      l[n++] = l[i];
  int wide = 0;
  for (uint32_t i = 0; i < n; i++)
    wide = (int)strlen(l[i].name) > wide ? (int)strlen(l[i].name) : wide;
  for (uint32_t i = 0; i < n; i++)
    fprintf(f, "%-*s  %s%s%s%s\n", wide, printable(s, l[i].name), printable(s, l[i].about),
            strcmp(l[i].name, l[i].schedule) ? " (schedule " : "",
            strcmp(l[i].name, l[i].schedule) ? printable(s, l[i].schedule) : "",
            strcmp(l[i].name, l[i].schedule) ? ")" : "");
  if (all > 0 && n == 0) {
    const char *words = "";
    for (uint32_t i = 0; i < nword; i++)
      words = arena_printf(s->arena, "%s %s", words, word[i]);
    diag_error(s->diag, DIAG_USAGE, NO_SPAN,
               "--list%s: no schedule of the library has %s in its name or first sentence", words,
               nword > 1 ? "all these words" : "this word");
    diag_help(s->diag, "pipec --list alone prints all schedules");
  } else if (n == 0) {
    diag_error(s->diag, DIAG_READ, NO_SPAN, "no standard library: there is no .pipe file in %s",
               s->opt->stdlib ? s->opt->stdlib : "the installation");
    diag_help(s->diag, "PIPE_STDLIB names its directory");
  }
  return n > 0;
}
