// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SAMPLES_LANGUAGE_MODEL_DEVICE_MODEL_H_
#define GPUSHARED_SAMPLES_LANGUAGE_MODEL_DEVICE_MODEL_H_

#include <chrono>
#include <span>
#include <vector>

#include "gpushared/client.h"

#include "samples/language_model/model.h"

namespace samples {

// The samples exit at the first error, so both overloads throw std::runtime_error with its text.
void Require(const gpushared::Status& status);
template <typename T>
T Require(gpushared::Result<T> result) {
  Require(result.status());
  return std::move(result).value();
}

// A language model whose parameters are in device memory, for `rows` contexts at a time.
class DeviceModel {
 public:
  // Loads the kernels and uploads the parameters. The kernels count in int, so the widest layer
  // times `rows` has at most INT_MAX elements.
  DeviceModel(const gpushared::Client& client, const Model& model, int rows);

  // Returns the probabilities of the next character after each context: rows x kCharacters floats,
  // valid until the next call. Waits for the device. Counts as one request, which arrived `age`
  // ago.
  std::span<const float> Probabilities(std::span<const int> contexts,
                                       std::chrono::nanoseconds age = std::chrono::nanoseconds(0));

  // Waits for all earlier commands, then queues one step of gradient descent and returns. `batch`
  // has `rows` rows.
  void QueueStep(const Batch& batch, float rate);
  // Runs the step of QueueStep, and waits after every kernel. Returns the device time of the
  // longest kernel in milliseconds, which includes time in which other clients' work ran.
  double TimeKernelsOfStep(const Batch& batch, float rate);
  // Waits for all queued steps and returns the mean loss of the last one.
  float FinishStep();

  // Waits for the device and copies the parameters back.
  std::vector<float> Parameters();

 private:
  void Forward();
  template <typename... Arguments>
  void Launch(const gpushared::Kernel& kernel, const gpushared::LaunchShape& shape,
              const Arguments&... arguments);
  void Multiply(const gpushared::Kernel& kernel, gpushared::DeviceAddress a,
                gpushared::DeviceAddress b, gpushared::DeviceAddress c, int m, int n, int k);
  // Launches one thread per element. `arguments` are all arguments of the kernel.
  template <typename... Arguments>
  void Elementwise(const gpushared::Kernel& kernel, int count, const Arguments&... arguments);
  gpushared::DeviceAddress At(const gpushared::DeviceBuffer& buffer, std::size_t floats) const;

  const Shape shape_;
  const int rows_;
  gpushared::Stream stream_;
  gpushared::Event begin_, end_;  // Begin and end of one kernel while kernels are timed.
  bool is_timing_ = false;
  double longest_kernel_ms_ = 0;  // The longest of the timed kernels.
  gpushared::Kernel multiply_, multiply_transposed_a_, multiply_transposed_b_, embed_, add_bias_,
      add_bias_tanh_, softmax_, cross_entropy_, tanh_backward_, column_sums_, embed_backward_,
      descend_;
  gpushared::DeviceBuffer parameters_, gradient_, contexts_, targets_, x_, h_, p_, x_gradient_,
      h_gradient_, losses_;
  gpushared::HostBuffer host_contexts_, host_targets_, host_probabilities_, host_losses_;
};

}  // namespace samples

#endif  // GPUSHARED_SAMPLES_LANGUAGE_MODEL_DEVICE_MODEL_H_
