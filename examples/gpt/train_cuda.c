/* SPDX-License-Identifier: MIT
 * Trains the model of model.h on CUDA devices, pipelined by the program it is linked with.
 *
 *   gpt_cuda --data FILE [options]     all ranks in this process, on one device
 *   gpt_cuda --data FILE --processes   a process per rank; rank r on device r, or all on --device N
 *   LAUNCHER gpt_cuda --data FILE      the same under pipe-run, torchrun, srun or mpirun, on
 * several hosts, too
 *
 * With all processes on one device each is a host of its own for NCCL (NCCL_HOSTID), which then
 * goes through sockets on the loopback (sums, and with --transport nccl all): a way to try NCCL
 * out, not to measure it. Losses go to
 * stdout as exact numbers, with a hash of the final weights (--hash), so that runs can be compared;
 * the rest goes to stderr. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"
#include "model_cuda.h"
#include "pipe_cuda.h"

#ifndef GPT_MAIN /* a test has something to do before */
#define GPT_MAIN main
#endif

extern const PipeProgram pipe_program;

typedef struct Options {
  const char *data, *perfetto;
  int bf16, graph, nvtx, hash, checksums, processes, device, one_device;
  uint32_t trace, ahead;
  PrCudaTransport transport;
  double deadline_s;
  const PrGroup *group;
} Options;

static int fail(const char *what, const char *why) {
  fprintf(stderr, "gpt_cuda: %s%s%s\n", what, *why ? ": " : "", why);
  return 1;
}

static void on_step(void *arg, uint64_t step, double loss) {
  PrRun **run = arg;
  if (pr_leads(*run))
    printf("loss %" PRIu64 " %a\n", step, loss);
}

static uint64_t hash_weights(PrRun *run, const GptCuda *g, const GptModel *m, PrModel *model) {
  uint64_t h = 0xcbf29ce484222325u;
  for (uint32_t s = 0; s < m->nstage; s++) {
    PrSizes size = {0};
    model->sizes(model->self, s, &size);
    uint64_t bytes = size.weight, n = gpt_weights(m, s);
    uint8_t *raw = malloc(bytes);
    float *w = malloc(n * sizeof *w);
    if (!raw || !w || pr_copy_weight(run, s, raw))
      n = bytes = 0, h = 0;
    if (n)
      gpt_cuda_weights(g, s, raw, w);
    for (uint64_t i = 0; i < n * sizeof *w; i++)
      h = (h ^ ((uint8_t *)w)[i]) * 0x100000001b3u;
    free(raw);
    free(w);
  }
  return h;
}

static int train(GptModel *m, const Options *o) {
  const char *error;
  PrRun *run = NULL;
  static GptCuda *g; /* not always given back: it stays in reach */
  g = gpt_cuda_open(m, o->bf16, pipe_program.nrank, o->device, &error);
  if (!g) {
    if (o->group)
      o->group->tell(o->group->arg, PR_E_MODEL, error);
    return fail("model", error);
  }
  PrModel model = gpt_cuda_model(g);
  PrCudaOptions cuda = {.group = o->group,
                        .device = o->device,
                        .graph = o->graph,
                        .nvtx = o->nvtx,
                        .ahead = o->ahead,
                        .transport = o->transport};
  PrOptions options = {.engine = &pr_cuda,
                       .engine_options = &cuda,
                       .trace_steps = o->trace,
                       .checksums = o->checksums,
                       .deadline_s = o->deadline_s,
                       .on_step = on_step,
                       .arg = &run};
  int bad = pr_open(&run, &pipe_program, &model, &options) != PR_OK ||
            pr_steps(run, m->config.steps) != PR_OK;
  if (!bad && o->hash) {
    uint64_t h = hash_weights(run, g, m, &model);
    if (pr_leads(run))
      printf("weights %016" PRIx64 "\n", h);
  }
  if (!bad && o->trace && pr_leads(run)) {
    PrMeasure got;
    if (!pr_measure(run, &got))
      fprintf(stderr, "step %.3f ms, bubble %.1f %%\n", got.makespan_ns * 1e-6, 100 * got.bubble);
    bad = o->perfetto && pr_write_trace(run, o->perfetto);
  }
  if (run && *pr_error(run))
    bad = fail("run", pr_error(run));
  const int failed = run && *pr_error(run);
  pr_close(run);
  if (!failed) /* its device may hang, and memory is given back once it does nothing: left to the
                  end of the process */
    gpt_cuda_close(g);
  return bad;
}

static int usage(const char *why, const char *what) {
  fprintf(stderr, "gpt_cuda: %s%s\n", why, what);
  fprintf(
      stderr,
      "usage: gpt_cuda --data FILE [options]\n%s"
      "  --processes                  a process per rank, rank r on device r\n"
      "  --device N                   all on device N (default 0 without --processes)\n"
      "  --transport nccl | peer      what moves tensors between processes (default: peer, copy\n"
      "                               engines, where they can)\n"
      "  --bf16                       activations and products in bf16, weights kept as float\n"
      "  --graph                      replay the step from a CUDA graph\n"
      "  --nvtx                       a range per instruction\n"
      "  --checksums                  each transfer says what it is, and its receiver compares\n"
      "  --ahead N                    microbatches that the host is ahead of the device\n"
      "  --deadline X                 seconds a step may take\n"
      "  --trace N --perfetto FILE    times of the last N steps\n"
      "  --hash                       a hash of the final weights\n",
      gpt_options);
  return 2;
}

static void one_host_each(uint32_t rank) {
  char id[32];
  snprintf(id, sizeof id, "pipe-%u", rank);
  setenv("NCCL_HOSTID", id, 1);
  static const char *const set[][2] = {{"NCCL_NET", "Socket"},    {"NCCL_SOCKET_IFNAME", "lo"},
                                       {"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"},
                                       {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_RAS_ENABLE", "0"}};
  for (size_t i = 0; i < sizeof set / sizeof *set; i++)
    setenv(set[i][0], set[i][1], 0);
}

int GPT_MAIN(int argc, char **argv) {
  GptConfig g = gpt_default;
  Options o = {0};
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    uint64_t n = 0;
    int done = gpt_config_option(&g, argv[i], value);
    int *flag = !strcmp(argv[i], "--processes")   ? &o.processes
                : !strcmp(argv[i], "--bf16")      ? &o.bf16
                : !strcmp(argv[i], "--graph")     ? &o.graph
                : !strcmp(argv[i], "--nvtx")      ? &o.nvtx
                : !strcmp(argv[i], "--hash")      ? &o.hash
                : !strcmp(argv[i], "--checksums") ? &o.checksums
                                                  : NULL;
    if (flag) {
      *flag = 1;
      continue;
    }
    if (!strcmp(argv[i], "--data") || !strcmp(argv[i], "--perfetto")) {
      *(argv[i][2] == 'd' ? &o.data : &o.perfetto) = value;
    } else if (!strcmp(argv[i], "--transport")) {
      o.transport = !strcmp(value, "nccl")   ? PR_CUDA_NCCL
                    : !strcmp(value, "peer") ? PR_CUDA_PEER
                                             : PR_CUDA_AUTO;
      if (o.transport == PR_CUDA_AUTO)
        return usage("--transport is nccl or peer, not ", value);
    } else if (!strcmp(argv[i], "--deadline")) {
      o.deadline_s = atof(value);
    } else if (!strcmp(argv[i], "--device") || !strcmp(argv[i], "--trace") ||
               !strcmp(argv[i], "--ahead")) {
      if ((done = gpt_number(value, 0, 1u << 16, &n)) < 0)
        return usage(gpt_number_error(done), argv[i]);
      if (argv[i][2] == 'd')
        o.device = (int)n, o.one_device = 1;
      else
        *(argv[i][2] == 't' ? &o.trace : &o.ahead) = (uint32_t)n;
    } else if (done < 0) {
      return usage(gpt_number_error(done), argv[i]);
    } else if (!done) {
      return usage("unknown option ", argv[i]);
    }
    i++;
  }
  if (!o.data || !*o.data)
    return usage("--data FILE is needed", "");
  const char *error = gpt_config_error(&g, pipe_program.nmodel);
  if (error)
    return usage(error, "");
  PrGroup *joined = NULL;
  PrLaunch at;
  char why[1024];
  int status;
  if (o.processes && !group_fork(pipe_program.nrank, &at, &status))
    return status;
  if (!o.processes && pr_launch(&at, why))
    return fail("launcher", why);
  if (at.family[0]) {
    if (pr_group_open(&joined, &pipe_program, &at, 120, why))
      return fail(at.family, why);
    o.group = joined;
    if (!o.one_device)
      o.device = at.local_rank == PIPE_NONE ? 0 : (int)at.local_rank;
    else
      one_host_each(at.rank);
  }
  Data data;
  if ((error = data_open(&data, o.data, g.seq, g.batch, g.seed, 8)))
    return fail(o.data, error);
  GptModel m = {
      .config = g, .nstage = pipe_program.nmodel, .window = text_draw, .text = &data.train};
  int bad = train(&m, &o);
  data_close(&data);
  pr_group_close(joined);
  return gpt_finish("gpt_cuda") || bad;
}
