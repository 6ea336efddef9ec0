/* SPDX-License-Identifier: MIT
 * See json.h. */
#include "json.h"
#include "escape.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DEEPEST = 32 };

void pr_json_fail(Json *j, const char *format, ...) {
  if (j->bad)
    return;
  int n = snprintf(j->why, JSON_WHY, "byte %zu: ", (size_t)(j->at - j->begin));
  va_list args;
  va_start(args, format);
  vsnprintf(j->why + n, JSON_WHY - (size_t)n, format, args);
  va_end(args);
  j->bad = true;
  j->at = j->end;
}

/* The next character that is not a blank; 0: end of the text. */
static char peek(Json *j) {
  while (j->at < j->end && *j->at && strchr(" \t\r\n", *j->at))
    j->at++;
  return j->at < j->end ? *j->at : 0;
}

void pr_json_expect(Json *j, char c) {
  if (peek(j) == c && c)
    j->at++;
  else
    pr_json_fail(j, "expected '%c'", c);
}

bool pr_json_more(Json *j, char close, uint32_t i) {
  if (!j->bad && peek(j) == close) {
    j->at++;
    return false;
  }
  if (i > 0)
    pr_json_expect(j, ',');
  return !j->bad;
}

/* Reads the four digits of \uXXXX. */
static uint32_t hex(Json *j) {
  static const char digit[] = "0123456789abcdefABCDEF";
  uint32_t code = 0;
  for (int i = 0; i < 4; i++) {
    const char *d = j->at < j->end && *j->at ? strchr(digit, *j->at) : NULL;
    if (!d) {
      pr_json_fail(j, "\\u needs four hexadecimal digits");
      return 0;
    }
    code = 16 * code + (uint32_t)(d - digit < 16 ? d - digit : d - digit - 6);
    j->at++;
  }
  return code;
}

/* Reads the rest of an escape after its backslash and writes it as UTF-8; returns the length. */
static size_t escaped(Json *j, char to[4]) {
  static const char from[] = "\"\\/bfnrt", as[] = "\"\\/\b\f\n\r\t";
  const char c = j->at < j->end ? *j->at++ : 0, *simple = c ? strchr(from, c) : NULL;
  if (simple) {
    to[0] = as[simple - from];
    return 1;
  }
  if (c != 'u') {
    pr_json_fail(j, "no such escape");
    return 0;
  }
  uint32_t code = hex(j), low;
  if (code >> 10 == 0xd800 >> 10) { /* the first half of a pair */
    const bool pair = j->end - j->at >= 2 && j->at[0] == '\\' && j->at[1] == 'u';
    j->at += pair ? 2 : 0;
    low = pair ? hex(j) : 0;
    code = low >> 10 == 0xdc00 >> 10 ? 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff) : 0;
  }
  if (code == 0 || code >> 10 == 0xdc00 >> 10) {
    pr_json_fail(j, "\\u is of no character");
    return 0;
  }
  if (code < 0x80) {
    to[0] = (char)code;
    return 1;
  }
  const size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = len; i-- > 1; code >>= 6)
    to[i] = (char)(0x80 | (code & 0x3f));
  to[0] = (char)((0xf00u >> len) | code);
  return len;
}

size_t pr_json_string(Json *j, char *to, size_t room) {
  size_t n = 0;
  uint32_t code;
  char one[4];
  pr_json_expect(j, '"');
  while (j->at < j->end && *j->at != '"') {
    size_t len = escape_utf8(j->at, (size_t)(j->end - j->at), &code);
    if (len == 0 || code < 0x20) {
      pr_json_fail(j, len ? "a control character in a string" : "not UTF-8");
      break;
    }
    memcpy(one, j->at, len);
    j->at += len;
    if (code == '\\')
      len = escaped(j, one);
    for (size_t i = 0; i < len; i++, n++)
      if (n + 1 < room)
        to[n] = one[i];
  }
  pr_json_expect(j, '"');
  if (j->bad)
    n = 0;
  if (room)
    to[n < room ? n : room - 1] = 0;
  return n;
}

size_t pr_json_key(Json *j, char *to, size_t room) {
  size_t n = pr_json_string(j, to, room);
  pr_json_expect(j, ':');
  return n;
}

uint64_t pr_json_number(Json *j) {
  uint64_t n = 0;
  if (peek(j) < '0' || *j->at > '9') {
    pr_json_fail(j, "expected a whole number");
    return 0;
  }
  const char *first = j->at;
  for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++) {
    const uint64_t digit = (uint64_t)(*j->at - '0');
    if (n > (UINT64_MAX - digit) / 10 || (j->at > first && *first == '0')) {
      pr_json_fail(j, *first == '0' ? "a number that begins with 0" : "a number of over 64 bits");
      return 0;
    }
    n = 10 * n + digit;
  }
  return n;
}

static void skip(Json *j, int deep) {
  const char c = peek(j);
  if (c == '"') {
    pr_json_string(j, NULL, 0);
  } else if ((c == '{' || c == '[') && deep < DEEPEST) {
    j->at++;
    for (uint32_t i = 0; pr_json_more(j, c == '{' ? '}' : ']', i); i++) {
      if (c == '{')
        pr_json_key(j, NULL, 0);
      skip(j, deep + 1);
    }
  } else {
    static const char word[] = "+-.0123456789Eaeflnrstu"; /* numbers, true, false, null */
    const char *first = j->at;
    while (j->at < j->end && *j->at && strchr(word, *j->at))
      j->at++;
    if (j->at == first)
      pr_json_fail(j, deep == DEEPEST ? "nested too deeply" : "expected a value");
  }
}

void pr_json_skip(Json *j) { skip(j, 0); }

void pr_json_end(Json *j) {
  if (peek(j) || j->at < j->end)
    pr_json_fail(j, "something behind the end");
}
