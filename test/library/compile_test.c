/* SPDX-License-Identifier: MIT
 * The compiler as a library (pipe_compile.h).
 *
 *   compile_test results         what a call returns, for good and bad callers
 *   compile_test print NAME [OPTION...]    output on standard output, messages on standard error
 *   compile_test threads STDLIB  threads compile the files of the library at the same time, and get
 *                                what one after the other gets */
#include <dirent.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipe_compile.h"
#include "pipe_rows.h"
#include "pipe_run.h"

static int failed;
#define CHECK(cond) \
  do { \
    if (!(cond)) \
      failed = 1, printf("%s:%d: %s\n", __FILE__, __LINE__, #cond); \
  } while (0)

static const char line[] = "schedule line(P = 2, M = 2) {\n"
                           "  ranks P\n"
                           "  pipe net stages P mbs M place s -> s\n"
                           "  order r { do m in 0..M { F(m) B(m) } U }\n"
                           "}\n";
/* Rank 1 begins with what rank 0 sends last. */
static const char stuck[] = "schedule stuck(P = 2, M = 2) {\n"
                            "  ranks P\n"
                            "  pipe net stages P mbs M place s -> s\n"
                            "  order r {\n"
                            "    if r == 0 { F(0) B(0) F(1) B(1) } else { F(1) F(0) B(0) B(1) }\n"
                            "    U\n"
                            "  }\n"
                            "}\n";

static void good(void) {
  /* The caller's texts need not live longer than the call. */
  char *text = strdup(line), name[] = "dir/line.pipe", option[] = "-DM=5";
  const char *const word[] = {option, "-D", "P=3"};
  PipeCompiled *c;
  size_t n = 1;
  CHECK(pipe_compile(&c, name, text, 3, word) == PIPE_COMPILE_OK);
  memset(text, 'x', strlen(text));
  memset(name, 'x', strlen(name));
  memset(option, 'x', strlen(option));
  free(text);
  const PipeProgram *p = pipe_compiled_program(c);
  CHECK(p && p->nrank == 3 && p->nmb == 5 && strcmp(p->name, "line") == 0);
  CHECK(p && p->hash != 0 && p->hash == pipe_program_hash(p));
  CHECK(*pipe_compiled_messages(c) == 0 && !pipe_compiled_diagnostic(c, 0));
  CHECK(*pipe_compiled_output(c, &n) == 0 && n == 0);
  pipe_compiled_free(c);
}

static void refused(void) {
  PipeCompiled *c;
  CHECK(pipe_compile(&c, "a\033b.pipe", stuck, 0, NULL) == PIPE_COMPILE_REFUSED);
  CHECK(!pipe_compiled_program(c));
  const PipeDiagnostic *d = pipe_compiled_diagnostic(c, 0);
  CHECK(d && d->severity == PIPE_ERROR && d->name && d->message && d->line > 0 && d->column > 0);
  CHECK(d && d->file && strcmp(d->file, "a\033b.pipe") == 0);
  printf("%s", pipe_compiled_messages(c));
  for (uint32_t i = 0; (d = pipe_compiled_diagnostic(c, i)); i++)
    printf("%u %s %u:%u %s\n", (unsigned)d->severity, d->name ? d->name : "-", (unsigned)d->line,
           (unsigned)d->column, d->help ? d->help : "-");
  pipe_compiled_free(c);
}

static const char tuned[] = "schedule tuned(P = 16, M = 512) {\n"
                            "  ranks P\n"
                            "  pipe net stages P mbs M place s -> s\n"
                            "  time { F = 3 I = 2 W = 2 send = 1 }\n"
                            "  tune k in 0..1000 tries 1000 by makespan()\n"
                            "  order r { rules m {\n"
                            "    F(m) @ m + k when inflight(r) < P  I(m) @ m  W(m) @ m + k } U }\n"
                            "}\n";

static void *set_later(void *stop) {
  nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
  __atomic_store_n((int *)stop, 1, __ATOMIC_RELAXED);
  return NULL;
}

/* A call that would take minutes ends soon after another thread has set `stop`. */
static void stopped(void) {
  PipeCompiled *c;
  int stop = 0;
  CHECK(pipe_compile_until(&c, "line", line, 0, NULL, &stop) == PIPE_COMPILE_OK);
  pipe_compiled_free(c);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, set_later, &stop) == 0);
  CHECK(pipe_compile_until(&c, "tuned", tuned, 0, NULL, &stop) == PIPE_COMPILE_STOPPED);
  CHECK(pthread_join(thread, NULL) == 0 && !pipe_compiled_program(c));
  CHECK(strcmp(pipe_compiled_messages(c), "error: stopped by the caller\n") == 0);
  CHECK(strcmp(pipe_compiled_diagnostic(c, 0)->message, "stopped by the caller") == 0);
  pipe_compiled_free(c);
  CHECK(pipe_compile(&c, "line", line, 0, NULL) == PIPE_COMPILE_OK);
  pipe_compiled_free(c);
}

/* A caller's own mistakes are messages, too. */
static void wrong(void) {
  static const char *const word[] = {"--help",      "-ox",       "--fmt",    "--emit=pdf",
                                     "other.pipe",  "-DX=1",     "-D",       "--compare",
                                     "--depfile=x", "--version", "--nosuch", "--dump-after=all"};
  PipeCompiled *c;
  for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
    CHECK(pipe_compile(&c, "line.pipe", line, 1, &word[i]) == PIPE_COMPILE_REFUSED);
    CHECK(pipe_compiled_diagnostic(c, 0) && !pipe_compiled_program(c));
    printf("%s", pipe_compiled_messages(c));
    pipe_compiled_free(c);
  }
  CHECK(pipe_compile(&c, NULL, NULL, 0, NULL) == PIPE_COMPILE_REFUSED);
  printf("%s", pipe_compiled_messages(c));
  pipe_compiled_free(c);
  pipe_compiled_free(NULL);
  CHECK(!pipe_compiled_program(NULL) && *pipe_compiled_messages(NULL));
  CHECK(*pipe_compiled_output(NULL, NULL) == 0 && pipe_compiled_diagnostic(NULL, 0));
}

static int print(const char *name, int n, const char *const *option) {
  PipeCompiled *c;
  size_t bytes;
  setlocale(LC_ALL, ""); /* which the numbers in the output do not follow */
  PipeCompileStatus status = pipe_compile(&c, name, NULL, n, option);
  const char *out = pipe_compiled_output(c, &bytes);
  fwrite(out, 1, bytes, stdout);
  fputs(pipe_compiled_messages(c), stderr);
  pipe_compiled_free(c);
  return (int)status;
}

/* ---- threads ---- */

enum { MOST = 200, THREADS = 4 };
static char path[MOST][512];
static uint32_t npath;

/* What compiling a file says: a number of its status, messages, output and program. */
static uint64_t result(uint32_t i) {
  static const char *const option[] = {"--emit=csv", "-DM=8"};
  PipeCompiled *c;
  uint64_t h = 0xcbf29ce484222325u;
  h ^= (uint64_t)pipe_compile(&c, path[i], NULL, 2, option);
  const PipeProgram *p = pipe_compiled_program(c);
  h = (h ^ (p ? p->hash : 1)) * 0x100000001b3u;
  for (const char *t = pipe_compiled_output(c, NULL); *t; t++)
    h = (h ^ (unsigned char)*t) * 0x100000001b3u;
  for (const char *t = pipe_compiled_messages(c); *t; t++)
    h = (h ^ (unsigned char)*t) * 0x100000001b3u;
  pipe_compiled_free(c);
  return h;
}

typedef struct Worker {
  pthread_t thread;
  uint32_t first;
  uint64_t got[MOST];
} Worker;

/* Each thread begins elsewhere, so that different schedules meet. */
static void *work(void *of) {
  Worker *w = of;
  for (uint32_t k = 0; k < npath; k++) {
    const uint32_t i = (w->first + k) % npath;
    w->got[i] = result(i);
  }
  return NULL;
}

static void threads(const char *stdlib) {
  static Worker worker[THREADS + 1]; /* the last one compiles alone */
  DIR *dir = opendir(stdlib);
  for (struct dirent *e; dir && (e = readdir(dir)) && npath < MOST;)
    if (strlen(e->d_name) > 5 && strcmp(e->d_name + strlen(e->d_name) - 5, ".pipe") == 0)
      snprintf(path[npath++], sizeof path[0], "%s/%s", stdlib, e->d_name);
  closedir(dir);
  for (uint32_t t = 0; t < THREADS; t++) {
    worker[t].first = t * npath / THREADS;
    pthread_create(&worker[t].thread, NULL, work, &worker[t]);
  }
  for (uint32_t t = 0; t < THREADS; t++)
    pthread_join(worker[t].thread, NULL);
  work(&worker[THREADS]);
  for (uint32_t t = 0; t < THREADS; t++)
    for (uint32_t i = 0; i < npath; i++)
      if (worker[t].got[i] != worker[THREADS].got[i])
        failed = 1, printf("%s: thread %u got something else\n", path[i], (unsigned)t);
  printf("%u files, %d threads\n", (unsigned)npath, THREADS);
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "print") == 0)
    return print(argv[2], argc - 3, (const char *const *)argv + 3);
  if (argc > 2 && strcmp(argv[1], "threads") == 0) {
    threads(argv[2]);
    return failed;
  }
  CHECK(pipe_compile_version() == PIPE_VERSION);
  good();
  refused();
  stopped();
  wrong();
  puts(failed ? "failed" : "as it should be");
  return failed;
}
