# SPDX-License-Identifier: Apache-2.0
"""JAX: a matrix product and its gradient, compiled."""
import os

from results import near, need

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
# Autotuning may choose a different kernel in each run.
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
(jax,) = need("jax")
jnp = jax.numpy
assert jax.devices()[0].platform != "cpu", "JAX sees no GPU"
a = jax.random.normal(jax.random.PRNGKey(1), (256, 256))
b = jax.random.normal(jax.random.PRNGKey(2), (256, 256))
near("matmul", jax.jit(lambda x, y: jnp.tanh(x @ y).sum())(a, b))
near("gradient", jax.jit(jax.grad(lambda x: jnp.tanh(x @ b).sum()))(a).sum())
