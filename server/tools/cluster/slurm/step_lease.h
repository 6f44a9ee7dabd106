/* SPDX-License-Identifier: Apache-2.0
 * C interface through which the SPANK plugin uses the node's server. The plugin runs as root in
 * slurmstepd, so the functions below neither throw nor print, and their time is bounded: each
 * request to the server takes at most kAnswerTimeMax (server/telemetry/admin).
 * Thread-compatible. */

#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_STEP_LEASE_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_STEP_LEASE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GPUSHARED_TEXT_BYTES = 512 }; /* Size of a message, including the terminator. */

/* The options as typed; NULL if not given. */
struct gpushared_options {
  const char* scheduling_class;
  const char* share;
  const char* memory;
};

/* A step according to the controller and slurmstepd. Only `options` come from the user. */
struct gpushared_step {
  uint32_t job;
  const char* step; /* Name of the step: "0", "batch". */
  uint32_t restarts;
  uint32_t uid;
  uint32_t tasks; /* Number of tasks on this node. */
  const char* qos;
  const char* gres; /* The job's resources on this node, or NULL. */
  struct gpushared_options options;
};

/* Usage by the clients of a lease. */
struct gpushared_usage {
  uint64_t device_us; /* Device time. */
  uint64_t bytes;     /* Bytes copied and filled. */
  uint64_t requests;
  uint64_t with_target; /* Requests with a latency target. */
  uint64_t met;         /* Requests that met their target. */
};

/* An endpoint for one step. Lasts until gpushared_lease_end or the exit of this process. */
struct gpushared_lease;

/* Returns 0, or -1 with a message in `why`. */
int gpushared_check_options(const struct gpushared_options* options, char* why);
/* Sets *lease and returns 0. Sets *lease to NULL and returns 0 if the step has no part of a device
 * and requests none. Otherwise returns -1 with a message in `why`. */
int gpushared_lease_begin(const char* rules_file, const struct gpushared_step* step,
                          struct gpushared_lease** lease, char* why);
/* Returns the path of the socket for clients. */
const char* gpushared_lease_socket(const struct gpushared_lease* lease);
/* Sets *used to the usage since the last call, or since the start of the lease. With
 * `must_be_over`, first waits up to 2 s for remaining sessions to end. Returns 0, or -1 with a
 * message in `why`. */
int gpushared_lease_used(struct gpushared_lease* lease, int must_be_over,
                         struct gpushared_usage* used, char* why);
void gpushared_lease_end(struct gpushared_lease* lease);

#ifdef __cplusplus
}
#endif

#endif /* GPUSHARED_SERVER_TOOLS_CLUSTER_SLURM_STEP_LEASE_H_ */
