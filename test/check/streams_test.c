/* SPDX-License-Identifier: MIT
 * The proof of the events (check_streams) and the runtime's own look at them, on schedules of the standard
 * library and on texts that have copies, edges, ties and actions: each program passes as it is, and each of
 * these changes, made in every place where it can be made, is found by both (the last one by the proof):
 *
 *   lost     a wait is left out                     early    an event is recorded an instruction too early
 *   mixed    a wait is for another event            spare    a wait that is there is there a second time, lower
 *
 *   streams_test STDLIB_DIR    prints one line per program; exit status 0 iff all is as it should be */
#include <string.h>

#include "pipec.h"
#include "run.h"

static void oom(size_t wanted) {
  fprintf(stderr, "out of memory (wanted %zu bytes)\n", wanted);
  exit(2);
}

static const char
    copies[] = "schedule copies(P = 3, M = 5) { ranks P  pipe net stages P mbs M place s -> s\n"
               "  order r { steady m { F(m) B(m - (P-1-r)) } U }  offload }\n",
    skips[] = "schedule skips(P = 4, M = 6) { ranks P  pipe net stages P mbs M place s -> s\n"
              "  edge 0 -> 3  edge 0 -> 2  tie 0, 3\n"
              "  order r { steady m { F(m) B(m - (P-1-r)) } U } }\n",
    joined[] = "schedule joined(P = 4, M = 9) { ranks P  pipe net stages P mbs M place s -> s\n"
               "  order r { warmup do m in 0..min(M, P-1-r) { F(m) }\n"
               "    do m in 0..M-(P-1-r) { overlap { F(m + P-1-r) if m > 0 { B(m - 1) } } }\n"
               "    do m in max(0, M-(P-1-r)-1)..M { B(m) } U } }\n",
    eager[] = "schedule eager(P = 3, M = 6) { ranks P  send next\n"
              "  pipe net stages P mbs M place s -> s\n"
              "  order r { steady m { F(m) B(m - (P-1-r)) } U } }\n";

/* What the two say: the proof, and the runtime. */
typedef struct Verdict {
  bool proof, runtime;
} Verdict;

static Verdict look(Sched *s, uint32_t r, FILE *null) {
  Diag *diag = s->diag, quiet;
  PrRun *run = NULL;
  Verdict v;
  diag_init(&quiet, s->arena, null);
  quiet.source = diag->source, quiet.nsource = diag->nsource;
  s->diag = &quiet;
  v.proof = check_streams(s);
  s->diag = diag;
  run = calloc(1, sizeof *run);
  pthread_mutex_init(&run->lock, NULL);
  run->p = s->prog;
  v.runtime = pr_check_events(run, r) == PR_OK;
  pthread_mutex_destroy(&run->lock);
  free(run);
  return v;
}

static int bad;
static void expect(const char *name, const char *how, uint32_t r, uint32_t i, bool is, bool want) {
  if (is == want)
    return;
  bad++;
  printf("%s: rank %u, wait %u, %s: %s\n", name, r, i, how, is ? "not found" : "refused");
}

/* Is event `e` recorded and still to be waited for at some time at which that of wait i is? Or is it that of
 * another wait for the same record, so that there would be two. */
static bool collides(const PipeSync *y, uint32_t n, uint32_t i, uint32_t e) {
  for (uint32_t j = 0; j < n; j++)
    if (j != i &&
        ((y[j].event == e && y[j].after + 1 <= y[i].before && y[i].after + 1 <= y[j].before) ||
         (y[j].after == y[i].after && y[j].event != e)))
      return true;
  return false;
}

static void try_all(Sched *s, const char *name, FILE *null) {
  const PipeProgram *p = s->prog;
  uint32_t nwait = 0, n = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    PipeRank *k = (PipeRank *)&p->rank[r];
    const PipeSync *whole = k->sync;
    uint32_t nsync = k->nsync;
    PipeSync *cut = arena_alloc(s->arena, (nsync + (size_t)1) * sizeof *cut);
    Verdict v = look(s, r, null);
    expect(name, "as it is", r, 0, v.proof && v.runtime, true);
    nwait += nsync;
    k->sync = cut;
    for (uint32_t i = 0; i < nsync; i++) {
      memcpy(cut, whole, i * sizeof *cut); /* lost */
      memcpy(cut + i, whole + i + 1, (nsync - i - 1) * sizeof *cut);
      k->nsync = nsync - 1;
      uint32_t nevent = k->nevent;
      k->nevent = k->nsync == 0 ? 0 : nevent;
      v = look(s, r, null);
      expect(name, "lost, proof", r, i, v.proof, false);
      expect(name, "lost, runtime", r, i, v.runtime, false);
      k->nsync = nsync, k->nevent = nevent;
      memcpy(cut, whole, nsync * sizeof *cut); /* mixed */
      cut[i].event = (cut[i].event + 1) % nevent;
      if (collides(whole, nsync, i, cut[i].event)) {
        v = look(s, r, null);
        expect(name, "mixed, proof", r, i, v.proof, false);
        expect(name, "mixed, runtime", r, i, v.runtime, false);
      }
      memcpy(cut, whole, nsync * sizeof *cut); /* early */
      if (cut[i].after != NONE && cut[i].after > 0 &&
          pipe_op_info[k->instr[cut[i].after].op].stream ==
              pipe_op_info[k->instr[cut[i].after - 1].op].stream) {
        for (uint32_t j = 0; j < nsync; j++)
          if (whole[j].after == whole[i].after)
            cut[j].after--;
        v = look(s, r, null);
        expect(name, "early, proof", r, i, v.proof, false);
        expect(name, "early, runtime", r, i, v.runtime, false);
      }
      memcpy(cut, whole, (i + 1) * sizeof *cut); /* spare: at the next row of the same stream */
      uint32_t row = whole[i].before + 1, end = k->ninstr;
      uint8_t on = whole[i].before < end ? pipe_op_info[k->instr[whole[i].before].op].stream : 0;
      while (row < end && pipe_op_info[k->instr[row].op].stream != on)
        row++;
      uint32_t at = i + 1;
      while (at < nsync && whole[at].before < row)
        cut[at] = whole[at], at++;
      if (row < end && (at == nsync || whole[at].before > row)) {
        cut[at] = whole[i], cut[at].before = row;
        memcpy(cut + at + 1, whole + at, (nsync - at) * sizeof *cut);
        k->nsync = nsync + 1;
        expect(name, "spare", r, i, look(s, r, null).proof, false);
        k->nsync = nsync;
      }
      n++;
    }
    k->sync = whole;
  }
  printf("%s: %u waits for events on %u ranks, each needed\n", name, nwait, p->nrank);
  if (n != nwait || nwait == 0)
    bad++;
}

static void one(const char *dir, const char *file, const char *text, uint32_t P, uint32_t M,
                FILE *null) {
  Arena arena = {.oom = oom};
  Diag diag;
  Define define[2] = {{.name = "P", .value = P, .lo = P, .hi = P},
                      {.name = "M", .value = M, .lo = M, .hi = M}};
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.pipe", dir, file);
  Options opt = {.input = text ? file : path,
                 .text = text,
                 .text_len = text ? strlen(text) : 0,
                 .emit = EMIT_NONE,
                 .stdlib = dir,
                 .define = define,
                 .ndefine = text ? 0 : 2,
                 .verify = true,
                 .dump_out = stdout};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stdout);
  if (!compile_only(&s))
    bad++;
  else
    try_all(&s, file, null);
  arena_free(&arena);
}

int main(int argc, char **argv) {
  FILE *null = fopen("/dev/null", "w");
  if (argc != 2 || !null)
    return 2;
  static const struct {
    const char *name;
    uint32_t P, M;
  } all[] = {{"naive", 3, 2},       {"gpipe", 4, 5},        {"1f1b", 4, 9},
             {"interleaved", 3, 6}, {"zb_h1", 4, 8},        {"zb_v", 3, 7},
             {"dualpipev", 2, 6},   {"gems", 4, 6},         {"chimera", 4, 4},
             {"hanayo", 3, 12},     {"bpipe", 4, 9},        {"varuna_recompute", 3, 5},
             {"inference", 3, 4},   {"pipedream_2bw", 3, 6}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    one(argv[1], all[i].name, NULL, all[i].P, all[i].M, null);
  one(argv[1], "copies", copies, 0, 0, null);
  one(argv[1], "skips", skips, 0, 0, null);
  one(argv[1], "joined", joined, 0, 0, null);
  one(argv[1], "next", eager, 0, 0, null);
  fclose(null);
  printf("%d wrong\n", bad);
  return bad != 0;
}
