/* SPDX-License-Identifier: MIT
 * Numbers the points of -D with several values (sweep.h). */
#include "sweep.h"

#include <inttypes.h>
#include <string.h>

#include "base.h"

bool sweep_any(const Options *opt) {
  for (uint32_t i = 0; i < opt->ndefine; i++)
    if (opt->define[i].n > 1)
      return true;
  return false;
}

/* The other -D of the same parameter as define[i]; NULL: none. */
static const Define *given_again(const Options *opt, uint32_t i) {
  for (uint32_t k = 0; k < opt->ndefine; k++)
    if (k != i && strcmp(opt->define[k].name, opt->define[i].name) == 0)
      return &opt->define[k];
  return NULL;
}

uint64_t sweep_points(Sched *s, uint64_t most) {
  const Options *opt = s->opt;
  uint64_t points = 1;
  for (uint32_t i = 0; i < opt->ndefine; i++) {
    const Define *define = &opt->define[i];
    const Define *again = define->n > 1 ? given_again(opt, i) : NULL;
    if (again) {
      diag_error(s->diag, DIAG_USAGE, NO_SPAN, "-D %s and -D %s give one parameter values twice",
                 define->text, again->text);
      return 0;
    }
    if (points > most / define->n) {
      diag_error(s->diag, DIAG_TOO_LARGE, NO_SPAN,
                 "the ranges of -D have more than %" PRIu64 " points", most);
      return 0;
    }
    points *= define->n;
  }
  return points;
}

void sweep_go_to(Define *define, uint32_t n, uint64_t point) {
  for (uint32_t i = n; i-- > 0;) {
    const uint64_t at = point % define[i].n;
    const uint64_t above = at * (uint64_t)define[i].step; /* of LO: may exceed INT64_MAX */
    point /= define[i].n;
    define[i].value = define[i].list ? define[i].list[at]
                                     : (int64_t)((uint64_t)define[i].lo + above);
  }
}

const char *sweep_text(Arena *arena, const Define *define, uint32_t n) {
  const char *text = "";
  for (uint32_t i = 0; i < n; i++)
    if (define[i].n > 1)
      text = arena_printf(arena, "%s%s%s = %" PRId64, text, *text ? ", " : "", define[i].name,
                          define[i].value);
  return text;
}
