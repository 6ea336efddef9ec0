/* SPDX-License-Identifier: MIT
 * Formats a text: splits it into pieces (tokens and comments), gives each piece a column, and
 * writes the pieces with line ends and blanks between them.
 *
 * Lines end where the author ended them. A line begins two columns right of the line that opened
 * the innermost brace, however many braces that line opened. A continuation line keeps its distance
 * from the first line of its statement, so alignment below that line is kept.
 *
 * note [idempotent]: a rule chooses the blanks between two pieces of a line. It gives a constant,
 * or 0 or 1 as the author wrote, or 1 or 2 as the author wrote. Invariant: applied to its own
 * output, the rule gives the same blanks. An operator is tight if the author wrote no blank beside
 * it; otherwise it has blanks on both sides.
 *
 * note [columns]: Definition: a column is a set of pieces in adjacent lines that begin in the same
 * text column, inside equally many brackets, at least one of them after two or more blanks. The
 * formatter places a column right of its longest line, at the least distance that the author left;
 * an aligned column does not move. Columns are placed from left to right, because the pieces left
 * of a piece limit where it can be. */
#include "format.h"

#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "lexer.h"
#include "parser.h"

enum { INDENT = 2, GO_ON = 4, FARTHEST = 160, TAB = 8, NOWHERE = UINT32_MAX };

typedef enum Class {
  WORD, /* a keyword */
  NAME, /* NAME to CLOSE can end an operand */
  NUMBER,
  STRING,
  CLOSE,  /* ) ] */
  OPEN,   /* ( */
  INDEX,  /* [ */
  BEGIN,  /* { */
  END,    /* } */
  COMMA,  /* , ; */
  DOT,    /* . */
  RANGE,  /* .. */
  MINUS,  /* - */
  NOT,    /* ! */
  BINARY, /* an operator between two operands */
  WIDE,   /* = -> @ ? : */
  COMMENT,
  LAST /* the end of the text */
} Class;

/* How an operator is spaced. */
typedef enum Role { PLAIN, UNARY, TIGHT, SPACED, ODD } Role;

typedef struct Piece {
  uint32_t beg, end; /* bytes of the text */
  uint32_t in, out;  /* first column in the text and in the result; NOWHERE until it has one */
  uint32_t above;    /* the piece of the previous line in the same column, or NOWHERE */
  uint32_t below;
  uint32_t blanks; /* columns between the previous piece of the line and this one */
  uint32_t depth;  /* open brackets before it */
  uint8_t class, role;
  uint8_t breaks; /* line ends before it: 0, 1, or 2 for more */
} Piece;

typedef struct Reader {
  Lexer lx;
  const char *at; /* end of the text that was read as pieces */
  uint32_t col;
  Span token; /* the next token; class LAST at the end */
  Class class;
} Reader;

typedef struct Format {
  Arena *arena;
  const char *text;
  Piece *piece; /* [n], without the piece of class LAST */
  uint32_t n;
} Format;

/* ---- reading ---- */

static Class class_of(int token, const char *text, uint32_t len) {
  if (token == TOK_YYEOF)
    return LAST;
  if (token == TOK_NAME)
    return NAME;
  if ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z') || text[0] == '_')
    return WORD;
  if (text[0] >= '0' && text[0] <= '9')
    return NUMBER;
  if (len == 2)
    return text[0] == '.' ? RANGE : text[0] == '-' ? WIDE : text[0] == '"' ? STRING : BINARY;
  switch (text[0]) {
  case '"': return STRING;
  case '(': return OPEN;
  case '[': return INDEX;
  case ')':
  case ']': return CLOSE;
  case '{': return BEGIN;
  case '}': return END;
  case ',':
  case ';': return COMMA;
  case '.': return DOT;
  case '-': return MINUS;
  case '!': return NOT;
  case '=':
  case '@':
  case '?':
  case ':': return WIDE;
  default: return BINARY;
  }
}

static void read_token(Reader *r) {
  TokenValue value;
  int token = lex(&r->lx, &value, &r->token);
  r->class = class_of(token, r->lx.text + r->token.beg, r->token.end - r->token.beg);
}

static void begin(Reader *r, Arena *a, Interner *names, Diag *quiet, const char *text,
                  uint32_t len) {
  r->lx = (Lexer){a, names, quiet, 0, text, text + len, text};
  r->at = text;
  r->col = 0;
  read_token(r);
}

/* Columns of text without tabs and line ends: its characters. */
static uint32_t columns(const char *p, const char *end) {
  uint32_t n = 0;
  for (; p < end; p++)
    n += ((unsigned char)*p & 0xc0) != 0x80;
  return n;
}

/* Reads the next piece; its class is LAST at the end. */
static Piece next(Reader *r) {
  const char *token = r->lx.text + r->token.beg, *end = r->lx.text + r->token.end;
  uint32_t breaks = 0, col = r->col;
  for (; r->at < token && *r->at != '#'; r->at++)
    if (*r->at == '\n')
      breaks++, col = 0;
    else
      col = *r->at == '\t' ? (col / TAB + 1) * TAB : col + (*r->at == ' ');
  Piece p = {.in = col,
             .out = NOWHERE,
             .above = NOWHERE,
             .below = NOWHERE,
             .blanks = breaks ? 0 : col - r->col,
             .breaks = breaks < 2 ? (uint8_t)breaks : 2};
  p.beg = (uint32_t)(r->at - r->lx.text);
  if (r->at < token) {
    end = memchr(r->at, '\n', (size_t)(token - r->at));
    r->at = end = end ? end : token;
    while (strchr(" \t\r", end[-1])) /* stops at the '#' */
      end--;
    p.class = COMMENT;
  } else {
    p.class = (uint8_t)r->class;
    r->at = end;
    if (p.class != LAST)
      read_token(r);
  }
  p.end = (uint32_t)(end - r->lx.text);
  r->col = col + columns(r->lx.text + p.beg, end);
  return p;
}

static void read_pieces(Format *f, Interner *names, Diag *quiet, const char *text, uint32_t len) {
  Reader r;
  begin(&r, f->arena, names, quiet, text, len);
  while (next(&r).class != LAST)
    f->n++;
  begin(&r, f->arena, names, quiet, text, len);
  f->text = text;
  f->piece = arena_alloc(f->arena, f->n * sizeof *f->piece);
  for (uint32_t i = 0; i < f->n; i++)
    f->piece[i] = next(&r);
}

/* ---- rules ---- */

static bool ends_operand(const Piece *p) { return p && p->class >= NAME && p->class <= CLOSE; }

static bool begins_operand(const Piece *p) {
  return p && (p->class <= STRING || p->class == OPEN || p->class == MINUS || p->class == NOT);
}

/* The token after piece i; comments do not count. */
static const Piece *token_after(const Format *f, uint32_t i) {
  while (++i < f->n)
    if (f->piece[i].class != COMMENT)
      return &f->piece[i];
  return NULL;
}

static Role role_of(const Piece *a, const Piece *p, const Piece *b) {
  if (p->class == BINARY || (p->class == MINUS && ends_operand(a))) {
    if (!ends_operand(a))
      return ODD;
    bool touches = !p->breaks && !p->blanks && begins_operand(b) && !b->breaks && !b->blanks;
    return touches ? TIGHT : SPACED;
  }
  if (p->class == MINUS || p->class == NOT)
    return ends_operand(a) || !begins_operand(b) || (p->class == MINUS && a && a->class == WORD)
               ? ODD
               : UNARY;
  if (p->class != WIDE)
    return PLAIN;
  return SPACED;
}

static void fill_roles(Format *f) {
  const Piece *before = NULL, *after = NULL;
  for (uint32_t i = 0; i < f->n; i++) {
    Piece *p = &f->piece[i];
    if (p->class == COMMENT)
      continue;
    if (p->class >= MINUS) {
      after = token_after(f, i);
      p->role = (uint8_t)role_of(before, p, after);
      if (p->class == WIDE && f->text[p->beg] == ':' && after && after->class == STRING &&
          ends_operand(before))
        p->role = PLAIN; /* the text of a condition */
    }
    before = p;
  }
}

/* Blanks between p and q, which stand in one line. See note [idempotent]. */
static uint32_t gap(const Format *f, const Piece *p, const Piece *q) {
  uint32_t as_is = q->blanks > 0, wide = q->blanks > 1 ? 2 : 1;
  if (q->class == COMMENT)
    return wide;
  if (q->class == COMMA || q->class == CLOSE || p->class == OPEN || p->class == INDEX)
    return 0;
  if (p->class == BEGIN || q->class == BEGIN || q->class == END || p->class == COMMA)
    return 1;
  if (q->class == INDEX)
    return p->class == NAME || p->class == CLOSE ? 0 : as_is;
  if (p->class == NAME && q->class == OPEN)
    return 0;
  if (p->class == CLOSE && q->class == OPEN)
    return f->text[p->beg] == ']' ? 0 : as_is;
  if (p->class == WORD && q->class == OPEN)
    return as_is;
  if (p->class == DOT || q->class == DOT)
    return p->class == NAME || q->class == NAME ? 0 : as_is;
  if (q->class == RANGE)
    return ends_operand(p) ? 0 : as_is;
  if (p->class == RANGE)
    return begins_operand(q) ? 0 : as_is;
  if (p->role == SPACED || (q->role == SPACED))
    return 1;
  if (q->class == WIDE)
    return as_is;
  if (p->class == WIDE)
    return 1;
  if (p->role == UNARY && q->class == MINUS)
    return as_is;
  if (p->role == TIGHT || q->role == TIGHT || p->role == UNARY)
    return 0;
  if (p->role == ODD || q->role == ODD)
    return p->class == WORD ? 1 : as_is;
  return p->class == WORD ? 1 : wide;
}

/* True for words that can only continue a statement. */
static bool goes_on(const Format *f, const Piece *p) {
  static const char words[] =
      " requires extends when for step in of replica period place mbs stages ";
  if (p->class >= COMMA && p->class <= WIDE)
    return true;
  if (p->class != WORD)
    return p->class == OPEN || p->class == INDEX || p->class == CLOSE;
  char word[16];
  if (p->end - p->beg > sizeof word - 3)
    return false;
  memcpy(word + 1, f->text + p->beg, p->end - p->beg);
  word[0] = word[p->end - p->beg + 1] = ' ';
  word[p->end - p->beg + 2] = '\0';
  return strstr(words, word) != NULL;
}

/* True if the statement of p must continue after p; a ';' ends it. */
static bool is_open(const Format *f, const Piece *p) {
  return p && (p->class == OPEN || p->class == INDEX || (p->class >= COMMA && p->class <= WIDE)) &&
         f->text[p->beg] != ';';
}

/* Gives the first piece of every line its column. */
static void fill_lines(Format *f) {
  VEC(uint32_t) base = {0}; /* of the lines that opened the braces, outermost first */
  uint32_t parens = 0, line = 0, line_in = 0; /* the statement: its column here and in the text */
  const Piece *before = NULL;
  for (uint32_t i = 0; i < f->n; i++) {
    Piece *p = &f->piece[i];
    p->depth = base.n + parens;
    if (p->breaks || i == 0) {
      bool comment = p->class == COMMENT, end = p->class == END;
      if (!end && (parens || is_open(f, before) || (!comment && before && goes_on(f, p)))) {
        uint32_t at = p->in + line - line_in; /* wraps below 0, which is too far then */
        p->out = at > line && at <= line + FARTHEST ? at : line + GO_ON;
      } else {
        line = base.n == 0 ? 0 : base.at[base.n - 1] + (end ? 0 : INDENT);
        line_in = p->in;
        p->out = line;
      }
    }
    if (p->class == BEGIN)
      *vec_push(f->arena, &base) = line;
    else if (p->class == END)
      base.n -= base.n > 0;
    else if (p->class == OPEN || p->class == INDEX)
      parens++;
    else if (p->class == CLOSE)
      parens -= parens > 0;
    if (p->class != COMMENT)
      before = p;
  }
}

/* ---- columns, see note [columns] ---- */

static bool first_in_line(const Format *f, uint32_t i) { return i == 0 || f->piece[i].breaks > 0; }

static uint32_t line_end(const Format *f, uint32_t i) {
  do
    i++;
  while (i < f->n && !f->piece[i].breaks);
  return i;
}

/* True if the author can have aligned piece i below another. */
static bool can_move(const Format *f, uint32_t i) {
  const Piece *p = &f->piece[i];
  return p->blanks > 0 && gap(f, p - 1, p) > 0;
}

/* Pairs pieces of lines [a, b) and [b, c) that begin in one column inside equally many brackets. */
static void link_lines(Format *f, uint32_t a, uint32_t b, uint32_t c) {
  for (uint32_t i = a + 1, k = b + 1; i < b && k < c;) {
    Piece *up = &f->piece[i], *down = &f->piece[k];
    if (up->in == down->in) {
      bool comment = up->class == COMMENT;
      if (comment == (down->class == COMMENT) && (up->depth == down->depth || comment) &&
          can_move(f, i) && can_move(f, k))
        up->below = k, down->above = i;
      i++, k++;
    } else if (up->in < down->in) {
      i++;
    } else {
      k++;
    }
  }
}

typedef struct Head {
  uint32_t in, piece;
} Head;

static int by_column(const void *a, const void *b) {
  const Head *x = a, *y = b;
  if (x->in != y->in)
    return x->in < y->in ? -1 : 1;
  return x->piece < y->piece ? -1 : x->piece > y->piece;
}

/* Gives piece i and those left of it in its line their columns; returns the column of i. */
static uint32_t place(Format *f, uint32_t i) {
  uint32_t k = i;
  while (f->piece[k].out == NOWHERE)
    k--;
  for (; k < i; k++) {
    Piece *p = &f->piece[k];
    p[1].out = p->out + columns(f->text + p->beg, f->text + p->end) + gap(f, p, p + 1);
  }
  return f->piece[i].out;
}

/* Where piece i would begin with no blanks before it. */
static uint32_t left_end(Format *f, uint32_t i) {
  const Piece *p = &f->piece[i - 1];
  return place(f, i - 1) + columns(f->text + p->beg, f->text + p->end);
}

static void fill_columns(Format *f) {
  VEC(Head) heads = {0};
  for (uint32_t a = 0, b, c; a < f->n && (b = line_end(f, a)) < f->n; a = b) {
    c = line_end(f, b);
    if (f->piece[b].breaks == 1)
      link_lines(f, a, b, c);
  }
  for (uint32_t i = 0; i < f->n; i++) {
    bool made = f->piece[i].blanks > 1;
    if (f->piece[i].above != NOWHERE || f->piece[i].below == NOWHERE)
      continue;
    for (uint32_t k = f->piece[i].below; k != NOWHERE && !made; k = f->piece[k].below)
      made = f->piece[k].blanks > 1;
    if (made)
      *vec_push(f->arena, &heads) = (Head){f->piece[i].in, i};
  }
  if (heads.n)
    qsort(heads.at, heads.n, sizeof *heads.at, by_column);
  for (uint32_t h = 0; h < heads.n; h++) {
    uint32_t at = 0, least = UINT32_MAX;
    for (uint32_t k = heads.at[h].piece; k != NOWHERE; k = f->piece[k].below) {
      uint32_t left = left_end(f, k);
      at = left > at ? left : at;
      least = f->piece[k].blanks < least ? f->piece[k].blanks : least;
    }
    for (uint32_t k = heads.at[h].piece; k != NOWHERE; k = f->piece[k].below)
      f->piece[k].out = at + least;
  }
  for (uint32_t a = 0; a < f->n; a = line_end(f, a))
    place(f, line_end(f, a) - 1);
}

/* ---- writing ---- */

/* Blanks in front of piece i in the result. */
static uint32_t lead(Format *f, uint32_t i) {
  return first_in_line(f, i) ? f->piece[i].out : f->piece[i].out - left_end(f, i);
}

static char *write_pieces(Format *f, uint32_t *len) {
  uint64_t size = 1; /* the last line end */
  for (uint32_t i = 0; i < f->n; i++)
    size += (i ? f->piece[i].breaks : 0) + (uint64_t)lead(f, i) + f->piece[i].end - f->piece[i].beg;
  if (size > MOST_TEXT_BYTES)
    return NULL;
  char *text = arena_alloc(f->arena, size + 1), *at = text;
  for (uint32_t i = 0; i < f->n; i++) {
    const Piece *p = &f->piece[i];
    uint32_t blanks = lead(f, i);
    for (int k = 0; i && k < p->breaks; k++)
      *at++ = '\n';
    memset(at, ' ', blanks);
    memcpy(at + blanks, f->text + p->beg, p->end - p->beg);
    at += blanks + p->end - p->beg;
  }
  if (f->n)
    *at++ = '\n';
  *at = '\0';
  *len = (uint32_t)(at - text);
  return text;
}

/* Checks that the text consists of exactly the pieces of f. */
static void verify(Format *f, Interner *names, Diag *quiet, const char *text, uint32_t len) {
  Reader r;
  bool same = true;
  begin(&r, f->arena, names, quiet, text, len);
  for (uint32_t i = 0; i < f->n && same; i++) {
    const Piece *p = &f->piece[i];
    Piece q = next(&r);
    same = p->class == q.class && p->end - p->beg == q.end - q.beg &&
           memcmp(f->text + p->beg, text + q.beg, q.end - q.beg) == 0;
  }
  BUG_IF(!same || next(&r).class != LAST || quiet->errors); /* the text has changed */
}

char *format_text(Arena *a, Interner *names, const char *text, uint32_t len, uint32_t *result_len) {
  Diag quiet;
  Format f = {.arena = a};
  diag_init(&quiet, a, NULL);
  read_pieces(&f, names, &quiet, text, len);
  fill_roles(&f);
  fill_lines(&f);
  fill_columns(&f);
  char *result = write_pieces(&f, result_len);
  if (result)
    verify(&f, names, &quiet, result, *result_len);
  return result;
}
