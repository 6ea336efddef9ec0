/* SPDX-License-Identifier: MIT
 * Escapes one character at a time, so that callers can count columns or cut. C depends on the next
 * byte: two question marks could begin a trigraph; star and slash could begin or end a comment. */
#include "escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

size_t escape_utf8(const char *text, size_t n, uint32_t *code) {
  const unsigned char *p = (const unsigned char *)text;
  size_t len = p[0] < 0x80                   ? 1
               : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
               : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
               : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                             : 0;
  if (len == 0 || len > n)
    return 0;
  *code = len == 1 ? p[0] : p[0] & (0x7fu >> len);
  for (size_t i = 1; i < len; i++) {
    if ((p[i] & 0xc0) != 0x80)
      return 0;
    *code = *code << 6 | (p[i] & 0x3fu);
  }
  bool wrong = (len == 3 && *code < 0x800) || (len == 4 && (*code < 0x10000 || *code > 0x10ffff)) ||
               (*code >= 0xd800 && *code < 0xe000);
  return wrong ? 0 : len;
}

static bool is_shown(uint32_t c) {
  bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
  bool steers = c == 0x61c || c == 0xfeff || (c >= 0x200b && c <= 0x200f) ||
                (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x2069);
  return !control && !steers && c != 0xfffe && c != 0xffff;
}

/* The replacement of a character that has a meaning in the target language, or NULL. */
static const char *meant(EscapeFor to, char c, char next) {
  switch (to) {
  case ESCAPE_TERMINAL: return c == '\t' ? " " : NULL;
  case ESCAPE_C:
    return c == '"'                  ? "\\\""
           : c == '\\'               ? "\\\\"
           : c == '?' && next == '?' ? "\\077"
           : c == '*' && next == '/' ? "\\052"
           : c == '/' && next == '*' ? "\\057"
                                     : NULL;
  case ESCAPE_JSON: return c == '"' ? "\\\"" : c == '\\' ? "\\\\" : NULL;
  case ESCAPE_XML:
    return c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&quot;"
           : c == '\t' ? "\t"
           : c == '\n' ? "\n"
                       : NULL;
  case ESCAPE_CSV: return c == '"' ? "\"\"" : NULL;
  }
  return NULL;
}

size_t escape_one(EscapeFor to, const char *text, size_t n, char out[ESCAPE_ROOM]) {
  uint32_t code = 0;
  size_t len = escape_utf8(text, n, &code);
  const char *other = meant(to, text[0], n > 1 ? text[1] : 0);
  if (other) {
    strcpy(out, other);
    return 1;
  }
  if (len && is_shown(code)) {
    memcpy(out, text, len);
    out[len] = 0;
    return len;
  }
  unsigned byte = (unsigned char)text[0];
  switch (to) {
  case ESCAPE_C: snprintf(out, ESCAPE_ROOM, "\\%03o", byte); return 1;
  case ESCAPE_XML: strcpy(out, "?"); return len ? len : 1;
  case ESCAPE_JSON:
    snprintf(out, ESCAPE_ROOM, "\\u%04x", len ? (unsigned)(code & 0xffff) : 0xfffdu);
    return len ? len : 1;
  default: snprintf(out, ESCAPE_ROOM, "\\x%02X", byte); return 1;
  }
}

void escape_put(FILE *f, EscapeFor to, const char *text) {
  char out[ESCAPE_ROOM];
  for (size_t n = strlen(text), took; n > 0; n -= took, text += took) {
    took = escape_one(to, text, n, out);
    fputs(out, f);
  }
}

void escape_text(char *out, size_t room, EscapeFor to, const char *text) {
  char one[ESCAPE_ROOM];
  size_t len = 0;
  for (size_t n = strlen(text), took; n > 0; n -= took, text += took) {
    took = escape_one(to, text, n, one);
    if (len + strlen(one) >= room)
      break;
    strcpy(out + len, one);
    len += strlen(one);
  }
  out[len] = 0;
}
