// SPDX-License-Identifier: Apache-2.0
// Memory allocated by kernels: lists built in parallel, objects with virtual destructors, and
// allocations that one kernel leaves to the next.

struct Node {
  Node* next;
  unsigned value;
};

extern "C" __global__ void push(Node** list, unsigned* failed) {
  Node* node = static_cast<Node*>(malloc(sizeof(Node)));
  if (node == nullptr) {
    atomicAdd(failed, 1);
    return;
  }
  node->value = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long* head = reinterpret_cast<unsigned long long*>(list);
  unsigned long long seen = *head, old;
  do {
    old = seen;
    node->next = reinterpret_cast<Node*>(old);
    __threadfence();
    seen = atomicCAS(head, old, reinterpret_cast<unsigned long long>(node));
  } while (seen != old);
}

extern "C" __global__ void drain(Node** list, unsigned* seen) {
  for (Node* node = *list; node != nullptr;) {
    Node* next = node->next;
    seen[node->value] += 1;
    free(node);
    node = next;
  }
  *list = nullptr;
}

// Allocates many sizes, frees them in a different order, and checks each piece before it is freed.
extern "C" __global__ void churn(unsigned rounds, unsigned* wrong) {
  const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned* mine[4] = {};
  unsigned sizes[4] = {};
  unsigned state = t * 2654435761u + 1;
  for (unsigned round = 0; round < rounds; ++round) {
    state = state * 1664525u + 1013904223u;
    const unsigned slot = state >> 30;
    for (unsigned i = 0; i < sizes[slot]; ++i) {
      if (mine[slot][i] != t * 1000 + i) atomicAdd(wrong, 1);
    }
    free(mine[slot]);
    sizes[slot] = (state >> 8) % 120;
    mine[slot] = static_cast<unsigned*>(malloc(sizes[slot] * sizeof(unsigned)));
    if (mine[slot] == nullptr) sizes[slot] = 0;
    for (unsigned i = 0; i < sizes[slot]; ++i) mine[slot][i] = t * 1000 + i;
  }
  for (unsigned slot = 0; slot < 4; ++slot) free(mine[slot]);
}

struct Animal {
  __device__ virtual unsigned Legs() const = 0;
  __device__ virtual ~Animal() {}
};
struct Bird : Animal {
  unsigned* gone;
  __device__ explicit Bird(unsigned* count) : gone(count) {}
  __device__ ~Bird() override { atomicAdd(gone, 1); }
  __device__ unsigned Legs() const override { return 2; }
};
struct Spider : Animal {
  unsigned extra[5];
  __device__ unsigned Legs() const override { return 8 + extra[0]; }
};

extern "C" __global__ void objects(unsigned* legs, unsigned* gone) {
  Animal* animal;
  if (threadIdx.x % 3 == 0) {
    animal = new Bird(gone);
  } else {
    Spider* spider = new Spider;
    spider->extra[0] = threadIdx.x;
    animal = spider;
  }
  legs[threadIdx.x] = animal->Legs();
  delete animal;
}

extern "C" __global__ void allocate(unsigned long long bytes, void** out) {
  out[threadIdx.x] = malloc(bytes);
}

extern "C" __global__ void release(void* const* what, unsigned* reached) {
  free(what[threadIdx.x]);
  *reached = 1;
}
