// SPDX-License-Identifier: Apache-2.0
#include "samples/language_model/device_model.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "samples/kernels/kernel_image.h"

namespace samples {
namespace {

constexpr std::uint32_t kTile = 16;      // Same as in language_model.cu.
constexpr std::uint32_t kThreads = 128;  // Threads per block of the element-wise kernels.

std::uint32_t Blocks(int count, std::uint32_t per_block) {
  return (static_cast<std::uint32_t>(count) + per_block - 1) / per_block;
}

std::size_t Floats(int rows, int width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width) * sizeof(float);
}

void CheckSize(const Shape& shape, int rows) {
  const int width = std::max({shape.hidden, shape.inputs(), kCharacters});
  const long long elements = static_cast<long long>(rows) * width;
  if (elements <= std::numeric_limits<int>::max()) return;
  throw std::runtime_error(std::to_string(rows) + " rows of a layer of " + std::to_string(width) +
                           " are " + std::to_string(elements) + " elements, allowed: " +
                           std::to_string(std::numeric_limits<int>::max()));
}

}  // namespace

void Require(const gpushared::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

DeviceModel::DeviceModel(const gpushared::Client& client, const Model& model, int rows)
    : shape_(model.shape),
      rows_(rows),
      stream_(Require(client.CreateStream())),
      begin_(Require(client.CreateEvent(gpushared::EventTiming::kOn))),
      end_(Require(client.CreateEvent(gpushared::EventTiming::kOn))) {
  CheckSize(shape_, rows);
  const gpushared::Module module =
      Require(client.LoadModule(std::as_bytes(std::span(kernel_image_begin, kernel_image_end))));
  const auto kernel = [&](const char* name) { return Require(module.GetKernel(name)); };
  multiply_ = kernel("multiply");
  multiply_transposed_a_ = kernel("multiply_transposed_a");
  multiply_transposed_b_ = kernel("multiply_transposed_b");
  embed_ = kernel("embed");
  add_bias_ = kernel("add_bias");
  add_bias_tanh_ = kernel("add_bias_tanh");
  softmax_ = kernel("softmax");
  cross_entropy_ = kernel("cross_entropy");
  tanh_backward_ = kernel("tanh_backward");
  column_sums_ = kernel("column_sums");
  embed_backward_ = kernel("embed_backward");
  descend_ = kernel("descend");

  const auto allocate = [&](std::size_t bytes) { return Require(client.AllocateDevice(bytes)); };
  parameters_ = allocate(shape_.parameters() * sizeof(float));
  gradient_ = allocate(shape_.parameters() * sizeof(float));
  contexts_ = allocate(Floats(rows, shape_.context));
  targets_ = allocate(Floats(rows, 1));
  x_ = allocate(Floats(rows, shape_.inputs()));
  x_gradient_ = allocate(Floats(rows, shape_.inputs()));
  h_ = allocate(Floats(rows, shape_.hidden));
  h_gradient_ = allocate(Floats(rows, shape_.hidden));
  p_ = allocate(Floats(rows, kCharacters));
  losses_ = allocate(Floats(rows, 1));
  host_contexts_ = Require(client.AllocateHost(contexts_.size()));
  host_targets_ = Require(client.AllocateHost(targets_.size()));
  host_probabilities_ = Require(client.AllocateHost(p_.size()));
  host_losses_ = Require(client.AllocateHost(losses_.size()));
  Require(stream_.CopyToDevice(parameters_, model.parameters.data(), parameters_.size()));
}

gpushared::DeviceAddress DeviceModel::At(const gpushared::DeviceBuffer& buffer,
                                         std::size_t floats) const {
  return buffer.address() + floats * sizeof(float);
}

template <typename... Arguments>
void DeviceModel::Launch(const gpushared::Kernel& kernel, const gpushared::LaunchShape& shape,
                         const Arguments&... arguments) {
  if (is_timing_) Require(stream_.Record(begin_));
  Require(stream_.Launch(kernel, shape, arguments...));
  if (!is_timing_) return;
  Require(stream_.Record(end_));
  Require(end_.Synchronize());
  const std::chrono::duration<double, std::milli> took =
      Require(gpushared::Event::ElapsedTime(begin_, end_));
  longest_kernel_ms_ = std::max(longest_kernel_ms_, took.count());
}

void DeviceModel::Multiply(const gpushared::Kernel& kernel, gpushared::DeviceAddress a,
                           gpushared::DeviceAddress b, gpushared::DeviceAddress c, int m, int n,
                           int k) {
  const gpushared::LaunchShape shape{.grid = {Blocks(n, kTile), Blocks(m, kTile), 1},
                                     .block = {kTile, kTile, 1}};
  Launch(kernel, shape, a, b, c, m, n, k);
}

template <typename... Arguments>
void DeviceModel::Elementwise(const gpushared::Kernel& kernel, int count,
                              const Arguments&... arguments) {
  Launch(kernel, {.grid = {Blocks(count, kThreads), 1, 1}, .block = {kThreads, 1, 1}},
         arguments...);
}

void DeviceModel::Forward() {
  Elementwise(embed_, rows_ * shape_.inputs(), At(parameters_, shape_.embedding_at()),
              contexts_.address(), x_.address(), rows_ * shape_.inputs(), shape_.embedding);
  Multiply(multiply_, x_, At(parameters_, shape_.w1_at()), h_, rows_, shape_.hidden,
           shape_.inputs());
  Elementwise(add_bias_tanh_, rows_ * shape_.hidden, h_.address(), At(parameters_, shape_.b1_at()),
              rows_ * shape_.hidden, shape_.hidden);
  Multiply(multiply_, h_, At(parameters_, shape_.w2_at()), p_, rows_, kCharacters, shape_.hidden);
  Elementwise(add_bias_, rows_ * kCharacters, p_.address(), At(parameters_, shape_.b2_at()),
              rows_ * kCharacters, kCharacters);
  Launch(softmax_, {.grid = {static_cast<std::uint32_t>(rows_), 1, 1}, .block = {32, 1, 1}}, p_,
         kCharacters);
}

std::span<const float> DeviceModel::Probabilities(std::span<const int> contexts,
                                                  std::chrono::nanoseconds age) {
  if (contexts.size_bytes() != contexts_.size()) {
    throw std::runtime_error("the model was made for " + std::to_string(rows_) +
                             " contexts at a time");
  }
  Require(stream_.BeginRequest(age));
  std::memcpy(host_contexts_.data(), contexts.data(), contexts.size_bytes());
  Require(stream_.CopyToDevice(contexts_, host_contexts_.data(), host_contexts_.size()));
  Forward();
  Require(stream_.CopyToHost(host_probabilities_.data(), p_, p_.size()));
  Require(stream_.EndRequest());
  Require(stream_.Synchronize());
  return host_probabilities_.as<float>();
}

void DeviceModel::QueueStep(const Batch& batch, float rate) {
  if (batch.rows() != rows_) {
    throw std::runtime_error("the model was made for " + std::to_string(rows_) + " rows at a time");
  }
  // The staging buffers can be reused once the last step has finished reading them.
  Require(stream_.Synchronize());
  std::memcpy(host_contexts_.data(), batch.contexts.data(), host_contexts_.size());
  std::memcpy(host_targets_.data(), batch.targets.data(), host_targets_.size());
  Require(stream_.CopyToDevice(contexts_, host_contexts_.data(), host_contexts_.size()));
  Require(stream_.CopyToDevice(targets_, host_targets_.data(), host_targets_.size()));
  Forward();
  Elementwise(cross_entropy_, rows_, p_.address(), targets_.address(), losses_.address(), rows_,
              kCharacters);
  Require(stream_.CopyToHost(host_losses_.data(), losses_, losses_.size()));

  Multiply(multiply_transposed_a_, h_, p_, At(gradient_, shape_.w2_at()), shape_.hidden,
           kCharacters, rows_);
  Elementwise(column_sums_, kCharacters, p_.address(), At(gradient_, shape_.b2_at()), rows_,
              kCharacters);
  Multiply(multiply_transposed_b_, p_, At(parameters_, shape_.w2_at()), h_gradient_, rows_,
           shape_.hidden, kCharacters);
  Elementwise(tanh_backward_, rows_ * shape_.hidden, h_gradient_.address(), h_.address(),
              rows_ * shape_.hidden);
  Multiply(multiply_transposed_a_, x_, h_gradient_, At(gradient_, shape_.w1_at()), shape_.inputs(),
           shape_.hidden, rows_);
  Elementwise(column_sums_, shape_.hidden, h_gradient_.address(), At(gradient_, shape_.b1_at()),
              rows_, shape_.hidden);
  Multiply(multiply_transposed_b_, h_gradient_, At(parameters_, shape_.w1_at()), x_gradient_, rows_,
           shape_.inputs(), shape_.hidden);
  Launch(embed_backward_,
         {.grid = {kCharacters, 1, 1},
          .block = {static_cast<std::uint32_t>((shape_.embedding + 31) / 32 * 32), 1, 1}},
         x_gradient_, contexts_, At(gradient_, shape_.embedding_at()), rows_ * shape_.context,
         shape_.embedding);
  const int count = static_cast<int>(shape_.parameters());
  Elementwise(descend_, count, parameters_.address(), gradient_.address(), count, rate);
}

double DeviceModel::TimeKernelsOfStep(const Batch& batch, float rate) {
  longest_kernel_ms_ = 0;
  is_timing_ = true;
  QueueStep(batch, rate);
  is_timing_ = false;
  return longest_kernel_ms_;
}

float DeviceModel::FinishStep() {
  Require(stream_.Synchronize());
  const std::span<const float> losses = host_losses_.as<float>();
  return std::accumulate(losses.begin(), losses.end(), 0.0f) / static_cast<float>(rows_);
}

std::vector<float> DeviceModel::Parameters() {
  std::vector<float> parameters(shape_.parameters());
  Require(stream_.CopyToHost(parameters.data(), parameters_, parameters_.size()));
  return parameters;
}

}  // namespace samples
