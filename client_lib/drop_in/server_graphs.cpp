// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/server_graphs.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <variant>

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/session.h"

namespace gpushared::drop_in {

namespace {

// Calls `use` with the kernel and with the parameters in its layout.
template <typename Use>
Status WithLaunch(const CudaKernel& kernel, const KernelWork& work, const Context& context,
                  Use use) {
  const Result<Kernel> loaded = kernel.In(context);
  if (!loaded.ok()) return loaded.status();
  std::vector<std::byte> packed(work.packed);
  packed.resize(loaded->parameter_bytes());
  return use(*loaded, std::span<const std::byte>(packed));
}

}  // namespace

std::shared_ptr<CudaKernel> ServerGraphs::KernelFor(const Work& work) {
  const auto* const launch = std::get_if<KernelWork>(&work);
  if (launch == nullptr) return nullptr;
  std::shared_ptr<CudaKernel> kernel = Driver::Get().kernels.Find(launch->function);
  return kernel == nullptr || kernel->module->starts_kernels() ? nullptr : kernel;
}

std::size_t ServerGraphs::LengthOfRun(const Works& plan, std::size_t at) {
  std::size_t length = 0;
  while (at + length < plan.size() && length < kLaunchesMax &&
         KernelFor(*plan[at + length]) != nullptr) {
    ++length;
  }
  return length;
}

void ServerGraphs::Prepare(const Works& plan, const StreamChoice& stream) {
  const MutexLock lock(mutex_);
  const Context& context = stream->context();
  if (session_.lock() != context.shared_session()) {
    runs_.clear();
    launches_ = 0;
    is_rejected_ = false;
    session_ = context.shared_session();
  }
  if (++launches_ < 2 || is_rejected_) return;
  if (context.session().addresses().has_had_host()) {
    runs_.clear();
    return;
  }
  if (!Follow(plan, context)) Make(plan, context);
}

// Updates the existing graphs to the plan, whose launches may have changed. Returns false if there
// are no graphs or if they cannot be updated.
bool ServerGraphs::Follow(const Works& plan, const Context& context) {
  if (runs_.empty()) return false;
  for (Run& run : runs_) {
    if (run.first + run.works.size() > plan.size()) return false;
    for (std::size_t i = 0; i < run.works.size(); ++i) {
      const std::shared_ptr<const Work>& work = plan[run.first + i];
      std::shared_ptr<CudaKernel> kernel = KernelFor(*work);
      if (kernel == nullptr) return false;
      if (work == run.works[i] && kernel == run.kernels[i]) continue;
      const auto& launch = std::get<KernelWork>(*work);
      const Status set = WithLaunch(*kernel, launch, context, [&](const auto& loaded, auto packed) {
        return run.graph.SetLaunchPacked(i, loaded, launch.shape, packed);
      });
      if (!set.ok()) return false;
      run.works[i] = work;
      run.kernels[i] = std::move(kernel);
    }
  }
  return true;
}

void ServerGraphs::Make(const Works& plan, const Context& context) {
  runs_.clear();
  for (std::size_t at = 0; at < plan.size();) {
    const std::size_t length = LengthOfRun(plan, at);
    if (length < kLaunchesMin) {
      at += std::max<std::size_t>(length, 1);
      continue;
    }
    const Result<Stream> recorder = context.session().client().CreateRecorder();
    Status status = recorder.status();
    Run run{.first = at, .works = {}, .kernels = {}, .graph = {}};
    for (std::size_t i = at; status.ok() && i < at + length; ++i) {
      std::shared_ptr<CudaKernel> kernel = KernelFor(*plan[i]);
      const auto& launch = std::get<KernelWork>(*plan[i]);
      if (kernel == nullptr) break;
      status = WithLaunch(*kernel, launch, context, [&](const auto& loaded, auto packed) {
        return recorder->LaunchPacked(loaded, launch.shape, packed);
      });
      run.works.push_back(plan[i]);
      run.kernels.push_back(std::move(kernel));
    }
    Result<gpushared::Graph> graph =
        status.ok() ? recorder->MakeGraph() : Result<gpushared::Graph>(status);
    if (!graph.ok()) {
      is_rejected_ = true;
      runs_.clear();
      return;
    }
    run.graph = *std::move(graph);
    runs_.push_back(std::move(run));
    at += length;
  }
  // Without a graph, later calls of Prepare do nothing until the session changes.
  if (runs_.empty()) is_rejected_ = true;
}

ServerGraphs::Ran ServerGraphs::Launch(const Works& plan, std::size_t at,
                                       const StreamChoice& stream) {
  const MutexLock lock(mutex_);
  const auto run = std::ranges::find(runs_, at, &Run::first);
  if (run == runs_.end() || at + run->works.size() > plan.size()) return {};
  // Another thread may have prepared another plan in the meantime.
  if (!std::equal(run->works.begin(), run->works.end(),
                  plan.begin() + static_cast<std::ptrdiff_t>(at))) {
    return {};
  }
  if (session_.lock() != stream->context().shared_session()) return {};
  const Code code = stream.Run([&](const Stream& queue) { return run->graph.Launch(queue); },
                               {.is_kernel = true});
  return {.works = run->works.size(), .code = code};
}

}  // namespace gpushared::drop_in
