/* SPDX-License-Identifier: MIT
 * Speed of the compiler, on one core, beside stated bounds:
 *
 *   - 1F1B P=64 M=512 through every pass and out as C: 0.1 s (a peer's generator in Python needs
 *   0.15
 *     to 0.25 s for the order alone);
 *   - 1F1B with 10 M instructions through every proof, without output: 1 s and 2 GiB;
 *   - ZB-1p and V-ZB, tuned, at P=64 M=512: the 1.8 and 3.5 s that their authors' generators need
 *   there;
 *   - the simulation of an emitted program (pipe_predict), 1F1B with 1.6 M instructions and
 *   DualPipe: 20 M
 *     instructions a second;
 *   - the other schedules of the standard library at P=64 M=512, for comparison; DualPipe, whose
 *   actions
 *     have two ops, also at more microbatches: the rate stays the same.
 *
 * With --grow every schedule of the library, M = 2P, at growing sizes: user time against
 * instructions, as an exponent: 1 is linear. (The ones that are tuned search, and are not.)
 *
 *   compile_bench STDLIB_DIR [--small] [--grow | --one NAME P M]
 *
 * --small: P=4 M=8 throughout, once, without bounds: that it works, for tests.
 *
 * Each line is the best of three runs: time, instructions per second, ratio to the bound (below 1
 * is within it). User time is printed beside elapsed time, because first use of memory is the
 * system's and varies between machines. */
#define _DEFAULT_SOURCE /* fork, wait4 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "lower.h"
#include "orders.h"

static bool small;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double user_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6;
}

typedef struct Run {
  double wall, user;
  uint64_t instr;
  size_t arena;
  bool ok;
} Run;

/* EMIT_NONE: as --check, and the report is thrown away. more: NULL, or one more parameter, which is
 * to be P. */
static Run tried(const char *dir, const char *name, uint32_t P, uint32_t M, const char *more,
                 Emit emit, bool passes) {
  Arena arena = {0};
  Diag diag;
  Define define[3] = {
      {.name = "P", .value = P}, {.name = "M", .value = M}, {.name = more, .value = P}};
  Options opt = {.emit = emit,
                 .check_only = emit == EMIT_NONE,
                 .output = "/dev/null",
                 .out = fopen("/dev/null", "w"),
                 .stdlib = dir,
                 .define = define,
                 .ndefine = more ? 3 : 2,
                 .time_passes = passes};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stderr);
  opt.input = arena_printf(&arena, "%s/%s.pipe", dir, name);
  if (!opt.out)
    exit(1);
  double w = seconds(), u = user_seconds();
  bool ok = compile(&s);
  Run r = {seconds() - w, user_seconds() - u,
           (uint64_t)s.orders->nop + 2 * (uint64_t)s.ideal->nxfer, arena.total_bytes, ok};
  fclose(opt.out);
  arena_free(&arena);
  return r;
}

static Run once(const char *dir, const char *name, uint32_t P, uint32_t M, Emit emit, bool passes) {
  Run r = tried(dir, name, P, M, NULL, emit, passes);
  if (!r.ok)
    exit(1);
  return r;
}

static void line(const char *dir, const char *name, uint32_t P, uint32_t M, Emit emit,
                 double bound) {
  Run best = {1e9, 1e9, 0, 0, true};
  if (small)
    P = 4, M = 8, bound = 0;
  for (int i = 0; i < (small ? 1 : 3); i++) {
    Run r = once(dir, name, P, M, emit, false);
    best.wall = r.wall < best.wall ? r.wall : best.wall;
    best.user = r.user < best.user ? r.user : best.user;
    best.instr = r.instr, best.arena = r.arena;
  }
  printf("%-12s P=%-3u M=%-6u %9llu instr  %8.1f ms (user %8.1f)  %6.2f M instr/s  %7.1f MiB", name,
         P, M, (unsigned long long)best.instr, best.wall * 1e3, best.user * 1e3,
         (double)best.instr / best.wall / 1e6, (double)best.arena / 1048576.0);
  if (bound > 0)
    printf("  %s in %.1f s: ratio %.2f (user %.2f)",
           emit == EMIT_C ? "all passes and C" : "all proofs", bound, best.wall / bound,
           best.user / bound);
  printf("\n");
}

/* The simulation alone, best of five. */
static void simulated(const char *dir, const char *name, uint32_t P, uint32_t M) {
  if (small)
    P = 4, M = 8;
  Arena arena = {0};
  Diag diag;
  Define define[2] = {{.name = "P", .value = P}, {.name = "M", .value = M}};
  Options opt = {.emit = EMIT_NONE, .out = stdout, .stdlib = dir, .define = define, .ndefine = 2};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stderr);
  opt.input = arena_printf(&arena, "%s/%s.pipe", dir, name);
  if (!compile_only(&s))
    exit(1);
  uint64_t n = 0, **end, makespan;
  for (uint32_t r = 0; r < s.model->nrank; r++)
    n += s.prog->rank[r].ninstr;
  double best = 1e9;
  for (int i = 0; i < 5; i++) {
    double at = seconds();
    Arena own = {0};
    uint64_t **start = pipe_predict(&own, s.prog, &end, &makespan);
    best = seconds() - at < best ? seconds() - at : best;
    if (!start || makespan != s.times->makespan) {
      fprintf(stderr, "compile_bench: %s: the simulation is not what the compiler says\n", name);
      exit(1);
    }
    arena_free(&own);
  }
  printf("%-12s P=%-3u M=%-6u %9llu instr simulated: %.2f M instr/s, ratio to 20 M %.2f\n", name, P,
         M, (unsigned long long)n, (double)n / best / 1e6, (double)n / best / 20e6);
  arena_free(&arena);
}

/* A child of its own, so that what is resident is its own. */
static void one(const char *dir, const char *name, uint32_t P, uint32_t M) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    Run r = once(dir, name, P, M, EMIT_NONE, true);
    printf("%s P=%u M=%u %llu instr: %.2f s (user %.2f), ratio to 1 s of 10 M %.2f (user %.2f); ",
           name, P, M, (unsigned long long)r.instr, r.wall, r.user, r.wall * 1e7 / (double)r.instr,
           r.user * 1e7 / (double)r.instr);
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  struct rusage u;
  if (child < 0 || wait4(child, &status, 0, &u) < 0 || status != 0)
    exit(1);
  printf("system %.2f s; %.2f GiB resident, ratio to 2 GiB %.2f\n",
         (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec / 1e6,
         (double)u.ru_maxrss / 1048576, (double)u.ru_maxrss / 1048576 / 2);
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* P = 32, 64, ... while a compile takes less than a second. */
static void grow(const char *dir) {
  enum { MOST = 256 };
  const uint32_t first = small ? 4 : 32, last = small ? 4 : 512;
  static const char *const more[][2] = {
      {"interleaved_g", "G"}, {"msnag_adam", "N"}, {"xpipe", "N"}};
  char *file[MOST];
  size_t n = 0;
  DIR *d = opendir(dir);
  for (struct dirent *e; d && n < MOST && (e = readdir(d));) {
    size_t length = strlen(e->d_name);
    if (length > 5 && strcmp(e->d_name + length - 5, ".pipe") == 0)
      file[n++] = strndup(e->d_name, length - 5);
  }
  if (d)
    closedir(d);
  qsort(file, n, sizeof *file, by_name);
  for (size_t i = 0; i < n; i++) {
    const char *with = NULL;
    for (size_t k = 0; k < sizeof more / sizeof *more; k++)
      with = strcmp(file[i], more[k][0]) == 0 ? more[k][1] : with;
    Run before = {0};
    printf("%-18s", file[i]);
    for (uint32_t P = first; P <= last && before.user < 1; P *= 2) {
      uint32_t M = strcmp(file[i], "pipemare_t3") == 0 ? 8 * P : 2 * P;
      Run r = tried(dir, file[i], P, M, with, EMIT_NONE, false);
      if (!r.ok)
        break;
      printf("  P=%u %.2f M: %.2f s", P, (double)r.instr / 1e6, r.user);
      if (before.user > 0.02)
        printf(" (%.2f)", log(r.user / before.user) / log((double)r.instr / (double)before.instr));
      before = r;
    }
    printf("\n");
    free(file[i]);
  }
}

int main(int argc, char **argv) {
  const char *dir = argc > 1 ? argv[1] : "stdlib";
  small = argc > 2 && strcmp(argv[2], "--small") == 0;
  argv += small, argc -= small;
  if (argc > 2 && strcmp(argv[2], "--grow") == 0) {
    grow(dir);
    return 0;
  }
  if (argc == 6 && strcmp(argv[2], "--one") == 0) {
    one(dir, argv[3], (uint32_t)strtoul(argv[4], NULL, 10), (uint32_t)strtoul(argv[5], NULL, 10));
    return 0;
  }
  line(dir, "1f1b", 64, 512, EMIT_C, 0.1);
  line(dir, "gpipe", 64, 512, EMIT_C, 0);
  line(dir, "interleaved", 64, 512, EMIT_C, 0);
  line(dir, "zb_h1", 64, 512, EMIT_C, 0);
  line(dir, "dualpipe", 64, 512, EMIT_C, 0);
  line(dir, "dualpipe", 64, 1024, EMIT_C, 0);
  line(dir, "dualpipe", 64, 4096, EMIT_NONE, 0);
  line(dir, "varuna", 64, 512, EMIT_C, 0);
  line(dir, "zb_1p", 64, 512, EMIT_C, 1.8);
  line(dir, "v_zb", 64, 512, EMIT_C, 3.5);
  line(dir, "1f1b", 4096, 64, EMIT_NONE, 0);
  line(dir, "1f1b", 64, 26200, EMIT_NONE, 1.0);
  simulated(dir, "1f1b", 64, 4096);
  simulated(dir, "dualpipe", 64, 4096);
  fflush(stdout);
  const uint32_t P = small ? 4 : 64, M = small ? 8 : 26200;
  fprintf(stderr, "per pass, 1f1b P=%u M=%u:\n", P, M);
  once(dir, "1f1b", P, M, EMIT_NONE, true);
  return 0;
}
