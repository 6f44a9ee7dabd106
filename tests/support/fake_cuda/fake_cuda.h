// SPDX-License-Identifier: Apache-2.0
// The controls of the fake CUDA driver. The driver is a libcuda.so.1 whose GPUs are memory of this
// process and the cpu executor. It records its calls, reports misuse, and fails on demand.
//
// A test either links gpushared::fake_cuda and calls these functions, or starts a program with
// LD_LIBRARY_PATH at the driver's directory and FAKE_CUDA set to statements.
//
// Statements are separated by ';':
//   version 12040         the CUDA version it serves; newer calls are not found.
//   devices 2             GPUs (at most 8); CUDA_VISIBLE_DEVICES selects and renumbers them.
//   uuid 0 GPU-...        the UUID of GPU 0; MIG-... makes it an instance.
//   memory 2G             memory that each GPU reports and that all share (suffix K, M, G).
//   local lazily          local memory for all threads is allocated by the first kernel that
//                         uses some; `at_once`: when its limit is set. By default local memory
//                         takes no device memory.
//   sms 132               multiprocessors of each GPU.
//   attribute 133 1       any device attribute, by number (20: compute mode, 133: MPS).
//   attribute 75 fails 1  the driver answers with an error code instead.
//   clock 600000 10       the GPUs' clock is 600,000 ms ahead of the host's and 10 ppm faster.
//   kernels 3             each kernel takes 3 ms at least.
//   costs on              calls and work take a real driver's and GPU's time (costs.h). Must be set
//                         before the first call.
//   cost kernel_gap 900   sets one of these times, in ns.
//   lock on               loads, unmaps and similar calls wait until all work submitted before them
//                         has ended. While such a call or a call that pins memory is in progress,
//                         other threads' calls on the context wait (sources: context_lock.cpp).
//                         Default: off.
//   copies wrong 4K       the last byte of each copy of at least this size is off by one.
//   green strict          an event belongs to the green context in which it was created. Recording
//                         it on another context's stream, or measuring the time to another
//                         context's event, fails with an invalid handle.
//   words lost            words that streams write do not arrive.
//   leftover 222          byte that other kernels left everywhere in shared and local memory.
//   missing cuMemMap      the driver has no such call.
//   fail cuMemCreate 3 2  the third call from now returns code 2 and does nothing; `*`: all calls.
//   fail_late ...         like `fail`, but the call does its work first.
//   slow cuInit 20        each of these calls takes 20 ms longer; all other calls wait for it.
//   fault 2 716           the second kernel from now to start dies with that code.
//   sticky 700            the context is dead from now on.
//   hold / go             GPUs start no further work / resume.
//   log PATH              appends every call to a file, unbuffered.
//   control PATH          reads further statements from a file, one a line, before each call.
//   leaks ignored         objects that remain at the end are not mistakes.
//
// A caller must not use a destroyed handle or call without a current context, free memory that
// pending work uses, launch a kernel that makes local memory grow, or leave objects at the end.
// Such *mistakes* are collected, and a process that ends with mistakes that have not been taken
// prints them and exits with code 86, so that a test cannot miss them.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_CUDA_EXIT_CODE 86

// Prefix of a compiled text, which remains text for this driver and for real ones.
#define FAKE_CUDA_CODE "// compiled\n"

// Forgets everything: objects, log, mistakes, statements; then reads FAKE_CUDA again. May be called
// only while no other thread is inside a call and no Device is alive.
void fake_cuda_reset(void);

// On a costed GPU: makes everything happen that is due. Driver calls do this implicitly.
void fake_cuda_catch_up(void);
// On costed GPUs: the time in which blocks of kernels ran, in ns, summed over all GPUs.
uint64_t fake_cuda_busy_ns(void);

// Applies the statements up to the first invalid one. Returns null, or a message about the invalid
// one (valid until the next call).
const char* fake_cuda_script(const char* statements);

// Sets whether the calling thread acts as another thread ("elsewhere"). Its driver calls then take
// no virtual time. With "lock on", a call elsewhere that waits for the GPU takes effect before it
// returns, but holds the lock until fake_cuda_lock_free_at.
void fake_cuda_elsewhere(int is_elsewhere);
// Returns when a call elsewhere on GPU 0 releases its lock, in ns of the driver's time; UINT64_MAX:
// it still waits for work; 0: the lock is free.
uint64_t fake_cuda_lock_free_at(void);

// Returns how many calls with "lock on" found work to wait for.
size_t fake_cuda_lock_waits(void);

// Returns how many calls of this name were made. Null: of all names, but on a costed GPU without
// `log` always 0.
size_t fake_cuda_calls(const char* name);

struct fake_cuda_call {
  const char* name;
  int result;
  uint64_t thread;   // The caller's kernel thread number.
  uintptr_t handle;  // The object of the call, or 0.
};
// Copies call number `index`, counted from 0 in the order of return; returns 0 if it does not
// exist.
int fake_cuda_call_at(size_t index, struct fake_cuda_call* call);
void fake_cuda_forget_calls(void);

// Returns and clears the mistakes, one line each; empty if there were none. Valid until the next
// call.
const char* fake_cuda_take_mistakes(void);

// Returns the number of live objects of a kind: context, green context, stream, event, graph,
// instantiated graph, module, reservation, memory, mapping, allocation, host allocation,
// registration.
size_t fake_cuda_live(const char* kind);

// Returns the bytes of device memory in use on all GPUs, by any means.
uint64_t fake_cuda_memory_used(void);

// Number of different texts that this driver has compiled. A text that is compiled again is not
// counted, because drivers cache the code.
size_t fake_cuda_compiled_texts(void);

// Returns the number of copies from or to host memory that the driver had not pinned.
size_t fake_cuda_pageable_copies(void);

// Returns the attributes of the latest launch: "cluster 2x1x1 cooperative"; empty if it had none.
// Valid until the next call.
const char* fake_cuda_last_attributes(void);

#ifdef __cplusplus
}
#endif

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_
