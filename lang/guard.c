/* SPDX-License-Identifier: MIT
 * The guard of each thread, the only global state of the compiler. */
#include "guard.h"

#include <stdarg.h>
#include <stdlib.h>

static _Thread_local Guard *here;

GuardEnd guard_run(Guard *g, void (*run)(void *arg), void *arg) {
  Guard *outer = here;
  *g = (Guard){.ring = {.older = &g->ring, .newer = &g->ring}};
  here = g;
  if (setjmp(g->back) == 0)
    run(arg);
  here = outer;
  return g->end;
}

void guard_release(Guard *g) {
  while (g->ring.older != &g->ring) {
    Held *h = g->ring.older;
    guard_drop(h);
    h->end(h);
  }
}

void guard_fail(GuardEnd end, const char *fmt, ...) {
  char why[sizeof here->why];
  va_list args;
  va_start(args, fmt);
  vsnprintf(why, sizeof why, fmt, args);
  va_end(args);
  if (!here) {
    fprintf(stderr, "pipec: %s: %s\n", end == GUARD_BUG ? "internal error" : "failed", why);
    abort();
  }
  here->end = end;
  snprintf(here->why, sizeof here->why, "%s", why);
  longjmp(here->back, 1);
}

void guard_stop(const volatile int *stop) {
  if (here)
    here->stop = stop;
}

const volatile int *guard_stopper(void) { return here ? here->stop : NULL; }

void guard_poll(void) {
  if (here && here->stop && __atomic_load_n(here->stop, __ATOMIC_RELAXED))
    guard_fail(GUARD_STOPPED, "stopped by the caller");
}

void guard_no_memory(size_t wanted) {
  if (wanted)
    guard_fail(GUARD_MEMORY, "out of memory (wanted %zu bytes)", wanted);
  guard_fail(GUARD_MEMORY, "out of memory");
}

void guard_hold(Held *h) {
  h->older = h->newer = h;
  if (!here)
    return;
  h->older = here->ring.older, h->newer = &here->ring;
  h->older->newer = h->newer->older = h;
}

void guard_drop(Held *h) {
  h->older->newer = h->newer, h->newer->older = h->older;
  h->older = h->newer = h;
}

typedef struct Owned {
  Held held;
  void (*end)(void *what);
  void *what;
} Owned;

static void end_owned(Held *h) {
  Owned *o = (Owned *)h;
  o->end(o->what);
  free(o);
}

void *guard_own(void *what, void (*end)(void *what)) {
  if (!what || !here)
    return what;
  Owned *o = malloc(sizeof *o);
  if (!o) {
    end(what);
    guard_no_memory(sizeof *o);
  }
  *o = (Owned){.held.end = end_owned, .end = end, .what = what};
  guard_hold(&o->held);
  return what;
}

void guard_end(void *what, void (*end)(void *what)) {
  if (!what)
    return;
  for (Held *h = here ? here->ring.older : NULL; h && h != &here->ring; h = h->older)
    if (h->end == end_owned && ((Owned *)h)->what == what) {
      guard_drop(h);
      h->end(h);
      return;
    }
  end(what);
}

static void close_file(void *f) { fclose(f); }

FILE *guard_open(const char *path) { return guard_own(fopen(path, "rb"), close_file); }

void guard_close(FILE *f) { guard_end(f, close_file); }

static void end_text(void *of) {
  GuardText *t = of;
  fclose(t->f);
  free(t->text);
  free(t);
}

GuardText *guard_text(void) {
  GuardText *t = calloc(1, sizeof *t);
  if (t && !(t->f = open_memstream(&t->text, &t->n))) {
    free(t);
    t = NULL;
  }
  if (!t)
    guard_no_memory(0);
  return guard_own(t, end_text);
}

void guard_text_done(GuardText *t) {
  if (fflush(t->f) != 0 || ferror(t->f))
    guard_no_memory(0);
}

void guard_text_end(GuardText *t) { guard_end(t, end_text); }
