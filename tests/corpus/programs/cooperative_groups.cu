// SPDX-License-Identifier: Apache-2.0
// Cooperative groups: tiles, coalesced threads, partitions, scans, copies of a block.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "tests/corpus/program.h"

namespace gpushared::corpus {
namespace {

namespace cg = cooperative_groups;

template <int Size>
__global__ void ReduceTiles(const int* in, int* sums, int* scans, int* largest) {
  const auto tile = cg::tiled_partition<Size>(cg::this_thread_block());
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  sums[i] = cg::reduce(tile, in[i], cg::plus<int>());
  scans[i] = cg::exclusive_scan(tile, in[i], cg::plus<int>());
  largest[i] = cg::reduce(tile, in[i], cg::greater<int>());
}

__global__ void CountByCoalescing(const int* in, int* counts, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  if (in[i] % 3 != 0) {
    const cg::coalesced_group here = cg::coalesced_threads();
    const auto same = cg::labeled_partition(here, in[i] % 7);
    if (same.thread_rank() == 0) atomicAdd(&counts[in[i] % 7], static_cast<int>(same.size()));
  }
}

// Groups of one warp reduce, scan and vote at the same time, each with its own lanes.
__global__ void ReduceByLabel(const int* in, const int* labels, int* sums, int* largest, int* ranks,
                              int* ballots) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const auto same = cg::labeled_partition(warp, labels[i]);
  sums[i] = cg::reduce(same, in[i], cg::plus<int>());
  largest[i] = cg::reduce(same, in[i], cg::greater<int>());
  ranks[i] = cg::exclusive_scan(same, 1, cg::plus<int>());
  ballots[i] = static_cast<int>(same.ballot(in[i] % 2 != 0));
}

__global__ void ReverseThroughShared(const int* in, int* out) {
  extern __shared__ int staged[];
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, staged, in + blockIdx.x * blockDim.x, sizeof(int) * blockDim.x);
  cg::wait(block);
  out[blockIdx.x * blockDim.x + threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}

template <int Size>
std::string CheckTiles() {
  constexpr int kCount = 512;
  const std::vector<int> in = RandomValues<int>(kCount, Size, 1000);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> sums(kCount), scans(kCount), largest(kCount);
  ReduceTiles<Size><<<4, 128>>>(d_in.data, sums.data, scans.data, largest.data);
  std::vector<int> want_sums(kCount), want_scans(kCount), want_largest(kCount);
  for (std::size_t first = 0; first < kCount; first += Size) {
    int sum = 0, top = in[first];
    for (std::size_t i = first; i < first + Size; ++i) {
      want_scans[i] = sum;
      sum += in[i];
      top = in[i] > top ? in[i] : top;
    }
    for (std::size_t i = first; i < first + Size; ++i) want_sums[i] = sum, want_largest[i] = top;
  }
  return Differs("sums", sums.Get(), want_sums) + Differs("scans", scans.Get(), want_scans) +
         Differs("largest", largest.Get(), want_largest);
}

}  // namespace

std::string GroupTiles() { return CheckTiles<32>() + CheckTiles<8>() + CheckTiles<1>(); }

std::string GroupsOfCoalescedThreads() {
  constexpr int kCount = 1000;
  const std::vector<int> in = RandomValues<int>(kCount, 9, 1000);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> counts(7);
  CountByCoalescing<<<8, 128>>>(d_in.data, counts.data, kCount);
  std::vector<int> want(7);
  for (const int value : in) want[static_cast<std::size_t>(value % 7)] += value % 3 != 0;
  return Differs("counts", counts.Get(), want);
}

std::string GroupsOfLabels() {
  constexpr std::size_t kCount = 2048;
  const std::vector<int> in = RandomValues<int>(kCount, 5, 1000);
  const std::vector<int> labels = RandomValues<int>(kCount, 6, 6);
  const DeviceArray<int> d_in(in), d_labels(labels);
  DeviceArray<int> sums(kCount), largest(kCount), ranks(kCount), ballots(kCount);
  ReduceByLabel<<<16, 128>>>(d_in.data, d_labels.data, sums.data, largest.data, ranks.data,
                             ballots.data);
  std::vector<int> want_sums(kCount), want_largest(kCount), want_ranks(kCount),
      want_ballots(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    want_largest[i] = in[i];
    int rank = 0;
    for (std::size_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) {
      if (labels[k] != labels[i]) continue;
      want_sums[i] += in[k];
      want_largest[i] = in[k] > want_largest[i] ? in[k] : want_largest[i];
      want_ranks[i] += k < i;
      // Votes are numbered by rank.
      if (in[k] % 2 != 0) want_ballots[i] |= 1 << rank;
      ++rank;
    }
  }
  return Differs("sums", sums.Get(), want_sums) + Differs("largest", largest.Get(), want_largest) +
         Differs("ranks", ranks.Get(), want_ranks) + Differs("ballots", ballots.Get(), want_ballots);
}

std::string GroupCopies() {
  const std::vector<int> in = RandomValues<int>(512, 3, 1000);
  const DeviceArray<int> d_in(in);
  DeviceArray<int> out(512);
  ReverseThroughShared<<<4, 128, 128 * sizeof(int)>>>(d_in.data, out.data);
  std::vector<int> want(512);
  for (std::size_t i = 0; i < 512; ++i) want[i] = in[i / 128 * 128 + 127 - i % 128];
  return Differs("reversed", out.Get(), want);
}

}  // namespace gpushared::corpus
