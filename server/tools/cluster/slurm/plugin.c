/* SPDX-License-Identifier: Apache-2.0
 * SPANK plugin: adds options to srun, sbatch and salloc, and in slurmstepd leases an endpoint for
 * the step. slurmstepd relies on the controller's facts about the job, never on its environment. */
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/tools/cluster/slurm/step_lease.h"

SPANK_PLUGIN(gpushared, 1)

enum { kOptionBytes = 64, kNodeBytes = 256, kStepBytes = 16 };
static const char kRulesFile[] = "/etc/gpushared/slurm.toml";
static const char kRulesArgument[] = "rules=";

/* State shared by the callbacks, because Slurm passes nothing from one to the next. Each process
 * handles a single step, and calls the callbacks from a single thread. */
static struct {
  char options[3][kOptionBytes];        /* Class, share and memory; empty if not given. */
  struct gpushared_lease* lease;        /* In slurmstepd; NULL if the step has none. */
  char rejection[GPUSHARED_TEXT_BYTES]; /* Why the step may not run; empty if it may. */
  uint32_t job;
  uint32_t tasks_running;
} self;

static struct gpushared_options Options(void) {
  struct gpushared_options options = {self.options[0], self.options[1], self.options[2]};
  return options;
}

static int OnOption(int which, const char* text, int is_remote) {
  (void)is_remote;
  char why[GPUSHARED_TEXT_BYTES];
  const int length = snprintf(self.options[which], kOptionBytes, "%s", text);
  const struct gpushared_options options = Options();
  if (length >= kOptionBytes) {
    slurm_error("gpushared: option rejected: it is longer than %d bytes", kOptionBytes - 1);
    return ESPANK_BAD_ARG;
  }
  if (gpushared_check_options(&options, why) == 0) return ESPANK_SUCCESS;
  slurm_error("gpushared: %s", why);
  return ESPANK_BAD_ARG;
}

static struct spank_option options[] = {
    {"gpushared-class", "high|normal|low", "class of the step's programs; the QOS sets the highest",
     1, 0, OnOption},
    {"gpushared-share", "PERCENT", "maximum device time of each of the step's programs, \"10%\"", 1,
     1, OnOption},
    {"gpushared-memory", "BYTES", "device memory of each of the step's programs, \"2GiB\"", 1, 2,
     OnOption},
};

int slurm_spank_init(spank_t spank, int count, char* arguments[]) {
  (void)count;
  (void)arguments;
  const spank_context_t context = spank_context();
  if (context == S_CTX_SLURMD || context == S_CTX_JOB_SCRIPT) return ESPANK_SUCCESS;
  for (size_t each = 0; each < sizeof options / sizeof options[0]; ++each) {
    const spank_err_t status = spank_option_register(spank, &options[each]);
    if (status != ESPANK_SUCCESS) return status;
  }
  return ESPANK_SUCCESS;
}

static const char* RulesFile(int count, char* arguments[]) {
  const size_t prefix = sizeof kRulesArgument - 1;
  for (int each = 0; each < count; ++each) {
    if (strncmp(arguments[each], kRulesArgument, prefix) == 0) return arguments[each] + prefix;
  }
  return kRulesFile;
}

/* Returns the job's resources on this node, or NULL. The controller's node names equal host names.
 */
static const char* GresHere(const slurm_job_info_t* job) {
  char node[kNodeBytes];
  if (gethostname(node, sizeof node) != 0) return NULL;
  node[sizeof node - 1] = '\0';
  node[strcspn(node, ".")] = '\0';
  const hostlist_t nodes = slurm_hostlist_create(job->nodes);
  const int index = nodes != NULL ? slurm_hostlist_find(nodes, node) : -1;
  if (nodes != NULL) slurm_hostlist_destroy(nodes);
  const bool has_gres = index >= 0 && (uint32_t)index < job->gres_detail_cnt;
  return has_gres ? job->gres_detail_str[index] : NULL;
}

static void StepName(uint32_t step, char name[kStepBytes]) {
  if (step == SLURM_BATCH_SCRIPT) {
    snprintf(name, kStepBytes, "batch");
  } else if (step == SLURM_INTERACTIVE_STEP) {
    snprintf(name, kStepBytes, "interactive");
  } else {
    snprintf(name, kStepBytes, "%u", step);
  }
}

static void Begin(spank_t spank, const slurm_job_info_t* job, const char* rules) {
  char name[kStepBytes];
  uint32_t step = 0;
  uid_t uid = 0;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS) {
    snprintf(self.rejection, sizeof self.rejection,
             "slurmstepd does not report the step and its user");
    return;
  }
  StepName(step, name);
  const struct gpushared_step facts = {.job = self.job,
                                       .step = name,
                                       .restarts = job->restart_cnt,
                                       .uid = uid,
                                       .tasks = self.tasks_running,
                                       .qos = job->qos,
                                       .gres = GresHere(job),
                                       .options = Options()};
  (void)gpushared_lease_begin(rules, &facts, &self.lease, self.rejection);
}

/* Runs as root, before any task is started. This function succeeds even if the step is rejected,
 * because slurmd drains the node if it fails. The step's tasks fail instead, and their user sees
 * the message. */
int slurm_spank_init_post_opt(spank_t spank, int count, char* arguments[]) {
  uint32_t step = 0;
  if (spank_remote(spank) != 1) return ESPANK_SUCCESS;
  (void)spank_get_item(spank, S_JOB_STEPID, &step);
  if (step == SLURM_EXTERN_CONT)
    return ESPANK_SUCCESS; /* This step runs none of the user's programs. */
  (void)spank_get_item(spank, S_JOB_ID, &self.job);
  (void)spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &self.tasks_running);
  job_info_msg_t* jobs = NULL;
  const slurm_job_info_t* job = NULL;
  if (slurm_load_job(&jobs, self.job, SHOW_DETAIL) == SLURM_SUCCESS) {
    for (uint32_t each = 0; each < jobs->record_count; ++each) {
      if (jobs->job_array[each].job_id == self.job) job = &jobs->job_array[each];
    }
  }
  if (job != NULL) {
    Begin(spank, job, RulesFile(count, arguments));
  } else {
    snprintf(self.rejection, sizeof self.rejection, "the controller does not report job %u",
             self.job);
  }
  if (jobs != NULL) slurm_free_job_info_msg(jobs);
  if (self.rejection[0] != '\0') slurm_error("gpushared: %s", self.rejection);
  /* A step without an endpoint must not reach the server, whatever its environment says. */
  if (self.lease == NULL) (void)spank_unsetenv(spank, "GPUSHARED_SOCKET");
  if (self.lease == NULL) return ESPANK_SUCCESS;
  return spank_setenv(spank, "GPUSHARED_SOCKET", gpushared_lease_socket(self.lease), 1);
}

/* Runs in the task's own process, before its program. */
int slurm_spank_task_init(spank_t spank, int count, char* arguments[]) {
  (void)spank;
  (void)count;
  (void)arguments;
  if (self.rejection[0] == '\0') return ESPANK_SUCCESS;
  (void)dprintf(STDERR_FILENO, "gpushared: %s\n", self.rejection);
  return -1; /* Slurm 22.05 runs the program after an error above zero, such as ESPANK_ERROR. */
}

/* The controller adds up the reports of the job's steps and nodes (gpushared.lua). */
static void Account(bool must_be_over) {
  struct gpushared_usage used;
  char why[GPUSHARED_TEXT_BYTES], text[GPUSHARED_TEXT_BYTES];
  if (gpushared_lease_used(self.lease, must_be_over, &used, why) != 0) {
    slurm_error("gpushared: the usage of job %u on this node is not accounted: %s", self.job, why);
    return;
  }
  if (used.device_us == 0 && used.bytes == 0 && used.requests == 0) return;
  snprintf(text, sizeof text,
           "gpushared+ device_us=%llu bytes=%llu requests=%llu with_target=%llu met=%llu",
           (unsigned long long)used.device_us, (unsigned long long)used.bytes,
           (unsigned long long)used.requests, (unsigned long long)used.with_target,
           (unsigned long long)used.met);
  slurm_info("gpushared: job %u: %s", self.job, text);
  job_desc_msg_t change;
  slurm_init_job_desc_msg(&change);
  change.job_id = self.job;
  change.admin_comment = text;
  if (slurm_update_job(&change) == SLURM_SUCCESS) return;
  slurm_error("gpushared: the controller did not accept the usage of job %u: %s; the usage was %s",
              self.job, slurm_strerror(slurm_get_errno()), text);
}

/* Reports the usage when the last task exits. A later report would be lost, because the controller
 * completes a job's accounting once srun knows that all tasks have exited; srun learns that only
 * after this function has returned for the last task. */
int slurm_spank_task_exit(spank_t spank, int count, char* arguments[]) {
  (void)spank;
  (void)count;
  (void)arguments;
  if (self.tasks_running > 0 && --self.tasks_running == 0 && self.lease != NULL) Account(true);
  return ESPANK_SUCCESS;
}

int slurm_spank_exit(spank_t spank, int count, char* arguments[]) {
  (void)count;
  (void)arguments;
  if (spank_remote(spank) != 1 || self.lease == NULL) return ESPANK_SUCCESS;
  Account(false); /* Accounts for processes that outlived the tasks. */
  gpushared_lease_end(self.lease);
  self.lease = NULL;
  return ESPANK_SUCCESS;
}
