/* SPDX-License-Identifier: Apache-2.0
 * What the SPANK plugin, which is C, asks of the node's server. It runs as root in slurmstepd, so
 * nothing is thrown from here, nothing is printed, and every call ends: kAnswerTimeMax of
 * server/telemetry/admin bounds each question to the server. All functions may be called from one
 * thread. */

#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_STEP_LEASE_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_STEP_LEASE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GPUSHARED_TEXT_BYTES = 512 }; /* Of every sentence, terminator included. */

/* The options as they were typed; NULL: not said. */
struct gpushared_options {
  const char* scheduling_class;
  const char* share;
  const char* memory;
};

/* A step, as the controller and slurmstepd know it. Nothing here is the user's word but `options`.
 */
struct gpushared_step {
  uint32_t job;
  const char* step; /* "0", "batch". */
  uint32_t restarts;
  uint32_t uid;
  uint32_t tasks; /* On this node. */
  const char* qos;
  const char* gres; /* What the job has on this node; NULL: nothing. */
  struct gpushared_options options;
};

/* What the clients of one lease did, or a part of that. */
struct gpushared_usage {
  uint64_t device_us; /* Device time. */
  uint64_t bytes;     /* Copied and filled. */
  uint64_t requests;
  uint64_t with_target; /* Of these, with a latency promise. */
  uint64_t met;         /* Of those, in time. */
};

/* An endpoint for one step. It lasts until gpushared_lease_end, and no longer than this process. */
struct gpushared_lease;

/* 0, or -1 and a sentence in `why`. */
int gpushared_check_options(const struct gpushared_options* options, char* why);
/* 0: *lease is set, or NULL where the step has no part of a device and asks for none.
 * -1: a sentence stands in `why`. */
int gpushared_lease_begin(const char* rules_file, const struct gpushared_step* step,
                          struct gpushared_lease** lease, char* why);
/* Clients connect there. */
const char* gpushared_lease_socket(const struct gpushared_lease* lease);
/* What was used since the last call, or since the begin. Waits up to 2 s for sessions that are
 * still there where `must_be_over`. 0, or -1 and a sentence in `why`. */
int gpushared_lease_used(struct gpushared_lease* lease, int must_be_over,
                         struct gpushared_usage* used, char* why);
void gpushared_lease_end(struct gpushared_lease* lease);

#ifdef __cplusplus
}
#endif

#endif /* GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_STEP_LEASE_H_ */
