// SPDX-License-Identifier: Apache-2.0
// The computations of executor_bench as plain loops, compiled with g++ -O2.

#ifndef GPUSHARED_TESTS_BENCH_EXECUTOR_BENCH_H_
#define GPUSHARED_TESTS_BENCH_EXECUTOR_BENCH_H_

namespace gpushared::testing::host {

// c = a * b, square matrices of n rows, in the order of the naive kernel.
void MatrixProduct(const float* a, const float* b, float* c, int n);
void Saxpy(int n, float alpha, const float* x, float* y);
float Reduce(const float* values, int n);
void Softmax(const float* logits, float* probabilities, int rows, int columns);
// hidden = tanh(weights * input + bias) for each sample.
void TanhLayer(const float* weights, const float* bias, const float* input, float* hidden,
               int inputs, int units, int samples);
void Mandelbrot(int* iterations, int width, int height, int limit);

}  // namespace gpushared::testing::host

#endif  // GPUSHARED_TESTS_BENCH_EXECUTOR_BENCH_H_
