/* SPDX-License-Identifier: MIT
 * format_test SEED COUNT [FILE...]: formats random texts of tokens and comments, which need not
 * parse, and the files with random blanks and line ends between their tokens. The result must have
 * the same tokens and comments, found by a reader of its own here, and must not change when it is
 * formatted again; of a file that parses, the tree must stay the same. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "tree_of.h"

static uint64_t state;

static uint32_t random_below(uint32_t n) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ z >> 31) % n);
}

typedef struct Buffer {
  char text[1 << 16];
  uint32_t len;
} Buffer;

static void put(Buffer *b, const char *text, size_t n) {
  if (b->len + n + 1 < sizeof b->text) {
    memcpy(b->text + b->len, text, n);
    b->len += (uint32_t)n;
  }
  b->text[b->len] = '\0';
}

static void puts_to(Buffer *b, const char *text) { put(b, text, strlen(text)); }

static void put_blanks(Buffer *b) {
  static const char *const some[] = {"",   "",     "",       "",     "",       " ",
                                     " ",  " ",    "  ",     "  ",   "    ",   "\t",
                                     "\n", "\n  ", "\n    ", "\r\n", "\n\n\n", "   \t \n     "};
  puts_to(b, some[random_below(sizeof some / sizeof *some)]);
}

static const char *const tokens[] = {"a",
                                     "F",
                                     "r",
                                     "x1",
                                     "_y",
                                     "1",
                                     "20",
                                     "1.5ms",
                                     "3GiB",
                                     "\"s\"",
                                     "\"a # \\\" {\"",
                                     "schedule",
                                     "do",
                                     "if",
                                     "else",
                                     "order",
                                     "when",
                                     "ranks",
                                     "stage",
                                     "send",
                                     "overlap",
                                     "(",
                                     ")",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     "{",
                                     "}",
                                     "(",
                                     ")",
                                     ",",
                                     ";",
                                     ".",
                                     "..",
                                     "->",
                                     "=",
                                     "@",
                                     "?",
                                     ":",
                                     "+",
                                     "-",
                                     "-",
                                     "*",
                                     "/",
                                     "%",
                                     "<",
                                     "<=",
                                     ">",
                                     ">=",
                                     "==",
                                     "!=",
                                     "!",
                                     "&&",
                                     "||",
                                     "# note\n",
                                     "#\n",
                                     "#  \xc3\xa9  {\r\n",
                                     "requires"};

static bool is_word(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool merges(const Buffer *b, const char *next) {
  static const char *const two[] = {"->", "..", "==", "!=", "<=", ">=", "&&", "||"};
  if (b->len == 0)
    return false;
  char last = b->text[b->len - 1];
  if ((is_word(last) && is_word(*next)) || (last == '.' && is_word(*next)) ||
      (is_word(last) && *next == '.'))
    return true; /* also 1 and .5 */
  for (size_t i = 0; i < sizeof two / sizeof *two; i++)
    if (last == two[i][0] && *next == two[i][1])
      return true;
  return false;
}

static void put_token(Buffer *b, const char *token) {
  if (merges(b, token))
    puts_to(b, " ");
  puts_to(b, token);
}

/* The next token or comment of a text, by the rules of section 1 of the language. */
static const char *next(const char **at, size_t *n) {
  const char *p = *at + strspn(*at, " \t\r\n"), *e = p;
  if (!*p)
    return NULL;
  if (*p == '#') {
    e += strcspn(p, "\n");
    *at = e;
    while (e > p && strchr(" \t\r", e[-1]))
      e--;
    *n = (size_t)(e - p);
    return p;
  }
  if (*p == '"') {
    for (e++; *e != '"'; e++)
      e += *e == '\\';
    e++;
  } else if (is_word(*p)) {
    bool number = *p >= '0' && *p <= '9';
    while (is_word(*e) || (number && *e == '.' && e[1] >= '0' && e[1] <= '9'))
      e++;
  } else {
    static const char two[] = "-> .. == != <= >= && ||";
    e++;
    for (const char *t = two; *e && t; t = strchr(t, ' '), t = t ? t + 1 : t)
      if (t[0] == p[0] && t[1] == p[1]) {
        e++;
        break;
      }
  }
  *at = e;
  *n = (size_t)(e - p);
  return p;
}

static bool same_pieces(const char *a, const char *b) {
  for (;;) {
    size_t n = 0, m = 0;
    const char *x = next(&a, &n), *y = next(&b, &m);
    if (!x || !y)
      return x == y;
    if (n != m || memcmp(x, y, n) != 0)
      return false;
  }
}

static int fail(const char *what, const char *text, const char *result) {
  printf("%s:\n%s\n---\n%s\n---\n", what, text, result ? result : "(none)");
  return 1;
}

static int try(const char *text, uint32_t len) {
  Arena a = {0};
  uint32_t n = 0, again_n = 0;
  int bad = 0;
  char *result = format_text(&a, intern_new(&a), text, len, &n);
  char *again = result ? format_text(&a, intern_new(&a), result, n, &again_n) : NULL;
  if (!result || strlen(result) != n || !same_pieces(text, result))
    bad = fail("not the same tokens", text, result);
  else if (!again || again_n != n || memcmp(result, again, n) != 0)
    bad = fail("changed again", result, again);
  else if (strstr(result, "\n\n\n") || strstr(result, " \n") || strchr(result, '\r') ||
           strchr(result, '\t') ||
           (n && (result[n - 1] != '\n' || (n > 1 && result[n - 2] == '\n') || *result == '\n')))
    bad = fail("blanks or lines too many", text, result);
  char *was = bad ? NULL : tree_of(&a, text, len);
  if (was) {
    char *is = tree_of(&a, result, n);
    if (!is || strcmp(was, is) != 0)
      bad = fail("another tree", text, result);
    free(is);
  }
  free(was);
  arena_free(&a);
  return bad;
}

static int random_text(void) {
  static Buffer b;
  uint32_t n = random_below(random_below(2) ? 8 : 60);
  b.len = 0;
  put(&b, "", 0);
  for (uint32_t i = 0; i < n; i++) {
    put_blanks(&b);
    put_token(&b, tokens[random_below(sizeof tokens / sizeof *tokens)]);
  }
  if (random_below(2))
    put_blanks(&b);
  return try(b.text, b.len);
}

/* The file, its comments left out where they would swallow what follows. */
static int shaken(const char *path) {
  static Buffer file, b;
  FILE *f = fopen(path, "rb");
  file.len = f ? (uint32_t)fread(file.text, 1, sizeof file.text - 1, f) : 0;
  file.text[file.len] = '\0';
  if (f)
    fclose(f);
  if (file.len == 0)
    return fail("cannot read", path, NULL);
  b.len = 0;
  put(&b, "", 0);
  const char *at = file.text, *p;
  uint32_t most = 1 + random_below(4);
  for (size_t n; (p = next(&at, &n));) {
    char token[1000];
    if (n >= sizeof token)
      continue;
    memcpy(token, p, n);
    token[n] = '\0';
    if (random_below(most) == 0)
      put_blanks(&b);
    put_token(&b, token);
    if (*p == '#')
      puts_to(&b, "\n");
  }
  return try(file.text, file.len) + try(b.text, b.len);
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
  long count = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
  int bad = 0;
  state = seed;
  for (long i = 0; i < count && bad < 5; i++)
    bad += random_text() + (argc > 3 ? shaken(argv[3 + random_below((uint32_t)argc - 3)]) : 0);
  printf("seed %llu: %ld texts, %d wrong\n", (unsigned long long)seed, count, bad);
  return bad > 0;
}
