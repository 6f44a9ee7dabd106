// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_SERVER_GRAPHS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_SERVER_GRAPHS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"

#include "client_lib/drop_in/cuda_module.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph.h"

namespace gpushared::drop_in {

// Launches in a row, out of the plan of an executable graph, that the server has as a graph: one
// command in place of one each. They are made at the second launch, for a graph that runs once
// gains nothing. Work that the server's graphs do not hold is submitted as without them. It is
// copies, fills, host functions, kernels that start kernels, and all launches of a session with
// page-locked memory. Parameters of those launches may have to be replaced each time.
//
// Thread-safe.
class ServerGraphs {
 public:
  using Works = std::vector<std::shared_ptr<const Work>>;  // A GraphExec::Plan.
  struct Ran {
    std::size_t works = 0;  // So many of the plan; 0: they are not the server's.
    Code code = Code::kSuccess;
  };

  // Before each launch of the plan.
  void Prepare(const Works& plan, const StreamChoice& stream);
  // Submits the graph that begins there, if one does.
  Ran Launch(const Works& plan, std::size_t at, const StreamChoice& stream);

 private:
  // Fewer are not worth the round trip.
  static constexpr std::size_t kLaunchesMin = 4;
  static constexpr std::size_t kLaunchesMax = 4096;

  struct Run {
    std::size_t first = 0;  // In the plan.
    Works works;
    std::vector<std::shared_ptr<CudaKernel>> kernels;  // One per work.
    gpushared::Graph graph;
  };

  // The kernel of a work that a graph of the server can hold; null: it is another work.
  static std::shared_ptr<CudaKernel> KernelFor(const Work& work);
  static std::size_t LengthOfRun(const Works& plan, std::size_t at);
  bool Follow(const Works& plan, const Context& context) GPUSHARED_REQUIRES(mutex_);
  void Make(const Works& plan, const Context& context) GPUSHARED_REQUIRES(mutex_);

  Mutex mutex_;
  std::weak_ptr<Session> session_ GPUSHARED_GUARDED_BY(mutex_);  // The graphs' session.
  std::size_t launches_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  // The server rejected one: the plan is submitted as without it.
  bool is_rejected_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::vector<Run> runs_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_SERVER_GRAPHS_H_
