/* SPDX-License-Identifier: MIT
 * Makes text for the timeline picture. Numbers are rounded and printed as integers, so that the
 * locale's decimal point and grouping do not matter. */
#include "svg_text.h"

#include <math.h>
#include <string.h>

#include "escape.h"

static const SvgUnit time_unit[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "\302\265s"}, {1, "ns"}};
static const SvgUnit plain_unit = {1, "units"};
static const SvgUnit byte_unit[] = {{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}};

double svg_letters(const PipeProgram *p, uint32_t mb) {
  double digits = 1;
  if (mb != PIPE_NONE && p->slices > 1) {
    digits = 1.5;
    for (uint32_t q = mb % p->slices; q >= 10; q /= 10)
      digits++;
    mb /= p->slices;
    digits++;
  }
  for (; mb != PIPE_NONE && mb >= 10; mb /= 10)
    digits++;
  return digits;
}

const char *svg_fixed(char buf[SVG_NUMBER], double v, int decimals, bool trim) {
  long long one = 1;
  for (int i = 0; i < decimals; i++)
    one *= 10;
  long long n = llround(fabs(v) * (double)one), rest = n % one;
  const char *sign = v < 0 && n ? "-" : "";
  while (trim && decimals > 0 && rest % 10 == 0) {
    rest /= 10;
    decimals--;
  }
  int len = snprintf(buf, SVG_NUMBER - 24, "%s%lld", sign, n / one);
  if (decimals > 0)
    buf[len++] = '.';
  for (int i = decimals; i > 0; i--, rest /= 10)
    buf[len + i - 1] = (char)('0' + rest % 10);
  buf[len + decimals] = 0;
  return buf;
}

const char *svg_digits(char buf[SVG_NUMBER], double v, int digits, bool trim) {
  int decimals = digits - 1;
  for (double w = fabs(v); w >= 10 && decimals > 0; w /= 10)
    decimals--;
  return svg_fixed(buf, v, decimals, trim);
}

static const SvgUnit *pick(double v, const SvgUnit unit[4]) {
  int i = 0;
  while (i < 3 && v < unit[i].per * 0.9995)
    i++;
  return &unit[i];
}

const SvgUnit *svg_byte_unit(double bytes) { return pick(bytes, byte_unit); }

const SvgUnit *svg_time_unit(double v, int timed) {
  return timed ? pick(v, time_unit) : &plain_unit;
}

const char *svg_time(char buf[SVG_NUMBER], double v, int timed) {
  const SvgUnit *u = svg_time_unit(v, timed);
  svg_digits(buf, v / u->per, 4, u->per == 1);
  size_t len = strlen(buf);
  snprintf(buf + len, SVG_NUMBER - len, " %s", v == 1 && !timed ? "unit" : u->name);
  return buf;
}

const char *svg_percent(char buf[SVG_NUMBER], double share) {
  svg_fixed(buf, share * 100, 1, false);
  size_t len = strlen(buf);
  snprintf(buf + len, SVG_NUMBER - len, " %%");
  return buf;
}

void svg_vemit(FILE *out, const char *fmt, va_list ap) {
  char num[SVG_NUMBER];
  for (; *fmt; fmt++)
    switch (*fmt) {
    case '~': fputs(svg_fixed(num, va_arg(ap, double), 2, true), out); break;
    case '$': escape_put(out, ESCAPE_XML, va_arg(ap, const char *)); break;
    case '#': fprintf(out, "%u", va_arg(ap, unsigned)); break;
    default: putc(*fmt, out);
    }
}

void svg_emit(FILE *out, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  svg_vemit(out, fmt, ap);
  va_end(ap);
}
