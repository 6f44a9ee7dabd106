// SPDX-License-Identifier: Apache-2.0
// Fills of rows, and copies of rows in every direction, from ordinary and from pinned memory.
#include <cstring>
#include <vector>

#include "tests/corpus/cudart/programs/check.h"

constexpr int kWidth = 100, kHeight = 7;

__global__ void Double(int* values, std::size_t pitch) {
  int* const row = reinterpret_cast<int*>(reinterpret_cast<char*>(values) + blockIdx.x * pitch);
  row[threadIdx.x] *= 2;
}

int main() {
  std::vector<int> in(kWidth * kHeight), out(in.size(), -1);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i);
  constexpr std::size_t kRowBytes = kWidth * sizeof(int);

  int* rows = nullptr;
  std::size_t pitch = 0;
  MUST(cudaMallocPitch(&rows, &pitch, kRowBytes, kHeight));
  EXPECT(pitch >= kRowBytes);
  MUST(cudaMemcpy2D(rows, pitch, in.data(), kRowBytes, kRowBytes, kHeight, cudaMemcpyHostToDevice));
  Double<<<kHeight, kWidth>>>(rows, pitch);
  MUST(cudaGetLastError());
  int* flat = nullptr;
  MUST(cudaMalloc(&flat, kRowBytes * kHeight));
  MUST(cudaMemcpy2D(flat, kRowBytes, rows, pitch, kRowBytes, kHeight, cudaMemcpyDeviceToDevice));
  MUST(cudaMemcpy(out.data(), flat, kRowBytes * kHeight, cudaMemcpyDefault));
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT(out[i] == 2 * in[i]);

  int* pinned = nullptr;
  MUST(cudaMallocHost(&pinned, kRowBytes));
  MUST(cudaMemset(flat, 0x11, kRowBytes));
  MUST(cudaMemset2D(rows, pitch, 0x22, kRowBytes, 2));
  MUST(cudaMemcpyAsync(pinned, flat, kRowBytes, cudaMemcpyDeviceToHost, 0));
  MUST(cudaDeviceSynchronize());
  for (int i = 0; i < kWidth; ++i) EXPECT(pinned[i] == 0x11111111);
  MUST(cudaMemcpy(pinned, reinterpret_cast<char*>(rows) + pitch, kRowBytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kWidth; ++i) EXPECT(pinned[i] == 0x22222222);

  cudaPointerAttributes attributes;
  MUST(cudaPointerGetAttributes(&attributes, flat + 1));
  EXPECT(attributes.type == cudaMemoryTypeDevice);
  MUST(cudaFreeHost(pinned));
  MUST(cudaFree(flat));
  MUST(cudaFree(rows));
  MUST(cudaFree(nullptr));
  return wrong_things;
}
