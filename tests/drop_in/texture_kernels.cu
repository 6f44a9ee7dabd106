// SPDX-License-Identifier: Apache-2.0
// The kernels of texture_test.cpp.

// Each thread rotates its position about the middle of the picture and samples the texture there.
extern "C" __global__ void turn(float* out, cudaTextureObject_t picture, int width, int height,
                                float cosine, float sine) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x >= width || y >= height) return;
  const float u = (static_cast<float>(x) + 0.5f) / static_cast<float>(width) - 0.5f;
  const float v = (static_cast<float>(y) + 0.5f) / static_cast<float>(height) - 0.5f;
  out[y * width + x] =
      tex2D<float>(picture, u * cosine - v * sine + 0.5f, v * cosine + u * sine + 0.5f);
}

extern "C" __global__ void fetch(float4* out, cudaTextureObject_t table, int first) {
  out[threadIdx.x] = tex1Dfetch<float4>(table, first + static_cast<int>(threadIdx.x));
}

extern "C" __global__ void sample_rows(float4* out, cudaTextureObject_t picture) {
  out[threadIdx.y * blockDim.x + threadIdx.x] =
      tex2D<float4>(picture, static_cast<float>(threadIdx.x), static_cast<float>(threadIdx.y));
}

extern "C" __global__ void sample_box(short* out, cudaTextureObject_t box) {
  const unsigned at = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[at] = tex3D<short>(box, static_cast<float>(threadIdx.x), static_cast<float>(threadIdx.y),
                         static_cast<float>(threadIdx.z));
}

// Adds one to each texel, which is addressed by its byte offset along x.
extern "C" __global__ void add_one(cudaSurfaceObject_t surface) {
  const int x = static_cast<int>(threadIdx.x * sizeof(int)), y = static_cast<int>(threadIdx.y);
  surf2Dwrite(surf2Dread<int>(surface, x, y) + 1, surface, x, y);
}
