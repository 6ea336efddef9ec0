/* SPDX-License-Identifier: MIT
 *   promela [--emitted] FILE [-DNAME=VALUE | --channels= | --sends= | --lowering= | --schedule= |
 *                 --profile=]...
 *
 * Writes the lists of every rank under the channel model, as a Promela model: SPIN tries every
 * interleaving, and what it says is what check_channels must have said. With --emitted the lists
 * are those of verify_completes, with the waits and events of the emitted program. An invalid end
 * state is a deadlock, a violated assertion a mispaired transfer. Exit status: 0 pipec has proved
 * the lists, 1 refuted them, 2 there is no model.
 *
 * A process per queue (machine.h) and one for the computation of each rank; n[q] counts what queue
 * q has done, which is all that others wait for. A directed rank pair is a Promela channel, of
 * capacity 0 for rendezvous; a collective is a counter of those that have come. With tags each
 * tensor has a Promela channel; with buffers post[q] says that the RECV of queue q is posted, and
 * what is in a buffer is counted. The transfers of a group are the options of a loop, each on a
 * variable that is its channel until it is done, then one that nobody reads, or sends to; of those
 * on one channel only the next one is. If a group is in several queues, each queue carries out its
 * part once all parts may begin, and goes on once all parts are over: gone[q] counts what queue q
 * has carried out then. Linear in instructions, but for the members of groups with each other, and
 * SENDs with tags and buffers with those above. */
#include <string.h>

#include "base.h"
#include "driver.h"
#include "prove.h"
#include "verify.h"

enum { MOST_PROCESSES = 254, MOST_MESSAGES = 255 }; /* of SPIN; init is a process, too */

typedef struct Queue { /* a process */
  uint32_t rank;
  uint64_t key; /* which of the rank's: 0 computation */
  uint32_t n;   /* instructions */
} Queue;

typedef struct Writer {
  Sched *s;
  FILE *f;
  const MachineList *list;
  VEC(Queue) queue;
  uint32_t **of, **at; /* [nrank][n] queue of an instruction, place in it */
  uint64_t *tensor;    /* tagged: sorted */
  uint32_t ntensor;
  uint32_t *taken; /* [ntensor] tagged: queue of its RECV */
} Writer;

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* Row of a tensor among those that are sent. */
static uint32_t tag(const Writer *m, uint64_t tensor) {
  const uint64_t *at = bsearch(&tensor, m->tensor, m->ntensor, sizeof *at, by_value);
  return (uint32_t)(at - m->tensor);
}

static uint64_t queue_key(const Writer *m, const MachineInstr *in, uint32_t index) {
  uint64_t nrank = m->s->model->nrank;
  if (in->kind == MACHINE_COMPUTE)
    return 0;
  if (in->kind == MACHINE_COPY)
    return UINT64_MAX;
  switch (m->s->opt->model.channels) {
  case CHANNELS_RANK: return 1;
  case CHANNELS_PAIR: return in->kind == MACHINE_ALL ? 1 + nrank + in->peer : 1 + in->peer;
  case CHANNELS_EDGE:
    return in->kind == MACHINE_ALL ? 1 + 2 * nrank + in->peer
                                   : 1 + 2 * (uint64_t)in->peer + (in->kind == MACHINE_RECV);
  case CHANNELS_TAGGED: return 1 + (uint64_t)index;
  }
  return 0;
}

/* Every queue of every rank; in a rank they are few, but under tagged, where each is new. */
static bool find_queues(Writer *m) {
  Sched *s = m->s;
  m->of = NEW_ARRAY(s->arena, uint32_t *, s->model->nrank);
  m->at = NEW_ARRAY(s->arena, uint32_t *, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const MachineList *l = &m->list[r];
    uint32_t first = m->queue.n;
    m->of[r] = NEW_ARRAY(s->arena, uint32_t, l->n);
    m->at[r] = NEW_ARRAY(s->arena, uint32_t, l->n);
    for (uint32_t i = 0; i < l->n; i++) {
      uint64_t key = queue_key(m, &l->instr[i], i);
      uint32_t q = first;
      while (q < m->queue.n && m->queue.at[q].key != key)
        q++;
      if (q == MOST_PROCESSES)
        return false;
      if (q == m->queue.n)
        *vec_push(s->arena, &m->queue) = (Queue){r, key, 0};
      m->of[r][i] = q;
      m->at[r][i] = m->queue.at[q].n++;
    }
  }
  return true;
}

static uint32_t pair(const Writer *m, uint32_t from, uint32_t to) {
  return from * m->s->model->nrank + to;
}

/* The channel of a transfer of rank r, by name. */
static const char *channel(const Writer *m, uint32_t r, const MachineInstr *in) {
  if (m->s->opt->model.channels == CHANNELS_TAGGED)
    return arena_printf(m->s->arena, "t%u", tag(m, in->tensor));
  uint32_t from = in->kind == MACHINE_SEND ? r : in->peer,
           to = in->kind == MACHINE_SEND ? in->peer : r;
  return arena_printf(m->s->arena, "c%u_%u", from, to);
}

/* With tags; sends: [nrank * nrank] of each pair. Ensures taken. */
static void declare_buffers(Writer *m, const uint32_t *sends) {
  Sched *s = m->s;
  m->taken = NEW_ARRAY(s->arena, uint32_t, m->ntensor);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = 0; i < m->list[r].n; i++)
      if (m->list[r].instr[i].kind == MACHINE_RECV)
        m->taken[tag(m, m->list[r].instr[i].tensor)] = m->of[r][i];
  fprintf(m->f, "bit post[%u]; /* RECVs that have begun, by queue */\n", m->queue.n);
  for (uint32_t a = 0; a < s->model->nrank; a++)
    for (uint32_t b = 0; b < s->model->nrank; b++)
      if (sends[pair(m, a, b)])
        fprintf(m->f, "int used%u_%u; /* of the buffer */\n", a, b);
}

static void declare_channels(Writer *m) {
  Sched *s = m->s;
  const ChannelModel *model = &s->opt->model;
  uint32_t *sends = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nrank * s->model->nrank),
           total = 0, ncoll = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = 0; i < m->list[r].n; i++) {
      const MachineInstr *in = &m->list[r].instr[i];
      if (in->kind == MACHINE_SEND)
        sends[pair(m, r, in->peer)]++, total++;
      else if (in->kind == MACHINE_ALL && in->peer >= ncoll)
        ncoll = in->peer + 1;
    }
  m->tensor = arena_alloc(s->arena, total * sizeof *m->tensor + 1);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = 0; i < m->list[r].n; i++)
      if (m->list[r].instr[i].kind == MACHINE_SEND)
        m->tensor[m->ntensor++] = m->list[r].instr[i].tensor;
  qsort(m->tensor, m->ntensor, sizeof *m->tensor, by_value);
  if (model->channels == CHANNELS_TAGGED) {
    for (uint32_t t = 0; t < m->ntensor; t++)
      fprintf(m->f, "chan t%u = [%d] of { int, int };\n", t, model->buffer > 0);
    if (model->buffer > 0)
      declare_buffers(m, sends);
  } else {
    for (uint32_t a = 0; a < s->model->nrank; a++)
      for (uint32_t b = 0; b < s->model->nrank; b++) {
        uint64_t k = model->in_bytes ? sends[pair(m, a, b)] : model->buffer;
        if (sends[pair(m, a, b)] == 0)
          continue;
        k = k > sends[pair(m, a, b)] ? sends[pair(m, a, b)] : k;
        fprintf(m->f, "chan c%u_%u = [%u] of { int, int }; /* tensor, bytes */\n", a, b,
                k > MOST_MESSAGES ? MOST_MESSAGES : (unsigned)k);
        if (model->in_bytes)
          fprintf(m->f, "int used%u_%u, got%u_%u; /* bytes in the buffer, messages received */\n",
                  a, b, a, b);
      }
  }
  if (ncoll)
    fprintf(
        m->f,
        "short come[%u], sum[%u]; /* to the collectives of a communicator; what the last one adds up */\n",
        ncoll, ncoll);
}

static void needs(const Writer *m, uint32_t r, uint32_t i) {
  const MachineInstr *in = &m->list[r].instr[i];
  for (int e = 0; e < 2; e++)
    if (in->need[e] != MACHINE_NONE)
      fprintf(m->f, "n[%u] > %u; ", m->of[r][in->need[e]], m->at[r][in->need[e]]);
  for (uint32_t k = 0; k < in->nmore; k++)
    fprintf(m->f, "n[%u] > %u; ", m->of[r][in->more[k]], m->at[r][in->more[k]]);
}

static uint32_t group_begin(const Writer *m, uint32_t r, uint32_t i) {
  while (i > 0 && m->list[r].instr[i - 1].group > 0)
    i--;
  return i;
}

/* Waits until the group of instruction i may begin: what its members need, and what stands above
 * them in other queues, is done; with tags and buffers, the RECV above each of its RECVs has begun.
 * */
static void begin(const Writer *m, uint32_t r, uint32_t i) {
  const MachineInstr *list = m->list[r].instr;
  const uint32_t first = group_begin(m, r, i), last = first + list[first].group;
  const bool ordered = m->s->opt->model.channels == CHANNELS_TAGGED && m->s->opt->model.buffer > 0;
  for (uint32_t k = first; k <= last; k++) {
    bool counts = m->of[r][k] != m->of[r][i];
    needs(m, r, k);
    for (uint32_t j = first; j < k; j++)
      counts &= m->of[r][j] != m->of[r][k];
    if (counts && m->at[r][k] > 0)
      fprintf(m->f, "n[%u] >= %u; ", m->of[r][k], m->at[r][k]);
    for (uint32_t j = first; ordered && list[k].kind == MACHINE_RECV && j-- > 0;)
      if (list[j].kind == MACHINE_RECV && list[j].peer == list[k].peer) {
        fprintf(m->f, "post[%u]; ", m->of[r][j]);
        break;
      }
  }
}

/* Is the group of instruction i in several queues? */
static bool spans(const Writer *m, uint32_t r, uint32_t i) {
  const uint32_t first = group_begin(m, r, i), last = first + m->list[r].instr[first].group;
  uint32_t k = first;
  while (k < last && m->of[r][k] == m->of[r][first])
    k++;
  return m->of[r][k] != m->of[r][first];
}

/* Queue q has carried out n instructions, up to i. They are done; if their group is in other
 * queues, too, once those have carried out their parts. */
static void end(const Writer *m, uint32_t r, uint32_t i, uint32_t q, uint32_t n) {
  const uint32_t first = group_begin(m, r, i), last = first + m->list[r].instr[first].group;
  if (spans(m, r, i))
    fprintf(m->f, "gone[%u] = %u; ", q, m->at[r][i] + 1);
  for (uint32_t k = first; k <= last; k++) {
    bool counts = m->of[r][k] != q;
    for (uint32_t j = k + 1; j <= last; j++)
      counts &= m->of[r][j] != m->of[r][k];
    if (counts)
      fprintf(m->f, "gone[%u] > %u; ", m->of[r][k], m->at[r][k]);
  }
  if (n == 1)
    fprintf(m->f, "n[%u]++; ", q);
  else
    fprintf(m->f, "n[%u] = n[%u] + %u; ", q, q, n);
}

/* Of a collective: it is there, and is the same as of those that were before it. */
static void come(const Writer *m, const MachineInstr *in, uint32_t nth, uint32_t members) {
  unsigned long long what = UINT64_MAX - in->tensor;
  fprintf(
      m->f,
      "atomic { come[%u]++; if :: come[%u] == %u -> sum[%u] = %llu :: else -> assert(sum[%u] == %llu) fi }; ",
      in->peer, in->peer, (nth - 1) * members + 1, in->peer, what, in->peer, what);
}

/* Buffers are of bytes, and */
static bool counts_bytes(const Writer *m) { return m->s->opt->model.in_bytes; }

/* a message does not fit into one: then its SEND waits for its RECV. */
static bool too_big(const Writer *m, const MachineInstr *in) {
  return counts_bytes(m) && in->bytes > m->s->opt->model.buffer;
}

/* The message that was received, of b bytes in the buffer, leaves it. */
static void receive_bytes(const Writer *m, uint32_t r, const MachineInstr *in) {
  const char *pair = channel(m, r, in) + 1;
  fprintf(m->f, "used%s = used%s - b; got%s++; ", pair, pair, pair);
}

/* With tags and buffers: the transfer at index i of a list, all that it needs is done. The order in
 * which SENDs are posted needs no word: what one waits for stands above it, as do all that those
 * above it wait for. A SEND puts its message into the buffer if that has room and those above it
 * have gone on, or else meets its RECV. */
static void tagged_transfer(const Writer *m, uint32_t q, uint32_t r, uint32_t i) {
  const MachineInstr *list = m->list[r].instr, *in = &list[i];
  const ChannelModel *model = &m->s->opt->model;
  const bool send = in->kind == MACHINE_SEND;
  const uint32_t from = send ? r : in->peer, to = send ? in->peer : r, t = tag(m, in->tensor);
  const unsigned long long load = model->in_bytes ? in->bytes : 1, room = model->buffer;
  if (!send) {
    fprintf(
        m->f,
        "post[%u] = 1; atomic { t%u?x,b; assert(x == %u); used%u_%u = used%u_%u - b; gone[%u] = 1 }",
        q, t, t, from, to, from, to, q);
    return;
  }
  fprintf(m->f, "if ");
  if (load <= room) {
    fprintf(m->f, ":: atomic { ");
    for (uint32_t k = 0; k < i; k++)
      if (list[k].kind == in->kind && list[k].peer == in->peer)
        fprintf(m->f, "gone[%u] > 0 && ", m->of[r][k]);
    fprintf(
        m->f,
        "used%u_%u <= %llu - %llu -> used%u_%u = used%u_%u + %llu; t%u!%u,%llu; gone[%u] = 1 } ",
        from, to, room, load, from, to, from, to, load, t, t, load, q);
  }
  fprintf(m->f, ":: atomic { post[%u] -> t%u!%u,0; gone[%u] = 1 } fi", m->taken[t], t, t, q);
}

/* One instruction of queue q; nth: among the transfers of its pair, or the collectives of its
 * communicator, from 1. */
static void instruction(const Writer *m, uint32_t q, uint32_t r, uint32_t i, uint32_t nth,
                        uint32_t members) {
  Sched *s = m->s;
  const MachineInstr *in = &m->list[r].instr[i];
  const ChannelModel *model = &s->opt->model;
  bool bytes = counts_bytes(m);
  fprintf(m->f, "  ");
  begin(m, r, i);
  if (model->channels == CHANNELS_TAGGED && model->buffer > 0 &&
      (in->kind == MACHINE_SEND || in->kind == MACHINE_RECV)) {
    tagged_transfer(m, q, r, i);
    fprintf(m->f, "; ");
    end(m, r, i, q, 1);
    fprintf(m->f, "/* %s */\n", list_text(s, (MachineAt){r, i}));
    return;
  }
  if (in->kind == MACHINE_SEND) {
    const char *c = channel(m, r, in);
    bool fits = !too_big(m, in);
    if (bytes && fits)
      fprintf(m->f, "atomic { used%s <= %llu - %llu -> used%s = used%s + %llu }; ", c + 1,
              (unsigned long long)model->buffer, (unsigned long long)in->bytes, c + 1, c + 1,
              (unsigned long long)in->bytes);
    fprintf(m->f, "%s!%u,%llu; ", c, tag(m, in->tensor),
            bytes && fits ? (unsigned long long)in->bytes : 0);
    if (bytes && !fits)
      fprintf(m->f, "got%s >= %u; ", c + 1, nth);
  } else if (in->kind == MACHINE_RECV) {
    const char *c = channel(m, r, in);
    fprintf(m->f, "%s?x,b; assert(x == %u); ", c, tag(m, in->tensor));
    if (bytes)
      receive_bytes(m, r, in);
  } else if (in->kind == MACHINE_ALL) {
    come(m, in, nth, members);
    fprintf(m->f, "come[%u] >= %u; ", in->peer, nth * members);
  }
  end(m, r, i, q, 1);
  fprintf(m->f, "/* %s */\n", list_text(s, (MachineAt){r, i}));
}

/* The member of a group on the same channel as member k that comes after it; n: none. */
static uint32_t next_on(const Writer *m, uint32_t r, const uint32_t *row, uint32_t n, uint32_t k) {
  const MachineInstr *in = &m->list[r].instr[row[k]];
  for (uint32_t i = k + 1; i < n; i++) {
    const MachineInstr *other = &m->list[r].instr[row[i]];
    if (other->kind == in->kind && other->peer == in->peer)
      return i;
  }
  return n;
}

/* Member k of a group, a SEND, as an option that is open at its `left--`: once it is next on its
 * channel, its bytes fit, and those above it that do not have been received. */
static void send_bytes(const Writer *m, uint32_t r, const uint32_t *row, uint32_t k,
                       const uint32_t *nth) {
  const MachineInstr *in = &m->list[r].instr[row[k]];
  const char *pair = channel(m, r, in) + 1;
  unsigned long long bytes = in->bytes, room = m->s->opt->model.buffer;
  fprintf(m->f, "  :: atomic { v%u != unread", k);
  for (uint32_t i = 0; i < k; i++) {
    const MachineInstr *above = &m->list[r].instr[row[i]];
    if (above->kind == MACHINE_SEND && above->peer == in->peer && too_big(m, above))
      fprintf(m->f, " && got%s >= %u", pair, nth[row[i]]);
  }
  if (too_big(m, in))
    fprintf(m->f, " -> v%u!%u,0; ", k, tag(m, in->tensor));
  else
    fprintf(m->f, " && used%s <= %llu - %llu -> used%s = used%s + %llu; v%u!%u,%llu; ", pair, room,
            bytes, pair, pair, bytes, k, tag(m, in->tensor), bytes);
}

/* n instructions of queue q that are a group: all are posted once all may be, and done once all
 * are. */
static void together(const Writer *m, uint32_t q, uint32_t r, const uint32_t *row, uint32_t n,
                     const uint32_t *nth, const uint32_t *members) {
  Sched *s = m->s;
  uint32_t moves = 0;
  for (uint32_t k = 0; k < n; k++)
    fprintf(m->f, "  /* %s */\n", list_text(s, (MachineAt){r, row[k]}));
  fprintf(m->f, "  ");
  begin(m, r, row[0]);
  for (uint32_t k = 0; k < n; k++) {
    const MachineInstr *in = &m->list[r].instr[row[k]];
    bool first = true;
    for (uint32_t i = 0; i < k; i++)
      first &= next_on(m, r, row, n, i) != k;
    if (in->kind == MACHINE_ALL)
      come(m, in, nth[row[k]], members[in->peer]);
    else
      fprintf(m->f, "v%u = %s; ", k,
              first                      ? channel(m, r, in)
              : in->kind == MACHINE_SEND ? "unread"
                                         : "unsent");
    moves += in->kind != MACHINE_ALL;
  }
  fprintf(m->f, "left = %u;\n  do\n", moves);
  for (uint32_t k = 0; k < n; k++) {
    const MachineInstr *in = &m->list[r].instr[row[k]];
    uint32_t next = next_on(m, r, row, n, k);
    if (in->kind == MACHINE_ALL)
      continue;
    bool send = in->kind == MACHINE_SEND, bytes = send && counts_bytes(m);
    if (bytes)
      send_bytes(m, r, row, k, nth);
    else if (send)
      fprintf(m->f, "  :: v%u!%u,0 -> ", k, tag(m, in->tensor));
    else
      fprintf(m->f, "  :: v%u?x,b -> assert(x == %u); ", k, tag(m, in->tensor));
    if (!send && counts_bytes(m))
      receive_bytes(m, r, in);
    fprintf(m->f, "v%u = %s; ", k, send ? "unread" : "unsent");
    if (next < n)
      fprintf(m->f, "v%u = %s; ", next, channel(m, r, in));
    fprintf(m->f, bytes ? "left-- }\n" : "left--\n");
  }
  fprintf(m->f, "  :: left == 0 -> break\n  od; ");
  for (uint32_t k = 0; k < n; k++) {
    const MachineInstr *in = &m->list[r].instr[row[k]];
    if (in->kind == MACHINE_ALL)
      fprintf(m->f, "come[%u] >= %u; ", in->peer, nth[row[k]] * members[in->peer]);
    else if (in->kind == MACHINE_SEND && too_big(m, in))
      fprintf(m->f, "got%s >= %u; ", channel(m, r, in) + 1, nth[row[k]]);
  }
  end(m, r, row[n - 1], q, n);
  fprintf(m->f, "\n");
}

/* How many instructions of a queue, from the k-th on, are one group. */
static uint32_t group_at(const Writer *m, uint32_t r, const uint32_t *row, uint32_t n, uint32_t k) {
  const MachineInstr *in = &m->list[r].instr[row[k]];
  uint32_t last = row[k] + in->group, size = 1;
  if (in->kind == MACHINE_COMPUTE || in->kind == MACHINE_COPY)
    return 1;
  while (k + size < n && row[k + size] <= last)
    size++;
  return size;
}

/* NULL: it is written; or why SPIN cannot take it. */
static const char *write_model(Sched *s, FILE *f) {
  Writer m = {.s = s, .f = f, .list = s->verdict->machine_list};
  const ChannelModel *model = &s->opt->model;
  if (model->buffer > MOST_MESSAGES && !model->in_bytes && model->channels != CHANNELS_TAGGED)
    return "a channel of SPIN holds at most 255 messages";
  if (model->in_bytes && model->buffer > INT32_MAX)
    return "an int of SPIN holds less than 2 GiB";
  if (!find_queues(&m))
    return "SPIN has room for 254 processes, one for each queue of each rank";
  fprintf(f, "/* %s%s%s under the model: %s.\n", escaped(s, ESCAPE_C, s->model->name),
          *s->model->params ? ", " : "", escaped(s, ESCAPE_C, s->model->params), model_text(s));
  fprintf(f, " * spin -a FILE && cc -O2 -DSAFETY -DVECTORSZ=%u pan.c -o pan && ./pan\n",
          4096 + 64 * m.queue.n);
  fprintf(f,
          " * An invalid end state is a deadlock, a violated assertion a mispaired transfer. */\n");
  fprintf(f, "short n[%u]; /* instructions that each queue has done */\n", m.queue.n);
  fprintf(f, "short gone[%u]; /* and carried out, of a group in several queues */\n", m.queue.n);
  fprintf(f, "chan unread = [0] of { int, int };\nchan unsent = [0] of { int, int };\n");
  declare_channels(&m);
  /* Rows of each queue's instructions, in order. */
  uint32_t **row = NEW_ARRAY(s->arena, uint32_t *, m.queue.n);
  for (uint32_t q = 0; q < m.queue.n; q++)
    row[q] = NEW_ARRAY(s->arena, uint32_t, m.queue.at[q].n);
  uint32_t ncoll = 2 * s->model->nmodel + s->model->nstage +
                   s->model->nrank, /* side ops are alone in theirs */
      *members = NEW_ARRAY(s->arena, uint32_t, ncoll);
  uint32_t **nth = NEW_ARRAY(s->arena, uint32_t *, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t *count = NEW_ARRAY(s->arena, uint32_t, 2 * (size_t)s->model->nrank + ncoll);
    nth[r] = NEW_ARRAY(s->arena, uint32_t, m.list[r].n);
    for (uint32_t i = 0; i < m.list[r].n; i++) {
      const MachineInstr *in = &m.list[r].instr[i];
      row[m.of[r][i]][m.at[r][i]] = i;
      if (in->kind == MACHINE_COMPUTE || in->kind == MACHINE_COPY)
        continue;
      uint32_t *c = in->kind == MACHINE_ALL ? &count[2 * s->model->nrank + in->peer]
                                            : &count[2 * in->peer + (in->kind == MACHINE_RECV)];
      if (in->kind == MACHINE_ALL)
        members[in->peer] += *c == 0;
      nth[r][i] = ++*c;
    }
  }
  for (uint32_t q = 0; q < m.queue.n; q++) {
    const Queue *u = &m.queue.at[q];
    uint32_t most = 1, size;
    for (uint32_t k = 0; k < u->n; k += size) {
      size = group_at(&m, u->rank, row[q], u->n, k);
      most = size > most ? size : most;
    }
    fprintf(f, "active proctype rank%u_%s%u() {\n  int x, b;\n", u->rank,
            u->key ? "queue" : "compute", q);
    for (uint32_t k = 0; most > 1 && k < most; k++)
      fprintf(f, "  chan v%u;\n%s", k, k ? "" : "  int left;\n");
    for (uint32_t k = 0; k < u->n; k += size) {
      size = group_at(&m, u->rank, row[q], u->n, k);
      if (size > 1) {
        together(&m, q, u->rank, row[q] + k, size, nth[u->rank], members);
        continue;
      }
      const MachineInstr *in = &m.list[u->rank].instr[row[q][k]];
      instruction(&m, q, u->rank, row[q][k], nth[u->rank][row[q][k]],
                  in->kind == MACHINE_ALL ? members[in->peer] : 0);
    }
    fprintf(f, "}\n");
  }
  return NULL;
}

static const char *value_of(const char *arg, const char *option) {
  size_t n = strlen(option);
  return strncmp(arg, option, n) == 0 ? arg + n : NULL;
}

static int word_of(const char *word, const char *const *list, int n) {
  for (int i = 0; i < n; i++)
    if (strcmp(word, list[i]) == 0)
      return i;
  fprintf(stderr, "promela: %s\n", word);
  exit(2);
}

/* One argument, as pipec takes it. */
static void read_option(Arena *a, Options *o, char *arg) {
  static const char *const channels[] = {"rank", "pair", "edge", "tagged"};
  static const char *const lowering[] = {"global", "channels"};
  const char *v;
  char *end;
  if ((v = value_of(arg, "-D")) && strchr(v, '=')) {
    size_t n = (size_t)(strchr(v, '=') - v);
    o->define[o->ndefine++] = (Define){
        .name = arena_strndup(a, v, n), .value = strtol(v + n + 1, NULL, 10), .n = 1};
  } else if ((v = value_of(arg, "--channels="))) {
    o->model.channels = (MachineChannels)word_of(v, channels, 4);
  } else if ((v = value_of(arg, "--lowering="))) {
    o->lowering = 1 + word_of(v, lowering, 2);
  } else if ((v = value_of(arg, "--schedule="))) {
    o->schedule = v;
  } else if ((v = value_of(arg, "--profile="))) {
    o->profile = v;
  } else if ((v = value_of(arg, "--sends=buffered:"))) {
    o->model.buffer = strtoul(v, &end, 10), o->model.in_bytes = *end == 'B';
  } else if (*arg != '-') {
    o->input = arg;
  } else {
    fprintf(stderr, "promela: %s\n", arg);
    exit(2);
  }
}

/* Compiles as far as the lists are there and judged. False: refuted. */
static bool judged(Sched *s, bool emitted) {
  static Verdict verdict;
  if (!compile_only(s))
    return false;
  if (emitted) {
    s->verdict = &verdict;
    verdict.machine_list = emitted_lists(s->arena, s->prog, false);
    return true;
  }
  if (s->verdict->machine_list)
    return true;
  s->verdict = &verdict;
  return check_channels(s, &verdict);
}

int main(int argc, char **argv) {
  Arena arena = {0};
  Diag diag;
  Options opt = {.emit = EMIT_NONE,
                 .check_only = true,
                 .out = stderr,
                 .stdlib = getenv("PIPE_STDLIB"),
                 .define = NEW_ARRAY(&arena, Define, (size_t)argc)};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stderr);
  const bool emitted = argc > 1 && strcmp(argv[1], "--emitted") == 0;
  for (int i = 1 + emitted; i < argc; i++)
    read_option(&arena, &opt, argv[i]);
  if (!opt.input)
    return 2;
  bool proved = judged(&s, emitted);
  const char *why = s.verdict->machine_list ? write_model(&s, stdout) : "there are no lists";
  if (why)
    fprintf(stderr, "promela: %s\n", why);
  arena_free(&arena);
  return why ? 2 : !proved;
}
