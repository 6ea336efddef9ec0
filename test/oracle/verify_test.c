/* SPDX-License-Identifier: MIT
 * Does verify.c see anything? Compiles schedules from memory, plants one fault at a time in the
 * tables, and runs verify_program on them in a child process, which must find a mistake; with no
 * fault planted it must not. Each fault is planted at several places where it is one. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "certify.h"
#include "driver.h"
#include "lower.h"
#include "programs.h"
#include "queues.h"

#include "../run/cut_wait.h"

enum { NTEXTS = NPROGRAMS, PLACES = 6 };

/* ---- one compile, then one fault ---- */

typedef struct At { /* the place at hand */
  Sched *s;
  PipeProgram *p;
  PipeRank *rank;
  PipeInstr *in;
  uint32_t i; /* its index in the list */
} At;

static bool is_f(const At *a) { return a->in->op == PIPE_F; }
static bool is_i(const At *a) { return a->in->op == PIPE_I; }
static bool is_w(const At *a) { return a->in->op == PIPE_W; }
static bool is_r(const At *a) { return a->in->op == PIPE_R; }
static bool keeps(const At *a) { return a->in->op == PIPE_F && a->in->keep != NONE; }
static bool is_u(const At *a) { return a->in->op == PIPE_U; }
static bool is_back(const At *a) { return a->in->op == PIPE_B || a->in->op == PIPE_I; }
static bool is_recv(const At *a) { return a->in->op == PIPE_RECV_F || a->in->op == PIPE_RECV_B; }
static bool any(const At *a) { return a->in != NULL; }
static bool reads(const At *a) { return a->in->in != NONE; }
/* The first of its waits for the queue; NULL. */
static PipeWait *first_wait(const At *a, uint32_t queue) {
  for (uint32_t w = a->in->waits; w < a->in->waits + a->in->nwait; w++)
    if (a->rank->wait[w].queue == queue)
      return (PipeWait *)&a->rank->wait[w];
  return NULL;
}
/* It has one wait, and no slot is right without. Not: copies and side ops, which wait where the
 * text says, and ops that wait for copies. */
static bool has_wait(const At *a) {
  const uint32_t op = a->in->op;
  return a->in->nwait == 1 && op != PIPE_LOAD && op != PIPE_SIDE_COMM && !first_wait(a, PIPE_COPY);
}
static bool has_count(const At *a) { return has_wait(a) && a->rank->wait[a->in->waits].count > 0; }
static bool alone(const At *a) { return a->in->group == 0 && (a->i == 0 || a->in[-1].group == 0); }
static bool leads(const At *a) { return a->in->group > 0; }
static bool follows(const At *a) { return a->i > 0 && a->in[-1].group > 0; }
static bool is_side(const At *a) { return pipe_is_side(a->in->op); }
static bool takes_buffer(const At *a) { return is_side(a) && a->in->out != NONE; }
static bool gives_buffer(const At *a) { return is_side(a) && a->in->in != NONE; }
static bool after_op(const At *a) { return a->in->op == PIPE_SIDE_COPY; }
static bool only_wait(const At *a) { return after_op(a) && a->in->nwait > 0; }
static bool needs_side(const At *a) { /* an F that waits for a side op of the COMM stream */
  const PipeWait *wait = first_wait(a, PIPE_COMM);
  if (a->in->op != PIPE_F || !wait)
    return false;
  const PipeQueues queues = queues_of(a->p, a->rank);
  const PipeInstr *in = &a->rank->instr[pipe_after(&queues, *wait) - 1];
  end_queues(queues);
  return in->op == PIPE_SIDE_COMM && in->stage == a->in->stage;
}
static bool is_off(const At *a) { return a->in->op == PIPE_OFF; }
static bool is_load(const At *a) { return a->in->op == PIPE_LOAD; }
static bool needs_copy(const At *a) { return is_back(a) && first_wait(a, PIPE_COPY); }
static bool is_lent(const At *a) { return is_off(a) && a->in->peer != NONE; }
static bool is_guest_back(const At *a) { return is_load(a) && a->in->peer != NONE; }
static bool has_host(const At *a) { return a->i == 0 && a->rank->host > 0; }
static bool sized(const At *a) { return a->p->sized && a->i == 0; }
static bool first(const At *a) { return a->i == 0; }

/* Another instruction in the place of `to`, which keeps its waits. */
static void replace(PipeInstr *to, const PipeInstr *by) {
  const uint32_t waits = to->waits, nwait = to->nwait;
  *to = *by;
  to->waits = waits, to->nwait = nwait;
}
static void no_waits(At *a) {
  while (a->in->nwait > 0)
    cut_wait(a->rank, a->in->waits);
}
static void lost(At *a) {
  no_waits(a);
  memmove(a->in, a->in + 1, (a->rank->ninstr - a->i - 1) * sizeof *a->in);
  a->rank->ninstr--;
}
static void twice(At *a) { /* in the place of the next one, so that the count is right */
  replace(a->i + 1 == a->rank->ninstr ? &a->in[-1] : &a->in[1], a->in);
}
static void less_wait(At *a) { ((PipeWait *)a->rank->wait)[a->in->waits].count--; }
static void other_queue(At *a) { /* whose first instruction stands above */
  PipeWait *wait = (PipeWait *)&a->rank->wait[a->in->waits];
  *wait = (PipeWait){pipe_queue(a->p->lowering, &a->rank->instr[0]), 1};
}
static bool has_other_queue(const At *a) {
  return has_count(a) &&
         a->rank->wait[a->in->waits].queue != pipe_queue(a->p->lowering, &a->rank->instr[0]);
}
static void next_wait(At *a) {
  a->in->nwait--;
  if (a->i + 1 < a->rank->ninstr) {
    a->in[1].waits--;
    a->in[1].nwait++;
  }
}
static bool waits_alone(const At *a) { return has_wait(a) && !follows(a) && !leads(a); }
/* The waits of rows end here. */
static uint32_t wait_end(const At *a) { return pipe_wait0(a->rank, a->rank->ninstr); }
static bool waits_at_end(const At *a) { return a->i == 0 && a->rank->nwait > wait_end(a); }
static void no_end(At *a) { a->rank->nwait = wait_end(a); }
static void add_wait(At *a, uint32_t queue, uint32_t count) {
  PipeWait *wait = NEW_ARRAY(a->s->arena, PipeWait, a->rank->nwait + 1);
  memcpy(wait, a->rank->wait, a->rank->nwait * sizeof *wait);
  a->rank->wait = wait;
  put_wait(a->rank, a->in->waits + a->in->nwait, a->i, (PipeWait){queue, count});
}
static void copy_below(At *a) { add_wait(a, PIPE_COPY, a->rank->ninstr); }
static void next_out(At *a) { a->in->out++; }
static void no_in(At *a) { a->in->in = NONE; }
static void other_clause(At *a) { a->in->keep = (a->in->keep + a->p->nstage) % a->p->nside; }
static void no_guest(At *a) { a->in->keep = 0; }
static void other_keep(At *a) { a->in->keep++; }
static void a_keep(At *a) { a->in->keep = a->rank->nslot - 1; }
static void more_host(At *a) { a->rank->host += 64; }
static void wait_below(At *a) { add_wait(a, PIPE_COMPUTE, a->rank->ninstr); }
static void other_mb(At *a) { a->in->mb = (a->in->mb + 1) % a->p->nmb; }
static void no_mb(At *a) { a->in->mb = a->p->nmb; }
static void other_stage(At *a) { a->in->stage = (a->in->stage + 1) % a->p->nstage; }
static void other_op(At *a) { a->in->op = a->in->op == PIPE_F ? PIPE_W : PIPE_F; }
static void no_op(At *a) { a->in->op = PIPE_NOPS; }
static void other_peer(At *a) { a->in->peer = (a->in->peer + 1) % a->p->nrank; }
static void a_peer(At *a) { a->in->peer = 0; }
static void other_act(At *a) { a->in->act++; }
static void far_act(At *a) { a->in->act = a->rank->nslot; }
static void other_gout(At *a) { a->in->gout--; }
static void other_input(At *a) { a->in->keep++; }
static void no_keep(At *a) { a->in->keep = NONE; }
static void other_in(At *a) { a->in->in ^= 1; }
static void other_out(At *a) { a->in->out = a->in->out == NONE ? 0 : NONE; }
static void join(At *a) { a->in->group = 1; }
static void longer(At *a) { a->in->group++; }
static void apart(At *a) { a->in->group = 0; }
static void own_wait(At *a) { add_wait(a, PIPE_COMPUTE, 0); }
static void same_stash(At *a) { a->in->act = a->in[-1].act; }
static void a_phase(At *a) { a->in->phase = PIPE_NPHASES; }
static void a_site(At *a) { a->in->site = a->p->nsite; }
static void more_inflight(At *a) { a->rank->inflight++; }
static void more_bytes(At *a) { a->rank->bytes += 64; }
static void more_slots(At *a) { a->rank->nslot++; }
static PipePool *act_pool(At *a) {
  PipePool *q = (PipePool *)a->rank->pool;
  while (q->cls != PIPE_ACT)
    q++;
  return q;
}
static void pool_count(At *a) { act_pool(a)->count--; }
static void pool_first(At *a) { act_pool(a)->first++; }
static void pool_class(At *a) { act_pool(a)->cls = PIPE_GOUT; }
static void pool_bytes(At *a) { act_pool(a)->bytes++; }
static void more_busy(At *a) { a->p->busy++; }
static void a_chunk(At *a) { ((PipeStage *)a->p->stage)[0].chunk++; }
static void a_link(At *a) { ((PipeStage *)a->p->stage)[0].next = 2; }
static bool has_tables(const At *a) { return a->p->edge != NULL; }
static bool has_edge(const At *a) {
  return has_tables(a) && (pipe_is_send(a->in->op) || is_recv(a));
}
static bool has_list(const At *a) { return a->rank->nlist > 0; }
static PipePool *skip_pool(const At *a) {
  for (uint32_t i = 0; i < a->rank->npool; i++)
    if (a->rank->pool[i].skip)
      return (PipePool *)&a->rank->pool[i];
  return NULL;
}
static bool has_skip_pool(const At *a) { return skip_pool(a) != NULL; }
static bool is_tie(const At *a) { return a->in->op == PIPE_TIE; }
static bool tie_waits(const At *a) { return is_tie(a) && a->in->nwait > 0; }
static bool is_tied_update(const At *a) {
  return a->in->op == PIPE_U && a->in->nwait > 0 && a->p->stage[a->in->stage].tied != PIPE_NONE;
}
static void other_edge(At *a) { a->in->keep = (a->in->keep + 1) % a->p->nedge; }
static void no_edge(At *a) { a->in->keep = a->p->nedge; }
static void edge_order(At *a) {
  PipeEdge *e = (PipeEdge *)a->p->edge, t = e[0];
  e[0] = e[1], e[1] = t;
}
static void edge_place(At *a) { ((PipeEdge *)a->p->edge)[a->p->nedge - 1].in ^= 1; }
static void edge_size(At *a) { ((PipeEdge *)a->p->edge)[0].skip ^= 1; }
static void other_row(At *a) {
  uint32_t *row = (uint32_t *)a->p->row;
  row[a->p->nmb] = row[a->p->nmb] == 1 ? 2 : 1; /* stage 1, microbatch 0 */
}
static void other_listed(At *a) {
  uint32_t *list = (uint32_t *)a->rank->list, t = list[0];
  list[0] = list[1], list[1] = t;
}
static void short_list(At *a) { a->rank->nlist--; }
static void chain_pool(At *a) { skip_pool(a)->skip = 0; }
static void tie_size(At *a) { ((PipeStage *)a->p->stage)[a->in->stage].tied_bytes--; }
static void tie_circle(At *a) { ((PipeStage *)a->p->stage)[a->in->stage].tie = a->in->stage; }
static void fewer_inputs(At *a) { ((PipeStage *)a->p->stage)[2].nin--; }
/* The next one of the same op below, or NULL. */
static PipeInstr *next_alike(const At *a) {
  for (uint32_t j = a->i + 1; j < a->rank->ninstr; j++)
    if (a->rank->instr[j].op == a->in->op)
      return (PipeInstr *)&a->rank->instr[j];
  return NULL;
}
static bool is_send(const At *a) { return pipe_is_send(a->in->op); }

static bool is_send_not_last(const At *a) {
  return pipe_is_send(a->in->op) && next_alike(a) && next_alike(a)->peer == a->in->peer;
}
static void swapped(At *a) { /* waits stay: nothing is lost but the order */
  PipeInstr *other = next_alike(a), keep = *a->in;
  replace(a->in, other);
  replace(other, &keep);
}

static const struct Fault {
  const char *what;
  bool (*where)(const At *);
  void (*plant)(At *);
} faults[] = {
    {"an instruction is lost", any, lost},
    {"an instruction is there twice", any, twice},
    {"a wait is lost", has_wait, no_waits},
    {"a wait is one less", has_count, less_wait},
    {"a wait is for another queue", has_other_queue, other_queue},
    {"a wait is of the next instruction", waits_alone, next_wait},
    {"the end of the step does not wait", waits_at_end, no_end},
    {"a wait points below itself", any, wait_below},
    {"another microbatch", is_f, other_mb},
    {"no such microbatch", is_recv, no_mb},
    {"another stage", any, other_stage},
    {"another op", is_back, other_op},
    {"no such op", any, no_op},
    {"another peer", is_send, other_peer},
    {"a peer of a compute op", is_f, a_peer},
    {"another stash", is_back, other_act},
    {"another stash of R", is_r, other_act},
    {"another kept input", is_r, other_input},
    {"no kept input", is_r, no_keep},
    {"nothing is kept", keeps, no_keep},
    {"the output of R is read", is_r, other_out},
    {"a stash beyond the slots", is_f, far_act},
    {"another gout slot", is_w, other_gout},
    {"another tensor", reads, other_in},
    {"an output too many or too few", is_recv, other_out},
    {"an output of W", is_w, other_out},
    {"an output of U", is_u, other_out},
    {"one action with what is none", alone, join},
    {"an action of too many", leads, longer},
    {"an action in parts, whose cost is that of one", leads, apart},
    {"a wait inside an action", follows, own_wait},
    {"a slot of two ops of an action", follows, same_stash},
    {"no such phase", any, a_phase},
    {"no such site", any, a_site},
    {"a wrong inflight", first, more_inflight},
    {"wrong bytes", sized, more_bytes},
    {"slots without a pool", first, more_slots},
    {"a pool too small", first, pool_count},
    {"a pool not in its place", first, pool_first},
    {"a pool of another class", first, pool_class},
    {"a pool of another size", first, pool_bytes},
    {"a wrong busy", first, more_busy},
    {"a wrong chunk", first, a_chunk},
    {"a wrong link", first, a_link},
    {"transfers in another order", is_send_not_last, swapped},
    {"gout of another op", is_i, other_gout},
    {"another edge", has_edge, other_edge},
    {"no such edge", has_edge, no_edge},
    {"an edge is out of order", has_tables, edge_order},
    {"an edge has another place", has_tables, edge_place},
    {"an edge has another size", has_tables, edge_size},
    {"a microbatch has another row", has_tables, other_row},
    {"another slot in a list", has_list, other_listed},
    {"a list that is too short", has_list, short_list},
    {"a pool of the chain", has_skip_pool, chain_pool},
    {"a sum that comes too early", tie_waits, no_waits},
    {"an update before the sum", is_tied_update, no_waits},
    {"shared weights of another size", is_tie, tie_size},
    {"another circle of ties", is_tie, tie_circle},
    {"fewer inputs", has_tables, fewer_inputs},
    {"a backward does not wait for its stash", needs_copy, no_waits},
    {"a copy that stands below is waited for", is_f, copy_below},
    {"another host slot", is_load, other_keep},
    {"a host slot of a compute op", is_f, a_keep},
    {"another stash leaves", is_off, other_act},
    {"a stash comes back to another slot", is_load, other_act},
    {"wrong host bytes", has_host, more_host},
    {"a stash on another rank than said", is_lent, other_peer},
    {"a slot of the peer that is no guest's", is_lent, no_guest},
    {"a guest comes back from another slot", is_guest_back, other_keep},
    {"a side op of another row", is_side, other_keep},
    {"a side op of another clause", is_side, other_clause},
    {"another buffer", takes_buffer, next_out},
    {"another buffer is given back", gives_buffer, other_in},
    {"no buffer", takes_buffer, other_out},
    {"no buffer is given back", gives_buffer, no_in},
    {"an op does not wait for its side op", needs_side, no_waits},
    {"a side op does not wait for its op", only_wait, no_waits},
    {"a side op of another microbatch", after_op, other_mb},
};
enum { NFAULTS = sizeof faults / sizeof *faults };

typedef struct Child {
  const char *text;
  int f; /* -1: none */
  uint32_t place;
  bool planted; /* there is such a place */
} Child;

/* Compiles the text, plants the fault at its place and verifies. */
static void child(void *of) {
  Child *c = of;
  const char *text = c->text;
  const int f = c->f;
  uint32_t place = c->place;
  Arena arena = {0};
  Diag diag;
  Options opt = {.input = "t.pipe", .text = text, .text_len = strlen(text)};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stderr);
  if (!compile_only(&s))
    exit(3);
  c->planted = f < 0;
  for (uint32_t r = 0; r < s.prog->nrank && !c->planted; r++)
    for (uint32_t i = 0; i < s.prog->rank[r].ninstr && !c->planted; i++) {
      At a = {&s, (PipeProgram *)s.prog, (PipeRank *)&s.prog->rank[r],
              (PipeInstr *)&s.prog->rank[r].instr[i], i};
      if (faults[f].where(&a) && place-- == 0) {
        faults[f].plant(&a);
        c->planted = true;
      }
    }
  if (c->planted)
    verify_program(&s);
  arena_free(&arena);
}

/* Of child in a process of its own: 'a' refused, 'n' no such place, 'o' went through. */
static char outcome(const char *text, int f, uint32_t place) {
  pid_t pid = fork();
  if (pid == 0) {
    Guard guard;
    Child c = {.text = text, .f = f, .place = place};
    GuardEnd end = guard_run(&guard, child, &c);
    _exit(end == GUARD_MEMORY ? 4 : end == GUARD_BUG ? 2 : c.planted ? 0 : 1);
  }
  int status;
  if (pid < 0 || waitpid(pid, &status, 0) != pid ||
      (WIFEXITED(status) && WEXITSTATUS(status) > 2)) {
    fprintf(stderr, "verify_test: cannot run or compile\n");
    exit(1);
  }
  return WIFSIGNALED(status) ? '?' : "ona"[WEXITSTATUS(status)];
}

int main(void) {
  uint32_t planted = 0, kinds = 0, missed = 0;
  for (int t = 0; t < NTEXTS; t++)
    if (outcome(program_text[t], -1, 0) != 'o') {
      printf("verify refuses the good program %d\n", t);
      missed++;
    }
  for (int f = 0; f < NFAULTS; f++) {
    uint32_t n = 0;
    for (int t = 0; t < NTEXTS; t++)
      for (uint32_t place = 0; place < PLACES; place++) {
        char o = outcome(program_text[t], f, place * 3);
        if (o == 'n')
          break;
        n++;
        if (o != 'a') {
          printf("not seen: %s, program %d, place %u\n", faults[f].what, t, place * 3);
          missed++;
        }
      }
    planted += n;
    kinds += n > 0;
  }
  if (missed > 0 || kinds < NFAULTS)
    return 1;
  printf("verify: %u faults of %u kinds, all seen; %d programs untouched\n", planted, kinds,
         NTEXTS);
  return 0;
}
