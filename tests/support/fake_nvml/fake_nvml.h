// SPDX-License-Identifier: Apache-2.0
// The controls of the fake NVML: a libnvidia-ml.so.1 whose boards are tables.
//
// A JSON text describes the machine: the one given to fake_nvml_set, otherwise the file that
// FAKE_NVML names, which every nvmlInit reads again. All fields are optional:
//   {"driver": "580.65.06", "cuda": 13000, "privileged": true,
//    "gpus": [{"board": "H200", "mig": true, "compute_mode": 0, "reset_required": false,
//              "processes": [4711], "lost": false, "generation": 0,
//              "instances": [{"profile": "1g.18gb", "start": 0, "processes": [4712]},
//                            {"profile": "3g.71gb", "start": 4,
//                             "compute": [{"slices": 1, "start": 0, "processes": []}]}],
//              "sensors": {"energy_mj": 1000, "utilization": 50, "power_mw": 300000,
//                          "temperature": 61, "sm_clock": 1980, "memory_clock": 2619,
//                          "memory_used": 4096, "ecc_corrected": 0, "ecc_uncorrected": 0,
//                          "xids": [31]}}],
//    "fail": [{"call": "nvmlDeviceGetName", "at": 2, "code": 15}]}
// Boards: A30, A100-40, A100-80, H100, H100-96, H200, B200. Instances must use the board's
// profiles, start where the profile allows, and not overlap; otherwise nvmlInit fails and prints
// the reason on stderr. `at` counts calls since nvmlInit; 0 is every call. "call" may be "*", for
// any call. With "and_later" all later calls fail, too; with "kill" the call kills the process.
// Sensors are read from the file again in every call about them.
// `generation` is a part of the instances' UUIDs, which change when instances are created again.
//
// Calls that create or destroy instances, or set the mode, change the text and thereby the file.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FAKE_NVML_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FAKE_NVML_H_

#ifdef __cplusplus
extern "C" {
#endif

// Replaces the machine; null restores the file. Returns null, or the error in the text. If NVML is
// open, the change takes effect at once, and all handles are new.
const char* fake_nvml_set(const char* json);
// Returns the present machine with all defaults spelled out. The text is valid until the next call.
const char* fake_nvml_get(void);
// Returns the number of calls since nvmlInit.
unsigned fake_nvml_calls(void);
// Returns the number of nvmlInit calls without nvmlShutdown.
int fake_nvml_open(void);

#ifdef __cplusplus
}
#endif

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FAKE_NVML_H_
