// SPDX-License-Identifier: Apache-2.0
// Functions that are not inlined: arguments, results, recursion, and lanes that diverge inside
// them.
#define NOINLINE __noinline__ __device__

struct Box {
  double weight;
  int corner[3];
  char tag;
};

NOINLINE Box Moved(Box box, int by, float factor) {
  for (int& c : box.corner) c += by;
  box.weight *= factor;
  box.tag = static_cast<char>(box.tag - 1);
  return box;
}

extern "C" __global__ void pass_structs(double* out) {
  Box box = {1.5, {1, 2, 3}, static_cast<char>(threadIdx.x)};
  if (threadIdx.x % 2 == 0) box = Moved(box, static_cast<int>(threadIdx.x), 2.0f);
  box = Moved(box, -1, 0.5f);
  out[threadIdx.x] = box.weight + box.corner[0] + box.corner[1] * 10 + box.corner[2] * 100 + box.tag;
}

NOINLINE unsigned Fibonacci(unsigned n) {
  if (n < 2) return n;
  return Fibonacci(n - 1) + Fibonacci(n - 2);
}

extern "C" __global__ void recurse(unsigned* out) { out[threadIdx.x] = Fibonacci(threadIdx.x % 13); }

NOINLINE unsigned Depth(unsigned n, unsigned* trace) {
  unsigned local[4] = {n, n + 1, n + 2, n + 3};
  if (n == 0) return 0;
  const unsigned below = Depth(n - 1, local);
  trace[n % 4] += below;
  return below + local[(n + 1) % 4];
}

extern "C" __global__ void recurse_to(unsigned depth, unsigned* out) {
  unsigned trace[4] = {};
  out[threadIdx.x] = Depth(depth, trace) + trace[0];
}

NOINLINE bool IsOdd(unsigned n);
NOINLINE bool IsEven(unsigned n) { return n == 0 || IsOdd(n - 1); }
NOINLINE bool IsOdd(unsigned n) { return n != 0 && IsEven(n - 1); }

extern "C" __global__ void call_each_other(unsigned* out) {
  out[threadIdx.x] = IsEven(threadIdx.x) ? 1 : 2;
}

NOINLINE void Locked(int* lock, unsigned* count, unsigned by) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *count += by;
  __threadfence();
  atomicExch(lock, 0);
}

extern "C" __global__ void lock_in_function(int* lock, unsigned* count) {
  if (threadIdx.x % 2 == 0) {
    Locked(lock, count, 1);
  } else {
    Locked(lock, count, 100);
  }
}

NOINLINE unsigned Helper(unsigned value) {
  for (unsigned i = 0; i < value % 7; ++i) value = value * 3 + i;
  return value;
}

// Some lanes wait in the function while others call it and return.
NOINLINE unsigned LockedHelp(int* lock, unsigned* count, unsigned value) {
  unsigned result = 0;
  while (atomicCAS(lock, 0, 1) != 0) value += Helper(0);
  result = Helper(value);
  *count += Helper(7) == 7 ? 1 : 50;
  __threadfence();
  atomicExch(lock, 0);
  return result + Helper(value + 1);
}

extern "C" __global__ void calls_under_a_lock(int* lock, unsigned* count, unsigned* out) {
  unsigned result = Helper(threadIdx.x);
  if (threadIdx.x % 3 != 0) result += LockedHelp(lock, count, threadIdx.x);
  out[threadIdx.x] = result + Helper(threadIdx.x + 2);
}

// The lock is acquired two calls deep, and each function must find its own values again after its
// calls.
NOINLINE unsigned Outer(int* lock, unsigned* count, unsigned value) {
  const unsigned kept = Helper(value) ^ 0x1234;
  Locked(lock, count, kept & 3);
  return kept + Helper(value + 5);
}

extern "C" __global__ void nested_lock(int* lock, unsigned* count, unsigned* out) {
  unsigned result = Helper(threadIdx.x + 1);
  if (threadIdx.x % 4 != 1) result += Outer(lock, count, threadIdx.x);
  out[threadIdx.x] = result;
}

NOINLINE unsigned Exchange(unsigned value, unsigned other) {
  const unsigned scaled = value * 10 + other;
  const unsigned got = __shfl_xor_sync(0xffffffffu, scaled, 1);
  return got + scaled;
}

// Both sides of a branch call the same function, which exchanges with the whole warp.
extern "C" __global__ void exchange_in_function(unsigned* out) {
  unsigned value = threadIdx.x;
  if (threadIdx.x % 2 == 0) {
    value = Exchange(value, 3) + 1;
  } else {
    value = Exchange(value + 1000, 5) + 2;
  }
  out[threadIdx.x] = value;
}

NOINLINE unsigned SyncAndRead(const unsigned* shared, unsigned at) {
  __syncthreads();
  return shared[at];
}

// All lanes make one call, but the lock has separated the lanes, so that each arrives with its own
// frame.
extern "C" __global__ void meet_after_lock(int* lock, unsigned* count, unsigned* out) {
  __shared__ unsigned shared[64];
  shared[threadIdx.x] = threadIdx.x * 11;
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *count += 1;
  __threadfence();
  atomicExch(lock, 0);
  const unsigned got = Exchange(threadIdx.x * 3, 7) + 1;
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  atomicExch(lock, 0);
  out[threadIdx.x] = got + SyncAndRead(shared, 63 - threadIdx.x);
}

// Lanes of one warp reach a barrier in a function by two calls.
extern "C" __global__ void barrier_in_function(unsigned* out) {
  __shared__ unsigned shared[128];
  shared[threadIdx.x] = threadIdx.x * 3;
  unsigned value;
  if (threadIdx.x & 1) {
    value = SyncAndRead(shared, (threadIdx.x + 64) % 128);
  } else {
    value = SyncAndRead(shared, (threadIdx.x + 1) % 128) + 7;
  }
  out[threadIdx.x] = value;
}

NOINLINE void ExitIf(bool leaves) {
  if (leaves) asm volatile("exit;");
}

extern "C" __global__ void exit_in_function(unsigned* out) {
  out[threadIdx.x] = 1;
  ExitIf(threadIdx.x % 5 == 2);
  __syncthreads();
  out[threadIdx.x] = 2;
}

extern "C" __global__ void recurse_for_ever(unsigned* out) { out[0] = Depth(1u << 30, out); }
