/* SPDX-License-Identifier: MIT
 * pipe-run: starts the processes of a run on this host, one per rank.
 *
 *   pipe-run -n N [options] PROGRAM [ARGUMENT...]
 *
 * It serves their store (PIPE_STORE, PIPE_STORE_KEY), gives each its rank (pipe_launch.h), passes
 * signals on to all, and reports which rank failed first and how. With --mpi mpirun starts the
 * processes, each under a pipe-run of its own (--one), which waits for it and reports how it ended;
 * Open MPI is told to keep the other ranks alive, so that they can report. After a failure the
 * other ranks have --grace seconds to end by themselves; then they get SIGTERM, and two seconds
 * later SIGKILL.
 *
 * Ranks that use the store must join it within --start seconds. A rank that has not joined although
 * others have, or that is stopped at that time, is reported, and all ranks are ended.
 *
 * Exit status: 0; the status of the rank that failed first, or 128 + the signal that killed it; 2
 * for wrong usage. */
#define _GNU_SOURCE /* sigtimedwait, prctl */
#include "pipe_launch.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { SECONDARY = 75 }; /* status of a rank that failed because of another: pr_exit_status */

typedef struct Asked {
  uint32_t n;
  bool mpi, one;
  double grace_s, start_s;
  const char *store; /* address to listen at */
  char **program;
} Asked;

typedef struct Job {
  const Asked *a;
  pid_t *pid;   /* [nchild]; 0: ended */
  pid_t *group; /* [nchild] their process groups */
  uint32_t nchild, alive;
  pthread_mutex_t lock; /* protects the rest; with --mpi the store reports on its thread */
  bool *ended;          /* [n] ranks whose end is known */
  bool *joined;         /* [n] ranks that joined the store */
  int *stopped;         /* [n] signal that stopped the rank; 0: none */
  uint32_t njoined;
  bool failed;
  uint32_t first;   /* rank that failed first */
  int first_status; /* of waitpid */
  int passed_on;    /* signal that asked the ranks to end before any failure; 0: none */
  bool overdue;     /* `first` did not join in time; already reported */
} Job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int usage(const char *why, const char *what) {
  fprintf(stderr,
          "pipe-run: %s%s\n"
          "usage: pipe-run -n N [options] PROGRAM [ARGUMENT...]\n"
          "  -n N            processes, one per rank\n"
          "  --mpi           start them with mpirun\n"
          "  --grace S       seconds for the other ranks after the first failure (default 10)\n"
          "  --start S       seconds for all ranks to join the run (default 600)\n"
          "  --store H:P     where the store listens (default 127.0.0.1, a free port)\n",
          why, what);
  return 2;
}

/* ---- processes ---- */

static void set(const char *name, unsigned long value) {
  char text[24];
  snprintf(text, sizeof text, "%lu", value);
  setenv(name, text, 1);
}

/* This process ends with its parent. */
static void die_with_parent(int sig) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, sig);
#else
  (void)sig;
#endif
}

/* Turns the new process into a rank; only rank 0 reads stdin. The rank dies with its parent, even
 * if the rank is stopped. */
static void become(char **program, bool reads, int death) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  die_with_parent(death);
  int null = reads ? -1 : open("/dev/null", O_RDONLY);
  if (null >= 0) {
    dup2(null, 0);
    close(null);
  }
  execvp(program[0], program);
  fprintf(stderr, "pipe-run: cannot run %s: %s\n", program[0], strerror(errno));
  _exit(127);
}

/* Starts rank r. Its environment keeps the variables of other launchers; pipe-run's have
 * precedence. They are set before the fork: the store's thread may hold the allocator's lock. */
static pid_t start_rank(const Asked *a, uint32_t r) {
  set("PIPE_RANK", r);
  set("PIPE_SIZE", a->n);
  set("PIPE_LOCAL_RANK", r);
  pid_t pid = fork();
  if (pid)
    return pid;
  setpgid(0, 0); /* ^C of a terminal reaches ranks only through pipe-run, once */
  become(a->program, r == 0, SIGKILL);
  return 0;
}

/* Runs `mpirun -np N pipe-run --one PROGRAM ...`. */
static pid_t start_mpirun(const Asked *a, const char *self) {
  static const char *const settings[][2] = {
      {"OMPI_MCA_mpi_yield_when_idle", "1"},
      {"OMPI_MCA_orte_enable_recovery", "1"}, /* of version 4 */
      {"OMPI_MCA_orte_abort_on_non_zero_status", "0"},
      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
      {"PRTE_MCA_state_base_recoverable", "1"}, /* the same of version 5 */
      {"PRTE_MCA_state_base_continuous", "1"},
      {"PRTE_MCA_state_base_error_non_zero_exit", "0"},
      {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    setenv(settings[i][0], settings[i][1], 0);
  /* Variables of an outer pipe-run. */
  static const char *const outer[] = {"PIPE_RANK", "PIPE_SIZE", "PIPE_LOCAL_RANK"};
  for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
    unsetenv(outer[i]);
  uint32_t n = 0;
  while (a->program[n])
    n++;
  char count[24], **args = calloc(n + (size_t)6, sizeof *args);
  snprintf(count, sizeof count, "%u", a->n);
  if (!args)
    return -1;
  char *head[] = {"mpirun", "-np", count, (char *)self, "--one"};
  memcpy(args, head, sizeof head);
  memcpy(args + 5, a->program, n * sizeof *args);
  pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    become(args, true, SIGTERM);
  }
  free(args);
  return pid;
}

/* ---- how they end ---- */

static void describe(int status, char text[64]) {
  if (WIFSIGNALED(status))
    snprintf(text, 64, "was killed by signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  else
    snprintf(text, 64, "ended with status %d", WEXITSTATUS(status));
}

static int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Rank r has ended, was stopped, or continues. A secondary failure counts only if no primary one
 * comes. */
static void note(Job *j, uint32_t r, int status) {
  pthread_mutex_lock(&j->lock);
  bool secondary = code_of(status) == SECONDARY;
  if (r < j->a->n && (WIFSTOPPED(status) || WIFCONTINUED(status))) {
    if (WIFSTOPPED(status) || !j->failed) /* ending a stopped rank first continues it */
      j->stopped[r] = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
  } else if (r < j->a->n && !j->ended[r]) {
    j->ended[r] = true;
    if (code_of(status) != 0 && !j->overdue &&
        (!j->failed || (code_of(j->first_status) == SECONDARY && !secondary))) {
      j->failed = true;
      j->first = r;
      j->first_status = status;
    }
  }
  pthread_mutex_unlock(&j->lock);
}

static void told(void *arg, const StoreExit *e) { note(arg, e->rank, e->status); }

static void joined(void *arg, uint32_t r) {
  Job *j = arg;
  pthread_mutex_lock(&j->lock);
  j->joined[r] = true;
  j->njoined++;
  pthread_mutex_unlock(&j->lock);
}

/* True, after the time to join: some ranks have joined and some have not, or a rank that has not is
 * stopped. If no rank has joined, the program may not use the store at all. */
static bool is_overdue(Job *j) {
  pthread_mutex_lock(&j->lock);
  for (uint32_t r = 0; r < j->a->n && !j->failed; r++) {
    if (j->joined[r] || j->ended[r] || (j->njoined == 0 && !j->stopped[r]))
      continue;
    fprintf(stderr, "pipe-run: rank %u has not joined the run within %g s\n", r, j->a->start_s);
    j->failed = j->overdue = true;
    j->first = r;
    j->first_status = SECONDARY << 8;
  }
  bool overdue = j->overdue;
  pthread_mutex_unlock(&j->lock);
  return overdue;
}

/* True if the signal asks the ranks to end. */
static bool ends(int sig) { return sig > 0 && sig != SIGCHLD && sig != SIGUSR1 && sig != SIGUSR2; }

/* This process has received the signal. */
static void note_signal(Job *j, int sig) {
  pthread_mutex_lock(&j->lock);
  if (ends(sig) && !j->failed && !j->passed_on)
    j->passed_on = sig;
  pthread_mutex_unlock(&j->lock);
}

/* Pending signals count before the end of a rank: the rank may have received them at the same
 * time. */
static void reap(Job *j, const sigset_t *heard) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
    sigset_t waiting;
    sigpending(&waiting);
    for (int sig = 1; sig < SIGRTMIN; sig++)
      if (sigismember(&waiting, sig) > 0 && sigismember(heard, sig) > 0)
        note_signal(j, sig);
    for (uint32_t i = 0; i < j->nchild; i++) {
      if (j->pid[i] != pid)
        continue;
      bool over = WIFEXITED(status) || WIFSIGNALED(status);
      if (over) {
        j->pid[i] = 0;
        j->alive--;
      }
      if (!j->a->mpi)
        note(j, i, status);
      /* mpirun's own status; ignored once a rank has reported */
      else if (over && code_of(status) != 0)
        note(j, 0, status);
    }
  }
}

static void signal_all(const Job *j, int sig) {
  for (uint32_t i = 0; i < j->nchild; i++)
    if (j->pid[i] > 0)
      kill(j->pid[i], sig);
}

/* Waits until all processes have ended. */
static void wait_for_all(Job *j, const sigset_t *heard) {
  double term_at = 0, kill_at = 0, start_at = now() + j->a->start_s;
  while (j->alive > 0) {
    struct timespec t = {0, 100000000};
    siginfo_t info;
    int sig = sigtimedwait(heard, &info, &t);
    note_signal(j, sig);
    reap(j, heard);
    if (sig > 0 && sig != SIGCHLD)
      signal_all(j, sig);
    if (ends(sig) && !kill_at)
      kill_at = now() + j->a->grace_s;
    if (start_at && now() >= start_at) {
      start_at = 0;
      if (is_overdue(j))
        term_at = now();
    }
    pthread_mutex_lock(&j->lock);
    if (j->failed && !term_at)
      term_at = now() + j->a->grace_s;
    pthread_mutex_unlock(&j->lock);
    if (term_at && now() >= term_at && !kill_at) {
      signal_all(j, SIGTERM);
      kill_at = now() + 2;
    }
    if (kill_at && now() >= kill_at) {
      signal_all(j, SIGKILL);
      kill_at = now() + 2;
    }
  }
  pthread_mutex_lock(&j->lock);
  const bool failed = j->failed;
  pthread_mutex_unlock(&j->lock);
  for (uint32_t i = 0; failed && i < j->nchild; i++)
    if (j->group[i] > 0)
      kill(-j->group[i], SIGKILL); /* processes that ranks started and left behind */
}

/* ---- pipe-run --one: the process of one rank under mpirun ---- */

static void tell(int status) {
  PrLaunch launch;
  char why[STORE_TEXT];
  if (pr_launch(&launch, why) || !launch.store[0])
    return;
  int fd = store_connect(launch.store, launch.key, why);
  StoreExit e = {launch.rank, status};
  if (fd >= 0) {
    store_send(fd, STORE_EXIT, &e, sizeof e, NULL, 0);
    close(fd);
  }
}

static int run_one(char **program, const sigset_t *heard) {
  pid_t pid = fork();
  int status;
  die_with_parent(SIGKILL);
  if (pid == 0)
    become(program, true, SIGKILL);
  while (pid > 0) {
    siginfo_t info;
    int sig = sigwaitinfo(heard, &info);
    if (sig > 0 && sig != SIGCHLD)
      kill(pid, sig);
    if (waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == pid) {
      tell(status);
      if (WIFEXITED(status) || WIFSIGNALED(status))
        return code_of(status);
    }
  }
  return 127;
}

/* ---- the run ---- */

static int run(const Asked *a, const char *self, const sigset_t *heard) {
  Job j = {.a = a, .nchild = a->mpi ? 1 : a->n};
  char bound[STORE_ADDR], key[STORE_KEY], why[STORE_TEXT] = "out of memory", text[64];
  pthread_mutex_init(&j.lock, NULL);
  j.pid = calloc(2 * (size_t)j.nchild, sizeof *j.pid);
  j.group = j.pid + j.nchild;
  j.ended = calloc(2 * (size_t)a->n, sizeof *j.ended);
  j.joined = j.ended + a->n;
  j.stopped = calloc(a->n, sizeof *j.stopped);
  const StoreServerHooks hooks = {.arg = &j, .exited = told, .joined = joined};
  StoreServer *store = j.pid && j.ended && j.stopped && store_make_key(key, why)
                           ? store_serve(a->store, key, a->n, &hooks, bound, why)
                           : NULL;
  if (!store) {
    fprintf(stderr, "pipe-run: %s\n", why);
    free(j.pid);
    free(j.ended);
    free(j.stopped);
    return 1;
  }
  setenv("PIPE_STORE", bound, 1);
  setenv("PIPE_STORE_KEY", key, 1);
  snprintf(text, sizeof text, "%.9g", a->start_s);
  setenv("PIPE_START_DEADLINE", text, 1);
  for (uint32_t i = 0; i < j.nchild; i++) {
    j.pid[i] = a->mpi ? start_mpirun(a, self) : start_rank(a, i);
    if (j.pid[i] < 0) {
      fprintf(stderr, "pipe-run: no process for rank %u: %s\n", i, strerror(errno));
      j.pid[i] = 0;
      note(&j, i, 1 << 8);
      signal_all(&j, SIGKILL);
      break;
    }
    j.group[i] = j.pid[i];
    j.alive++;
  }
  wait_for_all(&j, heard);
  store_stop(store, a->mpi ? 0.2 : 0); /* the last reports of ranks may be on their way */
  for (uint32_t r = 0; j.failed && r < a->n; r++)
    if (j.stopped[r])
      fprintf(stderr, "pipe-run: rank %u was stopped by signal %d (%s)\n", r, j.stopped[r],
              strsignal(j.stopped[r]));
  if (j.failed && !j.overdue) {
    describe(j.first_status, text);
    fprintf(stderr, "pipe-run: rank %u %s", j.first, text);
    if (j.passed_on)
      fprintf(stderr, ", after signal %d (%s)\n", j.passed_on, strsignal(j.passed_on));
    else
      fprintf(stderr, "%s\n", code_of(j.first_status) == SECONDARY ? "" : ", the first to fail");
  }
  free(j.pid);
  free(j.ended);
  free(j.stopped);
  return j.failed ? code_of(j.first_status) : 0;
}

int main(int argc, char **argv) {
  Asked a = {.grace_s = 10, .start_s = 600, .store = "127.0.0.1:0"};
  int i = 1;
  char *end;
  for (; i < argc && argv[i][0] == '-'; i++) {
    const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(name, "--")) {
      i++;
      break;
    }
    if (!strcmp(name, "--mpi") || !strcmp(name, "--one")) {
      *(name[2] == 'm' ? &a.mpi : &a.one) = true;
      if (a.one) {
        i++;
        break;
      }
      continue;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
      usage("starts one process per rank, ", "on this host");
      return 0;
    }
    if (!strcmp(name, "-n")) {
      unsigned long n = strtoul(value, &end, 10);
      if (*value < '0' || *value > '9' || *end || n == 0 || n > 100000)
        return usage("-n needs a number of processes, not ", *value ? value : "nothing");
      a.n = (uint32_t)n;
    } else if (!strcmp(name, "--grace") || !strcmp(name, "--start")) {
      double s = strtod(value, &end);
      if (!*value || *end || !(s >= (name[2] == 's' ? 1e-9 : 0) && s <= 1e9)) {
        fprintf(stderr, "pipe-run: %s needs seconds, not %s\n", name, *value ? value : "nothing");
        return 2;
      }
      *(name[2] == 'g' ? &a.grace_s : &a.start_s) = s;
    } else if (!strcmp(name, "--store")) {
      char why[STORE_TEXT];
      if (!*value)
        return usage("--store needs host:port", "");
      if (!store_is_address(value, why))
        return usage(why, "");
      a.store = value;
    } else {
      return usage("unknown option ", name);
    }
    i++;
  }
  a.program = argv + i;
  if (i >= argc)
    return usage("no program", "");
  if (a.n == 0 && !a.one)
    return usage("-n N is needed", "");
  sigset_t heard;
  sigemptyset(&heard);
  static const int signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  for (size_t k = 0; k < sizeof signals / sizeof *signals; k++)
    sigaddset(&heard, signals[k]);
  /* before threads exist: the thread of the store inherits the mask */
  sigprocmask(SIG_BLOCK, &heard, NULL);
  return a.one ? run_one(a.program, &heard) : run(&a, argv[0], &heard);
}
