/* SPDX-License-Identifier: MIT
 * Fuzz target of the reader of safetensors. An input is a byte, how many bytes of data there are
 * (two bytes), and a text: of an index if the byte is odd, else of a head. Of a head that is
 * accepted
 *   - jansson reads as many members, of the same names;
 *   - each byte of the data is of one tensor;
 *   - what st_write makes of its tensors is read back as the same tensors.
 * An index names no file in another folder. Aborts otherwise.
 *
 * Build with -fsanitize=fuzzer. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

static void must(bool ok) {
  if (!ok)
    abort();
}

static int see_file(void *arg, const char *file) {
  (void)arg;
  must(!strchr(file, '/'));
  return 0;
}

static void compare_names(const char *text, size_t n, const StHead *head) {
  json_error_t error;
  json_t *json = json_loadb(text, n, 0, &error);
  if (!json && json_error_code(&error) == json_error_numeric_overflow) /* over 63 bits */
    return;
  must(json != NULL);
  must(json_object_size(json) == head->n + (json_object_get(json, "__metadata__") != NULL));
  for (uint32_t i = 0; i < head->n; i++)
    must(json_object_get(json, head->t[i].key) != NULL);
  json_decref(json);
}

static void write_again(StHead *head, uint64_t data) {
  const char *const about[] = {"a", "\"\n", NULL};
  char why[ST_WHY];
  StHead again;
  size_t n;
  st_place(head->t, head->n);
  char *text = st_write(head->t, head->n, about, &n);
  must(text && n % ST_ALIGN == 0 && st_parse(text + 8, n - 8, data, &again, why));
  must(again.n == head->n);
  for (uint32_t i = 0, k; i < head->n; i++) {
    const StTensor *a = &head->t[i], *b = NULL;
    for (k = 0; k < again.n && !b; k++)
      b = strcmp(again.t[k].key, a->key) ? NULL : &again.t[k];
    must(b && a->dtype == b->dtype && a->ndim == b->ndim && a->at == b->at && a->sum == b->sum);
    must(!memcmp(a->shape, b->shape, sizeof a->shape) && b->has_sum);
  }
  free(again.t);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char why[ST_WHY] = "";
  StHead head;
  if (size < 3)
    return 0;
  const uint64_t bytes = data[1] + 256u * data[2];
  const size_t n = size - 3;
  char *text = malloc(n ? n : 1); /* exactly: a look behind the end is seen */
  must(text != NULL);
  memcpy(text, data + 3, n);
  if (data[0] & 1) {
    must(st_parse_index(text, n, see_file, NULL, why) == 0 || *why);
  } else if (!st_parse(text, n, bytes, &head, why)) {
    must(*why && !head.t);
  } else {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < head.n; i++)
      sum += head.t[i].bytes;
    must(sum == bytes);
    compare_names(text, n, &head);
    write_again(&head, bytes);
    free(head.t);
  }
  free(text);
  return 0;
}
