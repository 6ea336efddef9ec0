/* SPDX-License-Identifier: MIT
 * See samples.h. */
#include "samples.h"
#include "driver.h"

#include <string.h>

static const char copies[] =
    "schedule copies(P = 3, M = 5) { ranks P  pipe net stages P mbs M place s -> s\n"
    "  order r { steady m { F(m) B(m - (P-1-r)) } U }  offload }\n";
static const char skips[] =
    "schedule skips(P = 4, M = 6) { ranks P  pipe net stages P mbs M place s -> s\n"
    "  edge 0 -> 3  edge 0 -> 2  tie 0, 3\n"
    "  order r { steady m { F(m) B(m - (P-1-r)) } U } }\n";
static const char joined[] =
    "schedule joined(P = 4, M = 9) { ranks P  pipe net stages P mbs M place s -> s\n"
    "  order r { do m in 0..min(M, P-1-r) { F(m) }\n"
    "    do m in 0..M-(P-1-r) { overlap { F(m + P-1-r) if m > 0 { B(m - 1) } } }\n"
    "    do m in max(0, M-(P-1-r)-1)..M { B(m) } U } }\n";
static const char towers[] =
    "schedule towers(M = 4) { ranks 3  pipe net dag stages 5 mbs M place s -> s / 2\n"
    "  edge 0 -> 1  edge 2 -> 3  edge 1 -> 4  edge 3 -> 4  tie 0, 1, 2\n"
    "  order r in 0..2 { do m in 0..M { F[0](m)  F[1](m) }  do m in 0..M { B[1](m)  B[0](m) }  U }\n"
    "  order r in 2..3 { do M { F  B }  U } }\n";
static const char dealt[] =
    "schedule dealt(M = 6) { ranks 4  pipe net stages 3 mbs M place s, m -> s == 0 ? m % 2 : s + 1\n"
    "  order r in 0..2 { do (M+1-r)/2 { F }  do (M+1-r)/2 { B }  U }\n"
    "  order r in 2..4 { do M { F  B }  U } }\n";
static const char cut[] =
    "schedule cut(P = 3, M = 3, Q = 2) { ranks P  pipe net stages P mbs M slices Q place s -> s\n"
    "  order r { op f(k) = F(k/Q, k%Q)  op b(k) = B(k/Q, Q-1 - k%Q)\n"
    "    steady k in 0..M*Q { f(k)  b(k - (P-1-r + Q-1)) } U } }\n";

static const char sided[] =
    "schedule sided(P = 3, M = 5) { ranks P  pipe net stages 2*P mbs M place s -> s % P\n"
    "  bytes s { act = 72  gout = 72  boundary = s < 2*P-1 ? 72 : 0  weight = 72  grad = 72  opt = 72  work = 72 }\n"
    "  side GATHER(s) on comm latest before first F { cost = 1  memory = 72 }\n"
    "  side FREE(s) on compute after last B gives GATHER\n"
    "  side AWAY(s, m) on copy after F when m % 2 == 0 { memory = 72 }\n"
    "  side BACK(s, m) on copy latest before B gives AWAY when m % 2 == 0\n"
    "  side CLIP_U(s) on compute before U\n"
    "  order r { do m in 0..M { F[0](m)  F[1](m) }  do m in 0..M { B[1](m)  B[0](m) }  U } }\n";
static const char switched[] = "schedule switched(P = 4, M = 5) { ranks P  exclusive r -> r / 2\n"
                               "  pipe net stages P mbs M place s -> s\n"
                               "  time { F = 4  B = 8  OFF = 2  LOAD = 2 }\n"
                               "  order r { steady m { F(m) B(m - (P-1-r)) } U }  offload }\n";
/* Transfers of four ranks wait for one link between two nodes, which moves instructions in the
 * lists. */
static const char linked[] =
    "schedule linked(P = 4, M = 6) { ranks P  pipe net stages 2*P mbs M place s -> s % P\n"
    "  exclusive a, b -> a / 2 == b / 2 ? -1 : 0  time { F = 2  B = 4  send = 3 }\n"
    "  order r { do m in 0..M { F[0](m)  F[1](m) }  do m in 0..M { B[1](m)  B[0](m) }  U } }\n";
/* CSV files with groups of transfers: what an op leaves with what the next one reads; and two
 * chunks on a rank, so that a group has several transfers between the same two ranks. */
static const char grouped[] =
    "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2+0RECV_B0,0B0,0F3,0SEND_F3+0RECV_B1,0B1,0F4,"
    "0SEND_F4+0RECV_B2,0B2,0RECV_B3,0B3,0RECV_B4,0B4\n"
    "1RECV_F0,1F0,1SEND_F0+1RECV_F1,1F1,1SEND_F1+1RECV_B0,1B0,1SEND_B0+1RECV_F2,1F2,"
    "1SEND_F2+1RECV_B1,1B1,1SEND_B1+1RECV_F3,1F3,1SEND_F3+1RECV_B2,1B2,1SEND_B2+1RECV_F4,1F4,"
    "1SEND_F4+1RECV_B3,1B3,1SEND_B3+1RECV_B4,1B4,1SEND_B4\n"
    "2RECV_F0,2F0,2B0,2SEND_B0+2RECV_F1,2F1,2B1,2SEND_B1+2RECV_F2,2F2,2B2,2SEND_B2+2RECV_F3,"
    "2F3,2B3,2SEND_B3+2RECV_F4,2F4,2B4,2SEND_B4\n";
static const char chunks[] =
    "0F0,0SEND_F0+2RECV_F0,0F1,2F0,0SEND_F1+2SEND_F0+2RECV_F1,0F2,2F1,"
    "0SEND_F2+2SEND_F1+2RECV_F2,0F3,2F2,0SEND_F3+2SEND_F2+2RECV_F3,0F4,2F3,"
    "0SEND_F4+2SEND_F3+2RECV_F4,2F4,2SEND_F4+2RECV_B0,2B0,2SEND_B0+0RECV_B0,0B0,2RECV_B1,2B1,"
    "2SEND_B1+0RECV_B1,0B1,2RECV_B2,2B2,2SEND_B2+0RECV_B2,0B2,2RECV_B3,2B3,2SEND_B3+0RECV_B3,"
    "0B3,2RECV_B4,2B4,2SEND_B4+0RECV_B4,0B4\n"
    "1RECV_F0,1F0,1SEND_F0+1RECV_F1+3RECV_F0,1F1,3F0,1SEND_F1+1RECV_F2+3RECV_F1,1F2,3F1,"
    "1SEND_F2+1RECV_F3+3RECV_F2,1F3,3F2,1SEND_F3+1RECV_F4+3RECV_F3,1F4,3F3,1SEND_F4+3RECV_F4,"
    "3F4,3B0,3SEND_B0+1RECV_B0,1B0,1SEND_B0,3B1,3SEND_B1+1RECV_B1,1B1,1SEND_B1,3B2,"
    "3SEND_B2+1RECV_B2,1B2,1SEND_B2,3B3,3SEND_B3+1RECV_B3,1B3,1SEND_B3,3B4,3SEND_B4+1RECV_B4,"
    "1B4,1SEND_B4\n";
/* Two copies of a pipeline on ranks of their own, which share out the microbatches and sum their
 * gradients. */
static const char copied[] =
    "schedule copied(P = 3, M = 8) { ranks 2*P\n"
    "  pipe one stages P mbs M/2 place s -> s  pipe two stages P mbs M/2 place s -> P + s replica of one\n"
    "  order r in 0..P { steady m in 0..M/2 { one.F(m)  one.B(m - (P-1-r)) } U }\n"
    "  order r in P..2*P { steady m in 0..M/2 { two.F(m)  two.B(m - (2*P-1-r)) } U } }\n";

/* Transfers longer than a forward: in the order of a list schedule, and with the lowering that
 * pipec chooses. */
#define SLOW(lowering) \
  "schedule slow(P = 4, M = 9) { ranks P  transfers " lowering "\n" \
  "  pipe net stages P mbs M place s -> s  time { F = 10  B = 20  send = 15 }\n" \
  "  order r { steady m { F(m)  B(m - (P-1-r)) } U } }\n"

/* A rank that meets seven others, in both directions. */
static const char hub[] =
    "schedule hub(M = 2) { ranks 8  pipe net dag stages 8 mbs M place s -> s\n"
    "  edge 0 -> 1  edge 0 -> 2  edge 0 -> 3  edge 0 -> 4  edge 0 -> 5  edge 0 -> 6  edge 0 -> 7\n"
    "  order r { do M { F }  do M { B }  U } }\n";

const Sample samples[] = {
    {"naive", NULL, 3, 2},
    {"gpipe", NULL, 4, 5},
    {"1f1b", NULL, 4, 9},
    {"interleaved", NULL, 3, 6},
    {"zb_h1", NULL, 4, 8},
    {"zb_v", NULL, 3, 7},
    {"dualpipev", NULL, 2, 6},
    {"gems", NULL, 4, 6},
    {"chimera", NULL, 4, 4},
    {"hanayo", NULL, 2, 8},
    {"bpipe", NULL, 4, 9},
    {"varuna_recompute", NULL, 3, 5},
    {"inference", NULL, 3, 4},
    {"pipedream_2bw", NULL, 3, 6},
    {"copies", copies, 0, 0},
    {"pipedream", NULL, 4, 9},
    {"skips", skips, 0, 0},
    {"towers", towers, 0, 0},
    {"dealt", dealt, 0, 0},
    {"cut", cut, 0, 0},
    {"joined", joined, 0, 0},
    {"sided", sided, 0, 0},
    {"switched", switched, 0, 0},
    {"grouped", grouped, 0, 0},
    {"copied", copied, 0, 0},
    {"chunks", chunks, 0, 0},
    {"linked", linked, 0, 0},
    {"slow", SLOW("global"), 0, 0},
    {"slow auto", SLOW("auto"), 0, 0},
    {"1f1b channels", NULL, 3, 6},
    {"zb_v channels", NULL, 3, 6},
    {"chimera channels", NULL, 4, 4},
    {"skips channels", skips, 0, 0},
    {"sided channels", sided, 0, 0},
    {"switched channels", switched, 0, 0},
    {"copied channels", copied, 0, 0},
    {"hub channels", hub, 0, 0},
};
const uint32_t nsamples = sizeof samples / sizeof *samples;

bool sample_compile(Program *c, const char *stdlib, const Sample *of) {
  const Define define[2] = {{.name = "P", .value = of->P, .n = 1},
                            {.name = "M", .value = of->M, .n = 1}};
  char name[256];
  const int library = of->text ? (int)strlen(of->name) : (int)strcspn(of->name, " ");
  snprintf(name, sizeof name, "%.*s%s", library, of->name,
           of->text && *of->text == '0' ? ".csv" : "");
  return program_open_as(c, of->text ? NULL : stdlib, name, of->text, define, of->text ? 0 : 2,
                         NULL, strstr(of->name, " channels") ? 1 + PIPE_CHANNELS : 0);
}
