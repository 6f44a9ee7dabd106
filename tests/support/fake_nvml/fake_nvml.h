// SPDX-License-Identifier: Apache-2.0
// The controls of the fake NVML: a libnvidia-ml.so.1 whose boards are tables.
//
// It is what a JSON text says: the one given to fake_nvml_set, else the file that FAKE_NVML names,
// read anew at every nvmlInit. Everything may be left out:
//   {"driver": "580.65.06", "cuda": 13000, "privileged": true,
//    "gpus": [{"board": "H200", "mig": true, "compute_mode": 0, "reset_required": false,
//              "processes": [4711], "lost": false, "generation": 0,
//              "instances": [{"profile": "1g.18gb", "start": 0, "processes": [4712]},
//                            {"profile": "3g.71gb", "start": 4,
//                             "compute": [{"slices": 1, "start": 0, "processes": []}]}]}],
//    "fail": [{"call": "nvmlDeviceGetName", "at": 2, "code": 15}]}
// Boards: A30, A100-40, A100-80, H100, H100-96, H200, B200. Instances must be of the board's
// profiles, at a start that the profile allows, and not overlap: otherwise nvmlInit fails and says
// why on stderr. `at` counts calls since nvmlInit; 0 is every call. "call" may be "*", any of them.
// With "and_later" all that follow fail, too; with "kill" the process dies there. `generation` goes
// into the instances' UUIDs, which change when instances are made anew.
//
// Calls that make or destroy instances, or set the mode, change the text, and so the file.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FAKE_NVML_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FAKE_NVML_H_

#ifdef __cplusplus
extern "C" {
#endif

// Null: back to the file. Null or what is wrong with the text is returned. Where NVML is open, it
// holds at once, and all handles are new.
const char* fake_nvml_set(const char* json);
// The machine as it is now, with everything said. The text holds until the next call.
const char* fake_nvml_get(void);
// How many calls there were since nvmlInit.
unsigned fake_nvml_calls(void);
// nvmlInit without nvmlShutdown.
int fake_nvml_open(void);

#ifdef __cplusplus
}
#endif

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_NVML_FAKE_NVML_H_
