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

// Graphs in the server for sequences of launches in the plan of one executable graph, so that a
// sequence takes one command instead of one per launch. Created at the second launch of the plan,
// because a plan that runs once would not gain from them. Other work is submitted individually:
// copies, fills, host functions, kernels that launch kernels, and all launches of a session with
// page-locked memory, whose parameters may have to be replaced each time.
//
// Thread-safe.
class ServerGraphs {
 public:
  using Works = std::vector<std::shared_ptr<const Work>>;  // A GraphExec::Plan.
  struct Ran {
    // Number of works of the plan that were submitted; 0 if no graph in the server matches them.
    std::size_t works = 0;
    Code code = Code::kSuccess;
  };

  // Called before each launch of the plan.
  void Prepare(const Works& plan, const StreamChoice& stream);
  // Submits the graph that begins at `at`, if there is one.
  Ran Launch(const Works& plan, std::size_t at, const StreamChoice& stream);

 private:
  // Shorter sequences are not worth the round trip.
  static constexpr std::size_t kLaunchesMin = 4;
  static constexpr std::size_t kLaunchesMax = 4096;

  struct Run {
    std::size_t first = 0;  // Index in the plan.
    Works works;
    std::vector<std::shared_ptr<CudaKernel>> kernels;  // One per work.
    gpushared::Graph graph;
  };

  // Returns the kernel of a work that a server graph can hold; null for any other work.
  static std::shared_ptr<CudaKernel> KernelFor(const Work& work);
  static std::size_t LengthOfRun(const Works& plan, std::size_t at);
  bool Follow(const Works& plan, const Context& context) GPUSHARED_REQUIRES(mutex_);
  void Make(const Works& plan, const Context& context) GPUSHARED_REQUIRES(mutex_);

  Mutex mutex_;
  std::weak_ptr<Session> session_ GPUSHARED_GUARDED_BY(mutex_);  // Session of the graphs.
  std::size_t launches_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  // Whether the session uses no graphs, because the server has rejected one or because no sequence
  // of launches is long enough.
  bool is_rejected_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::vector<Run> runs_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_SERVER_GRAPHS_H_
