# SPDX-License-Identifier: Apache-2.0
# Do the design's assumptions about a GPU and its driver hold on the driver itself?
part_facts() {
  # A worker sets the same variables before it loads the driver (PrepareEnvironment).
  export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-LAZY} CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}
  "$bin/gpu_facts" --rows "$rows" --ms "$(either 10 300)" --limit "$(either 40 10)" --costs "$logs/costs.txt" ||
    fail "gpu_facts failed"
}
