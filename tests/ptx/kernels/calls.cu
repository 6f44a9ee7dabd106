// SPDX-License-Identifier: Apache-2.0
// Functions that are called, recursive, or called through pointers and tables.
struct Wide {
  double a[3];
  int b;
};

__device__ __noinline__ int Fibonacci(int n) {
  return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2);
}
__device__ __noinline__ Wide Widen(Wide in, int by) {
  for (double& x : in.a) x *= by;
  in.b += by;
  return in;
}
__device__ __noinline__ int Add(int a, int b) { return a + b; }
__device__ __noinline__ int Multiply(int a, int b) { return a * b; }
using Binary = int (*)(int, int);
__device__ Binary g_table[2] = {Add, Multiply};

struct Shape {
  __device__ virtual float Area() const = 0;
};
struct Square : Shape {
  float side;
  __device__ explicit Square(float s) : side(s) {}
  __device__ float Area() const override { return side * side; }
};
struct Disc : Shape {
  float radius;
  __device__ explicit Disc(float r) : radius(r) {}
  __device__ float Area() const override { return 3.14159f * radius * radius; }
};

extern "C" __global__ void call(int* out, Wide wide, int which) {
  const int i = threadIdx.x;
  out[i] = Fibonacci(i % 8);
  const Wide widened = Widen(wide, which);
  out[i] += static_cast<int>(widened.a[i % 3]) + widened.b;
  out[i] += g_table[which & 1](i, 7);
}

extern "C" __global__ void area(float* out, float x) {
  Square square(x);
  Disc disc(x);
  const Shape* shape = threadIdx.x % 2 == 0 ? static_cast<Shape*>(&square) : &disc;
  out[threadIdx.x] = shape->Area();
}
