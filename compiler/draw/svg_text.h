/* SPDX-License-Identifier: MIT
 * Text for pictures: numbers that ignore the locale, numbers with units, and text that
 * is escaped for XML. */
#ifndef PIPE_SVG_TEXT_H
#define PIPE_SVG_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "pipe_instr.h"

enum { SVG_NUMBER = 64 }; /* bytes; room for any number with its unit; longer text is cut */

typedef struct SvgUnit {
  double per; /* ns, bytes or abstract units in one of this unit */
  const char *name;
} SvgUnit;

/* The largest unit that is not larger than the value: s ms us ns, GiB MiB KiB B. Not timed:
 * "units". */
const SvgUnit *svg_time_unit(double v, int timed);
const SvgUnit *svg_byte_unit(double bytes);

/* These return buf. trim: drop zeros at the end of the decimals. digits: significant digits; all
 * digits before the point are shown. At most 18 decimals. */
const char *svg_fixed(char buf[SVG_NUMBER], double v, int decimals, bool trim);
const char *svg_digits(char buf[SVG_NUMBER], double v, int digits, bool trim);
const char *svg_time(char buf[SVG_NUMBER], double v, int timed); /* "1.234 ms", "33 units" */
const char *svg_percent(char buf[SVG_NUMBER], double share);     /* 0.273: "27.3 %" */

/* The number of letters of an op's label: its microbatch, with slices "3.1", or the letter of U. */
double svg_letters(const PipeProgram *p, uint32_t mb);

/* Writes fmt, with these placeholders:
 *
 *   ~  double: a coordinate, in hundredths
 *   $  string, escaped; '?' for characters that XML 1.0 does not allow
 *   #  unsigned */
void svg_emit(FILE *out, const char *fmt, ...);
void svg_vemit(FILE *out, const char *fmt, va_list ap);

#endif
