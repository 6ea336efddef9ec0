/* SPDX-License-Identifier: MIT
 * Reads the environment that a launcher sets; see pipe_launch.h. */
#include "pipe_launch.h"
#include "store.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Family {
  const char *name, *rank, *size, *other_size,
      *local; /* other_size: if there is no `size`; or NULL */
} Family;

static const Family families[] = {
    {"pipe-run", "PIPE_RANK", "PIPE_SIZE", NULL, "PIPE_LOCAL_RANK"},
    {"torchrun", "RANK", "WORLD_SIZE", NULL, "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL,
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_LOCALID"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_LOCALID"},
};

static bool read_number(const char *name, const char *text, uint32_t *to, char why[200]) {
  char *end;
  unsigned long n = strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || n > INT32_MAX) {
    snprintf(why, 200, "%s is '%.60s', not a number", name, text);
    return false;
  }
  *to = (uint32_t)n;
  return true;
}

/* The first host of a list: "rack[2-3]node[003-005,9]-ib,other" gives "rack2node003-ib". */
static void first_host(const char *list, char to[256]) {
  size_t len = 0;
  const char *c = list;
  while (*c && *c != ',') {
    if (*c == '[') {
      size_t n = strcspn(++c, ",-]");
      len += (size_t)snprintf(to + len, 256 - len, "%.*s", (int)n, c);
      c += strcspn(c, "]");
      c += *c == ']';
    } else {
      size_t n = strcspn(c, ",[");
      len += (size_t)snprintf(to + len, 256 - len, "%.*s", (int)n, c);
      c += n;
    }
    if (len >= 256)
      return;
  }
  to[len] = 0;
}

/* In a job of Slurm: the first host of the step, or of the job, and a port that other steps and
 * jobs on that host are unlikely to have. The daemons of Open MPI are steps of their own, on other
 * hosts: under Open MPI the host of the job counts. */
static bool find_slurm(const Family *f, PrLaunch *out, char why[200]) {
  static const char *const names[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                      "SLURM_NODELIST"};
  const bool step = f && strcmp(f->name, "Open MPI") != 0;
  const char *list = NULL, *nodes = NULL, *job = getenv("SLURM_JOB_ID"),
             *number = step ? getenv("SLURM_STEP_ID") : NULL;
  char first[256];
  uint32_t j = 0;
  for (int i = !step; i < 3 && !nodes; i++)
    nodes = getenv(list = names[i]);
  if (!f || !nodes || !job)
    return true;
  if (!read_number("SLURM_JOB_ID", job, &j, why))
    return false;
  first_host(nodes, first);
  if (!*first) {
    snprintf(why, 200, "%s names no host: '%.100s'", list, nodes);
    return false;
  }
  const uint64_t n = j + 97 * (number ? strtoull(number, NULL, 10) : 0);
  snprintf(out->store, sizeof out->store, "%.255s:%u", first, 20000 + (unsigned)(n % 10000));
  return true;
}

static bool find_store(const Family *f, PrLaunch *out, char why[200]) {
  enum { SPARE = 3 };
  const char *own = getenv("PIPE_STORE"), *host = getenv("MASTER_ADDR"),
             *port = getenv("MASTER_PORT");
  uint32_t n = 0;
  if (own) {
    char reason[STORE_TEXT];
    if (!store_is_address(own, reason)) {
      snprintf(why, 200, "PIPE_STORE: %.180s", reason);
      return false;
    }
    snprintf(out->store, sizeof out->store, "%s", own);
  } else if (host && port) {
    if (!read_number("MASTER_PORT", port, &n, why))
      return false;
    if (n == 0 || n >= 65535) {
      snprintf(why, 200, "MASTER_PORT is %u, and the store needs the port after it: 1 to 65534", n);
      return false;
    }
    if (!*host) {
      snprintf(why, 200, "MASTER_ADDR is empty, and MASTER_PORT is set");
      return false;
    }
    snprintf(out->store, sizeof out->store, "%.255s:%u", host, n + 1);
    out->spare = 65534 - n < SPARE ? 65534 - n : SPARE;
  } else {
    return find_slurm(f, out, why);
  }
  return true;
}

/* Variable `name` of a family without a rank, above the one that counts, must agree with the value
 * found. Variables of Slurm are exempt: they are set for every family. */
static bool agrees(const Family *half, const char *name, const Family *f, uint32_t found,
                   char why[200]) {
  const char *text = getenv(name);
  uint32_t n;
  if (!text || !strncmp(name, "SLURM", 5))
    return true;
  if (!read_number(name, text, &n, why))
    return false;
  if (n == found)
    return true;
  snprintf(why, 200, "%s (%s) is %u, but %s is not set; %s%s", name, half->name, n, half->rank,
           f ? "the rank comes from " : "no variable gives the rank", f ? f->name : "");
  return false;
}

PrStatus pr_launch(PrLaunch *out, char why[200]) {
  const Family *f = NULL;
  const char *key = getenv("PIPE_STORE_KEY");
  *out = (PrLaunch){.family = "", .rank = 0, .size = 1, .local_rank = PIPE_NONE};
  snprintf(out->key, sizeof out->key, "%s", key ? key : "");
  for (size_t i = 0; !f && i < sizeof families / sizeof *families; i++)
    f = getenv(families[i].rank) ? &families[i] : NULL;
  if (f) {
    const char *size_name = f->size, *size = getenv(f->size), *local = getenv(f->local);
    if (!size && f->other_size)
      size = getenv(size_name = f->other_size);
    if (!size) {
      snprintf(why, 200, "%s is set, but %s is not", f->rank, f->size);
      return PR_E_ARG;
    }
    if (!read_number(f->rank, getenv(f->rank), &out->rank, why) ||
        !read_number(size_name, size, &out->size, why) ||
        (local && !read_number(f->local, local, &out->local_rank, why)))
      return PR_E_ARG;
    if (out->rank >= out->size) {
      snprintf(why, 200, "%s is %u, and %s is %u", f->rank, out->rank, size_name, out->size);
      return PR_E_ARG;
    }
    out->family = f->name;
  }
  for (const Family *h = families; h < (f ? f : families + sizeof families / sizeof *families); h++)
    if (!agrees(h, h->size, f, out->size, why) || !agrees(h, h->local, f, out->local_rank, why))
      return PR_E_ARG;
  return find_store(f, out, why) ? PR_OK : PR_E_ARG;
}
