/* SPDX-License-Identifier: MIT
 * Reads JSON, and reports where a text is not JSON. */
#include <string.h>
#include "json_text.h"

static void end_value(void *value) { json_decref(value); }

json_t *json_load_value(const char *text, size_t len, size_t flags, json_error_t *err) {
  json_t *value = json_loadb(text, len, flags, err);
  if (!value && json_error_code(err) == json_error_out_of_memory)
    guard_no_memory(0);
  return guard_own(value, end_value);
}

void json_drop(json_t *value) { guard_end(value, end_value); }

json_t *json_parse(Sched *s, DiagName name, uint32_t file, const char *text, uint32_t len) {
  json_error_t err;
  json_t *root = json_load_value(text, len, JSON_REJECT_DUPLICATES, &err);
  if (!root) {
    uint32_t pos = err.position > 0 ? (uint32_t)err.position - 1 : 0;
    pos = pos < len ? pos : len ? len - 1 : 0;
    diag_error(s->diag, name, (Span){file, pos, pos + 1}, "%s", err.text);
  }
  return root;
}

const char *json_unknown_key(json_t *object, const char *known) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    const size_t n = strlen(key);
    const char *at = known;
    while ((at = strstr(at, key)) && (at[-1] != ' ' || at[n] != ' '))
      at++;
    if (!at || n == 0 || strchr(key, ' '))
      return key;
  }
  return NULL;
}

bool json_quantity(json_t *v, QuantityOf of, uint64_t *value) {
  if (json_is_integer(v) && json_integer_value(v) >= 0) {
    *value = (uint64_t)json_integer_value(v);
    return *value < (uint64_t)1 << 62;
  }
  return json_is_string(v) && read_quantity(json_string_value(v), of, value);
}
