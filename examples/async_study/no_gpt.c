/* SPDX-License-Identifier: MIT
 * The GPT in the study where there is no BLAS. */
#include "study.h"

const char *study_gpt(Study *s, const StudyConfig *c, const char *data, uint32_t nstage) {
  (void)s, (void)c, (void)data, (void)nstage;
  return "built without a BLAS, which this model needs (libopenblas-dev)";
}
