// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_NATIVE_PRIORITY_H_
#define GPUSHARED_TESTS_GPU_NATIVE_PRIORITY_H_

namespace gpushared::testing {

// Sets the priority of the streams of all sessions that the calling thread opens natively from now
// on, in place of the variable NATIVE_PRIORITY. Lower numbers are more urgent, as in CUDA; values
// beyond the context's range are clamped.
void SetNativePriority(int priority);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_NATIVE_PRIORITY_H_
