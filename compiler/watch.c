/* SPDX-License-Identifier: MIT
 * --watch: compiles again whenever a file that was read changes, and shows what the last compile said.
 *
 * Each compile is a process of its own, so that what ends one, an internal error or the lack of memory,
 * ends only it. It writes its messages and reports into one pipe and, when it is done, the files that it
 * has read into another. A file has changed when its stat has: contents saved in place, replaced by a
 * rename, deleted and made again all look the same. inotify on the folders, where there is such a thing,
 * only says when to look; without it, and for file systems that tell nothing, we look now and then. A
 * change is taken when nothing more happens for SETTLE_MS.
 *
 * On a terminal all this happens on its other screen, of which programs like pagers know, so that it is as
 * it was when we leave: on an interrupt, with exit status 0. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/inotify.h>
#endif

#include "pipec.h"

enum { SETTLE_MS = 30, LOOK_MS = 200, LOOK_NOTIFIED_MS = 1000 };

typedef struct Seen {
  const char *path;
  bool there;
  struct stat st;
} Seen;

typedef VEC(Seen) SeenList;
typedef VEC(char) Text;

typedef struct Watch {
  const Sched *s;
  bool screen;   /* standard output is a terminal that can do what we need */
  int notify;    /* of inotify, or -1 */
  int signals;   /* end of a pipe from which the number of each signal is read */
  Arena arena;   /* of `seen`; that of the compile before is freed */
  SeenList seen; /* what a change of is a reason to compile */
  int left;      /* the signal on which we leave */
} Watch;

/* A compile that runs. */
typedef struct Compile {
  pid_t pid;
  int text_in, files_in; /* -1 once it has closed them */
  Arena arena;
  Text text, files;
  struct timespec start;
} Compile;

/* ---- signals ---- */

static int signal_out = -1; /* other end of Watch.signals */
static int files_out = -1;  /* in a compile: where it says which files it has read */

static void on_signal(int sig) {
  int kept = errno;
  unsigned char c = (unsigned char)sig;
  (void)!write(signal_out, &c, 1);
  errno = kept;
}

static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
enum { NCAUGHT = sizeof caught / sizeof *caught };

static void catch_signals(void) {
  struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
  for (int i = 0; i < NCAUGHT; i++)
    if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) /* nohup stays */
      sigaction(caught[i], &act, NULL);
}

static sigset_t all_caught(void) {
  sigset_t set;
  sigemptyset(&set);
  for (int i = 0; i < NCAUGHT; i++)
    sigaddset(&set, caught[i]);
  return set;
}

/* ---- the terminal ---- */

static void enter_screen(const Watch *w) {
  if (w->screen)
    fputs("\033[?1049h\033[?25l\033[?7l",
          stdout); /* the other screen; no cursor, no line breaks of its own */
  fflush(stdout);
}

static void leave_screen(const Watch *w) {
  if (w->screen)
    fputs("\033[?7h\033[?25h\033[?1049l", stdout);
  fflush(stdout);
}

static uint32_t terminal_rows(void) {
  struct winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 ? size.ws_row : 24;
}

/* Length of the first n lines. */
static size_t lines(const Text *t, uint32_t n, uint32_t *more) {
  size_t cut = t->n;
  *more = 0;
  for (size_t i = 0; i < t->n; i++)
    if (t->at[i] == '\n') {
      *more += n == 0;
      n -= n > 0;
      if (n == 0 && cut == t->n)
        cut = i + 1;
    }
  return cut;
}

static void draw(const Watch *w, const Text *text) {
  uint32_t more = 0, others = 0;
  size_t n = text->n;
  for (uint32_t i = 0; i < w->seen.n; i++)
    others += !S_ISDIR(w->seen.at[i].st.st_mode);
  others -= others > 0;
  if (w->screen) {
    n = lines(text, terminal_rows() - 2, &more);
    fputs("\033[H\033[2J", stdout);
  }
  fwrite(text->at, 1, n, stdout);
  if (w->screen && more)
    printf("\033[0;7m%u more lines\033[0m ", more);
  fputs("watching ", stdout);
  escape_put(stdout, ESCAPE_TERMINAL, w->s->opt->input);
  if (others)
    printf(" and %u other file%s", others, others == 1 ? "" : "s");
  fputs(w->screen ? "; Ctrl-C leaves" : "\n", stdout);
  fflush(stdout);
}

/* ---- files ---- */

static Seen look(const char *path) {
  Seen f = {.path = path};
  f.there = stat(path, &f.st) == 0;
  return f;
}

static bool same_time(struct timespec a, struct timespec b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same(const Seen *a, const Seen *b) {
  return a->there == b->there &&
         (!a->there || (a->st.st_dev == b->st.st_dev && a->st.st_ino == b->st.st_ino &&
                        a->st.st_size == b->st.st_size && same_time(a->st.st_mtim, b->st.st_mtim) &&
                        same_time(a->st.st_ctim, b->st.st_ctim)));
}

/* Looks at all files again. */
static bool changed(Watch *w) {
  bool any = false;
  for (uint32_t i = 0; i < w->seen.n; i++) {
    Seen now = look(w->seen.at[i].path);
    any |= !same(&now, &w->seen.at[i]);
    w->seen.at[i] = now;
  }
  return any;
}

static const char *folder(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  return !slash ? "." : slash == path ? "/" : arena_strndup(a, path, (size_t)(slash - path));
}

static void add_folder(Watch *w, const char *path) {
#ifdef __linux__
  if (w->notify >= 0)
    inotify_add_watch(w->notify, path,
                      IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE |
                          IN_ATTRIB);
#endif
  (void)w, (void)path;
}

static void add_file(Watch *w, Arena *a, SeenList *list, const char *path) {
  for (uint32_t i = 0; i < list->n; i++)
    if (strcmp(list->at[i].path, path) == 0)
      return;
  *vec_push(a, list) = look(arena_strndup(a, path, strlen(path)));
  add_folder(w, folder(a, path));
  char *real = realpath(path, NULL); /* of a symbolic link: where the contents are saved */
  if (real)
    add_folder(w, folder(a, real));
  free(real);
}

static bool newer(const Seen *f, struct timespec t) {
  return f->there && (f->st.st_mtim.tv_sec != t.tv_sec ? f->st.st_mtim.tv_sec > t.tv_sec
                                                       : f->st.st_mtim.tv_nsec > t.tv_nsec);
}

/* Takes the list of files from the compile that began at `start`, each with a NUL; one of no letters
 * says that a file was not found, so that new names in the folders matter. True: one that was not looked
 * at before has been saved since. */
static bool take_files(Watch *w, const Text *names, struct timespec start) {
  Arena arena = {.oom = w->arena.oom};
  SeenList list = {0};
  bool missing = false, late = false;
  add_file(w, &arena, &list, w->s->opt->input);
  if (w->s->opt->profile)
    add_file(w, &arena, &list, w->s->opt->profile);
  if (names->n == 0) /* it did not come to an end */
    for (uint32_t i = 0; i < w->seen.n; i++)
      add_file(w, &arena, &list, w->seen.at[i].path);
  for (uint32_t i = 0; i < names->n; i += (uint32_t)strlen(names->at + i) + 1)
    if (names->at[i])
      add_file(w, &arena, &list, names->at + i);
    else
      missing = true;
  for (uint32_t i = 0, n = list.n; missing && i < n; i++)
    add_file(w, &arena, &list, folder(&arena, list.at[i].path));
  for (uint32_t i = 0; missing && i < w->s->opt->ninclude; i++)
    add_file(w, &arena, &list, w->s->opt->include[i]);
  for (uint32_t i = 0; i < list.n; i++) {
    const Seen *old = NULL;
    for (uint32_t k = 0; k < w->seen.n && !old; k++)
      old = strcmp(w->seen.at[k].path, list.at[i].path) == 0 ? &w->seen.at[k] : NULL;
    if (old) /* as it was before the compile */
      list.at[i].there = old->there, list.at[i].st = old->st;
    else
      late |= newer(&list.at[i], start);
  }
  arena_free(&w->arena);
  w->arena = arena;
  w->seen = list;
  return late;
}

/* ---- one compile ---- */

/* Everything that can be read now; false: the other end is closed. */
static bool drain(int fd, Arena *a, Text *t) {
  char some[4096];
  ssize_t n = read(fd, some, sizeof some);
  for (ssize_t i = 0; i < n; i++)
    *vec_push(a, t) = some[i];
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Begins a compile; 0 in it, -1: it could not be begun. */
static pid_t begin(Watch *w, Compile *c) {
  int text[2], files[2];
  sigset_t set = all_caught(), old;
  *c = (Compile){.pid = -1, .arena.oom = w->arena.oom};
  if (pipe(text) != 0)
    return -1;
  if (pipe(files) != 0) {
    close(text[0]), close(text[1]);
    return -1;
  }
  clock_gettime(CLOCK_REALTIME, &c->start);
  fflush(stdout);
  sigprocmask(SIG_BLOCK, &set, &old); /* none may reach the new process while it has our handlers */
  c->pid = fork();
  if (c->pid == 0) {
    struct winsize size;
    Options *o = w->s->opt;
    for (int i = 0; i < NCAUGHT; i++)
      if (signal(caught[i], SIG_DFL) == SIG_IGN)
        signal(caught[i], SIG_IGN);
    files_catch_signals();
    if (o->color == COLOR_AUTO)
      o->color = show_wants_colour(o, stdout) ? COLOR_ALWAYS : COLOR_NEVER;
    if (!getenv("COLUMNS") && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col) {
      char columns[16];
      snprintf(columns, sizeof columns, "%u", size.ws_col);
      setenv("COLUMNS", columns, 1);
    }
    dup2(text[1], STDOUT_FILENO);
    dup2(text[1], STDERR_FILENO);
    files_out = files[1];
    close(files[0]), close(w->signals), close(signal_out), close(w->notify);
    close(text[0]);
  }
  sigprocmask(SIG_SETMASK, &old, NULL);
  close(text[1]);
  if (c->pid != 0)
    close(files[1]);
  c->text_in = text[0], c->files_in = files[0];
  if (c->pid < 0)
    close(text[0]), close(files[0]);
  return c->pid;
}

void watch_done(Sched *s) {
  DiagName n = s->diag->first;
  bool missing = s->diag->errors && (n == DIAG_READ || n == DIAG_IMPORT || n == DIAG_PROFILE);
  FILE *f = fdopen(files_out, "w");
  for (uint32_t i = 0; f && i < s->diag->nsource; i++)
    fwrite(s->diag->source[i].path, 1, strlen(s->diag->source[i].path) + 1, f);
  if (f && missing)
    fputc(0, f);
  if (f)
    fclose(f);
}

/* Ends what is left of a compile. */
static void end(Compile *c, bool interrupt) {
  int status = 0;
  if (interrupt) {
    kill(c->pid, SIGTERM); /* it removes its temporary files */
    kill(c->pid, SIGCONT);
  }
  while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
    continue;
  if (c->text_in >= 0)
    close(c->text_in);
  if (c->files_in >= 0)
    close(c->files_in);
  if (!interrupt && WIFSIGNALED(status)) {
    const char *said = arena_printf(&c->arena, "pipec: signal %d ended the compile\n",
                                    WTERMSIG(status));
    for (; *said; said++)
      *vec_push(&c->arena, &c->text) = *said;
  }
}

/* Stops, as a job of a shell, until we are told to go on. */
static void suspend(const Watch *w) {
  leave_screen(w);
  signal(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);
  catch_signals();
  enter_screen(w);
}

/* Reads what a compile says until it has ended, if there is one; else waits for a change. */
typedef enum Reason { ENDED, AGAIN, LEAVE } Reason;
static Reason listen(Watch *w, Compile *c) {
  bool unsettled = false;
  for (;;) {
    struct pollfd p[] = {{w->signals, POLLIN, 0},
                         {w->notify, POLLIN, 0}, /* poll passes over what is negative */
                         {c ? c->text_in : -1, POLLIN, 0},
                         {c ? c->files_in : -1, POLLIN, 0}};
    int n = poll(p, 4, unsettled ? SETTLE_MS : w->notify >= 0 ? LOOK_NOTIFIED_MS : LOOK_MS);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 || ferror(stdout))
      return LEAVE;
    unsigned char sig;
    if (p[0].revents && read(w->signals, &sig, 1) == 1) {
      if (sig == SIGTSTP)
        suspend(w);
      else if (sig != SIGWINCH)
        w->left = sig;
      if (sig != SIGWINCH || w->screen)
        return sig == SIGTSTP || sig == SIGWINCH ? AGAIN : LEAVE;
    }
    char events[4096];
    if (p[1].revents && read(w->notify, events, sizeof events) < 0)
      w->notify = -1;
    if (n == 0 || p[1].revents) {
      if (changed(w))
        unsettled = true;
      else if (unsettled && n == 0)
        return AGAIN;
    }
    if (p[2].revents && !drain(c->text_in, &c->arena, &c->text))
      close(c->text_in), c->text_in = -1;
    if (p[3].revents && !drain(c->files_in, &c->arena, &c->files))
      close(c->files_in), c->files_in = -1;
    if (c && c->text_in < 0 && c->files_in < 0)
      return unsettled ? AGAIN : ENDED;
  }
}

bool watch(Sched *s, int *status) {
  Watch w = {.s = s, .notify = -1, .arena.oom = s->arena->oom};
  const char *term = getenv("TERM");
  int ends[2];
  Compile c;
  Reason why = AGAIN;
  *status = 1;
  w.screen = isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
  if (pipe(ends) != 0) {
    diag_error(s->diag, DIAG_READ, NO_SPAN, "cannot watch: %s", strerror(errno));
    return false;
  }
  w.signals = ends[0], signal_out = ends[1];
#ifdef __linux__
  w.notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
#endif
  catch_signals();
  enter_screen(&w);
  take_files(&w, &(Text){0}, (struct timespec){0});
  while (why != LEAVE) {
    if (begin(&w, &c) == 0)
      return true;
    if (c.pid < 0)
      break;
    why = listen(&w, &c);
    end(&c, why != ENDED);
    if (why == ENDED) {
      why = take_files(&w, &c.files, c.start) ? AGAIN : ENDED;
      draw(&w, &c.text);
    }
    arena_free(&c.arena);
    if (why == ENDED)
      why = listen(&w, NULL);
  }
  int err = errno;
  leave_screen(&w);
  arena_free(&w.arena);
  if (c.pid < 0)
    diag_error(s->diag, DIAG_READ, NO_SPAN, "cannot watch: %s", strerror(err));
  else if (w.left == SIGINT)
    *status = 0;
  else if (w.left) {
    signal(w.left, SIG_DFL);
    raise(w.left);
  }
  return false;
}
