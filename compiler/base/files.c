/* SPDX-License-Identifier: MIT
 * Reads whole files, finds imports, and writes outputs that are complete or do not exist. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base.h"
#include "habits.h"

enum { MOST_TEXT = 64, MOST_DATA = 1024 }; /* MiB */

/* A file to read. */
typedef struct Opened {
  FILE *f;         /* NULL: it cannot be opened */
  const char *why; /* the reason why it cannot be read, or NULL */
  bool missing;    /* there is no such file */
} Opened;

/* Opens a file of at most `most` MiB. A stranger may have chosen a path that a file names, and a
 * call of the library must end: for these, opens nothing that can block or act on being opened. The
 * command line may name a pipe, such as bash's <(...), and standard input. */
static Opened open_source(Sched *s, const char *path, Span at, uint32_t most) {
  const bool standard = at.file == NO_FILE && strcmp(path, "-") == 0,
             careful = at.file != NO_FILE || s->opt->regular;
  struct stat st = {0};
  if (standard && careful)
    return (Opened){.why = "a call of the library does not read standard input"};
  if (careful && stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
    return (Opened){.why = "it is no regular file"};
  Opened opened = {.f = standard ? stdin : guard_open(path)};
  if (!opened.f) {
    opened.why = strerror(errno);
    opened.missing = at.file == NO_FILE && errno == ENOENT;
  } else if (fstat(fileno(opened.f), &st) == 0 && S_ISDIR(st.st_mode)) {
    opened.why = "it is a directory";
  } else if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > (uint64_t)most << 20) {
    opened.why = arena_printf(s->arena, "it is larger than %u MiB", most);
  }
  return opened;
}

static char *read_whole(Sched *s, const char *path, Span at, uint32_t most, uint32_t *len) {
  bool input = at.file == NO_FILE && strcmp(path, "-") == 0;
  if (input && s->opt->input_text) {
    *len = s->opt->input_len;
    return s->opt->input_text;
  }
  const Opened opened = open_source(s, path, at, most);
  FILE *f = opened.f;
  const char *why = opened.why;
  char *text = NULL;
  size_t n = 0, cap = 0;
  while (!why) { /* pipes have no size: read until the end */
    if (n == cap) {
      size_t bigger = cap ? cap * 2 : 4096;
      char *t = arena_alloc(s->arena, bigger + 1);
      if (n)
        memcpy(t, text, n);
      text = t, cap = bigger;
    }
    size_t got = fread(text + n, 1, cap - n, f);
    n += got;
    if (n > (size_t)most << 20)
      why = arena_printf(s->arena, "it is larger than %u MiB", most);
    else if (got == 0) {
      if (ferror(f))
        why = strerror(errno);
      break;
    }
  }
  if (f && f != stdin)
    guard_close(f);
  if (why) {
    const char *near = opened.missing ? hint_file(s, path) : NULL;
    diag_error(s->diag, DIAG_READ, at, "cannot read %s: %s", path, why);
    if (near)
      diag_help(s->diag, "did you mean %.*s, of the standard library", (int)strlen(near) - 5, near);
    else if (opened.missing && *path && !strpbrk(path, "/."))
      diag_help(s->diag, "pipec --list names the schedules of the standard library");
    return NULL;
  }
  text[n] = 0;
  *len = (uint32_t)n;
  if (input)
    s->opt->input_text = text, s->opt->input_len = *len;
  return text;
}

char *file_read(Sched *s, const char *path, Span at, uint32_t *len) {
  return read_whole(s, path, at, MOST_TEXT, len);
}

char *file_read_data(Sched *s, const char *path, Span at, uint32_t *len) {
  return read_whole(s, path, at, MOST_DATA, len);
}

const char *input_read(Sched *s, uint32_t *len) {
  *len = (uint32_t)s->opt->text_len;
  return s->opt->text ? s->opt->text : file_read(s, s->opt->input, NO_SPAN, len);
}

static const char *join(Sched *s, const char *dir, size_t n, const char *path) {
  return n ? arena_printf(s->arena, "%.*s/%s", (int)n, dir, path) : path;
}

/* Does the name exist? Only file_read tells whether the file can be read. */
static bool exists(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0;
}

const char *file_find(Sched *s, const char *path, const char *from) {
  if (s->opt->closed)
    return NULL;
  if (path[0] == '/')
    return exists(path) ? path : NULL;
  const char *slash = strrchr(from, '/');
  const char *beside = join(s, from, slash ? (size_t)(slash - from) : 0, path);
  if (exists(beside))
    return beside;
  for (uint32_t i = 0; i < s->opt->ninclude; i++) {
    const char *p = join(s, s->opt->include[i], strlen(s->opt->include[i]), path);
    if (exists(p))
      return p;
  }
  const char *name = strncmp(path, "stdlib/", 7) == 0 ? path + 7 : path;
  const char *p = s->opt->stdlib ? join(s, s->opt->stdlib, strlen(s->opt->stdlib), name) : NULL;
  return p && exists(p) ? p : NULL;
}

static bool cannot_write(Sched *s, const char *path, int err) {
  diag_error(s->diag, DIAG_WRITE, NO_SPAN, "cannot write %s: %s", path ? path : "standard output",
             strerror(err));
  return false;
}

/* Reports an output that would replace a file that the compile has read. */
static bool overwrites(Sched *s, const char *shown, const struct stat *st) {
  struct stat in;
  for (uint32_t i = 0; i < s->diag->nsource; i++)
    if (stat(s->diag->source[i].path, &in) == 0 && in.st_dev == st->st_dev &&
        in.st_ino == st->st_ino) {
      diag_error(s->diag, DIAG_USAGE, NO_SPAN, "writing %s would replace a file that was read",
                 shown);
      return true;
    }
  return false;
}

/* Temporary files that exist now: a signal that ends the process removes them. */
static char *volatile pending[4];

void files_remove(void) {
  for (int i = 0; i < 4; i++)
    if (pending[i])
      unlink(pending[i]);
}

static void remove_pending(int sig) {
  files_remove();
  signal(sig, SIG_DFL);
  raise(sig);
}

static void set_pending(char *from, char *to) {
  for (int i = 0; i < 4; i++)
    if (pending[i] == from) {
      pending[i] = to;
      return;
    }
}

void files_catch_signals(void) {
  static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
  for (int i = 0; i < 3; i++)
    if (signal(ends[i], SIG_IGN) != SIG_IGN) /* keep SIGHUP ignored under nohup */
      signal(ends[i], remove_pending);
}

static bool open_output(Sched *s, OutFile *o, const char *path, bool replace) {
  *o = (OutFile){.f = s->opt->out, .shown = path, .path = path};
  if (!path)
    return true;
  struct stat st;
  char *target = realpath(path, NULL); /* a symbolic link stays: its target is replaced */
  if (target) {
    o->path = path = arena_strndup(s->arena, target, strlen(target));
    free(target);
  }
  bool old = stat(path, &st) == 0;
  if (replace && (!old || access(path, W_OK) != 0 || !S_ISREG(st.st_mode)))
    return cannot_write(s, o->shown, old && !S_ISREG(st.st_mode) ? EINVAL : errno);
  if (!replace && old && overwrites(s, o->shown, &st))
    return false;
  if (old && !S_ISREG(st.st_mode)) { /* a device or pipe cannot be replaced */
    o->f = S_ISDIR(st.st_mode) ? (errno = EISDIR, NULL) : fopen(path, "wb");
    return o->f ? true : cannot_write(s, o->shown, errno);
  }
  o->tmp = arena_printf(s->arena, "%s.XXXXXX", path);
  sigset_t ends, before; /* no signal between mkstemp and set_pending */
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT), sigaddset(&ends, SIGTERM), sigaddset(&ends, SIGHUP);
  sigprocmask(SIG_BLOCK, &ends, &before);
  int fd = mkstemp(o->tmp), err = errno;
  if (fd >= 0)
    set_pending(NULL, o->tmp);
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (fd < 0)
    return cannot_write(s, o->shown, err);
  mode_t mask = umask(0);
  umask(mask);
  fchmod(fd, replace ? st.st_mode & 07777 : 0666 & ~mask);
  o->f = fdopen(fd, "wb");
  return true;
}

bool file_open(Sched *s, OutFile *o, const char *path) { return open_output(s, o, path, false); }
bool file_replace(Sched *s, OutFile *o, const char *path) { return open_output(s, o, path, true); }

bool file_close(Sched *s, OutFile *o, bool ok) {
  int err = 0;
  if (fflush(o->f) != 0 || ferror(o->f))
    err = errno ? errno : EIO;
  if (o->path && fclose(o->f) != 0 && !err)
    err = errno;
  if (o->tmp && ok && !err && rename(o->tmp, o->path) != 0)
    err = errno;
  if (o->tmp && (!ok || err))
    unlink(o->tmp);
  if (o->tmp)
    set_pending(o->tmp, NULL);
  return err ? cannot_write(s, o->shown, err) : ok;
}

static void close_dir(void *dir) { closedir(dir); }

const char *const *library_files(Sched *s, uint32_t *n) {
  VEC(const char *) list = {0};
  DIR *dir = s->opt->stdlib && !s->opt->closed ? opendir(s->opt->stdlib) : NULL;
  guard_own(dir, close_dir);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    size_t len = strlen(e->d_name);
    if (len > 5 && strcmp(e->d_name + len - 5, ".pipe") == 0)
      *vec_push(s->arena, &list) = arena_strndup(s->arena, e->d_name, len);
  }
  guard_end(dir, close_dir);
  *n = list.n;
  return list.at;
}

const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Letters and digits of the last part of a path, in lower case, without its .pipe. */
static void squeeze(char to[40], const char *path) {
  const char *from = file_name(path);
  size_t n = strlen(from), k = 0;
  n -= n > 5 && strcmp(from + n - 5, ".pipe") == 0 ? 5 : 0;
  for (size_t i = 0; i < n && k < 39; i++) {
    char c = from[i] >= 'A' && from[i] <= 'Z' ? (char)(from[i] | 32) : from[i];
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      to[k++] = c;
  }
  to[k] = 0;
}

const char *hint_file(Sched *s, const char *path) {
  uint32_t n;
  const char *const *name = library_files(s, &n);
  char want[40], have[40];
  const char *best = NULL;
  unsigned least = 2; /* 1 + number of letters that differ */
  squeeze(want, path);
  for (uint32_t i = 0; i < n; i++) {
    squeeze(have, name[i]);
    unsigned far = strlen(want) > 3 ? name_distance(want, have) : strcmp(want, have) != 0;
    if (far < least && far <= (strlen(want) > 3))
      least = far, best = name[i];
    else if (best && far == least && strcmp(name[i], best) < 0)
      best = name[i];
  }
  return best;
}
