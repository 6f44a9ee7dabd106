// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/costs.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace gpushared::testing::fake_cuda {
namespace {

struct Name {
  std::string_view name;
  std::uint64_t Costs::*cost;
};
constexpr Name kNames[] = {
    {"call_launch", &Costs::call_launch},
    {"call_copy", &Costs::call_copy},
    {"call_fill", &Costs::call_fill},
    {"call_record", &Costs::call_record},
    {"call_write", &Costs::call_write},
    {"call_query", &Costs::call_query},
    {"call_elapsed", &Costs::call_elapsed},
    {"call_fits", &Costs::call_fits},
    {"call_load", &Costs::call_load},
    {"call_unload", &Costs::call_unload},
    {"call_allocate", &Costs::call_allocate},
    {"call_free", &Costs::call_free},
    {"call_create", &Costs::call_create},
    {"call_map", &Costs::call_map},
    {"call_access", &Costs::call_access},
    {"call_unmap", &Costs::call_unmap},
    {"call_release", &Costs::call_release},
    {"call_other", &Costs::call_other},
    {"compile_text", &Costs::compile_text},
    {"call_register", &Costs::call_register},
    {"register_mebibyte", &Costs::register_mebibyte},
    {"call_unregister", &Costs::call_unregister},
    {"unregister_mebibyte", &Costs::unregister_mebibyte},
    {"host_alloc_mebibyte", &Costs::host_alloc_mebibyte},
    {"kernel_load", &Costs::kernel_load},
    {"kernel_code_bytes", &Costs::kernel_code_bytes},
    {"call_graph_launch", &Costs::call_graph_launch},
    {"graph_launched_node", &Costs::graph_launched_node},
    {"call_graph_node", &Costs::call_graph_node},
    {"graph_instantiated_node", &Costs::graph_instantiated_node},
    {"launch_delay", &Costs::launch_delay},
    {"notice", &Costs::notice},
    {"wake", &Costs::wake},
    {"kernel_gap", &Costs::kernel_gap},
    {"graph_gap", &Costs::graph_gap},
    {"untimed_event", &Costs::untimed_event},
    {"timed_event", &Costs::timed_event},
    {"write_value", &Costs::write_value},
    {"engine_switch", &Costs::engine_switch},
    {"copy_latency", &Costs::copy_latency},
    {"fill_kernel", &Costs::fill_kernel},
    {"host_function", &Costs::host_function},
    {"instruction", &Costs::instruction},
    {"block_start", &Costs::block_start},
    {"host_bytes_per_us", &Costs::host_bytes_per_us},
    {"device_bytes_per_us", &Costs::device_bytes_per_us},
};

// Costs by the prefix of a call's name; the first match applies.
constexpr Name kCalls[] = {
    {"cuLaunchKernel", &Costs::call_launch},
    {"cuGraphLaunch", &Costs::call_graph_launch},
    {"cuGraphAdd", &Costs::call_graph_node},
    {"cuGraphExecKernelNodeSetParams", &Costs::call_graph_node},
    {"cuMemcpy", &Costs::call_copy},
    {"cuMemset", &Costs::call_fill},
    {"cuEventRecord", &Costs::call_record},
    {"cuStreamWaitEvent", &Costs::call_record},
    {"cuStreamWriteValue", &Costs::call_write},
    {"cuEventQuery", &Costs::call_query},
    {"cuStreamQuery", &Costs::call_query},
    {"cuEventElapsedTime", &Costs::call_elapsed},
    {"cuOccupancy", &Costs::call_fits},
    {"cuModuleLoad", &Costs::call_load},
    {"cuModuleUnload", &Costs::call_unload},
    {"cuMemHostRegister", &Costs::call_register},
    {"cuMemHostUnregister", &Costs::call_unregister},
    {"cuMemHostAlloc", &Costs::call_register},
    {"cuMemFreeHost", &Costs::call_unregister},
    {"cuMemAlloc", &Costs::call_allocate},
    {"cuMemFree", &Costs::call_free},
    {"cuMemCreate", &Costs::call_create},
    {"cuMemMap", &Costs::call_map},
    {"cuMemUnmap", &Costs::call_unmap},
    {"cuMemSetAccess", &Costs::call_access},
    {"cuMemRelease", &Costs::call_release},
};

// Additional cost of a call per MiB, by the prefix of its name.
constexpr Name kMebibytes[] = {
    {"cuMemHostRegister", &Costs::register_mebibyte},
    {"cuMemHostUnregister", &Costs::unregister_mebibyte},
    {"cuMemHostAlloc", &Costs::host_alloc_mebibyte},
    {"cuMemFreeHost", &Costs::unregister_mebibyte},
};

}  // namespace

std::uint64_t* Costs::Named(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name, &Name::name);
  return found == std::end(kNames) ? nullptr : &(this->*found->cost);
}

std::uint64_t Costs::OfCall(std::string_view call) const {
  const auto* const found =
      std::ranges::find_if(kCalls, [&](const Name& each) { return call.starts_with(each.name); });
  return found == std::end(kCalls) ? call_other : this->*found->cost;
}

std::uint64_t Costs::OfBytes(std::string_view call, std::uint64_t bytes) const {
  const auto* const found = std::ranges::find(kMebibytes, call, &Name::name);
  return found == std::end(kMebibytes) ? 0 : (this->*found->cost * bytes) >> 20;
}

}  // namespace gpushared::testing::fake_cuda
