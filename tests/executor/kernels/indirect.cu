// SPDX-License-Identifier: Apache-2.0
// Calls through pointers: tables of functions in memory, pointers passed from kernel to kernel,
// virtual functions, and lanes of one warp that call different functions.
#define NOINLINE __noinline__ __device__

typedef unsigned (*Operation)(unsigned, unsigned);

NOINLINE unsigned Add(unsigned a, unsigned b) { return a + b; }
NOINLINE unsigned Subtract(unsigned a, unsigned b) { return a - b; }
NOINLINE unsigned Loop(unsigned a, unsigned b) {
  for (unsigned i = 0; i < a % 9; ++i) b = b * 3 + i;
  return b;
}

__device__ Operation operations[3] = {Add, Subtract, Loop};
__constant__ Operation constant_operations[2] = {Loop, Add};

extern "C" __global__ void call_by_table(const unsigned* choice, unsigned* out) {
  const unsigned t = threadIdx.x;
  unsigned value = operations[choice[t] % 3](t, 100);
  if (t % 5 != 0) value += constant_operations[choice[t] % 2](t, value);
  out[t] = value;
}

extern "C" __global__ void hand_over(Operation* to) {
  if (threadIdx.x == 0) to[0] = Subtract, to[1] = Loop;
}

extern "C" __global__ void call_what_was_handed_over(const Operation* from, unsigned* out) {
  out[threadIdx.x] = from[threadIdx.x % 2](threadIdx.x, 7);
}

extern "C" __global__ void call_one_of_all(const Operation* from, unsigned which, unsigned* out) {
  out[threadIdx.x] = from[which](threadIdx.x, 50);
}

struct Shape {
  __device__ virtual float Area() const = 0;
  __device__ virtual Shape* Larger() { return this; }
};
struct Square : Shape {
  float side;
  __device__ float Area() const override { return side * side; }
};
struct Box : Shape {
  float a, b;
  __device__ float Area() const override { return a * b; }
  __device__ Shape* Larger() override {
    a *= 2;
    return this;
  }
};

extern "C" __global__ void virtual_functions(float* out, unsigned mask) {
  Square square;
  square.side = static_cast<float>(threadIdx.x);
  Box box;
  box.a = 3, box.b = static_cast<float>(threadIdx.x + 1);
  Shape* shape = (threadIdx.x & mask) != 0 ? static_cast<Shape*>(&square) : &box;
  float area = shape->Area();
  area += shape->Larger()->Area() * 1000;
  out[threadIdx.x] = area;
}

// Functions that make indirect calls themselves, to different depths.
struct Step {
  Operation next;
  unsigned left;
};
typedef unsigned (*Walk)(Step*, unsigned);
NOINLINE unsigned WalkOn(Step* step, unsigned value);
__device__ Walk walk_on[1] = {WalkOn};
NOINLINE unsigned WalkOn(Step* step, unsigned value) {
  if (step->left == 0) return value;
  --step->left;
  return walk_on[0](step, step->next(value, step->left)) + 1;
}

extern "C" __global__ void walk(unsigned* out) {
  Step step = {operations[threadIdx.x % 3], threadIdx.x % 7};
  out[threadIdx.x] = walk_on[0](&step, threadIdx.x);
}

// Each function contains a barrier of the block, and lanes reach it through different calls.
__shared__ unsigned exchanged[64];
NOINLINE unsigned PutAndWait(unsigned t, unsigned by) {
  exchanged[t] = t * by;
  __syncthreads();
  return exchanged[63 - t];
}
NOINLINE unsigned PutMoreAndWait(unsigned t, unsigned by) {
  exchanged[t] = t * by + 1000;
  __syncthreads();
  return exchanged[(t + 1) % 64];
}
__device__ Operation waiting[2] = {PutAndWait, PutMoreAndWait};

extern "C" __global__ void wait_in_both(unsigned* out) {
  out[threadIdx.x] = waiting[threadIdx.x % 3 == 0](threadIdx.x, 3);
}

// Some lanes exit inside the called function.
NOINLINE unsigned Leave(unsigned a, unsigned b) {
  if (a % 4 == 1) asm volatile("exit;");
  return a + b;
}
__device__ Operation leaving[2] = {Leave, Loop};

extern "C" __global__ void leave_inside(unsigned* out) {
  out[threadIdx.x] = 1;
  out[threadIdx.x] = leaving[threadIdx.x % 3 == 0](threadIdx.x, 20);
}
