/* SPDX-License-Identifier: MIT
 * Fuzz target of runtime/tables/escape.h: any bytes are a name. Read back by the rules of C, the
 * literal has the same bytes; it holds no trigraph and neither begins nor ends a comment. What JSON
 * reads back is the name, if that is UTF-8. No language lets a control byte through, but for the
 * line ends of XML.
 *
 * Build with -fsanitize=fuzzer,address,undefined. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

static void check(bool ok) {
  if (!ok)
    abort();
}

/* The bytes of the C literal, which has the escapes that escape.c writes: two characters or octal.
 * */
static void unescape(char *to, const char *from) {
  for (; *from; to++)
    if (*from != '\\')
      *to = *from++;
    else if (from[1] == '"' || from[1] == '\\')
      *to = from[1], from += 2;
    else {
      check(strspn(from + 1, "01234567") >= 3);
      *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0');
      from += 4;
    }
  *to = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t room = size * (ESCAPE_ROOM - 1) + 3;
  char *name = calloc(size + 1, 1), *text = calloc(room, 1), *back = calloc(room, 1);
  check(name && text && back);
  memcpy(name, data, size);
  for (EscapeFor to = ESCAPE_TERMINAL; to <= ESCAPE_CSV; to++) {
    escape_text(text, room, to, name);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
      check((*p >= 0x20 && *p != 0x7f) || (to == ESCAPE_XML && (*p == '\n' || *p == '\t')));
    check(to != ESCAPE_XML || !strpbrk(text, "<>\""));
  }
  escape_text(text, room, ESCAPE_C, name);
  unescape(back, text);
  check(strcmp(back, name) == 0 && !strstr(text, "??") && !strstr(text, "*/") &&
        !strstr(text, "/*"));
  text[0] = '"';
  escape_text(text + 1, room - 2, ESCAPE_JSON, name);
  strcat(text, "\"");
  json_t *read = json_loads(text, JSON_DECODE_ANY, NULL), *was = json_string(name);
  check(read && (!was || strcmp(json_string_value(read), name) == 0));
  json_decref(read);
  json_decref(was);
  free(name);
  free(text);
  free(back);
  return 0;
}
