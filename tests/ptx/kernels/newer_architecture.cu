// SPDX-License-Identifier: Apache-2.0
// Features that only sm_90 has: asynchronous copies, clusters, transaction barriers, reductions.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(2, 1, 1) exchange(const int4* in, int* out) {
  __shared__ alignas(16) int4 staged[64];
  __pipeline_memcpy_async(&staged[threadIdx.x & 63], &in[threadIdx.x], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  const int4* theirs = cluster.map_shared_rank(staged, cluster.block_rank() ^ 1);
  out[threadIdx.x] = theirs[threadIdx.x & 63].x + __reduce_add_sync(0xffffffffu, threadIdx.x);
  cluster.sync();
}

extern "C" __global__ void whole_grid(int* data) {
  data[blockIdx.x] = 1;
  cg::this_grid().sync();
  data[blockIdx.x + gridDim.x] = data[(blockIdx.x + 1) % gridDim.x];
  unsigned long long token;
  __shared__ unsigned long long barrier;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(
      static_cast<unsigned>(__cvta_generic_to_shared(&barrier))));
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], 16;"
               : "=l"(token)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&barrier))));
  data[0] = static_cast<int>(token);
}
