/* SPDX-License-Identifier: MIT
 * The lexer (spec.md, section 1). re2c makes a scanner that stops at the NUL after the text; an
 * earlier NUL is reported and treated as white space. The longest match wins, then the first rule.
 *
 * Requires: lx->text_end[0] == 0. Ensures: the span of a token covers its bytes, and every call
 * before the end consumes at least one byte. Cost: linear in the text. */
#include "lexer.h"

#include <stdlib.h>
#include <string.h>

#include "parser.h"

static Span span(const Lexer *lx, const char *beg, const char *end) {
  return (Span){lx->file, (uint32_t)(beg - lx->text), (uint32_t)(end - lx->text)};
}

typedef struct Unit { const char *text; uint8_t kind; int64_t scale; } Unit;
enum { BYTES = 1, TIME = 2 };
static const Unit units[] = {
  {"B", BYTES, 1},
  {"kB", BYTES, 1000},
  {"MB", BYTES, 1000000},
  {"GB", BYTES, 1000000000},
  {"TB", BYTES, 1000000000000},
  {"KiB", BYTES, 1LL << 10},
  {"MiB", BYTES, 1LL << 20},
  {"GiB", BYTES, 1LL << 30},
  {"TiB", BYTES, 1LL << 40},
  {"ns", TIME, 1},
  {"us", TIME, 1000},
  {"ms", TIME, 1000000},
  {"s", TIME, 1000000000},
};

static const Unit *find_unit(const char *text, size_t n) {
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strlen(units[i].text) == n && memcmp(units[i].text, text, n) == 0)
      return &units[i];
  return NULL;
}

bool is_unit(const char *text, size_t n) { return find_unit(text, n) != NULL; }

/* Computes the fraction 0.d1d2..dn times scale exactly, by long multiplication from the last digit.
 * -1: the result is not an integer. */
static int64_t scale_fraction(const char *beg, const char *end, int64_t scale) {
  int64_t carry = 0;
  for (const char *p = end; p-- > beg;) {
    if (*p == '_')
      continue;
    carry += (*p - '0') * scale;
    if (carry % 10 != 0)
      return -1;
    carry /= 10;
  }
  return carry;
}

static const char *skip_digits(const char *p) {
  while ((*p >= '0' && *p <= '9') || (*p == '_' && p[1] >= '0' && p[1] <= '9'))
    p++;
  return p;
}

/* Explains a wrong `unit` after the number [beg, point), by the likely intention. */
static void help_unit(Lexer *lx, const char *beg, const char *point, const char *unit,
                      const char *end) {
  const char *digits = unit + 1, *last = skip_digits(digits);
  bool op = memchr("FBIW", *unit, 4) && last > digits && last == end && unit == point;
  bool name = strcspn(unit, "0123456789_") < (size_t)(end - unit);
  if (name)
    diag_bad_line(lx->diag, span(lx, beg, end)); /* not a number at all */
  if (op)
    diag_help(lx->diag, "an op is written %c(%.*s), or by its stage %c[stage %.*s](%.*s)", *unit,
              (int)(end - digits), digits, *unit, (int)(point - beg), beg, (int)(end - digits),
              digits);
  else if (*unit == 'x' && *beg == '0' && unit == beg + 1)
    diag_help(lx->diag, "a number is decimal");
  else if (name)
    diag_help(lx->diag, "a name begins with a letter");
  else
    diag_help(lx->diag, "units are B kB MB GB TB KiB MiB GiB TiB and ns us ms s");
}

/* The double nearest to a decimal fraction; '_' in it is ignored. */
static double read_real(Lexer *lx, const char *beg, const char *end) {
  char *text = arena_alloc(lx->arena, (size_t)(end - beg) + 1);
  size_t n = 0;
  for (const char *p = beg; p < end; p++)
    if (*p != '_')
      text[n++] = *p;
  text[n] = '\0';
  return strtod(text, NULL);
}

/* Reads digits ["." digits] [unit] at [beg, lx->cur). After an error the value is 1, since later
 * checks could reject 0. */
static void read_number(Lexer *lx, const char *beg, TokenValue *value) {
  const char *end = lx->cur;
  const char *point = skip_digits(beg); /* the '.', or `unit` if there is none */
  const char *unit = point < end && *point == '.' ? skip_digits(point + 1) : point;
  Span at = span(lx, beg, end);
  value->number.value = 1;
  value->number.unit = 0;

  int64_t scale = 1;
  const Unit *found = NULL;
  if (unit < end) {
    found = find_unit(unit, (size_t)(end - unit));
    if (!found) {
      at.beg = (uint32_t)(unit - lx->text);
      if (*unit == '_') {
        diag_error(lx->diag, DIAG_BAD_NUMBER, at, "'_' in a number must stand between two digits");
      } else {
        diag_error(lx->diag, DIAG_BAD_NUMBER, at, "unknown unit '%.*s'", (int)(end - unit), unit);
        help_unit(lx, beg, point, unit, end);
      }
      return;
    }
    scale = found->scale;
    value->number.unit = found->kind;
  } else if (point < unit) {
    value->number.unit = UNIT_REAL; /* the parser knows whether a real is allowed here */
    value->number.real = read_real(lx, beg, end);
    return;
  }

  int64_t whole = 0, fraction = 0, result;
  bool overflow = false;
  for (const char *p = beg; p < point && !overflow; p++)
    if (*p != '_')
      overflow = __builtin_mul_overflow(whole, 10, &whole)
                 || __builtin_add_overflow(whole, *p - '0', &whole);
  if (point < unit)
    fraction = scale_fraction(point + 1, unit, scale);
  if (fraction < 0) {
    diag_error(lx->diag, DIAG_BAD_NUMBER, at, "%.*s is not a whole number of %s",
               (int)(end - beg), beg, found->kind == BYTES ? "bytes" : "ns");
  } else if (overflow || __builtin_mul_overflow(whole, scale, &whole)
             || __builtin_add_overflow(whole, fraction, &result)) {
    diag_error(lx->diag, DIAG_BAD_NUMBER, at, "number above 2^63 - 1%s",
               !found ? "" : found->kind == BYTES ? " bytes" : " ns");
  } else {
    value->number.value = result;
  }
}

/* Unescapes the string between quotes at [beg, end). Reports each bad escape or control byte. */
static bool is_letter(char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

/* Is [beg, lx->cur) a name that begins with a digit, right behind `extends`? The name of a file may
 * begin so, and authors write it for its schedule: a name, which resolve explains. */
static bool is_name_of_file(const Lexer *lx, const char *beg) {
  enum { BYTES_BEFORE = sizeof "extends" - 1 };
  const char *end = beg;
  if (!is_letter(*skip_digits(beg)))
    return false;
  while (end > lx->text && strchr(" \t\r\n", end[-1]))
    end--;
  return end < beg && end - lx->text > BYTES_BEFORE &&
         memcmp(end - BYTES_BEFORE, "extends", BYTES_BEFORE) == 0 &&
         !is_letter(end[-1 - BYTES_BEFORE]);
}

static const char *unescape(Lexer *lx, const char *beg, const char *end) {
  char *text = arena_alloc(lx->arena, (size_t)(end - beg) + 1), *out = text;
  for (const char *p = beg; p < end; p++) {
    if (*p == '\\' && p + 1 < end) {
      p++;
      if (*p != '"' && *p != '\\') {
        diag_error(lx->diag, DIAG_BAD_STRING, span(lx, p - 1, p + 1), "unknown escape '\\%c'", *p);
        diag_help(lx->diag, "a string has the escapes \\\" and \\\\");
      }
      *out++ = *p;
    } else if ((unsigned char)*p < 0x20 || *p == 0x7f) {
      diag_error(lx->diag, DIAG_BAD_STRING, span(lx, p, p + 1), "control byte 0x%02X in a string",
                 (unsigned)*p);
    } else {
      *out++ = *p;
    }
  }
  *out = '\0';
  return text;
}

/* Skips bytes equal to the last one, so that a run of them is one error. */
static void skip_run(Lexer *lx, char byte) {
  while (lx->cur < lx->text_end && *lx->cur == byte)
    lx->cur++;
}

static void embedded_nul(Lexer *lx, const char *beg) {
  lx->cur = beg + 1;
  skip_run(lx, '\0');
  diag_error(lx->diag, DIAG_BAD_BYTE, span(lx, beg, lx->cur), "embedded NUL byte");
}

/* Skips to the end of the line, past embedded NULs. */
static void skip_comment(Lexer *lx) {
  while (lx->cur < lx->text_end && *lx->cur != '\n') {
    if (*lx->cur == '\0')
      embedded_nul(lx, lx->cur);
    else
      lx->cur++;
  }
}

int lex(Lexer *lx, TokenValue *value, Span *at) {
  const char *beg, *mark;
again:
  beg = lx->cur;
#define YYCURSOR lx->cur
#define YYMARKER mark
#define TOKEN(kind) do { *at = span(lx, beg, lx->cur); return TOK_##kind; } while (0)
  /*!re2c
  re2c:yyfill:enable = 0;
  re2c:define:YYCTYPE = "unsigned char";
  re2c:indent:string = "  ";

  digits = [0-9]+ ("_" [0-9]+)*;
  name   = [A-Za-z_] [A-Za-z0-9_]*;
  high   = [\x80-\xff];

  [ \t\r\n]+           { goto again; }
  "#"                  { skip_comment(lx); goto again; }

  "schedule"           { TOKEN(SCHEDULE); }
  "requires"           { TOKEN(REQUIRES); }
  "extends"            { TOKEN(EXTENDS); }
  "import"             { TOKEN(IMPORT); }
  "let"                { TOKEN(LET); }
  "fn"                 { TOKEN(FN); }
  "op"                 { TOKEN(OP); }
  "ranks"              { TOKEN(RANKS); }
  "pipe"               { TOKEN(PIPE); }
  "stages"             { TOKEN(STAGES); }
  "mbs"                { TOKEN(MBS); }
  "place"              { TOKEN(PLACE); }
  "order"              { TOKEN(ORDER); }
  "steady"             { TOKEN(STEADY); }
  "do"                 { TOKEN(DO); }
  "if"                 { TOKEN(IF); }
  "else"               { TOKEN(ELSE); }
  "in"                 { TOKEN(IN); }
  "step"               { TOKEN(STEP); }
  "check"              { TOKEN(CHECK); }
  "limit"              { TOKEN(LIMIT); }
  "for"                { TOKEN(FOR); }
  "time"               { TOKEN(TIME); }
  "bytes"              { TOKEN(BYTES); }
  "profile"            { TOKEN(PROFILE); }
  "stage"              { TOKEN(STAGE); }
  "replica"            { TOKEN(REPLICA); }
  "of"                 { TOKEN(OF); }
  "clip"               { TOKEN(CLIP); }
  "clock"              { TOKEN(CLOCK); }
  "period"             { TOKEN(PERIOD); }
  "rules"              { TOKEN(RULES); }
  "when"               { TOKEN(WHEN); }
  "recompute"          { TOKEN(RECOMPUTE); }
  "slices"             { TOKEN(SLICES); }
  "dag"                { TOKEN(DAG); }
  "tie"                { TOKEN(TIE); }
  "overlap"            { TOKEN(OVERLAP); }
  "tune"               { TOKEN(TUNE); }
  "tries"              { TOKEN(TRIES); }
  "by"                 { TOKEN(BY); }
  "offload"            { TOKEN(OFFLOAD); }
  "lead"               { TOKEN(LEAD); }
  "weights"            { TOKEN(WEIGHTS); }
  "side"               { TOKEN(SIDE); }
  "exclusive"          { TOKEN(EXCLUSIVE); }

  "transfers"          { TOKEN(TRANSFERS); }

  "send" {
    value->name = intern(lx->names, beg, (size_t)(lx->cur - beg));
    TOKEN(SEND);
  }
  "edge" {
    value->name = intern(lx->names, beg, (size_t)(lx->cur - beg));
    TOKEN(EDGE);
  }
  name {
    value->name = intern(lx->names, beg, (size_t)(lx->cur - beg));
    TOKEN(NAME);
  }

  digits ("." digits)? name? {
    if (is_name_of_file(lx, beg)) {
      value->name = intern(lx->names, beg, (size_t)(lx->cur - beg));
      TOKEN(NAME);
    }
    read_number(lx, beg, value);
    TOKEN(NUMBER);
  }

  ["] ([^\x00\n"\\] | "\\" [^\x00\n])* ["] {
    value->text = unescape(lx, beg + 1, lx->cur - 1);
    TOKEN(STRING);
  }
  ["] ([^\x00\n"\\] | "\\" [^\x00\n])* "\\"? {
    while (lx->cur[-1] == '\r')
      lx->cur--;
    *at = span(lx, beg, lx->cur);
    diag_error(lx->diag, DIAG_BAD_STRING, *at, "a string must end on the line it begins on");
    return TOK_YYerror;
  }

  "->"                 { TOKEN(ARROW); }
  ".."                 { TOKEN(DOTDOT); }
  "=="                 { TOKEN(EQ); }
  "!="                 { TOKEN(NE); }
  "<="                 { TOKEN(LE); }
  ">="                 { TOKEN(GE); }
  "&&"                 { TOKEN(AND); }
  "||"                 { TOKEN(OR); }
  [.,;:()[\]{}+*/%<>!?=@-] { *at = span(lx, beg, lx->cur); return *beg; }

  "&" | "|" {
    *at = span(lx, beg, lx->cur);
    diag_error(lx->diag, DIAG_BAD_BYTE, *at, "unexpected byte '%c'", *beg);
    diag_help(lx->diag, "write '%c%c'", *beg, *beg);
    return *beg == '&' ? TOK_AND : TOK_OR;
  }
  "\xef\xbb\xbf" {
    diag_error(lx->diag, DIAG_BAD_BYTE, span(lx, beg, lx->cur),
               "byte order mark outside a comment or a string");
    diag_help(lx->diag, "save the file without a byte order mark");
    goto again;
  }
  high+ {
    *at = span(lx, beg, lx->cur);
    diag_error(lx->diag, DIAG_BAD_BYTE, *at, "'%.*s' outside a comment or a string is not ASCII",
               (int)(lx->cur - beg < 40 ? lx->cur - beg : 40), beg);
    return TOK_YYerror;
  }
  "\x00" {
    if (beg == lx->text_end) {
      lx->cur = beg;
      TOKEN(YYEOF);
    }
    embedded_nul(lx, beg);
    goto again;
  }
  * {
    skip_run(lx, *beg);
    *at = span(lx, beg, lx->cur);
    diag_error(lx->diag, DIAG_BAD_BYTE, *at, "unexpected byte '%c'", *beg);
    if (*beg == '\'') {
      diag_bad_line(lx->diag, *at);
      diag_help(lx->diag, "a string is written \"...\"");
    } else if (*beg == '^') {
      diag_help(lx->diag, "there is no power: write the product out; a formula of 'weights' has pow(x, 2)");
    }
    return TOK_YYerror;
  }
  */
#undef TOKEN
#undef YYCURSOR
#undef YYMARKER
}
