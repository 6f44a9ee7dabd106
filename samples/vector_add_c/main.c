/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest complete client in C: adds two vectors on the shared device. */

#include <stdio.h>
#include <stdlib.h>

#include "gpushared/gpushared.h"

#include "samples/kernels/kernel_image.h"

enum { kCount = 100000, kThreads = 256 };

static void Require(gpushared_status_t status, const char* what) {
  if (status == GPUSHARED_OK) return;
  fprintf(stderr, "vector_add_c: %s: %s: %s\n", what, gpushared_status_name(status),
          gpushared_last_error_message());
  exit(1);
}

int main(void) {
  static float a[kCount], b[kCount], sum[kCount];
  for (int i = 0; i < kCount; ++i) {
    a[i] = (float)i;
    b[i] = 0.5f;
  }

  gpushared_client_options options;
  gpushared_client_options_init(&options);
  options.name = "vector_add_c";
  gpushared_client* client = NULL;
  Require(gpushared_connect(&options, &client), "connect");

  gpushared_module* module = NULL;
  gpushared_kernel* kernel = NULL;
  const size_t image_bytes = (size_t)(kernel_image_end - kernel_image_begin);
  Require(gpushared_load_module(client, kernel_image_begin, image_bytes, &module), "load");
  Require(gpushared_get_kernel(module, "vector_add", &kernel), "kernel");

  gpushared_address device_a = 0, device_b = 0, device_sum = 0;
  Require(gpushared_allocate_device(client, sizeof a, &device_a), "allocate");
  Require(gpushared_allocate_device(client, sizeof b, &device_b), "allocate");
  Require(gpushared_allocate_device(client, sizeof sum, &device_sum), "allocate");

  gpushared_stream* stream = gpushared_default_stream(client);
  Require(gpushared_copy_to_device(stream, device_a, a, sizeof a), "copy");
  Require(gpushared_copy_to_device(stream, device_b, b, sizeof b), "copy");
  const gpushared_launch_shape shape = {
      {(kCount + kThreads - 1) / kThreads, 1, 1}, {kThreads, 1, 1}, 0};
  const int count = kCount;
  const void* arguments[] = {&device_a, &device_b, &device_sum, &count};
  Require(gpushared_launch(stream, kernel, &shape, arguments, 4), "launch");
  Require(gpushared_copy_to_host(stream, sum, device_sum, sizeof sum), "copy");
  Require(gpushared_synchronize_stream(stream), "synchronize");

  for (int i = 0; i < kCount; ++i) {
    if (sum[i] != a[i] + b[i]) {
      fprintf(stderr, "vector_add_c: sum %d is %g, not %g\n", i, (double)sum[i],
              (double)(a[i] + b[i]));
      return 1;
    }
  }
  printf("vector_add_c: %d sums are right\n", kCount);
  gpushared_destroy_kernel(kernel);
  gpushared_destroy_module(module);
  gpushared_destroy_client(client);
  return 0;
}
