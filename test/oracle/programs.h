/* SPDX-License-Identifier: MIT
 * Schedules whose programs have every kind of instruction and of table, for faults that are planted
 * in them: chains, several stages a rank, copies to host memory and to other ranks, edges and ties,
 * microbatches that are dealt out, R, actions and replicas, side ops. */
#ifndef PROGRAMS_H
#define PROGRAMS_H

static const char *const program_text[] = {
    "schedule a() { ranks 3 pipe n stages 3 mbs 4 place s -> s\n"
    "  order r { steady m { F(m) B(m - (2-r)) } U }\n"
    "  bytes s { act = 100 + s gout = 7 boundary = 70 weight = 1000 opt = 3 work = 65 } }\n",
    "schedule b() { ranks 2 pipe n stages 5 mbs 3 place s -> s < 2 ? 0 : s < 4 ? 1 : 0\n"
    "  order r in 0..1 { do m in 0..3 { F[0](m) F[1](m) } do m in 0..3 { F[2](m) I[2](m) }\n"
    "    do m in 0..3 { I[1](m) I[0](m) } do m in 0..3 { W[0](m) W[1](m) W[2](m) } U }\n"
    "  order r in 1..2 { do m in 0..3 { F[0](m) F[1](m) } do m in 0..3 { B[1](m) B[0](m) } U } }\n",
    "schedule c() { ranks 2 pipe n stages 2 mbs 6 place s -> s time { OFF = 1 }\n"
    "  bytes { act = 100 boundary = 10 }\n"
    "  order r { do m in 0..6 { F(m) } do m in 0..6 { B(m) } U } offload s, m when m < 4 }\n",
    "schedule d() { ranks 3 pipe n stages 3 mbs 6 place s -> s time { OFF = 1 }\n"
    "  bytes { act = 100 boundary = 10 }\n"
    "  order r { do m in 0..6 { F(m) } do m in 0..6 { B(m) } U } offload s, m -> 2 when s < 2 && m < 4 }\n",
    "schedule e() { ranks 4 pipe n stages 4 mbs 3 place s -> s edge 0 -> 2 edge 0 -> 3 tie 0, 3 tie 1, 2\n"
    "  order r { steady m { F(m) B(m - (3-r)) } U }\n"
    "  bytes s { act = 100 + s boundary = 70 edge = 40 weight = 1000 tied = 64 } }\n",
    "schedule f() { ranks 4 pipe n dag stages 3 mbs 4 place s, m -> s == 1 ? 2 + m % 2 : s / 2\n"
    "  edge 0 -> 1 edge 0 -> 2 edge 1 -> 2\n"
    "  order r in 0..1 { do m in 0..4 { F(m) } do m in 0..4 { B(m) } U }\n"
    "  order r in 1..2 { do m in 0..4 { F(m) } do m in 0..4 { I(m) } do m in 0..4 { W(m) } U }\n"
    "  order r in 2..4 { do 2 { F } do 2 { B } U } }\n",
    "schedule h() { ranks 2 pipe n stages 2 mbs 3 place s -> s\n"
    "  order r { F F F R(1) B(0) B(1) R(2) B(2) U }\n"
    "  bytes s { act = 100 boundary = 70 + s } }\n",
    "schedule g() { ranks 2 pipe a stages 2 mbs 4 place s -> s pipe b stages 2 mbs 4 place s -> 1-s replica of a\n"
    "  order r in 0..1 { a.F b.F do 3 { overlap { a.F b.B } overlap { b.F a.B } } b.B a.I W U }\n"
    "  order r in 1..2 { b.F a.F do 3 { overlap { b.F a.B } overlap { a.F b.B } } a.B b.I W U }\n"
    "  send eager time { F = 4 B = 8 FB = 9 } bytes s { act = 100 boundary = 70 } }\n",
    "schedule k() { ranks 2 pipe n stages 4 mbs 3 place s -> s % 2 time { F = 4 OFF = 1 }\n"
    "  bytes { act = 100 boundary = 10 }\n"
    "  side GET(s) on comm before first F { cost = 2 memory = 64 }\n"
    "  side LOOK(s) on comm before first F { cost = 1 }\n"
    "  side PUT(s) on compute after last B gives GET { cost = 1 }\n"
    "  side EV(s, m) on copy after F when m > 0 { memory = 70 }\n"
    "  side BK(s, m) on copy after F before B gives EV when m > 0\n"
    "  exclusive r -> 0 offload s, m when m == 0\n"
    "  order r { do 3 { F[0] } do 3 { F[1] } do m in 0..3 { B[1](m) } do m in 0..3 { B[0](m) } U } }\n",
};
enum { NPROGRAMS = sizeof program_text / sizeof *program_text };

#endif
