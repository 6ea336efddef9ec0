/* SPDX-License-Identifier: MIT
 * How messages travel: --channels and --sends (lang/spec.md 8.1). certify/machine.h has the rules
 * of each model. */
#ifndef PIPEC_CHANNEL_MODEL_H
#define PIPEC_CHANNEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum MachineChannels {
  CHANNELS_RANK,
  CHANNELS_PAIR,
  CHANNELS_EDGE,
  CHANNELS_TAGGED
} MachineChannels;

typedef struct ChannelModel {
  MachineChannels channels;
  bool in_bytes;   /* unit of `buffer`: bytes, else messages */
  uint64_t buffer; /* room of each directed pair; 0: rendezvous */
} ChannelModel;

#endif
